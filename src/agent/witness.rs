//! Which nodes this one is a witness for, and the routes and next hops that it looks at for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::routes::RoutePlan;
use crate::agent::snapshot::{NodeRouteView, Objects};
use crate::model::{FibRoute, Hop, Neighbour, NodeName, Prefix, Target};

/// The nodes that this one is a witness for.
#[derive(Debug, Clone, Default)]
pub struct Witnessed {
    nodes: Objects<NodeRouteView>,
    of_them: BTreeMap<String, Arc<NodeRouteView>>,
}

impl Witnessed {
    /// Takes in which nodes came, changed and went, and returns all that `me` is a witness for.
    pub fn look(&mut self, me: &NodeName, nodes: &Objects<NodeRouteView>) -> Vec<Arc<NodeRouteView>> {
        for (name, _, new) in nodes.differences(&self.nodes) {
            match new.filter(|node| node.witnesses.iter().any(|witness| witness == me.as_str())) {
                Some(node) => drop(self.of_them.insert(name.clone(), Arc::clone(node))),
                None => drop(self.of_them.remove(name)),
            }
        }
        self.nodes = nodes.clone();
        self.of_them.values().cloned().collect()
    }
}

/// The route to a pod CIDR that goes by the node itself: another node may claim the same CIDR.
pub(super) fn route_by<'a>(node: &NodeRouteView, cidr: &Prefix, plan: &'a RoutePlan) -> Option<&'a FibRoute> {
    let is_by_node = |route: &&FibRoute| hops(route).any(|hop| node.addresses.contains(&hop.gateway));
    plan.wanted.to(cidr).iter().find(is_by_node)
}

/// Its next hops.
pub(super) fn hops(route: &FibRoute) -> impl Iterator<Item = &Hop> {
    let hops = match &route.target {
        Target::Via(hops) => Some(hops),
        Target::Blackhole => None,
    };
    hops.into_iter().flatten()
}

/// The next hops of the routes to some nodes.
pub fn neighbours(nodes: &[Arc<NodeRouteView>], plan: &RoutePlan) -> BTreeSet<Neighbour> {
    let routes = nodes.iter().flat_map(|node| node.pod_cidrs.iter().filter_map(|cidr| route_by(node, cidr, plan)));
    let neighbour = |hop: &Hop| Some(Neighbour { address: hop.gateway, interface: hop.interface? });
    routes.flat_map(hops).filter_map(neighbour).collect()
}
