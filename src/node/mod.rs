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
mod labels;
pub mod metrics;
mod observe;
pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::api::NodeReportStatus;
use crate::cluster::backoff::Backoff;
use crate::cluster::clock;
use crate::cluster::events::{Events, News, about_node};
use crate::cluster::store::Store;
use crate::cluster::written::Written;
use crate::inventory::InventoryState;
use crate::model::views::NodeView;
use crate::model::{NodeName, Note};
use plan::{Action, Observed, Plan};

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
}

/// What the room remembers from one round to the next.
struct Memory {
    written: Written<NodeName, NodeView>,
    backoff: Backoff<NodeName>,
    news: News<NodeName>,
}

/// Sees to the Nodes until the future is dropped. Dropping it between two writes is safe: each
/// write leaves the Node in a state from which the next plan goes on.
pub async fn run(mut context: Context, seed: u64) {
    let mut memory = Memory {
        written: Written::new(|view| &view.resource_version),
        backoff: Backoff::new(seed),
        news: News::default(),
    };
    context.nodes.synced().await;
    inventory_read(&mut context.inventory).await;
    loop {
        let observed = observe::observe(&mut context, &mut memory.written);
        let plan = plan::plan(&observed);
        let waits_for_agents = plan.notes.values().any(|note| matches!(note, Note::NoAddresses { .. }));
        carry_out(&context, &observed, plan, &mut memory).await;
        let period_ends = clock::now() + context.period;
        let deadline = memory.backoff.deadline().map_or(period_ends, |retry| retry.min(period_ends));
        tokio::select! {
            () = context.nodes.changed() => {}
            () = inventory_changed(&mut context.inventory) => {}
            () = reports_changed(&mut context.reports), if waits_for_agents => {}
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

async fn carry_out(context: &Context, observed: &Observed, plan: Plan, memory: &mut Memory) {
    let Plan { mut actions, notes } = plan;
    for (name, note) in memory.news.of(&notes) {
        tell(context, observed, &name, note);
    }
    let now = clock::now();
    memory.backoff.keep_only(|name| actions.contains_key(name));
    actions.retain(|name, _| memory.backoff.is_due(name, now));
    for (name, result) in apply::apply(&context.client, observed, &actions).await {
        match result {
            Ok(view) => {
                memory.backoff.succeeded(&name);
                let created = view.created_seconds;
                memory.written.remember(name.clone(), view);
                if let Some(Action::Initialize(_)) = actions.get(&name) {
                    context.metrics.initialized(seconds_since(created));
                    tell(context, observed, &name, Note::NodeSynced);
                }
            }
            Err(error) => {
                apply::log(&name, &error);
                memory.backoff.failed(name, clock::now());
            }
        }
    }
}

/// By the wall clock, as the API server dates objects.
fn seconds_since(created_seconds: i64) -> f64 {
    let created = Timestamp::from_second(created_seconds).unwrap_or_default();
    Timestamp::now().duration_since(created).as_secs_f64().max(0.0)
}

fn tell(context: &Context, observed: &Observed, name: &NodeName, note: Note) {
    match note {
        Note::NodeSynced => info!(node = %name, "node initialized"),
        _ => warn!(node = %name, reason = note.reason(), error = %note, "node left as it is"),
    }
    if let Some(node) = observed.nodes.get(name) {
        context.events.tell(about_node(&node.view), note);
    }
}
