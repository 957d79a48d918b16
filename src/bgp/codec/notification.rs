//! NOTIFICATION: why a session ends (RFC 4271 §4.5, RFC 4486, 6608, 7313, 9003, 9687).

use std::fmt;

use super::cursor::Cursor;
use super::{HEADER_LENGTH, MAXIMUM_LENGTH};

/// Why a session ends: one error code and subcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the table below says what each one means and where it is from")]
pub enum Reason {
    HeaderUnspecific,
    NotSynchronized,
    BadMessageLength,
    BadMessageType,
    OpenUnspecific,
    UnsupportedVersion,
    BadPeerAs,
    BadBgpIdentifier,
    UnsupportedOptionalParameter,
    AuthenticationFailure,
    UnacceptableHoldTime,
    UnsupportedCapability,
    RoleMismatch,
    UpdateUnspecific,
    MalformedAttributeList,
    UnrecognizedWellKnownAttribute,
    MissingWellKnownAttribute,
    AttributeFlags,
    AttributeLength,
    InvalidOrigin,
    RoutingLoop,
    InvalidNextHop,
    OptionalAttribute,
    InvalidNetworkField,
    MalformedAsPath,
    HoldTimerExpired,
    FsmUnspecific,
    UnexpectedInOpenSent,
    UnexpectedInOpenConfirm,
    UnexpectedInEstablished,
    CeaseUnspecific,
    MaximumPrefixes,
    AdministrativeShutdown,
    PeerDeconfigured,
    AdministrativeReset,
    ConnectionRejected,
    OtherConfigurationChange,
    ConnectionCollision,
    OutOfResources,
    HardReset,
    BfdDown,
    RefreshUnspecific,
    InvalidRefreshLength,
    SendHoldTimerExpired,
    /// A code or subcode that no RFC read here names.
    Other {
        code: u8,
        subcode: u8,
    },
}

