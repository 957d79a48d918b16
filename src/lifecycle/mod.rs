//! Nodes whose machine went away: deleted when it is gone for good, tainted while it is powered off.
//!
//! Upstream's cloud node lifecycle controller, with an inventory that may say that it does not know.
//! It looks once a period, as upstream does, and only at Nodes that changed and those that are not
//! Ready: a Node's heartbeat costs it nothing.
//!
//! It never deletes a Node that is Ready, nor one whose machine is not explicitly decommissioned: an
//! unknown is not an absence. It never touches a Node that is nobody's machine, never deletes more
//! of them in ten minutes than the [`brake`] allows, and leaves the pods of a dead Node to
//! Kubernetes. Start at [`plan`](plan::plan).

mod apply;
pub mod brake;
mod metrics;
mod observe;
pub mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::cluster::clock;
use crate::cluster::events::{Events, News, about_node};
use crate::cluster::patch::WriteError;
use crate::cluster::store::Store;
use crate::cluster::told::Told;
use crate::inventory::InventoryState;
use crate::model::views::NodeView;
use crate::model::{NodeName, Note, Severity};
use brake::Deletions;
use plan::{Action, Observed, Plan};

pub use metrics::Metrics;

/// Source of this room's Events, as upstream's controller names itself.
pub const REPORTER: &str = "cloud-node-lifecycle-controller";

/// What the room works with.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// Every Node.
    pub nodes: Store<NodeView>,
    /// The inventory in force.
    pub inventory: watch::Receiver<Arc<InventoryState>>,
    /// Where to tell what was done.
    pub events: Events,
    /// Where to count it.
    pub metrics: Metrics,
    /// How often the Nodes are looked at; more than zero. What failed is tried again then.
    pub period: Duration,
}

/// What the room remembers from one round to the next.
#[derive(Default)]
struct Memory {
    register: observe::Register,
    deletions: Deletions,
    news: News<NodeName>,
    failures: News<NodeName>,
}

/// Sees to the Nodes until the future is dropped. Each write is complete in itself, so the future
/// may be dropped at any time.
pub async fn run(mut context: Context) {
    let mut memory = Memory::default();
    context.nodes.synced().await;
    if context.inventory.wait_for(|state| state.is_read()).await.is_err() {
        // The process is ending.
        std::future::pending::<()>().await;
    }
    loop {
        let observed = observe::observe(&mut context, &mut memory);
        let plan = plan::plan(&observed);
        context.metrics.show(&plan);
        carry_out(&context, &observed, plan, &mut memory).await;
        clock::until(Some(clock::now() + context.period)).await;
    }
}

async fn carry_out(context: &Context, observed: &Observed, plan: Plan, memory: &mut Memory) {
    let Plan { actions, notes } = plan;
    for (name, note) in memory.news.of(&notes) {
        tell(context, observed, &name, note);
    }
    let mut failures = BTreeMap::new();
    for (name, result) in apply::apply(&context.client, observed, &actions).await {
        let (Some(node), Some(action)) = (observed.nodes.get(&name), actions.get(&name)) else { continue };
        // What was not answered may have happened all the same: that counts as well.
        let may_be_gone = *action == Action::Delete && !matches!(result, Err(WriteError::Conflict | WriteError::Gone));
        if may_be_gone && !plan::is_acknowledged(&node.view) {
            memory.deletions.remember(node.view.uid.clone(), clock::now());
        }
        match (result, action) {
            (Ok(()), Action::Delete) => drop(context.metrics.deleted_nodes.inc()),
            (Ok(()), Action::WriteTaints(_)) => info!(node = %name, "shutdown taint changed"),
            (Err(error @ (WriteError::Conflict | WriteError::Gone)), _) => {
                debug!(node = %name, error = %Told(&error), "not written");
            }
            (Err(error), Action::WriteTaints(_)) => {
                let error = Told(&error);
                warn!(node = %name, %error, "cannot write the node's taints; trying again");
            }
            (Err(error), Action::Delete) => {
                failures.insert(name.clone(), Note::NodeDeleteFailed { node: name, error: Told(&error).to_string() });
            }
        }
    }
    for (name, note) in memory.failures.of(&failures) {
        tell(context, observed, &name, note);
    }
}

fn tell(context: &Context, observed: &Observed, name: &NodeName, note: Note) {
    match (&note, note.severity()) {
        (Note::NodeDeleting { .. }, _) => info!(node = %name, "deleting the node: its machine was decommissioned"),
        (Note::NodeDeleteFailed { error, .. }, _) => warn!(node = %name, error, "cannot delete the node; trying again"),
        (_, Severity::Normal) => info!(node = %name, reason = note.reason(), "node left as it is"),
        (_, Severity::Warning) => warn!(node = %name, reason = note.reason(), error = %note, "node left as it is"),
    }
    if let Some(node) = observed.nodes.get(name) {
        context.events.tell(about_node(&node.view), note);
    }
}
