//! Intents: what one room asks of another, complete and without history.
//!
//! The agent's pure core makes these of what the cluster says; the kernel and BGP rooms make them
//! true. Each is the whole wish, so a lost message cannot leave half of one behind.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::net::Prefix;
use super::path::PathAttributes;
use super::shared_map::SharedMap;
use super::shared_set::SharedSet;

/// What to announce to one BGP peer: each prefix whose packets should come here, and what is said of it.
///
/// Prefixes of which the same is said share it, and go into one message.
pub type Adverts = SharedMap<Prefix, Arc<PathAttributes>>;

/// This node's own addresses to name as next hop, one a family.
///
/// A session over the same family names its own local address instead; these serve the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NextHops {
    /// Next hop of IPv4 prefixes; without it they are not announced over IPv6 sessions.
    pub v4: Option<Ipv4Addr>,
    /// Next hop of IPv6 prefixes; without it they are not announced over IPv4 sessions.
    pub v6: Option<Ipv6Addr>,
}

/// An address of this node on a network it is attached to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LocalAddress {
    /// The interface's name.
    pub interface: String,
    /// The interface's index.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// The network its neighbours are on; a host prefix means none, or the one at the other end.
    pub prefix: Prefix,
    /// Whether packets get out there: the interface has a carrier.
    pub has_carrier: bool,
}

/// A host on a network of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// The index of the interface that it is behind.
    pub interface: u32,
}

/// The transport protocols a Service port can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PortProtocol {
    /// TCP, IP protocol 6.
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP, IP protocol 17.
    #[serde(rename = "UDP")]
    Udp,
    /// SCTP, IP protocol 132.
    #[serde(rename = "SCTP")]
    Sctp,
}

impl PortProtocol {
    /// Its number in the IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

impl fmt::Display for PortProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// A port of a Service on one of its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServedPort {
    /// The load-balancer address.
    pub address: IpAddr,
    /// The transport protocol.
    pub protocol: PortProtocol,
    /// The port, 1 to 65535.
    pub port: u16,
}

/// Clients that a Service admits, where it does not admit everyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Admission {
    /// The port of the Service.
    pub to: ServedPort,
    /// Where its clients are; of the family of the port's address.
    pub from: Prefix,
}

/// What the guard table watches over: packets from outside to an announced address and a port that
/// nobody serves are refused here instead of going back and forth to the router, and clients that a
/// Service does not admit get no answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guarded {
    /// Load-balancer addresses this node announces now.
    pub announced: SharedSet<IpAddr>,
    /// The ports Services have on them; left to kube-proxy.
    pub served: SharedSet<ServedPort>,
    /// The ports that not everyone may use, announced here or not: pods come to them on every node.
    #[serde(default)]
    pub limited: SharedSet<ServedPort>,
    /// Who may use those; of one port no two overlap.
    #[serde(default)]
    pub admitted: SharedSet<Admission>,
    /// Networks this node announces for the sake of addresses in them; what no Service has there is refused.
    #[serde(default)]
    pub aggregated: SharedSet<Prefix>,
    /// The addresses in those networks that Services have, announced here or not; left to kube-proxy.
    #[serde(default)]
    pub assigned: SharedSet<IpAddr>,
}
