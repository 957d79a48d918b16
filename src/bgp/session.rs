#![expect(clippy::disallowed_methods, reason = "shell: drives one session's machine by clock, socket and chance")]
//! Drives one session: the machine's outputs become I/O, I/O and time become its inputs.
//!
//! One task, no locks. It waits for the first of: a new wish, a connection that is made, a
//! connection with something to read or room to write, the next deadline. Each of these waits is
//! cancel-safe; octets move only between them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::yield_now;
use tracing::{debug, info, warn};

use crate::cluster::clock::{now, until};
use crate::model::learned::LearnedRoutes;
use crate::model::{Adverts, Moment, PeerName};

use super::codec::{self, Message, Notification, Reason};
use super::connection::{self, Connection};
use super::desired::{Desired, PeerConfig};
use super::exchange::{Exchange, SEND_HOLD};
use super::fsm::{Fsm, Input, Negotiated, Output};
use super::link::{Link, News};
use super::retained::Retained;
use super::rib::{AdjRibOut, session_next_hops};
use super::rib_in::AdjRibIn;
use super::status::{ConnectError, PeerError, PeerStatus, SpeakerStatus};

/// What a router's log says when this program ends (RFC 9003).
const FAREWELL: &str = "the Cairn agent on this node is stopping";

/// How a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// With an attempt at once.
    AtOnce,
    /// With a long rest: its task crashed before.
    AfterCrash,
}

/// Runs the session with one peer until it is no longer wished, or nothing is wished any more.
pub(super) async fn run(
    name: PeerName,
    start: Start,
    mut desired: watch::Receiver<Arc<Desired>>,
    status: watch::Sender<SpeakerStatus>,
) {
    let wish = desired.borrow_and_update().clone();
    let Some(config) = wish.peers.get(&name).cloned() else {
        return;
    };
    let mut session = Session::new(config, wish, status);
    session.start(start).await;
    loop {
        session.write().await;
        session.publish();
        let event = session.wait(&mut desired).await;
        // Time is the first input: a machine that slept through its hold time has no session.
        session.tick().await;
        match event {
            Event::Stopping => {
                return session.stop(Notification::shutdown(Reason::AdministrativeShutdown, FAREWELL)).await;
            }
            Event::Wish => {
                let wish = desired.borrow_and_update().clone();
                let Some(config) = wish.peers.get(&name).cloned() else {
                    return session.stop(Reason::PeerDeconfigured.into()).await;
                };
                session.adopt(config, wish).await;
            }
            Event::Link(News::Dialled(result)) => session.dialled(result).await,
            Event::Link(News::Ready) => {
                session.read().await;
                // Who always has more to say is always ready: without this its session would keep
                // a worker thread for itself, and two of them would stop the whole agent.
                yield_now().await;
            }
            Event::Due => {}
        }
    }
}

/// What ended a wait.
enum Event {
    /// The wish's sender is gone.
    Stopping,
    /// There is a new wish.
    Wish,
    /// Something came of the link.
    Link(News),
    /// A deadline came.
    Due,
}

struct Session {
    config: PeerConfig,
    wish: Arc<Desired>,
    fsm: Fsm,
    link: Link,
    exchange: Option<Exchange>,
    /// What the peer told that restarts.
    retained: Option<Retained>,
    status: watch::Sender<SpeakerStatus>,
    last_error: Option<PeerError>,
    /// The troubles since the session was last Established that the log has heard of.
    logged: Vec<PeerError>,
}

impl Session {
    fn new(config: PeerConfig, wish: Arc<Desired>, status: watch::Sender<SpeakerStatus>) -> Self {
        let fsm = Fsm::new(&config, wish.router_id, fastrand::u64(..));
        Self {
            config,
            wish,
            fsm,
            link: Link::Down,
            exchange: None,
            retained: None,
            status,
            last_error: None,
            logged: Vec::new(),
        }
    }

    async fn start(&mut self, start: Start) {
        match start {
            Start::AtOnce => self.step(Input::Start).await,
            Start::AfterCrash => {
                self.fsm.start_resting(now());
                self.last_error = Some(PeerError::Crashed);
            }
        }
    }

    async fn wait(&mut self, desired: &mut watch::Receiver<Arc<Desired>>) -> Event {
        let deadline = self.fsm.deadline().into_iter().chain(self.send_deadline()).chain(self.stale_deadline()).min();
        tokio::select! {
            changed = desired.changed() => if changed.is_ok() { Event::Wish } else { Event::Stopping },
            news = self.link.news() => Event::Link(news),
            () = until(deadline) => Event::Due,
        }
    }

    fn send_deadline(&mut self) -> Option<Moment> {
        let send_hold = self.exchange.as_ref().map_or(SEND_HOLD, |exchange| exchange.send_hold);
        self.link.connection()?.blocked_since().map(|since| since + send_hold)
    }

