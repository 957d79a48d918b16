//! Nodes: what the inventory knows of a machine, written to its Node.
//!
//! A Node that waits for its cloud provider (`node.cloudprovider.kubernetes.io/uninitialized`) gets
//! addresses, provider ID and labels, and only then loses the taint: no pod ever starts on a Node
//! without them. Addresses and labels follow the inventory afterwards.
//!
//! It never deletes a Node, never touches one whose machine is not known for certain, and never
//! touches one that another provider initialized. Start at [`plan`](plan::plan).

pub mod addresses;
mod apply;
pub mod facts;
mod labels;
pub mod metrics;
mod observe;
mod owners;
pub mod plan;
mod work;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;

use crate::api::NodeReportStatus;
use crate::cluster::clock;
use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::inventory::InventoryState;
use crate::model::views::NodeView;
use work::Work;

pub use observe::observed;

/// Source of this room's Events, as upstream's node controller names itself.
pub const REPORTER: &str = "cloud-node-controller";

/// What the room works with.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// Every Node.
    pub nodes: Store<NodeView>,
    /// The inventory in force.
    pub inventory: watch::Receiver<Arc<InventoryState>>,
    /// Every `NodeReport`, for the addresses that agents propose; without it they are not asked.
    pub reports: Option<Store<NodeReportStatus>>,
    /// Where to tell what was done.
    pub events: Events,
    /// How long Nodes waited.
    pub metrics: metrics::Metrics,
    /// How often everything is looked at without a signal.
    pub period: Duration,
    /// Where to say that the Nodes are seen to that waited when the room began.
    pub seen_to: watch::Sender<bool>,
}

/// Sees to the Nodes until the future is dropped. Dropping it between two writes is safe: each
/// write leaves the Node in a state from which the next plan goes on.
pub async fn run(mut context: Context, seed: u64) {
    context.nodes.synced().await;
    inventory_read(&mut context.inventory).await;
    let mut work = Work::new(&mut context, seed);
    loop {
        work.look(&mut context);
        work.begin(&context);
        if work.is_idle() {
            context.seen_to.send_if_modified(|seen_to| !std::mem::replace(seen_to, true));
        }
        let (deadline, waits_for_agents, has_more) = (work.deadline(), work.waits_for_agents(), work.has_more());
        tokio::select! {
            answered = work.answered() => work.finish(&context, answered),
            () = context.nodes.changed() => {}
            () = inventory_changed(&mut context.inventory) => {}
            () = reports_changed(&mut context.reports), if waits_for_agents => {}
            () = tokio::task::yield_now(), if has_more => {}
            () = clock::until(Some(deadline)) => {}
        }
    }
}

async fn inventory_read(inventory: &mut watch::Receiver<Arc<InventoryState>>) {
    if inventory.wait_for(|state| state.is_read()).await.is_err() {
        // The process is ending.
        std::future::pending::<()>().await;
    }
}

async fn inventory_changed(inventory: &mut watch::Receiver<Arc<InventoryState>>) {
    if inventory.changed().await.is_err() {
        // The process is ending.
        std::future::pending::<()>().await;
    }
}

async fn reports_changed(reports: &mut Option<Store<NodeReportStatus>>) {
    match reports {
        Some(reports) => reports.changed().await,
        None => std::future::pending().await,
    }
}
