//! What tests of this room begin with.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::views::{IpFamilyPolicy, ServiceView, TrafficPolicy};
use crate::model::{Family, PortProtocol, ServiceKey};

/// A Service of type LoadBalancer in the namespace `default` that has nothing yet.
pub(super) fn service(name: &str) -> ServiceView {
    ServiceView {
        key: ServiceKey::new("default", name),
        uid: format!("uid-{name}"),
        resource_version: "7".to_owned(),
        created_seconds: 0,
        is_deleting: false,
        is_load_balancer: true,
        class: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        load_balancer_ip: None,
        ip_families: vec![Family::V4],
        ip_family_policy: IpFamilyPolicy::SingleStack,
        external_traffic_policy: TrafficPolicy::Cluster,
        local_selector: BTreeMap::new(),
        ports: BTreeSet::from([(PortProtocol::Tcp, 80)]),
        finalizers: Vec::new(),
        ingress: Vec::new(),
        assigned_seconds: None,
        has_foreign_proxy: false,
    }
}
