//! Whether nodes are reached: who says so, what that costs, and what happens when they are not.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use cairn::api::{NodeReport, NodeRoute, majority};
use k8s_openapi::api::{core::v1::Node as NodeObject, events::v1::Event};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::SOON;
use crate::harness::{Lab, control_plane::ApiRequest, enclosure::inside, namespace::Namespace, wait::stays, wait_for};

/// Longer than agents keep back a report that is not urgent.
const SETTLED_AFTER: Duration = Duration::from_secs(14);
/// Denials have to stand for a minute; a next hop is called silent after some seconds.
const DENIED_AFTER: Duration = Duration::from_secs(110);
/// What the API server of a lab without Kubernetes' own controllers knows of nodes stays as it is.
const ROUTES_ONLY: &[&str] = &["--controllers=route"];

/// Six writes where all goes well, as the plan's own tests say: a `NodeRoute`, a condition, and a report of each that is
/// asked, three witnesses and the node itself. On a busy host an agent may see something wrong for a moment; it tells
/// that, asked or not, and takes it back. So what counts here is that nothing is missing and nothing else is written.
#[test]
fn a_join_costs_a_route_a_condition_and_a_report_of_each_that_is_asked() {
    inside(async || {
        let mut lab = started(7).await?;
        let name = "n8";
        lab.add_node(8).await?;
        lab.spawn_agent(name)?;
        let reports: Api<NodeReport> = Api::all(lab.kube().clone());
        wait_for("its agent has reported", SOON, async || {
            reports.get(name).await?.status.context("no status").map(drop)
        })
        .await?;
        let before = quiet(&lab).await?.len();
        join(&lab, 8).await?;
        available(&lab, name).await?;
        let writes = quiet(&lab).await?.split_off(before);

        let route = Api::<NodeRoute>::all(lab.kube().clone()).get(name).await?;
        let asked = route.spec.witnesses.iter().take(majority(route.spec.witnesses.len()));
        let told: BTreeSet<_> = asked.map(String::as_str).chain([name]).collect();
        ensure!(told.len() == 4, "{:?} are the witnesses", route.spec.witnesses);
        let (of_agents, of_leader): (Vec<_>, Vec<_>) =
            writes.iter().partition(|write| write.resource == "nodereports/status");
        let reported: BTreeSet<_> = of_agents.iter().map(|write| &*write.name).collect();
        ensure!(told.is_subset(&reported), "{told:?} are asked: {writes:#?}");
        let of_leader: Vec<_> = of_leader.iter().map(|write| (&*write.verb, &*write.resource, &*write.name)).collect();
        let [("create", "noderoutes", "n8"), conditions @ ..] = &*of_leader else { bail!("{writes:#?}") };
        let is_condition = |write: &(&str, &str, &str)| *write == ("patch", "nodes/status", name);
        ensure!(!conditions.is_empty() && conditions.iter().all(is_condition), "{writes:#?}");
        Ok(())
    });
}

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
fn a_node_that_no_other_reaches_loses_its_network_and_gets_it_back() {
    inside(async || {
        let mut lab = started(3).await?;
        let n3 = lab.node("n3")?.namespace().clone();
        // Its kubelet and its agent go on; only it and its neighbours hear nothing of each other any more.
        let deaf = "table arp deaf { \
                    chain in { type filter hook input priority 0; arp saddr ip { 10.90.0.11, 10.90.0.12 } drop; }; \
                    chain out { type filter hook output priority 0; arp daddr ip { 10.90.0.11, 10.90.0.12 } drop; }; }";
        n3.exec(["nft", deaf]).await?;
        for other in ["n1", "n2"] {
            lab.node(other)?.exec(["ip", "neigh", "flush", "10.90.0.13"]).await?;
        }
        wait_for("NetworkUnavailable of n3 is True", DENIED_AFTER, async || {
            let (status, message) = network(&lab, "n3").await?;
            ensure!(status == "True" && message.contains("n1 (") && message.contains("n2 ("), "{status}: {message}");
            ensure!(message.contains("next hop 10.90.0.13 does not answer"), "{message}");
            Ok(())
        })
        .await?;
        for other in ["n1", "n2"] {
            let (status, message) = network(&lab, other).await?;
            ensure!(status == "False", "{other}: {message}");
        }
        n3.exec(["nft", "delete table arp deaf"]).await?;
        wait_for("n3 has its network back", 3 * SOON, async || is_available(&lab, "n3").await).await
    });
}

