//! The state machine of one session (RFC 4271 §8). Pure: time and randomness are parameters.
//!
//! It dials and never listens, so there are no colliding connections (§6.8) and no state Active.
//! A failed session rests in Idle, 1 s at first and twice as long each time up to 30 s, with a
//! quarter of jitter either way; the first attempt starts at once.
//!
//! The driver does what [`Output`] says, in order, and calls [`Fsm::step`] with [`Input::Tick`]
//! when [`Fsm::deadline`] has come, and before any other input that comes with time.

use std::time::Duration;

use fastrand::Rng;

use crate::model::{Asn, Family, Moment, RouterId};

use super::codec::{Capability, Context, Families, Message, Notification, Open, PreservedFamily, Reason};
use super::desired::{HoldTime, PeerConfig, Peering};
use super::status::{ConnectError, PeerError, SessionState};

/// How long a TCP connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long the peer may take to say its OPEN. RFC 4271 §8.2.2 suggests four minutes; a router
/// that is alive needs seconds, and one that is stuck is better tried anew.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
/// How long the peer may take to accept our OPEN, where the hold time is 0 and would never end it.
const CONFIRM_LIMIT: Duration = OPEN_LIMIT;
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// A session that stood this long is no longer counted among the failed attempts.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// Begin (ManualStart).
    Start,
    /// End for good, with this NOTIFICATION (ManualStop).
    Stop(Notification),
    /// Time passed.
    Tick,
    /// The TCP connection stands.
    Connected,
    /// The TCP connection could not be made.
    ConnectFailed(ConnectError),
    /// The TCP connection ended, or failed.
    Closed,
    /// A message came.
    Received(Message),
    /// Octets came that are no message; this is the answer to them.
    Malformed(Notification),
    /// The peer has taken nothing for the send hold time (RFC 9687).
    SendHoldExpired,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Output {
    /// Make a TCP connection.
    Dial,
    /// Send our OPEN.
    SendOpen(Open),
    /// Send a sign of life.
    SendKeepalive,
    /// Send a NOTIFICATION; a hang-up follows.
    SendNotification(Notification),
    /// Close the connection, or give up making it, after what is to be sent was sent.
    HangUp,
    /// Routes can be exchanged now.
    Up(Negotiated),
    /// Send all routes of the family again.
    Resend(Family),
    /// The attempt or session failed; a new attempt follows.
    Failed(PeerError),
}

/// What both OPENs settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Negotiated {
    /// What octets depend on.
    pub context: Context,
    /// The smaller of the two hold times.
    pub hold_time: HoldTime,
    /// Whether the peer tells its routes anew when asked (RFC 2918).
    pub refreshes: bool,
    /// What becomes of its routes when it restarts; nothing is kept without it.
    pub restart: Option<Restart>,
}

/// What a peer says of its restarts (RFC 4724 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Restart {
    /// How long it may be away.
    pub time: Duration,
    /// The families whose routes stay meanwhile.
    pub kept: Families,
    /// Those of them whose packets went on being forwarded while it was away the last time.
    pub forwarding: Families,
}

impl Restart {
    fn of(open: &Open) -> Option<Self> {
        let said = open.graceful_restart()?;
        let families = |is_so: &dyn Fn(&PreservedFamily) -> bool| {
            let contains = |family| said.of(family).is_some_and(is_so) && open.carries(family);
            Families { v4: contains(Family::V4), v6: contains(Family::V6) }
        };
        Some(Self {
            time: Duration::from_secs(said.restart_time_seconds.into()),
            kept: families(&|_| true),
            forwarding: families(&PreservedFamily::is_forwarding),
        })
    }
}

/// Who we are and whom we expect; fixed for the life of a machine.
#[derive(Debug, Clone, Copy)]
struct Parties {
    local_asn: Asn,
    router_id: RouterId,
    peer_asn: Asn,
}

/// The states, each with its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Stopped,
    Resting { until: Moment },
    Connect { until: Moment },
    OpenSent { until: Moment },
    OpenConfirm { negotiated: Negotiated, timers: Timers, until: Moment },
    Established { negotiated: Negotiated, timers: Timers, since: Moment },
}

/// The timers of a session whose hold time is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timers {
    /// `None` where the hold time is 0.
    running: Option<Running>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Running {
    limit: Duration,
    hold_until: Moment,
    keepalive_at: Moment,
}

/// The machine.
#[derive(Debug, Clone)]
pub(super) struct Fsm {
    parties: Parties,
    hold_time: HoldTime,
    state: State,
    /// Attempts in a row that did not lead to a stable session.
    failures: u32,
    rng: Rng,
}

impl Fsm {
    /// A machine that waits for [`Input::Start`]. The seed decides all its jitter.
    pub(super) fn new(config: &PeerConfig, router_id: RouterId, seed: u64) -> Self {
        let parties = Parties { local_asn: config.local_asn, router_id, peer_asn: config.peer_asn };
        Self { parties, hold_time: config.hold_time, state: State::Stopped, failures: 0, rng: Rng::with_seed(seed) }
    }

