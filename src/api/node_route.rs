//! `NodeRoute`: what other nodes need to know of a node to reach its pods.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the pods of one node are reached, written by the leader and read by every agent.
///
/// It has the node's name and about 300 bytes, and changes only when one of its fields does: agents
/// watch these and never the Nodes, whose status changes all the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "cairn.dev",
    version = "v1alpha1",
    kind = "NodeRoute",
    plural = "noderoutes",
    category = "cairn",
    doc = "How the pods of one node are reached, written by Cairn's leader and read by every agent.",
    printcolumn(name = "Addresses", type_ = "string", json_path = ".spec.addresses"),
    printcolumn(name = "Pod-CIDRs", type_ = "string", json_path = ".spec.podCidrs"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.zone"),
    printcolumn(name = "Entry", type_ = "string", json_path = ".spec.entry")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeRouteSpec {
    /// The node's internal IP addresses, the preferred one of each family first.
    #[schemars(length(max = 16), inner(length(max = 45)))]
    pub addresses: Vec<String>,
    /// The node's pod CIDRs, at most one a family.
    #[schemars(length(max = 2), inner(length(max = 49)))]
    pub pod_cidrs: Vec<String>,
    /// `topology.kubernetes.io/zone` of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Whether the node may be an entry for the addresses of Services.
    pub entry: EntryFlag,
    /// Nodes whose agents say in their reports whether they have routes to this one. A majority of
    /// them, the first, say so in any case; the others when they have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub witnesses: Vec<String>,
}

/// Whether a node may be an entry for the addresses of Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum EntryFlag {
    /// It may.
    Eligible,
    /// It carries the label `node.kubernetes.io/exclude-from-external-load-balancers`.
    ExcludedByLabel,
}

impl EntryFlag {
    /// Why it may not, in words; `None` when it may.
    pub fn why_not(self) -> Option<&'static str> {
        match self {
            Self::Eligible => None,
            Self::ExcludedByLabel => {
                Some("the label node.kubernetes.io/exclude-from-external-load-balancers is on them")
            }
        }
    }
}

/// How many of so many witnesses are a majority: more than half; none of none.
pub fn majority(witnesses: usize) -> usize {
    if witnesses == 0 { 0 } else { witnesses / 2 + 1 }
}

impl NodeRouteSpec {
    /// A digest of what routes to this node depend on: its addresses and pod CIDRs, in order.
    ///
    /// Sixteen hexadecimal digits (FNV-1a, 64 bit). Reports name it, so that the leader knows which
    /// version of a route an agent speaks of.
    pub fn digest(&self) -> String {
        let parts =
            self.addresses.iter().map(String::as_str).chain([""]).chain(self.pod_cidrs.iter().map(String::as_str));
        let hash = parts
            .flat_map(|part| part.bytes().chain([0]))
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        format!("{hash:016x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(addresses: &[&str], pod_cidrs: &[&str]) -> NodeRouteSpec {
        NodeRouteSpec {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            pod_cidrs: pod_cidrs.iter().map(ToString::to_string).collect(),
            zone: None,
            entry: EntryFlag::Eligible,
            witnesses: Vec::new(),
        }
    }

    #[test]
    fn a_majority_is_more_than_half() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(majority), [0, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn the_digest_tells_addresses_from_pod_cidrs_and_ignores_the_rest() {
        let one = spec(&["10.90.0.11"], &["10.244.0.0/24"]);
        assert_eq!(one.digest(), NodeRouteSpec { zone: Some("a".to_owned()), ..one.clone() }.digest());
        assert_eq!(one.digest(), NodeRouteSpec { witnesses: vec!["n2".to_owned()], ..one.clone() }.digest());
        assert_ne!(one.digest(), spec(&["10.90.0.12"], &["10.244.0.0/24"]).digest());
        assert_ne!(one.digest(), spec(&["10.90.0.11", "10.244.0.0/24"], &[]).digest());
    }
}