/// Reason, code, subcode, meaning. The first row of a code is its "unspecific" one.
const TABLE: [(Reason, u8, u8, &str); 44] = [
    (Reason::HeaderUnspecific, 1, 0, "message header error"),
    (Reason::NotSynchronized, 1, 1, "message header error: the marker is not all ones"),
    (Reason::BadMessageLength, 1, 2, "message header error: bad message length"),
    (Reason::BadMessageType, 1, 3, "message header error: bad message type"),
    (Reason::OpenUnspecific, 2, 0, "OPEN error"),
    (Reason::UnsupportedVersion, 2, 1, "OPEN error: unsupported version number"),
    (Reason::BadPeerAs, 2, 2, "OPEN error: bad peer AS, the AS number is not the configured one"),
    (Reason::BadBgpIdentifier, 2, 3, "OPEN error: bad BGP identifier, the router ID is zero or not unique"),
    (Reason::UnsupportedOptionalParameter, 2, 4, "OPEN error: unsupported optional parameter"),
    (Reason::AuthenticationFailure, 2, 5, "OPEN error: authentication failure"),
    (Reason::UnacceptableHoldTime, 2, 6, "OPEN error: unacceptable hold time"),
    (Reason::UnsupportedCapability, 2, 7, "OPEN error: a required capability is missing"),
    (Reason::RoleMismatch, 2, 11, "OPEN error: role mismatch"),
    (Reason::UpdateUnspecific, 3, 0, "UPDATE error"),
    (Reason::MalformedAttributeList, 3, 1, "UPDATE error: malformed attribute list"),
    (Reason::UnrecognizedWellKnownAttribute, 3, 2, "UPDATE error: unrecognized well-known attribute"),
    (Reason::MissingWellKnownAttribute, 3, 3, "UPDATE error: missing well-known attribute"),
    (Reason::AttributeFlags, 3, 4, "UPDATE error: wrong attribute flags"),
    (Reason::AttributeLength, 3, 5, "UPDATE error: wrong attribute length"),
    (Reason::InvalidOrigin, 3, 6, "UPDATE error: invalid ORIGIN attribute"),
    (Reason::RoutingLoop, 3, 7, "UPDATE error: AS routing loop"),
    (Reason::InvalidNextHop, 3, 8, "UPDATE error: invalid NEXT_HOP attribute"),
    (Reason::OptionalAttribute, 3, 9, "UPDATE error: malformed optional attribute"),
    (Reason::InvalidNetworkField, 3, 10, "UPDATE error: invalid network field"),
    (Reason::MalformedAsPath, 3, 11, "UPDATE error: malformed AS_PATH"),
    (Reason::HoldTimerExpired, 4, 0, "hold timer expired: nothing was heard for the hold time"),
    (Reason::FsmUnspecific, 5, 0, "state machine error"),
    (Reason::UnexpectedInOpenSent, 5, 1, "state machine error: unexpected message in state OpenSent"),
    (Reason::UnexpectedInOpenConfirm, 5, 2, "state machine error: unexpected message in state OpenConfirm"),
    (Reason::UnexpectedInEstablished, 5, 3, "state machine error: unexpected message in state Established"),
    (Reason::CeaseUnspecific, 6, 0, "cease"),
    (Reason::MaximumPrefixes, 6, 1, "cease: maximum number of prefixes reached"),
    (Reason::AdministrativeShutdown, 6, 2, "cease: administrative shutdown"),
    (Reason::PeerDeconfigured, 6, 3, "cease: peer de-configured"),
    (Reason::AdministrativeReset, 6, 4, "cease: administrative reset"),
    (Reason::ConnectionRejected, 6, 5, "cease: connection rejected"),
    (Reason::OtherConfigurationChange, 6, 6, "cease: other configuration change"),
    (Reason::ConnectionCollision, 6, 7, "cease: connection collision resolution"),
    (Reason::OutOfResources, 6, 8, "cease: out of resources"),
    (Reason::HardReset, 6, 9, "cease: hard reset"),
    (Reason::BfdDown, 6, 10, "cease: BFD down"),
    (Reason::RefreshUnspecific, 7, 0, "ROUTE-REFRESH error"),
    (Reason::InvalidRefreshLength, 7, 1, "ROUTE-REFRESH error: invalid message length"),
    (Reason::SendHoldTimerExpired, 8, 0, "send hold timer expired: the other side takes nothing"),
];

impl Reason {
    /// The reason of a code and subcode; one that is not known keeps both numbers.
    pub fn of(code: u8, subcode: u8) -> Self {
        let known = TABLE.iter().find(|(_, c, s, _)| (*c, *s) == (code, subcode));
        known.map_or(Self::Other { code, subcode }, |(reason, ..)| *reason)
    }

    /// The error code and subcode on the wire.
    pub fn codes(self) -> (u8, u8) {
        match (self, self.row()) {
            (Self::Other { code, subcode }, _) => (code, subcode),
            (_, row) => (row.1, row.2),
        }
    }

    /// What it means, in the RFCs' words; for an unknown subcode what its code means.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Other { code, .. } => {
                TABLE.iter().find(|(_, c, ..)| *c == code).map_or("unknown error", |(.., text)| text)
            }
            _ => self.row().3,
        }
    }

    fn row(self) -> (Reason, u8, u8, &'static str) {
        let row = TABLE.iter().find(|(reason, ..)| *reason == self);
        row.copied().unwrap_or((self, 0, 0, "unknown error"))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, subcode) = self.codes();
        write!(f, "{} ({code}/{subcode})", self.meaning())
    }
}

/// A NOTIFICATION message: the reason and what the RFC of the reason puts beside it.
///
/// Written `OPEN error: bad peer AS, the AS number is not the configured one (2/2), it was 65009`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Why the session ends.
    pub reason: Reason,
    /// The data field, uninterpreted.
    pub data: Vec<u8>,
}

