//! `cairn agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::ArgAction;

use super::controller::value::{endpoint, number, truth};
use super::signal;
use crate::agent::snapshot::OwnCidr;
use crate::agent::{self, Options, Place, Sysctls, place};
use crate::cluster::client;
use crate::model::{NodeName, Scope};
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
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10262", value_parser = endpoint)]
    diagnostics_address: SocketAddr,
    /// Drop packets to pods of this node that are not there, by a blackhole route to its pod CIDRs that is worse than
    /// every other: without it they go in circles where no bridge has the CIDR.
    #[arg(long, value_name = "BOOL", default_value = "true", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    blackhole_own_cidr: bool,
    /// The routing table for its routes: 1 to 4294967295 without 255. In another than the main one (254)
    /// routes carry nothing until a rule of yours leads packets there, for each family, such as
    /// `ip rule add priority 32000 table N`; the report says when there is none.
    #[arg(long, value_name = "TABLE", default_value_t = place::MAIN_TABLE, value_parser = number::<u32>)]
    route_table: u32,
    /// The metric of its routes: 1 to 4294967293. A route of anybody else's with a smaller one decides.
    #[arg(long, value_name = "METRIC", default_value_t = place::METRIC, value_parser = number::<u32>)]
    route_metric: u32,
    /// Turn on net.ipv4.ip_forward and net.ipv6.conf.all.forwarding where pods have that family and it is
    /// off; without this it is only told. Where IPv6 is forwarded, an interface that learns its default
    /// route by router advertisements needs accept_ra=2.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    manage_sysctls: bool,
    /// Where the last state is kept for a restart while the API server is away, on a file system in memory.
    #[arg(long, value_name = "FILE", default_value = "/run/cairn/state.json")]
    state_file: PathBuf,
    /// Remove what an agent leaves behind (its routes in every table, the nftables table inet cairn, the
    /// kept state) and end. For a node that is to have no agent any more: one that runs puts it all back.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    cleanup: bool,
    /// Leave Services without spec.loadBalancerClass to another controller, as the controller's flag does.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    load_balancer_class_only: bool,
}

impl Args {
    /// Runs until SIGTERM or SIGINT.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let _ = log::init(LogOptions::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            if self.cleanup {
                return agent::clean_up(&self.state_file).await;
            }
            let stop = signal::stop()?;
            let place = place(self.route_table, self.route_metric)?;
            let node = node_name(self.node_name)?;
            let client = client::connect(self.kubeconfig.as_deref()).await?;
            let own_cidr = if self.blackhole_own_cidr { OwnCidr::Blackholed } else { OwnCidr::Left };
            let sysctls = if self.manage_sysctls { Sysctls::Managed } else { Sysctls::Told };
            let (diagnostics, state_file) = (self.diagnostics_address, self.state_file);
            let scope = Scope::of_flag(self.load_balancer_class_only);
            agent::run(Options { client, node, scope, diagnostics, own_cidr, place, sysctls, state_file }, stop).await
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn place(table: u32, metric: u32) -> anyhow::Result<Place> {
    let all = "--route-table takes 1 to 4294967295 without 255 (the kernel's own), --route-metric 1 to 4294967293";
    Place::new(table, metric).with_context(|| format!("{all}; these are {table} and {metric}"))
}

/// The kubelet names its Node after the host, in lower case.
fn node_name(given: Option<String>) -> anyhow::Result<NodeName> {
    if let Some(name) = given {
        return name.parse().context("--node-name");
    }
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    name.parse().context("--node-name is missing, and the host's name cannot be a Node's")
}
