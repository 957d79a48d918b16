//! Real kubelets: one that waits for its cloud provider joins, is initialized by Cairn, and runs what was Pending.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod, ServiceAccount};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::SOON;
use crate::harness::{
    Lab,
    enclosure::inside,
    full_node::{self, IMAGE, NodeIp},
    kubelet::UNINITIALIZED,
    wait::stays,
    wait_for,
};

/// Longer than the scheduler needs for a pod that it can place.
const A_WHILE: Duration = Duration::from_secs(2);
/// How many of the kubelet's status updates the Node has to outlive.
const UPDATES: usize = 2;

#[test]
fn a_kubelet_that_is_told_its_addresses_joins_and_its_pending_pod_runs() {
    inside(async || joins(NodeIp::Told).await);
}

#[test]
fn a_kubelet_that_knows_no_address_joins_and_its_pending_pod_runs() {
    inside(async || joins(NodeIp::Untold).await);
}

#[test]
fn a_kubelet_that_starts_again_finds_its_node_as_it_was() {
    inside(async || {
        let Some(mut lab) = with_initialized_node().await? else { return Ok(()) };
        let before = lab.node("n1")?.object().await?;
        lab.node("n1")?.restart_kubelet().await?;
        outlives_status_updates(&mut lab).await?;
        let after = lab.node("n1")?.object().await?;
        ensure!(after.metadata.uid == before.metadata.uid, "the Node is another one");
        ensure!(after.metadata.labels == before.metadata.labels, "{:?}", after.metadata.labels);
        let (before, after) = (before.spec.unwrap_or_default(), after.spec.unwrap_or_default());
        ensure!(after.pod_cidrs == before.pod_cidrs, "{:?}", after.pod_cidrs);
        let is_awaiting = after.taints.iter().flatten().any(|taint| taint.key == UNINITIALIZED);
        ensure!(!is_awaiting, "it waits to be initialized again");
        Ok(())
    });
}

#[test]
fn a_node_that_was_deleted_is_initialized_again_when_its_kubelet_registers_it() {
    inside(async || {
        let Some(mut lab) = with_initialized_node().await? else { return Ok(()) };
        let before = lab.node("n1")?.object().await?.metadata.uid;
        let nodes: Api<NodeObject> = Api::all(lab.kube().clone());
        nodes.delete("n1", &DeleteParams::default()).await?;
        // Only a kubelet that starts registers its Node.
        lab.node("n1")?.restart_kubelet().await?;
        wait_for("the kubelet has registered a new Node", SOON, async || {
            let node = nodes.get("n1").await?;
            ensure!(node.metadata.uid != before, "it is still the old one");
            Ok(())
        })
        .await?;
        lab.node("n1")?.wait_until_initialized().await?;
        wait_for("the new Node is Ready", SOON, async || last_heartbeat(&nodes.get("n1").await?)).await?;
        is_as_in_the_inventory(&nodes.get("n1").await?)
    });
}

/// A lab with one Node of a real kubelet, Ready and initialized; none where there can be no such kubelet.
async fn with_initialized_node() -> Result<Option<Lab>> {
    if let Some(why) = full_node::obstacle() {
        println!("skipped: {why}");
        return Ok(None);
    }
    let mut lab = Lab::builder().start().await?;
    lab.install_cairn().await?;
    lab.add_full_node(1, NodeIp::Told).await?;
    lab.spawn_controller()?;
    let node = lab.node("n1")?;
    node.wait_until_initialized().await?;
    wait_for("the Node is Ready", SOON, async || last_heartbeat(&node.object().await?)).await?;
    Ok(Some(lab))
}

