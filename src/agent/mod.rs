#![expect(clippy::disallowed_methods, reason = "shell: owns the tasks of the agent's rooms")]
//! The agent: one on every node, in charge of its kernel routes and its BGP sessions.
//!
//! [`snapshot`] is what it knows, [`desired`] what follows from that (pure), and [`run`] hands the
//! parts of it to the rooms that make them true:
//!
//! ```text
//! stores ─┐                    ┌─► kernel::netlink  routes to other nodes' pods
//! local  ─┼─► snapshot ─► desired ─► kernel::guard  packets no Service serves are refused
//! clock  ─┘                    └─► bgp              pod CIDRs and Service addresses announced
//!                                     │ outcomes
//!                   NodeReport ◄── report ◄┘
//! ```
//!
//! It never takes silence for absence: before everything is known nothing is removed or withdrawn,
//! and while the API server is away the last state stays in force. Kernel routes and the guard stay
//! when it ends, so pods keep talking during an upgrade; sessions are closed. The next run holds what routers had told
//! ([`stale`]) until they have told it again.

pub mod announce;
mod answers;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod change_by_change;
pub mod default_addresses;
pub mod desired;
pub mod entries;
mod fib;
pub mod forecast;
pub mod imports;
mod inquiry;
pub mod last_resort;
mod metrics;
mod mirror;
pub mod next_hop;
pub mod node_addresses;
pub mod nodes;
pub mod outcome;
pub mod pacer;
pub mod peers;
mod proxy_health;
mod publisher;
pub mod report;
mod rooms;
pub mod routes;
mod saved;
pub mod snapshot;
pub mod stale;
pub mod state;
mod stores;
mod testimony;
pub mod unassigned;
pub mod witness;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::agent::default_addresses::{Tables, default_addresses};
use crate::agent::desired::{Desired, Memory};
use crate::agent::inquiry::Inquiry;
use crate::agent::metrics::Metrics;
use crate::agent::outcome::Outcome;
use crate::agent::proxy_health::ProxyHealth;
use crate::agent::publisher::Publication;
use crate::agent::rooms::Rooms;
use crate::agent::saved::{Keeping, Origin};
use crate::agent::snapshot::{Here, OwnCidr, Snapshot};
use crate::agent::stale::{Stale, Telling};
use crate::agent::state::State;
use crate::agent::stores::{InForce, Stores};
use crate::api::PeerException;
use crate::cluster::clock;
use crate::kernel;
pub use crate::kernel::{Place, Sysctls, place};
use crate::model::views::NodeView;
use crate::model::{Moment, NodeName, PeerName, Rank, RouterId, Scope};
use crate::telemetry::build;
use crate::telemetry::http::{self, Diagnostics, StatePage};

/// Sessions are closed and the process ends within this time.
const SHUTDOWN: Duration = Duration::from_millis(1500);
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The kernel's IPv4 and IPv6 routes, for people.
const ROUTE_TABLES: [&str; 2] = ["/proc/net/route", "/proc/net/ipv6_route"];
/// How soon a node that waits for addresses looks for its default route again.
const NEXT_LOOK: Duration = Duration::from_secs(1);

/// When the API server has not told everything after this long, the state of the last run is taken up.
/// Where it answers it has told everything by then, and nothing old is ever acted on.
const PATIENCE: Duration = Duration::from_secs(2);

/// How an agent is started.
#[derive(Clone)]
pub struct Options {
    /// The way to the API server.
    pub client: Client,
    /// The node it runs on.
    pub node: NodeName,
    /// Which Services are ours.
    pub scope: Scope,
    /// Where the diagnostics port listens.
    pub diagnostics: SocketAddr,
    /// What becomes of packets to pods of this node that are not there.
    pub own_cidr: OwnCidr,
    /// Where in the kernel its routes live.
    pub place: Place,
    /// Whether it turns on forwarding where that is off.
    pub sysctls: Sysctls,
    /// The file its last state is kept in, on a file system in memory.
    pub state_file: PathBuf,
}

