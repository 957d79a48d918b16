//! The controller: the rooms that act for the whole cluster, one process at a time.
//!
//! ```text
//! file ─► inventory ──────────────┐
//! leader::hold ─► leadership ─► node · machine · lifecycle · service · route · ipam ─► API server
//!                  stores ────────┘                                       └───► Events
//! ```
//!
//! Every process reads the inventory, watches the Nodes, stands for election and serves the secure
//! port; only the leader has the other stores, listed after it was elected, and rooms. On a stop the rooms end first; once
//! every write they sent has been answered the Lease is given back, so that two processes never act
//! at once. A Lease that is lost ends the process. With leader migration there are two Leases; the
//! fence of each controller is the Lease that it runs under.
//!
//! Start at [`run`]; [`options`] says how, [`rooms`] starts the controllers on [`stores`], [`ports`] the port.

mod election;
pub mod forecast;
mod lookout;
mod options;
mod ports;
mod rooms;
mod state;
mod stores;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::cluster;
use crate::cluster::client::Server;
use crate::inventory::{self, InventoryState, file};
use crate::ipam;
use crate::leader::{self, LeaseConfig, Placement};
use crate::lifecycle;
use crate::node;
use crate::route;
use crate::service;
use crate::telemetry::build;
use crate::telemetry::health::Health;
use crate::telemetry::log::Verbosity;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::secure::Pages;
use election::Election;
use rooms::{Rooms, Shown};

pub use options::{Identities, Limits, Options, Periods};

/// How long answers to writes are waited for; with one still open the Lease is kept, and runs out.
const SETTLED_WITHIN: Duration = Duration::from_millis(1500);

/// Runs the controller until `stop` is ready. `verbosity` is how much it logs.
///
/// # Errors
/// When the Lease was lost, the secure port is taken, or a part has ended by itself.
pub async fn run(options: Options, verbosity: Verbosity, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let (mut registry, mut slis) = (Registry::default(), Registry::default());
    build::register(&mut registry);
    build::register_features(&mut registry);
    let metrics = Metrics::register(&mut registry);
    let leases = leader::Metrics::register(&mut registry);
    let health = Arc::new(Health::register(&mut slis));
    let server = Server::find(&options.server, cluster::metrics::Metrics::register(&mut registry)).await?;
    let mut background = JoinSet::new();
    let inventory = read_inventory(&options, &mut background);
    inventory::metrics::register(&mut registry, inventory.clone());
    health.add("ping", || true);
    let main = Election::stand(&server, options.lease.as_ref(), &leases)?;
    let shown = Shown {
        health: Arc::clone(&health),
        metrics: metrics.clone(),
        node_metrics: node::metrics::Metrics::register(&mut registry),
        lifecycle_metrics: lifecycle::Metrics::register(&mut registry),
        route_metrics: route::metrics::Metrics::register(&mut registry),
        ipam_metrics: ipam::Metrics::register(&mut registry),
        service_metrics: service::metrics::Metrics::register(&mut registry),
    };
    let mut rooms = Rooms::new(server.clone(), inventory, shown);
    rooms.get_ready()?;
    main.watch_over(&health, "leaderElection");
    let identity = main.identity().to_owned();
    if let Some(serving) = &options.serving {
        let pages = Pages {
            metrics: registry,
            slis,
            health,
            configuration: options.configz.clone(),
            verbosity: options.profiling.then_some(verbosity),
            state: rooms.state(&identity, main.leadership(), &options).into_page(),
        };
        ports::open(serving, &server, pages, &mut background).await?;
    }
    info!(identity, "controller started");
    let mut elections = Elections { main, second: None, metrics: leases };
    let result = tokio::select! {
        result = lead(&options, &mut elections, &server, &metrics, &mut rooms) => result,
        () = stop => Ok(()),
        Some(ended) = background.join_next() => ended.context("a part of the controller failed").and_then(|part| part),
    };
    rooms.shutdown().await;
    end(&server, elections).await;
    background.shutdown().await;
    info!("controller stopped");
    result
}

/// The Leases that this process stands for.
struct Elections {
    main: Election,
    /// The one of leader migration, once the first is held.
    second: Option<Election>,
    metrics: leader::Metrics,
}

/// Gives the Leases back, unless a write may still take effect after a successor has begun.
async fn end(server: &Server, Elections { mut main, mut second, metrics: _ }: Elections) {
    if tokio::time::timeout(SETTLED_WITHIN, server.settled()).await.is_ok() {
        // In this order: who takes the first stands for the second at once.
        if let Some(second) = &mut second {
            second.release().await;
        }
        main.release().await;
    } else {
        warn!("a write has not been answered: the lease is not given back, it runs out by itself");
    }
    if let Some(second) = &second {
        second.say_goodbye().await;
    }
    main.say_goodbye().await;
}

#[expect(clippy::disallowed_methods, reason = "shell: owns the task that reads the inventory")]
fn read_inventory(
    options: &Options,
    background: &mut JoinSet<anyhow::Result<()>>,
) -> watch::Receiver<Arc<InventoryState>> {
    let (sender, inventory) = watch::channel(Arc::new(InventoryState::unread()));
    let files = options.cloud_config.inventory_files.clone();
    background.spawn(async move {
        file::watch(files, sender).await;
        Ok(())
    });
    inventory
}

/// Waits to be elected, starts the rooms, and watches over them. Ends only when something is wrong.
///
/// With leader migration it stands for the second Lease while it holds the first, so that of each
/// component only the leader does (KEP-2436), and starts what runs under it when it has it.
async fn lead(
    options: &Options,
    elections: &mut Elections,
    server: &Server,
    metrics: &Metrics,
    rooms: &mut Rooms,
) -> anyhow::Result<()> {
    let Elections { main, second, metrics: leases } = elections;
    main.won(metrics).await?;
    let Some((migration, lease)) = options.migration.as_ref().zip(options.lease.as_ref()) else {
        rooms.start(options, &options.controllers, main)?;
        return tokio::select! {
            () = main.lost() => Err(lost(main)),
            ended = rooms.ended() => ended,
        };
    };
    rooms.start(options, &migration.placed(Placement::Main, &options.controllers), main)?;
    let lease = LeaseConfig { name: migration.lease.clone(), ..lease.clone() };
    let second = second.insert(Election::stand(server, Some(&lease), leases)?);
    second.watch_over(rooms.health(), "migrationLeaderElection");
    rooms.look_out(lease)?;
    tokio::select! {
        won = second.won(metrics) => won?,
        () = main.lost() => return Err(lost(main)),
        ended = rooms.ended() => return ended,
    }
    rooms.start(options, &migration.placed(Placement::Migration, &options.controllers), second)?;
    tokio::select! {
        () = main.lost() => Err(lost(main)),
        () = second.lost() => Err(lost(second).context("migration leaderelection lost")),
        ended = rooms.ended() => ended,
    }
}

fn lost(election: &Election) -> anyhow::Error {
    anyhow!("leaderelection lost: another process may hold the lease {}", election.lease_name())
}
