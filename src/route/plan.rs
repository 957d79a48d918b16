//! What to write for each Node's routes: pure, and only of those that something has changed about.
//!
//! [`Planner`] is told what came, changed or went, and plans those Nodes anew that this can matter
//! to: the Node itself, those that it is a witness of, those that lack witnesses. So a Node that
//! joins ten thousand others costs what it costs among ten. Whatever was planned and not carried
//! out is planned again when its Node is looked at again; [`Planner::look_at_all`] looks at each.

mod condition;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::brake::Brake;
use super::case::{Case, Decision, GRACE, Scene};
use super::evidence::{self, Answer};
use super::network::Lack;
use super::spec::{self, Responsibility};
use super::witnesses::Candidates;
use crate::api::{NodeReportStatus, NodeRouteSpec};
use crate::model::views::{NodeView, Truth};
use crate::model::{Moment, NodeName, Note};

pub use condition::{ConditionWrite, not_created};

/// Everything the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Observed {
    /// Every Node.
    pub nodes: BTreeMap<NodeName, Arc<NodeView>>,
    /// Every `NodeRoute`.
    pub node_routes: BTreeMap<NodeName, Arc<ObservedRoute>>,
    /// Every `NodeReport`.
    pub node_reports: BTreeMap<NodeName, Arc<NodeReportStatus>>,
}

/// A `NodeRoute` as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedRoute {
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// The uid of the Node it belongs to, by its owner reference.
    pub owner_uid: Option<String>,
    /// What it says.
    pub spec: NodeRouteSpec,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// The Nodes that were looked at.
    pub looked_at: BTreeSet<NodeName>,
    /// At most one action a `NodeRoute`.
    pub routes: BTreeMap<NodeName, RouteAction>,
    /// The Nodes whose condition `NetworkUnavailable` has to change.
    pub conditions: BTreeMap<NodeName, ConditionWrite>,
}

/// What to do with one `NodeRoute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum RouteAction {
    /// Create it, or make it say this.
    Write {
        /// The uid of the Node that owns it.
        owner_uid: String,
        /// What it is to say.
        spec: NodeRouteSpec,
    },
    /// Delete it: its Node is gone.
    Delete,
}

/// What a note is about: a Node may have one of each kind.
pub type About = (NodeName, &'static str);

/// What is remembered of one Node.
#[derive(Debug, Clone, Default)]
struct Memory {
    case: Case,
    /// `metadata.uid` of the Node that this is about.
    uid: String,
    /// Since when it can be reached, and whether there are routes to it that we see to.
    since: Option<(bool, Moment)>,
    /// When its condition was last to be written.
    worded: Option<Moment>,
    deadline: Option<Moment>,
    state: Option<State>,
}

/// Where a Node stands, for who counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Its pods can be reached.
    Routed,
    /// They cannot.
    NotRouted,
    /// Nobody can tell yet.
    Open,
}

/// Decides for each Node when something has changed about it.
#[derive(Debug, Clone, Default)]
pub struct Planner {
    responsibility: Responsibility,
    observed: Observed,
    candidates: Candidates,
    /// Whom each node is a witness of.
    witness_of: BTreeMap<NodeName, BTreeSet<NodeName>>,
    /// Nodes that would have more witnesses if there were more to choose from.
    short: BTreeSet<NodeName>,
    stirred: BTreeSet<NodeName>,
    memories: BTreeMap<NodeName, Memory>,
    deadlines: BTreeSet<(Moment, NodeName)>,
    /// Nodes that would turn to `NetworkUnavailable=True`.
    wanting: BTreeMap<NodeName, Lack>,
    brake: Brake,
    is_held: bool,
    notes: BTreeMap<About, Note>,
    states: BTreeMap<State, usize>,
}

impl Planner {
    /// One that knows nothing yet.
    pub fn new(responsibility: Responsibility) -> Self {
        Self { responsibility, ..Self::default() }
    }

    /// A Node is like this now; `None`: it is gone.
    pub fn node(&mut self, name: &NodeName, view: Option<Arc<NodeView>>) {
        let known = self.observed.nodes.get(name);
        let is_news = match (known, &view) {
            (Some(known), Some(view)) => !known.says_the_same(view),
            (known, view) => known.is_some() || view.is_some(),
        };
        put(&mut self.observed.nodes, name, view);
        if is_news {
            self.stirred.insert(name.clone());
            self.consider(name);
        }
    }

    /// A `NodeRoute` is like this now; `None`: it is gone.
    pub fn route(&mut self, name: &NodeName, route: Option<Arc<ObservedRoute>>) {
        if self.observed.node_routes.get(name) == route.as_ref() {
            return;
        }
        for witness in self.witnesses(name) {
            if let Some(of) = self.witness_of.get_mut(&witness) {
                of.remove(name);
            }
        }
        put(&mut self.observed.node_routes, name, route);
        for witness in self.witnesses(name) {
            self.witness_of.entry(witness).or_default().insert(name.clone());
        }
        self.stirred.insert(name.clone());
    }