    /// When routes of a peer that restarts go.
    fn stale_deadline(&self) -> Option<Moment> {
        match &self.exchange {
            Some(exchange) => exchange.stale_deadline(),
            None => self.retained.as_ref().map(Retained::until),
        }
    }

    async fn tick(&mut self) {
        if self.stale_deadline().is_some_and(|deadline| deadline <= now()) {
            info!(peer = %self.config.name, "routes of before its restart are not told again: they go");
            self.retained = None;
            if let Some(exchange) = &mut self.exchange {
                exchange.rib_in.forget_stale();
            }
        }
        self.step(Input::Tick).await;
        if self.send_deadline().is_some_and(|deadline| deadline <= now()) {
            self.step(Input::SendHoldExpired).await;
        }
    }

    /// Takes a new wish. What the OPENs settled cannot change within a session; all else can.
    async fn adopt(&mut self, config: PeerConfig, wish: Arc<Desired>) {
        let is_same_session = {
            let PeerConfig { name: _, local_asn, peer_asn, address, port, hold_time: _, import: _ } = &self.config;
            (*local_asn, *peer_asn, *address, *port) == (config.local_asn, config.peer_asn, config.address, config.port)
                && self.wish.router_id == wish.router_id
        };
        if is_same_session {
            self.fsm.propose(config.hold_time);
            (self.config, self.wish) = (config, wish);
            if let Some(exchange) = &mut self.exchange {
                exchange.rib_in.adopt(&self.config.import);
            }
            if let Some(retained) = &mut self.retained {
                retained.adopt(&self.config.import);
            }
            self.want();
        } else {
            self.stop(Reason::OtherConfigurationChange.into()).await;
            *self = Self::new(config, wish, self.status.clone());
            self.step(Input::Start).await;
        }
    }

    async fn dialled(&mut self, result: io::Result<Connection>) {
        // The attempt is over; the machine may have given it up just before.
        self.link = Link::Down;
        match result {
            Ok(connection) if self.fsm.state() == super::SessionState::Connect => {
                self.link = Link::Up(connection);
                self.step(Input::Connected).await;
            }
            Ok(_) => {}
            Err(error) => self.step(Input::ConnectFailed(ConnectError::from(&error))).await,
        }
    }

    /// Reads what is there, and takes the messages in it before the end of the connection.
    async fn read(&mut self) {
        let Some(is_open) = self.link.connection().map(Connection::read) else { return };
        while let Some(connection) = self.link.connection() {
            match connection.message(&self.fsm.context()) {
                Ok(Some(message)) => {
                    self.note_faults(&message);
                    if let Some(exchange) = &mut self.exchange {
                        exchange.learn(&message);
                    }
                    self.step(Input::Received(message)).await;
                }
                Ok(None) => break,
                Err(notification) => self.step(Input::Malformed(notification)).await,
            }
        }
        if !matches!(is_open, Ok(true)) {
            self.step(Input::Closed).await;
        }
    }

    /// Writes what there is to say, as far as the peer takes it.
    async fn write(&mut self) {
        self.ask();
        let Some(connection) = self.link.connection() else { return };
        let written = loop {
            let mut has_more = true;
            while let Some(exchange) = self.exchange.as_mut().filter(|_| has_more && connection.has_room()) {
                has_more = exchange.rib.next_message(connection.outbound());
            }
            let written = connection.flush();
            if written.is_err() || !connection.has_room() || !has_more || self.exchange.is_none() {
                break written;
            }
        };
        if written.is_err() {
            // The peer may have said why before it closed.
            self.read().await;
            self.step(Input::Closed).await;
        }
    }

    async fn stop(&mut self, notification: Notification) {
        if self.exchange.is_some() {
            info!(peer = %self.config.name, reason = %notification, "BGP session ended");
        }
        self.retained = None;
        self.step(Input::Stop(notification)).await;
    }

    async fn step(&mut self, input: Input) {
        for output in self.fsm.step(input, now()) {
            self.act(output).await;
        }
    }

    async fn act(&mut self, output: Output) {
        match output {
            Output::Dial => {
                let address = SocketAddr::new(self.config.address, self.config.port);
                self.link = Link::Dialling(Box::pin(connection::dial(address)));
            }
            Output::SendOpen(open) => self.say(|out| codec::encode_open(&open, out)),
            Output::SendKeepalive => self.say(codec::encode_keepalive),
            Output::SendNotification(notification) => self.say(|out| codec::encode_notification(&notification, out)),
            Output::Up(negotiated) => self.up(negotiated),
            Output::Resend(family) => {
                if let Some(exchange) = &mut self.exchange {
                    exchange.rib.resend(family);
                }
            }
            Output::Failed(error) => self.lost(error),
            Output::HangUp => {
                self.exchange = None;
                self.publish();
                if let Link::Up(connection) = std::mem::take(&mut self.link) {
                    connection.hang_up().await;
                }
            }
        }
    }

