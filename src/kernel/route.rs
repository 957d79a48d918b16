//! A route as the kernel shows it, and whether it is one that is wanted.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::PROTOCOL;
use super::place::Place;
use crate::model::{FibRoute, Hop, Hops, Prefix, Rank, Target};

/// What becomes of a packet (`rtm_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RouteKind {
    /// It goes to a next hop or an interface.
    Unicast,
    /// It is dropped.
    Blackhole,
    /// Anything else, by its number.
    Other(u8),
}

/// One way out of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KernelHop {
    /// The neighbour; `None` when everything the route leads to is on the interface.
    pub gateway: Option<IpAddr>,
    /// The index of the interface; `None` where the kernel shows none.
    pub interface: Option<u32>,
    /// Its share of the flows, less one.
    pub weight: u8,
}

impl KernelHop {
    fn is(&self, wanted: &Hop) -> bool {
        self.gateway == Some(wanted.gateway)
            && wanted.interface.is_none_or(|wanted| self.interface == Some(wanted))
            && self.weight == 0
    }
}

/// A route as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelRoute {
    /// Its destination.
    pub destination: Prefix,
    /// What becomes of packets.
    pub kind: RouteKind,
    /// Its next hops and interfaces.
    pub hops: Vec<KernelHop>,
    /// The nexthop object it uses (ip-nexthop(8)); its hops are that one's then.
    pub nexthop_object: Option<u32>,
    /// Who made it (`rtm_protocol`).
    pub protocol: u8,
    /// The routing table it is in.
    pub table: u32,
    /// Its metric; the smallest decides.
    pub metric: u32,
    /// The type of service it is for; 0 is any.
    pub tos: u8,
}

impl KernelRoute {
    /// Whether it has our protocol number, in whatever table.
    pub fn is_ours(&self) -> bool {
        self.protocol == PROTOCOL
    }

    /// Whether it competes with a route of ours: in our table and for every type of service.
    pub(super) fn is_rival_in(&self, place: Place) -> bool {
        !self.is_ours() && self.table == place.table() && self.tos == 0
    }

    /// Whether the kernel takes it for the same route as the wanted one, whoever made it.
    pub(super) fn has_key_of(&self, wanted: &FibRoute, place: Place) -> bool {
        self.table == place.table() && self.metric == place.metric(wanted.rank) && self.tos == 0
    }

    /// Whether it is the wanted route, and ours.
    pub(super) fn is(&self, wanted: &FibRoute, place: Place) -> bool {
        self.is_ours()
            && self.destination == wanted.destination
            && self.has_key_of(wanted, place)
            && self.leads_to(&wanted.target)
    }

    fn leads_to(&self, target: &Target) -> bool {
        match target {
            Target::Blackhole => self.kind == RouteKind::Blackhole,
            Target::Via(wanted) => {
                let is_shown = |hop: &Hop| self.hops.iter().any(|shown| shown.is(hop));
                self.kind == RouteKind::Unicast
                    && self.nexthop_object.is_none()
                    && self.hops.len() == wanted.iter().count()
                    && wanted.iter().all(is_shown)
            }
        }
    }

    /// What the kernel holds when this wanted route is in place.
    pub(super) fn made(wanted: &FibRoute, place: Place) -> Self {
        let (kind, hops) = match &wanted.target {
            Target::Blackhole => (RouteKind::Blackhole, Vec::new()),
            Target::Via(hops) => (RouteKind::Unicast, hops.iter().map(made_hop).collect()),
        };
        Self {
            destination: wanted.destination,
            kind,
            hops,
            nexthop_object: None,
            protocol: PROTOCOL,
            table: place.table(),
            metric: place.metric(wanted.rank),
            tos: 0,
        }
    }

    /// The wanted route that this one is, when it is one that this program makes in that place.
    pub(super) fn wanted(&self, place: Place) -> Option<FibRoute> {
        let destination = self.destination;
        let route = match self.kind {
            RouteKind::Blackhole => FibRoute::last_resort(destination),
            RouteKind::Unicast => {
                let hop = |hop: &KernelHop| Some(Hop { gateway: hop.gateway?, interface: hop.interface });
                let hops = Hops::new(self.hops.iter().map(hop).collect::<Option<Vec<_>>>()?)?;
                let rank = [Rank::Direct, Rank::Learned].into_iter().find(|rank| place.metric(*rank) == self.metric)?;
                FibRoute { destination, rank, target: Target::Via(hops) }
            }
            RouteKind::Other(_) => return None,
        };
        self.is(&route, place).then_some(route)
    }

    /// Whether some of its packets leave by this interface.
    pub(super) fn uses(&self, interface: u32) -> bool {
        self.hops.iter().any(|hop| hop.interface == Some(interface))
    }
}

pub(super) fn made_hop(hop: &Hop) -> KernelHop {
    KernelHop { gateway: Some(hop.gateway), interface: hop.interface, weight: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_was_made_is_known_again_and_no_other() {
        let place = Place::default();
        let prefix: Prefix = "10.1.0.0/24".parse().expect("a prefix");
        let hop = |gateway: &str| Hop { gateway: gateway.parse().expect("an address"), interface: Some(2) };
        let hops = Hops::new([hop("10.0.0.1"), hop("10.0.0.2")]).expect("some");
        for route in
            [FibRoute::direct(prefix, hop("10.0.0.1")), FibRoute::learned(prefix, hops), FibRoute::last_resort(prefix)]
        {
            let made = KernelRoute::made(&route, place);
            assert_eq!(made.wanted(place).as_ref(), Some(&route));
            let elsewhere = Place::new(100, 1024).expect("a place");
            assert_eq!(made.wanted(elsewhere), None, "in another table");
            for (name, changed) in [
                ("of somebody else", KernelRoute { protocol: 4, ..made.clone() }),
                ("of another metric", KernelRoute { metric: 7, ..made.clone() }),
                ("for some packets only", KernelRoute { tos: 8, ..made.clone() }),
                ("of another kind", KernelRoute { kind: RouteKind::Other(7), ..made.clone() }),
            ] {
                assert_eq!(changed.wanted(place), None, "{name}: {route:?}");
            }
        }
    }
}
