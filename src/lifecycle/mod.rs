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

use crate::cluster::backoff::Backoff;
use crate::cluster::clock;
use crate::cluster::events::{Events, News, about_node};
use crate::cluster::patch::WriteError;
use crate::cluster::store::Store;
use crate::cluster::told::Told;
use crate::inventory::InventoryState;
use crate::model::views::NodeView;
use crate::model::{Moment, NodeName, Note, Severity};
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
    /// How often the Nodes are looked at; more than zero. What failed is tried again then, what somebody
    /// else was first at sooner.
    pub period: Duration,
}

/// What the room remembers from one round to the next.
struct Memory {
    register: observe::Register,
    deletions: Deletions,
    conflicts: Backoff<NodeName>,
    news: News<NodeName>,
    failures: News<NodeName>,
}

impl Memory {
    fn new(seed: u64) -> Self {
        Self {
            register: observe::Register::default(),
            deletions: Deletions::default(),
            conflicts: Backoff::new(seed),
            news: News::default(),
            failures: News::default(),
        }
    }

    /// Takes note of what is tried now.
    fn begin(&mut self, actions: &BTreeMap<NodeName, Action>, now: Moment) {
        self.conflicts.keep_only(|name| actions.contains_key(name));
        // Whoever waits is tried with the rest.
        drop(self.conflicts.take_due(now));
    }

    /// Takes note of how a write went.
    fn settle(&mut self, view: &NodeView, action: &Action, result: &Result<(), WriteError>, now: Moment) {
        // What was not answered may have happened all the same: that counts as well.
        let may_be_gone = *action == Action::Delete && !matches!(result, Err(WriteError::Conflict | WriteError::Gone));
        if may_be_gone && !plan::is_acknowledged(view) {
            self.deletions.remember(view.uid.clone(), now);
        }
        match result {
            Err(error @ WriteError::Conflict) => self.conflicts.not_written(view.name.clone(), error, now),
            _ => self.conflicts.succeeded(&view.name),
        }
    }

    /// When the Nodes are looked at again.
    fn next_look(&self, period_ends: Moment) -> Moment {
        self.conflicts.deadline().map_or(period_ends, |retry| retry.min(period_ends))
    }
}

/// Sees to the Nodes until the future is dropped. Each write is complete in itself, so the future
/// may be dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    let mut memory = Memory::new(seed);
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
        clock::until(Some(memory.next_look(clock::now() + context.period))).await;
    }
}

async fn carry_out(context: &Context, observed: &Observed, plan: Plan, memory: &mut Memory) {
    let Plan { actions, notes } = plan;
    for (name, note) in memory.news.of(&notes) {
        tell(context, observed, &name, note);
    }
    memory.begin(&actions, clock::now());
    let mut failures = BTreeMap::new();
    for (name, result) in apply::apply(&context.client, observed, &actions).await {
        let (Some(node), Some(action)) = (observed.nodes.get(&name), actions.get(&name)) else { continue };
        memory.settle(&node.view, action, &result, clock::now());
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

#[cfg(test)]
mod tests {
    use super::*;
    use plan::tests::node;

    #[test]
    fn what_somebody_else_was_first_at_is_tried_again_at_once_and_what_failed_after_a_period() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let refused = || WriteError::Refused(Box::new(kube::Error::LinesCodecMaxLineLengthExceeded));
        let view = node("n1");
        let delete = Action::Delete;
        for (name, result, is_soon, counts) in [
            ("deleted", Ok(()), false, true),
            ("the Node changed", Err(WriteError::Conflict), true, false),
            ("the Node is gone", Err(WriteError::Gone), false, false),
            ("refused", Err(refused()), false, true),
            ("no answer", Err(WriteError::TimedOut), false, true),
        ] {
            let mut memory = Memory::new(1);
            let actions = BTreeMap::from([(view.name.clone(), delete.clone())]);
            memory.begin(&actions, at(100));
            memory.settle(&view, &delete, &result, at(100));
            let next = memory.next_look(at(105));
            assert_eq!(next <= at(100) + Duration::from_millis(20), is_soon, "{name}");
            assert_eq!(!memory.deletions.recent(at(101)).is_empty(), counts, "{name}: counts against the brake");
            memory.begin(&actions, next);
            assert_eq!(memory.next_look(at(105)), at(105), "{name}: and then it waits for nothing");
        }
    }
}
