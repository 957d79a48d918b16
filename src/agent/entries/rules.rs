//! Whether a node is a right entry for one Service: the rules of `externalTrafficPolicy`.

use std::time::Duration;

use crate::api::NoEntry;
use crate::model::views::{EndpointCounts, EndpointView, ServiceView, TrafficPolicy};
use crate::model::{Moment, NodeName};

/// How long a Service of policy Cluster is announced without endpoints: a single replica that is
/// replaced is away for less, and kube-proxy refuses meanwhile.
pub(super) const WITHOUT_ENDPOINTS: Duration = Duration::from_secs(5);

/// How long kube-proxy is waited for that does not say that it forwards to an endpoint of this node: one
/// that listens elsewhere (`nodePortAddresses`) must not keep a Service from being announced.
pub(super) const WITHOUT_PROXY: Duration = Duration::from_secs(3);

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
    /// Whether kube-proxy is asked about its first endpoint here.
    pub(super) asked: Option<Asked>,
}

/// Whether kube-proxy forwards to a Service's first endpoint on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// It is asked since then.
    Since(Moment),
    /// It says so.
    Forwards,
}

impl Asked {
    /// When the answer is waited for no longer.
    pub(super) fn until(self) -> Option<Moment> {
        match self {
            Self::Since(since) => Some(since + WITHOUT_PROXY),
            Self::Forwards => None,
        }
    }
}

/// What a node is to a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// An entry; since when without endpoints, where that is a grace that ends.
    Announced { without_endpoints: Option<Moment> },
    /// One as soon as kube-proxy says on this port that it forwards.
    Asked { since: Moment, port: u16 },
    /// None.
    Refused(NoEntry),
}

/// Whether the node is an entry for the Service.
pub(super) fn judge(service: &ServiceView, counts: Counts, before: Before, now: Moment) -> Verdict {
    let announced = Verdict::Announced { without_endpoints: None };
    match service.external_traffic_policy {
        // kube-proxy forwards to terminating endpoints while no ready one is left (KEP-1669), so
        // they count where no other node has a ready one.
        TrafficPolicy::Local => {
            let is_last_resort = counts.here.serving_terminating > 0 && counts.elsewhere.ready == 0;
            match counts.here.ready {
                0 if is_last_resort => announced,
                0 => Verdict::Refused(NoEntry::NoLocalEndpoint),
                _ => asked(service, before, now).unwrap_or(announced),
            }
        }
        TrafficPolicy::Cluster => {
            let usable = |c: EndpointCounts| c.ready + c.serving_terminating;
            if usable(counts.here) + usable(counts.elsewhere) > 0 {
                return announced;
            }
            let since = before.without_endpoints.unwrap_or(now);
            let is_in_grace = before.is_announced && now < since + WITHOUT_ENDPOINTS;
            match is_in_grace {
                true => Verdict::Announced { without_endpoints: Some(since) },
                false => Verdict::Refused(NoEntry::NoReadyEndpoint),
            }
        }
    }
}

/// Whether kube-proxy is to be asked first: it hears of a node's first endpoint when the agent does, and what
/// arrives before it has acted is dropped. When endpoints go, the EndpointSlice says so first.
fn asked(service: &ServiceView, before: Before, now: Moment) -> Option<Verdict> {
    let port = service.health_check_node_port.filter(|_| !service.has_foreign_proxy && !before.is_announced)?;
    let since = match before.asked {
        Some(Asked::Forwards) => return None,
        Some(Asked::Since(since)) => since,
        None => now,
    };
    (now < since + WITHOUT_PROXY).then_some(Verdict::Asked { since, port })
}
