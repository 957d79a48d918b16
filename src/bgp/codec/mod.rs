//! BGP messages to octets and back. Pure; knows no session, only what one has negotiated.
//!
//! Decoding trusts nothing: [`frame_length`] finds where a message ends, [`Message::decode`] reads
//! it whole or says the NOTIFICATION that the RFCs ask for. An UPDATE with a bad attribute is
//! judged by RFC 7606 ([`Update`]); where an attribute begins never depends on what is in it.
//! Nothing is guessed: the width of AS numbers and the families come from a [`Context`].
//!
//! Start at [`Message`]; [`pack`] writes the UPDATEs that announce and withdraw.

mod attribute;
mod cursor;
mod nlri;
mod notification;
mod open;
pub mod pack;
#[cfg(test)]
mod tests;
mod update;

use crate::model::Family;

use super::desired::Peering;
pub use notification::{Notification, Reason};
pub use open::{Capability, GracefulRestart, Open, PreservedFamily};
pub use update::{AsPath, Attributes, Fault, Origin, Outcome, SegmentKind, Update};

/// Octets of a message's header: marker, length, type (RFC 4271 §4.1).
pub const HEADER_LENGTH: usize = 19;
/// Octets of the longest message (RFC 4271 §4.1; longer ones, RFC 8654, are not negotiated).
pub const MAXIMUM_LENGTH: usize = 4096;

const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const NOTIFICATION: u8 = 3;
const KEEPALIVE: u8 = 4;
const ROUTE_REFRESH: u8 = 5;

/// What the two OPENs of a session settled, as far as octets depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Whether AS numbers in AS_PATH and AGGREGATOR are four octets wide (RFC 6793 §4.1).
    pub four_octet_as: bool,
    /// Whether the session is internal.
    pub peering: Peering,
    /// The families whose routes may be exchanged.
    pub families: Families,
}

/// A set of address families, unicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Families {
    /// IPv4 is in the set.
    pub v4: bool,
    /// IPv6 is in the set.
    pub v6: bool,
}

impl Families {
    /// Whether the family is in the set.
    pub fn contains(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Whether the family is in the set, to be changed.
    pub(super) fn of_mut(&mut self, family: Family) -> &mut bool {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

/// A family's unicast routes as AFI and SAFI.
fn family_codes(family: Family) -> (u16, u8) {
    match family {
        Family::V4 => (1, 1),
        Family::V6 => (2, 1),
    }
}

/// The family of an AFI and SAFI, or `None` for those this speaker does not exchange.
fn family_of(afi: u16, safi: u8) -> Option<Family> {
    [Family::V4, Family::V6].into_iter().find(|family| family_codes(*family) == (afi, safi))
}

/// A BGP message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The first message of either side.
    Open(Open),
    /// Routes that came or went.
    Update(Update),
    /// The last message of a session.
    Notification(Notification),
    /// A sign of life.
    Keepalive,
    /// The other side wants to hear all routes of a family again (RFC 2918).
    RouteRefresh(Refresh),
}

/// What a ROUTE-REFRESH asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refresh {
    /// Address family identifier.
    pub afi: u16,
    /// 0 asks for routes; 1 and 2 mark the begin and end of an answer (RFC 7313 §3.2).
    pub subtype: u8,
    /// Subsequent address family identifier.
    pub safi: u8,
}

impl Refresh {
    /// Asks for all unicast routes of a family.
    pub fn of(family: Family) -> Self {
        let (afi, safi) = family_codes(family);
        Self { afi, subtype: 0, safi }
    }

