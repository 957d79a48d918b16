//! What counts here of the objects that agents and this room write.

use kube::ResourceExt;

use super::plan::ObservedRoute;
use crate::api::{NodeReport, NodeReportStatus, NodeRoute};

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
