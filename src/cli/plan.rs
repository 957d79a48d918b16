//! `cairn plan`: what a saved state leads to.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::output;
use crate::agent::forecast as agent;
use crate::controller::forecast as controller;

/// Show what an agent or a controller would do about routes, and why, from a saved state.
///
/// The state is what the process shows: of an agent, `curl http://127.0.0.1:10262/state` on its node;
/// of a controller, /state on its secure port. Nothing is asked, and nothing is changed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The saved state; '-' is standard input.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
}

impl Args {
    /// Prints what would be done.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let from = self.from.display();
        let text = read(&self.from).with_context(|| format!("--from {from}"))?;
        output::print(&plan(&text).with_context(|| format!("--from {from}"))?)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn read(from: &Path) -> anyhow::Result<String> {
    if from != Path::new("-") {
        return Ok(std::fs::read_to_string(from)?);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn plan(text: &str) -> anyhow::Result<String> {
    let state: Value = serde_json::from_str(text).context("it is not JSON")?;
    if state.get("snapshot").is_some() {
        let state = serde_json::from_value(state).context("it is not the state of an agent of this version")?;
        let forecast = agent::forecast(&state).context("table and metric name no place for routes")?;
        Ok(forecast.to_string())
    } else if state.get("observed").is_some() {
        Ok(controller::forecast(&state).context("it is not the state of a controller of this version")?)
    } else {
        bail!("it is the state neither of an agent nor of a controller: save what /state shows")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_state_is_refused_with_a_reason() {
        for (text, want) in [
            ("", "it is not JSON"),
            ("{}", "it is the state neither of an agent nor of a controller: save what /state shows"),
            (r#"{"snapshot": 1}"#, "it is not the state of an agent of this version"),
            (r#"{"observed": 1}"#, "it is not the state of a controller of this version"),
        ] {
            assert_eq!(plan(text).expect_err("no state").to_string(), want, "{text:?}");
        }
    }
}
