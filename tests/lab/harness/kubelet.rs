//! What a kubelet does that others depend on: registers the Node, renews its Lease, and says what is Ready.
//!
//! It runs on a thread in the node's network namespace, so that its heartbeat takes the way of the node's own frames:
//! a cut cable silences it.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    },
    jiff,
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::oneshot;

use super::{control_plane::client, namespace::Namespace};

const RENEW_EVERY: Duration = Duration::from_secs(1);
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The taint of a Node that no cloud provider has seen yet.
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Creates a Node as the kubelet does with `--cloud-provider=external`: Ready, tainted, without addresses.
pub(crate) async fn register(admin: &Client, name: &str) -> Result<()> {
    let now = jiff::Timestamp::now().to_string();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let capacity = json!({ "cpu": "2", "memory": "4Gi", "pods": "110" });
    let node = json!({
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" },
        },
        "spec": { "taints": [{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }] },
        // Kept on create: the API server's strategy for Nodes does not reset the status then.
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{ "type": "Hostname", "address": name }],
            "conditions": [ready(&now)],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "lab", "kernelVersion": "lab",
                "bootID": boot_id.trim(), "machineID": format!("lab-{name}"), "systemUUID": format!("lab-{name}"),
                "containerRuntimeVersion": "lab://1", "kubeletVersion": "v1.36.3", "kubeProxyVersion": "",
            },
        },
    });
    let nodes = Api::<Node>::all(admin.clone());
    let node = serde_json::from_value(node)?;
    nodes.create(&PostParams::default(), &node).await.with_context(|| format!("Node {name}"))?;
    Ok(())
}

/// Creates the Lease that the heartbeat renews.
pub(crate) async fn create_lease(admin: &Client, name: &str) -> Result<()> {
    let lease = json!({
        "metadata": { "name": name, "namespace": "kube-node-lease" },
        "spec": { "holderIdentity": name, "leaseDurationSeconds": 5, "renewTime": micro_now() },
    });
    let lease = serde_json::from_value(lease)?;
    node_leases(admin).create(&PostParams::default(), &lease).await.with_context(|| format!("Lease of {name}"))?;
    Ok(())
}

/// A heartbeat that ends with this value.
pub(crate) struct Kubelet {
    // The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Kubelet {
    /// Starts the heartbeat of node `name` with the node's own certificate.
    pub(crate) fn start(namespace: &Namespace, name: &str, kubeconfig: PathBuf) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let name = name.to_owned();
        namespace.spawn_thread(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => Ok(()),
                    outcome = heartbeat(&name, kubeconfig) => outcome,
                }
            })
        })?;
        Ok(Self { _stop: stop })
    }
}

async fn heartbeat(name: &str, kubeconfig: PathBuf) -> Result<()> {
    let client = client(&kubeconfig).await?;
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    loop {
        ticks.tick().await;
        // A call that fails is made again at the next tick, as a kubelet does.
        limit(renew(&client, name)).await.ok();
        limit(post_ready(&client, name)).await.ok();
        limit(post_ready_pods(&client, name)).await.ok();
    }
}

async fn limit(call: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(|_| anyhow!("no answer within {CALL_TIMEOUT:?}"))?
}

async fn renew(client: &Client, name: &str) -> Result<()> {
    let patch = json!({ "spec": { "renewTime": micro_now() } });
    node_leases(client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Says that the node is back, where the controller manager has marked it Unknown.
async fn post_ready(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let status = nodes.get(name).await?.status.unwrap_or_default();
    let mut conditions = status.conditions.iter().flatten();
    if conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        return Ok(());
    }
    say_ready(client, name).await
}

/// Says that the node is Ready: the status write that each kubelet makes every five minutes.
pub(crate) async fn say_ready(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = json!({ "status": { "conditions": [ready(&jiff::Timestamp::now().to_string())] } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

/// Says that pods are Ready whose containers are, where the controller manager has marked them with their node.
async fn post_ready_pods(client: &Client, name: &str) -> Result<()> {
    let own = ListParams::default().fields(&format!("spec.nodeName={name}"));
    for pod in Api::<Pod>::all(client.clone()).list(&own).await? {
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let has = |kind: &str, status: &str| conditions.iter().any(|one| one.type_ == kind && one.status == status);
        if has("ContainersReady", "True") && has("Ready", "False") {
            let namespace = pod.metadata.namespace.unwrap_or_default();
            let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
            let pod_name = pod.metadata.name.unwrap_or_default();
            pods.patch_status(&pod_name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        }
    }
    Ok(())
}

fn ready(now: &str) -> serde_json::Value {
    json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "light node",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

fn node_leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-node-lease")
}

/// The present in the form of a `MicroTime`.
fn micro_now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}
