//! `AddressPool`: addresses that Services of type LoadBalancer may get.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, LabelSelector};

/// Addresses that Services of type LoadBalancer may get.
///
/// One pool with one range is a complete configuration. Of several pools that may serve a Service,
/// one in which an address is reserved for it goes first, then those that select (`serves`) before
/// those that serve everyone, then by `priority`, then by name; of a pool the lowest free address of
/// the first block that has one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "cairn.dev",
    version = "v1alpha1",
    kind = "AddressPool",
    plural = "addresspools",
    shortname = "apool",
    category = "cairn",
    status = "AddressPoolStatus",
    doc = "Addresses that Services of type LoadBalancer may get.",
    printcolumn(name = "Addresses", type_ = "string", json_path = ".spec.addresses"),
    printcolumn(name = "Auto-Assign", type_ = "boolean", json_path = ".spec.autoAssign"),
    printcolumn(name = "IPv4-Used", type_ = "integer", json_path = ".status.ipv4.used"),
    printcolumn(name = "IPv4-Free", type_ = "integer", json_path = ".status.ipv4.free"),
    printcolumn(name = "IPv6-Used", type_ = "integer", json_path = ".status.ipv6.used"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(
        name = "Resolved",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='ResolvedRefs')].status",
        priority = 1
    ),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority", priority = 1),
    printcolumn(
        name = "Conflict",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Conflict')].status",
        priority = 1
    ),
    printcolumn(
        name = "Draining",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Draining')].status",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressPoolSpec {
    /// Blocks of addresses, each a CIDR (`10.60.0.0/24`, `fd60::/64`) or first and last address
    /// (`10.60.0.10-10.60.0.99`); both families may stand in one pool. 1 to 100 blocks.
    #[x_kube(validation = Rule::new(
        "self.all(b, isCIDR(b) || b.matches('^[0-9A-Fa-f.:]+ *- *[0-9A-Fa-f.:]+$'))"
    ).message("each of addresses is a CIDR such as 10.60.0.0/24 or a range first-last such as 10.60.0.10-10.60.0.99"))]
    #[schemars(length(min = 1, max = 100), inner(length(max = 90)))]
    pub addresses: Vec<String>,
    /// Blocks within `addresses` that nobody gets, written in the same way: a gateway, what DHCP
    /// hands out. Up to 100 blocks.
    #[x_kube(validation = Rule::new(
        "self.all(b, isCIDR(b) || b.matches('^[0-9A-Fa-f.:]+ *- *[0-9A-Fa-f.:]+$'))"
    ).message("each of exclude is a CIDR such as 10.60.0.1/32 or a range first-last such as 10.60.0.10-10.60.0.99"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 90)))]
    pub exclude: Vec<String>,
    /// Whether Services that ask for no particular pool or address may get one of this pool.
    #[serde(default = "yes")]
    pub auto_assign: bool,
    /// Which pool goes first where several may serve a Service: the lower number, 1 to 65535, and
    /// those without one last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub priority: Option<u16>,
    /// The Services that may have an address of this pool; absent means all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<Serves>,
    /// Nobody gets the first and the last address of a CIDR of more than two (in IPv4 the network and
    /// its broadcast address, in IPv6 anycast addresses of routers, RFC 4291 §2.6.1). Ranges
    /// `first-last` are given out whole.
    #[serde(default)]
    pub avoid_first_last: bool,
    /// Nobody gets an IPv4 address that ends in .0 or .255, which some old clients and home routers
    /// take for a network or a broadcast.
    #[serde(default, rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// How many addresses of this pool the Services of one namespace may have together, 1 to
    /// 1000000; an address they share counts once. Absent means any number. A lower number takes
    /// nothing away from anyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000))]
    pub namespace_quota: Option<u32>,
    /// Seconds for which an address that was given back goes to no other Service, 0 to 86400:
    /// clients and routers that still know the old owner would send the new one's traffic astray. A
    /// Service of the same namespace and name has it back at once, and the wait is over early when
    /// the pool has no other address left.
    #[serde(default = "default_reuse_after_seconds")]
    #[schemars(range(min = 0, max = 86400))]
    pub reuse_after_seconds: u32,
    /// Addresses that are kept for one Service each, before it exists and after it is gone. A Service
    /// has at most one of each family in a pool. Up to 500.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub reservations: Vec<Reservation>,
}

fn yes() -> bool {
    true
}

fn default_reuse_after_seconds() -> u32 {
    60
}

/// Services by namespace and by label. Both have to hold where both are said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.namespaces) || has(self.namespaceSelector) || has(self.serviceSelector)")
    .message("serves says at least one of namespaces, namespaceSelector and serviceSelector"))]
pub struct Serves {
    /// Services of these namespaces. Up to 100.
    #[x_kube(validation = Rule::new("self.all(n, self.exists_one(m, m == n))")
        .message("each of namespaces takes one entry"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 100),
        inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    pub namespaces: Vec<String>,
    /// Services of namespaces with these labels, beside those of `namespaces`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Services with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_selector: Option<LabelSelector>,
}

/// An address that is kept for one Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reservation {
    /// The address, one of the pool.
    #[x_kube(validation = Rule::new("isIP(self)").message("address is an IP address such as 10.60.0.10 or fd60::10"))]
    #[schemars(length(max = 45))]
    pub address: String,
    /// The Service's namespace.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// The Service's name.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
}

/// What Cairn says of a pool. Written by the leader, at most once a second.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// `Ready`: every field is right and all of the pool is in use. `ResolvedRefs`: the namespaces that it serves
    /// exist, and its selector takes one. `Conflict`: others have some of
    /// its addresses. `Draining`: Services keep addresses that the pool no longer gives.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Its IPv4 addresses; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<AddressCounts>,
    /// Its IPv6 addresses; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<AddressCounts>,
    /// The blocks in use. What `spec` says differs from it while the pool is in conflict: then what
    /// was in use before stays, and nothing is added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<String>,
    /// Blocks that were in use once and of which Services still have addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<String>,
    /// Addresses that were given back less than `reuseAfterSeconds` ago, the latest 500: whoever
    /// leads next knows them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cooling: Vec<CoolingAddress>,
}

/// How many addresses there are of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressCounts {
    /// All that the pool gives out. 9223372036854775807 stands for any number beyond it.
    pub total: i64,
    /// Those that Services have, each counted once however many share it.
    pub used: i64,
    /// Those that a Service could still get: neither used, nor reserved, nor a Node's.
    pub free: i64,
}

/// An address that was given back a short while ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoolingAddress {
    /// The address.
    pub address: String,
    /// Who had it, `namespace/name`.
    pub service: String,
    /// When it was given back, RFC 3339.
    pub freed_at: String,
}