/// Runs the agent until `stop` is ready.
///
/// # Errors
/// When the diagnostics port is taken, or a part that the agent cannot do without has ended.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let boot_id = std::fs::read_to_string(BOOT_ID).with_context(|| format!("cannot read {BOOT_ID}"))?;
    let boot_id = boot_id.trim().to_owned();
    let origin = Origin { file: options.state_file.clone(), boot_id: boot_id.clone(), node: options.node.clone() };
    let kept = saved::load(&origin);
    let written = kept.as_ref().map(InForce::after).unwrap_or_default();
    let stale = left_behind(options.place).await?;
    let mut registry = Registry::default();
    build::register(&mut registry);
    let metrics = Metrics::register(&mut registry);
    let listener = http::listen(options.diagnostics).await?;
    let (ready, is_ready) = watch::channel(false);
    // One page at a time is drawn up for people.
    let (questions, asked) = mpsc::channel(1);
    let state = state_page(questions, options.place);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let diagnostics = Diagnostics { registry: Arc::new(registry), is_ready, state };
        http::serve(listener, diagnostics).await.map_err(anyhow::Error::from)
    });
    let (rooms, mut speaker) = Rooms::start(&options, &metrics, &mut tasks);
    let (states, to_keep) = mpsc::channel(1);
    let mut saver = tokio::spawn(saved::run(origin, to_keep));
    info!(node = %options.node, "agent started");
    let mut agent = Agent {
        stores: Stores::watch(&options.client, &options.node, options.scope),
        inquiry: Inquiry::new(options.client),
        proxy_health: ProxyHealth::default(),
        kept: kept.map(|kept| (clock::now() + PATIENCE, kept)),
        keeping: Keeping::new(states, clock::now()),
        me: options.node,
        boot_id,
        metrics,
        own_cidr: options.own_cidr,
        written,
        memory: Memory::default(),
        stale,
        router_id: None,
        rooms,
        ready,
        asked,
    };
    let result = tokio::select! {
        () = agent.run() => Ok(()),
        () = stop => Ok(()),
        Some(ended) = tasks.join_next() => ended_early(ended),
        ended = &mut speaker => ended_early(ended.map(Ok)),
        ended = &mut saver => ended_early(ended.map(Ok)),
    };
    // Without a wish the rooms end: the speaker says goodbye, kernel routes and the guard stay.
    agent.end().await;
    if !speaker.is_finished() && timeout(SHUTDOWN, speaker).await.is_err() {
        warn!("some BGP sessions did not close in time");
    }
    if !saver.is_finished() && timeout(SHUTDOWN, saver).await.is_err() {
        warn!("the last state was not kept in time");
    }
    tasks.shutdown().await;
    info!("agent stopped");
    result
}

/// Who asks what the agent knows, and where to tell it.
type Question = oneshot::Sender<Option<Snapshot>>;

/// What `/state` shows: what was planned last, and what the kernel holds now.
fn state_page(questions: mpsc::Sender<Question>, place: Place) -> StatePage {
    StatePage::new(move || {
        let questions = questions.clone();
        async move {
            let (question, answer) = oneshot::channel();
            questions.send(question).await?;
            let snapshot = answer.await?.context("the cluster and the own networks are not known yet")?;
            let kernel = kernel::look::look(place).await?;
            let (table, metric, snapshot) = (place.table(), place.metric(Rank::Direct), Arc::new(snapshot));
            Ok(serde_json::to_value(State { table, metric, snapshot, kernel })?)
        }
    })
}

/// Takes away what an agent leaves behind when it ends: its routes, in every table, the guard table and
/// the kept state. Nothing of anybody else's.
///
/// # Errors
/// When the kernel or the file system refuses; the rest is taken away all the same.
pub async fn clean_up(state_file: &Path) -> anyhow::Result<()> {
    let routes = kernel::netlink::remove_all().await.context("cannot remove the routes");
    let guard = kernel::guard::remove().await.context("cannot remove the nftables table inet cairn");
    let state = saved::remove(state_file).with_context(|| format!("cannot remove {}", state_file.display()));
    if let Ok(routes) = &routes {
        info!(routes, "removed what the agent left in the kernel");
    }
    routes.map(drop).and(guard).and(state)
}

