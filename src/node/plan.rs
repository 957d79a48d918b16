//! What to do for each Node: pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::addresses;
use super::facts::MachineFacts;
use super::labels;
use crate::model::views::{MATCHED_MACHINE, MATCHED_UUID, NodeAddress, NodeView, Taint, UNINITIALIZED};
use crate::model::{MachineId, NodeName, Note, ProviderId};

/// Everything the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// The Nodes to decide for, and what the inventory says of each, by name.
    pub nodes: BTreeMap<NodeName, ObservedNode>,
    /// Which Node is which machine already; at least of the machines that these Nodes are.
    pub owners: BTreeMap<MachineId, NodeName>,
}

/// A Node and its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservedNode {
    /// The Node.
    pub view: std::sync::Arc<NodeView>,
    /// Its system UUID in one spelling, unless that says nothing.
    pub uuid: Option<String>,
    /// Addresses that its agent proposes.
    pub reported: Vec<NodeAddress>,
    /// What the inventory says.
    pub machine: ObservedMachine,
}

/// What the inventory says of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObservedMachine {
    /// The Node is this machine.
    Present(Box<MachineFacts>),
    /// Its machine was decommissioned.
    Absent,
    /// Nobody can tell, and why.
    Unknown(String),
    /// Its keys contradict each other, and how.
    Mismatch(String),
}

/// What to do, and what to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// At most one action a Node.
    pub actions: BTreeMap<NodeName, Action>,
    /// What stands in the way, by Node.
    pub notes: BTreeMap<NodeName, Note>,
}

/// What to write to one Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    /// First the addresses, where they differ, then all else in one write.
    Initialize(Initialization),
    /// What differs of a Node that was initialized before.
    Reconcile(Differences),
}

/// What makes a Node initialized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Initialization {
    /// The machine that the Node becomes.
    pub machine: MachineId,
    /// `spec.providerID`, when it is not set.
    pub provider_id: Option<ProviderId>,
    /// `spec.taints` without the uninitialized one, and with the inventory's.
    pub taints: Vec<Taint>,
    /// What else differs.
    pub differences: Differences,
}

/// What differs of what follows the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Differences {
    /// `status.addresses`.
    pub addresses: Option<Vec<NodeAddress>>,
    /// Labels to set, or to take off.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set.
    pub annotations: BTreeMap<String, String>,
}

/// Decides for each of the Nodes; what is decided for one does not depend on which others are looked at,
/// but for two that would become the same machine, of which the first by name does.
///
/// A Node whose machine is not known for certain, or whose addresses do not fit, keeps its taint and
/// everything else as it is; the note says why.
pub fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    let mut owners = observed.owners.clone();
    for (name, node) in observed.nodes.iter().filter(|(_, node)| !node.view.is_deleting) {
        let (action, note) = if node.view.is_uninitialized() { plan_new(node, &mut owners) } else { plan_known(node) };
        plan.actions.extend(action.map(|action| (name.clone(), action)));
        plan.notes.extend(note.map(|note| (name.clone(), note)));
    }
    plan
}

/// Which machine a Node is already: the one that it was found to be, or the one that its provider ID names.
pub fn is_already(view: &NodeView, found: Option<&MachineId>) -> Option<MachineId> {
    match found {
        Some(machine) if view.provider_id.is_some() => Some(machine.clone()),
        _ => view.own_provider_id().map(|id| id.machine().clone()),
    }
}

fn plan_new(node: &ObservedNode, owners: &mut BTreeMap<MachineId, NodeName>) -> (Option<Action>, Option<Note>) {
    let note = match &node.machine {
        ObservedMachine::Present(machine) => match initialize(node, machine, owners) {
            Ok(initialization) => return (Some(Action::Initialize(initialization)), None),
            Err(note) => note,
        },
        ObservedMachine::Absent => Note::MachineDecommissioned,
        ObservedMachine::Mismatch(why) => Note::MachineMismatch { why: why.clone() },
        ObservedMachine::Unknown(why) => match &node.view.provider_id {
            Some(id) if node.view.own_provider_id().is_none() => Note::ForeignProviderId { provider_id: id.clone() },
            _ => Note::MachineUnknown { why: why.clone() },
        },
    };
    (None, Some(note))
}

