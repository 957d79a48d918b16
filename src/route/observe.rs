//! What is known of Nodes, their routes and the reports on them now.

use kube::ResourceExt;

use super::plan::{Observed, ObservedRoute};
use super::{Context, Memory};
use crate::api::{NodeReport, NodeReportStatus, NodeRoute};

/// Every Node, `NodeRoute` and `NodeReport`.
pub(super) fn observe(context: &Context, memory: &mut Memory) -> Observed {
    let nodes = context.nodes.snapshot().into_values().map(|view| (view.name.clone(), view));
    let routes = context.routes.snapshot().into_iter().filter_map(|(name, route)| Some((name.parse().ok()?, route)));
    let reports =
        context.reports.snapshot().into_iter().filter_map(|(name, report)| Some((name.parse().ok()?, report)));
    let mut observed = Observed { nodes: nodes.collect(), routes: routes.collect(), reports: reports.collect() };
    memory.nodes.lay_over(&mut observed.nodes);
    memory.routes.lay_over(&mut observed.routes);
    observed
}

/// The view of a `NodeRoute`.
pub fn route(route: &NodeRoute) -> Option<ObservedRoute> {
    let owner = route.owner_references().iter().find(|owner| owner.kind == "Node");
    Some(ObservedRoute {
        resource_version: route.resource_version().unwrap_or_default(),
        owner_uid: owner.map(|owner| owner.uid.clone()),
        spec: route.spec.clone(),
    })
}

/// The view of a `NodeReport`; none before its agent has written its status.
pub fn report(report: &NodeReport) -> Option<NodeReportStatus> {
    report.status.clone()
}
