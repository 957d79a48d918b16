//! From Kubernetes objects to the views of them that stores keep.
//!
//! Objects come from the API server, which has checked them: what does not parse all the same is
//! left out, and what cannot be named gives no view.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{self as core, Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::ResourceExt;

use crate::model::source_ranges::{SOURCE_RANGES, SourceRanges};
use crate::model::views::{
    ADDRESS_ASSIGNED, ANNOUNCED, Condition, EndpointCounts, EndpointView, ForeignCondition, Ingress, IpFamilyPolicy,
    IpMode, NodeAddress, NodeAddressKind, NodeView, POD_CIDR_UNAVAILABLE, ServiceCondition, ServiceConditions,
    ServiceView, Taint, TrafficPolicy, Truth,
};
use crate::model::{Family, NetError, PortProtocol, Prefix, ServiceKey};

const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// The label of an EndpointSlice that names its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
const OWN_PREFIX: &str = "cairn.dev/";
/// Annotations of a Service that say something to Cairn.
const ANNOTATION_PREFIXES: [&str; 3] = [OWN_PREFIX, "metallb.io/", "metallb.universe.tf/"];

/// The view of a Node.
pub fn node(node: &Node) -> Option<NodeView> {
    let spec = node.spec.as_ref();
    let status = node.status.as_ref();
    let info = status.and_then(|s| s.node_info.as_ref());
    let (pod_cidrs, unread_pod_cidrs) = spec.map(pod_cidrs).unwrap_or_default();
    Some(NodeView {
        name: node.name_any().parse().ok()?,
        uid: node.uid().unwrap_or_default(),
        resource_version: node.resource_version().unwrap_or_default(),
        created_seconds: node.creation_timestamp().map(|time| time.0.as_second()).unwrap_or_default(),
        is_deleting: node.metadata.deletion_timestamp.is_some(),
        labels: node.labels().clone(),
        annotations: node.annotations().iter().filter(|(key, _)| key.starts_with(OWN_PREFIX)).collect(),
        provided_node_ip: node.annotations().get(PROVIDED_NODE_IP).cloned(),
        provider_id: spec.and_then(|s| s.provider_id.clone()).filter(|id| !id.is_empty()),
        pod_cidrs,
        unread_pod_cidrs,
        pod_cidr_unavailable: condition(node, POD_CIDR_UNAVAILABLE)
            .map(|c| (truth(&c.status), c.message.clone().unwrap_or_default())),
        taints: spec.and_then(|s| s.taints.as_ref()).into_iter().flatten().map(taint).collect(),
        addresses: status.and_then(|s| s.addresses.as_ref()).into_iter().flatten().filter_map(node_address).collect(),
        ready: condition(node, "Ready").map(|c| truth(&c.status)),
        network_unavailable: condition(node, "NetworkUnavailable").map(|c| Condition {
            status: truth(&c.status),
            reason: c.reason.clone().unwrap_or_default(),
            message: c.message.clone().unwrap_or_default(),
        }),
        system_uuid: info.map(|i| i.system_uuid.clone()).filter(|id| !id.is_empty()),
        boot_id: info.map(|i| i.boot_id.clone()).filter(|id| !id.is_empty()),
    })
}

