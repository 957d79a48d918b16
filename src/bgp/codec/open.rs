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
    /// Code 64: what becomes of routes while the sender restarts (RFC 4724 §3).
    GracefulRestart(GracefulRestart),
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

/// What becomes of routes while a speaker restarts (RFC 4724 §3).
///
/// One without a family says only that its sender tells when it has told everything (End-of-RIB), and keeps routes of
/// those that do restart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GracefulRestart {
    /// Four bits; the first says that the sender has just restarted.
    pub flags: u8,
    /// How long it may take from the end of one session to the next one; twelve bits.
    pub restart_time_seconds: u16,
    /// The families whose packets the sender goes on forwarding while it restarts, or does not.
    pub families: Vec<PreservedFamily>,
}

/// An address family whose routes matter while a speaker restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreservedFamily {
    /// Address family identifier.
    pub afi: u16,
    /// Subsequent address family identifier.
    pub safi: u8,
    /// The first bit says that the forwarding state outlived the last restart.
    pub flags: u8,
}

impl PreservedFamily {
    /// The most significant bit of its flags, "Forwarding State".
    const FORWARDING: u8 = 0x80;

    /// Whether packets went on being forwarded by what the sender had told before.
    pub fn is_forwarding(&self) -> bool {
        self.flags & Self::FORWARDING != 0
    }

    fn is_unicast_of(&self, family: Family) -> bool {
        (self.afi, self.safi) == family_codes(family)
    }
}

impl GracefulRestart {
    /// What it says of a family's unicast routes.
    pub fn of(&self, family: Family) -> Option<&PreservedFamily> {
        self.families.iter().find(|preserved| preserved.is_unicast_of(family))
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(value);
        let head = cursor.u16()?;
        let (families, []) = cursor.rest().as_chunks() else { return None };
        let family =
            |&[high, low, safi, flags]: &[u8; 4]| PreservedFamily { afi: u16::from_be_bytes([high, low]), safi, flags };
        let [flags, _] = head.to_be_bytes();
        Some(Self {
            flags: flags >> 4,
            restart_time_seconds: head & 0x0fff,
            families: families.iter().map(family).collect(),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let length = u8::try_from(2 + 4 * self.families.len()).expect("there are few families");
        out.extend([64, length]);
        out.extend((u16::from(self.flags) << 12 | self.restart_time_seconds).to_be_bytes());
        for PreservedFamily { afi, safi, flags } in &self.families {
            out.extend(afi.to_be_bytes());
            out.extend([*safi, *flags]);
        }
    }
}

impl Capability {
    /// The multiprotocol capability of a family's unicast routes.
    pub fn unicast(family: Family) -> Self {
        let (afi, safi) = family_codes(family);
        Self::Multiprotocol { afi, safi }
    }
}

impl Open {
    /// What this speaker sends: four-octet AS numbers, both families' unicast, route refresh, and that it wants to
    /// hear the end of the peer's first routes. Many send that End-of-RIB only to who has said so (RFC 4724 §2). With no
    /// family it promises nothing of its own restart, whose time is then irrelevant (§3).
    pub fn ours(asn: Asn, router_id: RouterId, hold_time: HoldTime) -> Self {
        Self {
            two_octet_asn: u16::try_from(asn.get()).unwrap_or(Asn::TRANS),
            hold_time,
            router_id,
            capabilities: vec![
                Capability::unicast(Family::V4),
                Capability::unicast(Family::V6),
                Capability::RouteRefresh,
                Capability::GracefulRestart(GracefulRestart::default()),
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

    /// What becomes of the sender's routes while it restarts; of several it is the last that counts (RFC 4724 §3).
    pub fn graceful_restart(&self) -> Option<&GracefulRestart> {
        self.capabilities.iter().rev().find_map(|capability| match capability {
            Capability::GracefulRestart(restart) => Some(restart),
            _ => None,
        })
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
            // One that is malformed is as good as none: nobody restarts by it.
            (64, value) => match GracefulRestart::decode(value) {
                Some(restart) => Some(Self::GracefulRestart(restart)),
                None => Some(Self::Other { code, value: value.to_vec() }),
            },
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
            Self::GracefulRestart(restart) => restart.encode(out),
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
