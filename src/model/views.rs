//! Views: the few fields Cairn uses of the objects it watches.
//!
//! Stores keep these and drop the objects: 5,000 Nodes with their images and 100,000 EndpointSlices
//! would not fit an agent. `cluster::views` makes them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::few::Few;
use super::names::{NodeName, ServiceKey};
use super::net::{Family, Prefix};
use super::source_ranges::SourceRanges;
use super::{PortProtocol, ProviderId, TextMap};

/// The taint of a Node nobody has initialized yet; only its key counts.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Condition of a Node: whether it lacks a pod CIDR because there is none left.
pub const POD_CIDR_UNAVAILABLE: &str = "PodCIDRUnavailable";
/// Condition of a Service: whether it has its addresses.
pub const ADDRESS_ASSIGNED: &str = "cairn.dev/AddressAssigned";
/// Condition of a Service: whether its addresses are announced.
pub const ANNOUNCED: &str = "cairn.dev/Announced";
/// Annotation of a Node: the machine it was at its first match.
pub const MATCHED_MACHINE: &str = "cairn.dev/machine";
/// Annotation of a Node: the system UUID it had at its first match.
pub const MATCHED_UUID: &str = "cairn.dev/system-uuid";

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, to guard writes.
    pub resource_version: String,
    /// `metadata.creationTimestamp` in seconds since 1970.
    pub created_seconds: i64,
    /// Whether it has a deletion timestamp.
    pub is_deleting: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations of Cairn.
    pub annotations: TextMap,
    /// `alpha.kubernetes.io/provided-node-ip`, what the kubelet's `--node-ip` said.
    pub provided_node_ip: Option<String>,
    /// `spec.providerID` as it stands, ours or another's.
    pub provider_id: Option<String>,
    /// `spec.podCIDRs`, those that parse; bits beyond the length do not count.
    pub pod_cidrs: Vec<Prefix>,
    /// `spec.podCIDRs`, those that do not parse: a Node that has them has pod CIDRs all the same.
    pub unread_pod_cidrs: Vec<String>,
    /// Status and message of the condition `PodCIDRUnavailable`.
    pub pod_cidr_unavailable: Option<(Truth, String)>,
    /// `spec.taints`, in order.
    pub taints: Vec<Taint>,
    /// `status.addresses`, in order.
    pub addresses: Vec<NodeAddress>,
    /// Status of the condition `Ready`.
    pub ready: Option<Truth>,
    /// The condition `NetworkUnavailable`.
    pub network_unavailable: Option<Condition>,
    /// `status.nodeInfo.systemUUID`; `None` when empty.
    pub system_uuid: Option<String>,
    /// `status.nodeInfo.bootID`; `None` when empty.
    pub boot_id: Option<String>,
}

impl NodeView {
    /// Whether another view says the same of the Node; a heartbeat changes the resource version alone.
    pub fn says_the_same(&self, other: &Self) -> bool {
        // Compared in place: each change of each Node comes by here, and a copy costs thirty allocations.
        let Self {
            name,
            uid,
            resource_version: _,
            created_seconds,
            is_deleting,
            labels,
            annotations,
            provided_node_ip,
            provider_id,
            pod_cidrs,
            unread_pod_cidrs,
            pod_cidr_unavailable,
            taints,
            addresses,
            ready,
            network_unavailable,
            system_uuid,
            boot_id,
        } = self;
        *ready == other.ready
            && *network_unavailable == other.network_unavailable
            && *addresses == other.addresses
            && *taints == other.taints
            && *labels == other.labels
            && *annotations == other.annotations
            && *provider_id == other.provider_id
            && *pod_cidrs == other.pod_cidrs
            && *unread_pod_cidrs == other.unread_pod_cidrs
            && *pod_cidr_unavailable == other.pod_cidr_unavailable
            && *provided_node_ip == other.provided_node_ip
            && *system_uuid == other.system_uuid
            && *boot_id == other.boot_id
            && *uid == other.uid
            && *name == other.name
            && (*created_seconds, *is_deleting) == (other.created_seconds, other.is_deleting)
    }

    /// The provider ID, when it is one of ours.
    pub fn own_provider_id(&self) -> Option<ProviderId> {
        self.provider_id.as_deref()?.parse().ok()
    }

    /// All its IP addresses, in order.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().filter_map(|address| address.address.parse().ok())
    }

    /// Whether it waits for its cloud provider.
    pub fn is_uninitialized(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == UNINITIALIZED)
    }

    /// Its internal IP addresses, in order.
    pub fn internal_ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses
            .iter()
            .filter(|address| address.kind == NodeAddressKind::InternalIp)
            .filter_map(|address| address.address.parse().ok())
    }
}

/// A taint of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; absent and empty mean the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Its effect: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added, RFC 3339.
    #[serde(default, rename = "timeAdded", skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// An entry of a Node's `status.addresses`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// What the address is.
    #[serde(rename = "type")]
    pub kind: NodeAddressKind,
    /// An IP address, or a name for the kinds that are names.
    pub address: String,
}

