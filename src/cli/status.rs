//! `cairn status`: how things are now.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;

use super::cluster_state::{self, Server};
use super::output::Output;
use super::overview::overview;
use crate::model::PoolName;
use crate::service::explain;

/// Show how things are now. Reads the cluster and changes nothing.
///
/// Without a command: who leads, and of nodes, agents, routes, sessions, Services and what you have written, how many are
/// well, and what is missing of each. '-o json' tells all that is missing, and not the first five alone.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum What {
    /// How many addresses each AddressPool has, who has which, and what is wrong with it.
    Pool {
        /// This one alone.
        #[arg(value_name = "NAME")]
        pool: Option<PoolName>,
        #[command(flatten)]
        server: Server,
        #[command(flatten)]
        output: Output,
    },
}

impl Args {
    /// Shows it on the standard output.
    ///
    /// # Errors
    /// When the cluster cannot be read, or has no such object, or the standard output cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            None => self.output.say(&overview(&self.server.see()?))?,
            Some(What::Pool { pool, server, output }) => {
                let observed = server.observe()?;
                if let Some(pool) = pool.as_ref().filter(|pool| !observed.pools.contains_key(*pool)) {
                    bail!("there is no AddressPool {pool}");
                }
                output.say(&explain::pools(&observed, pool.as_ref(), cluster_state::now(), cluster_state::time))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
