//! What to do for each Node that is not Ready: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::brake;
use crate::model::views::{NodeView, Taint, Truth};
use crate::model::{NodeName, Note, truth};

/// The taint of a Node whose machine is powered off.
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Its effect; it has no value.
const NO_SCHEDULE: &str = "NoSchedule";

/// Everything the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// The Nodes that [concern](concerns) the room, by name.
    pub nodes: BTreeMap<NodeName, ObservedNode>,
    /// How many Nodes of the whole cluster are machines of the inventory, of which the brake's limit
    /// is a part; without those of `recently_deleted`.
    pub machine_nodes: usize,
    /// `metadata.uid` of the Nodes that count against the brake's limit.
    pub recently_deleted: BTreeSet<String>,
}

/// A Node and its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservedNode {
    /// The Node.
    pub view: Arc<NodeView>,
    /// What the inventory says.
    pub machine: ObservedMachine,
}

/// What the inventory says of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObservedMachine {
    /// Its machine is in service.
    Active(Power),
    /// Someone works on its machine.
    Maintenance,
    /// Its machine is gone for good.
    Decommissioned,
    /// Nobody can tell, and why.
    Unknown(String),
}

/// Whether a machine is powered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// A source that sees the machine says that it is on.
    On,
    /// A source that sees the machine says that it is off.
    Off,
    /// Nobody can tell.
    Unknown,
}

/// What to do, and what to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// At most one action a Node.
    pub actions: BTreeMap<NodeName, Action>,
    /// What is done, or stands in the way, by Node.
    pub notes: BTreeMap<NodeName, Note>,
}

/// What to write to one Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    /// Delete it.
    Delete,
    /// Give it these for `spec.taints`.
    WriteTaints(Vec<Taint>),
}

/// Whether there is anything to decide for a Node: it is not Ready, or is and looks shut down.
pub fn concerns(view: &NodeView) -> bool {
    !view.is_deleting && (!is_ready(view) || view.taints.iter().any(is_shutdown))
}

/// Whether someone said that the Node may go, however many go.
pub fn is_acknowledged(view: &NodeView) -> bool {
    view.annotations.get(brake::ACKNOWLEDGED).and_then(truth) == Some(true)
}

/// Decides for every Node.
///
/// Only a Node whose machine was decommissioned is deleted, only while it is not Ready, and only as
/// far as the brake lets it.
pub fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    let mut doomed = BTreeMap::new();
    for (name, node) in observed.nodes.iter().filter(|(_, node)| concerns(&node.view)) {
        match decide(node) {
            Decision::Leave => {}
            Decision::Hold(note) => drop(plan.notes.insert(name.clone(), note)),
            Decision::WriteTaints(taints) => drop(plan.actions.insert(name.clone(), Action::WriteTaints(taints))),
            Decision::Delete => drop(doomed.insert(name, &*node.view)),
        }
    }
    let limit = brake::limit(observed.machine_nodes + observed.recently_deleted.len());
    let waiting = doomed.values().filter(|view| !is_acknowledged(view)).map(|view| view.uid.as_str());
    let is_held = brake::holds(waiting, &observed.recently_deleted, limit);
    for (name, view) in doomed {
        let note = if is_held && !is_acknowledged(view) {
            Note::DeletionsHeld { limit }
        } else {
            plan.actions.insert(name.clone(), Action::Delete);
            Note::NodeDeleting { node: name.clone() }
        };
        plan.notes.insert(name.clone(), note);
    }
    plan
}

enum Decision {
    Leave,
    Hold(Note),
    WriteTaints(Vec<Taint>),
    Delete,
}

fn decide(node: &ObservedNode) -> Decision {
    let ObservedNode { view, machine } = node;
    let is_shut_down = view.taints.iter().any(is_shutdown);
    if is_ready(view) {
        let is_ours = view.own_provider_id().is_some() || !matches!(machine, ObservedMachine::Unknown(_));
        return if is_shut_down && is_ours { Decision::WriteTaints(without_shutdown(view)) } else { Decision::Leave };
    }
    match machine {
        ObservedMachine::Decommissioned => Decision::Delete,
        ObservedMachine::Active(Power::Off) if !is_shut_down => Decision::WriteTaints(with_shutdown(view)),
        ObservedMachine::Active(Power::On | Power::Off | Power::Unknown) => Decision::Leave,
        ObservedMachine::Maintenance => Decision::Hold(Note::MachineInMaintenance),
        // What waits to be initialized hears the same from the node controller.
        ObservedMachine::Unknown(_) if is_foreign(view) || view.is_uninitialized() => Decision::Leave,
        ObservedMachine::Unknown(why) => Decision::Hold(Note::MachineUnknown { why: why.clone() }),
    }
}

/// A Node without the condition counts as one that is not Ready.
fn is_ready(view: &NodeView) -> bool {
    view.ready == Some(Truth::True)
}

fn is_foreign(view: &NodeView) -> bool {
    view.provider_id.is_some() && view.own_provider_id().is_none()
}

/// Key and effect make a taint, its value does not.
fn is_shutdown(taint: &Taint) -> bool {
    taint.key == SHUTDOWN && taint.effect == NO_SCHEDULE
}

fn with_shutdown(view: &NodeView) -> Vec<Taint> {
    let shutdown = Taint { key: SHUTDOWN.to_owned(), value: None, effect: NO_SCHEDULE.to_owned(), time_added: None };
    view.taints.iter().cloned().chain([shutdown]).collect()
}

fn without_shutdown(view: &NodeView) -> Vec<Taint> {
    view.taints.iter().filter(|taint| !is_shutdown(taint)).cloned().collect()
}

#[cfg(test)]
pub(super) mod tests;
