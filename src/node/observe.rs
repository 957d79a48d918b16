//! What is known of every Node now.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Context;
use super::plan::{MachineFacts, Observed, ObservedMachine, ObservedNode};
use crate::api::NodeReportStatus;
use crate::cluster::written::Written;
use crate::inventory::{Finding, InventoryState, Machine, MachineAddress, NodeIdentity, SharedKeys};
use crate::model::NodeName;
use crate::model::views::{NodeAddress, NodeAddressKind, NodeView};

/// Every Node, with what the inventory in force says of it.
pub(super) fn observe(context: &mut Context, written: &mut Written<NodeName, NodeView>) -> Observed {
    let mut views: BTreeMap<_, _> =
        context.nodes.snapshot().into_values().map(|view| (view.name.clone(), view)).collect();
    written.lay_over(&mut views);
    let inventory = Arc::clone(&context.inventory.borrow_and_update());
    let mut observed = observed(&views, &inventory);
    for (name, node) in &mut observed.nodes {
        // Of the many reports only those of Nodes that wait say something here.
        let report = context.reports.as_ref().filter(|_| node.view.is_uninitialized());
        let report = report.and_then(|reports| reports.get(name.as_str()));
        node.reported = report.map(|report| proposed(&report, &node.view)).unwrap_or_default();
    }
    observed
}

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
    let identities: BTreeMap<_, _> = views.iter().map(|(name, view)| (name, NodeIdentity::from(&**view))).collect();
    let shared = SharedKeys::of(identities.values());
    let node = |(name, view): (&NodeName, &Arc<NodeView>)| {
        let identity = &identities[name];
        let machine = machine(inventory.find(identity, &shared));
        let uuid = shared.uuid_of(identity).map(|uuid| uuid.to_string());
        (name.clone(), ObservedNode { view: Arc::clone(view), uuid, reported: Vec::new(), machine })
    };
    Observed { nodes: views.iter().map(node).collect() }
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