impl From<Reason> for Notification {
    fn from(reason: Reason) -> Self {
        Self { reason, data: Vec::new() }
    }
}

impl Notification {
    /// A reason with its data field.
    pub fn new(reason: Reason, data: impl Into<Vec<u8>>) -> Self {
        Self { reason, data: data.into() }
    }

    /// A Cease with a text for the other side's operator (RFC 9003 §2).
    ///
    /// Text beyond 255 octets is cut at a character boundary.
    pub fn shutdown(reason: Reason, text: &str) -> Self {
        let text = &text.as_bytes()[..text.floor_char_boundary(255)];
        let length = u8::try_from(text.len()).expect("the text was cut to 255 octets");
        Self { reason, data: [&[length], text].concat() }
    }

    /// The text for the operator in an administrative shutdown or reset, when it is well-formed.
    pub fn shutdown_text(&self) -> Option<&str> {
        if !matches!(self.reason, Reason::AdministrativeShutdown | Reason::AdministrativeReset) {
            return None;
        }
        let text = Cursor::new(&self.data).block_u8()?;
        std::str::from_utf8(text).ok().filter(|text| !text.is_empty())
    }

    /// The AS number that was refused, where the sender says it (BIRD and FRR do, and so do we).
    fn refused_asn(&self) -> Option<u32> {
        if self.reason != Reason::BadPeerAs {
            return None;
        }
        match *self.data.as_slice() {
            [a, b] => Some(u32::from_be_bytes([0, 0, a, b])),
            [a, b, c, d] => Some(u32::from_be_bytes([a, b, c, d])),
            _ => None,
        }
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(body);
        let reason = Reason::of(cursor.u8()?, cursor.u8()?);
        Some(Self { reason, data: cursor.rest().to_vec() })
    }

    pub(super) fn encode_body(&self, out: &mut Vec<u8>) {
        let (code, subcode) = self.reason.codes();
        out.extend([code, subcode]);
        // A message that is quoted whole may be too long to quote.
        out.extend(self.data.iter().take(MAXIMUM_LENGTH - HEADER_LENGTH - 2));
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)?;
        if let Some(text) = self.shutdown_text() {
            // Debug form: an operator's text may hold anything, also line ends (RFC 9003 §4).
            write!(f, ", {text:?}")?;
        }
        if let Some(asn) = self.refused_asn() {
            write!(f, ", it was {asn}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_codes_and_finds_back() {
        for (reason, code, subcode, meaning) in TABLE {
            assert_eq!(Reason::of(code, subcode), reason);
            assert_eq!(reason.codes(), (code, subcode));
            assert_eq!(reason.meaning(), meaning);
        }
        assert_eq!(Reason::of(6, 99).to_string(), "cease (6/99)");
        assert_eq!(Reason::of(77, 1).to_string(), "unknown error (77/1)");
    }

    #[test]
    fn a_shutdown_text_reads_back_and_never_breaks_a_line() {
        let said = Notification::shutdown(Reason::AdministrativeShutdown, "rack\n12");
        assert_eq!(said.shutdown_text(), Some("rack\n12"));
        assert_eq!(said.to_string(), r#"cease: administrative shutdown (6/2), "rack\n12""#);
        for data in [&[5, b'a'][..], &[1, 0xff], &[0], &[]] {
            assert_eq!(Notification::new(Reason::AdministrativeShutdown, data).shutdown_text(), None, "{data:?}");
        }
        let long = Notification::shutdown(Reason::AdministrativeReset, &"ü".repeat(200));
        assert_eq!(long.shutdown_text().map(str::len), Some(254));
    }

    #[test]
    fn a_refused_as_number_is_named() {
        let refused = Notification::new(Reason::BadPeerAs, 65009_u32.to_be_bytes());
        assert!(refused.to_string().ends_with("(2/2), it was 65009"), "{refused}");
    }
}
