//! Routes in the words of rtnetlink(7): requests as bytes, the kernel's routes as values.
//!
//! By hand rather than by a crate: ten thousand routes are read in one go, and an attribute that
//! somebody invented since must not hide the route that has it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST};

use super::change::RouteChange;
use super::place::Place;
use super::route::{KernelHop, KernelRoute, RouteKind, made_hop};
use super::wire::{address, family_number, octets, word};
use super::{PROTOCOL, wire};
use crate::model::{Family, FibRoute, Prefix, Target};

/// `RTM_NEWROUTE`.
pub(super) const NEW_ROUTE: u16 = 24;
/// `RTM_DELROUTE`.
pub(super) const DEL_ROUTE: u16 = 25;
/// `RTM_GETROUTE`.
pub(super) const GET_ROUTE: u16 = 26;

/// Length of `struct rtmsg`.
const HEADER: usize = 12;
/// Length of `struct rtnexthop`.
const HOP_HEADER: usize = 8;

/// `RTA_*`, the attributes of a route.
mod attribute {
    pub(super) const DESTINATION: u16 = 1;
    pub(super) const INTERFACE: u16 = 4;
    pub(super) const GATEWAY: u16 = 5;
    pub(super) const METRIC: u16 = 6;
    pub(super) const HOPS: u16 = 9;
    pub(super) const TABLE: u16 = 15;
    pub(super) const VIA: u16 = 18;
    pub(super) const NEXTHOP_OBJECT: u16 = 30;
}

/// `RTN_*`.
mod kind {
    pub(super) const ANY: u8 = 0;
    pub(super) const UNICAST: u8 = 1;
    pub(super) const BLACKHOLE: u8 = 6;
}

/// `RT_SCOPE_*`.
mod scope {
    pub(super) const UNIVERSE: u8 = 0;
    pub(super) const ANY: u8 = 255;
}

/// `RTM_F_CLONED`: what the kernel keeps for itself (path MTU, redirects) is no route of anybody's.
const CLONED: u32 = 0x200;

/// Which routes to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// Those of our protocol, in every table.
    Ours,
    /// Everybody's in one table.
    Table(u32),
}

/// Asks for the routes of one family. A kernel that is old, or lacks the family, lists more: read with care.
pub(super) fn listing_request(family: Family, listing: Listing) -> Vec<u8> {
    let (table, protocol) = match listing {
        Listing::Ours => (0, PROTOCOL),
        Listing::Table(table) => (table, 0),
    };
    let mut out = header(family_number(family), 0, table, protocol, scope::UNIVERSE, kind::ANY);
    if table != 0 {
        wire::put_attribute(&mut out, attribute::TABLE, &table.to_ne_bytes());
    }
    out
}

/// Appends a change to the kernel's routes as a request that asks for an acknowledgement.
pub(super) fn put_change(out: &mut Vec<u8>, change: &RouteChange, place: Place, sequence: u32) {
    let common = NLM_F_REQUEST | NLM_F_ACK;
    let (kind, flags, payload) = match change {
        RouteChange::Add(route) => (NEW_ROUTE, common | NLM_F_CREATE | NLM_F_EXCL, wanted_route(route, place)),
        RouteChange::Replace(route) => (NEW_ROUTE, common | NLM_F_CREATE | NLM_F_REPLACE, wanted_route(route, place)),
        RouteChange::Delete(route) => (DEL_ROUTE, common, present_route(route)),
    };
    wire::put_message(out, kind, flags, sequence, &payload);
}

fn wanted_route(route: &FibRoute, place: Place) -> Vec<u8> {
    let kind = match route.target {
        Target::Via(_) => kind::UNICAST,
        Target::Blackhole => kind::BLACKHOLE,
    };
    let metric = place.metric(route.rank);
    let mut out = route_to(route.destination, place.table(), metric, scope::UNIVERSE, kind);
    let Target::Via(hops) = &route.target else { return out };
    let hops: Vec<_> = hops.iter().map(made_hop).collect();
    put_hops(&mut out, route.destination.family(), &hops);
    out
}

