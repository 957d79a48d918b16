//! OPEN: who speaks, and what it can do (RFC 4271 §4.2, RFC 5492, RFC 9072).

use std::net::Ipv4Addr;

use crate::bgp::desired::HoldTime;
use crate::model::{Asn, Family, RouterId};

use super::cursor::Cursor;
use super::family_codes;
use super::notification::{Notification, Reason};

const VERSION: u8 = 4;
/// Optional parameter type of capabilities (RFC 5492 §4).
const CAPABILITIES: u8 = 2;
/// Optional parameter type that says lengths are two octets wide (RFC 9072 §2).
const EXTENDED_LENGTH: u8 = 255;

/// An OPEN message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// The AS number in the two-octet field; AS_TRANS when it does not fit (RFC 6793 §4.1).
    pub two_octet_asn: u16,
    /// The proposed hold time.
    pub hold_time: HoldTime,
    /// The sender's BGP identifier.
    pub router_id: RouterId,
    /// What the sender can do, in its order.
    pub capabilities: Vec<Capability>,
}

/// One capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capability {
    /// Code 1: routes of an address family can be exchanged (RFC 4760 §8).
    Multiprotocol {
        /// Address family identifier.
        afi: u16,
        /// Subsequent address family identifier.
        safi: u8,
    },
    /// Code 2: ROUTE-REFRESH is understood (RFC 2918 §2).
    RouteRefresh,
    /// Code 65: AS numbers are four octets wide; the sender's (RFC 6793 §3).
    FourOctetAs(u32),
    /// Any other, left alone (RFC 5492 §3).
    Other {
        /// Its code.
        code: u8,
        /// Its value.
        value: Vec<u8>,
    },
}

impl Capability {
    /// The multiprotocol capability of a family's unicast routes.
    pub fn unicast(family: Family) -> Self {
        let (afi, safi) = family_codes(family);
        Self::Multiprotocol { afi, safi }
    }
}

impl Open {
    /// What this speaker sends: four-octet AS numbers, both families' unicast, route refresh.
    pub fn ours(asn: Asn, router_id: RouterId, hold_time: HoldTime) -> Self {
        Self {
            two_octet_asn: u16::try_from(asn.get()).unwrap_or(Asn::TRANS),
            hold_time,
            router_id,
            capabilities: vec![
                Capability::unicast(Family::V4),
                Capability::unicast(Family::V6),
                Capability::RouteRefresh,
                Capability::FourOctetAs(asn.get()),
            ],
        }
    }

    /// The sender's AS number when it knows four-octet ones.
    pub fn four_octet_asn(&self) -> Option<u32> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::FourOctetAs(asn) => Some(*asn),
            _ => None,
        })
    }

    /// The sender's AS number, the wide one where it gives one.
    pub fn asn(&self) -> u32 {
        self.four_octet_asn().unwrap_or(self.two_octet_asn.into())
    }

    /// Whether the sender exchanges unicast routes of a family. One that names no family at all
    /// is an old speaker of IPv4 (RFC 4760 §8).
    pub fn carries(&self, family: Family) -> bool {
        let names_any = self.capabilities.iter().any(|c| matches!(c, Capability::Multiprotocol { .. }));
        self.capabilities.contains(&Capability::unicast(family)) || (!names_any && family == Family::V4)
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, Notification> {
        let mut cursor = Cursor::new(body);
        let (version, two_octet_asn, hold_time, router_id) = fixed_fields(&mut cursor).ok_or(Reason::OpenUnspecific)?;
        if version != VERSION {
            return Err(Notification::new(Reason::UnsupportedVersion, u16::from(VERSION).to_be_bytes()));
        }
        let hold_time = HoldTime::try_from(hold_time).map_err(|_| Reason::UnacceptableHoldTime)?;
        let router_id = RouterId::try_from(router_id).map_err(|_| Reason::BadBgpIdentifier)?;
        let capabilities = optional_parameters(cursor.rest())?;
        let open = Self { two_octet_asn, hold_time, router_id, capabilities };
        if open.two_octet_asn == 0 || open.four_octet_asn() == Some(0) {
            // RFC 7607 §2.
            return Err(Notification::new(Reason::BadPeerAs, 0_u32.to_be_bytes()));
        }
        Ok(open)
    }

    /// Writes the body; capabilities beyond 253 octets are more than this speaker ever has.
    pub(super) fn encode_body(&self, out: &mut Vec<u8>) {
        let mut capabilities = Vec::new();
        for capability in &self.capabilities {
            capability.encode(&mut capabilities);
        }
        let length = u8::try_from(capabilities.len()).ok().filter(|length| *length <= 253);
        let length = length.expect("the capabilities of an OPEN fit into one parameter");
        out.push(VERSION);
        out.extend(self.two_octet_asn.to_be_bytes());
        out.extend(self.hold_time.seconds().to_be_bytes());
        out.extend(self.router_id.get().octets());
        if length == 0 {
            out.push(0);
        } else {
            out.extend([length + 2, CAPABILITIES, length]);
            out.extend(capabilities);
        }
    }
}

