//! The controller: the rooms that act for the whole cluster, one process at a time.
//!
//! ```text
//! file ─► inventory ──────────────┐
//! leader::hold ─► leadership ─► node · machine · lifecycle · service · route ─► API server
//!                  stores ────────┘                                       └───► Events
//! ```
//!
//! Every process reads the inventory, stands for election and serves the secure port; only the
//! leader has stores, listed after it was elected, and rooms. On a stop the rooms end first; once
//! every write they sent has been answered the Lease is given back, so that two processes never act
//! at once. A Lease that is lost ends the process.
//!
//! Start at [`run`]; [`options`] says how, [`rooms`] starts the controllers, [`ports`] the port.

mod election;
mod options;
mod ports;
mod rooms;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::cluster;
use crate::cluster::client::Server;
use crate::inventory::{self, InventoryState, file};
use crate::leader::Leadership;
use crate::lifecycle;
use crate::node;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use election::Election;
use rooms::{Rooms, Shown};

pub use options::{Identities, Limits, MigrationOptions, Options, Periods};

/// How long answers to writes are waited for; with one still open the Lease is kept, and runs out.
const SETTLED_WITHIN: Duration = Duration::from_millis(1500);

/// Runs the controller until `stop` is ready.
///
/// # Errors
/// When the Lease was lost, the secure port is taken, or a part has ended by itself.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let (mut registry, mut slis) = (Registry::default(), Registry::default());
    let metrics = Metrics::register(&mut registry);
    let health = Arc::new(Health::register(&mut slis));
    let server = Server::find(&options.server, cluster::metrics::Metrics::register(&mut registry)).await?;
    let mut background = JoinSet::new();
    let inventory = read_inventory(&options, &mut background);
    inventory::metrics::register(&mut registry, inventory.clone());
    health.add("ping", || true);
    let election = Election::stand(&server, options.lease.as_ref())?;
    let shown = Shown {
        health: Arc::clone(&health),
        metrics: metrics.clone(),
        node_metrics: node::metrics::Metrics::register(&mut registry),
        lifecycle_metrics: lifecycle::Metrics::register(&mut registry),
    };
    let mut rooms = Rooms::new(server.clone(), election.fence(), inventory, shown);
    election.watch_over(&health);
    let identity = election.identity().to_owned();
    if let Some(serving) = &options.serving {
        let state = rooms.state(&identity, election.leadership());
        let pages = ports::pages(registry, slis, health, options.configz.clone(), state);
        ports::open(serving, &server, pages, &mut background).await?;
    }
    info!(identity, "controller started");
    let result = tokio::select! {
        result = lead(&options, &election, &metrics, &mut rooms) => result,
        () = stop => Ok(()),
        Some(ended) = background.join_next() => ended.context("a part of the controller failed").and_then(|part| part),
    };
    rooms.shutdown().await;
    end(&server, election).await;
    background.shutdown().await;
    info!("controller stopped");
    result
}

/// Gives the Lease back, unless a write may still take effect after a successor has begun.
async fn end(server: &Server, election: Election) {
    if tokio::time::timeout(SETTLED_WITHIN, server.settled()).await.is_ok() {
        election.release().await;
    } else {
        warn!("a write has not been answered: the lease is not given back, it runs out by itself");
        election.abandon();
    }
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
async fn lead(options: &Options, election: &Election, metrics: &Metrics, rooms: &mut Rooms) -> anyhow::Result<()> {
    let mut leadership = election.leadership();
    if let Some(lease) = election.lease() {
        metrics.leads(lease, false);
    }
    let elected = *leadership.wait_for(|role| *role != Leadership::Candidate).await.context("the election ended")?;
    if elected == Leadership::Leader {
        if let Some(lease) = election.lease() {
            metrics.leads(lease, true);
        }
        rooms.start(options, election.identity())?;
    }
    tokio::select! {
        lost = leadership.wait_for(|role| *role == Leadership::Lost) => {
            lost.context("the election ended")?;
            bail!("leaderelection lost: another process may hold the lease {}", election.lease().unwrap_or_default())
        }
        ended = rooms.ended() => ended,
    }
}
