//! The guard: an nftables table of our own that refuses packets to announced addresses and networks
//! which no Service serves, so that they do not go back and forth to the router until their time is up.
//!
//! Start reading at [`rules`] (the table) and [`sets`] (what is in it). [`codec`] turns it into bytes; [`run`] keeps it in the
//! kernel. The program `nft` is not needed; `nft list table inet cairn` shows what is there.
//!
//! Invariants: only the table `inet cairn` is written, in transactions; it stays when the agent
//! ends; what is not known ([`None`]) changes nothing.
#![expect(clippy::disallowed_methods, reason = "shell: waits and talks to the kernel")]

mod codec;
mod rules;
mod sets;

use std::sync::Arc;
use std::time::Duration;

use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::io::Errno;
use tokio::sync::watch;
use tracing::{info, warn};

use super::pace::Pace;
use super::socket::{Events, NetlinkError, Socket};
use super::wire::{self, Answer};
use crate::cluster::clock::now;
use crate::model::{Guarded, Moment};
use codec::{Batch, Request};

/// A flush of a large rule set sends many events; they lead to one repair. Two who fight over the
/// table slow down to one round in some seconds.
const SHORTEST_GAP: Duration = Duration::from_millis(10);
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// Pauses between attempts at a table that the kernel refuses; a module may be loaded later.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// At most one line about restored tables in this time.
const RESTORE_LOG_GAP: Duration = Duration::from_secs(60);

/// Whether the guard stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuardState {
    /// What to guard is not known yet; the table is as the last run left it.
    #[default]
    Waiting,
    /// The table is in place.
    Standing,
    /// This process may not change nftables (it lacks CAP_NET_ADMIN).
    Denied,
    /// The kernel has no nftables, or lacks a part the table needs.
    Unsupported,
    /// The kernel refused for another reason.
    Refused {
        /// The error number, as in errno(3).
        errno: i32,
    },
}

impl GuardState {
    /// Why it does not stand, in words; `None` when it does or is not asked to.
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Waiting | Self::Standing => None,
            Self::Denied => Some("changing nftables takes CAP_NET_ADMIN".to_owned()),
            Self::Unsupported => Some("this kernel lacks nftables or a part of it".to_owned()),
            Self::Refused { errno } => {
                Some(format!("the kernel refused: {}", std::io::Error::from_raw_os_error(*errno)))
            }
        }
    }
}

/// What the guard tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GuardStatus {
    /// Whether it stands.
    pub state: GuardState,
    /// How often others removed or changed the table and it was put back, since the start.
    pub restored_total: u64,
}

/// Keeps the guard table at what `guarded` says, and puts it back when others remove or change it.
///
/// While `guarded` is `None` nothing is touched. Ends when its sender is gone, and leaves the table.
/// Where nftables is not to be had the status says so, and attempts go on with growing pauses.
///
/// # Errors
/// When the conversation with the kernel breaks down; a refusal is a [`GuardState`].
pub async fn run(
    mut guarded: watch::Receiver<Option<Arc<Guarded>>>,
    status: watch::Sender<GuardStatus>,
) -> Result<(), NetlinkError> {
    let Some(mut guard) = open(&mut guarded, &status).await? else { return Ok(()) };
    let mut pace = Pace::new(SHORTEST_GAP, LONGEST_GAP);
    let mut wish: Option<Arc<Guarded>> = None;
    loop {
        let newest = guarded.borrow_and_update().clone();
        wish = newest.or(wish);
        if let Some(wish) = &wish {
            guard.follow(wish, &status).await?;
        }
        match guard.wait(&mut guarded).await? {
            Wake::Ended => return Ok(()),
            Wake::Wish => guard.retry_in = FIRST_RETRY,
            Wake::Retry => guard.retry_in = (guard.retry_in * 2).min(LAST_RETRY),
            Wake::Noticed => {
                tokio::time::sleep(pace.wait(now())).await;
                guard.drain()?;
                pace.worked(now());
            }
        }
    }
}

/// Removes the guard table, if it is there.
///
/// # Errors
/// When the kernel cannot be asked or refuses.
pub async fn remove() -> Result<(), NetlinkError> {
    let mut guard = Guard::new(Socket::open(NETLINK_NETFILTER, &[])?, Socket::open(NETLINK_NETFILTER, &[])?);
    match guard.carry_out(&rules::remove()).await? {
        None => Ok(()),
        Some(errno) => Err(NetlinkError::Refused { source: std::io::Error::from_raw_os_error(errno) }),
    }
}

/// Opens both sockets; while the kernel has no nftables, tries again with growing pauses. `None`
/// when the wish ended meanwhile.
async fn open(
    guarded: &mut watch::Receiver<Option<Arc<Guarded>>>,
    status: &watch::Sender<GuardStatus>,
) -> Result<Option<Guard>, NetlinkError> {
    let mut pause = FIRST_RETRY;
    loop {
        let both = Socket::open(NETLINK_NETFILTER, &[codec::GROUP])
            .and_then(|events| Ok((events, Socket::open(NETLINK_NETFILTER, &[])?)));
        match both {
            Ok((events, requests)) => return Ok(Some(Guard::new(events, requests))),
            Err(NetlinkError::Open { source }) => {
                let state = state_of(source.raw_os_error().unwrap_or_default());
                tell(status, GuardStatus { state, restored_total: 0 });
            }
            Err(error) => return Err(error),
        }
        let ended = async { while guarded.changed().await.is_ok() {} };
        if tokio::time::timeout(pause, ended).await.is_ok() {
            return Ok(None);
        }
        pause = (pause * 2).min(LAST_RETRY);
    }
}

enum Wake {
    Wish,
    Noticed,
    Retry,
    Ended,
}