/// What an earlier run has left in the kernel.
async fn left_behind(place: Place) -> anyhow::Result<Stale> {
    let left = kernel::look::left_behind(place).await.context("cannot read the kernel's routes")?;
    let stale = Stale::new(left);
    let routes = stale.routes().learned.len();
    if routes > 0 {
        info!(routes, "learned routes of the last run stay until routers tell of them again");
    }
    Ok(stale)
}

fn ended_early(ended: Result<anyhow::Result<()>, JoinError>) -> anyhow::Result<()> {
    ended.context("a part of the agent failed")??;
    bail!("a part of the agent ended by itself")
}

/// The loop between what is known and what the rooms do.
struct Agent {
    me: NodeName,
    boot_id: String,
    metrics: Metrics,
    stores: Stores,
    own_cidr: OwnCidr,
    inquiry: Inquiry,
    proxy_health: ProxyHealth,
    /// The state of the last run, and when it is taken up.
    kept: Option<(Moment, Snapshot)>,
    keeping: Keeping,
    written: InForce,
    memory: Memory,
    /// Routes of an earlier run that are held.
    stale: Stale,
    router_id: Option<RouterId>,
    rooms: Rooms,
    ready: watch::Sender<bool>,
    asked: mpsc::Receiver<Question>,
}

impl Agent {
    /// Plans again whenever something changed. Ends never; every wait is cancel-safe.
    async fn run(&mut self) {
        loop {
            let deadline = self.plan();
            tokio::select! {
                () = self.stores.changed() => {}
                () = self.rooms.changed() => {}
                (node, answer) = self.inquiry.answered() => {
                    self.stores.nodes().answered(&node, answer, clock::now());
                }
                service = self.proxy_health.forwards() => self.memory.entries.proxy_forwards(&service),
                Some(question) = self.asked.recv() => {
                    // Whoever asked may have gone meanwhile.
                    let _ = question.send(self.known());
                }
                () = clock::until(deadline) => {}
            }
        }
    }

    /// What is known now; `None` before that is enough to plan from.
    fn known(&mut self) -> Option<Snapshot> {
        let here = self.here()?;
        Some(self.stores.snapshot(here, &mut self.written, clock::now()).0)
    }

    /// What is known of this node itself, once that and how the others are reached is known.
    fn here(&self) -> Option<Here> {
        let local = self.rooms.local_addresses().filter(|_| self.stores.knows_routes())?;
        let (learned, stale) = (self.rooms.learned(), Arc::clone(self.stale.routes()));
        Some(Here { me: self.me.clone(), local, learned, stale, own_cidr: self.own_cidr })
    }

    /// One round: know, wish, report. Says when the next is due although nothing changes.
    fn plan(&mut self) -> Option<Moment> {
        let now = clock::now();
        let patience = self.take_up_kept(now);
        // Before what was told is read: who is done has told all of that.
        let telling = self.rooms.telling();
        // Without all routes or the own networks, a wish would leave out what is merely unknown.
        let Some(here) = self.here() else { return patience };
        let (mut snapshot, mut wrong_peers) = self.stores.snapshot(here, &mut self.written, now);
        let let_go = self.let_go(&mut snapshot, &telling, now);
        let desired = desired::plan(&snapshot, &mut self.memory, now);
        self.rooms.wish_routes(&desired);
        let knows_all = self.stores.knows_all();
        // Before its NodeRoute a node has nothing to announce. From then on it keeps its name among
        // speakers: another router ID would reset every session.
        self.router_id = self.router_id.or(desired.own_route.is_some().then_some(desired.router_id));
        if let Some(router_id) = self.router_id.filter(|_| knows_all) {
            self.rooms.wish_announcements(&desired, router_id);
            self.ready.send_if_modified(|ready| !std::mem::replace(ready, true));
        }
        wrong_peers.extend(desired.doubles.iter().cloned());
        let look_again = self.report(&snapshot, &desired, wrong_peers);
        let keep_again = if self.stores.has_news() { self.keep(snapshot, now) } else { None };
        self.inquiry.ask(self.stores.nodes().to_ask(self.me.as_str(), now));
        self.proxy_health.ask(&desired.entries.asks);
        let ask_again = self.stores.nodes().deadline(self.me.as_str()).filter(|deadline| *deadline > now);
        let entries = desired.entries.deadline.filter(|_| knows_all);
        [patience, entries, look_again, ask_again, keep_again, let_go].into_iter().flatten().min()
    }

