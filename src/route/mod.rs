//! Routes: what agents need to know to reach the pods of other nodes, and whether they do reach them.
//!
//! The leader writes one `NodeRoute` for each Node with pod CIDRs. Agents make kernel routes of them
//! and say so in their `NodeReport`s; when a node's own agent and its witnesses agree, the Node's
//! condition `NetworkUnavailable` becomes False.
//!
//! It never touches a kernel, never deletes a `NodeRoute` whose Node is there, and takes no report
//! for an answer that it is not. Start at [`plan`](plan::plan).

mod apply;
mod observe;
pub mod plan;
pub mod witnesses;

use std::time::Duration;

use kube::Client;
use tracing::{debug, info, warn};

use crate::api::NodeReportStatus;
use crate::cluster::backoff::Backoff;
use crate::cluster::clock;
use crate::cluster::patch::WriteError;
use crate::cluster::store::Store;
use crate::cluster::told::Told;
use crate::cluster::written::Written;
use crate::model::NodeName;
use crate::model::views::NodeView;
use plan::{Network, ObservedRoute, Plan};

pub use observe::{report, route};

/// What the room works with.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// Every Node.
    pub nodes: Store<NodeView>,
    /// Every `NodeRoute`; [`route`] makes the view.
    pub routes: Store<ObservedRoute>,
    /// Every `NodeReport`; [`report`] makes the view.
    pub reports: Store<NodeReportStatus>,
    /// How often everything is looked at without a signal.
    pub period: Duration,
}

/// What the room remembers from one round to the next.
struct Memory {
    nodes: Written<NodeName, NodeView>,
    routes: Written<NodeName, ObservedRoute>,
    backoff: Backoff<Object>,
}

/// What a write is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Route(NodeName),
    Condition(NodeName),
}

/// Sees to the routes until the future is dropped. Each write is complete in itself, so the future
/// may be dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    let mut memory = Memory {
        nodes: Written::new(|view| &view.resource_version),
        routes: Written::new(|route| &route.resource_version),
        backoff: Backoff::new(seed),
    };
    context.nodes.synced().await;
    context.routes.synced().await;
    loop {
        let plan = plan::plan(&observe::observe(&context, &mut memory));
        carry_out(&context, plan, &mut memory).await;
        let period_ends = clock::now() + context.period;
        let deadline = memory.backoff.deadline().map_or(period_ends, |retry| retry.min(period_ends));
        tokio::select! {
            () = context.nodes.changed() => {}
            () = context.routes.changed() => {}
            () = context.reports.changed() => {}
            () = clock::until(Some(deadline)) => {}
        }
    }
}

async fn carry_out(context: &Context, plan: Plan, memory: &mut Memory) {
    let Plan { mut routes, mut conditions } = plan;
    let now = clock::now();
    memory.backoff.keep_only(|object| match object {
        Object::Route(name) => routes.contains_key(name),
        Object::Condition(name) => conditions.contains_key(name),
    });
    routes.retain(|name, _| memory.backoff.is_due(&Object::Route(name.clone()), now));
    conditions.retain(|name, _| memory.backoff.is_due(&Object::Condition(name.clone()), now));
    for (name, result) in apply::routes(&context.client, &routes).await {
        if let Some(Some(route)) = settle(memory, Object::Route(name.clone()), result) {
            memory.routes.remember(name, route);
        }
    }
    for (name, result) in apply::conditions(&context.client, &conditions).await {
        if let Some(view) = settle(memory, Object::Condition(name.clone()), result) {
            match conditions.get(&name) {
                Some(Network::NotRouted) => warn!(node = %name, "some node has no route to this node's pods"),
                _ => info!(node = %name, "routes are in place"),
            }
            memory.nodes.remember(name, view);
        }
    }
}

/// Notes whether a write went well.
fn settle<V>(memory: &mut Memory, object: Object, result: Result<V, WriteError>) -> Option<V> {
    let error = match result {
        Ok(written) => {
            memory.backoff.succeeded(&object);
            return Some(written);
        }
        Err(error) => error,
    };
    let cause = Told(&error);
    match (&error, &object) {
        (WriteError::Conflict | WriteError::Gone, _) => debug!(?object, error = %cause, "not written"),
        (_, Object::Route(name)) => warn!(node = %name, error = %cause, "cannot write the node route; trying again"),
        (_, Object::Condition(name)) => warn!(node = %name, error = %cause, "cannot write the condition; trying again"),
    }
    memory.backoff.failed(object, clock::now());
    None
}