/// Names one route exactly; what is left out (scope, type) matches any.
fn present_route(route: &KernelRoute) -> Vec<u8> {
    let mut out = route_to(route.destination, route.table, route.metric, scope::ANY, kind::ANY);
    out[3] = route.tos;
    match route.nexthop_object {
        Some(object) => wire::put_attribute(&mut out, attribute::NEXTHOP_OBJECT, &object.to_ne_bytes()),
        // A blackhole of IPv6 shows the loopback interface, which nobody gave it.
        None if route.kind == RouteKind::Unicast => put_hops(&mut out, route.destination.family(), &route.hops),
        None => {}
    }
    out
}

fn route_to(destination: Prefix, table: u32, metric: u32, scope: u8, kind: u8) -> Vec<u8> {
    let family = family_number(destination.family());
    let mut out = header(family, destination.length(), table, PROTOCOL, scope, kind);
    wire::put_attribute(&mut out, attribute::DESTINATION, &octets(destination.address()));
    wire::put_attribute(&mut out, attribute::METRIC, &metric.to_ne_bytes());
    wire::put_attribute(&mut out, attribute::TABLE, &table.to_ne_bytes());
    out
}

/// `struct rtmsg`. The table has an attribute as well: here is room for the first 255 only.
fn header(family: u8, length: u8, table: u32, protocol: u8, scope: u8, kind: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    out.extend([family, length, 0, 0, u8::try_from(table).unwrap_or_default(), protocol, scope, kind, 0, 0, 0, 0]);
    out
}

fn put_hops(out: &mut Vec<u8>, family: Family, hops: &[KernelHop]) {
    match hops {
        [] => {}
        [hop] => {
            put_gateway(out, family, hop.gateway);
            if let Some(interface) = hop.interface {
                wire::put_attribute(out, attribute::INTERFACE, &interface.to_ne_bytes());
            }
        }
        several => {
            let mut list = Vec::new();
            for hop in several {
                let mut gateway = Vec::new();
                put_gateway(&mut gateway, family, hop.gateway);
                let length = u16::try_from(HOP_HEADER + gateway.len()).expect("a gateway takes 24 octets");
                list.extend(length.to_ne_bytes());
                list.extend([0, hop.weight]);
                list.extend(hop.interface.unwrap_or_default().to_ne_bytes());
                list.extend(gateway);
            }
            wire::put_attribute(out, attribute::HOPS, &list);
        }
    }
}

/// `RTA_GATEWAY`, or `RTA_VIA` for a neighbour of the other family.
fn put_gateway(out: &mut Vec<u8>, family: Family, gateway: Option<IpAddr>) {
    match gateway {
        None => {}
        Some(gateway) if Family::of(gateway) == family => {
            wire::put_attribute(out, attribute::GATEWAY, &octets(gateway));
        }
        Some(gateway) => {
            let number = u16::from(family_number(Family::of(gateway)));
            let via: Vec<u8> = number.to_ne_bytes().into_iter().chain(octets(gateway)).collect();
            wire::put_attribute(out, attribute::VIA, &via);
        }
    }
}

