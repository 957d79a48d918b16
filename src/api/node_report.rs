//! `NodeReport`: what one agent did, and what it could not do.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::views::NodeView;

/// The report of one node's agent; it has the node's name and only a status.
///
/// It holds counts and exceptions, never a list that grows with nodes or Services: what went well
/// needs no words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "cairn.dev",
    version = "v1alpha1",
    kind = "NodeReport",
    plural = "nodereports",
    category = "cairn",
    status = "NodeReportStatus",
    doc = "What the agent of one node did, and what it could not do.",
    printcolumn(name = "Routes", type_ = "integer", json_path = ".status.routes.installed"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".status.routes.wanted"),
    printcolumn(name = "Services", type_ = "integer", json_path = ".status.entries.services"),
    printcolumn(name = "Sessions", type_ = "integer", json_path = ".status.bgp.established"),
    printcolumn(name = "Peers", type_ = "integer", json_path = ".status.bgp.peers"),
    printcolumn(name = "Announced", type_ = "integer", json_path = ".status.bgp.announced")
)]
pub struct NodeReportSpec {}

/// What the agent found and did.
///
/// Every field is always written, so that a merge patch replaces all of the last report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReportStatus {
    /// The kernel's boot id; a report of an earlier boot says nothing of today's routes.
    pub boot_id: String,
    /// `metadata.uid` of the Node it is about: one that was deleted and registered again is another.
    #[serde(default)]
    pub node_uid: Option<String>,
    /// Digest of the own `NodeRoute` the agent acted on; absent before it has seen one.
    #[serde(default)]
    pub own_route: Option<String>,
    /// Addresses of the interface of its default route, at most one a family, while its Node waits for
    /// its cloud provider and has none.
    #[serde(default)]
    #[schemars(length(max = 2), inner(length(max = 45)))]
    pub default_addresses: Vec<String>,
    /// The networks that hold the addresses of its `NodeRoute`, as its interfaces have them; the first 16.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(max = 49)))]
    pub networks: Vec<String>,
    /// What it says as a witness of other nodes; silence is no answer.
    #[serde(default)]
    pub witness: Vec<WitnessAnswer>,
    /// Kernel routes to other nodes' pods.
    pub routes: RouteReport,
    /// What on this host keeps pods' packets from being forwarded; empty when nothing does.
    #[serde(default)]
    pub forwarding: Vec<ForwardingFault>,
    /// The nftables table `inet cairn`, which refuses packets to ports that no Service has.
    pub guard: GuardReport,
    /// Services whose addresses this node announces, or does not.
    pub entries: EntryReport,
    /// BGP sessions.
    pub bgp: BgpReport,
}

impl NodeReportStatus {
    /// Whether it is about this Node since its last boot: kernel routes outlive an agent, but no reboot.
    pub fn is_current(&self, node: &NodeView) -> bool {
        let is_of_node = self.node_uid.as_ref().is_none_or(|uid| *uid == node.uid);
        is_of_node && node.boot_id.as_ref().is_none_or(|boot_id| *boot_id == self.boot_id)
    }
}

/// Whether one other node's pods can be reached from here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WitnessAnswer {
    /// The other node.
    pub node: String,
    /// Digest of the version of its `NodeRoute` that this is about.
    pub route: String,
    /// Whether they can, and why not.
    pub answer: Reached,
    /// The particulars: why not, or which router carries the packets where no route of ours does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Whether a node's pods can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Reached {
    /// The kernel has the routes, or a router carries the packets.
    Ok,
    /// A route is not in the kernel; the message says why.
    NoRoute,
    /// The route's next hop does not answer (ARP, NDP).
    NextHopSilent,
    /// The node is not on a network of this one, and no route leads to a router.
    NoRouter,
}

/// Kernel routes to other nodes' pods.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteReport {
    /// Pod CIDRs of other nodes.
    pub wanted: u32,
    /// Those with a route in the kernel.
    pub installed: u32,
    /// Other nodes that this one lacks a route to for a reason that lies here.
    #[serde(default)]
    pub nodes_without: u32,
    /// Those of nodes that are on no network of this one, and that a router carries.
    #[serde(default)]
    pub carried: u32,
    /// The routes by which they are carried, and how many by each; the first 8.
    #[serde(default)]
    pub carriers: Vec<RouteCarrier>,
    /// Nodes whose `NodeRoute` is gone, and whose routes stay until it is certain that they are too.
    #[serde(default)]
    pub held: u32,
    /// Routes that others removed or changed and that were put back, since the agent's start.
    #[serde(default)]
    pub repaired: u64,
    /// Those without, and why; the first 32.
    #[serde(default)]
    pub exceptions: Vec<RouteException>,
}

/// A route that carries pod CIDRs of nodes that are on no network of this one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteCarrier {
    /// The route in words, with its gateways and who made it.
    pub route: String,
    /// How many pod CIDRs.
    pub cidrs: u32,
}

/// A pod CIDR without a route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteException {
    /// The node whose pods it holds.
    pub node: String,
    /// The pod CIDR.
    pub cidr: String,
    /// Why there is no route.
    pub reason: RouteExceptionReason,
    /// The same in one sentence, with the particulars.
    pub message: String,
}

