//! `cairn plan`: what a saved state leads to.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::Value;

use super::output::Output;
use crate::agent::forecast as agent;
use crate::config::{self, document};
use crate::controller::forecast as controller;
use crate::model::Prefix;

/// Show what an agent or a controller would do about routes, and why, from a saved state.
///
/// It plans again, with the same planners. Nothing is asked, and nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The saved state, JSON or YAML; '-' is standard input.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// The controller's flag, for what kubectl shows: routes to pods elsewhere are not its own.
    #[arg(long, value_name = "CIDRS", default_value = "", hide_default_value = true)]
    cluster_cidr: String,
    #[command(flatten)]
    output: Output,
}

const AFTER_HELP: &str = "A saved state is one of:
  of an agent       curl http://127.0.0.1:10262/state, on its node
  of a controller   kubectl get nodes,noderoutes,nodereports -o yaml
                    or /state on its secure port, which says its flags too

Exits with 0 when it has planned, also when there is nothing to do, and with 1 when that is no saved state.

Example: kubectl get nodes,noderoutes,nodereports -o yaml | cairn plan --from -";

/// What would be done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Planned {
    /// To one node's kernel routes.
    Agent(agent::Forecast),
    /// To objects.
    Controller(controller::Forecast),
}

impl Args {
    /// Prints what would be done.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let cidrs = config::cluster_cidrs(&self.cluster_cidr).map_err(|faults| {
            let told: Vec<_> = faults.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{}", told.join("\n"))
        })?;
        let from = self.from.display();
        let text = read(&self.from).with_context(|| format!("--from {from}"))?;
        self.output.say(&plan(&self.from, &text, cidrs).with_context(|| format!("--from {from}"))?)?;
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

fn plan(file: &Path, text: &str, cluster_cidrs: Vec<Prefix>) -> anyhow::Result<Planned> {
    let documents = documents(file, text)?;
    if let Some(state) = documents.iter().find(|document| document.get("snapshot").is_some()) {
        let state = serde_json::from_value(state.clone()).context("it is not the state of an agent of this version")?;
        let forecast = agent::forecast(&state).context("table and metric name no place for routes")?;
        return Ok(Planned::Agent(forecast));
    }
    if let Some(state) = documents.iter().find(|document| document.get("observed").is_some()) {
        let forecast = controller::forecast(state).context("it is not the state of a controller of this version")?;
        return Ok(Planned::Controller(forecast));
    }
    if documents.iter().all(|document| document.get("kind").is_none()) {
        bail!(
            "it is the state neither of an agent nor of a controller: save what /state shows, or what \
             `kubectl get nodes,noderoutes,nodereports -o yaml` does"
        )
    }
    Ok(Planned::Controller(controller::forecast_objects(&documents, cluster_cidrs)?))
}

/// What a text of JSON or YAML holds.
fn documents(file: &Path, text: &str) -> anyhow::Result<Vec<Value>> {
    if let Ok(document) = serde_json::from_str(text) {
        return Ok(vec![document]);
    }
    let parsed = document::parse(file, text);
    if !parsed.faults.is_empty() {
        bail!("it is neither JSON nor YAML: {}", parsed.faults);
    }
    Ok(parsed.documents.iter().map(document::Node::to_json).collect())
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(forecast) => forecast.fmt(f),
            Self::Controller(forecast) => forecast.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> anyhow::Result<Planned> {
        plan(Path::new("state"), text, Vec::new())
    }

    #[test]
    fn what_is_no_state_is_refused_with_a_reason() {
        for (text, want) in [
            ("", "it is neither JSON nor YAML"),
            ("a: [", "it is neither JSON nor YAML"),
            ("{}", "it is the state neither of an agent nor of a controller"),
            ("routes: 1", "it is the state neither of an agent nor of a controller"),
            (r#"{"snapshot": 1}"#, "it is not the state of an agent of this version"),
            (r#"{"observed": 1}"#, "it is not the state of a controller of this version"),
            ("{kind: List, items: []}", "it has no Node"),
            ("{kind: NodeRoute, metadata: {name: n1}, spec: {}}", "NodeRoute n1"),
        ] {
            let told = of(text).expect_err("no state").to_string();
            assert!(told.starts_with(want), "{text:?}: {told}");
        }
    }

    #[test]
    fn objects_are_planned_in_whatever_form_kubectl_shows_them() {
        let node = r"{apiVersion: v1, kind: Node, metadata: {name: n1, uid: u1}, spec: {podCIDRs: [10.244.0.0/24]},
                      status: {addresses: [{type: InternalIP, address: 10.90.0.11}]}}";
        let want = "write NodeRoute n1: it has none yet; addresses 10.90.0.11, pod CIDRs 10.244.0.0/24\n";
        for (case, text) in [
            ("one", node.to_owned()),
            ("a list", format!("{{kind: List, items: [{node}, {{kind: Pod, metadata: {{name: p}}}}]}}")),
            ("documents", format!("{node}\n---\n{{kind: Pod, metadata: {{name: p}}}}\n")),
        ] {
            let told = of(&text).expect(case).to_string();
            assert!(told.starts_with(want), "{case}: {told}");
        }
        let elsewhere = plan(Path::new("state"), node, vec!["10.99.0.0/16".parse().expect("a CIDR")]);
        let told = elsewhere.expect("a plan").to_string();
        assert!(!told.contains("pod CIDRs"), "pods elsewhere: {told}");
    }

    #[test]
    fn scripts_read_writes_as_a_list() {
        let node = "{kind: Node, metadata: {name: n1, uid: u1}, status: {addresses: [{type: InternalIP, address: 10.90.0.11}]}}";
        let told = serde_json::to_value(of(node).expect("a plan")).expect("JSON");
        let writes = told.pointer("/controller/writes").and_then(Value::as_array).expect("a list");
        assert!(writes[0].as_str().is_some_and(|line| line.starts_with("write NodeRoute n1")), "{told}");
    }
}
