//! What tests of all rooms begin with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::views::{IpFamilyPolicy, NodeView, ServiceConditions, ServiceView, TrafficPolicy};
use super::{Family, Few, PortProtocol, ServiceKey, TextMap};

/// A Node of which nothing is known but its name.
pub(crate) fn node(name: &str) -> NodeView {
    NodeView {
        name: name.parse().expect("a name"),
        uid: format!("uid-{name}"),
        resource_version: "1".to_owned(),
        created_seconds: 0,
        is_deleting: false,
        labels: BTreeMap::new(),
        annotations: TextMap::default(),
        provided_node_ip: None,
        provider_id: None,
        pod_cidrs: Vec::new(),
        unread_pod_cidrs: Vec::new(),
        pod_cidr_unavailable: None,
        taints: Vec::new(),
        addresses: Vec::new(),
        ready: None,
        network_unavailable: None,
        system_uuid: None,
        boot_id: None,
    }
}

/// A Service of type LoadBalancer in the namespace `default` that has nothing yet; TCP port 80.
pub(crate) fn service(name: &str) -> ServiceView {
    ServiceView {
        key: ServiceKey::new("default", name),
        uid: format!("uid-{name}"),
        resource_version: "7".to_owned(),
        created_seconds: 0,
        is_deleting: false,
        is_load_balancer: true,
        class: None,
        labels: Arc::default(),
        annotations: Few::default(),
        load_balancer_ip: None,
        ip_families: vec![Family::V4],
        ip_family_policy: IpFamilyPolicy::SingleStack,
        external_traffic_policy: TrafficPolicy::Cluster,
        local_selector: BTreeMap::new(),
        ports: BTreeSet::from([(PortProtocol::Tcp, 80)]),
        source_ranges: None,
        health_check_node_port: None,
        finalizers: Vec::new(),
        ingress: Vec::new(),
        ingress_says_more: false,
        assigned_seconds: None,
        conditions: ServiceConditions::default(),
        has_foreign_proxy: false,
    }
}
