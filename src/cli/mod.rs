//! The verbs of the `cairn` command, one call each.

mod agent;
mod controller;
mod signal;
pub mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Check files before Cairn meets them: cloud config, inventory, AddressPool, BgpPeer.
    Validate(validate::Args),
}

/// Parses the command line, runs the verb, and prints an error once, with its causes.
pub fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Controller(args) => args.run(),
        Verb::Agent(args) => args.run(),
        Verb::Validate(args) => args.run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {}", in_one_line(&error));
        ExitCode::FAILURE
    })
}

/// An error and its causes, without those that the one before has told already (as kube's errors do).
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("no such file").context("cannot read a: no such file").context("--kubeconfig a");
        assert_eq!(in_one_line(&error), "--kubeconfig a: cannot read a: no such file");
    }
}
