//! Routing netlink (rtnetlink(7)): our requests as bytes, the kernel's routes, links and addresses
//! as values.

use std::net::IpAddr;

use netlink_packet_core::{Emitable, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, Parseable};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeader, AddressMessage};
use netlink_packet_route::link::{LinkFlags, LinkHeader};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};

use super::plan::{KernelRoute, RouteChange};
use super::{METRIC, PROTOCOL, TABLE, wire};
use crate::model::{Family, FibRoute, Prefix};

const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const DEL_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const DEL_ROUTE: u16 = 25;

/// `RTM_GETLINK`.
pub(super) const GET_LINK: u16 = 18;
/// `RTM_GETADDR`.
pub(super) const GET_ADDRESS: u16 = 22;
/// `RTM_GETROUTE`.
pub(super) const GET_ROUTE: u16 = 26;

/// Multicast groups (`RTNLGRP_*`) that tell of links and addresses.
pub(super) const LINK_AND_ADDRESS_GROUPS: [u32; 3] = [1, 5, 9];
/// Multicast groups that tell of routes, IPv4 and IPv6.
pub(super) const ROUTE_GROUPS: [u32; 2] = [7, 11];

/// What a message of the routing protocol is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A route came, went or changed.
    Route(KernelRoute),
    /// A link or an address came, went or changed.
    Network,
    /// Nothing that can matter to routes.
    Other,
}

/// Reads an event.
pub(super) fn event(kind: u16, payload: &[u8]) -> Event {
    match kind {
        NEW_ROUTE | DEL_ROUTE => route(payload).map_or(Event::Other, Event::Route),
        NEW_LINK | DEL_LINK | NEW_ADDRESS | DEL_ADDRESS => Event::Network,
        _ => Event::Other,
    }
}

/// Asks for the routes of one family in our table.
pub(super) fn routes_request(family: Family) -> Vec<u8> {
    let mut message = RouteMessage::default();
    message.header.address_family = address_family(family);
    message.header.table = TABLE as u8;
    emit(&message)
}

/// Asks for all links.
pub(super) fn links_request() -> Vec<u8> {
    emit(&LinkHeader::default())
}

/// Asks for the addresses of all families.
pub(super) fn addresses_request() -> Vec<u8> {
    emit(&AddressHeader::default())
}

/// Appends a change to the kernel's routes as a request that asks for an acknowledgement.
pub(super) fn put_change(out: &mut Vec<u8>, change: &RouteChange, sequence: u32) {
    let common = NLM_F_REQUEST | NLM_F_ACK;
    let (kind, flags, message) = match change {
        RouteChange::Add(route) => (NEW_ROUTE, common | NLM_F_CREATE | NLM_F_EXCL, wanted_route(route)),
        RouteChange::Replace(route) => (NEW_ROUTE, common | NLM_F_CREATE | NLM_F_REPLACE, wanted_route(route)),
        RouteChange::Delete(route) => (DEL_ROUTE, common, present_route(route)),
    };
    wire::put_message(out, kind, flags, sequence, &emit(&message));
}

fn wanted_route(route: &FibRoute) -> RouteMessage {
    let mut message = route_to(route.destination, METRIC);
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes.push(RouteAttribute::Gateway(route.gateway.into()));
    message
}