    /// The family whose routes it asks for; `None` when it asks for none we have.
    pub fn requested(self) -> Option<Family> {
        family_of(self.afi, self.safi).filter(|_| self.subtype == 0)
    }
}

/// The length of the message at the front of `octets`, or `None` while its header is not all there.
///
/// # Errors
/// The NOTIFICATION for a bad marker, length or type (RFC 4271 §6.1).
pub fn frame_length(octets: &[u8]) -> Result<Option<usize>, Notification> {
    let Some((header, _)) = octets.split_first_chunk::<HEADER_LENGTH>() else {
        return Ok(None);
    };
    if header[..16] != [0xff; 16] {
        return Err(Reason::NotSynchronized.into());
    }
    let (length, kind) = (u16::from_be_bytes([header[16], header[17]]), header[18]);
    let is_possible = match kind {
        OPEN => (29..=4096).contains(&length),
        UPDATE => (23..=4096).contains(&length),
        NOTIFICATION => (21..=4096).contains(&length),
        KEEPALIVE => length == 19,
        // Any other length of a ROUTE-REFRESH has an error code of its own (RFC 7313 §5).
        ROUTE_REFRESH => (23..=4096).contains(&length),
        _ if (19..=4096).contains(&length) => return Err(Notification::new(Reason::BadMessageType, [kind])),
        _ => false,
    };
    if is_possible {
        Ok(Some(length.into()))
    } else {
        Err(Notification::new(Reason::BadMessageLength, length.to_be_bytes()))
    }
}

impl Message {
    /// Its type code.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Open(_) => OPEN,
            Self::Update(_) => UPDATE,
            Self::Notification(_) => NOTIFICATION,
            Self::Keepalive => KEEPALIVE,
            Self::RouteRefresh(_) => ROUTE_REFRESH,
        }
    }

    /// Reads one whole message, as long as [`frame_length`] says.
    ///
    /// # Errors
    /// The NOTIFICATION that ends the session.
    pub fn decode(frame: &[u8], context: &Context) -> Result<Self, Notification> {
        let bad_length = || Notification::new(Reason::BadMessageLength, frame.get(16..18).unwrap_or_default());
        if frame_length(frame)? != Some(frame.len()) {
            return Err(bad_length());
        }
        let body = &frame[HEADER_LENGTH..];
        match frame[HEADER_LENGTH - 1] {
            OPEN => Open::decode(body).map(Self::Open),
            UPDATE => Update::decode(body, context).map(Self::Update),
            NOTIFICATION => Notification::decode(body).map(Self::Notification).ok_or_else(bad_length),
            KEEPALIVE => Ok(Self::Keepalive),
            _ => match *body {
                [high, low, subtype, safi] => {
                    Ok(Self::RouteRefresh(Refresh { afi: u16::from_be_bytes([high, low]), subtype, safi }))
                }
                _ => Err(Notification::new(Reason::InvalidRefreshLength, frame)),
            },
        }
    }
}

/// Appends an OPEN.
pub fn encode_open(open: &Open, out: &mut Vec<u8>) {
    write(OPEN, out, |body| open.encode_body(body));
}

/// Appends a NOTIFICATION.
pub fn encode_notification(notification: &Notification, out: &mut Vec<u8>) {
    write(NOTIFICATION, out, |body| notification.encode_body(body));
}

/// Appends a KEEPALIVE.
pub fn encode_keepalive(out: &mut Vec<u8>) {
    write(KEEPALIVE, out, |_| {});
}

/// Appends a ROUTE-REFRESH.
pub fn encode_refresh(refresh: Refresh, out: &mut Vec<u8>) {
    write(ROUTE_REFRESH, out, |body| {
        body.extend(refresh.afi.to_be_bytes());
        body.extend([refresh.subtype, refresh.safi]);
    });
}

/// Appends a header and what `body` writes after it.
fn write(kind: u8, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0xff; 16]);
    out.extend([0, 0, kind]);
    body(out);
    let length = out.len() - start;
    debug_assert!(length <= MAXIMUM_LENGTH, "a message of {length} octets");
    let length = u16::try_from(length).expect("a message is at most 4096 octets long");
    out[start + 16..start + 18].copy_from_slice(&length.to_be_bytes());
}
