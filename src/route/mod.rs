//! Routes: what agents need to know to reach the pods of other nodes, and whether they do reach them.
//!
//! The leader writes one `NodeRoute` for each Node. Agents make kernel routes of them and say so in
//! their `NodeReport`s; when a node's own agent and a majority of its witnesses agree, the Node's
//! condition `NetworkUnavailable` becomes False.
//!
//! It never touches a kernel, never deletes a `NodeRoute` whose Node is there, and never takes
//! silence for an answer. What a Node costs does not depend on how many others there are.
//!
//! Start at [`plan`](plan::Planner): [`spec`] says how a node is reached, [`witnesses`] who is asked
//! about it, [`evidence`] what the answers are, [`case`] what follows from them for one Node, and
//! [`brake`] when it is too much at once; [`network`] has the words.

mod apply;
pub mod brake;
pub mod case;
#[cfg(test)]
mod cases;
pub mod evidence;
pub mod forecast;
pub mod metrics;
pub mod network;
mod observe;
pub mod plan;
pub mod spec;
mod view;
pub mod witnesses;
mod work;

use std::time::Duration;

use kube::Client;

use crate::api::NodeReportStatus;
use crate::cluster::clock;
use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::model::views::NodeView;
use metrics::{Metrics, Trigger};
use plan::ObservedRoute;
use spec::Responsibility;
use work::Work;

pub use view::{report, route};

/// Source of this room's Events, as upstream's controller names itself.
pub const REPORTER: &str = "route_controller";

/// What the room works with.
pub struct Context {
    /// The way to the API server for conditions.
    pub client: Client,
    /// The way for `NodeRoute`s, whose writes let others go first for a while: a Node that waits for its
    /// initialization runs nothing yet, one that waits for its routes does.
    pub patient: Client,
    /// Every Node.
    pub nodes: Store<NodeView>,
    /// Every `NodeRoute`; [`route`] makes the view.
    pub routes: Store<ObservedRoute>,
    /// Every `NodeReport`; [`report`] makes the view.
    pub reports: Store<NodeReportStatus>,
    /// Which routes are ours to see to.
    pub responsibility: Responsibility,
    /// Where to tell what is wrong.
    pub events: Events,
    /// Where to count.
    pub metrics: Metrics,
    /// How often everything is looked at without a signal.
    pub period: Duration,
}

/// Sees to the routes until the future is dropped. Each write is complete in itself, so the future
/// may be dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    let mut work = Work::new(context.responsibility.clone(), seed);
    context.nodes.synced().await;
    context.routes.synced().await;
    // Nobody is judged by the reports that happen to have arrived.
    context.reports.synced().await;
    let mut period_ends = clock::now() + context.period;
    let mut trigger = Trigger::NodeChange;
    loop {
        work.round(&mut context, trigger);
        let deadline = work.deadline().map_or(period_ends, |due| due.min(period_ends));
        trigger = Trigger::NodeChange;
        tokio::select! {
            answered = work.answered() => work.finish(&context, answered),
            () = context.nodes.changed() => {}
            () = context.routes.changed() => {}
            () = context.reports.changed() => {}
            () = clock::until(Some(deadline)) => {}
        }
        if clock::now() >= period_ends {
            trigger = Trigger::Periodic;
            period_ends = clock::now() + context.period;
            work.planner.look_at_all();
        }
    }
}