/// Names one route exactly; what is left out (scope, type) matches any.
fn present_route(route: &KernelRoute) -> RouteMessage {
    let mut message = route_to(route.destination, route.metric);
    message.header.tos = route.tos;
    message.header.scope = RouteScope::NoWhere;
    message.header.kind = RouteType::Unspec;
    message.attributes.extend(route.gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
    message.attributes.extend(route.oif.map(RouteAttribute::Oif));
    message
}

fn route_to(destination: Prefix, metric: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = address_family(destination.family());
    message.header.destination_prefix_length = destination.length();
    message.header.table = TABLE as u8;
    message.header.protocol = RouteProtocol::from(PROTOCOL);
    message.attributes.push(RouteAttribute::Destination(destination.address().into()));
    message.attributes.push(RouteAttribute::Priority(metric));
    message
}

/// Reads a route; `None` for what is no IPv4 or IPv6 route or cannot be read.
pub(super) fn route(payload: &[u8]) -> Option<KernelRoute> {
    // Clones the kernel keeps for itself (path MTU, redirects) are no routes of anybody's.
    const CLONED: u32 = 0x200;
    let RouteMessage { header, attributes, .. } = RouteMessage::parse(payload).ok()?;
    if header.flags.bits() & CLONED != 0 {
        return None;
    }
    let mut destination = unspecified(&header)?;
    let mut read = KernelRoute {
        destination: Prefix::containing(destination, 0)?,
        gateway: None,
        oif: None,
        protocol: u8::from(header.protocol),
        table: u32::from(header.table),
        metric: 0,
        tos: header.tos,
    };
    for attribute in attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip(&address)?,
            RouteAttribute::Gateway(address) => read.gateway = ip(&address),
            RouteAttribute::Oif(index) => read.oif = Some(index),
            RouteAttribute::Priority(metric) => read.metric = metric,
            RouteAttribute::Table(table) => read.table = table,
            _ => {}
        }
    }
    read.destination = Prefix::containing(destination, header.destination_prefix_length)?;
    Some(read)
}

/// An interface as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) is_up: bool,
    pub(super) is_loopback: bool,
}

/// Reads a link. Of its many attributes only the name, so that no exotic one can hide a link.
pub(super) fn link(payload: &[u8]) -> Option<Link> {
    const HEADER: usize = 16;
    const NAME: u16 = 3;
    let header = LinkHeader::parse(payload).ok()?;
    let name = wire::attribute(payload.get(HEADER..)?, NAME).map(wire::text)?;
    Some(Link {
        index: header.index,
        name,
        is_up: header.flags.contains(LinkFlags::Up),
        is_loopback: header.flags.contains(LinkFlags::Loopback),
    })
}

/// An address as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) index: u32,
    pub(super) address: IpAddr,
    pub(super) prefix: Prefix,
}

/// Reads an address; `None` for one that is not usable (yet): tentative, or a duplicate.
pub(super) fn address(payload: &[u8]) -> Option<Address> {
    let AddressMessage { header, attributes, .. } = AddressMessage::parse(payload).ok()?;
    let mut flags = AddressFlags::from_bits_retain(u32::from(header.flags.bits()));
    let (mut local, mut peer) = (None, None);
    for attribute in attributes {
        match attribute {
            AddressAttribute::Address(address) => peer = Some(address),
            AddressAttribute::Local(address) => local = Some(address),
            AddressAttribute::Flags(all) => flags = all,
            _ => {}
        }
    }
    let is_tentative = flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
    if is_tentative || flags.contains(AddressFlags::Dadfailed) {
        return None;
    }
    // On a point-to-point link the network is the peer's, elsewhere both are the same.
    let prefix = Prefix::containing(peer.or(local)?, header.prefix_len)?;
    Some(Address { index: header.index, address: local.or(peer)?, prefix })
}

fn address_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

fn unspecified(header: &RouteHeader) -> Option<IpAddr> {
    match header.address_family {
        AddressFamily::Inet => Some(IpAddr::from([0u8; 4])),
        AddressFamily::Inet6 => Some(IpAddr::from([0u8; 16])),
        _ => None,
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

fn emit(message: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_route_reads_back_as_it_was_written() {
        for (destination, gateway) in [("10.244.2.0/24", "10.90.0.12"), ("fd00:244:2::/64", "fd90::12")] {
            let wanted = FibRoute { destination: destination.parse().unwrap(), gateway: gateway.parse().unwrap() };
            let want = KernelRoute {
                destination: wanted.destination,
                gateway: Some(wanted.gateway),
                oif: None,
                protocol: PROTOCOL,
                table: TABLE,
                metric: METRIC,
                tos: 0,
            };
            let mut bytes = Vec::new();
            for change in [RouteChange::Add(wanted), RouteChange::Replace(wanted), RouteChange::Delete(want)] {
                put_change(&mut bytes, &change, 3);
            }
            let read: Vec<_> = wire::messages(&bytes).map(|message| event(message.kind, message.payload)).collect();
            assert_eq!(read, vec![Event::Route(want); 3]);
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(kind in 16u16..30, bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = event(kind, &bytes);
            let _ = link(&bytes);
            let _ = address(&bytes);
        }
    }
}
