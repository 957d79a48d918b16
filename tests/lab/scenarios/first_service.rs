//! The whole main job: tainted machines in, a client's answer out.

use std::{net::IpAddr, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;

use super::{SOON, cluster_with_cairn, cluster_with_cairn_on};
use crate::harness::{
    Lab,
    enclosure::inside,
    kubelet::UNINITIALIZED,
    kubernetes::Kubernetes,
    node::{Death, Node},
    service::{self, ExternalTrafficPolicy, Service, host_prefix},
    wait_for,
};

#[test]
fn a_service_on_fresh_machines_answers_from_the_outside() {
    inside(async || comes_to_serve(&mut cluster_with_cairn().await?).await);
}

#[test]
fn a_dead_node_leaves_the_router_and_the_service_answers_on() {
    inside(async || a_node_dies(Kubernetes::default()).await);
}

/// A Service with a pod on each of three nodes, one of which dies without a word.
pub(super) async fn a_node_dies(kubernetes: Kubernetes) -> Result<()> {
    let mut lab = cluster_with_cairn_on(kubernetes).await?;
    lab.start_pod("n1", "web-1", "web").await?;
    lab.start_pod("n2", "web-2", "web").await?;
    lab.start_pod("n3", "web-3", "web").await?;
    let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
    let addresses = web.wait_for_addresses(SOON).await?;
    for address in addresses {
        answered_by(&lab, address, &["n1", "n2", "n3"]).await?;
    }
    lab.node("n3")?.kill(Death::Silent).await?;
    for address in addresses {
        let nodes = next_hops_of(&lab, address, &["n1", "n2"]);
        lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, SOON).await?;
        answered_by(&lab, address, &["n1", "n2"]).await?;
    }
    Ok(())
}

/// The main job, on a cluster that has just begun.
pub(super) async fn comes_to_serve(lab: &mut Lab) -> Result<()> {
    for node in lab.nodes() {
        wait_for(&format!("{} is initialized", node.name()), SOON, async || is_initialized(node).await).await?;
        wait_for(&format!("{} has its routes", node.name()), SOON, async || has_routes(lab, node).await).await?;
        wait_for(&format!("{}'s network is available", node.name()), SOON, async || {
            is_network_available(&node.object().await?)
        })
        .await?;
    }
    lab.start_pod("n1", "web-1", "web").await?;
    lab.start_pod("n2", "web-2", "web").await?;
    let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
    for address in web.wait_for_addresses(SOON).await? {
        let nodes = next_hops_of(lab, address, &["n1", "n2", "n3"]);
        lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, SOON).await?;
        answered_by(lab, address, &["n1", "n2"]).await?;
    }
    Ok(())
}

/// What the node controller owes every Node.
async fn is_initialized(node: &Node) -> Result<()> {
    let object = node.object().await?;
    let spec = object.spec.unwrap_or_default();
    let taints: Vec<_> = spec.taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect();
    ensure!(!taints.iter().any(|key| key == UNINITIALIZED), "taints {taints:?}");
    let provider_id = spec.provider_id.unwrap_or_default();
    ensure!(provider_id.starts_with("cairn://"), "providerID {provider_id:?}");
    let labels = object.metadata.labels.unwrap_or_default();
    for label in ["topology.kubernetes.io/zone", "topology.kubernetes.io/region", "node.kubernetes.io/instance-type"] {
        ensure!(labels.contains_key(label), "no label {label} in {labels:?}");
    }
    let addresses = object.status.and_then(|status| status.addresses).unwrap_or_default();
    for wanted in node.host().both().map(|address| address.to_string()) {
        let is_there = addresses.iter().any(|address| address.type_ == "InternalIP" && address.address == wanted);
        ensure!(is_there, "no InternalIP {wanted} in {addresses:?}");
    }
    Ok(())
}

fn is_network_available(node: &NodeObject) -> Result<()> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let condition = conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable");
    ensure!(condition.is_some_and(|condition| condition.status == "False"), "NetworkUnavailable: {condition:?}");
    Ok(())
}

/// The kernel of `node` has a route of ours to the pods of each other node, in both families.
pub(super) async fn has_routes(lab: &Lab, node: &Node) -> Result<()> {
    let v4 = node.exec(["ip", "-4", "route", "show", "proto", "202"]).await?;
    let v6 = node.exec(["ip", "-6", "route", "show", "proto", "202"]).await?;
    for other in lab.nodes().filter(|other| other.name() != node.name()) {
        let [cidr_v4, cidr_v6] = other.pod_cidrs().await?;
        let (via_v4, via_v6) = (other.host().v4(), other.host().v6());
        ensure!(v4.contains(&format!("{cidr_v4} via {via_v4} ")), "no route to {cidr_v4}: {v4}");
        ensure!(v6.contains(&format!("{cidr_v6} via {via_v6} ")), "no route to {cidr_v6}: {v6}");
    }
    Ok(())
}

/// The addresses of the named nodes, in the family of `address`.
pub(super) fn next_hops_of(lab: &Lab, address: IpAddr, names: &[&str]) -> Vec<IpAddr> {
    let hosts = lab.nodes().filter(|node| names.contains(&node.name())).map(Node::host);
    hosts.map(|host| if address.is_ipv4() { host.v4().into() } else { host.v6().into() }).collect()
}

/// Makes Service web with a pod on n1, and waits until each of three nodes announces both of its addresses.
pub(super) async fn announced_by_all(lab: &mut Lab) -> Result<(Service, [IpAddr; 2])> {
    lab.start_pod("n1", "web-1", "web").await?;
    let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
    let addresses = web.wait_for_addresses(SOON).await?;
    for address in addresses {
        let nodes = next_hops_of(lab, address, &["n1", "n2", "n3"]);
        lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, SOON).await?;
    }
    Ok((web, addresses))
}

/// Waits until every one of twenty requests is answered, and by pods on exactly the named nodes.
pub(super) async fn answered_by(lab: &Lab, address: IpAddr, names: &[&str]) -> Result<()> {
    answered_within(SOON, lab, address, names).await
}

/// Like [`answered_by`], for what depends on more than Cairn.
pub(super) async fn answered_within(deadline: Duration, lab: &Lab, address: IpAddr, names: &[&str]) -> Result<()> {
    wait_for(&format!("{address} is answered by {names:?}"), deadline, async || {
        let answers = lab.client()?.answers_by_node(address, service::PORT, 20).await?;
        ensure!(answers.keys().eq(names.iter()), "answers from {answers:?}");
        Ok(())
    })
    .await
}
