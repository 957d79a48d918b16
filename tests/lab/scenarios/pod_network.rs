//! Pods of real kubelets with a bridge CNI reach each other across nodes, by Cairn's routes and nothing else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use super::SOON;
use crate::harness::{
    Lab,
    enclosure::inside,
    full_node::{self, IMAGE, NodeIp},
    wait_for,
};

/// Three machines boot, each with a container runtime.
const BOOTED_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn pods_of_three_real_kubelets_ping_each_other_in_both_families() {
    inside(async || {
        if let Some(why) = full_node::obstacle() {
            println!("skipped: {why}");
            return Ok(());
        }
        let mut lab = Lab::builder().start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller()?;
        for number in 1..=3 {
            lab.add_full_node(number, NodeIp::Told).await?;
            lab.spawn_agent(&format!("n{number}"))?;
        }
        wait_for("pods have an account", SOON, async || {
            let accounts: Api<ServiceAccount> = Api::default_namespaced(lab.kube().clone());
            Ok(accounts.get("default").await?)
        })
        .await?;
        let pods: Api<Pod> = Api::default_namespaced(lab.kube().clone());
        let target = pod("target", "n1", "sleep 3600", "true");
        pods.create(&PostParams::default(), &serde_json::from_value(target)?).await?;
        let addresses = wait_for("the target has its addresses", BOOTED_WITHIN, async || {
            let status = pods.get("target").await?.status.unwrap_or_default();
            let ips: Vec<_> = status.pod_ips.into_iter().flatten().map(|ip| ip.ip).collect();
            ensure!(ips.len() == 2, "its addresses: {ips:?}");
            Ok(ips)
        })
        .await?;
        // Ready is a pod that gets an answer from the target, in both families.
        let ping = addresses.iter().map(|address| format!("/busybox ping -c 1 -W 1 {address}"));
        let ping = ping.collect::<Vec<_>>().join(" && ");
        for node in ["n1", "n2", "n3"] {
            let pinger = pod(&format!("from-{node}"), node, "sleep 3600", &ping);
            pods.create(&PostParams::default(), &serde_json::from_value(pinger)?).await?;
        }
        for node in ["n1", "n2", "n3"] {
            let what = format!("a pod of {node} pings {addresses:?}");
            wait_for(&what, BOOTED_WITHIN, async || is_ready(&pods, &format!("from-{node}")).await).await?;
        }
        Ok(())
    });
}

/// A pod on a node that is Ready when a command in it succeeds.
fn pod(name: &str, node: &str, runs: &str, is_ready: &str) -> Value {
    let shell = |script: &str| json!(["/busybox", "sh", "-c", script]);
    json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "tolerations": [{ "operator": "Exists" }],
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "shell",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": shell(&format!("/busybox {runs}")),
                "readinessProbe": { "exec": { "command": shell(is_ready) }, "periodSeconds": 1, "timeoutSeconds": 3 },
            }],
        },
    })
}

async fn is_ready(pods: &Api<Pod>, name: &str) -> Result<()> {
    let status = pods.get(name).await?.status.context("the pod has no status yet")?;
    let conditions = status.conditions.unwrap_or_default();
    let is_ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ensure!(is_ready, "{:?} {:?}", status.phase, status.container_statuses);
    Ok(())
}
