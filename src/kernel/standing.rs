//! Where the wanted routes stand.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::PROTOCOL;
use crate::model::{FibRoute, FibWish, Prefix, Target};

/// Why a wanted route does not carry its packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteFailure {
    /// The gateway is on no network of this node, or the interface is down.
    Unreachable,
    /// The route is there, but its interface has no carrier: the cable is out, or the other end is down.
    NoCarrier,
    /// A route of another protocol to the same destination decides; ours at most stands behind it.
    OwnedByOther {
        /// Its `rtm_protocol`, as in `/etc/iproute2/rt_protos`.
        protocol: u8,
    },
    /// Another wanted route has the same destination and was there first.
    Contested {
        /// Where the one in place leads.
        to: Target,
    },
    /// This process may not change routes (it lacks CAP_NET_ADMIN).
    Denied,
    /// The kernel refused for another reason.
    Refused {
        /// The error number, as in errno(3).
        errno: i32,
    },
}

impl RouteFailure {
    /// Its kind in one word, for logs and metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::NoCarrier => "no_carrier",
            Self::OwnedByOther { .. } => "owned_by_other",
            Self::Contested { .. } => "contested",
            Self::Denied => "denied",
            Self::Refused { .. } => "refused",
        }
    }
}

impl fmt::Display for RouteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("the gateway is on no network of this node"),
            Self::NoCarrier => f.write_str("the interface has no carrier: its cable is out or the other end is down"),
            Self::OwnedByOther { protocol } => {
                write!(f, "a route of {} to the same destination decides", Protocol(*protocol))
            }
            Self::Contested { to } => write!(f, "the destination is already routed to {to}"),
            Self::Denied => f.write_str("changing routes takes CAP_NET_ADMIN"),
            Self::Refused { errno } => write!(f, "the kernel refused: {}", std::io::Error::from_raw_os_error(*errno)),
        }
    }
}

/// Who makes routes of a protocol number, as `/etc/iproute2/rt_protos` and rtnetlink(7) have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "redirect",
            2 => "kernel",
            3 => "boot",
            4 => "static",
            9 => "ra",
            11 => "zebra",
            12 => "bird",
            16 => "dhcp",
            17 => "mrtd",
            18 => "keepalived",
            42 => "babel",
            80 => "calico",
            99 => "openr",
            186 => "bgp",
            187 => "isis",
            188 => "ospf",
            189 => "rip",
            192 => "eigrp",
            PROTOCOL => "cairn",
            number => return write!(f, "protocol {number}"),
        };
        write!(f, "protocol {} ({name})", self.0)
    }
}

/// The route that packets to a destination take that has none of ours.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Carrier {
    /// Its destination: the asked one, or what holds it.
    pub destination: Prefix,
    /// The routers; none when it leads straight to an interface.
    pub gateways: Vec<IpAddr>,
    /// Who made it; ours when it was learned from a router.
    pub protocol: Protocol,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.destination.length() {
            0 => f.write_str("the default route")?,
            _ => write!(f, "the route {}", self.destination)?,
        }
        for (place, gateway) in self.gateways.iter().enumerate() {
            write!(f, "{} {gateway}", if place == 0 { " via" } else { "," })?;
        }
        write!(f, " of {}", self.protocol)
    }
}

/// Where the wanted routes stand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteStatus {
    /// The wish that this speaks of; each of its routes is in the kernel and decides, unless it is in `failed`.
    pub wish: Arc<FibWish>,
    /// Wanted routes that do not carry their packets, and why.
    pub failed: Arc<BTreeMap<FibRoute, RouteFailure>>,
    /// Who carries the destinations that were only asked about; no word of those that nobody carries.
    pub carried: Arc<BTreeMap<Prefix, Carrier>>,
    /// How often a route of ours was gone or changed by others and was put back, since the start.
    pub repaired_total: u64,
}

impl RouteStatus {
    /// Whether the route is in the kernel and decides.
    pub fn is_installed(&self, route: &FibRoute) -> bool {
        self.wish.contains(route) && !self.failed.contains_key(route)
    }

    /// How many routes are in the kernel and decide.
    pub fn installed(&self) -> usize {
        self.wish.count() - self.failed.len()
    }
}
