//! What is known of machines, their Nodes and their objects now.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;

use super::plan::{Doubt, DoubtReason, Observed, ObservedMachine, ObservedNode};
use super::{Context, Memory, Trust};
use crate::api::MachineStatus;
use crate::inventory::{Inventory, InventoryState, Machine, Maintenance, NodeIdentity, Removals, Survey, Why, brake};
use crate::model::views::NodeView;
use crate::model::{MachineId, NodeName};

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

/// Every `Machine` of the API server, own writes included.
pub(super) fn objects(context: &Context, memory: &mut Memory) -> BTreeMap<MachineId, Arc<MachineObject>> {
    let objects = context.objects.snapshot().into_iter();
    let mut objects = objects.filter_map(|(name, object)| Some((name.parse().ok()?, object))).collect();
    memory.written.lay_over(&mut objects);
    objects
}

/// The machines of the inventory in force with their Nodes, and their objects.
pub(super) fn observe(
    context: &mut Context,
    objects: &BTreeMap<MachineId, Arc<MachineObject>>,
    trust: Trust,
) -> Observed {
    let views: BTreeMap<_, _> = context.nodes.snapshot().into_values().map(|view| (view.name.clone(), view)).collect();
    let state = Arc::clone(&context.inventory.borrow_and_update());
    observed(&views, &state, objects, trust)
}

fn observed(
    views: &BTreeMap<NodeName, Arc<NodeView>>,
    state: &InventoryState,
    objects: &BTreeMap<MachineId, Arc<MachineObject>>,
    trust: Trust,
) -> Observed {
    let objects: BTreeMap<_, _> = objects.iter().map(|(id, object)| (id.clone(), object.status.clone())).collect();
    let Some(inventory) = &state.inventory else { return Observed { objects, ..Observed::default() } };
    let identities: Vec<_> = views.values().map(|view| NodeIdentity::from(&**view)).collect();
    let survey = inventory.survey(&identities);
    let machines = inventory.machines();
    let machines =
        machines.map(|machine| (machine.id.clone(), observed_machine(machine, inventory, views, &survey))).collect();
    let held = state.removals.clone().or_else(|| removals_since(&objects, inventory, trust));
    let held = held.map(|removals| sentences(&removals)).unwrap_or_default();
    Observed { machines: Some(machines), objects, held }
}

/// What the inventory took out of service while nobody watched over its files: a process that starts
/// with a file that lost its machines has no earlier one to compare it with, but has the objects.
fn removals_since(
    objects: &BTreeMap<MachineId, Option<MachineStatus>>,
    inventory: &Inventory,
    trust: Trust,
) -> Option<Removals> {
    let states = || objects.iter().filter_map(|(id, status)| Some((id.clone(), status.as_ref()?.state))).collect();
    match trust {
        Trust::Files => None,
        Trust::Objects => brake::decide(&states(), inventory).err(),
    }
}

fn sentences(removals: &Removals) -> BTreeMap<MachineId, String> {
    removals.machines.keys().map(|id| (id.clone(), removals.to_string())).collect()
}

fn observed_machine(
    machine: &Machine,
    inventory: &Inventory,
    views: &BTreeMap<NodeName, Arc<NodeView>>,
    survey: &Survey,
) -> ObservedMachine {
    let nodes = survey.nodes.get(&machine.id).into_iter().flatten();
    let nodes = nodes.filter_map(|(name, key)| Some((views.get(name)?, key)));
    // The one that is the machine already comes before newcomers that would be it as well.
    let node = nodes.min_by_key(|(view, _)| (view.provider_id.is_none(), view.name.clone()));
    let doubts = survey.doubts.get(&machine.id).into_iter().flatten();
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

    use super::*;
    use crate::cluster::views;
    use crate::inventory::file;
    use crate::machine::plan::{self, Action};
    use crate::model::MachineState;

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

    #[test]
    fn a_process_that_starts_with_a_file_that_lost_machines_deletes_none() {
        let (none, known) = (BTreeMap::new(), objects(&["a", "b", "c"]));
        let deleted = |file: &str, trust| -> Vec<MachineId> {
            let plan = plan::plan(&observed(&none, &state(file), &known, trust), "now");
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
        let observed = observed(&views, &state(file), &BTreeMap::new(), Trust::Files);
        let machines = observed.machines.expect("an inventory");
        let node = |id: MachineId| machines[&id].node.as_ref().map(|node| node.name.to_string());
        // Node n3 says that it is machine a, but machine a says that its node is n2: that is a doubt.
        assert_eq!(node(id("a")).as_deref(), Some("n2"));
        assert_eq!(machines[&id("a")].doubts.len(), 1);
        assert_eq!(node(id("b")).as_deref(), Some("n4"));
        assert_eq!(machines[&id("b")].provider_id, "lab://b");
    }
}
