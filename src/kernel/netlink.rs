//! Makes the wanted routes true in the kernel and keeps them so.
//!
//! One task, three things to wait for: a new wish, an event of the kernel, the next attempt at a
//! route it refused. Each leads to the same pass: read what is there (unless nobody but us changed
//! it), plan, carry out, tell. All three waits are cancel-safe: a watch and a timer keep their
//! state, and a datagram stays queued until it is read.
#![expect(clippy::disallowed_methods, reason = "shell: waits and talks to the kernel")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use tokio::sync::watch;
use tracing::{info, warn};

use super::messages::{self, Event, GET_ROUTE, LINK_AND_ADDRESS_GROUPS, ROUTE_GROUPS};
use super::pace::Pace;
use super::plan::{self, KernelRoute, RouteChange, RouteFailure, RouteStatus};
use super::socket::{Events, NetlinkError, Socket};
use super::wire;
use crate::cluster::clock::now;
use crate::model::{Family, FibRoute, Moment, Prefix};

/// Every route that should be there, or `None` while that is not known.
type Wish = Option<Arc<BTreeSet<FibRoute>>>;

/// Repairs of one burst are made together; the longest keeps the promise of 100 ms in a fight.
const SHORTEST_GAP: Duration = Duration::from_millis(10);
const LONGEST_GAP: Duration = Duration::from_millis(80);

/// Pauses between attempts at a route that the kernel refuses, when no event says to try at once.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// At most one line about repairs in this time.
const REPAIR_LOG_GAP: Duration = Duration::from_secs(10);

/// Programs the wanted routes, puts back what others remove or change, and tells where they stand.
///
/// While `wanted` is `None` nothing is touched. Ends when its sender is gone, and leaves the routes:
/// pods keep talking while the agent is away.
///
/// # Errors
/// When the kernel cannot be asked; a refused route is no error but a [`RouteFailure`].
pub async fn run(mut wanted: watch::Receiver<Wish>, status: watch::Sender<RouteStatus>) -> Result<(), NetlinkError> {
    let groups = [&LINK_AND_ADDRESS_GROUPS[..], &ROUTE_GROUPS[..]].concat();
    let mut events = Socket::open(NETLINK_ROUTE, &groups)?;
    let mut keeper = Keeper::new(Socket::open(NETLINK_ROUTE, &[])?);
    let mut wish: Wish = None;
    loop {
        let newest = wanted.borrow_and_update().clone();
        wish = newest.or(wish);
        if let Some(wish) = &wish {
            keeper.pass(wish, &status).await?;
        }
        match wait(&mut wanted, &mut events, &wish, &keeper).await? {
            Wake::Ended => return Ok(()),
            Wake::Wish => keeper.retry_in = FIRST_RETRY,
            Wake::Changed => {
                keeper.retry_in = FIRST_RETRY;
                keeper.present = None;
            }
            Wake::Retry => keeper.retry_in = (keeper.retry_in * 2).min(LAST_RETRY),
        }
        tokio::time::sleep(keeper.pace.wait(now())).await;
        events.drain(|events| {
            if matters(events, &wish, keeper.requests.port()) {
                keeper.present = None;
            }
        })?;
    }
}

enum Wake {
    Wish,
    Changed,
    Retry,
    Ended,
}

async fn wait(
    wanted: &mut watch::Receiver<Wish>,
    events: &mut Socket,
    wish: &Wish,
    keeper: &Keeper,
) -> Result<Wake, NetlinkError> {
    let retry = tokio::time::sleep(keeper.retry_in);
    tokio::pin!(retry);
    loop {
        tokio::select! {
            changed = wanted.changed() => return Ok(if changed.is_ok() { Wake::Wish } else { Wake::Ended }),
            events = events.events() => {
                if matters(events?, wish, keeper.requests.port()) {
                    return Ok(Wake::Changed);
                }
            }
            () = &mut retry, if keeper.has_retries => return Ok(Wake::Retry),
        }
    }
}

/// Whether events mean that the kernel's routes may differ from what we know. IPv4 does not tell
/// which routes went with an interface or address, so each event of those counts.
fn matters(events: Events<'_>, wish: &Wish, own_port: u32) -> bool {
    let Some(wish) = wish else { return false };
    let Events::Datagram(datagram) = events else { return true };
    wire::messages(datagram).filter(|message| message.port != own_port).any(|message| {
        match messages::event(message.kind, message.payload) {
            Event::Route(route) => plan::concerns(wish, &route),
            Event::Network => true,
            Event::Other => false,
        }
    })
}

/// What the kernel holds as far as we know, and what we told about it.
struct Keeper {
    requests: Socket,
    /// `None` when it must be read.
    present: Option<Vec<KernelRoute>>,
    status: RouteStatus,
    pace: Pace,
    retry_in: Duration,
    has_retries: bool,
    journal: Journal,
}

