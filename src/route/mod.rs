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
pub mod witnesses;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use tracing::{debug, info, warn};

use crate::api::NodeReportStatus;
use crate::cluster::backoff::Backoff;
use crate::cluster::clock;
use crate::cluster::events::{Events, News, about_node};
use crate::cluster::patch::WriteError;
use crate::cluster::store::Store;
use crate::cluster::told::Told;
use crate::cluster::written::Written;
use crate::model::views::{NodeView, Truth};
use crate::model::{Moment, NodeName, Note, Severity};
use metrics::{Metrics, Outcome, Round, Trigger};
use plan::{About, ObservedRoute, Plan, Planner};
use spec::Responsibility;

pub use observe::{report, route};

/// Source of this room's Events, as upstream's controller names itself.
pub const REPORTER: &str = "route_controller";

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
    /// Which routes are ours to see to.
    pub responsibility: Responsibility,
    /// Where to tell what is wrong.
    pub events: Events,
    /// Where to count.
    pub metrics: Metrics,
    /// How often everything is looked at without a signal.
    pub period: Duration,
}

/// What the room remembers from one round to the next.
struct Memory {
    planner: Planner,
    nodes: Written<NodeName, NodeView>,
    routes: Written<NodeName, ObservedRoute>,
    backoff: Backoff<Object>,
    /// What was not written, and has to be planned again when its time comes.
    failed: BTreeSet<Object>,
    news: News<About>,
    failures: News<NodeName>,
}

/// What a write is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Route(NodeName),
    Condition(NodeName),
}

impl Object {
    fn node(&self) -> &NodeName {
        match self {
            Self::Route(name) | Self::Condition(name) => name,
        }
    }
}

/// Sees to the routes until the future is dropped. Each write is complete in itself, so the future
/// may be dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    let mut memory = Memory {
        planner: Planner::new(context.responsibility.clone()),
        nodes: Written::new(|view| &view.resource_version),
        routes: Written::new(|route| &route.resource_version),
        backoff: Backoff::new(seed),
        failed: BTreeSet::new(),
        news: News::default(),
        failures: News::default(),
    };
    context.nodes.synced().await;
    context.routes.synced().await;
    // Nobody is judged by the reports that happen to have arrived.
    context.reports.synced().await;
    let mut period_ends = clock::now() + context.period;
    let mut trigger = Trigger::NodeChange;
    loop {
        observe::observe(&mut context, &mut memory);
        memory.try_again();
        let plan = memory.planner.plan(clock::now());
        let outcome = carry_out(&context, plan, &mut memory).await;
        context.metrics.ended(Round { trigger, outcome }, &memory.planner);
        let deadlines = [memory.backoff.deadline(), memory.planner.deadline(), Some(period_ends)];
        trigger = Trigger::NodeChange;
        tokio::select! {
            () = context.nodes.changed() => {}
            () = context.routes.changed() => {}
            () = context.reports.changed() => {}
            () = clock::until(deadlines.into_iter().flatten().min()) => {}
        }
        if clock::now() >= period_ends {
            trigger = Trigger::Periodic;
            period_ends = clock::now() + context.period;
            memory.planner.look_at_all();
        }
    }
}

impl Memory {
    /// Has the planner look again at what was not written and may be tried now.
    fn try_again(&mut self) {
        let now = clock::now();
        let due: Vec<_> = self.failed.iter().filter(|object| self.backoff.is_due(object, now)).cloned().collect();
        for object in due {
            self.planner.stir(object.node());
            self.failed.remove(&object);
        }
    }
}

async fn carry_out(context: &Context, plan: Plan, memory: &mut Memory) -> Outcome {
    tell(context, memory);
    let Plan { looked_at, mut routes, mut conditions } = plan;
    let now = clock::now();
    // What was looked at and needs nothing any more has no failures either.
    memory.backoff.keep_only(|object| match object {
        Object::Route(name) => !looked_at.contains(name) || routes.contains_key(name),
        Object::Condition(name) => !looked_at.contains(name) || conditions.contains_key(name),
    });
    routes.retain(|name, _| memory.may_write(Object::Route(name.clone()), now));
    conditions.retain(|name, _| memory.may_write(Object::Condition(name.clone()), now));
    let mut outcome = if routes.is_empty() && conditions.is_empty() { Outcome::Noop } else { Outcome::Changed };
    let mut failures = BTreeMap::new();
    for (name, result) in apply::routes(&context.client, &routes).await {
        if let (Err(error @ WriteError::Refused(_)), Some(node)) = (&result, memory.planner.observed().nodes.get(&name))
        {
            failures.insert(name.clone(), plan::not_created(node, &Told(error)));
        }
        match settle(memory, Object::Route(name.clone()), result) {
            Some(Some(route)) => {
                memory.routes.remember(name.clone(), route.clone());
                memory.planner.route(&name, Some(route.into()));
            }
            Some(None) => memory.planner.route(&name, None),
            None => outcome = Outcome::Error,
        }
    }
    for (name, note) in memory.failures.of(&failures) {
        tell_of(context, memory, &name, note);
    }
    for (name, result) in apply::conditions(&context.client, &conditions).await {
        let Some(view) = settle(memory, Object::Condition(name.clone()), result) else {
            outcome = Outcome::Error;
            continue;
        };
        match &view.network_unavailable {
            Some(known) if known.status == Truth::True => warn!(node = %name, error = known.message, "no route"),
            _ => info!(node = %name, "routes are in place"),
        }
        memory.nodes.remember(name.clone(), view.clone());
        memory.planner.node(&name, Some(view.into()));
    }
    outcome
}

impl Memory {
    fn may_write(&mut self, object: Object, now: Moment) -> bool {
        let is_due = self.backoff.is_due(&object, now);
        if !is_due {
            self.failed.insert(object);
        }
        is_due
    }
}

fn tell(context: &Context, memory: &mut Memory) {
    for ((name, _), note) in memory.news.of(memory.planner.notes()) {
        if note.severity() == Severity::Warning && !matches!(note, Note::RouteNotCreated { .. }) {
            warn!(node = %name, reason = note.reason(), error = %note, "not as it should be");
        }
        tell_of(context, memory, &name, note);
    }
}

fn tell_of(context: &Context, memory: &Memory, name: &NodeName, note: Note) {
    if let Some(node) = memory.planner.observed().nodes.get(name) {
        context.events.tell(about_node(node), note);
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
    memory.backoff.failed(object.clone(), clock::now());
    memory.failed.insert(object);
    None
}