/// Why a pod CIDR has no route here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RouteExceptionReason {
    /// The node has no address of the CIDR's family.
    NoAddressOfFamily,
    /// The node's address is not on a network of this node, and no route of this node leads to a
    /// router that could carry it.
    NotOnLink,
    /// The kernel says the gateway cannot be reached.
    Unreachable,
    /// The route is there, but its interface has no carrier.
    NoCarrier,
    /// Someone else's route has this destination.
    OwnedByOther,
    /// Another node claims the same CIDR or one that overlaps it, and was there first.
    Contested,
    /// The route stands, but another node claims the same CIDR or a part of it.
    Overlapped,
    /// The CIDR holds the address of a node, which could not be reached any more.
    HoldsAddress,
    /// The agent may not change routes: it lacks NET_ADMIN.
    Denied,
    /// The kernel refused the route.
    Refused,
    /// The CIDR or address in the `NodeRoute` does not parse.
    Malformed,
}

impl RouteExceptionReason {
    /// Whether the reason lies with this node, not with the one that the CIDR is of.
    pub fn is_here(self) -> bool {
        match self {
            Self::NotOnLink
            | Self::Unreachable
            | Self::NoCarrier
            | Self::OwnedByOther
            | Self::Denied
            | Self::Refused => true,
            Self::NoAddressOfFamily | Self::Contested | Self::Overlapped | Self::HoldsAddress | Self::Malformed => {
                false
            }
        }
    }
}

/// Something on the host that keeps pods' packets from being forwarded, or may.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForwardingFault {
    /// What it is.
    pub reason: ForwardingReason,
    /// The same in one sentence, with what would be right.
    pub message: String,
}

/// What keeps pods' packets from being forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ForwardingReason {
    /// `net.ipv4.ip_forward` or `net.ipv6.conf.all.forwarding` is 0.
    NotForwarding,
    /// The reverse-path filter is strict where packets may come in by another interface.
    StrictReversePath,
    /// Pods may send longer packets than the way to other nodes takes.
    MtuMismatch,
    /// A firewall drops forwarded packets that no rule of it accepts.
    ForwardDrop,
    /// The firewall of the older iptables is in use, and whether it drops forwarded packets cannot be seen.
    FirewallUnseen,
    /// No rule leads packets to the routing table that the agent was told to use.
    TableNotConsulted,
}

/// Whether the guard table stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum GuardReport {
    /// What to guard is not known yet.
    #[default]
    Waiting,
    /// It is in place.
    Standing,
    /// The agent may not change nftables: it lacks NET_ADMIN.
    Denied,
    /// The kernel has no nftables, or lacks a part the table needs.
    Unsupported,
    /// The kernel refused for another reason; the agent's log has it.
    Refused,
}

/// Services whose addresses this node announces, or does not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EntryReport {
    /// Services this node is an entry for.
    pub services: u32,
    /// The others that have an address, by reason.
    #[serde(default)]
    pub refused: Vec<RefusedEntries>,
}

/// Services this node is no entry for, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedEntries {
    /// Why.
    pub reason: NoEntry,
    /// How many.
    pub services: u32,
    /// The first of them, as `namespace/name`.
    pub first: String,
}

/// Why a node is no entry for a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NoEntry {
    /// The node's `NodeRoute` does not exist yet.
    NoNodeRoute,
    /// The Node is excluded from external load balancers by label.
    ExcludedByLabel,
    /// The Service has no ready endpoint on any node.
    NoReadyEndpoint,
    /// Its `externalTrafficPolicy` is Local and no ready endpoint is on this node.
    NoLocalEndpoint,
    /// Its status has an address of a node, or one that no router carries: it was written by hand.
    NoAddressOfService,
    /// Its status has an address that is another Service's by right; the leader gives it another one.
    AddressOfAnother,
    /// Its `externalTrafficPolicy` is Local and its first ready endpoint on this node has just come: kube-proxy is
    /// asked on its `healthCheckNodePort`, for three seconds at most, whether it forwards to it.
    ProxyNotReady,
}

/// BGP sessions of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpReport {
    /// Peers this node should have a session with.
    pub peers: u32,
    /// Sessions that are Established.
    pub established: u32,
    /// The `BgpPeer`s of these sessions; the first 32.
    #[serde(default)]
    #[schemars(length(max = 32), inner(length(max = 253)))]
    pub heard_by: Vec<String>,
    /// Prefixes announced in each Established session.
    pub announced: u32,
    /// Routes that routers told of and that are in the kernel.
    #[serde(default)]
    pub imported: u32,
    /// Peers without a session, routes that are not taken from them, and why; the first 32.
    #[serde(default)]
    pub exceptions: Vec<PeerException>,
    /// What is announced otherwise than Advertisements say; the first 32.
    #[serde(default)]
    pub adverts: Vec<AdvertException>,
}

/// Something that is announced otherwise than an `Advertisement` says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdvertException {
    /// The `Advertisement`.
    pub advertisement: String,
    /// How, and why, in one sentence.
    pub message: String,
}

/// A peer without a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerException {
    /// The `BgpPeer`.
    pub peer: String,
    /// Why, in one sentence.
    pub message: String,
}
