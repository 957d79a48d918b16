//! The agent as its manifest runs it: a pod of a DaemonSet on a machine with a real kubelet.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, LogParams},
};

use super::{SOON, first_service::has_routes};
use crate::harness::{
    Lab,
    cairn::manifest,
    enclosure::inside,
    full_node::{self, NodeIp},
    wait_for,
};

const AGENT: &str = "app.kubernetes.io/component=agent";

#[test]
fn an_agent_in_its_pod_routes_to_the_pods_of_another_node() {
    inside(async || {
        if let Some(why) = full_node::obstacle() {
            println!("skipped: {why}");
            return Ok(());
        }
        let mut lab = Lab::builder().start().await?;
        lab.control_plane_mut().start_scheduler()?;
        lab.install_cairn().await?;
        lab.add_full_node(1, NodeIp::Told).await?;
        lab.add_node(2).await?;
        lab.spawn_controller()?;
        lab.spawn_agent("n2")?;
        // In a pod it reaches the API server by the address of Service kubernetes.
        lab.start_proxies().await?;
        lab.control_plane().kubectl(["apply", "-f", &manifest("agent.yaml")]).await?;
        wait_for("the agent's pod on n1 is Ready", SOON, async || is_ready(&agent_on(&lab, "n1").await?)).await?;
        let routed = wait_for("n1 has a route to the pods of n2", SOON, async || {
            let node = lab.nodes().find(|node| node.name() == "n1").context("n1")?;
            has_routes(&lab, node).await
        });
        let Err(error) = routed.await else { return network_is_available(&mut lab).await };
        Err(error.context(log_of_agent(&lab).await?))
    });
}

/// What the agent on the node vouches for, and the one on the other node.
async fn network_is_available(lab: &mut Lab) -> Result<()> {
    let node = lab.node("n1")?;
    wait_for("n1's network is available", SOON, async || {
        let conditions = node.object().await?.status.and_then(|status| status.conditions).unwrap_or_default();
        let condition = conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable");
        ensure!(condition.is_some_and(|condition| condition.status == "False"), "{condition:?}");
        Ok(())
    })
    .await
}

async fn agent_on(lab: &Lab, node: &str) -> Result<Pod> {
    let pods = agents(lab).list(&ListParams::default().labels(AGENT)).await?.items;
    let is_there = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    pods.into_iter().find(is_there).with_context(|| format!("no agent was placed on {node}"))
}

fn is_ready(pod: &Pod) -> Result<()> {
    let status = pod.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.iter().flatten();
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ensure!(is_ready, "its phase is {:?}, its containers are {:?}", status.phase, status.container_statuses);
    Ok(())
}

async fn log_of_agent(lab: &Lab) -> Result<String> {
    let name = agent_on(lab, "n1").await?.metadata.name.context("a pod has a name")?;
    let log = agents(lab).logs(&name, &LogParams::default()).await;
    Ok(log.unwrap_or_else(|error| format!("the agent's log cannot be read: {error}")))
}

fn agents(lab: &Lab) -> Api<Pod> {
    Api::namespaced(lab.kube().clone(), "kube-system")
}
