//! Makes the wanted routes true in the kernel and keeps them so.
//!
//! One task, three things to wait for: a new wish, an event of the kernel, the next attempt at a
//! route it refused. Each leads to the same pass over the destinations it is about: plan, carry out,
//! tell. Everything is read anew only where events leave open what the kernel has. All three waits
//! are cancel-safe: a watch and a timer keep their state, and a datagram stays queued until it is read.
#![expect(clippy::disallowed_methods, reason = "shell: waits and talks to the kernel")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use tokio::sync::watch;

use super::change::RouteChange;
use super::journal::Journal;
use super::known::{Effect, Known};
use super::messages::{self, GET_LINK, LINK_AND_ADDRESS_GROUPS, ROUTE_GROUPS};
use super::pace::Pace;
use super::place::{MAIN_TABLE, Place};
use super::plan::{self, RoutePlan};
use super::route::KernelRoute;
use super::route_codec::{self, GET_ROUTE, Listing};
use super::socket::{Events, NetlinkError, Socket};
use super::standing::{Carrier, RouteFailure, RouteStatus};
use super::wire;
use crate::cluster::clock::now;
use crate::model::{Family, FibRoute, FibWish, Prefix};

/// Every route that should be there, or `None` while that is not known.
type Wish = Option<Arc<FibWish>>;

/// Repairs of one burst are made together; the longest keeps the promise of 100 ms in a fight, on a busy
/// host too.
const SHORTEST_GAP: Duration = Duration::from_millis(10);
const LONGEST_GAP: Duration = Duration::from_millis(40);

/// Pauses between attempts at a route that the kernel refuses, when no event says to try at once.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// After this many changes events are read, so that those of our own do not fill the socket.
const BETWEEN_EVENTS: usize = 1024;

/// Programs the wanted routes, puts back what others remove or change, and tells where they stand.
///
/// While `wanted` is `None` nothing is touched. Ends when its sender is gone, and leaves the routes:
/// pods keep talking while the agent is away.
///
/// # Errors
/// When the kernel cannot be asked; a refused route is no error but a [`RouteFailure`].
pub async fn run(
    place: Place,
    mut wanted: watch::Receiver<Wish>,
    status: watch::Sender<RouteStatus>,
) -> Result<(), NetlinkError> {
    let mut keeper = Keeper::open(place, status)?;
    loop {
        let newest = wanted.borrow_and_update().clone();
        if let Some(newest) = newest {
            keeper.wish(newest);
        }
        keeper.pass().await?;
        match keeper.wait(&mut wanted).await? {
            Wake::Ended => return Ok(()),
            Wake::Wish | Wake::Changed => keeper.retry_in = FIRST_RETRY,
            Wake::Retry => {
                keeper.retry_in = (keeper.retry_in * 2).min(LAST_RETRY);
                keeper.take(Effect::TryAgain);
            }
        }
        tokio::time::sleep(keeper.pace.wait(now())).await;
        keeper.catch_up()?;
    }
}

/// Removes every route of ours from every table, and nothing else. Returns how many there were.
///
/// # Errors
/// When the kernel cannot be asked, or refuses to remove one.
pub async fn remove_all() -> Result<usize, NetlinkError> {
    let mut requests = Socket::open(NETLINK_ROUTE, &[])?;
    let mut ours = Vec::new();
    for family in [Family::V4, Family::V6] {
        let is_ours = |route: &KernelRoute| route.destination.family() == family && route.is_ours();
        ours.append(&mut list(&mut requests, family, Listing::Ours, is_ours).await?);
    }
    let changes: Vec<_> = ours.into_iter().map(RouteChange::Delete).collect();
    let put = |out: &mut Vec<u8>, change: &RouteChange, sequence| {
        route_codec::put_change(out, change, Place::default(), sequence);
    };
    let refusals = requests.carry_out(&changes, put).await?;
    for (change, refusal) in changes.iter().zip(refusals) {
        match refusal.map(|errno| (errno, meaning(change, errno, OVERTAKEN))) {
            None | Some((_, Refusal::IsSo)) => {}
            Some((errno, _)) => {
                return Err(NetlinkError::Refused { source: std::io::Error::from_raw_os_error(errno) });
            }
        }
    }
    Ok(changes.len())
}

