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
//! when it ends, so pods keep talking during an upgrade; sessions are closed.

pub mod announce;
#[cfg(test)]
mod cases;
pub mod default_addresses;
pub mod desired;
pub mod entries;
pub mod forecast;
pub mod imports;
pub mod last_good;
pub mod last_resort;
mod metrics;
mod outcome;
pub mod peers;
mod publisher;
pub mod report;
mod rooms;
pub mod routes;
pub mod snapshot;
pub mod state;
mod stores;
pub mod witness;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::agent::default_addresses::{Tables, default_addresses};
use crate::agent::desired::Desired;
use crate::agent::entries::Memory;
use crate::agent::metrics::Metrics;
use crate::agent::publisher::Publication;
use crate::agent::rooms::Rooms;
use crate::agent::snapshot::{Here, OwnCidr, Snapshot};
use crate::agent::state::State;
use crate::agent::stores::{InForce, Stores};
use crate::api::PeerException;
use crate::cluster::clock;
use crate::kernel;
use crate::model::views::NodeView;
use crate::model::{Moment, NodeName, Rank, RouterId};
use crate::telemetry::build;
use crate::telemetry::http::{self, Diagnostics, StatePage};

/// Sessions are closed and the process ends within this time.
const SHUTDOWN: Duration = Duration::from_millis(1500);
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The kernel's IPv4 and IPv6 routes, for people.
const ROUTE_TABLES: [&str; 2] = ["/proc/net/route", "/proc/net/ipv6_route"];
/// How soon a node that waits for addresses looks for its default route again.
const NEXT_LOOK: Duration = Duration::from_secs(1);

/// How an agent is started.
#[derive(Clone)]
pub struct Options {
    /// The way to the API server.
    pub client: Client,
    /// The node it runs on.
    pub node: NodeName,
    /// Where the diagnostics port listens.
    pub diagnostics: SocketAddr,
    /// What becomes of packets to pods of this node that are not there.
    pub own_cidr: OwnCidr,
}

/// Runs the agent until `stop` is ready.
///
/// # Errors
/// When the diagnostics port is taken, or a part that the agent cannot do without has ended.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let boot_id = std::fs::read_to_string(BOOT_ID).with_context(|| format!("cannot read {BOOT_ID}"))?;
    let mut registry = Registry::default();
    build::register(&mut registry);
    let metrics = Metrics::register(&mut registry);
    let listener = http::listen(options.diagnostics).await?;
    let (ready, is_ready) = watch::channel(false);
    let (shown, snapshot) = watch::channel(None);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let diagnostics = Diagnostics { registry: Arc::new(registry), is_ready, state: state_page(snapshot) };
        http::serve(listener, diagnostics).await.map_err(anyhow::Error::from)
    });
    let (rooms, mut speaker) = Rooms::start(&options, &metrics, &mut tasks);
    info!(node = %options.node, "agent started");
    let mut agent = Agent {
        stores: Stores::watch(&options.client, &options.node),
        me: options.node,
        boot_id: boot_id.trim().to_owned(),
        metrics,
        own_cidr: options.own_cidr,
        written: InForce::default(),
        memory: Memory::default(),
        router_id: None,
        rooms,
        ready,
        shown,
    };
    let result = tokio::select! {
        () = agent.run() => Ok(()),
        () = stop => Ok(()),
        Some(ended) = tasks.join_next() => ended_early(ended),
        ended = &mut speaker => ended_early(ended.map(Ok)),
    };
    // Without a wish the rooms end: the speaker says goodbye, kernel routes and the guard stay.
    drop(agent);
    if !speaker.is_finished() && timeout(SHUTDOWN, speaker).await.is_err() {
        warn!("some BGP sessions did not close in time");
    }
    tasks.shutdown().await;
    info!("agent stopped");
    result
}

/// What `/state` shows: what was planned last, and what the kernel holds now.
fn state_page(snapshot: watch::Receiver<Option<Arc<Snapshot>>>) -> StatePage {
    StatePage::new(move || {
        let snapshot = snapshot.borrow().clone();
        async move {
            let snapshot = snapshot.context("the cluster and the own networks are not known yet")?;
            let place = kernel::Place::default();
            let kernel = kernel::look::look(place).await?;
            let state = State { table: place.table(), metric: place.metric(Rank::Direct), snapshot, kernel };
            Ok(serde_json::to_value(state)?)
        }
    })
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
    written: InForce,
    memory: Memory,
    router_id: Option<RouterId>,
    rooms: Rooms,
    ready: watch::Sender<bool>,
    shown: watch::Sender<Option<Arc<Snapshot>>>,
}

impl Agent {
    /// Plans again whenever something changed. Ends never; every wait is cancel-safe.
    async fn run(&mut self) {
        loop {
            let deadline = self.plan();
            tokio::select! {
                () = self.stores.changed() => {}
                () = self.rooms.changed() => {}
                () = clock::until(deadline) => {}
            }
        }
    }

    /// One round: know, wish, report. Says when the next is due although nothing changes.
    fn plan(&mut self) -> Option<Moment> {
        // Without all routes or the own networks, a wish would leave out what is merely unknown.
        let local = self.rooms.local_addresses().filter(|_| self.stores.node_routes.is_synced())?;
        let here = Here { me: self.me.clone(), local, learned: self.rooms.learned(), own_cidr: self.own_cidr };
        let (snapshot, mut wrong_peers) = self.stores.snapshot(here, &mut self.written);
        let desired = desired::plan(&snapshot, &mut self.memory, clock::now());
        self.rooms.wish_routes(&desired);
        let is_synced = self.stores.is_synced();
        // Before its NodeRoute a node has nothing to announce. From then on it keeps its name among
        // speakers: another router ID would reset every session.
        self.router_id = self.router_id.or(desired.own_route.is_some().then_some(desired.router_id));
        if let Some(router_id) = self.router_id.filter(|_| is_synced) {
            self.rooms.wish_announcements(&desired, router_id);
            self.ready.send_if_modified(|ready| !std::mem::replace(ready, true));
        }
        wrong_peers.extend(desired.doubles.iter().cloned());
        let look_again = self.report(&snapshot, &desired, wrong_peers);
        self.shown.send_replace(Some(Arc::new(snapshot)));
        desired.entries.deadline.filter(|_| is_synced).into_iter().chain(look_again).min()
    }

    /// Tells the cluster what became of the wish. A Node that is gone has no report any more: it
    /// would be made again and again while the garbage collector takes it away.
    fn report(&self, snapshot: &Snapshot, desired: &Desired, wrong_peers: Vec<PeerException>) -> Option<Moment> {
        let outcome = self.rooms.outcome(wrong_peers);
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
