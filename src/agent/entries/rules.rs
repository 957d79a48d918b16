//! Whether a node is a right entry for one Service: the rules of `externalTrafficPolicy`.

use std::time::Duration;

use crate::api::NoEntry;
use crate::model::views::{EndpointCounts, EndpointView, ServiceView, TrafficPolicy};
use crate::model::{Moment, NodeName};

/// How long a Service of policy Cluster is announced without endpoints: a single replica that is
/// replaced is away for less, and kube-proxy refuses meanwhile.
pub(super) const WITHOUT_ENDPOINTS: Duration = Duration::from_secs(5);

/// Endpoints of one Service, on this node and on all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    here: EndpointCounts,
    elsewhere: EndpointCounts,
}

impl Counts {
    /// Adds those of a slice.
    pub(super) fn add(&mut self, slice: &EndpointView, me: &NodeName) {
        for (node, found) in &slice.nodes {
            let sum = self.side(node, me);
            sum.ready += found.ready;
            sum.serving_terminating += found.serving_terminating;
        }
    }

    /// Takes those of a slice away that were added.
    pub(super) fn take(&mut self, slice: &EndpointView, me: &NodeName) {
        for (node, found) in &slice.nodes {
            let sum = self.side(node, me);
            sum.ready -= found.ready;
            sum.serving_terminating -= found.serving_terminating;
        }
    }

    fn side(&mut self, node: &NodeName, me: &NodeName) -> &mut EndpointCounts {
        if node == me { &mut self.here } else { &mut self.elsewhere }
    }
}

/// How a Service stood before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    /// Whether it was announced.
    pub(super) is_announced: bool,
    /// Since when it has been without endpoints and announced all the same.
    pub(super) without_endpoints: Option<Moment>,
}

/// Whether it is announced; since when without endpoints, where that is a grace that ends.
pub(super) fn judge(
    service: &ServiceView,
    counts: Counts,
    before: Before,
    now: Moment,
) -> Result<Option<Moment>, NoEntry> {
    match service.external_traffic_policy {
        // kube-proxy forwards to terminating endpoints while no ready one is left (KEP-1669), so
        // they count where no other node has a ready one.
        TrafficPolicy::Local => {
            let is_last_resort = counts.here.serving_terminating > 0 && counts.elsewhere.ready == 0;
            if counts.here.ready > 0 || is_last_resort { Ok(None) } else { Err(NoEntry::NoLocalEndpoint) }
        }
        TrafficPolicy::Cluster => {
            let usable = |c: EndpointCounts| c.ready + c.serving_terminating;
            if usable(counts.here) + usable(counts.elsewhere) > 0 {
                return Ok(None);
            }
            let since = before.without_endpoints.unwrap_or(now);
            let is_in_grace = before.is_announced && now < since + WITHOUT_ENDPOINTS;
            if is_in_grace { Ok(Some(since)) } else { Err(NoEntry::NoReadyEndpoint) }
        }
    }
}
