//! What became of the wish, in the words of the report.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::api::{ForwardingFault, GuardReport, PeerException, RouteExceptionReason};
use crate::model::{FibRoute, FibWish, PeerName, Prefix};

/// What the kernel and BGP rooms say of themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The routes that the kernel room was asked for and has dealt with.
    pub settled: Arc<FibWish>,
    /// Routes the kernel has not got, and why.
    pub failed: BTreeMap<FibRoute, (RouteExceptionReason, String)>,
    /// Whether the next hops that were asked answer (ARP, NDP).
    pub neighbours: BTreeMap<IpAddr, bool>,
    /// Who carries pod CIDRs of nodes that are on no network of this one, in words.
    pub carried: BTreeMap<Prefix, String>,
    /// Routes put back since the start.
    pub repaired: u64,
    /// Nodes that stay only because nobody has confirmed that they are gone.
    pub held: usize,
    /// What keeps pods' packets from being forwarded.
    pub forwarding: Vec<ForwardingFault>,
    /// Whether the guard table stands.
    pub guard: GuardReport,
    /// Peers whose session is Established.
    pub heard_by: Vec<PeerName>,
    /// Prefixes announced in each of them.
    pub announced: u32,
    /// Peers without a session, and why.
    pub peer_exceptions: Vec<PeerException>,
}

impl Outcome {
    /// Whether the kernel has the route, and it carries packets.
    pub fn is_installed(&self, route: &FibRoute) -> bool {
        self.settled.contains(route) && !self.failed.contains_key(route)
    }

    /// Which router carries packets to a pod CIDR that gets no route of ours.
    pub fn carrier(&self, cidr: &Prefix) -> Option<&str> {
        self.carried.get(cidr).map(String::as_str)
    }
}