    /// A node's report is like this now; `None`: it is gone, or was never there.
    pub fn report(&mut self, name: &NodeName, report: Option<Arc<NodeReportStatus>>) {
        if self.observed.node_reports.get(name) == report.as_ref() {
            return;
        }
        put(&mut self.observed.node_reports, name, report);
        self.stirred.insert(name.clone());
        self.stir_those_it_is_a_witness_of(name);
        self.consider(name);
    }

    /// Has this Node looked at again.
    pub fn stir(&mut self, name: &NodeName) {
        self.stirred.insert(name.clone());
    }

    /// Has everything looked at again.
    pub fn look_at_all(&mut self) {
        let names: BTreeSet<_> = self.observed.nodes.keys().chain(self.observed.node_routes.keys()).cloned().collect();
        names.iter().for_each(|name| self.consider(name));
        self.stirred.extend(names);
    }

    /// What is known.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// What there is to be told, of all Nodes.
    pub fn notes(&self) -> &BTreeMap<About, Note> {
        &self.notes
    }

    /// What there is to be told of one Node.
    pub fn notes_of<'a>(&'a self, name: &'a NodeName) -> impl Iterator<Item = &'a Note> {
        let from = self.notes.range((name.clone(), "")..);
        from.take_while(move |((of, _), _)| of == name).map(|(_, note)| note)
    }

    /// The Nodes that would turn to `NetworkUnavailable=True`.
    pub fn wanting(&self) -> impl Iterator<Item = &NodeName> {
        self.wanting.keys()
    }