    /// The hold time to propose from the next OPEN on.
    pub(super) fn propose(&mut self, hold_time: HoldTime) {
        self.hold_time = hold_time;
    }

    /// Begins like [`Input::Start`], but rests the longest time first: after a crash.
    pub(super) fn start_resting(&mut self, now: Moment) {
        self.failures = u32::MAX;
        self.state = State::Resting { until: now + self.rest() };
    }

    /// Where it stands, as the RFC calls it.
    pub(super) fn state(&self) -> SessionState {
        match self.state {
            State::Stopped | State::Resting { .. } => SessionState::Idle,
            State::Connect { .. } => SessionState::Connect,
            State::OpenSent { .. } => SessionState::OpenSent,
            State::OpenConfirm { .. } => SessionState::OpenConfirm,
            State::Established { .. } => SessionState::Established,
        }
    }

    /// Since when it is Established.
    pub(super) fn established_at(&self) -> Option<Moment> {
        match self.state {
            State::Established { since, .. } => Some(since),
            _ => None,
        }
    }

    /// How to read what the peer sends now.
    pub(super) fn context(&self) -> Context {
        match self.state {
            State::OpenConfirm { negotiated, .. } | State::Established { negotiated, .. } => negotiated.context,
            _ => Context { four_octet_as: true, peering: self.peering(), families: Families::default() },
        }
    }

    /// When it wants [`Input::Tick`], if ever.
    pub(super) fn deadline(&self) -> Option<Moment> {
        match self.state {
            State::Stopped => None,
            State::Resting { until } | State::Connect { until } | State::OpenSent { until } => Some(until),
            State::OpenConfirm { timers, until, .. } => Some(timers.deadline().map_or(until, |due| due.min(until))),
            State::Established { timers, .. } => timers.deadline(),
        }
    }

    /// Takes one input; what does not concern the state is ignored.
    pub(super) fn step(&mut self, input: Input, now: Moment) -> Vec<Output> {
        match (self.state, input) {
            (State::Stopped, Input::Start) => self.dial(now),
            (_, Input::Stop(notification)) => self.stop(notification),
            (_, Input::Tick) => self.tick(now),
            (State::Connect { .. }, Input::Connected) => self.say_open(now),
            (State::Connect { .. }, Input::ConnectFailed(error)) => self.fail(PeerError::CannotConnect(error), now),
            (State::OpenSent { .. }, Input::Closed) => self.fail(PeerError::ClosedBeforeOpen, now),
            (State::OpenConfirm { .. } | State::Established { .. }, Input::Closed) => self.fail(PeerError::Closed, now),
            (State::Stopped | State::Resting { .. } | State::Connect { .. }, _) => Vec::new(),
            (_, Input::Malformed(notification)) => self.refuse(notification, now),
            (_, Input::SendHoldExpired) => self.refuse(Reason::SendHoldTimerExpired.into(), now),
            (_, Input::Received(message)) => self.receive(message, now),
            (_, Input::Start | Input::Connected | Input::ConnectFailed(_)) => Vec::new(),
        }
    }

    fn peering(&self) -> Peering {
        if self.parties.local_asn == self.parties.peer_asn { Peering::Internal } else { Peering::External }
    }

    fn dial(&mut self, now: Moment) -> Vec<Output> {
        self.state = State::Connect { until: now + CONNECT_LIMIT };
        vec![Output::Dial]
    }

    fn say_open(&mut self, now: Moment) -> Vec<Output> {
        self.state = State::OpenSent { until: now + OPEN_LIMIT };
        vec![Output::SendOpen(Open::ours(self.parties.local_asn, self.parties.router_id, self.hold_time))]
    }

    fn stop(&mut self, notification: Notification) -> Vec<Output> {
        let outputs = match self.state {
            State::Stopped | State::Resting { .. } => Vec::new(),
            State::Connect { .. } => vec![Output::HangUp],
            State::OpenSent { .. } | State::OpenConfirm { .. } | State::Established { .. } => {
                vec![Output::SendNotification(notification), Output::HangUp]
            }
        };
        self.state = State::Stopped;
        outputs
    }

    fn tick(&mut self, now: Moment) -> Vec<Output> {
        match &mut self.state {
            State::Resting { until } if *until <= now => self.dial(now),
            State::Connect { until } if *until <= now => {
                self.fail(PeerError::CannotConnect(ConnectError::TimedOut), now)
            }
            State::OpenSent { until } | State::OpenConfirm { until, .. } if *until <= now => {
                self.refuse(Reason::HoldTimerExpired.into(), now)
            }
            State::OpenConfirm { timers: Timers { running: Some(running) }, .. }
            | State::Established { timers: Timers { running: Some(running) }, .. } => {
                if running.hold_until <= now {
                    self.refuse(Reason::HoldTimerExpired.into(), now)
                } else if running.keepalive_at <= now {
                    running.keepalive_at = now + keepalive_interval(running.limit, &mut self.rng);
                    vec![Output::SendKeepalive]
                } else {
                    Vec::new()
                }
            }
            _ => Vec::new(),
        }
    }

