//! `cairn controller`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;

use super::signal;
use crate::cluster::client;
use crate::config::CloudConfig;
use crate::controller::{self, Options};
use crate::leader::{LeaseConfig, Timing, identity};
use crate::telemetry::log;

/// Run for the cluster: initialize Nodes, give Services their addresses, see to routes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file that says where the inventory is.
    #[arg(long, value_name = "FILE")]
    cloud_config: PathBuf,
    /// How to reach the API server; without it, as the pod's ServiceAccount.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of the Lease that the leader holds.
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager")]
    leader_elect_resource_name: String,
    /// Namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10258")]
    diagnostics_address: SocketAddr,
}

impl Args {
    /// Runs until SIGTERM or SIGINT, or until the Lease is lost.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        log::init();
        let cloud_config = CloudConfig::load(&self.cloud_config).map_err(|faults| anyhow!("{faults}"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let stop = signal::stop()?;
            let lease = LeaseConfig {
                namespace: self.leader_elect_resource_namespace,
                name: self.leader_elect_resource_name,
                identity: identity(),
                timing: Timing::default(),
            };
            let client = client::connect(self.kubeconfig.as_deref()).await?;
            let options = Options { client, cloud_config, lease, diagnostics: self.diagnostics_address };
            controller::run(options, stop).await
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
