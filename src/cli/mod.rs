//! The verbs of the `cairn` command, one call each.

mod agent;
mod cluster_state;
mod controller;
mod explain;
mod mistake;
mod output;
mod overview;
mod plan;
mod signal;
mod status;
pub mod validate;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cluster::told::Told;

/// The cloud provider for Kubernetes clusters that have no cloud.
#[derive(Debug, Parser)]
#[command(name = "cairn", version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run for the cluster: initialize Nodes, give Services their addresses, see to routes.
    Controller(Box<controller::Args>),
    /// Run on a node: its kernel routes, its BGP sessions.
    Agent(agent::Args),
    /// Say why an object is as it is.
    Explain(explain::Args),
    /// Show how things are now.
    Status(status::Args),
    /// Show what an agent or a controller would do about routes, and why, from a saved state.
    Plan(plan::Args),
    /// Check files before Cairn meets them: cloud config, inventory, leader migration, AddressPool, Advertisement, BgpPeer.
    Validate(validate::Args),
}

/// Parses the command line, runs the verb, and prints an error once, with its causes.
pub fn main() -> ExitCode {
    let line: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let parsed = Cli::try_parse().map_err(|error| mistake::explained(error, &Cli::command(), &line));
    let result = match parsed.unwrap_or_else(|error| error.exit()).verb {
        Verb::Controller(args) => args.run(),
        Verb::Agent(args) => args.run(),
        Verb::Explain(args) => args.run(),
        Verb::Status(args) => args.run(),
        Verb::Plan(args) => args.run(),
        Verb::Validate(args) => args.run(),
    };
    result.unwrap_or_else(|error| {
        // Where nobody can be told, the exit code still tells.
        let _ = writeln!(io::stderr(), "error: {}", Told(error.as_ref()));
        ExitCode::FAILURE
    })
}
