//! What the room remembers, what it has still to write, and which writes are on their way.
//!
//! Writes flow: an object has at most one on its way, and what is planned for it meanwhile waits for
//! the answer. A plan that is made anew takes the place of the one before it, also in the queue.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tracing::{debug, info, warn};

use super::metrics::{Outcome, Round, Trigger};
use super::plan::{self, ConditionWrite, ObservedRoute, Plan, Planner, RouteAction};
use super::spec::Responsibility;
use super::{Context, apply, observe};
use crate::cluster::backoff::Backoff;
use crate::cluster::clock;
use crate::cluster::events::{News, about_node};
use crate::cluster::patch::WriteError;
use crate::cluster::queue::Queue;
use crate::cluster::told::Told;
use crate::cluster::traffic::IN_FLIGHT;
use crate::cluster::written::Written;
use crate::model::views::{NodeView, Truth};
use crate::model::{Moment, NodeName, Note, Severity};

/// What a write is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    // First of the two, but they do not wait for each other.
    Condition(NodeName),
    Route(NodeName),
}

impl Object {
    fn node(&self) -> &NodeName {
        match self {
            Self::Route(name) | Self::Condition(name) => name,
        }
    }
}

/// A write that was answered.
pub(super) enum Answered {
    /// The `NodeRoute` as it is now; none when it was deleted.
    Route(NodeName, Result<Option<ObservedRoute>, WriteError>),
    /// The Node as it is now.
    Condition(NodeName, Box<Result<NodeView, WriteError>>),
}

/// The writes of one kind of object.
struct Writes<A> {
    /// What is wanted of each, if its turn comes.
    wanted: BTreeMap<NodeName, A>,
    queue: Queue<NodeName>,
    on_their_way: FuturesUnordered<BoxFuture<'static, Answered>>,
}

impl<A> Default for Writes<A> {
    fn default() -> Self {
        Self { wanted: BTreeMap::new(), queue: Queue::default(), on_their_way: FuturesUnordered::new() }
    }
}

impl<A> Writes<A> {
    /// This is wanted of an object now, whatever was before.
    fn want(&mut self, name: NodeName, action: Option<A>) {
        match action {
            Some(action) => {
                self.wanted.insert(name.clone(), action);
                self.queue.add(name);
            }
            None => drop(self.wanted.remove(&name)),
        }
    }

    /// The next object whose turn it is, while there is room.
    fn next(&mut self) -> Option<(NodeName, A)> {
        while self.on_their_way.len() < IN_FLIGHT {
            let name = self.queue.take(1).pop()?;
            match self.wanted.remove(&name) {
                Some(action) => return Some((name, action)),
                None => self.queue.done(&name),
            }
        }
        None
    }
}

/// The room's memory from one signal to the next.
pub(super) struct Work {
    pub(super) planner: Planner,
    nodes: Written<NodeName, NodeView>,
    routes: Written<NodeName, ObservedRoute>,
    route_writes: Writes<RouteAction>,
    condition_writes: Writes<ConditionWrite>,
    backoff: Backoff<Object>,
    /// What was told of each Node.
    told: BTreeMap<NodeName, Vec<Note>>,
    failures: News<NodeName>,
    /// Whether a write has failed since the last round.
    has_failed: bool,
}

impl Work {
    /// Nothing is known yet.
    pub(super) fn new(responsibility: Responsibility, seed: u64) -> Self {
        Self {
            planner: Planner::new(responsibility),
            nodes: Written::new(|view| &view.resource_version),
            routes: Written::new(|route| &route.resource_version),
            route_writes: Writes::default(),
            condition_writes: Writes::default(),
            backoff: Backoff::new(seed),
            told: BTreeMap::new(),
            failures: News::default(),
            has_failed: false,
        }
    }

