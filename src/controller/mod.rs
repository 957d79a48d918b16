#![expect(clippy::disallowed_methods, reason = "shell: owns the controller's tasks, seeds their jitter")]
//! The controller: the rooms that act for the whole cluster, one process at a time.
//!
//! ```text
//! file ─► inventory ──────────────┐
//! leader::hold ─► leadership ─► node · machine · service · route ─► API server
//!                  stores ────────┘                 └───► Events
//! ```
//!
//! Every process reads the inventory and stands for election; only the leader has stores, listed
//! after it was elected, and rooms. On a stop the rooms end first and the Lease is given back after
//! them, so that two processes never act at once. A Lease that is lost ends the process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::api::{AddressPool, Machine, NodeReport, NodeRoute};
use crate::cluster::events::{Events, Reporter};
use crate::cluster::store::Store;
use crate::cluster::views;
use crate::config::CloudConfig;
use crate::inventory::{self, InventoryState, file};
use crate::leader::{self, Leadership, LeaseConfig};
use crate::telemetry::http::{self, Diagnostics};
use crate::{machine, node, route, service};

/// How long giving the Lease back may take; after that it runs out by itself.
const RELEASE: Duration = Duration::from_millis(1200);

/// How a controller is started.
#[derive(Clone)]
pub struct Options {
    /// The way to the API server.
    pub client: Client,
    /// Where the inventory is.
    pub cloud_config: CloudConfig,
    /// The Lease to stand for.
    pub lease: LeaseConfig,
    /// Where the diagnostics port listens.
    pub diagnostics: SocketAddr,
}

/// Runs the controller until `stop` is ready.
///
/// # Errors
/// When the Lease was lost, the diagnostics port is taken, or a part has ended by itself.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    let is_leader = Gauge::<i64>::default();
    registry.register("leader_election_master_status", "1 while this process leads", is_leader.clone());
    let (inventory_out, inventory) = watch::channel(Arc::new(InventoryState::unread()));
    inventory::metrics::register(&mut registry, inventory.clone());
    let node_metrics = node::metrics::Metrics::register(&mut registry);
    let mut background = JoinSet::new();
    serve(options.diagnostics, registry, &mut background).await?;
    let files = options.cloud_config.inventory_files.clone();
    background.spawn(async move {
        file::watch(files, inventory_out).await;
        Ok(())
    });

    let (elected, leadership) = watch::channel(Leadership::Candidate);
    let (release, released) = watch::channel(false);
    let mut lease = tokio::spawn(leader::hold(options.client.clone(), options.lease.clone(), elected, released));
    let mut rooms = JoinSet::new();
    info!(identity = options.lease.identity, "controller started");
    let result = tokio::select! {
        result = lead(&options, leadership, inventory, node_metrics, &is_leader, &mut rooms) => result,
        () = stop => Ok(()),
        Some(ended) = background.join_next() => ended.context("a part of the controller failed").and_then(|part| part),
    };
    rooms.shutdown().await;
    release.send_replace(true);
    if tokio::time::timeout(RELEASE, &mut lease).await.is_err() {
        warn!("the lease could not be given back in time; it runs out by itself");
        lease.abort();
    }
    background.shutdown().await;
    info!("controller stopped");
    result
}

async fn serve(
    address: SocketAddr,
    registry: Registry,
    background: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let listener = http::listen(address).await?;
    // A process that waits for its turn is as ready as the one that leads.
    let (ready, is_ready) = watch::channel(true);
    background.spawn(async move {
        let _ready = ready;
        let diagnostics = Diagnostics { registry: Arc::new(registry), is_ready };
        http::serve(listener, diagnostics).await.context("a part of the controller failed")
    });
    Ok(())
}

/// Waits to be elected, starts the rooms, and watches over them. Ends only when something is wrong.
async fn lead(
    options: &Options,
    mut leadership: watch::Receiver<Leadership>,
    inventory: watch::Receiver<Arc<InventoryState>>,
    node_metrics: node::metrics::Metrics,
    is_leader: &Gauge,
    rooms: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let elected = *leadership.wait_for(|role| *role != Leadership::Candidate).await.context("the election ended")?;
    if elected == Leadership::Leader {
        is_leader.set(1);
        start(options, inventory, node_metrics, rooms);
    }
    tokio::select! {
        lost = leadership.wait_for(|role| *role == Leadership::Lost) => {
            lost.context("the election ended")?;
            bail!("the lease {}/{} was lost", options.lease.namespace, options.lease.name)
        }
        Some(ended) = rooms.join_next() => {
            ended.context("a room of the controller failed")?;
            bail!("a room of the controller ended by itself")
        }
    }
}

fn start(
    options: &Options,
    inventory: watch::Receiver<Arc<InventoryState>>,
    node_metrics: node::metrics::Metrics,
    rooms: &mut JoinSet<()>,
) {
    let client = &options.client;
    let events = |controller, rooms: &mut JoinSet<()>| {
        let reporter = Reporter { controller, instance: options.lease.identity.clone() };
        Events::start(client.clone(), reporter, rooms)
    };
    let nodes = Store::watch::<Node>(Api::all(client.clone()), Config::default(), views::node);
    let reports = Store::watch::<NodeReport>(Api::all(client.clone()), Config::default(), route::report);
    let machine = machine::Context {
        client: client.clone(),
        nodes: nodes.clone(),
        objects: Store::watch::<Machine>(Api::all(client.clone()), Config::default(), machine::object),
        inventory: inventory.clone(),
        events: events(machine::REPORTER, rooms),
    };
    let node = node::Context {
        client: client.clone(),
        nodes: nodes.clone(),
        inventory,
        reports: Some(reports.clone()),
        events: events(node::REPORTER, rooms),
        metrics: node_metrics,
        period: node::PERIOD,
    };
    let service = service::Context {
        client: client.clone(),
        // All of them: one that stops being a load balancer has to be cleaned up.
        services: Store::watch::<Service>(Api::all(client.clone()), Config::default(), views::service),
        pools: Store::watch::<AddressPool>(Api::all(client.clone()), Config::default(), service::pool),
        nodes: nodes.clone(),
        events: events(service::REPORTER, rooms),
    };
    let route = route::Context {
        client: client.clone(),
        nodes,
        routes: Store::watch::<NodeRoute>(Api::all(client.clone()), Config::default(), route::route),
        reports,
    };
    rooms.spawn(machine::run(machine, fastrand::u64(..)));
    rooms.spawn(node::run(node, fastrand::u64(..)));
    rooms.spawn(service::run(service, fastrand::u64(..)));
    rooms.spawn(route::run(route, fastrand::u64(..)));
}
