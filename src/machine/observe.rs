//! What is known of machines, their Nodes and their objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;

use super::plan::{Doubt, DoubtReason, Held, Observed, ObservedMachine, ObservedNode};
use crate::api::MachineStatus;
use crate::inventory::{Inventory, InventoryState, Machine, Maintenance, Survey, Why, brake};
use crate::model::views::NodeView;
use crate::model::{MachineId, MachineState, NodeName};

/// Machines whose held removal is told in an Event of their own; the condition is at each.
const MOST_TOLD: usize = 10;

/// A `Machine` of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineObject {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// Its status, if it has one.
    pub status: Option<MachineStatus>,
}

/// The view of a `Machine`.
pub fn object(machine: &crate::api::Machine) -> Option<MachineObject> {
    Some(MachineObject {
        uid: machine.uid().unwrap_or_default(),
        resource_version: machine.resource_version().unwrap_or_default(),
        status: machine.status.clone(),
    })
}

/// Against what an inventory is held that lost many machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Against the objects: this process has taken no inventory from another yet.
    Objects,
    /// Against the files before it, which its reader has done.
    Files,
}

/// The states that the objects show.
pub(super) fn states(objects: &BTreeMap<String, Arc<MachineObject>>) -> BTreeMap<MachineId, MachineState> {
    let state = |(name, object): (&String, &Arc<MachineObject>)| {
        Some((name.parse().ok()?, object.status.as_ref().map(|status| status.state)?))
    };
    objects.iter().filter_map(state).collect()
}

/// The machines whose removal waits to be acknowledged.
///
/// A process that starts with a file that lost its machines has no earlier one to compare it with, but
/// has what the objects show: what was taken out of service while nobody watched over the files.
pub(super) fn held(
    state: &InventoryState,
    shown: &BTreeMap<MachineId, MachineState>,
    trust: Trust,
) -> BTreeMap<MachineId, Held> {
    let Some(inventory) = &state.inventory else { return BTreeMap::new() };
    let since = || match trust {
        Trust::Files => None,
        Trust::Objects => brake::decide(shown, inventory).err(),
    };
    let Some(removals) = state.removals.clone().or_else(since) else { return BTreeMap::new() };
    let why = removals.to_string();
    let held = |(place, id): (usize, &MachineId)| (id.clone(), Held { why: why.clone(), is_told: place < MOST_TOLD });
    removals.machines.keys().enumerate().map(held).collect()
}

/// What is known of these machines: of those that the inventory in force has, with their Nodes, and of their objects.
pub(super) fn observed(
    state: &InventoryState,
    ids: &[MachineId],
    objects: &BTreeMap<MachineId, Arc<MachineObject>>,
    held: &BTreeMap<MachineId, Held>,
    survey: &Survey,
    find: impl Fn(&NodeName) -> Option<Arc<NodeView>>,
) -> Observed {
    let objects = objects.iter().map(|(id, object)| (id.clone(), object.status.clone())).collect();
    let Some(inventory) = &state.inventory else { return Observed { objects, ..Observed::default() } };
    let machines = ids.iter().filter_map(|id| inventory.machine(id));
    let machines = machines.map(|machine| (machine.id.clone(), observed_machine(machine, inventory, survey, &find)));
    let held = ids.iter().filter_map(|id| Some((id.clone(), held.get(id)?.clone())));
    Observed { machines: Some(machines.collect()), objects, held: held.collect() }
}

fn observed_machine(
    machine: &Machine,
    inventory: &Inventory,
    survey: &Survey,
    find: impl Fn(&NodeName) -> Option<Arc<NodeView>>,
) -> ObservedMachine {
    let nodes = survey.nodes_of(&machine.id).filter_map(|(name, key)| Some((find(name)?, key)));
    // The one that is the machine already comes before newcomers that would be it as well.
    let node = nodes.min_by_key(|(view, _)| (view.provider_id.is_none(), view.name.clone()));
    let doubts = survey.doubts_of(&machine.id);
    ObservedMachine {
        state: machine.state,
        maintenance: maintenance(&machine.maintenance),
        digest: inventory.digest(&machine.id).to_owned(),
        provider_id: machine.match_keys.provider_id.clone().unwrap_or_else(|| machine.provider_id().to_string()),
        node: node.map(|(view, key)| ObservedNode {
            name: view.name.clone(),
            key: key.to_string(),
            is_uninitialized: view.is_uninitialized(),
        }),
        doubts: doubts.filter_map(|(node, why)| doubt(node, why)).collect(),
    }
}

fn doubt(node: &NodeName, why: &Why) -> Option<Doubt> {
    let reason = match why {
        why if why.is_mismatch() => DoubtReason::Mismatch,
        Why::KeyAmbiguous { .. } => DoubtReason::Ambiguous,
        _ => return None,
    };
    Some(Doubt { node: node.clone(), why: why.to_string(), reason })
}

