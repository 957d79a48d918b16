//! Machines that are gone for good, machines that only seem to be, and what happens to their Nodes.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::SOON;
use crate::harness::{Lab, enclosure::inside, kubernetes::Kubernetes, node::Death, wait::stays, wait_for};

/// Longer than the control plane needs to find a node dead, and Cairn to look at it.
const LOOKED_AT: Duration = Duration::from_secs(12);
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

#[test]
fn a_dead_node_is_deleted_once_its_machine_is_decommissioned_and_a_ready_one_is_not() {
    inside(async || dead_nodes_are_deleted(Kubernetes::default()).await);
}

/// Two machines are decommissioned, of which one is dead.
pub(super) async fn dead_nodes_are_deleted(kubernetes: Kubernetes) -> Result<()> {
    let mut lab = Lab::builder().kubernetes(kubernetes).nodes(3).start().await?;
    lab.install_cairn().await?;
    decommission(&lab, "rack1-u01")?;
    lab.spawn_controller()?;
    lab.node("n3")?.wait_until_initialized().await?;
    lab.node("n3")?.kill(Death::Silent).await?;
    wait_for("n3 is not ready", SOON, async || is_not_ready(&lab, "n3").await).await?;
    decommission(&lab, "rack1-u03")?;
    wait_for("n3 is deleted", SOON, async || is_gone(&lab, "n3").await).await?;
    wait_for("an Event says so", SOON, async || is_told(&lab, "n3", "DeletingNode").await).await?;
    stays("n1, which is ready, and n2 are there", LOOKED_AT, async || are_there(&lab, &["n1", "n2"]).await).await
}

#[test]
fn an_inventory_that_cannot_be_read_deletes_nothing_and_an_event_says_why() {
    inside(async || {
        let mut lab = Lab::builder().nodes(2).start().await?;
        lab.install_cairn().await?;
        let initialized = json!({ "spec": { "providerID": "cairn://rack1-u02", "taints": null } });
        change(&lab, "n2", initialized).await?;
        lab.node("n2")?.kill(Death::Silent).await?;
        decommission(&lab, "rack1-u02")?;
        lab.cairn()?.edit("inventory.yaml", "10.90.0.11", "10.90.0.311")?;
        lab.spawn_controller()?;
        wait_for("an Event says why nothing happens", SOON, async || is_told(&lab, "n2", "MachineUnknown").await)
            .await?;
        stays("n2 is there", LOOKED_AT, async || are_there(&lab, &["n1", "n2"]).await).await
    });
}

#[test]
fn more_than_the_limit_at_once_deletes_none_until_someone_agrees() {
    inside(async || {
        let mut lab = Lab::builder().nodes(3).start().await?;
        lab.install_cairn().await?;
        for machine in ["rack1-u02", "rack1-u03"] {
            decommission(&lab, machine)?;
        }
        for name in ["n2", "n3"] {
            lab.node(name)?.kill(Death::Silent).await?;
        }
        for name in ["n2", "n3"] {
            wait_for(&format!("{name} is not ready"), SOON, async || is_not_ready(&lab, name).await).await?;
        }
        lab.spawn_controller()?;
        for name in ["n2", "n3"] {
            let what = format!("an Event says what holds {name}");
            wait_for(&what, SOON, async || is_told(&lab, name, "DeletionsHeld").await).await?;
        }
        stays("all are there", LOOKED_AT, async || are_there(&lab, &["n1", "n2", "n3"]).await).await?;
        let agreed = json!({ "metadata": { "annotations": { "cairn.dev/acknowledge-deletion": "true" } } });
        change(&lab, "n2", agreed).await?;
        for name in ["n2", "n3"] {
            // With n2 gone, n3 is within the limit.
            wait_for(&format!("{name} is deleted"), SOON, async || is_gone(&lab, name).await).await?;
        }
        are_there(&lab, &["n1"]).await
    });
}

#[test]
fn a_node_that_is_ready_loses_the_shutdown_taint_and_no_other() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller()?;
        lab.node("n1")?.wait_until_initialized().await?;
        let shutdown = json!({ "key": SHUTDOWN, "effect": "NoSchedule" });
        let other = json!({ "key": "example.net/other", "effect": "NoSchedule" });
        change(&lab, "n1", json!({ "spec": { "taints": [other, shutdown] } })).await?;
        wait_for("the taint is gone", SOON, async || {
            let taints = nodes(&lab).get("n1").await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let keys: Vec<_> = taints.iter().map(|taint| taint.key.as_str()).collect();
            ensure!(keys.contains(&"example.net/other") && !keys.contains(&SHUTDOWN), "taints {keys:?}");
            Ok(())
        })
        .await
    });
}

fn nodes(lab: &Lab) -> Api<NodeObject> {
    Api::all(lab.kube().clone())
}

fn decommission(lab: &Lab, machine: &str) -> Result<()> {
    let (active, decommissioned) =
        ["active", "decommissioned"].map(|state| format!("{machine}\n  state: {state}")).into();
    lab.cairn()?.edit("inventory.yaml", &active, &decommissioned)
}

async fn change(lab: &Lab, node: &str, patch: Value) -> Result<()> {
    nodes(lab).patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn is_not_ready(lab: &Lab, name: &str) -> Result<()> {
    let status = nodes(lab).get(name).await?.status.unwrap_or_default();
    let ready = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    ensure!(ready.as_ref().is_some_and(|ready| ready.status != "True"), "Ready: {ready:?}");
    Ok(())
}

async fn is_gone(lab: &Lab, name: &str) -> Result<()> {
    ensure!(nodes(lab).get_opt(name).await?.is_none(), "Node {name} is there");
    Ok(())
}

async fn are_there(lab: &Lab, names: &[&str]) -> Result<()> {
    for name in names {
        ensure!(nodes(lab).get_opt(name).await?.is_some(), "Node {name} is gone");
    }
    Ok(())
}

/// The lifecycle controller has told this reason of the Node, once.
async fn is_told(lab: &Lab, node: &str, reason: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(lab.kube().clone(), "default");
    let all = events.list(&ListParams::default()).await?;
    let is_ours = |event: &&Event| {
        event.reporting_controller.as_deref() == Some("cloud-node-lifecycle-controller")
            && event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref()) == Some(node)
    };
    let reasons: Vec<_> = all.iter().filter(is_ours).filter_map(|event| event.reason.as_deref()).collect();
    ensure!(reasons.iter().filter(|told| **told == reason).count() == 1, "told of {node}: {reasons:?}");
    Ok(())
}
