//! `cairn status`: how things are now.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;

use super::cluster_state::{self, Server};
use super::output::Output;
use crate::model::PoolName;
use crate::service::explain;

/// Show how things are now. Reads the cluster and changes nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
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
        let What::Pool { pool, server, output } = self.what;
        let observed = server.observe()?;
        if let Some(pool) = pool.as_ref().filter(|pool| !observed.pools.contains_key(*pool)) {
            bail!("there is no AddressPool {pool}");
        }
        output.say(&explain::pools(&observed, pool.as_ref(), cluster_state::now(), cluster_state::time))?;
        Ok(ExitCode::SUCCESS)
    }
}
