//! `cairn agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::signal;
use crate::agent::snapshot::OwnCidr;
use crate::agent::{self, Options};
use crate::cluster::client;
use crate::model::NodeName;
use crate::telemetry::log::{self, LogOptions};

/// Run on a node: its kernel routes, its BGP sessions.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The Node this host is; without it, the host's name.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
    /// How to reach the API server; without it, as the pod's ServiceAccount.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where /healthz, /readyz, /metrics and /state are served.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10262")]
    diagnostics_address: SocketAddr,
    /// Drop packets to pods of this node that are not there, by a blackhole route to its pod CIDRs that is worse than
    /// every other: without it they go in circles where no bridge has the CIDR.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    blackhole_own_cidr: bool,
}

impl Args {
    /// Runs until SIGTERM or SIGINT.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let _ = log::init(LogOptions::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let stop = signal::stop()?;
            let node = node_name(self.node_name)?;
            let client = client::connect(self.kubeconfig.as_deref()).await?;
            let own_cidr = if self.blackhole_own_cidr { OwnCidr::Blackholed } else { OwnCidr::Left };
            agent::run(Options { client, node, diagnostics: self.diagnostics_address, own_cidr }, stop).await
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The kubelet names its Node after the host, in lower case.
fn node_name(given: Option<String>) -> anyhow::Result<NodeName> {
    let name = match given {
        Some(name) => name,
        None => rustix::system::uname().nodename().to_string_lossy().to_lowercase(),
    };
    name.parse().context("--node-name")
}
