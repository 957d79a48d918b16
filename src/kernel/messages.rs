//! Links and addresses in the words of rtnetlink(7), and what its events are about.

use std::net::IpAddr;

use netlink_packet_core::{Emitable, NLM_F_REPLACE, Parseable};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeader, AddressMessage};
use netlink_packet_route::link::{LinkFlags, LinkHeader};

use super::route::KernelRoute;
use super::route_codec::{self, DEL_ROUTE, NEW_ROUTE};
use super::wire::{self, Message};
use crate::model::Prefix;

const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const DEL_ADDRESS: u16 = 21;

/// `RTM_GETLINK`.
pub(super) const GET_LINK: u16 = 18;
/// `RTM_GETADDR`.
pub(super) const GET_ADDRESS: u16 = 22;

/// Multicast groups (`RTNLGRP_*`) that tell of links and addresses.
pub(super) const LINK_AND_ADDRESS_GROUPS: [u32; 3] = [1, 5, 9];
/// Multicast groups that tell of routes, IPv4 and IPv6.
pub(super) const ROUTE_GROUPS: [u32; 2] = [7, 11];

/// What a message of the routing protocol is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A route came.
    Route(KernelRoute),
    /// A route took the place of the first one of its key.
    Replaced(KernelRoute),
    /// A route went.
    RouteGone(KernelRoute),
    /// A link came or changed.
    Link(Link),
    /// A link went, by its index.
    LinkGone(u32),
    /// An address came or changed.
    Address,
    /// An address went from the link of this index.
    AddressGone(u32),
    /// Nothing that can matter to routes.
    Other,
}

/// Reads an event.
pub(super) fn event(message: &Message<'_>) -> Event {
    let payload = message.payload;
    let read = match message.kind {
        NEW_ROUTE if message.flags & NLM_F_REPLACE != 0 => route_codec::route(payload).map(Event::Replaced),
        NEW_ROUTE => route_codec::route(payload).map(Event::Route),
        DEL_ROUTE => route_codec::route(payload).map(Event::RouteGone),
        NEW_LINK => link(payload).map(Event::Link),
        DEL_LINK => LinkHeader::parse(payload).ok().map(|header| Event::LinkGone(header.index)),
        NEW_ADDRESS => Some(Event::Address),
        DEL_ADDRESS => AddressHeader::parse(payload).ok().map(|header| Event::AddressGone(header.index)),
        _ => None,
    };
    read.unwrap_or(Event::Other)
}

/// Asks for all links.
pub(super) fn links_request() -> Vec<u8> {
    emit(&LinkHeader::default())
}

/// Asks for the addresses of all families.
pub(super) fn addresses_request() -> Vec<u8> {
    emit(&AddressHeader::default())
}

/// An interface as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) is_up: bool,
    /// Whether the other end is there (`IFF_LOWER_UP`).
    pub(super) has_carrier: bool,
    pub(super) is_loopback: bool,
    /// The longest packet it takes, in octets.
    pub(super) mtu: u32,
}

/// Reads a link. Of its many attributes only two, so that no exotic one can hide a link.
pub(super) fn link(payload: &[u8]) -> Option<Link> {
    const HEADER: usize = 16;
    const NAME: u16 = 3;
    const MTU: u16 = 4;
    let header = LinkHeader::parse(payload).ok()?;
    let attributes = payload.get(HEADER..)?;
    let name = wire::attribute(attributes, NAME).map(wire::text)?;
    let mtu = wire::attribute(attributes, MTU).and_then(wire::word);
    Some(Link {
        index: header.index,
        name,
        is_up: header.flags.contains(LinkFlags::Up),
        has_carrier: header.flags.contains(LinkFlags::LowerUp),
        mtu: mtu.unwrap_or_default(),
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

fn emit(message: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(kind in 16u16..30, bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = event(&Message { kind, flags: 0, sequence: 0, port: 0, payload: &bytes });
            let _ = link(&bytes);
            let _ = address(&bytes);
        }
    }
}