    /// When something is due although nothing changes.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.backoff.deadline().into_iter().chain(self.planner.deadline()).min()
    }

    /// Waits for the next answer to a write; for ever when none is on its way. Cancel-safe.
    pub(super) async fn answered(&mut self) -> Answered {
        tokio::select! {
            Some(answered) = self.condition_writes.on_their_way.next() => answered,
            Some(answered) = self.route_writes.on_their_way.next() => answered,
            else => std::future::pending().await,
        }
    }

    /// Plans for the Nodes that something has changed about, and begins what may be written.
    pub(super) fn round(&mut self, context: &mut Context, trigger: Trigger) {
        observe::observe(context, &mut self.planner, &mut self.nodes, &mut self.routes);
        let now = clock::now();
        for object in self.backoff.take_due(now) {
            self.planner.stir(object.node());
        }
        let plan = self.planner.plan(now);
        let is_round = trigger == Trigger::Periodic || !plan.looked_at.is_empty();
        self.tell(context, &plan);
        self.want(plan);
        let has_begun = self.begin(context);
        let outcome = match (std::mem::take(&mut self.has_failed), has_begun) {
            (true, _) => Outcome::Error,
            (false, true) => Outcome::Changed,
            (false, false) => Outcome::Noop,
        };
        if is_round || outcome == Outcome::Error {
            context.metrics.ended(Round { trigger, outcome }, &self.planner);
        }
    }

    /// Puts what was planned in the place of what was planned before.
    fn want(&mut self, plan: Plan) {
        let Plan { looked_at, mut routes, mut conditions } = plan;
        for name in looked_at {
            let (route, condition) = (routes.remove(&name), conditions.remove(&name));
            // What needs nothing any more has no failures either.
            if route.is_none() {
                self.backoff.succeeded(&Object::Route(name.clone()));
            }
            if condition.is_none() {
                self.backoff.succeeded(&Object::Condition(name.clone()));
            }
            self.route_writes.want(name.clone(), route);
            self.condition_writes.want(name, condition);
        }
        // Nodes that turn because the brake lets go.
        for (name, condition) in conditions {
            self.condition_writes.want(name, Some(condition));
        }
    }

    /// Begins the writes whose turn it is; whether there was one.
    fn begin(&mut self, context: &Context) -> bool {
        let now = clock::now();
        let mut has_begun = false;
        while let Some((name, write)) = self.condition_writes.next() {
            if !self.backoff.is_due(&Object::Condition(name.clone()), now) {
                self.condition_writes.queue.done(&name);
                continue;
            }
            let client = context.client.clone();
            let write = async move {
                let result = apply::condition(client, &name, &write).await;
                Answered::Condition(name, Box::new(result))
            };
            self.condition_writes.on_their_way.push(write.boxed());
            has_begun = true;
        }
        while let Some((name, action)) = self.route_writes.next() {
            if !self.backoff.is_due(&Object::Route(name.clone()), now) {
                self.route_writes.queue.done(&name);
                continue;
            }
            let client = context.patient.clone();
            let is_there = self.planner.observed().node_routes.contains_key(&name);
            let write =
                async move { Answered::Route(name.clone(), apply::route(client, &name, &action, is_there).await) };
            self.route_writes.on_their_way.push(write.boxed());
            has_begun = true;
        }
        has_begun
    }

    /// Takes note of how a write went.
    pub(super) fn finish(&mut self, context: &Context, answered: Answered) {
        match answered {
            Answered::Route(name, result) => {
                self.route_writes.queue.done(&name);
                self.tell_failure(context, &name, result.as_ref().err());
                match self.settle(Object::Route(name.clone()), result) {
                    Some(Some(route)) => {
                        self.routes.remember(name.clone(), route.clone());
                        self.planner.route(&name, Some(route.into()));
                    }
                    Some(None) => self.planner.route(&name, None),
                    None => {}
                }
            }
            Answered::Condition(name, result) => {
                self.condition_writes.queue.done(&name);
                let Some(view) = self.settle(Object::Condition(name.clone()), *result) else { return };
                match &view.network_unavailable {
                    Some(known) if known.status == Truth::True => {
                        warn!(node = %name, error = known.message, "no route")
                    }
                    _ => info!(node = %name, "routes are in place"),
                }
                self.nodes.remember(name.clone(), view.clone());
                self.planner.node(&name, Some(view.into()));
            }
        }
    }

    /// Notes whether a write went well.
    fn settle<V>(&mut self, object: Object, result: Result<V, WriteError>) -> Option<V> {
        let error = match result {
            Ok(written) => {
                self.backoff.succeeded(&object);
                return Some(written);
            }
            Err(error) => error,
        };
        let cause = Told(&error);
        match (&error, &object) {
            (WriteError::Conflict | WriteError::Gone, _) => debug!(?object, error = %cause, "not written"),
            (_, Object::Route(name)) => {
                warn!(node = %name, error = %cause, "cannot write the node route; trying again")
            }
            (_, Object::Condition(name)) => {
                warn!(node = %name, error = %cause, "cannot write the condition; trying again");
            }
        }
        self.has_failed |= error.is_failure();
        self.backoff.not_written(object, &error, clock::now());
        None
    }

    /// Tells what the API server refused, once.
    fn tell_failure(&mut self, context: &Context, name: &NodeName, error: Option<&WriteError>) {
        let node = self.planner.observed().nodes.get(name).cloned();
        let note = match (error, node) {
            (Some(error @ WriteError::Refused(_)), Some(node)) => Some(plan::not_created(&node, &Told(error))),
            _ => None,
        };
        if self.failures.is_new(name, note.as_ref()) {
            note.into_iter().for_each(|note| self.tell_of(context, name, note));
        }
    }

    /// Tells what is new about the Nodes that were looked at, or that the brake is about.
    fn tell(&mut self, context: &Context, plan: &Plan) {
        let names: Vec<_> = plan.looked_at.iter().chain(self.planner.wanting()).cloned().collect();
        for name in names {
            let notes: Vec<_> = self.planner.notes_of(&name).cloned().collect();
            let before = match notes.is_empty() {
                true => self.told.remove(&name),
                false => self.told.insert(name.clone(), notes.clone()),
            };
            let before = before.unwrap_or_default();
            for note in notes.into_iter().filter(|note| !before.contains(note)) {
                if note.severity() == Severity::Warning && !matches!(note, Note::RouteNotCreated { .. }) {
                    warn!(node = %name, reason = note.reason(), error = %note, "not as it should be");
                }
                self.tell_of(context, &name, note);
            }
        }
    }

    fn tell_of(&self, context: &Context, name: &NodeName, note: Note) {
        if let Some(node) = self.planner.observed().nodes.get(name) {
            context.events.tell(about_node(node), note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NodeName {
        text.parse().expect("a name")
    }

    #[test]
    fn the_newest_wish_is_written_once_and_none_while_one_is_on_its_way() {
        let mut writes = Writes::default();
        writes.want(name("a"), Some(1));
        writes.want(name("b"), Some(1));
        writes.want(name("a"), Some(2));
        assert_eq!(writes.next(), Some((name("a"), 2)));
        writes.want(name("a"), Some(3));
        writes.want(name("b"), None);
        assert_eq!(writes.next(), None, "one is on its way to a, and b needs nothing any more");
        writes.queue.done(&name("a"));
        assert_eq!(writes.next(), Some((name("a"), 3)));
        writes.want(name("a"), Some(4));
        writes.want(name("a"), None);
        writes.queue.done(&name("a"));
        assert_eq!(writes.next(), None, "what came of the write was enough");
        writes.want(name("b"), Some(5));
        assert_eq!(writes.next(), Some((name("b"), 5)));
    }
}
