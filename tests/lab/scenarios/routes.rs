//! Whether nodes are reached: who says so, what that costs, and what happens when they are not.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{core::v1::Node as NodeObject, events::v1::Event};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::SOON;
use crate::harness::{Lab, enclosure::inside, wait_for};

/// What the API server of a lab without Kubernetes' own controllers knows of nodes stays as it is.
const ROUTES_ONLY: &[&str] = &["--controllers=route"];

#[test]
fn a_node_without_an_agent_is_unavailable_and_says_why() {
    inside(async || {
        let mut lab = Lab::builder().nodes(2).api_only().start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller_with(ROUTES_ONLY)?;
        lab.spawn_agent("n1")?;
        for number in [1, 2] {
            join(&lab, number).await?;
        }
        available(&lab, "n1").await?;
        let want = "RouteController failed to create a route: Cairn's agent has never reported from this node";
        wait_for("n2 says that its agent is missing", SOON, async || {
            let (status, message) = network(&lab, "n2").await?;
            ensure!(status == "True" && message.starts_with(want), "{status}: {message}");
            Ok(())
        })
        .await?;
        let events: Api<Event> = Api::default_namespaced(lab.kube().clone());
        wait_for("an Event says so too", SOON, async || {
            let all = events.list(&ListParams::default()).await?;
            let is_it = |event: &&Event| {
                let is_about = event.regarding.as_ref().is_some_and(|object| object.name.as_deref() == Some("n2"));
                is_about && event.reason.as_deref() == Some("FailedToCreateRoute")
            };
            let event = all.items.iter().find(is_it).context("no such Event")?;
            let note = event.note.clone().unwrap_or_default();
            ensure!(note.starts_with("Could not create route ") && note.contains("never reported"), "{note}");
            Ok(())
        })
        .await?;
        lab.spawn_agent("n2")?;
        available(&lab, "n2").await
    });
}

#[test]
fn what_an_agent_shows_of_itself_leads_to_its_plan() {
    inside(async || {
        let mut lab = started(3).await?;
        let n1 = lab.node("n1")?;
        let state = async |file: &str| n1.exec(["curl", "-sf", "-o", file, "http://127.0.0.1:10262/state"]).await;
        let plan = async |file: &str| n1.exec([env!("CARGO_BIN_EXE_cairn"), "plan", "--from", file]).await;
        wait_for("nothing is left to do", SOON, async || {
            state("/run/lab/settled.json").await?;
            let plan = plan("/run/lab/settled.json").await?;
            ensure!(plan == "as they should be: 2\n", "{plan}");
            Ok(())
        })
        .await?;
        let elsewhere = r#"s/\("hops":\[{"gateway":"\)10.90.0.12/\110.90.0.99/"#;
        n1.exec(["sed", "-i", elsewhere, "/run/lab/settled.json"]).await?;
        let plan = plan("/run/lab/settled.json").await?;
        let want = "replace  10.244.2.0/24  via 10.90.0.12  pods of node n2; ours goes to 10.90.0.99 now\nas they should be: 1\n";
        ensure!(plan == want, "{plan}");
        Ok(())
    });
}

/// So many nodes in a cluster with a route controller, agents and nothing else, all reached.
async fn started(nodes: u8) -> Result<Lab> {
    let mut lab = Lab::builder().nodes(nodes).api_only().start().await?;
    lab.install_cairn().await?;
    lab.spawn_controller_with(ROUTES_ONLY)?;
    lab.spawn_agents()?;
    for number in 1..=nodes {
        join(&lab, number).await?;
    }
    for number in 1..=nodes {
        available(&lab, &format!("n{number}")).await?;
    }
    Ok(lab)
}

/// Gives a node what others would: a pod CIDR, then addresses, and takes its taint off.
async fn join(lab: &Lab, number: u8) -> Result<()> {
    let (name, cidr) = (format!("n{number}"), format!("10.244.{number}.0/24"));
    let nodes: Api<NodeObject> = Api::all(lab.kube().clone());
    let spec = json!({ "spec": { "podCIDR": cidr, "podCIDRs": [cidr] } });
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(spec)).await?;
    lab.nodes().find(|node| node.name() == name).context("no such node")?.initialize_by_hand().await
}

/// Status and message of `NetworkUnavailable`.
async fn network(lab: &Lab, name: &str) -> Result<(String, String)> {
    let nodes: Api<NodeObject> = Api::all(lab.kube().clone());
    let status = nodes.get(name).await?.status.unwrap_or_default();
    let condition = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "NetworkUnavailable");
    let condition = condition.with_context(|| format!("{name} has no condition NetworkUnavailable"))?;
    Ok((condition.status, condition.message.unwrap_or_default()))
}

async fn is_available(lab: &Lab, name: &str) -> Result<()> {
    let (status, message) = network(lab, name).await?;
    ensure!(status == "False", "{name}: {status}: {message}");
    Ok(())
}

async fn available(lab: &Lab, name: &str) -> Result<()> {
    wait_for(&format!("{name}'s network is available"), SOON, async || is_available(lab, name).await).await
}
