//! `BgpPeer`: a router that nodes announce routes to.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;

/// A router that nodes announce their pod CIDRs and the addresses of Services to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "cairn.dev",
    version = "v1alpha1",
    kind = "BgpPeer",
    plural = "bgppeers",
    category = "cairn",
    status = "BgpPeerStatus",
    doc = "A router that nodes announce their pod CIDRs and the addresses of Services to.",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Peer-ASN", type_ = "integer", json_path = ".spec.peerAsn"),
    printcolumn(name = "Local-ASN", type_ = "integer", json_path = ".spec.localAsn"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(
        name = "Resolved",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='ResolvedRefs')].status"
    ),
    printcolumn(
        name = "Conflict",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Conflict')].status",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("self.holdTimeSeconds == 0 || self.holdTimeSeconds >= 3")
    .message("holdTimeSeconds is 0 (never expires) or 3 to 65535 (RFC 4271 §4.2)")
    .field_path(".holdTimeSeconds"))]
pub struct BgpPeerSpec {
    /// The AS number of the nodes, 1 to 4294967294.
    #[schemars(range(min = 1, max = 4294967294_u32))]
    #[x_kube(validation = Rule::new("self != 23456 && self != 65535")
        .message("localAsn is not one of the reserved numbers 23456 and 65535 (RFC 6793, RFC 7300)"))]
    pub local_asn: u32,
    /// The AS number of the router, 1 to 4294967294; equal to `localAsn` for an internal session.
    #[schemars(range(min = 1, max = 4294967294_u32))]
    #[x_kube(validation = Rule::new("self != 23456 && self != 65535")
        .message("peerAsn is not one of the reserved numbers 23456 and 65535 (RFC 6793, RFC 7300)"))]
    pub peer_asn: u32,
    /// The router's address, IPv4 or IPv6: that of a host other than the node, not a link-local one of IPv6. Routes of both families are announced in one session.
    #[x_kube(validation = Rule::new("isIP(self)").message("address is an IP address such as 10.90.0.1 or fd90::1"))]
    #[x_kube(validation = Rule::new(
        "!isIP(self) || (ip(self).isGlobalUnicast() && !self.startsWith('0.')) || (ip(self).family() == 4 && ip(self).isLinkLocalUnicast())"
    ).message("address is one of the router itself such as 10.90.0.1 or fd90::1: not a loopback, multicast, broadcast, \
               unspecified, or link-local IPv6 address"))]
    #[schemars(length(max = 45))]
    pub address: String,
    /// The router's TCP port, 1 to 65535.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Seconds without a message after which the session counts as dead: 0 (never) or 3 to 65535.
    /// The lower of both sides' values is used (RFC 4271 §4.2).
    #[serde(default = "default_hold_time_seconds")]
    #[schemars(range(min = 0, max = 65535))]
    pub hold_time_seconds: u16,
    /// Which of the router's routes go into the nodes' kernels; without it none do (RFC 8212).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportPolicy>,
    /// Labels of the nodes that keep a session with this router; none means every node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

/// What Cairn says of a BgpPeer. Sessions are not part of it: each node's `NodeReport` tells of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpPeerStatus {
    /// `Ready`: every field is right and the BgpPeer is in force on its nodes. `ResolvedRefs`: its node selector
    /// takes a Node. `Conflict`: an older BgpPeer names the same router for one of its nodes, which keeps to that.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// Which routes are taken from a router.
///
/// They get our protocol number (202) and a metric behind the routes to nodes on the own networks, and go with the
/// session. A route is refused all the same that is, or lies within, a network of the node, its pod CIDRs, those of nodes
/// that it reaches directly, the address of a router or Service, or a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportPolicy {
    /// Routes that are taken, each by one of these; 1 to 100.
    #[schemars(length(min = 1, max = 100))]
    pub prefixes: Vec<ImportPrefix>,
    /// The most routes that are taken from the router, 1 to 100000. Beyond it the session goes on, those that are in stay, no
    /// others are taken, and the nodes' reports say how many are left out.
    #[serde(default = "default_max_prefixes")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_prefixes: u32,
    /// How often the nodes' own AS number may stand in AS_PATH, 0 to 10. With 0 a route that has been in the nodes' AS
    /// is a loop and refused (RFC 4271 §9.1.2); nodes of one AS behind different routers need 1 where these do not
    /// replace the number (`as-override`). FRR calls it `allowas-in`, BIRD `allow local as`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10))]
    pub allow_own_as: u8,
}

/// Routes by their destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new(
    "!has(self.ge) || self.ge >= cidr(self.prefix).prefixLength()"
).message("ge is at least the length of the prefix").field_path(".ge"))]
#[x_kube(validation = Rule::new(
    "!has(self.le) || self.le >= (has(self.ge) ? self.ge : cidr(self.prefix).prefixLength())"
).message("le is at least ge, and the length of the prefix").field_path(".le"))]
pub struct ImportPrefix {
    /// The network, such as `10.0.0.0/8` or `fd00::/8`. Alone it means exactly this route; so `0.0.0.0/0` and `::/0` mean the default
    /// route, which nothing else takes.
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked()")
        .message("prefix is a CIDR without host bits, such as 10.0.0.0/8 or fd00::/8"))]
    #[schemars(length(max = 49))]
    pub prefix: String,
    /// The shortest routes within it that are meant, in bits; with `ge` alone, up to those of one address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub ge: Option<u8>,
    /// The longest routes within it that are meant, in bits; with `le` alone, from the network itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub le: Option<u8>,
}

fn default_max_prefixes() -> u32 {
    1000
}

fn default_port() -> u16 {
    179
}

fn default_hold_time_seconds() -> u16 {
    90
}
