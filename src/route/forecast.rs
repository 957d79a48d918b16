//! What the leader would write about routes, and why: its planner on a saved state.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::case::GRACE;
use super::plan::{Observed, ObservedRoute, Plan, Planner, RouteAction};
use super::spec::Responsibility;
use crate::api::NodeRouteSpec;
use crate::model::Moment;
use crate::model::views::Truth;

/// The writes, in order, one a line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Forecast(Vec<String>);

/// Plans a saved state: what would be written at once, and what once nobody had anything to add for
/// as long as a Node has to join.
pub fn forecast(observed: Observed, responsibility: Responsibility) -> Forecast {
    let mut planner = Planner::new(responsibility);
    observed.nodes.iter().for_each(|(name, view)| planner.node(name, Some(view.clone())));
    observed.node_routes.iter().for_each(|(name, route)| planner.route(name, Some(route.clone())));
    observed.node_reports.iter().for_each(|(name, report)| planner.report(name, Some(report.clone())));
    let start = Moment::default();
    let mut lines = told(&planner.plan(start), &observed);
    planner.look_at_all();
    for line in told(&planner.plan(start + GRACE + Duration::from_secs(1)), &observed) {
        if !lines.contains(&line) {
            lines.push(format!("{line} (in {} s, if nothing changes)", GRACE.as_secs()));
        }
    }
    Forecast(lines)
}

fn told(plan: &Plan, observed: &Observed) -> Vec<String> {
    let routes = plan.routes.iter().map(|(name, action)| match action {
        RouteAction::Delete => format!("delete NodeRoute {name}: there is no Node {name}"),
        RouteAction::Write { owner_uid, spec } => {
            let why = why(observed.node_routes.get(name).map(|known| &**known), owner_uid, spec);
            let NodeRouteSpec { addresses, pod_cidrs, witnesses, .. } = spec;
            let parts = [("addresses", addresses), ("pod CIDRs", pod_cidrs), ("witnesses", witnesses)];
            let said = parts.into_iter().filter(|(_, items)| !items.is_empty());
            let said: Vec<_> = said.map(|(what, items)| format!("{what} {}", items.join(","))).collect();
            format!("write NodeRoute {name}: {why}; {}", said.join(", "))
        }
    });
    let conditions = plan.conditions.iter().map(|(name, write)| {
        let status = if write.condition.status == Truth::True { "True" } else { "False" };
        let (reason, message) = (&write.condition.reason, &write.condition.message);
        format!("set NetworkUnavailable={status} ({reason}) on Node {name}: {message}")
    });
    routes.chain(conditions).collect()
}

fn why(known: Option<&ObservedRoute>, owner_uid: &str, spec: &NodeRouteSpec) -> String {
    let Some(known) = known else { return "it has none yet".to_owned() };
    let differences = [
        ("owner", known.owner_uid.as_deref() != Some(owner_uid)),
        ("addresses", known.spec.addresses != spec.addresses),
        ("pod CIDRs", known.spec.pod_cidrs != spec.pod_cidrs),
        ("zone", known.spec.zone != spec.zone),
        ("entry flag", known.spec.entry != spec.entry),
        ("witnesses", known.spec.witnesses != spec.witnesses),
    ];
    let differing: Vec<_> = differences.iter().filter(|(_, differs)| *differs).map(|(what, _)| *what).collect();
    format!("its {} changed", differing.join(", "))
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        if self.0.is_empty() { writeln!(f, "nothing to write") } else { Ok(()) }
    }
}
