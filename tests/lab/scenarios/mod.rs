//! The stories, one a file.

mod advertisements;
mod agent;
mod announcements;
mod bench;
mod conditions;
mod daemon_set;
mod fabric;
mod faults;
mod first_service;
mod flow_schemas;
mod guard;
mod idle;
mod imports;
mod ipam;
mod kubelets;
mod leaves_nothing;
mod lifecycle;
mod lost_leases;
mod machines;
mod meddling;
mod metallb;
mod migration;
mod older_kubernetes;
mod peers;
mod pod_cidr_migration;
mod pod_network;
mod pod_routes;
mod pools;
mod rights;
mod route_monitor;
mod routes;
mod schemas;
mod secure_port;
mod service_faults;
mod service_changes;
mod shutdown;
mod source_ranges;
mod two_networks;

use std::time::Duration;

use anyhow::Result;

use crate::harness::{Lab, RouterKind, kubernetes::Kubernetes};

/// For what happens by itself on an idle lab; far above what it takes, so that a busy machine does not matter.
const SOON: Duration = Duration::from_secs(20);

/// A leader that is gone is followed after six seconds; it may write for two after its last renewal.
const QUICK_LEASE: [&str; 4] = [
    "--secure-port=0",
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
];

/// Three nodes that Cairn runs, a router and a client.
async fn cluster_with_cairn() -> Result<Lab> {
    cluster_with_cairn_on(Kubernetes::default()).await
}

async fn cluster_with_cairn_on(kubernetes: Kubernetes) -> Result<Lab> {
    let mut lab = Lab::builder().kubernetes(kubernetes).nodes(3).router(RouterKind::Bird).client().start().await?;
    lab.run_cairn().await?;
    Ok(lab)
}