enum Wake {
    Wish,
    Changed,
    Retry,
    Ended,
}

/// What the kernel holds as far as we know, and what is to be done about it.
struct Keeper {
    place: Place,
    events: Socket,
    requests: Socket,
    wish: Wish,
    /// `None` when it must be read.
    known: Option<Known>,
    /// Destinations to look at.
    dirty: BTreeSet<Prefix>,
    /// Destinations whose change the kernel refused.
    refused: BTreeSet<Prefix>,
    /// How many passes in a row someone overtook.
    overtaken: u32,
    status: RouteStatus,
    told: watch::Sender<RouteStatus>,
    pace: Pace,
    retry_in: Duration,
    journal: Journal,
}

impl Keeper {
    fn open(place: Place, told: watch::Sender<RouteStatus>) -> Result<Self, NetlinkError> {
        let groups = [&LINK_AND_ADDRESS_GROUPS[..], &ROUTE_GROUPS[..]].concat();
        Ok(Self {
            place,
            events: Socket::open(NETLINK_ROUTE, &groups)?,
            requests: Socket::open(NETLINK_ROUTE, &[])?,
            wish: None,
            known: None,
            dirty: BTreeSet::new(),
            refused: BTreeSet::new(),
            overtaken: 0,
            status: RouteStatus::default(),
            told,
            pace: Pace::new(SHORTEST_GAP, LONGEST_GAP),
            retry_in: FIRST_RETRY,
            journal: Journal::default(),
        })
    }

    fn wish(&mut self, newest: Arc<FibWish>) {
        if let Some(old) = &self.wish {
            self.dirty.extend(newest.changed_since(old));
        }
        self.wish = Some(newest);
    }

    fn has_work(&self) -> bool {
        self.wish.is_some() && (self.known.is_none() || !self.dirty.is_empty())
    }

    /// Waits for a reason to work again.
    async fn wait(&mut self, wanted: &mut watch::Receiver<Wish>) -> Result<Wake, NetlinkError> {
        if self.has_work() {
            return Ok(Wake::Changed);
        }
        let retry = tokio::time::sleep(self.retry_in);
        tokio::pin!(retry);
        loop {
            tokio::select! {
                changed = wanted.changed() => return Ok(if changed.is_ok() { Wake::Wish } else { Wake::Ended }),
                events = self.events.events() => {
                    let effects = effects(events?, &mut self.known, &self.wish, self.requests.port());
                    effects.into_iter().for_each(|effect| self.take(effect));
                    if self.has_work() {
                        return Ok(Wake::Changed);
                    }
                }
                () = &mut retry, if !self.refused.is_empty() => return Ok(Wake::Retry),
            }
        }
    }

    /// Takes in what others did meanwhile.
    fn catch_up(&mut self) -> Result<(), NetlinkError> {
        let mut all = Vec::new();
        self.events.drain(|events| all.extend(effects(events, &mut self.known, &self.wish, self.requests.port())))?;
        all.into_iter().for_each(|effect| self.take(effect));
        Ok(())
    }

