//! Path attributes one by one: where each ends, and what RFC 7606 §7 says of a malformed one.

use std::net::Ipv4Addr;

use super::cursor::Cursor;
use super::notification::{Notification, Reason};
use super::{AsPath, Context, Origin, Peering, SegmentKind};
use crate::model::Community;

/// Attribute type codes.
pub(super) mod kind {
    pub(in super::super) const ORIGIN: u8 = 1;
    pub(in super::super) const AS_PATH: u8 = 2;
    pub(in super::super) const NEXT_HOP: u8 = 3;
    pub(in super::super) const MED: u8 = 4;
    pub(in super::super) const LOCAL_PREF: u8 = 5;
    pub(in super::super) const ATOMIC_AGGREGATE: u8 = 6;
    pub(in super::super) const AGGREGATOR: u8 = 7;
    pub(in super::super) const COMMUNITIES: u8 = 8;
    pub(in super::super) const ORIGINATOR_ID: u8 = 9;
    pub(in super::super) const CLUSTER_LIST: u8 = 10;
    pub(in super::super) const MP_REACH: u8 = 14;
    pub(in super::super) const MP_UNREACH: u8 = 15;
    pub(in super::super) const EXTENDED_COMMUNITIES: u8 = 16;
    pub(in super::super) const AS4_PATH: u8 = 17;
    pub(in super::super) const AS4_AGGREGATOR: u8 = 18;
    pub(in super::super) const LARGE_COMMUNITIES: u8 = 32;
}

/// Attribute flags (RFC 4271 §4.3).
pub(super) mod flag {
    pub(in super::super) const OPTIONAL: u8 = 0x80;
    pub(in super::super) const TRANSITIVE: u8 = 0x40;
    pub(in super::super) const EXTENDED_LENGTH: u8 = 0x10;
}

/// What is done about a malformed attribute.
#[derive(Debug)]
pub(super) enum Flaw {
    Discard(Reason),
    Withdraw(Reason),
    Reset(Notification),
}

impl From<Reason> for Flaw {
    /// Faults of a network field end the session; all others take the routes away.
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::InvalidNetworkField => Self::Reset(reason.into()),
            _ => Self::Withdraw(reason),
        }
    }
}

/// One attribute, its value uninterpreted.
pub(super) struct Raw<'a> {
    pub(super) flags: u8,
    pub(super) kind: u8,
    pub(super) value: &'a [u8],
    /// The attribute with its header, as NOTIFICATIONs quote it.
    pub(super) whole: &'a [u8],
}

impl<'a> Raw<'a> {
    /// The next attribute, or `None` when it does not end within the block.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Option<Self> {
        let start = cursor.rest();
        let (flags, kind) = (cursor.u8()?, cursor.u8()?);
        let value = if flags & flag::EXTENDED_LENGTH != 0 { cursor.block_u16()? } else { cursor.block_u8()? };
        let whole = &start[..start.len() - cursor.rest().len()];
        Some(Self { flags, kind, value, whole })
    }
}

/// Checks flags and length by type. The checks that need the value's meaning are below.
pub(super) fn check(raw: &Raw<'_>, context: &Context) -> Result<(), Flaw> {
    let is_external = context.peering == Peering::External;
    match raw.kind {
        // RFC 7606 §7.5, §7.9, §7.10: not for other ASes to say.
        kind::LOCAL_PREF | kind::ORIGINATOR_ID | kind::CLUSTER_LIST if is_external => {
            return Err(Flaw::Discard(Reason::OptionalAttribute));
        }
        // RFC 6793 §6: only two-octet speakers send these.
        kind::AS4_PATH | kind::AS4_AGGREGATOR if context.four_octet_as => {
            return Err(Flaw::Discard(Reason::OptionalAttribute));
        }
        _ => {}
    }
    check_flags(raw)?;
    let length = raw.value.len();
    let is_list_of = |size: usize| length != 0 && length.is_multiple_of(size);
    let fits = match raw.kind {
        kind::MED | kind::LOCAL_PREF | kind::ORIGINATOR_ID => length == 4,
        kind::ATOMIC_AGGREGATE => length == 0,
        kind::AGGREGATOR => length == if context.four_octet_as { 8 } else { 6 },
        kind::AS4_AGGREGATOR => length == 8,
        kind::COMMUNITIES | kind::CLUSTER_LIST => is_list_of(4),
        kind::EXTENDED_COMMUNITIES => is_list_of(8),
        kind::LARGE_COMMUNITIES => is_list_of(12),
        kind::AS4_PATH => as_path(raw.value, true).is_ok(),
        _ => true,
    };
    match raw.kind {
        _ if fits => Ok(()),
        // RFC 7606 §7.6, §7.7; RFC 6793 §6.
        kind::ATOMIC_AGGREGATE | kind::AGGREGATOR | kind::AS4_AGGREGATOR | kind::AS4_PATH => {
            Err(Flaw::Discard(Reason::AttributeLength))
        }
        _ => Err(Flaw::Withdraw(Reason::AttributeLength)),
    }
}