fn fixed_fields(cursor: &mut Cursor<'_>) -> Option<(u8, u16, u16, Ipv4Addr)> {
    Some((cursor.u8()?, cursor.u16()?, cursor.u16()?, Ipv4Addr::from(cursor.u32()?)))
}

/// Reads the optional parameters, from their length octet on.
fn optional_parameters(block: &[u8]) -> Result<Vec<Capability>, Reason> {
    // RFC 9072 §2: the type of the first parameter decides; the length octet then means nothing.
    let parameters = match block {
        [0, EXTENDED_LENGTH, ..] => return Err(Reason::OpenUnspecific),
        [_, EXTENDED_LENGTH, extended @ ..] => whole(Cursor::new(extended).block_u16(), 2, extended)?,
        _ => whole(Cursor::new(block).block_u8(), 1, block)?,
    };
    let is_extended = block.get(1) == Some(&EXTENDED_LENGTH);
    let mut cursor = Cursor::new(parameters);
    let mut capabilities = Vec::new();
    while let Some(kind) = cursor.u8() {
        let value = if is_extended { cursor.block_u16() } else { cursor.block_u8() };
        match (kind, value) {
            (_, None) => return Err(Reason::OpenUnspecific),
            (CAPABILITIES, Some(value)) => decode_capabilities(value, &mut capabilities)?,
            (_, Some(_)) => return Err(Reason::UnsupportedOptionalParameter),
        }
    }
    Ok(capabilities)
}

/// A block that has to reach exactly to the end of the message.
fn whole<'a>(block: Option<&'a [u8]>, length_octets: usize, message: &[u8]) -> Result<&'a [u8], Reason> {
    block.filter(|block| block.len() + length_octets == message.len()).ok_or(Reason::OpenUnspecific)
}

fn decode_capabilities(value: &[u8], into: &mut Vec<Capability>) -> Result<(), Reason> {
    let mut cursor = Cursor::new(value);
    while let Some(code) = cursor.u8() {
        let value = cursor.block_u8().ok_or(Reason::OpenUnspecific)?;
        into.push(Capability::decode(code, value).ok_or(Reason::OpenUnspecific)?);
    }
    Ok(())
}

impl Capability {
    fn decode(code: u8, value: &[u8]) -> Option<Self> {
        match (code, value) {
            (1, &[afi_high, afi_low, _reserved, safi]) => {
                Some(Self::Multiprotocol { afi: u16::from_be_bytes([afi_high, afi_low]), safi })
            }
            (2, []) => Some(Self::RouteRefresh),
            (65, &[a, b, c, d]) => Some(Self::FourOctetAs(u32::from_be_bytes([a, b, c, d]))),
            (1 | 2 | 65, _) => None,
            _ => Some(Self::Other { code, value: value.to_vec() }),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Multiprotocol { afi, safi } => {
                out.extend([1, 4]);
                out.extend(afi.to_be_bytes());
                out.extend([0, *safi]);
            }
            Self::RouteRefresh => out.extend([2, 0]),
            Self::FourOctetAs(asn) => {
                out.extend([65, 4]);
                out.extend(asn.to_be_bytes());
            }
            Self::Other { code, value } => {
                out.extend([*code, u8::try_from(value.len()).expect("a capability's value has at most 255 octets")]);
                out.extend(value);
            }
        }
    }
}