    fn take(&mut self, effect: Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Settle(destination) => drop(self.dirty.insert(destination)),
            Effect::SettleWithin(prefix) => {
                self.dirty.extend(self.wish.iter().flat_map(|wish| wish.asked_in(prefix)));
            }
            Effect::TryAgain => self.dirty.extend(std::mem::take(&mut self.refused)),
            Effect::ReadAgain => self.known = None,
        }
    }

    /// Settles all destinations that are dirty, and says where the wanted routes stand then.
    async fn pass(&mut self) -> Result<(), NetlinkError> {
        let Some(wish) = self.wish.clone() else { return Ok(()) };
        let known = match self.known.take() {
            Some(known) => known,
            None => {
                let known = self.read().await?;
                self.dirty = plan::all_destinations(&wish, known.present());
                // What failed before and is neither wanted nor there is settled as well.
                self.dirty.extend(self.status.failed.keys().map(|route| route.destination));
                self.refused.clear();
                known
            }
        };
        let dirty = std::mem::take(&mut self.dirty);
        self.refused.retain(|destination| !dirty.contains(destination));
        let plan = plan::plan(&wish, known.present(), dirty.iter().copied(), known.around());
        self.known = Some(known);
        let RoutePlan { changes, failed, carried } = plan;
        let outcome = Outcome { failed, carried, ..Outcome::default() };
        let outcome = self.carry_out(&changes, outcome).await?;
        self.pace.worked(now());
        if outcome.is_overtaken {
            self.known = None;
            self.overtaken += 1;
        } else {
            self.overtaken = 0;
        }
        self.tell(wish, &dirty, outcome);
        Ok(())
    }

    async fn carry_out(&mut self, changes: &[RouteChange], mut outcome: Outcome) -> Result<Outcome, NetlinkError> {
        for some in changes.chunks(BETWEEN_EVENTS) {
            let place = self.place;
            let put = |out: &mut Vec<u8>, change: &RouteChange, sequence| {
                route_codec::put_change(out, change, place, sequence);
            };
            let refusals = self.requests.carry_out(some, put).await?;
            for (change, refusal) in some.iter().zip(refusals) {
                match refusal.map(|errno| meaning(change, errno, self.overtaken)) {
                    None | Some(Refusal::IsSo) => {
                        if let Some(known) = &mut self.known {
                            known.accepted(change);
                        }
                        self.take(Effect::SettleWithin(change.destination()));
                        let decides = change.makes().filter(|route| !outcome.failed.contains_key(route));
                        outcome.repaired.extend(decides.filter(|route| self.status.is_installed(route)).cloned());
                    }
                    Some(Refusal::Overtaken) => {
                        outcome.is_overtaken = true;
                        outcome.open.extend(change.makes().cloned());
                    }
                    Some(Refusal::Failed(failure)) => {
                        self.refused.insert(change.destination());
                        outcome.refused.insert(change.destination(), failure.clone());
                        outcome.failed.extend(change.makes().map(|route| (route.clone(), failure)));
                    }
                }
            }
            self.catch_up()?;
        }
        Ok(outcome)
    }

    fn tell(&mut self, wish: Arc<FibWish>, dirty: &BTreeSet<Prefix>, outcome: Outcome) {
        let Outcome { mut failed, carried, mut refused, repaired, open, is_overtaken: _ } = outcome;
        let is_open = |route| (route, RouteFailure::Refused { errno: Errno::EXIST.raw_os_error() });
        failed.extend(open.into_iter().map(is_open));
        let is_stale = |route: &FibRoute| dirty.contains(&route.destination);
        if !failed.is_empty() || self.status.failed.keys().any(is_stale) {
            let all = Arc::make_mut(&mut self.status.failed);
            all.retain(|route, _| !is_stale(route));
            all.extend(failed);
        }
        let was_carried = |destination: &Prefix| self.status.carried.contains_key(destination);
        if !carried.is_empty() || dirty.iter().any(was_carried) {
            let all = Arc::make_mut(&mut self.status.carried);
            dirty.iter().for_each(|destination| drop(all.remove(destination)));
            all.extend(carried);
        }
        self.status.wish = wish;
        self.status.repaired_total += repaired.len() as u64;
        self.journal.repaired(&repaired, now());
        refused.extend(self.status.failed.iter().map(|(route, failure)| (route.destination, failure.clone())));
        self.journal.failed(&refused);
        self.told.send_if_modified(|told| {
            let is_new = *told != self.status;
            if is_new {
                told.clone_from(&self.status);
            }
            is_new
        });
    }

    async fn read(&mut self) -> Result<Known, NetlinkError> {
        let links = self.requests.list("links", GET_LINK, &messages::links_request(), messages::link).await?;
        let mut routes = Vec::new();
        for family in [Family::V4, Family::V6] {
            // A kernel that knows no filters, or not this family, lists what was not asked for.
            let is_ours = |route: &KernelRoute| route.destination.family() == family && route.is_ours();
            routes.append(&mut list(&mut self.requests, family, Listing::Ours, is_ours).await?);
            for table in BTreeSet::from([self.place.table(), MAIN_TABLE]) {
                let is_others = |route: &KernelRoute| {
                    route.destination.family() == family && !route.is_ours() && route.table == table
                };
                routes.append(&mut list(&mut self.requests, family, Listing::Table(table), is_others).await?);
            }
        }
        Ok(Known::new(routes, links, self.place))
    }
}

