//! `AddressPool`: addresses that Services of type LoadBalancer may get.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;

/// Addresses that Services of type LoadBalancer may get.
///
/// One pool with one range is a complete configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
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
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
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
    /// Whether Services that ask for no particular pool or address may get one of this pool.
    #[serde(default = "yes")]
    pub auto_assign: bool,
}

fn yes() -> bool {
    true
}

/// What Cairn says of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// `Ready`: every block is valid and the pool is in use.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