/// Reads a route; `None` for what is no IPv4 or IPv6 route, is for some sources only, or cannot be read.
pub(super) fn route(payload: &[u8]) -> Option<KernelRoute> {
    let (header, attributes) = payload.split_first_chunk::<HEADER>()?;
    let [family, length, source_length, tos, table, protocol, _scope, kind, flags @ ..] = *header;
    if u32::from_ne_bytes(flags) & CLONED != 0 || source_length != 0 {
        return None;
    }
    let unspecified = match wire::family(family)? {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let mut read = KernelRoute {
        destination: Prefix::containing(unspecified, length)?,
        kind: match kind {
            kind::UNICAST => RouteKind::Unicast,
            kind::BLACKHOLE => RouteKind::Blackhole,
            other => RouteKind::Other(other),
        },
        hops: Vec::new(),
        nexthop_object: None,
        protocol,
        table: u32::from(table),
        metric: 0,
        tos,
    };
    let mut only = KernelHop { gateway: None, interface: None, weight: 0 };
    for (kind, value) in wire::attributes(attributes) {
        match kind {
            attribute::DESTINATION => read.destination = Prefix::containing(address(value)?, length)?,
            attribute::GATEWAY => only.gateway = Some(address(value)?),
            attribute::VIA => only.gateway = Some(address(value.get(2..)?)?),
            attribute::INTERFACE => only.interface = Some(word(value)?),
            attribute::METRIC => read.metric = word(value)?,
            attribute::TABLE => read.table = word(value)?,
            attribute::NEXTHOP_OBJECT => read.nexthop_object = Some(word(value)?),
            attribute::HOPS => read.hops = hops(value)?,
            _ => {}
        }
    }
    if read.hops.is_empty() && (only.gateway.is_some() || only.interface.is_some()) {
        read.hops = vec![only];
    }
    Some(read)
}

fn hops(mut rest: &[u8]) -> Option<Vec<KernelHop>> {
    let mut hops = Vec::new();
    while let Some(&[a, b, _flags, weight, c, d, e, f]) = rest.first_chunk::<HOP_HEADER>() {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let attributes = rest.get(HOP_HEADER..length)?;
        let interface = Some(u32::from_ne_bytes([c, d, e, f])).filter(|index| *index != 0);
        let mut hop = KernelHop { gateway: None, interface, weight };
        for (kind, value) in wire::attributes(attributes) {
            match kind {
                attribute::GATEWAY => hop.gateway = Some(address(value)?),
                attribute::VIA => hop.gateway = Some(address(value.get(2..)?)?),
                _ => {}
            }
        }
        hops.push(hop);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(hops)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Hop, Hops};

    fn hop(gateway: &str, interface: u32) -> Hop {
        Hop { gateway: gateway.parse().expect("an address"), interface: Some(interface) }
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn a_route_reads_back_as_it_was_written() {
        let several = |hops: &[Hop]| Hops::new(hops.iter().copied()).expect("some hops");
        for place in [Place::default(), Place::new(100_000, 7).expect("a place")] {
            for wanted in [
                FibRoute::direct(prefix("10.244.2.0/24"), hop("10.90.0.12", 2)),
                FibRoute::direct(prefix("fd00:244:2::/64"), hop("fe80::12", 3)),
                FibRoute::direct(prefix("10.244.2.0/24"), hop("fd90::12", 2)),
                FibRoute::direct(prefix("10.244.2.0/24"), Hop { interface: None, ..hop("10.90.0.12", 2) }),
                FibRoute::learned(prefix("0.0.0.0/0"), several(&[hop("10.90.0.1", 2), hop("10.91.0.1", 3)])),
                FibRoute::learned(prefix("::/0"), several(&[hop("fd90::1", 2), hop("fd91::1", 3)])),
                FibRoute::learned(prefix("10.8.0.0/16"), several(&[hop("10.90.0.1", 2), hop("fd91::1", 3)])),
                FibRoute::last_resort(prefix("10.244.2.0/24")),
            ] {
                let made = KernelRoute::made(&wanted, place);
                assert!(made.is(&wanted, place), "{wanted:?}");
                let mut bytes = Vec::new();
                for change in [RouteChange::Add(wanted.clone()), RouteChange::Replace(wanted.clone())] {
                    put_change(&mut bytes, &change, place, 3);
                }
                let read: Vec<_> = wire::messages(&bytes).map(|message| route(message.payload)).collect();
                assert_eq!(read, [Some(made.clone()), Some(made.clone())], "{wanted:?}");
                let mut bytes = Vec::new();
                put_change(&mut bytes, &RouteChange::Delete(made.clone()), place, 4);
                let named = wire::messages(&bytes).find_map(|message| route(message.payload)).expect("a route");
                assert_eq!(KernelRoute { kind: made.kind, ..named }, made, "{wanted:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = route(&bytes);
            let _ = hops(&bytes);
        }
    }
}