    fn receive(&mut self, message: Message, now: Moment) -> Vec<Output> {
        match (&mut self.state, message) {
            (_, Message::Notification(notification)) => self.fail(PeerError::Received(notification), now),
            (State::OpenSent { .. }, Message::Open(open)) => match self.negotiate(&open) {
                Ok(negotiated) => self.confirm(negotiated, now),
                Err(notification) => self.refuse(notification, now),
            },
            (State::OpenConfirm { negotiated, timers, .. }, Message::Keepalive) => {
                let (negotiated, mut timers) = (*negotiated, *timers);
                timers.heard(now);
                self.state = State::Established { negotiated, timers, since: now };
                vec![Output::Up(negotiated)]
            }
            (State::Established { timers, .. }, Message::Keepalive | Message::Update(_)) => {
                timers.heard(now);
                Vec::new()
            }
            (State::Established { negotiated, timers, .. }, Message::RouteRefresh(refresh)) => {
                timers.heard(now);
                let families = negotiated.context.families;
                let family = refresh.requested().filter(|family| families.contains(*family));
                family.map(Output::Resend).into_iter().collect()
            }
            (_, message) => self.refuse(self.unexpected(&message), now),
        }
    }

    fn confirm(&mut self, negotiated: Negotiated, now: Moment) -> Vec<Output> {
        let running = negotiated.hold_time.limit().map(|limit| Running {
            limit,
            hold_until: now + limit,
            keepalive_at: now + keepalive_interval(limit, &mut self.rng),
        });
        self.state = State::OpenConfirm { negotiated, timers: Timers { running }, until: now + CONFIRM_LIMIT };
        vec![Output::SendKeepalive]
    }

    /// RFC 4271 §6.2, RFC 6286 §2.2, RFC 6793 §4.1.
    fn negotiate(&self, open: &Open) -> Result<Negotiated, Notification> {
        if open.asn() != self.parties.peer_asn.get() {
            return Err(Notification::new(Reason::BadPeerAs, open.asn().to_be_bytes()));
        }
        if self.peering() == Peering::Internal && open.router_id == self.parties.router_id {
            return Err(Notification::new(Reason::BadBgpIdentifier, open.router_id.get().octets()));
        }
        Ok(Negotiated {
            context: Context {
                four_octet_as: open.capabilities.iter().any(|c| matches!(c, Capability::FourOctetAs(_))),
                peering: self.peering(),
                families: Families { v4: open.carries(Family::V4), v6: open.carries(Family::V6) },
            },
            refreshes: open.capabilities.contains(&Capability::RouteRefresh),
            restart: Restart::of(open),
            // Zero means "never" and is the smallest number all the same (RFC 4271 §4.2).
            hold_time: self.hold_time.min(open.hold_time),
        })
    }

    /// RFC 6608 §3: the data field is the type of the message.
    fn unexpected(&self, message: &Message) -> Notification {
        let reason = match self.state {
            State::OpenSent { .. } => Reason::UnexpectedInOpenSent,
            State::OpenConfirm { .. } => Reason::UnexpectedInOpenConfirm,
            _ => Reason::UnexpectedInEstablished,
        };
        Notification::new(reason, [message.kind()])
    }

    fn refuse(&mut self, notification: Notification, now: Moment) -> Vec<Output> {
        let mut outputs = vec![Output::SendNotification(notification.clone())];
        outputs.extend(self.fail(PeerError::Sent(notification), now));
        outputs
    }

    fn fail(&mut self, error: PeerError, now: Moment) -> Vec<Output> {
        if self.established_at().is_some_and(|since| now.since(since) >= STABLE_AFTER) {
            self.failures = 0;
        }
        self.state = State::Resting { until: now + self.rest() };
        self.failures = self.failures.saturating_add(1);
        vec![Output::Failed(error), Output::HangUp]
    }

    fn rest(&mut self) -> Duration {
        let rest = FIRST_REST.saturating_mul(1 << self.failures.min(5)).min(LONGEST_REST);
        rest.mul_f64(0.75 + self.rng.f64() / 2.0)
    }
}

impl Timers {
    fn deadline(&self) -> Option<Moment> {
        self.running.map(|running| running.hold_until.min(running.keepalive_at))
    }

    fn heard(&mut self, now: Moment) {
        if let Some(running) = &mut self.running {
            running.hold_until = now + running.limit;
        }
    }
}

/// A third of the hold time (RFC 4271 §10), shortened by up to a quarter so that the peers of a
/// router do not speak in step.
fn keepalive_interval(hold_time: Duration, rng: &mut Rng) -> Duration {
    (hold_time / 3).mul_f64(0.75 + rng.f64() / 4.0)
}

#[cfg(test)]
mod tests;