/// A Node without the taint: initialized before, by us or by another, or never meant to be.
fn plan_known(node: &ObservedNode) -> (Option<Action>, Option<Note>) {
    let view = &*node.view;
    let is_ours = view.own_provider_id().is_some() || view.annotations.contains_key(MATCHED_MACHINE);
    match &node.machine {
        // Without a provider ID nobody initialized it, and without the taint its kubelet waits for nobody.
        ObservedMachine::Present(machine) if view.provider_id.is_none() => {
            (None, Some(Note::KubeletNotExternal { machine: machine.id.clone() }))
        }
        ObservedMachine::Present(machine) => reconcile(node, machine),
        ObservedMachine::Mismatch(why) if is_ours => (None, Some(Note::MachineMismatch { why: why.clone() })),
        ObservedMachine::Absent | ObservedMachine::Unknown(_) | ObservedMachine::Mismatch(_) => (None, None),
    }
}

fn initialize(
    node: &ObservedNode,
    machine: &MachineFacts,
    owners: &mut BTreeMap<MachineId, NodeName>,
) -> Result<Initialization, Note> {
    let view = &*node.view;
    let is_foreign = view.own_provider_id().is_none() && view.provider_id != machine.foreign_id;
    if let Some(provider_id) = view.provider_id.clone().filter(|_| is_foreign) {
        return Err(Note::ForeignProviderId { provider_id });
    }
    let owner = owners.entry(machine.id.clone()).or_insert_with(|| view.name.clone());
    if *owner != view.name {
        return Err(Note::MachineTaken { machine: machine.id.clone(), by: owner.clone() });
    }
    let addresses = addresses_of(node, machine)?;
    let mut annotations = machine.annotations.clone();
    annotations.extend(first_match(node, machine));
    Ok(Initialization {
        machine: machine.id.clone(),
        provider_id: view.provider_id.is_none().then(|| ProviderId::from(machine.id.clone())),
        taints: initial_taints(&view.taints, &machine.taints),
        differences: Differences {
            addresses: (addresses != view.addresses).then_some(addresses),
            labels: labels::differences(&view.labels, machine),
            annotations,
        },
    })
}

fn reconcile(node: &ObservedNode, machine: &MachineFacts) -> (Option<Action>, Option<Note>) {
    let view = &*node.view;
    let (addresses, note) = match addresses_of(node, machine) {
        // In order: the first address of a family is the preferred one.
        Ok(addresses) => ((addresses != view.addresses).then_some(addresses), None),
        // A kubelet that lost its addresses will find them again.
        Err(_) if machine.addresses.is_empty() => (None, None),
        Err(note) => (None, Some(note)),
    };
    let labels = labels::differences(&view.labels, machine);
    let differences = Differences { addresses, labels, annotations: first_match(node, machine) };
    ((differences != Differences::default()).then_some(Action::Reconcile(differences)), note)
}

/// The inventory's addresses, else the kubelet's own, else those the node's agent proposes.
fn addresses_of(node: &ObservedNode, machine: &MachineFacts) -> Result<Vec<NodeAddress>, Note> {
    let view = &*node.view;
    if machine.addresses.is_empty() && view.addresses.iter().any(is_ip) {
        return Ok(view.addresses.clone());
    }
    let offered = if machine.addresses.is_empty() { &node.reported } else { &machine.addresses };
    if !offered.iter().any(is_ip) {
        return Err(Note::NoAddresses { machine: machine.id.clone() });
    }
    addresses::choose(offered, &view.addresses, view.provided_node_ip.as_deref())
}

fn is_ip(address: &NodeAddress) -> bool {
    address.address.parse::<std::net::IpAddr>().is_ok()
}

/// What the Node has to remember of its machine and does not yet.
fn first_match(node: &ObservedNode, machine: &MachineFacts) -> BTreeMap<String, String> {
    let known = &node.view.annotations;
    let machine = (MATCHED_MACHINE.to_owned(), machine.id.to_string());
    let uuid = node.uuid.clone().map(|uuid| (MATCHED_UUID.to_owned(), uuid));
    [Some(machine), uuid].into_iter().flatten().filter(|(key, value)| known.get(key) != Some(value.as_str())).collect()
}

/// The taints of an initialized Node: all but the one it waited with, and those of the inventory that
/// it does not have.
fn initial_taints(current: &[Taint], of_inventory: &[Taint]) -> Vec<Taint> {
    let mut taints: Vec<_> = current.iter().filter(|taint| taint.key != UNINITIALIZED).cloned().collect();
    for taint in of_inventory {
        if !taints.iter().any(|there| is_same_taint(there, taint)) {
            taints.push(taint.clone());
        }
    }
    taints
}

/// `MatchTaint`: the value does not count.
fn is_same_taint(one: &Taint, other: &Taint) -> bool {
    one.key == other.key && one.effect == other.effect
}

#[cfg(test)]
mod contract;
#[cfg(test)]
mod tests;