/// The kinds of node addresses Kubernetes knows, and an inventory names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NodeAddressKind {
    /// An address within the cluster's network.
    #[serde(rename = "InternalIP")]
    InternalIp,
    /// An address the world can reach.
    #[serde(rename = "ExternalIP")]
    ExternalIp,
    /// The host name.
    Hostname,
    /// A name within the cluster's network.
    #[serde(rename = "InternalDNS")]
    InternalDns,
    /// A name the world can resolve.
    #[serde(rename = "ExternalDNS")]
    ExternalDns,
}

/// What a condition says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Whether it holds.
    pub status: Truth,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceView {
    /// Its namespace and name.
    pub key: ServiceKey,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, to guard writes.
    pub resource_version: String,
    /// `metadata.creationTimestamp` in seconds since 1970: the older of two wins.
    pub created_seconds: i64,
    /// Whether it has a deletion timestamp.
    pub is_deleting: bool,
    /// Whether `spec.type` is `LoadBalancer`.
    pub is_load_balancer: bool,
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// Its labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Annotations of Cairn and of MetalLB.
    pub annotations: Few<String, String>,
    /// `spec.loadBalancerIP`; `None` when empty.
    pub load_balancer_ip: Option<String>,
    /// `spec.ipFamilies`, in order.
    pub ip_families: Vec<Family>,
    /// `spec.ipFamilyPolicy`.
    pub ip_family_policy: IpFamilyPolicy,
    /// `spec.externalTrafficPolicy`.
    pub external_traffic_policy: TrafficPolicy,
    /// `spec.selector` of one whose external traffic stays local; empty for others.
    pub local_selector: BTreeMap<String, String>,
    /// `spec.ports`.
    pub ports: BTreeSet<(PortProtocol, u16)>,
    /// Who may use its addresses, by `spec.loadBalancerSourceRanges` or the annotation; `None` is everyone.
    #[serde(default)]
    pub source_ranges: Option<SourceRanges>,
    /// `spec.healthCheckNodePort`, where kube-proxy says whether it forwards to endpoints of the node.
    #[serde(default)]
    pub health_check_node_port: Option<u16>,
    /// `metadata.finalizers`, in order.
    pub finalizers: Vec<String>,
    /// `status.loadBalancer.ingress`, in order.
    pub ingress: Vec<Ingress>,
    /// Whether an entry of it says more than `ip` and `ipMode`: a host name beside the address, or errors of ports.
    #[serde(default)]
    pub ingress_says_more: bool,
    /// Since when its condition `cairn.dev/AddressAssigned` is true, in seconds since 1970.
    pub assigned_seconds: Option<i64>,
    /// `status.conditions`.
    #[serde(default)]
    pub conditions: ServiceConditions,
    /// Whether the label `service.kubernetes.io/service-proxy-name` hands it to another proxy.
    pub has_foreign_proxy: bool,
}

/// `status.conditions` of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServiceConditions {
    /// [`ADDRESS_ASSIGNED`].
    pub address_assigned: Option<ServiceCondition>,
    /// [`ANNOUNCED`].
    pub announced: Option<ServiceCondition>,
    /// Those of others, in order: whoever writes the list writes them again as they are.
    pub others: Vec<ForeignCondition>,
}

impl ServiceConditions {
    /// Whether one of them is ours.
    pub fn has_ours(&self) -> bool {
        self.address_assigned.is_some() || self.announced.is_some()
    }
}

/// A condition of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCondition {
    /// What it says.
    pub says: Condition,
    /// Since when it has its status, in seconds since 1970.
    pub since_seconds: i64,
}

/// A condition of somebody else, as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignCondition {
    /// `type`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// Since when it has its status (RFC 3339).
    pub last_transition_time: String,
    /// The `metadata.generation` that it speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// `spec.ipFamilyPolicy` of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpFamilyPolicy {
    /// One family.
    SingleStack,
    /// Both where the cluster has both.
    PreferDualStack,
    /// Both, or nothing.
    RequireDualStack,
}

/// `spec.externalTrafficPolicy` of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrafficPolicy {
    /// Any node forwards to any endpoint.
    Cluster,
    /// A node forwards only to its own endpoints and keeps the client's address.
    Local,
}

/// An entry of a Service's `status.loadBalancer.ingress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ingress {
    /// The address; `None` for an entry that names a host.
    pub ip: Option<IpAddr>,
    /// `ipMode` (KEP-1860).
    pub ip_mode: IpMode,
}

/// How traffic to a load-balancer address reaches the node (KEP-1860).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpMode {
    /// With the address as destination.
    Vip,
    /// With the node's or pod's address as destination.
    Proxy,
    /// Not said; the API server fills in VIP where there is an address.
    Unset,
}

/// What one EndpointSlice says of one Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointView {
    /// The Service, by the label `kubernetes.io/service-name`.
    pub service: ServiceKey,
    /// The addresses' family; `None` for slices of host names.
    pub family: Option<Family>,
    /// Nodes with endpoints, and how many of each kind they have.
    pub nodes: BTreeMap<NodeName, EndpointCounts>,
}

/// Endpoints of one Service on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EndpointCounts {
    /// Ready ones.
    pub ready: u32,
    /// Terminating ones that still serve.
    pub serving_terminating: u32,
}