#[test]
fn where_routes_are_left_alone_nothing_is_touched() {
    inside(async || {
        let mut lab = Lab::builder().nodes(2).api_only().start().await?;
        lab.install_cairn().await?;
        let nodes: Api<NodeObject> = Api::all(lab.kube().clone());
        for number in [1, 2] {
            join(&lab, number).await?;
        }
        let by_a_cni = json!({ "status": { "conditions": [{ "type": "NetworkUnavailable", "status": "False",
            "reason": "CiliumIsUp", "message": "Cilium is running on this node" }] } });
        nodes.patch_status("n1", &PatchParams::default(), &Patch::Strategic(by_a_cni)).await?;
        let before = [nodes.get("n1").await?.status, nodes.get("n2").await?.status];
        lab.spawn_controller_with(&["--controllers=route", "--configure-cloud-routes=false"])?;
        lab.spawn_agents()?;
        let routes: Api<NodeRoute> = Api::all(lab.kube().clone());
        wait_for("the nodes are known to agents", SOON, async || {
            for name in ["n1", "n2"] {
                let spec = routes.get(name).await?.spec;
                ensure!(spec.pod_cidrs.is_empty() && !spec.addresses.is_empty(), "{spec:?}");
            }
            Ok(())
        })
        .await?;
        stays("conditions and routes are as they were", SETTLED_AFTER, async || {
            let now = [nodes.get("n1").await?.status, nodes.get("n2").await?.status];
            ensure!(now == before, "{now:?}");
            for node in lab.nodes() {
                let ours = node.exec(["ip", "route", "show", "table", "all", "proto", "202"]).await?;
                ensure!(ours.is_empty(), "{ours}");
            }
            Ok(())
        })
        .await
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
            // Two nodes, and the last resort of its own pod CIDR.
            ensure!(plan == "as they should be: 3\n", "{plan}");
            Ok(())
        })
        .await?;
        let elsewhere = r#"s/\("hops":\[{"gateway":"\)10.90.0.12/\110.90.0.99/"#;
        n1.exec(["sed", "-i", elsewhere, "/run/lab/settled.json"]).await?;
        let plan = plan("/run/lab/settled.json").await?;
        let want = "replace  10.244.2.0/24  via 10.90.0.12  pods of node n2; ours goes to 10.90.0.99 now\nas they should be: 2\n";
        ensure!(plan == want, "{plan}");
        Ok(())
    });
}

#[test]
fn nodes_that_have_only_ipv6_reach_each_others_pods() {
    inside(async || {
        let mut lab = Lab::builder().nodes(3).api_only().start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller_with(ROUTES_ONLY)?;
        lab.spawn_agents()?;
        let nodes: Api<NodeObject> = Api::all(lab.kube().clone());
        for node in lab.nodes() {
            let cidr = format!("fd00:244:0:{}::/64", &node.name()[1..]);
            let spec = json!({ "spec": { "podCIDR": cidr, "podCIDRs": [cidr], "taints": null } });
            nodes.patch(node.name(), &PatchParams::default(), &Patch::Merge(spec)).await?;
            let address = json!({ "type": "InternalIP", "address": node.host().v6() });
            let status = json!({ "status": { "addresses": [address] } });
            nodes.patch_status(node.name(), &PatchParams::default(), &Patch::Merge(status)).await?;
            start_pod_v6(node.namespace(), &node.name()[1..]).await?;
        }
        for name in ["n1", "n2", "n3"] {
            available(&lab, name).await?;
        }
        for (from, to) in [("1", "2"), ("1", "3"), ("2", "3"), ("3", "1")] {
            let address = format!("fd00:244:0:{to}::2");
            // A node's network is available when some others reach it: not each has its routes then.
            let (pod, node) = (format!("pod{from}"), lab.node("n1")?);
            wait_for(&format!("{pod} pings {address}"), SOON, async || {
                node.exec(["ip", "netns", "exec", &pod, "busybox", "ping", "-c1", "-W2", &address]).await
            })
            .await?;
        }
        Ok(())
    });
}

/// A pod of node `number`, at `::2` of its pod CIDR, behind a veth.
async fn start_pod_v6(node: &Namespace, number: &str) -> Result<()> {
    let pod = Namespace::make(&format!("pod{number}")).await?;
    let network = format!("fd00:244:0:{number}::");
    node.ip(&format!(
        "link add v-pod type veth peer name eth0 netns pod{number}\n\
         link set v-pod up\n\
         addr add {network}1/128 dev v-pod nodad\n\
         route add {network}2/128 dev v-pod"
    ))
    .await?;
    pod.ip(&format!(
        "link set eth0 up\n\
         addr add {network}2/128 dev eth0 nodad\n\
         route add {network}1/128 dev eth0\n\
         route add default via {network}1"
    ))
    .await
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

/// What Cairn has written, but its Leases. What was refused is tried again, and changed nothing.
fn writes(lab: &Lab) -> Result<Vec<ApiRequest>> {
    let all = lab.control_plane().writes_by_cairn()?;
    Ok(all.into_iter().filter(|write| write.resource != "leases" && write.is_accepted()).collect())
}

/// Waits until Cairn has written nothing for longer than agents keep a report back.
async fn quiet(lab: &Lab) -> Result<Vec<ApiRequest>> {
    wait_for("Cairn has settled", 4 * SOON, async || {
        let before = writes(lab)?.len();
        stays("Cairn writes nothing", SETTLED_AFTER, async || {
            let all = writes(lab)?;
            ensure!(all.len() == before, "{:?}", &all[before..]);
            Ok(())
        })
        .await
    })
    .await?;
    writes(lab)
}