    /// How many Nodes there are of each state.
    pub fn states(&self) -> impl Iterator<Item = (State, usize)> + '_ {
        let all = [State::Routed, State::NotRouted, State::Open];
        all.into_iter().map(|state| (state, self.states.get(&state).copied().unwrap_or_default()))
    }

    /// Whether the brake holds.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// When to plan again although nothing changes.
    pub fn deadline(&self) -> Option<Moment> {
        let forgotten = self.brake.deadline().filter(|_| self.is_held);
        self.deadlines.first().map(|(due, _)| *due).into_iter().chain(forgotten).min()
    }

    /// Decides for the Nodes that something has changed about, or whose time has come.
    ///
    /// The caller asks only once it knows every Node and every `NodeRoute`: a `NodeRoute` whose Node
    /// is not there is deleted.
    pub fn plan(&mut self, now: Moment) -> Plan {
        let mut looked_at = std::mem::take(&mut self.stirred);
        let due = self.deadlines.iter().take_while(|(due, _)| *due <= now).map(|(_, name)| name.clone());
        looked_at.extend(due);
        let mut plan = Plan::default();
        for name in &looked_at {
            match self.observed.nodes.get(name).cloned() {
                Some(node) => self.look_at(&node, now, &mut plan),
                None => self.part_with(name, &mut plan),
            }
        }
        self.turn(now, &mut plan);
        plan.looked_at = looked_at;
        plan
    }

    fn part_with(&mut self, name: &NodeName, plan: &mut Plan) {
        if self.observed.node_routes.contains_key(name) {
            plan.routes.insert(name.clone(), RouteAction::Delete);
        }
        self.forget(name);
        let gone = self.memories.remove(name).unwrap_or_default();
        self.count(gone.state, None);
        if let Some(deadline) = gone.deadline {
            self.deadlines.remove(&(deadline, name.clone()));
        }
    }

    fn look_at(&mut self, node: &NodeView, now: Moment, plan: &mut Plan) {
        let name = &node.name;
        let mut memory = self.memories.remove(name).unwrap_or_default();
        let before = (memory.deadline.take(), memory.state.take());
        if let Some(deadline) = before.0 {
            self.deadlines.remove(&(deadline, name.clone()));
        }
        if memory.uid != node.uid {
            memory = Memory { uid: node.uid.clone(), ..Memory::default() };
        }
        self.forget(name);
        self.decide(node, &mut memory, now, plan);
        self.count(before.1, memory.state);
        if let Some(deadline) = memory.deadline {
            self.deadlines.insert((deadline, name.clone()));
        }
        self.memories.insert(name.clone(), memory);
    }

    /// Forgets what the last look at a Node led to.
    fn forget(&mut self, name: &NodeName) {
        self.wanting.remove(name);
        self.short.remove(name);
        let first = (name.clone(), "");
        while let Some((about, _)) = self.notes.range(first.clone()..).next().filter(|((of, _), _)| of == name) {
            let about = about.clone();
            self.notes.remove(&about);
        }
    }

    fn decide(&mut self, node: &NodeView, memory: &mut Memory, now: Moment, plan: &mut Plan) {
        let name = &node.name;
        let known = self.observed.node_routes.get(name).cloned();
        let known_spec = known.as_ref().map(|route| &route.spec);
        let outside = node.pod_cidrs.iter().find(|cidr| !self.responsibility.covers(cidr));
        if let (Some(cidr), Responsibility::Within(_)) = (outside, &self.responsibility) {
            self.note(name, Note::PodCidrOutsideCluster { cidr: *cidr });
        }
        let Some(mut spec) = spec::spec(node, &self.responsibility, known_spec) else { return };
        let has_routes = self.has_routes(node);
        memory.since.take_if(|(had_routes, _)| *had_routes != has_routes);
        let (_, joined) = *memory.since.get_or_insert((has_routes, now));
        if has_routes {
            let decision = self.case(node, &spec, &mut memory.case, now);
            spec.witnesses = decision.witnesses.iter().map(ToString::to_string).collect();
            memory.deadline = decision.deadline;
            if decision.is_short {
                self.short.insert(name.clone());
            }
            self.condition(node, decision.verdict, memory, now, plan);
        } else if known.is_none() && now < joined + GRACE {
            // Its pod CIDRs may be about to come: one write is enough.
            memory.deadline = Some(joined + GRACE);
            return;
        }
        if known.is_none_or(|known| known.spec != spec || known.owner_uid.as_ref() != Some(&node.uid)) {
            plan.routes.insert(name.clone(), RouteAction::Write { owner_uid: node.uid.clone(), spec });
        }
    }

    fn case(&self, node: &NodeView, spec: &NodeRouteSpec, case: &mut Case, now: Moment) -> Decision {
        let digest = spec.digest();
        let nodes = self.observed.nodes.len();
        let report = |name: &NodeName| self.observed.node_reports.get(name).map(|report| &**report);
        let own = evidence::own_word(node, &digest, report(&node.name), nodes);
        let known = self.witnesses(&node.name);
        let is_new = !self.observed.node_routes.contains_key(&node.name);
        let has_many_candidates = 2 * self.candidates.len() >= nodes;
        let scene = Scene {
            node,
            digest: &digest,
            known: &known,
            draws: own.is_ok() || !known.is_empty() || (is_new && has_many_candidates),
            own,
            candidates: &self.candidates,
            answer: &|witness| match report(witness).filter(|_| self.candidates.contains(witness)) {
                Some(report) => evidence::answer(report, node.name.as_str(), &digest),
                None => Answer::Silent,
            },
        };
        case.decide(&scene, now)
    }

    fn note(&mut self, node: &NodeName, note: Note) {
        self.notes.insert((node.clone(), note.reason()), note);
    }

    fn count(&mut self, before: Option<State>, now: Option<State>) {
        if let Some(count) = before.and_then(|state| self.states.get_mut(&state)) {
            *count = count.saturating_sub(1);
        }
        if let Some(state) = now {
            *self.states.entry(state).or_default() += 1;
        }
    }

    /// Whether there are routes to a Node that we see to.
    fn has_routes(&self, node: &NodeView) -> bool {
        node.pod_cidrs.iter().any(|cidr| self.responsibility.covers(cidr))
    }

    fn witnesses(&self, name: &NodeName) -> Vec<NodeName> {
        let route = self.observed.node_routes.get(name);
        route.into_iter().flat_map(|route| &route.spec.witnesses).filter_map(|name| name.parse().ok()).collect()
    }

    /// Sees whether a node may be a witness, and stirs those to whom that matters.
    fn consider(&mut self, name: &NodeName) {
        let node = self.observed.nodes.get(name);
        let report = self.observed.node_reports.get(name);
        let nodes = self.observed.nodes.len();
        let may_witness = node.zip(report).filter(|(node, report)| {
            let is_ready = node.ready == Some(Truth::True) && !node.is_deleting;
            is_ready && self.has_routes(node) && report.is_current(node) && !evidence::is_incomplete(report, nodes)
        });
        let has_changed = match may_witness {
            Some((node, _)) => self.candidates.add(name, spec::zone(node).unwrap_or_default()),
            None => self.candidates.remove(name),
        };
        if has_changed {
            self.stir_those_it_is_a_witness_of(name);
            self.stirred.extend(self.short.iter().cloned());
        }
    }

    fn stir_those_it_is_a_witness_of(&mut self, name: &NodeName) {
        self.stirred.extend(self.witness_of.get(name).into_iter().flatten().cloned());
    }
}

impl Memory {
    fn wake(&mut self, at: Moment) {
        self.deadline = Some(self.deadline.map_or(at, |known| known.min(at)));
    }
}

fn put<V>(all: &mut BTreeMap<NodeName, V>, name: &NodeName, value: Option<V>) {
    match value {
        Some(value) => drop(all.insert(name.clone(), value)),
        None => drop(all.remove(name)),
    }
}

#[cfg(test)]
mod contract;
#[cfg(test)]
mod tests;