fn maintenance(maintenance: &Maintenance) -> Option<String> {
    let Maintenance { reason, until, allows_fencing: _ } = maintenance;
    match (reason, until) {
        (None, None) => None,
        (Some(reason), None) => Some(reason.clone()),
        (None, Some(until)) => Some(format!("until {until}")),
        (Some(reason), Some(until)) => Some(format!("{reason}, until {until}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::collections::BTreeSet;

    use super::*;
    use crate::cluster::views;
    use crate::inventory::{NodeIdentity, file};
    use crate::machine::plan::{self, Action};

    /// The inventory in force, of these lines below `machines:`.
    fn state(machines: &str) -> InventoryState {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("inventory.yaml");
        let text = format!("apiVersion: inventory.cairn.dev/v1\nkind: Inventory\nmachines:\n{machines}");
        std::fs::write(&path, text).expect("a file");
        let inventory = file::load(&[path]).unwrap_or_else(|faults| panic!("{faults}"));
        InventoryState { inventory: Some(Arc::new(inventory)), ..InventoryState::unread() }
    }

    fn nodes(objects: &[(&str, Option<&str>)]) -> BTreeMap<NodeName, Arc<NodeView>> {
        let view = |(name, provider_id): &(&str, Option<&str>)| {
            let object = json!({ "metadata": { "name": name }, "spec": { "providerID": provider_id } });
            let view = views::node(&serde_json::from_value(object).expect("a Node")).expect("a name");
            (view.name.clone(), Arc::new(view))
        };
        objects.iter().map(view).collect()
    }

    fn id(text: &str) -> MachineId {
        text.parse().expect("an id")
    }

    fn objects(ids: &[&str]) -> BTreeMap<MachineId, Arc<MachineObject>> {
        let object = |id: &&str| {
            let provider_id = format!("cairn://{id}");
            let status = MachineStatus {
                state: MachineState::Active,
                provider_id,
                node: None,
                last_reading: None,
                conditions: Vec::new(),
            };
            let object = MachineObject { uid: String::new(), resource_version: String::new(), status: Some(status) };
            (id.parse().expect("an id"), Arc::new(object))
        };
        ids.iter().map(object).collect()
    }

    /// All there is to observe.
    fn all(
        views: &BTreeMap<NodeName, Arc<NodeView>>,
        state: &InventoryState,
        objects: &BTreeMap<MachineId, Arc<MachineObject>>,
        trust: Trust,
    ) -> Observed {
        let inventory = state.inventory.as_ref().expect("an inventory");
        let mut survey = Survey::default();
        let identity = |name: &NodeName| views.get(name).map(|view| NodeIdentity::from(&**view));
        survey.follow(inventory, views.keys().cloned().collect(), identity);
        let by_name = objects.iter().map(|(id, object)| (id.to_string(), Arc::clone(object))).collect();
        let ids: BTreeSet<_> = inventory.machines().map(|machine| machine.id.clone()).collect();
        let ids: Vec<_> = ids.into_iter().chain(objects.keys().cloned()).collect();
        let held = held(state, &states(&by_name), trust);
        observed(state, &ids, objects, &held, &survey, |name| views.get(name).cloned())
    }

    #[test]
    fn a_process_that_starts_with_a_file_that_lost_machines_deletes_none() {
        let (none, known) = (BTreeMap::new(), objects(&["a", "b", "c"]));
        let deleted = |file: &str, trust| -> Vec<MachineId> {
            let plan = plan::plan(&all(&none, &state(file), &known, trust), "now");
            plan.actions.into_iter().filter(|(_, action)| *action == Action::Delete).map(|(id, _)| id).collect()
        };
        assert_eq!(deleted("- {id: a}\n", Trust::Objects), []);
        assert_eq!(deleted("- {id: a}\n- {id: b}\n", Trust::Objects), [id("c")]);
        assert_eq!(deleted("- {id: a}\nacknowledgedRemovals: [b]\n", Trust::Objects), [id("b"), id("c")]);
        assert_eq!(deleted("- {id: a}\n", Trust::Files), [id("b"), id("c")], "the reader of the files has agreed");
    }

    #[test]
    fn each_machine_has_its_node_and_its_doubts() {
        let file = "- {id: a, match: {nodeName: n2}}\n- {id: b, match: {providerID: 'lab://b'}}\n";
        let views = nodes(&[("n1", None), ("n2", None), ("n3", Some("cairn://a")), ("n4", Some("lab://b"))]);
        let observed = all(&views, &state(file), &BTreeMap::new(), Trust::Files);
        let machines = observed.machines.expect("an inventory");
        let node = |id: MachineId| machines[&id].node.as_ref().map(|node| node.name.to_string());
        // Node n3 says that it is machine a, but machine a says that its node is n2: that is a doubt.
        assert_eq!(node(id("a")).as_deref(), Some("n2"));
        assert_eq!(machines[&id("a")].doubts.len(), 1);
        assert_eq!(node(id("b")).as_deref(), Some("n4"));
        assert_eq!(machines[&id("b")].provider_id, "lab://b");
    }
}
