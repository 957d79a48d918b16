//! Which machine a Node is, what the cluster shows of machines, and what a bad file may not do.

use anyhow::{Context, Result, ensure};
use cairn::api::{ConditionReason, ConditionStatus, ConditionType, Machine, MachineStatus, ReadingSource};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use super::SOON;
use crate::harness::{Lab, RouterKind, enclosure::inside, kubelet::UNINITIALIZED, wait_for};

const UUID: &str = "4c4c4544-0035-3410-8050-c6c04f314733";
/// The same machine, as a tool shows it that takes SMBIOS' byte order for another.
const UUID_SWAPPED: &str = "44454C4C-3500-1034-8050-C6C04F314733";

#[test]
fn a_machine_is_found_by_its_system_uuid_and_shows_its_node() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).start().await?;
        lab.install_cairn().await?;
        lab.cairn()?.edit("inventory.yaml", "match: {nodeName: n2}", &format!("match: {{systemUUID: {UUID}}}"))?;
        lab.spawn_controller()?;
        register(lab.kube(), "worker", UUID_SWAPPED, None).await?;
        wait_for("the node is machine rack1-u02", SOON, async || {
            let node = initialized(lab.kube(), "worker").await?;
            ensure!(node.spec.as_ref().and_then(|s| s.provider_id.as_deref()) == Some("cairn://rack1-u02"));
            let annotations = node.metadata.annotations.unwrap_or_default();
            ensure!(annotations.get("cairn.dev/machine").is_some_and(|id| id == "rack1-u02"), "{annotations:?}");
            ensure!(annotations.contains_key("cairn.dev/system-uuid"), "{annotations:?}");
            Ok(())
        })
        .await?;
        wait_for("each machine says which node it is, or why none", SOON, async || {
            let worker = machine(lab.kube(), "rack1-u02").await?;
            ensure!(worker.node.as_deref() == Some("worker"), "{worker:?}");
            ensure!(
                worker.last_reading.as_ref().is_some_and(|reading| reading.source == ReadingSource::File),
                "{worker:?}"
            );
            expect(&worker, ConditionType::Ready, ConditionStatus::True, ConditionReason::InService)?;
            let nobody = machine(lab.kube(), "rack1-u03").await?;
            expect(&nobody, ConditionType::Matched, ConditionStatus::False, ConditionReason::NoNode)?;
            let first = machine(lab.kube(), "rack1-u01").await?;
            expect(&first, ConditionType::Matched, ConditionStatus::True, ConditionReason::NodeFound)
        })
        .await?;
        let shown = lab.control_plane().kubectl(["get", "machines"]).await?;
        let header: Vec<_> = shown.lines().next().unwrap_or_default().split_whitespace().collect();
        ensure!(header == ["NAME", "STATE", "NODE", "MATCHED", "READY", "REASON", "AGE"], "{shown}");
        ensure!(shown.lines().any(|line| line.contains("rack1-u02") && line.contains("active   worker")), "{shown}");
        Ok(())
    });
}

#[test]
fn another_providers_node_is_left_alone_unless_a_machine_names_it() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller()?;
        register(lab.kube(), "n2", UUID, Some("lab://n2")).await?;
        wait_for("its event says why it is left alone", SOON, async || {
            let told = events_of(lab.kube(), "n2").await?;
            ensure!(told.iter().any(|(reason, _)| reason == "ForeignProviderID"), "{told:?}");
            Ok(())
        })
        .await?;
        ensure!(initialized(lab.kube(), "n2").await.is_err(), "another provider's node was touched");
        lab.cairn()?.edit(
            "inventory.yaml",
            "match: {nodeName: n2}",
            "match: {nodeName: n2, providerID: 'lab://n2'}",
        )?;
        wait_for("the node is the machine that names it", SOON, async || {
            let node = initialized(lab.kube(), "n2").await?;
            ensure!(node.spec.as_ref().and_then(|s| s.provider_id.as_deref()) == Some("lab://n2"));
            let shown = machine(lab.kube(), "rack1-u02").await?;
            ensure!(shown.provider_id == "lab://n2" && shown.node.as_deref() == Some("n2"), "{shown:?}");
            Ok(())
        })
        .await
    });
}

#[test]
fn machines_that_go_together_wait_until_that_is_acknowledged() {
    inside(async || {
        let mut lab = Lab::builder().nodes(2).start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller()?;
        for name in ["n1", "n2"] {
            lab.node(name)?.wait_until_initialized().await?;
        }
        wait_for("the machines are shown", SOON, async || machine(lab.kube(), "rack1-u03").await).await?;
        let cairn = lab.cairn()?;
        cairn.edit("inventory.yaml", "state: active", "state: decommissioned")?;
        wait_for("the machines say that they are held", SOON, async || {
            let first = machine(lab.kube(), "rack1-u01").await?;
            expect(&first, ConditionType::Ready, ConditionStatus::Unknown, ConditionReason::RemovalHeld)?;
            ensure!(first.state.to_string() == "active", "{first:?}");
            let told = events_of(lab.kube(), "rack1-u01").await?;
            ensure!(told.iter().any(|(reason, note)| reason == "RemovalHeld" && note.contains("acknowledgedRemovals")));
            Ok(())
        })
        .await?;
        let acknowledged = "kind: Inventory\nacknowledgedRemovals: [rack1-u02, rack1-u03]";
        cairn.edit("inventory.yaml", "kind: Inventory", acknowledged)?;
        wait_for("the machines are decommissioned", SOON, async || {
            let third = machine(lab.kube(), "rack1-u03").await?;
            expect(&third, ConditionType::Ready, ConditionStatus::False, ConditionReason::Decommissioned)
        })
        .await
    });
}

