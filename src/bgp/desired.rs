//! What the agent wishes of the speaker, whole: who this node is, whom it dials, what it announces.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::config::peer::Import;
use crate::model::{Adverts, Asn, NextHops, PeerName, RouterId};

/// The complete wish; each one replaces the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// This node's BGP identifier. A change resets every session.
    pub router_id: RouterId,
    /// Next hops for prefixes of the family that a session does not run over.
    pub next_hops: NextHops,
    /// The routers to dial.
    pub peers: BTreeMap<PeerName, PeerConfig>,
    /// What each of them is told; a peer that is not here is told nothing.
    pub adverts: BTreeMap<PeerName, Arc<Adverts>>,
    /// Whether `adverts` was computed from everything there is. Until then nothing is withdrawn
    /// and no End-of-RIB is sent, which tells a router that what it did not hear is gone.
    pub complete: bool,
}

/// A router to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConfig {
    /// The name of its `BgpPeer`.
    pub name: PeerName,
    /// The AS number we speak as.
    pub local_asn: Asn,
    /// The AS number it must have; equal to ours makes the session internal.
    pub peer_asn: Asn,
    /// Its address.
    pub address: IpAddr,
    /// Its TCP port, 179 unless the router is special.
    pub port: u16,
    /// The hold time to propose; a change holds from the next session on and resets none.
    pub hold_time: HoldTime,
    /// Which of its routes are taken; a change resets nothing.
    pub import: Import,
}

impl PeerConfig {
    /// Whether the session is within one AS or between two.
    pub fn peering(&self) -> Peering {
        if self.local_asn == self.peer_asn { Peering::Internal } else { Peering::External }
    }
}

/// Whether both ends of a session are in one AS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peering {
    /// iBGP: both in one AS.
    Internal,
    /// eBGP: each in its own.
    External,
}

/// How long a silent peer is believed alive: 0 (for ever) or 3 to 65535 seconds (RFC 4271 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldTime(u16);

/// Not a hold time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a hold time: it takes 0 (never expires) or 3 to 65535 whole seconds (RFC 4271 §4.2)")]
pub struct HoldTimeError(pub Duration);

impl HoldTime {
    /// 90 s, what RFC 4271 §10 suggests.
    pub const DEFAULT: Self = Self(90);

    /// The value of the OPEN field.
    pub fn seconds(self) -> u16 {
        self.0
    }

    /// How long silence is borne, or `None` when it always is.
    pub fn limit(self) -> Option<Duration> {
        (self.0 != 0).then(|| Duration::from_secs(self.0.into()))
    }
}

impl TryFrom<u16> for HoldTime {
    type Error = HoldTimeError;

    fn try_from(seconds: u16) -> Result<Self, HoldTimeError> {
        match seconds {
            1 | 2 => Err(HoldTimeError(Duration::from_secs(seconds.into()))),
            _ => Ok(Self(seconds)),
        }
    }
}

impl TryFrom<Duration> for HoldTime {
    type Error = HoldTimeError;

    fn try_from(time: Duration) -> Result<Self, HoldTimeError> {
        let refused = || HoldTimeError(time);
        if time.subsec_nanos() != 0 {
            return Err(refused());
        }
        u16::try_from(time.as_secs()).map_err(|_| refused())?.try_into()
    }
}

impl fmt::Display for HoldTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_time_is_zero_or_three_seconds_and_more() {
        for (milliseconds, want) in [
            (0, Some(0)),
            (1_000, None),
            (2_000, None),
            (3_000, Some(3)),
            (3_500, None),
            (65_535_000, Some(65535)),
            (65_536_000, None),
        ] {
            let got = HoldTime::try_from(Duration::from_millis(milliseconds)).ok().map(HoldTime::seconds);
            assert_eq!(got, want, "{milliseconds} ms");
        }
    }
}