impl Keeper {
    fn new(requests: Socket) -> Self {
        Self {
            requests,
            present: None,
            status: RouteStatus::default(),
            pace: Pace::new(SHORTEST_GAP, LONGEST_GAP),
            retry_in: FIRST_RETRY,
            has_retries: false,
            journal: Journal::default(),
        }
    }

    async fn pass(
        &mut self,
        wish: &BTreeSet<FibRoute>,
        status: &watch::Sender<RouteStatus>,
    ) -> Result<(), NetlinkError> {
        let mut present = match self.present.take() {
            Some(present) => present,
            None => self.read().await?,
        };
        let plan = plan::plan(wish, &present);
        let refusals = self.requests.carry_out(&plan.changes, messages::put_change).await?;
        self.pace.worked(now());

        let mut next =
            RouteStatus { installed: plan.installed, failed: plan.failed, repaired_total: self.status.repaired_total };
        let mut repaired = Vec::new();
        let mut refused = BTreeMap::new();
        for (change, refusal) in plan.changes.iter().zip(refusals) {
            let made = change.makes();
            match refusal.and_then(|errno| failure(change, errno)) {
                None => {
                    plan::accepted(&mut present, change);
                    let decides = made.filter(|route| !next.failed.contains_key(route));
                    repaired.extend(decides.filter(|route| self.status.installed.contains(route)));
                    next.installed.extend(decides);
                }
                Some(failure) => {
                    refused.insert(change.destination(), failure);
                    next.failed.extend(made.map(|route| (route, failure)));
                }
            }
        }
        next.repaired_total += repaired.len() as u64;
        // After a refusal what we know may be wrong; after success it is what we made it.
        self.present = refused.is_empty().then_some(present);
        self.has_retries = !refused.is_empty();
        self.journal.repaired(&repaired, now());
        refused.extend(next.failed.iter().map(|(route, failure)| (route.destination, *failure)));
        self.journal.failed(&refused);
        if self.status != next {
            self.status = next;
            status.send_replace(self.status.clone());
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<Vec<KernelRoute>, NetlinkError> {
        let mut present = Vec::new();
        for family in [Family::V4, Family::V6] {
            let request = messages::routes_request(family);
            // An old kernel, or one without this family, lists the other's or none.
            let of_family = |payload: &[u8]| messages::route(payload).filter(|r| r.destination.family() == family);
            match self.requests.list("routes", GET_ROUTE, &request, of_family).await {
                Ok(mut routes) => present.append(&mut routes),
                Err(NetlinkError::Listing { source, .. }) if is_absence(&source) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(present)
    }
}

/// The kernel makes a table with its first route, and may lack a family.
fn is_absence(refusal: &std::io::Error) -> bool {
    let absences = [Errno::NOENT, Errno::AFNOSUPPORT, Errno::OPNOTSUPP];
    absences.iter().any(|errno| refusal.raw_os_error() == Some(errno.raw_os_error()))
}

/// What a refusal means; `None` when what was asked for is so already.
fn failure(change: &RouteChange, errno: i32) -> Option<RouteFailure> {
    let is_delete = change.makes().is_none();
    match Errno::from_raw_os_error(errno) {
        Errno::SRCH | Errno::NOENT if is_delete => None,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN => Some(RouteFailure::Unreachable),
        Errno::PERM | Errno::ACCESS => Some(RouteFailure::Denied),
        _ => Some(RouteFailure::Refused { errno }),
    }
}

/// Says each thing once: the first failure of a kind, its end, and repairs at most every 10 s.
#[derive(Debug, Default)]
struct Journal {
    warned: BTreeSet<&'static str>,
    untold_repairs: usize,
    told_repairs: Option<Moment>,
}

impl Journal {
    fn failed(&mut self, failures: &BTreeMap<Prefix, RouteFailure>) {
        let mut kinds = BTreeSet::new();
        for (prefix, failure) in failures {
            let kind = failure.label();
            if kinds.insert(kind) && !self.warned.contains(kind) {
                let routes = failures.values().filter(|other| other.label() == kind).count();
                warn!(%prefix, error = %failure, routes, "route not in place");
            }
        }
        for kind in self.warned.difference(&kinds) {
            info!(reason = kind, "routes no longer fail for this reason");
        }
        self.warned = kinds;
    }

    fn repaired(&mut self, repaired: &[FibRoute], now: Moment) {
        self.untold_repairs += repaired.len();
        let is_time = self.told_repairs.is_none_or(|told| now.since(told) >= REPAIR_LOG_GAP);
        if let Some(route) = repaired.first()
            && is_time
        {
            info!(prefix = %route.destination, routes = self.untold_repairs, "put routes back that others removed");
            self.untold_repairs = 0;
            self.told_repairs = Some(now);
        }
    }
}
