//! What the speaker says of itself: a session's state, what it announces, and why something is not so.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use crate::model::learned::LearnedRoutes;
use crate::model::{Family, Moment, PeerName};

use super::codec::Notification;

/// The error code of everything that is wrong with an OPEN (RFC 4271 §4.5).
const OPEN_ERROR: u8 = 2;

/// The state of every session; equal as long as nothing that matters changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpeakerStatus {
    /// One entry a peer that is wished or not yet gone.
    pub peers: BTreeMap<PeerName, PeerStatus>,
}

/// The state of one session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerStatus {
    /// Where its state machine stands.
    pub state: SessionState,
    /// Since when it is Established; `None` while it is not.
    pub established_at: Option<Moment>,
    /// How many prefixes the peer has from us: written to its connection and not withdrawn.
    pub advertised: usize,
    /// Prefixes it should have and cannot have, counted by reason.
    pub withheld: BTreeMap<Withheld, usize>,
    /// What it told of and may tell of; nothing while it is not Established, unless it restarts.
    pub learned: LearnedRoutes,
    /// Whether that is all it has: it said so since the session is Established (End-of-RIB, RFC 4724 §2), or does not say
    /// such things and has nothing more to say.
    pub has_told_all: bool,
    /// How many of those it told before it restarted and not since: they stay for as long as it asked for.
    pub stale: usize,
    /// Routes that were left out because there are as many as the policy takes.
    pub over_limit: usize,
    /// Why it is not Established, or why it was not the last time; forgotten when it is again.
    pub last_error: Option<PeerError>,
}

/// RFC 4271 §8.2.2, without Active: this speaker dials and never waits to be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionState {
    /// Not connected, nor trying: stopped, or resting before the next attempt.
    #[default]
    Idle,
    /// Waiting for the TCP connection.
    Connect,
    /// Waiting for the peer's OPEN.
    OpenSent,
    /// Waiting for the peer to accept our OPEN.
    OpenConfirm,
    /// Exchanging routes.
    Established,
}

impl fmt::Display for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Connect => "Connect",
            Self::OpenSent => "OpenSent",
            Self::OpenConfirm => "OpenConfirm",
            Self::Established => "Established",
        })
    }
}

/// Why a prefix is not announced to a peer whose session is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Withheld {
    /// The session runs over the other family and this node has no address of this one to name.
    NoNextHop(Family),
    /// The router does not exchange unicast routes of the family.
    FamilyNotNegotiated(Family),
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNextHop(family) => write!(f, "no {family} next hop: this node has no {family} address to name"),
            Self::FamilyNotNegotiated(family) => {
                write!(f, "the router does not exchange {family} unicast routes on this session")
            }
        }
    }
}

/// Why a session failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerError {
    /// The TCP connection could not be made.
    CannotConnect(ConnectError),
    /// The connection ended without a NOTIFICATION before the peer said its OPEN.
    ClosedBeforeOpen,
    /// The connection ended without a NOTIFICATION.
    Closed,
    /// The peer ended the session and said why.
    Received(Notification),
    /// We ended the session and said why.
    Sent(Notification),
    /// The session's task failed; an error in this program.
    Crashed,
}

impl PeerError {
    /// Whether both are the same trouble, whatever the details beside it.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Received(a), Self::Received(b)) | (Self::Sent(a), Self::Sent(b)) => a.reason == b.reason,
            _ => self == other,
        }
    }

    /// Whether one side refused the other's OPEN.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Received(notification) | Self::Sent(notification) => notification.reason.codes().0 == OPEN_ERROR,
            _ => false,
        }
    }
}

/// Why there is no TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectError {
    /// Something answered that nothing listens there.
    Refused,
    /// Nothing answered in time.
    TimedOut,
    /// There is no way there, from this node or from a router on the way.
    Unreachable,
    /// Another error of the operating system.
    Other(io::ErrorKind),
}

impl From<&io::Error> for ConnectError {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            kind => Self::Other(kind),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused: nothing listens at the peer's address and port"),
            Self::TimedOut => f.write_str("connection timed out: the peer's address does not answer"),
            Self::Unreachable => f.write_str("the peer's address is unreachable from this node"),
            Self::Other(kind) => write!(f, "cannot connect: {kind}"),
        }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotConnect(error) => error.fmt(f),
            Self::ClosedBeforeOpen => f.write_str(
                "the peer closed the connection at once: it may not know this node's address as a neighbor, \
                     or wait after an error",
            ),
            Self::Closed => f.write_str("the peer closed the connection without a NOTIFICATION"),
            Self::Received(notification) => write!(f, "the peer ended the session: {notification}"),
            Self::Sent(notification) => write!(f, "ended the session with the peer: {notification}"),
            Self::Crashed => f.write_str("the session's task failed; please report it"),
        }
    }
}
