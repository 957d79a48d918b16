//! `cairn controller`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use super::signal;
use crate::cluster::client;
use crate::controller::{self, Options};
use crate::telemetry::log;

/// Run the cloud-controller-manager: initialize Nodes, give Services their addresses.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The cloud config: where the inventory is.
    #[arg(long, value_name = "FILE")]
    cloud_config: PathBuf,
    /// How to reach the API server; without it, as the pod's ServiceAccount.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10258")]
    diagnostics_address: SocketAddr,
}

impl Args {
    /// Runs until SIGTERM, SIGINT or the loss of the Lease.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        log::init();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let stop = signal::stop()?;
            let client = client::connect(self.kubeconfig.as_deref()).await?;
            let options =
                Options { client, cloud_config: self.cloud_config, diagnostics: self.diagnostics_address };
            controller::run(options, stop).await
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
