//! Writes the UPDATEs that announce and withdraw, as many prefixes into one as 4096 octets hold.
//!
//! IPv4 routes go the classic way over sessions of either family: every router reads them there.
//! IPv6 routes go in MP_REACH_NLRI and MP_UNREACH_NLRI, the first of the attributes (RFC 7606 §5.1).

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use crate::model::{Asn, Community, Family, Prefix};

use super::attribute::{flag, kind};
use super::{AsPath, Attributes, Context, HEADER_LENGTH, MAXIMUM_LENGTH, Origin, SegmentKind};
use super::{UPDATE, family_codes, nlri, write};

/// What an UPDATE has for attributes and prefixes: all but header and the two lengths.
const ROOM: usize = MAXIMUM_LENGTH - HEADER_LENGTH - 4;
/// Octets of an attribute's header with extended length.
const ATTRIBUTE_HEADER: usize = 4;

/// Appends one UPDATE that withdraws prefixes from the front of the list, all of one family.
///
/// Returns how many it holds, at least one of a list that is not empty.
pub fn withdraw(family: Family, prefixes: &[Prefix], out: &mut Vec<u8>) -> usize {
    match family {
        Family::V4 => {
            let (routes, count) = fill(prefixes, ROOM);
            write_update(&routes, &[], &[], out);
            count
        }
        Family::V6 => {
            let (routes, count) = fill(prefixes, ROOM - ATTRIBUTE_HEADER - 3);
            let mut attribute = Vec::new();
            push_attribute(
                flag::OPTIONAL,
                kind::MP_UNREACH,
                &[&family_octets(family), &*routes].concat(),
                &mut attribute,
            );
            write_update(&[], &attribute, &[], out);
            count
        }
    }
}

/// Appends the End-of-RIB marker of a family (RFC 4724 §2).
pub fn end_of_rib(family: Family, out: &mut Vec<u8>) {
    withdraw(family, &[], out);
}

/// Appends one UPDATE that announces prefixes from the front of the list, all of one family, with
/// these attributes.
///
/// Returns how many it holds, at least one of a list that is not empty; none, and nothing is
/// written, when the attributes lack the family's next hop.
pub fn announce(
    attributes: &Attributes,
    context: &Context,
    family: Family,
    prefixes: &[Prefix],
    out: &mut Vec<u8>,
) -> usize {
    let shared = encode_attributes(attributes, context, family);
    match (family, attributes.next_hops.v4, attributes.next_hops.v6) {
        (Family::V4, Some(_), _) => {
            let (routes, count) = fill(prefixes, ROOM - shared.len());
            write_update(&[], &shared, &routes, out);
            count
        }
        (Family::V6, _, Some(next_hop)) => {
            let head = reach_head(family, next_hop);
            let (routes, count) = fill(prefixes, ROOM - shared.len() - ATTRIBUTE_HEADER - head.len());
            let mut block = Vec::with_capacity(ROOM);
            push_attribute(flag::OPTIONAL, kind::MP_REACH, &[head, routes].concat(), &mut block);
            block.extend(shared);
            write_update(&[], &block, &[], out);
            count
        }
        _ => 0,
    }
}

/// As many prefixes from the front as `room` octets hold, and their number.
fn fill(prefixes: &[Prefix], room: usize) -> (Vec<u8>, usize) {
    let mut routes = Vec::with_capacity(room.min(prefixes.len() * 17));
    for (count, prefix) in prefixes.iter().enumerate() {
        if routes.len() + nlri::encoded_length(prefix) > room {
            return (routes, count);
        }
        nlri::encode(prefix, &mut routes);
    }
    (routes, prefixes.len())
}

fn write_update(withdrawn: &[u8], attributes: &[u8], announced: &[u8], out: &mut Vec<u8>) {
    write(UPDATE, out, |body| {
        for block in [withdrawn, attributes] {
            body.extend(u16::try_from(block.len()).expect("a block is shorter than its message").to_be_bytes());
            body.extend(block);
        }
        body.extend(announced);
    });
}

