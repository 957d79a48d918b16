//! `cairn explain`: why an object is as it is.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;

use super::cluster_state::{self, Server};
use super::output::Output;
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
    /// Why a Service has this address, or none, and where it is announced.
    ///
    /// Says what it asks for, what it has and since when, which clients it lets in, what each node is to it
    /// (announces it, or why not), and what each pool has for it. Of one that Cairn does not serve it says why.
    #[command(after_help = AFTER_HELP)]
    Service {
        /// The Service.
        #[arg(value_name = "NAMESPACE/NAME")]
        service: ServiceKey,
        #[command(flatten)]
        server: Server,
        #[command(flatten)]
        output: Output,
    },
}

const AFTER_HELP: &str = "Exits with 0 when it has said so, also of a Service that has nothing, and with 1 when there is no such \
Service or the cluster cannot be read.\n\nExample: cairn explain service default/web";

impl Args {
    /// Explains on the standard output.
    ///
    /// # Errors
    /// When the cluster cannot be read, or has no such object, or the standard output cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let What::Service { service, server, output } = self.what;
        let (observed, around) = server.observe_service(&service)?;
        let explained = explain::service(&observed, &around, &service, cluster_state::now(), cluster_state::time);
        let Some(explained) = explained else { bail!("there is no Service {service}") };
        output.say(&explained)?;
        Ok(ExitCode::SUCCESS)
    }
}
