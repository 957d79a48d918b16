//! What an agent would do to its kernel's routes, and why: the planners of the agent itself on a saved state.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::agent::desired::{self, Memory};
use crate::agent::imports::ImportPlan;
use crate::agent::routes::RoutePlan;
use crate::agent::state::State;
use crate::api::{RouteException, RouteExceptionReason};
use crate::kernel::change::RouteChange;
use crate::kernel::place::Place;
use crate::kernel::plan;
use crate::kernel::route::{KernelRoute, RouteKind};
use crate::model::{FibRoute, FibWish, Moment, Prefix, Rank};

/// What would happen.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Forecast {
    /// What would be done, and what cannot be, by destination.
    pub steps: Vec<Step>,
    /// How many routes are as they should be.
    pub kept: usize,
}

/// One route that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Step {
    /// Where packets want to go; a pod CIDR that does not parse as it is written.
    pub destination: String,
    /// What would be done.
    pub verb: Verb,
    /// Where they would go by this route.
    pub target: String,
    /// Why.
    pub why: String,
}

/// What would be done about a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// It would be added.
    Add,
    /// It would take the place of another of ours.
    Replace,
    /// It would be removed.
    Remove,
    /// Nothing can be done.
    None,
}

/// Plans a saved state. `None` when its table or metric is none.
pub fn forecast(state: &State) -> Option<Forecast> {
    let place = Place::new(state.table, state.metric)?;
    let desired = desired::plan(&state.snapshot, &mut Memory::default(), Moment::default());
    let fib = Arc::clone(&desired.fib);
    let (present, around) = state.kernel.present(place);
    let destinations = plan::all_destinations(&fib, &present);
    let planned = plan::plan(&fib, &present, destinations, around);
    let reasons = Reasons { fib: &fib, routes: &desired.routes, imports: &desired.imports, place };
    let mut steps: Vec<_> = planned.changes.iter().map(|change| reasons.step(change, &state.kernel.routes)).collect();
    steps.extend(planned.failed.iter().map(|(route, failure)| Step {
        destination: route.destination.to_string(),
        verb: Verb::None,
        target: format!("via {}", route.target),
        why: format!("{}: {failure}", reasons.purpose(route)),
    }));
    steps.extend(reasons.without_route());
    steps.sort();
    let is_touched = |route: &&FibRoute| {
        let is_made = planned.changes.iter().any(|change| change.makes() == Some(*route));
        is_made || planned.failed.contains_key(*route)
    };
    let kept = fib.routes().filter(|route| !is_touched(route)).count();
    Some(Forecast { steps, kept })
}

/// What the reasons for routes are found in.
struct Reasons<'a> {
    fib: &'a FibWish,
    routes: &'a RoutePlan,
    imports: &'a ImportPlan,
    place: Place,
}

impl Reasons<'_> {
    fn step(&self, change: &RouteChange, present: &[KernelRoute]) -> Step {
        let destination = change.destination();
        let here: Vec<_> = present.iter().filter(|route| route.is_ours() && route.destination == destination).collect();
        let (verb, target, why) = match change {
            RouteChange::Add(route) => {
                let why = format!("{}; there is no route of ours yet", self.purpose(route));
                (Verb::Add, route.target.to_string(), why)
            }
            RouteChange::Replace(route) => {
                let now: Vec<_> = here.iter().map(|route| target(route)).collect();
                let why = format!("{}; ours goes to {} now", self.purpose(route), now.join(" and "));
                (Verb::Replace, route.target.to_string(), why)
            }
            RouteChange::Delete(route) => {
                let why = match self.fib.to(&destination).first() {
                    None => self.lost_purpose(route).to_owned(),
                    Some(wanted) => format!("{}; another route of ours leads there", self.purpose(wanted)),
                };
                (Verb::Remove, target(route), why)
            }
        };
        Step { destination: destination.to_string(), verb, target: format!("via {target}"), why }
    }

    /// Pod CIDRs and learned routes that get no route of ours, nor have one of another kind.
    fn without_route(&self) -> impl Iterator<Item = Step> {
        let is_learned = |told: &RouteException| {
            let has_route = |cidr: Prefix| !self.imports.routes.to(&cidr).is_empty();
            told.reason == RouteExceptionReason::NotOnLink && told.cidr.parse().is_ok_and(has_route)
        };
        let is_without =
            move |told: &&RouteException| told.reason != RouteExceptionReason::Overlapped && !is_learned(told);
        let pods = self
            .routes
            .exceptions()
            .filter(is_without)
            .map(|told| (told.cidr.clone(), format!("pods of node {}: {}", told.node, told.message)));
        let learned = self
            .imports
            .exceptions
            .iter()
            .map(|told| (String::new(), format!("BgpPeer {}: {}", told.peer, told.message)));
        pods.chain(learned).map(|(destination, why)| Step { destination, verb: Verb::None, target: String::new(), why })
    }

    /// What the route is for.
    fn purpose(&self, route: &FibRoute) -> String {
        match route.rank {
            Rank::Direct => {
                let owner = self.routes.owner(route);
                owner.map_or_else(|| "wanted".to_owned(), |owner| format!("pods of node {}", owner.node))
            }
            Rank::Learned => match self.imports.told_by.get(&route.destination) {
                Some(peer) => format!("BgpPeer {peer} told of it"),
                None => "a router told an earlier run of it, and may do so again".to_owned(),
            },
            Rank::LastResort => "pods of this node that are not there".to_owned(),
        }
    }

    /// What a route is no longer for.
    fn lost_purpose(&self, route: &KernelRoute) -> &'static str {
        match route.kind {
            RouteKind::Blackhole => "no pods of this node are there",
            _ if route.metric == self.place.metric(Rank::Learned) => "no router tells of it",
            _ => "no other node has this pod CIDR",
        }
    }
}

fn target(route: &KernelRoute) -> String {
    let hops: Vec<_> = route.hops.iter().filter_map(|hop| hop.gateway).map(|gateway| gateway.to_string()).collect();
    match (route.kind, hops.is_empty()) {
        (RouteKind::Blackhole, _) => "a blackhole".to_owned(),
        (_, true) => "an interface".to_owned(),
        (_, false) => hops.join(", "),
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Remove => "remove",
            Self::None => "no route",
        })
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&Step) -> &str| self.steps.iter().map(|step| of(step).len()).max().unwrap_or_default();
        let (destinations, targets) = (width(|step| &step.destination), width(|step| &step.target));
        for Step { destination, verb, target, why } in &self.steps {
            writeln!(f, "{verb:<8} {destination:<destinations$}  {target:<targets$}  {why}")?;
        }
        writeln!(f, "as they should be: {}", self.kept)
    }
}