/// Those that are prefixes, and those that are not.
fn pod_cidrs(spec: &core::NodeSpec) -> (Vec<Prefix>, Vec<String>) {
    let listed = spec.pod_cidrs.as_deref().unwrap_or_default();
    let single = spec.pod_cidr.as_slice();
    let written = if listed.is_empty() { single } else { listed };
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    for cidr in written.iter().filter(|cidr| !cidr.is_empty()) {
        match cidr.parse() {
            Ok(prefix) | Err(NetError::HostBitsSet { network: prefix, .. }) => read.push(prefix),
            Err(_) => unread.push(cidr.clone()),
        }
    }
    (read, unread)
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a core::NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

fn truth(status: &str) -> Truth {
    match status {
        "True" => Truth::True,
        "False" => Truth::False,
        _ => Truth::Unknown,
    }
}

fn taint(taint: &core::Taint) -> Taint {
    Taint {
        key: taint.key.clone(),
        value: taint.value.clone().filter(|value| !value.is_empty()),
        effect: taint.effect.clone(),
        time_added: taint.time_added.as_ref().map(|time| time.0.to_string()),
    }
}

fn node_address(address: &core::NodeAddress) -> Option<NodeAddress> {
    let kind = match address.type_.as_str() {
        "InternalIP" => NodeAddressKind::InternalIp,
        "ExternalIP" => NodeAddressKind::ExternalIp,
        "Hostname" => NodeAddressKind::Hostname,
        "InternalDNS" => NodeAddressKind::InternalDns,
        "ExternalDNS" => NodeAddressKind::ExternalDns,
        _ => return None,
    };
    Some(NodeAddress { kind, address: address.address.clone() })
}

/// The view of a Service.
pub fn service(service: &Service) -> Option<ServiceView> {
    let spec = service.spec.as_ref()?;
    let is_ours_to_read = |key: &str| ANNOTATION_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
    let ingress = service.status.as_ref().and_then(|s| s.load_balancer.as_ref()).and_then(|l| l.ingress.as_ref());
    let conditions = service_conditions(service);
    Some(ServiceView {
        key: ServiceKey::new(service.namespace()?, service.name_any()),
        uid: service.uid().unwrap_or_default(),
        resource_version: service.resource_version().unwrap_or_default(),
        created_seconds: service.creation_timestamp().map(|time| time.0.as_second()).unwrap_or_default(),
        is_deleting: service.metadata.deletion_timestamp.is_some(),
        is_load_balancer: spec.type_.as_deref() == Some("LoadBalancer"),
        class: spec.load_balancer_class.clone(),
        annotations: service
            .annotations()
            .iter()
            .filter(|(key, _)| is_ours_to_read(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        labels: Arc::new(service.labels().clone()),
        load_balancer_ip: spec.load_balancer_ip.clone().filter(|ip| !ip.is_empty()),
        ip_families: spec.ip_families.iter().flatten().filter_map(|text| family(text)).collect(),
        ip_family_policy: match spec.ip_family_policy.as_deref() {
            Some("RequireDualStack") => IpFamilyPolicy::RequireDualStack,
            Some("PreferDualStack") => IpFamilyPolicy::PreferDualStack,
            _ => IpFamilyPolicy::SingleStack,
        },
        external_traffic_policy: match spec.external_traffic_policy.as_deref() {
            Some("Local") => TrafficPolicy::Local,
            _ => TrafficPolicy::Cluster,
        },
        local_selector: match spec.external_traffic_policy.as_deref() {
            Some("Local") => spec.selector.clone().unwrap_or_default(),
            _ => BTreeMap::new(),
        },
        ports: spec.ports.iter().flatten().filter_map(port).collect(),
        source_ranges: SourceRanges::of(
            spec.load_balancer_source_ranges.as_deref().unwrap_or_default(),
            service.annotations().get(SOURCE_RANGES).map(String::as_str),
        ),
        health_check_node_port: spec
            .health_check_node_port
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port != 0),
        finalizers: service.finalizers().to_vec(),
        ingress_says_more: ingress.into_iter().flatten().any(says_more),
        ingress: ingress.into_iter().flatten().map(ingress_entry).collect(),
        assigned_seconds: (conditions.address_assigned.as_ref())
            .filter(|said| said.says.status == Truth::True)
            .map(|said| said.since_seconds),
        conditions,
        has_foreign_proxy: service.labels().contains_key(SERVICE_PROXY_NAME),
    })
}

fn service_conditions(service: &Service) -> ServiceConditions {
    let mut all = ServiceConditions::default();
    for condition in service.status.iter().flat_map(|status| status.conditions.iter().flatten()) {
        let ours = || ServiceCondition {
            says: Condition {
                status: truth(&condition.status),
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            },
            since_seconds: condition.last_transition_time.0.as_second(),
        };
        match condition.type_.as_str() {
            ADDRESS_ASSIGNED => all.address_assigned = Some(ours()),
            ANNOUNCED => all.announced = Some(ours()),
            _ => all.others.push(ForeignCondition {
                kind: condition.type_.clone(),
                status: condition.status.clone(),
                reason: condition.reason.clone(),
                message: condition.message.clone(),
                last_transition_time: condition.last_transition_time.0.to_string(),
                observed_generation: condition.observed_generation,
            }),
        }
    }
    all
}

/// The labels of a namespace.
pub fn namespace(namespace: &Namespace) -> Option<BTreeMap<String, String>> {
    Some(namespace.labels().clone())
}

/// The ranges of a ServiceCIDR.
pub fn service_cidr(cidr: &ServiceCIDR) -> Option<Vec<Prefix>> {
    Some(cidr.spec.as_ref()?.cidrs.iter().flatten().filter_map(|cidr| cidr.parse().ok()).collect())
}

fn family(text: &str) -> Option<Family> {
    match text {
        "IPv4" => Some(Family::V4),
        "IPv6" => Some(Family::V6),
        _ => None,
    }
}

fn port(port: &core::ServicePort) -> Option<(PortProtocol, u16)> {
    let protocol = match port.protocol.as_deref() {
        None | Some("TCP") => PortProtocol::Tcp,
        Some("UDP") => PortProtocol::Udp,
        Some("SCTP") => PortProtocol::Sctp,
        Some(_) => return None,
    };
    Some((protocol, u16::try_from(port.port).ok()?))
}

fn ingress_entry(entry: &core::LoadBalancerIngress) -> Ingress {
    Ingress {
        ip: entry.ip.as_deref().and_then(|ip| ip.parse().ok()),
        ip_mode: match entry.ip_mode.as_deref() {
            Some("VIP") => IpMode::Vip,
            Some("Proxy") => IpMode::Proxy,
            _ => IpMode::Unset,
        },
    }
}

/// Whether an entry has what we never write: a host name beside an address, or errors of ports.
fn says_more(entry: &core::LoadBalancerIngress) -> bool {
    let has_both = entry.ip.is_some() && entry.hostname.as_ref().is_some_and(|name| !name.is_empty());
    has_both || entry.ports.as_ref().is_some_and(|ports| !ports.is_empty())
}

/// The view of an EndpointSlice; none for one that belongs to no Service.
pub fn endpoint_slice(slice: &EndpointSlice) -> Option<EndpointView> {
    let service = slice.labels().get(SERVICE_NAME)?;
    let mut nodes = BTreeMap::<_, EndpointCounts>::new();
    for endpoint in slice.endpoints.iter().flatten() {
        let Some(node) = endpoint.node_name.as_deref().and_then(|name| name.parse().ok()) else { continue };
        let conditions = endpoint.conditions.as_ref();
        // An absent `ready` means ready, an absent `serving` means as `ready` (discovery.k8s.io/v1).
        let is_ready = conditions.and_then(|c| c.ready).unwrap_or(true);
        let is_serving = conditions.and_then(|c| c.serving).unwrap_or(is_ready);
        let is_terminating = conditions.and_then(|c| c.terminating).unwrap_or(false);
        let counts = nodes.entry(node).or_default();
        counts.ready += u32::from(is_ready);
        counts.serving_terminating += u32::from(!is_ready && is_serving && is_terminating);
    }
    Some(EndpointView {
        service: ServiceKey::new(slice.namespace()?, service.clone()),
        family: family(&slice.address_type),
        nodes,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_cidrs_that_do_not_parse_are_not_forgotten() {
        for (spec, cidrs, unread) in [
            (json!({}), &[][..], &[][..]),
            (json!({ "podCIDR": "10.244.1.0/24" }), &["10.244.1.0/24"], &[]),
            (
                json!({ "podCIDR": "10.10.0.1/24", "podCIDRs": ["10.10.0.1/24", "a00::/86"] }),
                &["10.10.0.0/24", "a00::/86"],
                &[],
            ),
            (json!({ "podCIDRs": ["010.244.1.0/24", "fd00::/64"] }), &["fd00::/64"], &["010.244.1.0/24"]),
        ] {
            let object = json!({ "metadata": { "name": "n1" }, "spec": spec });
            let view = node(&serde_json::from_value(object).expect("a Node")).expect("a name");
            let read: Vec<_> = view.pod_cidrs.iter().map(ToString::to_string).collect();
            assert_eq!(read, cidrs, "{spec}");
            assert_eq!(view.unread_pod_cidrs, unread, "{spec}");
        }
    }

    #[test]
    fn conditions_are_read_ours_by_what_they_say_and_others_as_they_stand() {
        let condition = |kind: &str, status: &str| {
            json!({ "type": kind, "status": status, "reason": "Why", "message": "because",
                    "lastTransitionTime": "2027-01-15T08:00:00Z" })
        };
        let view = |conditions: serde_json::Value| {
            let object = json!({
                "metadata": { "name": "web", "namespace": "default" }, "spec": {}, "status": { "conditions": conditions },
            });
            service(&serde_json::from_value(object).expect("a Service")).expect("a view")
        };
        let others = condition("example.net/Ready", "False");
        let all = view(json!([condition(ANNOUNCED, "Unknown"), others, condition(ADDRESS_ASSIGNED, "True")]));
        let says = |status| Condition { status, reason: "Why".to_owned(), message: "because".to_owned() };
        let ours = |status| Some(ServiceCondition { says: says(status), since_seconds: 1_800_000_000 });
        assert_eq!(all.conditions.address_assigned, ours(Truth::True));
        assert_eq!(all.conditions.announced, ours(Truth::Unknown));
        assert_eq!(json!(all.conditions.others), json!([others]));
        assert_eq!(all.assigned_seconds, Some(1_800_000_000), "since when it has its addresses");
        for conditions in
            [json!([condition(ADDRESS_ASSIGNED, "False")]), json!([condition(ANNOUNCED, "True")]), json!([])]
        {
            assert_eq!(view(conditions).assigned_seconds, None);
        }
    }
}