#[test]
fn a_machine_without_addresses_gets_those_its_agent_reports() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).router(RouterKind::Bird).start().await?;
        lab.install_cairn().await?;
        let addresses = "  addresses:\n  - {type: InternalIP, address: 10.90.0.11}\n  - {type: InternalIP, address: \"fd90::11\"}\n  \
                         - {type: Hostname, address: n1}\n";
        lab.cairn()?.edit("inventory.yaml", addresses, "")?;
        lab.spawn_controller()?;
        wait_for("its event says that nobody knows an address", SOON, async || {
            let told = events_of(lab.kube(), "n1").await?;
            ensure!(told.iter().any(|(reason, _)| reason == "NoAddresses"), "{told:?}");
            Ok(())
        })
        .await?;
        lab.spawn_agents()?;
        wait_for("the node has its own addresses", 2 * SOON, async || {
            let node = initialized(lab.kube(), "n1").await?;
            let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
            let ips: Vec<_> = addresses.iter().filter(|a| a.type_ == "InternalIP").map(|a| &*a.address).collect();
            ensure!(ips == ["10.90.0.11", "fd90::11"], "{addresses:?}");
            Ok(())
        })
        .await
    });
}

#[test]
fn a_node_waits_while_another_has_its_key_or_is_its_machine() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).start().await?;
        lab.install_cairn().await?;
        lab.cairn()?.edit("inventory.yaml", "match: {nodeName: n2}", &format!("match: {{systemUUID: {UUID}}}"))?;
        register(lab.kube(), "one", UUID, None).await?;
        register(lab.kube(), "two", UUID_SWAPPED, None).await?;
        lab.spawn_controller()?;
        wait_for("both are told that nothing names their machine", SOON, async || {
            for name in ["one", "two"] {
                told(lab.kube(), name, "MachineUnknown").await?;
            }
            Ok(())
        })
        .await?;
        let nodes = Api::<Node>::all(lab.kube().clone());
        nodes.delete("two", &Default::default()).await?;
        wait_for("the one that is left is the machine", SOON, async || initialized(lab.kube(), "one").await).await?;
        register(lab.kube(), "three", "", Some("cairn://rack1-u02")).await?;
        wait_for("another one that would be it is told who is", SOON, async || {
            told(lab.kube(), "three", "MachineTaken").await
        })
        .await?;
        nodes.delete("one", &Default::default()).await?;
        wait_for("it is the machine now", SOON, async || initialized(lab.kube(), "three").await).await?;
        Ok(())
    });
}

/// Creates a Node as a kubelet does that waits for its cloud provider.
async fn register(client: &Client, name: &str, uuid: &str, provider_id: Option<&str>) -> Result<()> {
    let node = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "spec": {
            "taints": [{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }],
            "providerID": provider_id,
        },
        "status": {
            "addresses": [{ "type": "Hostname", "address": name }],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "lab", "kernelVersion": "lab",
                "bootID": "", "machineID": "", "systemUUID": uuid, "containerRuntimeVersion": "lab://1",
                "kubeletVersion": "v1.36.3", "kubeProxyVersion": "",
            },
        },
    });
    let nodes = Api::<Node>::all(client.clone());
    nodes
        .create(&PostParams::default(), &serde_json::from_value(node)?)
        .await
        .with_context(|| format!("Node {name}"))?;
    Ok(())
}

/// The Node, once its taint is gone.
async fn initialized(client: &Client, name: &str) -> Result<Node> {
    let node = Api::<Node>::all(client.clone()).get(name).await?;
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    ensure!(taints.into_iter().flatten().all(|taint| taint.key != UNINITIALIZED), "{name} waits for its provider");
    Ok(node)
}

async fn machine(client: &Client, id: &str) -> Result<MachineStatus> {
    Api::<Machine>::all(client.clone()).get(id).await?.status.with_context(|| format!("{id} has no status"))
}

fn expect(
    machine: &MachineStatus,
    kind: ConditionType,
    status: ConditionStatus,
    reason: ConditionReason,
) -> Result<()> {
    let condition = machine.conditions.iter().find(|condition| condition.kind == kind);
    ensure!(condition.is_some_and(|c| c.status == status && c.reason == reason), "{kind:?} is {condition:?}");
    Ok(())
}

/// Whether an Event about the Node has this reason.
async fn told(client: &Client, name: &str, reason: &str) -> Result<()> {
    let told = events_of(client, name).await?;
    ensure!(told.iter().any(|(there, _)| there == reason), "{name}: {told:?}");
    Ok(())
}

/// Reasons and sentences of the Events about an object without a namespace.
async fn events_of(client: &Client, name: &str) -> Result<Vec<(String, String)>> {
    let events = Api::<Event>::namespaced(client.clone(), "default").list(&Default::default()).await?;
    let of_it = events
        .items
        .into_iter()
        .filter(|event| event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref()) == Some(name));
    Ok(of_it.map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect())
}