async fn list(
    requests: &mut Socket,
    family: Family,
    listing: Listing,
    is_asked_for: impl Fn(&KernelRoute) -> bool,
) -> Result<Vec<KernelRoute>, NetlinkError> {
    let request = route_codec::listing_request(family, listing);
    let read = |payload: &[u8]| route_codec::route(payload).filter(&is_asked_for);
    match requests.list("routes", GET_ROUTE, &request, read).await {
        Err(NetlinkError::Listing { source, .. }) if is_absence(&source) => Ok(Vec::new()),
        other => other,
    }
}

/// What became of the changes of one pass.
#[derive(Debug, Default)]
struct Outcome {
    failed: BTreeMap<FibRoute, RouteFailure>,
    carried: BTreeMap<Prefix, Carrier>,
    refused: BTreeMap<Prefix, RouteFailure>,
    repaired: Vec<FibRoute>,
    /// Whether someone was faster, so that what is known is no longer so.
    is_overtaken: bool,
    /// Where such routes stand the next pass will tell.
    open: Vec<FibRoute>,
}

/// What events mean for what is wanted. Those of our own doing are known already.
fn effects(events: Events<'_>, known: &mut Option<Known>, wish: &Wish, own_port: u32) -> Vec<Effect> {
    let Events::Datagram(datagram) = events else { return vec![Effect::ReadAgain] };
    let (Some(known), Some(wish)) = (known, wish) else { return Vec::new() };
    wire::messages(datagram)
        .filter(|message| message.port != own_port)
        .map(|message| known.see(messages::event(&message), wish))
        .filter(|effect| *effect != Effect::Nothing)
        .collect()
}

/// The kernel makes a table with its first route, and may lack a family.
fn is_absence(refusal: &std::io::Error) -> bool {
    let absences = [Errno::NOENT, Errno::AFNOSUPPORT, Errno::OPNOTSUPP];
    absences.iter().any(|errno| refusal.raw_os_error() == Some(errno.raw_os_error()))
}

/// What a refusal means.
enum Refusal {
    /// What was asked for is so already.
    IsSo,
    /// Somebody has taken the key or the route meanwhile.
    Overtaken,
    Failed(RouteFailure),
}

/// After so many passes in a row that someone overtook, a refusal is one: else we would fight for ever.
const OVERTAKEN: u32 = 3;

fn meaning(change: &RouteChange, errno: i32, overtaken: u32) -> Refusal {
    let is_delete = change.makes().is_none();
    match Errno::from_raw_os_error(errno) {
        Errno::SRCH | Errno::NOENT if is_delete => Refusal::IsSo,
        Errno::EXIST if overtaken < OVERTAKEN => Refusal::Overtaken,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::NODEV => {
            Refusal::Failed(RouteFailure::Unreachable)
        }
        Errno::PERM | Errno::ACCESS => Refusal::Failed(RouteFailure::Denied),
        _ => Refusal::Failed(RouteFailure::Refused { errno }),
    }
}
