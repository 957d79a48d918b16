//! `cairn explain`: why an object is as it is.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;

use super::cluster_state::{self, Server};
use super::output;
use crate::model::ServiceKey;
use crate::service::explain;

/// Say why an object is as it is. Reads the cluster and changes nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What a Service asks for, what it has and since when, whether it is announced and by which nodes, and what
    /// each pool has for it.
    Service {
        /// The Service.
        #[arg(value_name = "NAMESPACE/NAME")]
        service: ServiceKey,
        #[command(flatten)]
        server: Server,
    },
}

impl Args {
    /// Explains on the standard output.
    ///
    /// # Errors
    /// When the cluster cannot be read, or has no such object, or the standard output cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let What::Service { service, server } = self.what;
        let (observed, entrances) = server.observe_service(&service)?;
        let explained = explain::service(&observed, &entrances, &service, cluster_state::now(), cluster_state::time);
        let Some(explained) = explained else { bail!("there is no Service {service}") };
        output::print(&explained.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}