    /// The attempt, or the session, ended by itself.
    fn lost(&mut self, error: PeerError) {
        // RFC 4724 §4.2: without a word, which is how a restart looks.
        let is_restart = error == PeerError::Closed;
        self.failed(error);
        // An attempt that failed leaves what there is: until the time that the router named has passed.
        let Some(exchange) = self.exchange.take() else { return };
        self.retained = if is_restart { exchange.retain(now()) } else { None };
        if let Some(retained) = &self.retained {
            let routes = retained.routes().len();
            info!(peer = %self.config.name, routes, "routes of a router that may be restarting stay for now");
        }
    }

    fn say(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        if let Some(connection) = self.link.connection() {
            encode(connection.outbound());
        }
    }

    fn up(&mut self, negotiated: Negotiated) {
        // Without a connection there is nothing to read, and what is read ends the session.
        let local_address = self.link.connection().and_then(|connection| connection.local_address().ok());
        let local_address = local_address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let retained = self.retained.take();
        self.exchange = Some(Exchange::new(&self.config, negotiated, local_address, retained, now()));
        self.want();
        self.last_error = None;
        self.logged.clear();
        info!(peer = %self.config.name, hold_time = %negotiated.hold_time, "BGP session established");
    }

    /// Tells the RIB what is wished now.
    fn want(&mut self) {
        let local_address = self.link.connection().and_then(|connection| connection.local_address().ok());
        let (Some(exchange), Some(local_address)) = (&mut self.exchange, local_address) else { return };
        let next_hops = session_next_hops(local_address, self.wish.next_hops);
        let nothing = Adverts::default();
        let adverts = self.wish.adverts.get(&self.config.name).map_or(&nothing, |adverts| &**adverts);
        exchange.rib.want(adverts, next_hops, self.wish.complete);
    }

    /// Logs a lost session, and each trouble that keeps it from coming up once.
    fn failed(&mut self, error: PeerError) {
        let peer = &self.config.name;
        if self.exchange.is_some() {
            warn!(%peer, %error, "BGP session lost");
        } else if self.logged.iter().any(|logged| logged.is_like(&error)) {
            debug!(%peer, %error, "BGP session still cannot be established");
        } else {
            warn!(%peer, %error, "BGP session cannot be established; trying again");
        }
        self.logged.retain(|logged| !logged.is_like(&error));
        self.logged.push(error.clone());
        // A router that refused our OPEN often hangs up on the next attempts; the reason it gave stays.
        let is_echo =
            error == PeerError::ClosedBeforeOpen && self.last_error.as_ref().is_some_and(PeerError::is_refusal);
        if !is_echo {
            self.last_error = Some(error);
        }
    }

    /// Asks the peer to tell again what was not kept the last time.
    fn ask(&mut self) {
        let (Some(exchange), Some(connection)) = (&mut self.exchange, self.link.connection()) else { return };
        while let Some(refresh) = exchange.next_question() {
            codec::encode_refresh(refresh, connection.outbound());
        }
    }

    fn note_faults(&self, message: &Message) {
        let Message::Update(update) = message else { return };
        for fault in &update.faults {
            debug!(peer = %self.config.name, error = %fault.reason, attribute = ?fault.attribute, outcome = ?fault.outcome,
                "an UPDATE had a fault");
        }
    }

    fn publish(&self) {
        let rib = self.exchange.as_ref().map(|exchange| &exchange.rib);
        let rib_in = self.exchange.as_ref().map(|exchange| &exchange.rib_in);
        let retained = self.retained.as_ref().map(Retained::routes);
        let current = PeerStatus {
            state: self.fsm.state(),
            established_at: self.fsm.established_at(),
            advertised: rib.map_or(0, AdjRibOut::advertised),
            withheld: rib.map(|rib| rib.withheld().clone()).unwrap_or_default(),
            learned: rib_in.map(AdjRibIn::routes).or(retained).cloned().unwrap_or_default(),
            stale: rib_in.map(AdjRibIn::stale).or(retained.map(LearnedRoutes::len)).unwrap_or_default(),
            has_told_all: rib_in.is_some_and(AdjRibIn::is_told),
            over_limit: rib_in.map_or(0, AdjRibIn::over_limit),
            last_error: self.last_error.clone(),
        };
        self.status.send_if_modified(|status| {
            let is_news = status.peers.get(&self.config.name) != Some(&current);
            if is_news {
                status.peers.insert(self.config.name.clone(), current);
            }
            is_news
        });
    }
}
