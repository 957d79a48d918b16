//! How a controller is started.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::cluster::client::ServerOptions;
use crate::config::{CloudConfig, Controller, NodeCidrs};
use crate::leader::{LeaseConfig, Migration};
use crate::model::{Prefix, Scope};
use crate::telemetry::secure::ServingOptions;

/// How a controller is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to reach the API server.
    pub server: ServerOptions,
    /// Where the inventory is.
    pub cloud_config: CloudConfig,
    /// The controllers that are to run.
    pub controllers: BTreeSet<Controller>,
    /// The Lease to stand for; `None` acts without one.
    pub lease: Option<LeaseConfig>,
    /// Which controllers run under a second Lease, if leader migration is enabled; only with `lease`.
    pub migration: Option<Migration>,
    /// How often is looked without a change.
    pub periods: Periods,
    /// How long after one controller the next is started.
    pub start_interval: Duration,
    /// Which Services are ours.
    pub scope: Scope,
    /// Whether the route controller may do its work.
    pub configures_routes: bool,
    /// The addresses of pods, at most one prefix a family; empty when nobody has said.
    pub cluster_cidrs: Vec<Prefix>,
    /// How Nodes get their pod CIDRs of these; `None` leaves that to others.
    pub node_cidrs: Option<NodeCidrs>,
    /// Writes on their way at the same time.
    pub limits: Limits,
    /// As whom controllers write.
    pub identities: Identities,
    /// Whether the secure port changes how much is logged.
    pub profiling: bool,
    /// The secure port, if one is to be served.
    pub serving: Option<ServingOptions>,
    /// What `/configz` shows.
    pub configz: Value,
}

/// How often is looked without a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periods {
    /// At addresses and labels of Nodes.
    pub node_status_update: Duration,
    /// At Nodes that are not Ready.
    pub node_monitor: Duration,
    /// At routes.
    pub route_reconciliation: Duration,
}

/// Writes of one controller on their way at the same time, each at least 1; all together never have
/// more than [`IN_FLIGHT`](crate::cluster::traffic::IN_FLIGHT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// About Nodes.
    pub node_writes: usize,
    /// About Services.
    pub service_writes: usize,
}

/// As whom controllers write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identities {
    /// All as the process.
    One,
    /// Each as a ServiceAccount of its own ([`Controller::account`]).
    PerController,
}
