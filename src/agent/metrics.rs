//! The agent's metrics.

use std::sync::atomic::Ordering;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::api::{ForwardingReason, NodeReportStatus};

/// Counts of routes, sessions and announcements of this node.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    routes_wanted: Gauge,
    routes_installed: Gauge,
    bgp_peers: Gauge,
    bgp_sessions_established: Gauge,
    bgp_prefixes_announced: Gauge,
    routes_carried: Gauge,
    nodes_held: Gauge,
    forwarding_faults: Gauge,
    route_repairs: Counter,
    /// Reports written to the API server.
    pub report_writes: Counter,
}

impl Metrics {
    /// Metrics that the registry shows, as `cairn_agent_…` and `cairn_bgp_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let agent = registry.sub_registry_with_prefix("cairn_agent");
        agent.register("routes_wanted", "Pod CIDRs of other nodes", metrics.routes_wanted.clone());
        agent.register("routes_installed", "Pod CIDRs with a kernel route", metrics.routes_installed.clone());
        agent.register("routes_carried", "Pod CIDRs that a router carries", metrics.routes_carried.clone());
        agent.register(
            "nodes_held",
            "Nodes whose NodeRoute is gone and whose routes stay until they are known to be gone",
            metrics.nodes_held.clone(),
        );
        agent.register(
            "forwarding_faults",
            "What keeps pods' packets from being forwarded on this host",
            metrics.forwarding_faults.clone(),
        );
        agent.register("route_repairs", "Kernel routes put back that others removed", metrics.route_repairs.clone());
        agent.register("report_writes", "Reports written to the API server", metrics.report_writes.clone());
        let bgp = registry.sub_registry_with_prefix("cairn_bgp");
        bgp.register("peers", "Peers this node should have a session with", metrics.bgp_peers.clone());
        bgp.register("sessions_established", "Sessions that are Established", metrics.bgp_sessions_established.clone());
        bgp.register(
            "prefixes_announced",
            "Prefixes announced in each session",
            metrics.bgp_prefixes_announced.clone(),
        );
        metrics
    }

    /// Shows the counts of a report, and how many routes were put back since the start.
    pub fn show(&self, report: &NodeReportStatus, repaired: u64) {
        self.route_repairs.inner().store(repaired, Ordering::Relaxed);
        self.routes_carried.set(report.routes.carried.into());
        self.nodes_held.set(report.routes.held.into());
        // What cannot be seen may be well.
        let faults = report.forwarding.iter().filter(|fault| fault.reason != ForwardingReason::FirewallUnseen);
        self.forwarding_faults.set(i64::try_from(faults.count()).unwrap_or(i64::MAX));
        self.routes_wanted.set(report.routes.wanted.into());
        self.routes_installed.set(report.routes.installed.into());
        self.bgp_peers.set(report.bgp.peers.into());
        self.bgp_sessions_established.set(report.bgp.established.into());
        self.bgp_prefixes_announced.set(report.bgp.announced.into());
    }
}