/// What events say about our table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Notice {
    Nothing,
    /// Events were lost; it may be as we made it, or not.
    Lost,
    /// Somebody else changed it.
    Touched,
}

struct Guard {
    events: Socket,
    requests: Socket,
    /// What the table holds; `None` when it must be made anew.
    inside: Option<Arc<Guarded>>,
    /// The table may no longer be what `inside` says.
    is_stale: bool,
    /// Others changed the table since we last made it.
    is_touched: bool,
    status: GuardStatus,
    retry_in: Duration,
    told: Option<Moment>,
}

impl Guard {
    fn new(events: Socket, requests: Socket) -> Self {
        Self {
            events,
            requests,
            inside: None,
            is_stale: false,
            is_touched: false,
            status: GuardStatus::default(),
            retry_in: FIRST_RETRY,
            told: None,
        }
    }

    /// Makes the table hold what is wished: by its differences, or anew.
    async fn follow(&mut self, wish: &Arc<Guarded>, status: &watch::Sender<GuardStatus>) -> Result<(), NetlinkError> {
        let is_stale = std::mem::take(&mut self.is_stale);
        let is_followed = match self.inside.take().filter(|_| !is_stale) {
            Some(inside) => self.carry_out(&sets::update(&inside, wish)).await?.is_none(),
            None => false,
        };
        // A refused update means that the table is not what we think: make it anew.
        let refusal = if is_followed { None } else { self.carry_out(&rules::create(wish)).await? };
        let state = refusal.map_or(GuardState::Standing, state_of);
        if state == GuardState::Standing {
            self.inside = Some(wish.clone());
            self.count_restored();
        }
        if state != self.status.state {
            match state.refusal() {
                Some(error) => warn!(error, "packets to unserved ports are not refused"),
                None => info!("packets to unserved ports are refused"),
            }
        }
        self.status.state = state;
        tell(status, self.status);
        Ok(())
    }

    /// Waits for a reason to look at the table again. Cancel-safe: see [`Socket::events`].
    async fn wait(&mut self, guarded: &mut watch::Receiver<Option<Arc<Guarded>>>) -> Result<Wake, NetlinkError> {
        let is_refused = self.status.state.refusal().is_some();
        let retry = tokio::time::sleep(self.retry_in);
        tokio::pin!(retry);
        while !self.is_stale {
            tokio::select! {
                changed = guarded.changed() => return Ok(if changed.is_ok() { Wake::Wish } else { Wake::Ended }),
                events = self.events.events() => {
                    let notice = notice(&events?, self.requests.port());
                    self.take(notice);
                }
                () = &mut retry, if is_refused => return Ok(Wake::Retry),
            }
        }
        Ok(Wake::Noticed)
    }

    /// Takes note of all that others did so far.
    fn drain(&mut self) -> Result<(), NetlinkError> {
        let own_port = self.requests.port();
        let mut worst = Notice::Nothing;
        self.events.drain(|events| worst = worst.max(notice(&events, own_port)))?;
        self.take(worst);
        Ok(())
    }

    fn take(&mut self, notice: Notice) {
        self.is_stale |= notice != Notice::Nothing;
        self.is_touched |= notice == Notice::Touched && self.status.state == GuardState::Standing;
    }

    fn count_restored(&mut self) {
        if !std::mem::take(&mut self.is_touched) {
            return;
        }
        self.status.restored_total += 1;
        let now = now();
        if self.told.is_none_or(|told| now.since(told) >= RESTORE_LOG_GAP) {
            info!(restored = self.status.restored_total, "put the guard table back that others changed");
            self.told = Some(now);
        }
    }

    /// Sends requests in batches; the error number of the first that is refused.
    async fn carry_out(&mut self, requests: &[Request]) -> Result<Option<i32>, NetlinkError> {
        let first = self.requests.sequences(codec::sequences(requests));
        for batch in codec::batches(requests, first) {
            self.requests.send(&batch.bytes).await?;
            if let Some(errno) = outcome(&mut self.requests, &batch).await? {
                return Ok(Some(errno));
            }
            // Our own changes are events too: thousands must not push those of others out.
            self.drain()?;
        }
        Ok(None)
    }
}

fn notice(events: &Events<'_>, own_port: u32) -> Notice {
    let Events::Datagram(datagram) = events else { return Notice::Lost };
    let is_touched = wire::messages(datagram).any(|message| {
        message.port != own_port && codec::table_of(message.kind, message.payload).as_deref() == Some(sets::TABLE)
    });
    if is_touched { Notice::Touched } else { Notice::Nothing }
}

async fn outcome(socket: &mut Socket, batch: &Batch) -> Result<Option<i32>, NetlinkError> {
    let mut refusal = None;
    loop {
        let Events::Datagram(datagram) = socket.answers().await? else {
            return Ok(Some(Errno::NOBUFS.raw_os_error()));
        };
        for message in wire::messages(datagram) {
            if !(batch.begin..=batch.last).contains(&message.sequence) {
                continue;
            }
            if let Answer::Refused(errno) = message.answer() {
                refusal = refusal.or(Some(errno));
            }
            if message.sequence == batch.last || (message.sequence == batch.begin && refusal.is_some()) {
                return Ok(refusal);
            }
        }
    }
}

fn state_of(errno: i32) -> GuardState {
    match Errno::from_raw_os_error(errno) {
        Errno::PERM | Errno::ACCESS => GuardState::Denied,
        Errno::NOENT | Errno::OPNOTSUPP | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => GuardState::Unsupported,
        _ => GuardState::Refused { errno },
    }
}

fn tell(status: &watch::Sender<GuardStatus>, new: GuardStatus) {
    status.send_if_modified(|told| std::mem::replace(told, new) != new);
}