    /// Lets go of routes of an earlier run that nobody tells of any more. Says when there may be more of them.
    fn let_go(
        &mut self,
        snapshot: &mut Snapshot,
        telling: &BTreeMap<PeerName, Telling>,
        now: Moment,
    ) -> Option<Moment> {
        if self.stale.routes().is_empty() || !self.stores.knows_all() {
            return None;
        }
        let (peers, _) = peers::sessions(&snapshot.peers, &snapshot.labels);
        let before = self.stale.routes().learned.len();
        if self.stale.settle(&peers, telling, now) {
            snapshot.stale = Arc::clone(self.stale.routes());
            let routes = snapshot.stale.learned.len();
            if routes != before {
                info!(
                    routes,
                    "routers have told routes of the last run again, or do not any more; the others are held"
                );
            }
        }
        self.stale.deadline()
    }

    /// Keeps the state for the next run when it is time. Says when that is, otherwise.
    fn keep(&mut self, state: Snapshot, now: Moment) -> Option<Moment> {
        let again = self.keeping.keep(state, now);
        if again.is_none() {
            self.stores.kept();
        }
        again
    }

    /// Ends, and keeps what is new since it was last kept.
    async fn end(mut self) {
        let state = if self.stores.has_news() { self.known() } else { None };
        let Self { keeping, .. } = self;
        keeping.end(state).await;
    }

    /// Takes up the state of the last run once the API server had its time. Says when that is.
    fn take_up_kept(&mut self, now: Moment) -> Option<Moment> {
        if self.stores.is_synced() {
            self.kept = None;
        }
        if let Some((_, kept)) = self.kept.take_if(|(due, _)| *due <= now) {
            let nodes = kept.node_routes.len();
            info!(nodes, "the API server has not told everything yet: going on with the state of the last run");
            self.stores.restore(kept);
        }
        self.kept.as_ref().map(|(due, _)| *due)
    }

    /// Tells the cluster what became of the wish. A Node that is gone has no report any more: it
    /// would be made again and again while the garbage collector takes it away.
    fn report(&mut self, snapshot: &Snapshot, desired: &Desired, wrong_peers: Vec<PeerException>) -> Option<Moment> {
        let held = self.stores.nodes().held();
        let outcome = Outcome { held, ..self.rooms.outcome(wrong_peers) };
        let mut status = report::report(&self.me, &self.boot_id, desired, &outcome);
        self.metrics.show(&status, outcome.repaired);
        let node = self.stores.node.get(self.me.as_str());
        status.node_uid = node.as_ref().map(|node| node.uid.clone());
        let is_waiting = self.stores.is_synced() && node.as_deref().is_some_and(waits_for_addresses);
        if is_waiting {
            status.default_addresses = propose_addresses(snapshot);
        }
        let nodes = snapshot.node_routes.len();
        self.rooms.publish(node.map(|node| Publication { status, node_uid: node.uid.clone(), nodes }));
        is_waiting.then(|| clock::now() + NEXT_LOOK)
    }
}

/// Whether nobody knows yet how this node is reached.
fn waits_for_addresses(node: &NodeView) -> bool {
    node.is_uninitialized() && node.internal_ips().next().is_none()
}

/// The addresses this node leaves by. A node in service never reads these tables, which may be long.
fn propose_addresses(snapshot: &Snapshot) -> Vec<String> {
    let [v4, v6] = ROUTE_TABLES.map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let ingress = snapshot.services.values().flat_map(|service| &service.ingress);
    let taken = ingress.filter_map(|ingress| ingress.ip).collect();
    let addresses = default_addresses(&snapshot.local, Tables { v4: &v4, v6: &v6 }, &taken);
    addresses.iter().map(ToString::to_string).collect()
}
