//! What differs between two states: pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::snapshot::{NodeRouteView, Objects, Snapshot};
use crate::model::views::{EndpointView, ServiceView};

/// Objects that came or changed, and `None` for those that went.
type Changed<V> = BTreeMap<String, Option<Arc<V>>>;

/// What differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Change {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    node_routes: Changed<NodeRouteView>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    services: Changed<ServiceView>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    endpoints: Changed<EndpointView>,
    /// All but those, where something of it is another: a state without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<Box<Snapshot>>,
}

impl Change {
    /// What makes `new` of `old`.
    pub(super) fn between(old: &Snapshot, new: &Snapshot) -> Self {
        let rest = rest_of(new);
        Self {
            node_routes: changed(&old.node_routes, &new.node_routes),
            services: changed(&old.services, &new.services),
            endpoints: changed(&old.endpoints, &new.endpoints),
            rest: (rest_of(old) != rest).then(|| Box::new(rest)),
        }
    }

    /// Changes a state.
    pub(super) fn make(self, state: &mut Snapshot) {
        if let Some(rest) = self.rest {
            let Snapshot { node_routes, services, endpoints, .. } = state;
            let (node_routes, services, endpoints) =
                (std::mem::take(node_routes), std::mem::take(services), std::mem::take(endpoints));
            *state = Snapshot { node_routes, services, endpoints, ..*rest };
        }
        put(&mut state.node_routes, self.node_routes);
        put(&mut state.services, self.services);
        put(&mut state.endpoints, self.endpoints);
    }
}

fn rest_of(state: &Snapshot) -> Snapshot {
    let mut rest = state.clone();
    rest.node_routes = Objects::default();
    rest.services = Objects::default();
    rest.endpoints = Objects::default();
    rest
}

fn changed<V: PartialEq>(old: &Objects<V>, new: &Objects<V>) -> Changed<V> {
    new.differences(old).map(|(name, _, new)| (name.clone(), new.cloned())).collect()
}

fn put<V>(objects: &mut Objects<V>, changed: Changed<V>) {
    for (name, object) in changed {
        match object {
            Some(object) => drop(objects.insert(name, object)),
            None => drop(objects.remove(&name)),
        }
    }
}

/// What a later run can use of a state: it reads the interfaces itself, and of the endpoints only those of
/// load balancers count.
#[derive(Debug, Default)]
pub(super) struct Useful {
    services: Objects<ServiceView>,
    endpoints: Objects<EndpointView>,
    /// Those of them that count.
    counting: Objects<EndpointView>,
}

impl Useful {
    /// That of `state`; what did not change is not looked at again.
    pub(super) fn of(&mut self, mut state: Snapshot) -> Snapshot {
        state.local.clear();
        state.learned.clear();
        state.stale = Arc::default();
        let counts = |slice: &&Arc<EndpointView>| state.services.contains_key(&slice.service.to_string());
        let mut services = state.services.differences(&self.services);
        let are_others = services.any(|(_, old, new)| old.is_some() != new.is_some());
        if are_others {
            // Any slice may be of one of them.
            self.endpoints = Objects::default();
            let is_gone = |name: &&String| state.endpoints.get(*name).is_none();
            let gone: Vec<_> = self.counting.keys().filter(is_gone).cloned().collect();
            gone.iter().for_each(|name| drop(self.counting.remove(name)));
        }
        for (name, _, new) in state.endpoints.differences(&self.endpoints) {
            match new.filter(counts) {
                Some(slice) if self.counting.get(name) == Some(slice) => {}
                Some(slice) => drop(self.counting.insert(name.clone(), Arc::clone(slice))),
                None => drop(self.counting.remove(name)),
            }
        }
        self.services = state.services.clone();
        self.endpoints = std::mem::replace(&mut state.endpoints, self.counting.clone());
        state
    }
}
