//! What an Established session has besides its machine: what the peer hears, and what it told. Pure.

use std::net::IpAddr;
use std::time::Duration;

use crate::model::Moment;

use super::codec::{Message, Refresh};
use super::desired::PeerConfig;
use super::fsm::{Negotiated, Restart};
use super::retained::Retained;
use super::rib::AdjRibOut;
use super::rib_in::AdjRibIn;

/// The least send hold time; twice the hold time, if that is more (RFC 9687 §4).
pub(super) const SEND_HOLD: Duration = Duration::from_secs(8 * 60);
/// A router that has restarted and never says that it has told everything has told it by then. RFC 4724 §4.2 leaves the
/// time open; the agent waits as long for a router after its own restart.
const STALE_LIMIT: Duration = Duration::from_secs(120);

/// The routes of both directions, and what the OPENs settled about them.
pub(super) struct Exchange {
    pub(super) rib: AdjRibOut,
    pub(super) rib_in: AdjRibIn,
    /// How long the peer may take nothing.
    pub(super) send_hold: Duration,
    refreshes: bool,
    restart: Option<Restart>,
    /// When the routes go that the peer has not told since it restarted.
    stale_until: Moment,
}

impl Exchange {
    /// Begins with what the peer told before, if it has restarted.
    pub(super) fn new(
        config: &PeerConfig,
        negotiated: Negotiated,
        local_address: IpAddr,
        retained: Option<Retained>,
        now: Moment,
    ) -> Self {
        let Negotiated { context, hold_time, refreshes, restart } = negotiated;
        let mut rib_in = AdjRibIn::new(context, config.local_asn, local_address, config.import.clone());
        if let Some(retained) = retained {
            rib_in.resume(retained, restart.map(|restart| restart.forwarding).unwrap_or_default());
        }
        Self {
            rib: AdjRibOut::new(context, config.local_asn),
            rib_in,
            send_hold: SEND_HOLD.max(Duration::from_secs(2 * u64::from(hold_time.seconds()))),
            refreshes,
            restart,
            stale_until: now + STALE_LIMIT,
        }
    }

    /// Takes the routes of an UPDATE, or that there are none.
    pub(super) fn learn(&mut self, message: &Message) {
        match message {
            Message::Update(update) => self.rib_in.take(update),
            Message::Keepalive if self.restart.is_none() => self.rib_in.keep_alive(),
            _ => {}
        }
    }

    /// The next request to tell again what was not kept the last time.
    pub(super) fn next_question(&mut self) -> Option<Refresh> {
        self.rib_in.next_question().filter(|_| self.refreshes).map(Refresh::of)
    }

    /// When the routes go that the peer has not told since it restarted, if there are any.
    pub(super) fn stale_deadline(&self) -> Option<Moment> {
        (self.rib_in.stale() > 0).then_some(self.stale_until)
    }

    /// What stays of the peer's routes although the session ended, since it may restart, as it said before.
    pub(super) fn retain(self, now: Moment) -> Option<Retained> {
        let Self { rib_in, restart, .. } = self;
        rib_in.retain(restart?, now)
    }
}
