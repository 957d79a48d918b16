//! Builders for the tables of this room's tests.

use std::collections::BTreeMap;

use crate::api::NodeReportStatus;
use crate::model::NodeName;
use crate::model::views::{NodeAddress, NodeAddressKind, NodeView, Truth};

pub(super) fn name(number: usize) -> NodeName {
    format!("n{number}").parse().expect("a name")
}

/// Node `n<number>`, Ready, with an address and a pod CIDR; the rest as it was registered.
pub(super) fn node(number: usize) -> NodeView {
    let (high, low) = (number / 256, number % 256);
    let address = format!("10.90.{high}.{low}");
    NodeView {
        name: name(number),
        uid: format!("uid-n{number}"),
        resource_version: "1".to_owned(),
        created_seconds: 0,
        is_deleting: false,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        provided_node_ip: None,
        provider_id: None,
        pod_cidrs: vec![format!("10.{}.{low}.0/24", 244 - high).parse().expect("a prefix")],
        unread_pod_cidrs: Vec::new(),
        pod_cidr_unavailable: None,
        taints: Vec::new(),
        addresses: vec![NodeAddress { kind: NodeAddressKind::InternalIp, address }],
        ready: Some(Truth::True),
        network_unavailable: None,
        system_uuid: None,
        boot_id: Some("boot-1".to_owned()),
    }
}

/// The report of `n<number>`'s agent, which has done nothing yet.
pub(super) fn report(number: usize) -> NodeReportStatus {
    NodeReportStatus {
        boot_id: "boot-1".to_owned(),
        node_uid: Some(format!("uid-n{number}")),
        ..NodeReportStatus::default()
    }
}
