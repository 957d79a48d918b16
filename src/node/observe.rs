//! What is known of Nodes now.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::facts::MachineFacts;
use super::plan::{self, Observed, ObservedMachine, ObservedNode};
use crate::api::NodeReportStatus;
use crate::inventory::{Finding, InventoryState, Machine, MachineAddress, NodeIdentity, SharedKeys};
use crate::model::views::{NodeAddress, NodeAddressKind, NodeView};
use crate::model::{MachineId, NodeName};

/// The addresses a node's agent proposes, if the report is of this boot.
fn proposed(report: &NodeReportStatus, view: &NodeView) -> Vec<NodeAddress> {
    if view.boot_id.as_deref() != Some(report.boot_id.as_str()) {
        return Vec::new();
    }
    let is_ip = |text: &&String| text.parse::<std::net::IpAddr>().is_ok();
    let address = |text: &String| NodeAddress { kind: NodeAddressKind::InternalIp, address: text.clone() };
    report.default_addresses.iter().filter(is_ip).map(address).collect()
}

/// Nodes, with what an inventory says of each.
pub fn observed(views: &BTreeMap<NodeName, Arc<NodeView>>, inventory: &InventoryState) -> Observed {
    let identities: Vec<_> = views.values().map(|view| NodeIdentity::from(&**view)).collect();
    let shared = SharedKeys::of(&identities);
    let nodes = views.iter().map(|(name, view)| (name.clone(), node(Arc::clone(view), inventory, &shared, None)));
    let owner = |view: &Arc<NodeView>| Some((is_already(view, inventory, &shared)?, view.name.clone()));
    Observed { nodes: nodes.collect(), owners: views.values().rev().filter_map(owner).collect() }
}

/// A Node, with what an inventory says of it, and its agent's report if it has one.
pub(super) fn node(
    view: Arc<NodeView>,
    inventory: &InventoryState,
    shared: &SharedKeys,
    report: Option<&NodeReportStatus>,
) -> ObservedNode {
    let identity = NodeIdentity::from(&*view);
    let machine = machine(inventory.find(&identity, shared));
    let uuid = shared.uuid_of(&identity).map(|uuid| uuid.to_string());
    let reported = report.map(|report| proposed(report, &view)).unwrap_or_default();
    ObservedNode { view, uuid, reported, machine }
}

/// Which machine a Node is already.
pub(super) fn is_already(view: &NodeView, inventory: &InventoryState, shared: &SharedKeys) -> Option<MachineId> {
    match inventory.find(&NodeIdentity::from(view), shared) {
        Finding::Present(machine) => plan::is_already(view, Some(&machine.id)),
        Finding::Absent | Finding::Unknown(_) => plan::is_already(view, None),
    }
}

fn machine(finding: Finding) -> ObservedMachine {
    match finding {
        Finding::Present(machine) => ObservedMachine::Present(Box::new(facts(&machine))),
        Finding::Absent => ObservedMachine::Absent,
        Finding::Unknown(why) if why.is_mismatch() => ObservedMachine::Mismatch(why.to_string()),
        Finding::Unknown(why) => ObservedMachine::Unknown(why.to_string()),
    }
}

fn facts(machine: &Machine) -> MachineFacts {
    MachineFacts {
        id: machine.id.clone(),
        foreign_id: machine.match_keys.provider_id.clone(),
        addresses: machine.addresses.iter().map(address).collect(),
        instance_type: machine.instance_type.clone(),
        zone: machine.zone.clone(),
        region: machine.region.clone(),
        own_labels: machine.own_labels(),
        labels: machine.labels.clone(),
        annotations: machine.annotations.clone(),
        taints: machine.taints.clone(),
    }
}

fn address(address: &MachineAddress) -> NodeAddress {
    let kind = match address {
        MachineAddress::Hostname(_) => NodeAddressKind::Hostname,
        MachineAddress::InternalIp(_) => NodeAddressKind::InternalIp,
        MachineAddress::ExternalIp(_) => NodeAddressKind::ExternalIp,
        MachineAddress::InternalDns(_) => NodeAddressKind::InternalDns,
        MachineAddress::ExternalDns(_) => NodeAddressKind::ExternalDns,
    };
    NodeAddress { kind, address: address.to_string() }
}