/// RFC 7606 §3(c): only the optional and transitive bits of attributes that are known matter.
fn check_flags(raw: &Raw<'_>) -> Result<(), Flaw> {
    let expected = match raw.kind {
        kind::ORIGIN | kind::AS_PATH | kind::NEXT_HOP | kind::LOCAL_PREF | kind::ATOMIC_AGGREGATE => flag::TRANSITIVE,
        kind::MED | kind::ORIGINATOR_ID | kind::CLUSTER_LIST | kind::MP_REACH | kind::MP_UNREACH => flag::OPTIONAL,
        kind::AGGREGATOR
        | kind::COMMUNITIES
        | kind::EXTENDED_COMMUNITIES
        | kind::AS4_PATH
        | kind::AS4_AGGREGATOR
        | kind::LARGE_COMMUNITIES => flag::OPTIONAL | flag::TRANSITIVE,
        // RFC 4271 §6.3: what every speaker must know and we do not.
        _ if raw.flags & flag::OPTIONAL == 0 => {
            return Err(Flaw::Reset(Notification::new(Reason::UnrecognizedWellKnownAttribute, raw.whole)));
        }
        _ => return Ok(()),
    };
    if raw.flags & (flag::OPTIONAL | flag::TRANSITIVE) == expected {
        Ok(())
    } else {
        Err(Flaw::Withdraw(Reason::AttributeFlags))
    }
}

/// RFC 7606 §7.1.
pub(super) fn origin(value: &[u8]) -> Result<Origin, Reason> {
    match value {
        [0] => Ok(Origin::Igp),
        [1] => Ok(Origin::Egp),
        [2] => Ok(Origin::Incomplete),
        [_] => Err(Reason::InvalidOrigin),
        _ => Err(Reason::AttributeLength),
    }
}

/// RFC 7606 §7.2; AS 0 is malformed too (RFC 7607 §2), and so are the segments of a confederation
/// from a peer that is not in one (RFC 5065 §5).
pub(super) fn as_path(value: &[u8], four_octet_as: bool) -> Result<AsPath, Reason> {
    let mut cursor = Cursor::new(value);
    let mut segments = Vec::new();
    while let Some(kind) = cursor.u8() {
        let kind = match kind {
            1 => SegmentKind::Set,
            2 => SegmentKind::Sequence,
            _ => return Err(Reason::MalformedAsPath),
        };
        let count = cursor.u8().filter(|count| *count != 0).ok_or(Reason::MalformedAsPath)?;
        let asns = (0..count)
            .map(|_| if four_octet_as { cursor.u32() } else { cursor.u16().map(u32::from) })
            .map(|asn| asn.filter(|asn| *asn != 0))
            .collect::<Option<Vec<u32>>>();
        segments.push((kind, asns.ok_or(Reason::MalformedAsPath)?));
    }
    Ok(AsPath(segments))
}

/// RFC 7606 §7.3.
pub(super) fn next_hop(value: &[u8]) -> Result<Ipv4Addr, Reason> {
    let octets = <[u8; 4]>::try_from(value).map_err(|_| Reason::AttributeLength)?;
    Ok(octets.into())
}

/// A number of four octets: MULTI_EXIT_DISC, LOCAL_PREF.
pub(super) fn number(value: &[u8]) -> Result<u32, Reason> {
    let octets = <[u8; 4]>::try_from(value).map_err(|_| Reason::AttributeLength)?;
    Ok(u32::from_be_bytes(octets))
}

/// RFC 1997: four octets each; the length was checked before.
pub(super) fn communities(value: &[u8]) -> impl Iterator<Item = Community> {
    value.as_chunks::<4>().0.iter().map(|octets| Community::Standard(u32::from_be_bytes(*octets)))
}

/// RFC 8092 §3: three numbers of four octets each; the length was checked before.
pub(super) fn large_communities(value: &[u8]) -> impl Iterator<Item = Community> {
    value.as_chunks::<12>().0.iter().map(|octets| {
        let mut numbers = [0; 3];
        for (number, octets) in numbers.iter_mut().zip(octets.as_chunks::<4>().0) {
            *number = u32::from_be_bytes(*octets);
        }
        Community::Large(numbers)
    })
}