async fn joins(node_ip: NodeIp) -> Result<()> {
    if let Some(why) = full_node::obstacle() {
        println!("skipped: {why}");
        return Ok(());
    }
    let mut lab = Lab::builder().start().await?;
    lab.control_plane_mut().start_scheduler()?;
    lab.install_cairn().await?;
    lab.add_full_node(1, node_ip).await?;
    let registered = lab.node("n1")?.object().await?;
    let has_address = addresses(&registered).iter().any(|(kind, _)| kind == "InternalIP");
    ensure!(has_address == (node_ip == NodeIp::Told), "addresses of the kubelet: {:?}", addresses(&registered));
    ensure!(registered.spec.as_ref().is_some_and(|spec| spec.provider_id.is_none()), "it has a provider ID");
    create_pod(&lab).await?;
    stays("the pod has no node to run on", A_WHILE, async || {
        let pod = pods(&lab).get("web").await?;
        ensure!(pod.spec.is_some_and(|spec| spec.node_name.is_none()), "it was placed");
        let taints = lab.node("n1")?.object().await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
        ensure!(taints.iter().any(|taint| taint.key == UNINITIALIZED), "{taints:?}");
        Ok(())
    })
    .await?;

    lab.spawn_controller()?;
    lab.spawn_agent("n1")?;
    lab.node("n1")?.wait_until_initialized().await?;
    wait_for("the pod is Ready", SOON, async || is_ready(&pods(&lab).get("web").await?)).await?;
    outlives_status_updates(&mut lab).await
}

/// A web server that the kubelet itself asks whether it is ready.
async fn create_pod(lab: &Lab) -> Result<()> {
    wait_for("pods have an account", SOON, async || {
        let accounts: Api<ServiceAccount> = Api::default_namespaced(lab.kube().clone());
        Ok(accounts.get("default").await?)
    })
    .await?;
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": { "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "web",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/busybox", "httpd", "-f", "-p", "8080", "-h", "/"],
            "readinessProbe": { "httpGet": { "path": "/index.html", "port": 8080 }, "periodSeconds": 1 },
        }] },
    });
    pods(lab).create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}

/// What the inventory says of the Node stays while the kubelet goes on writing its status.
async fn outlives_status_updates(lab: &mut Lab) -> Result<()> {
    let first = wait_for("the Node is Ready", SOON, async || last_heartbeat(&lab.node("n1")?.object().await?)).await?;
    let mut heartbeats = vec![first];
    while heartbeats.len() <= UPDATES {
        let node = wait_for("the kubelet writes its status again", SOON, async || {
            let node = lab.node("n1")?.object().await?;
            ensure!(heartbeats.last() != Some(&last_heartbeat(&node)?), "its heartbeats: {heartbeats:?}");
            Ok(node)
        })
        .await?;
        is_as_in_the_inventory(&node)?;
        heartbeats.push(last_heartbeat(&node)?);
    }
    Ok(())
}

fn is_as_in_the_inventory(node: &NodeObject) -> Result<()> {
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    ensure!(provider_id == Some("cairn://rack1-u01"), "provider ID {provider_id:?}");
    let want = [("InternalIP", "10.90.0.11"), ("InternalIP", "fd90::11"), ("Hostname", "n1")];
    ensure!(
        addresses(node) == want.map(|(kind, address)| (kind.to_owned(), address.to_owned())),
        "{:?}",
        addresses(node)
    );
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let kind = labels.get("node.kubernetes.io/instance-type");
    ensure!(kind.is_some_and(|kind| kind == "lab.small"), "{labels:?}");
    Ok(())
}

fn addresses(node: &NodeObject) -> Vec<(String, String)> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
    addresses.into_iter().map(|address| (address.type_, address.address)).collect()
}

/// When the kubelet last said that the Node is Ready.
fn last_heartbeat(node: &NodeObject) -> Result<String> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready =
        conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready" && condition.status == "True");
    let time = ready.and_then(|ready| ready.last_heartbeat_time.as_ref()).context("the Node is not Ready")?;
    Ok(time.0.to_string())
}

fn is_ready(pod: &Pod) -> Result<()> {
    let status = pod.status.clone().unwrap_or_default();
    let is_ready =
        status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ensure!(is_ready, "its phase is {:?}, its containers are {:?}", status.phase, status.container_statuses);
    Ok(())
}

fn pods(lab: &Lab) -> Api<Pod> {
    Api::default_namespaced(lab.kube().clone())
}
