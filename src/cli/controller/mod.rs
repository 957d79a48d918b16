//! `cairn controller`: the flags of a cloud-controller-manager.
//!
//! Start at [`flags`]; [`check`](mod@check) makes [`Options`](controller::Options) of them or tells
//! every fault, and [`ignored`] lists those that have nothing to set here.

mod check;
mod configz;
pub(super) mod flags;
mod ignored;
#[cfg(test)]
mod tests;
pub(super) mod value;

use std::process::ExitCode;

use tracing::{info, warn};

use super::signal;
use crate::controller;
use crate::telemetry::log;

/// Run for the cluster: initialize Nodes, give Services their addresses, see to routes.
// As Go's flags have it, and charts that add flags to those they have: the last one counts.
#[derive(Debug, clap::Args)]
#[command(version, args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    generic: flags::Generic,
    #[command(flatten)]
    pod_cidrs: flags::PodCidrs,
    #[command(flatten)]
    server: flags::Server,
    #[command(flatten)]
    election: flags::Election,
    #[command(flatten)]
    serving: flags::Serving,
    #[command(flatten)]
    access: flags::Access,
    #[command(flatten)]
    log: flags::Log,
    #[command(flatten)]
    ignored: ignored::Ignored,
}

impl Args {
    /// Runs until SIGTERM or SIGINT, or until the Lease is lost.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let options = check::check(&self)?;
        let verbosity = log::init(options.log);
        for (flag, why) in &self.ignored.given {
            warn!(flag, why, "flag accepted, and without effect");
        }
        if self.generic.cloud_provider == check::EXTERNAL {
            info!("--cloud-provider=external is the kubelet's word for a provider like this one: cairn");
        }
        for entry in options.controller.migration.iter().flat_map(|migration| migration.warnings.iter()) {
            warn!(%entry, "entry of the leader migration without effect");
        }
        for warning in &options.warnings {
            warn!("{warning}");
        }
        // Two threads, so that a room with a long plan does not hold up the others. The Lease has its own.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let stop = signal::stop()?;
            controller::run(options.controller, verbosity, stop).await
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