fn family_octets(family: Family) -> [u8; 3] {
    let (afi, safi) = family_codes(family);
    let [high, low] = afi.to_be_bytes();
    [high, low, safi]
}

/// MP_REACH_NLRI up to its prefixes: family, next hop, and a reserved octet (RFC 4760 §3).
fn reach_head(family: Family, next_hop: Ipv6Addr) -> Vec<u8> {
    [&family_octets(family)[..], &[16], &next_hop.octets(), &[0]].concat()
}

/// The attributes but for MP_REACH_NLRI, in the order of their types.
fn encode_attributes(attributes: &Attributes, context: &Context, family: Family) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(origin) = attributes.origin {
        let octet = match origin {
            Origin::Igp => 0,
            Origin::Egp => 1,
            Origin::Incomplete => 2,
        };
        push_attribute(flag::TRANSITIVE, kind::ORIGIN, &[octet], &mut out);
    }
    if let Some(path) = &attributes.as_path {
        push_attribute(flag::TRANSITIVE, kind::AS_PATH, &as_path(path, context.four_octet_as), &mut out);
    }
    if let (Family::V4, Some(next_hop)) = (family, attributes.next_hops.v4) {
        push_attribute(flag::TRANSITIVE, kind::NEXT_HOP, &next_hop.octets(), &mut out);
    }
    if let Some(med) = attributes.med {
        push_attribute(flag::OPTIONAL, kind::MED, &med.to_be_bytes(), &mut out);
    }
    if let Some(preference) = attributes.local_pref {
        push_attribute(flag::TRANSITIVE, kind::LOCAL_PREF, &preference.to_be_bytes(), &mut out);
    }
    let (standard, large) = communities(&attributes.communities);
    if !standard.is_empty() {
        push_attribute(flag::OPTIONAL | flag::TRANSITIVE, kind::COMMUNITIES, &standard, &mut out);
    }
    if let Some(path) = attributes.as_path.as_ref().filter(|path| !context.four_octet_as && is_wide(path)) {
        // RFC 6793 §4.2.2: what AS_TRANS stands for.
        push_attribute(flag::OPTIONAL | flag::TRANSITIVE, kind::AS4_PATH, &as_path(path, true), &mut out);
    }
    if !large.is_empty() {
        push_attribute(flag::OPTIONAL | flag::TRANSITIVE, kind::LARGE_COMMUNITIES, &large, &mut out);
    }
    out
}

/// The octets of both widths of communities.
fn communities(all: &BTreeSet<Community>) -> (Vec<u8>, Vec<u8>) {
    let (mut standard, mut large) = (Vec::new(), Vec::new());
    for community in all {
        match community {
            Community::Standard(number) => standard.extend(number.to_be_bytes()),
            Community::Large(numbers) => large.extend(numbers.iter().flat_map(|number| number.to_be_bytes())),
        }
    }
    (standard, large)
}

fn is_wide(path: &AsPath) -> bool {
    path.0.iter().flat_map(|(_, asns)| asns).any(|asn| *asn > u32::from(u16::MAX))
}

fn as_path(path: &AsPath, four_octet_as: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, asns) in &path.0 {
        let kind = match kind {
            SegmentKind::Set => 1,
            SegmentKind::Sequence => 2,
        };
        out.extend([kind, u8::try_from(asns.len()).expect("a segment has at most 255 AS numbers")]);
        for asn in asns {
            if four_octet_as {
                out.extend(asn.to_be_bytes());
            } else {
                out.extend(u16::try_from(*asn).unwrap_or(Asn::TRANS).to_be_bytes());
            }
        }
    }
    out
}

fn push_attribute(flags: u8, kind: u8, value: &[u8], out: &mut Vec<u8>) {
    match u8::try_from(value.len()) {
        Ok(length) => out.extend([flags, kind, length]),
        Err(_) => {
            let length = u16::try_from(value.len()).expect("an attribute is shorter than its message");
            out.extend([flags | flag::EXTENDED_LENGTH, kind]);
            out.extend(length.to_be_bytes());
        }
    }
    out.extend(value);
}
