//! Pod CIDRs that Cairn gives to Nodes, with `--allocate-node-cidrs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cairn::api::NodeReport;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node as NodeObject, NodeSpec},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{SOON, first_service::has_routes};
use crate::harness::{
    Lab,
    address::{CLUSTER_CIDRS, SERVICE_CIDRS},
    enclosure::inside,
    kubelet,
    lab::PodCidrs,
    wait::stays,
    wait_for,
};

const NAMESPACE: &str = "cairn-pod-cidrs";
/// A cluster of two Nodes.
const TWO_BLOCKS: &str = "--cluster-cidr=10.244.0.0/23,fd00:244::/48";
const A_WHILE: Duration = Duration::from_secs(2);

#[test]
fn nodes_get_pod_cidrs_of_both_families_and_routes_follow() {
    inside(async || {
        let mut lab = Lab::builder().pod_cidrs(PodCidrs::Others).nodes(2).start().await?;
        install(&mut lab).await?;
        spawn(&mut lab, &[&cluster_cidr(), &service_range()])?;
        lab.spawn_agents()?;
        lab.add_node(3).await?;
        lab.spawn_agent("n3")?;
        let mut given = BTreeMap::new();
        for node in lab.nodes() {
            let [v4, v6] = node.pod_cidrs().await?;
            ensure!(v4.starts_with("10.244.") && v4.ends_with(".0/24"), "{v4}");
            ensure!(v6.starts_with("fd00:244:") && v6.ends_with("::/64"), "{v6}");
            given.insert(node.name().to_owned(), [v4, v6]);
        }
        for node in lab.nodes() {
            wait_for(&format!("{} has its routes", node.name()), SOON, async || has_routes(&lab, node).await).await?;
        }
        claims_are_in_order(&lab).await?;

        // A Node that leaves takes its claims along, and one of the same name is another one.
        nodes(&lab).delete("n3", &DeleteParams::default()).await?;
        wait_for("the claims of n3 are gone", SOON, async || {
            let claims = claims(&lab).await?;
            ensure!(claims.len() == 4, "claims: {:?}", claims.keys());
            Ok(())
        })
        .await?;
        kubelet::register(lab.kube(), "n3").await?;
        let again = lab.node("n3")?.pod_cidrs().await?;
        let before: BTreeSet<_> = given.values().flatten().collect();
        ensure!(again.iter().all(|cidr| !before.contains(cidr)), "{again:?} was somebody's just now: {before:?}");
        claims_are_in_order(&lab).await
    });
}

#[test]
fn a_full_cluster_is_told_and_the_next_node_gets_what_becomes_free() {
    inside(async || {
        // Without Kubernetes' garbage collector: Cairn deletes claims itself.
        let mut lab = Lab::builder().api_only().start().await?;
        install(&mut lab).await?;
        spawn(&mut lab, &[TWO_BLOCKS])?;
        for name in ["n1", "n2"] {
            kubelet::register(lab.kube(), name).await?;
            pod_cidrs(&lab, name).await?;
        }
        kubelet::register(lab.kube(), "n3").await?;
        let words = "Node n3 status is now: CIDRNotAvailable: every /24 of 10.244.0.0/23 is in use or left out";
        wait_for("n3 is told that there is no pod CIDR", SOON, async || {
            let condition = unavailable(&lab, "n3").await?;
            ensure!(condition == Some(("True".to_owned(), words.to_owned())), "{condition:?}");
            let told = told(&lab).await?;
            ensure!(told.contains(&("n3".to_owned(), "CIDRNotAvailable".to_owned(), words.to_owned())), "{told:?}");
            Ok(())
        })
        .await?;
        stays("n3 has nothing of IPv6 either", A_WHILE, async || {
            ensure!(claims(&lab).await?.len() == 4, "claims: {:?}", claims(&lab).await?.keys());
            Ok(())
        })
        .await?;
        let first = pod_cidrs(&lab, "n1").await?;
        nodes(&lab).delete("n1", &DeleteParams::default()).await?;
        let third = pod_cidrs(&lab, "n3").await?;
        ensure!(third[0] == first[0], "n3 has {third:?}, n1 had {first:?}");
        wait_for("n3 is no longer told so", SOON, async || {
            let condition = unavailable(&lab, "n3").await?;
            ensure!(condition.as_ref().is_some_and(|(status, _)| status == "False"), "{condition:?}");
            Ok(())
        })
        .await?;
        claims_are_in_order(&lab).await
    });
}

#[test]
fn a_leader_that_is_killed_in_a_burst_gives_nothing_twice() {
    inside(async || {
        const NODES: usize = 300;
        const TIMES: [&str; 3] =
            ["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"];
        let mut lab = Lab::builder().api_only().start().await?;
        install(&mut lab).await?;
        let flags = [&["--secure-port=0", "--cluster-cidr=10.244.0.0/15,fd00:244::/48"][..], &TIMES].concat();
        for number in 0..NODES {
            kubelet::register(lab.kube(), &format!("n{number}")).await?;
        }
        spawn(&mut lab, &flags)?;
        wait_for("some Nodes have pod CIDRs", SOON, async || {
            let served = with_pod_cidrs(&lab).await?.len();
            ensure!(served > 0, "none has");
            ensure!(served < NODES, "all have");
            Ok(())
        })
        .await?;
        lab.controller()?.kill().await?;
        let served = with_pod_cidrs(&lab).await?.len();
        println!("{served} of {NODES} were served when the leader died");
        ensure!((1..NODES).contains(&served), "{served} were served when the leader died");
        spawn(&mut lab, &flags)?;
        // Two leaders at once would do no harm: this one has nothing to wait for but the Lease.
        wait_for("all Nodes have pod CIDRs", Duration::from_secs(60), async || {
            let served = with_pod_cidrs(&lab).await?.len();
            ensure!(served == NODES, "{served} have");
            Ok(())
        })
        .await?;
        claims_are_in_order(&lab).await
    });
}

#[test]
fn a_claim_without_its_node_is_used_by_that_node_and_by_no_other() {
    inside(async || {
        let mut lab = Lab::builder().api_only().start().await?;
        install(&mut lab).await?;
        for name in ["n1", "n2"] {
            kubelet::register(lab.kube(), name).await?;
        }
        let uid = nodes(&lab).get("n2").await?.uid().context("a uid")?;
        // As a leader leaves them that dies before it writes the Node.
        claim(&lab, "cairn-cidr-10-244-0-0-24", &format!("n2/{uid}")).await?;
        // Of a Node that was deleted meanwhile, and of somebody who writes something else.
        claim(&lab, "cairn-cidr-10-244-1-0-24", "n2/00000000-0000-0000-0000-000000000000").await?;
        claim(&lab, "cairn-cidr-10-244-2-0-24", "somebody").await?;
        spawn(&mut lab, &["--cluster-cidr=10.244.0.0/22"])?;
        wait_for("both Nodes have their pod CIDRs", SOON, async || {
            let given = with_pod_cidrs(&lab).await?;
            let given: Vec<_> = given.iter().map(|(name, cidrs)| (name.as_str(), cidrs.join(","))).collect();
            ensure!(given == [("n1", "10.244.3.0/24".to_owned()), ("n2", "10.244.0.0/24".to_owned())], "{given:?}");
            let claims = claims(&lab).await?;
            ensure!(!claims.contains_key("cairn-cidr-10-244-1-0-24"), "its Node is gone");
            ensure!(claims.contains_key("cairn-cidr-10-244-2-0-24"), "nobody knows whose it is");
            Ok(())
        })
        .await
    });
}

#[test]
fn what_others_gave_and_what_is_reserved_is_left_alone_and_told() {
    inside(async || {
        let mut lab = Lab::builder().api_only().start().await?;
        install(&mut lab).await?;
        for (name, cidrs) in [
            ("a-half", &["10.244.0.128/25"][..]),
            ("elsewhere", &["192.168.7.0/24", "fd00:7::/64"]),
            ("twin-1", &["10.244.1.0/24", "fd00:244:0:1::/64"]),
            ("twin-2", &["10.244.1.0/24", "fd00:244:0:2::/64"]),
        ] {
            register_with(&lab, name, cidrs).await?;
        }
        let services = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": { "name": "more" }, "spec": { "cidrs": ["10.244.2.0/24"] },
        });
        apply(&lab, "services.json", &services).await?;
        let pool = json!({
            "apiVersion": "cairn.dev/v1alpha1", "kind": "AddressPool",
            "metadata": { "name": "inside" }, "spec": { "addresses": ["10.244.3.10-10.244.3.20"] },
        });
        apply(&lab, "pool.json", &pool).await?;
        spawn(&mut lab, &["--cluster-cidr=10.244.0.0/20,fd00:244::/48", "--service-cluster-ip-range=10.244.4.0/22"])?;
        kubelet::register(lab.kube(), "new").await?;
        ensure!(pod_cidrs(&lab, "new").await?[0] == "10.244.8.0/24", "{:?}", pod_cidrs(&lab, "new").await?);
        wait_for("everything odd is told", SOON, async || {
            let told = told(&lab).await?;
            let reasons: BTreeSet<_> = told.iter().map(|(name, reason, _)| (name.as_str(), reason.as_str())).collect();
            for odd in [
                ("a-half", "PodCIDROddSize"),
                ("elsewhere", "PodCIDROutsideCluster"),
                ("twin-1", "PodCIDRShared"),
                ("twin-2", "PodCIDRShared"),
                ("more", "ClusterCIDRReserved"),
                ("inside", "ClusterCIDRReserved"),
            ] {
                ensure!(reasons.contains(&odd), "{odd:?} is not told: {told:#?}");
            }
            Ok(())
        })
        .await?;
        let cidrs = with_pod_cidrs(&lab).await?;
        ensure!(cidrs["a-half"] == ["10.244.0.128/25"] && cidrs["elsewhere"][0] == "192.168.7.0/24", "{cidrs:?}");
        lab.controller()?.ensure_running()
    });
}

#[test]
fn no_pod_cidr_is_given_out_of_the_network_that_nodes_are_on() {
    inside(async || {
        let mut lab = Lab::builder().pod_cidrs(PodCidrs::Others).nodes(1).start().await?;
        install(&mut lab).await?;
        lab.spawn_controller()?;
        lab.spawn_agents()?;
        wait_for("n1 reports its networks", SOON, async || {
            let reports: Api<NodeReport> = Api::all(lab.kube().clone());
            let networks = reports.get("n1").await?.status.unwrap_or_default().networks;
            ensure!(networks == ["10.90.0.0/24", "fd90::/64"], "{networks:?}");
            Ok(())
        })
        .await?;
        lab.controller()?.terminate(SOON).await?;
        // Blocks smaller than the network: an address of the node takes only the first of them.
        spawn(&mut lab, &["--cluster-cidr=10.90.0.0/22", "--node-cidr-mask-size-ipv4=26"])?;
        let given = pod_cidrs(&lab, "n1").await?;
        ensure!(given == ["10.90.1.0/26"], "{given:?}");
        let words = "--cluster-cidr 10.90.0.0/22 shares addresses with 10.90.0.0/24, a network that node n1 is on: no node \
                     gets a pod CIDR that has any of these";
        wait_for("that is told once", SOON, async || {
            let mut told = told(&lab).await?;
            told.retain(|(_, reason, _)| reason == "ClusterCIDRReserved");
            ensure!(told == [("n1".to_owned(), "ClusterCIDRReserved".to_owned(), words.to_owned())], "{told:#?}");
            Ok(())
        })
        .await
    });
}

/// What the claims rest on: of the API server itself.
#[test]
fn the_api_server_writes_pod_cidrs_once_and_only_to_the_node_of_that_uid() {
    inside(async || {
        let lab = Lab::builder().api_only().start().await?;
        kubelet::register(lab.kube(), "n1").await?;
        let nodes = nodes(&lab);
        let write = async |uid: Option<&str>, cidr: &str| {
            let body = json!({ "metadata": { "uid": uid }, "spec": { "podCIDR": cidr, "podCIDRs": [cidr] } });
            nodes.patch("n1", &PatchParams::default(), &Patch::Merge(body)).await
        };
        let uid = nodes.get("n1").await?.uid().context("a uid")?;
        let of_another = write(Some("00000000-0000-0000-0000-000000000000"), "10.244.1.0/24").await;
        ensure!(is_refused(&of_another), "of another uid: {of_another:?}");
        write(Some(&uid), "10.244.1.0/24").await?;
        write(Some(&uid), "10.244.1.0/24").await?;
        let another = write(Some(&uid), "10.244.2.0/24").await;
        ensure!(is_refused(&another), "a second one: {another:?}");
        Ok(())
    });
}

fn is_refused<T>(answer: &kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 409 || status.code == 422)
}

pub(super) fn cluster_cidr() -> String {
    format!("--cluster-cidr={CLUSTER_CIDRS}")
}

pub(super) fn service_range() -> String {
    format!("--service-cluster-ip-range={SERVICE_CIDRS}")
}

pub(super) async fn install(lab: &mut Lab) -> Result<()> {
    lab.install_cairn().await?;
    lab.cairn()?.allow_node_ipam(lab.control_plane()).await
}

fn spawn(lab: &mut Lab, flags: &[&str]) -> Result<()> {
    lab.spawn_controller_with(&[&["--allocate-node-cidrs"], flags].concat())
}

fn nodes(lab: &Lab) -> Api<NodeObject> {
    Api::all(lab.kube().clone())
}

/// A Node that comes with its pod CIDRs.
async fn register_with(lab: &Lab, name: &str, cidrs: &[&str]) -> Result<()> {
    let mut node = NodeObject::default();
    node.metadata.name = Some(name.to_owned());
    let cidrs: Vec<_> = cidrs.iter().map(ToString::to_string).collect();
    node.spec = Some(NodeSpec { pod_cidr: cidrs.first().cloned(), pod_cidrs: Some(cidrs), ..NodeSpec::default() });
    nodes(lab).create(&PostParams::default(), &node).await.with_context(|| format!("Node {name}"))?;
    Ok(())
}

async fn apply(lab: &Lab, file: &str, object: &serde_json::Value) -> Result<()> {
    let path = lab.cairn()?.configuration().join(file);
    std::fs::write(&path, object.to_string())?;
    lab.control_plane().apply(&path.display().to_string()).await
}

async fn pod_cidrs(lab: &Lab, name: &str) -> Result<Vec<String>> {
    wait_for(&format!("Node {name} has pod CIDRs"), SOON, async || {
        let cidrs = nodes(lab).get(name).await?.spec.and_then(|spec| spec.pod_cidrs).unwrap_or_default();
        ensure!(!cidrs.is_empty(), "it has none");
        Ok(cidrs)
    })
    .await
}

/// All Nodes that have pod CIDRs.
pub(super) async fn with_pod_cidrs(lab: &Lab) -> Result<BTreeMap<String, Vec<String>>> {
    let mut given = BTreeMap::new();
    for node in nodes(lab).list(&ListParams::default()).await? {
        let (name, spec) = (node.name_any(), node.spec.unwrap_or_default());
        given.extend(spec.pod_cidrs.filter(|cidrs| !cidrs.is_empty()).map(|cidrs| (name, cidrs)));
    }
    Ok(given)
}

/// Holder and owner of each claim, by its name.
pub(super) async fn claims(lab: &Lab) -> Result<BTreeMap<String, (String, String)>> {
    let leases: Api<Lease> = Api::namespaced(lab.kube().clone(), NAMESPACE);
    let words = |lease: Lease| {
        let owner = lease.owner_references().first().map(|owner| owner.uid.clone()).unwrap_or_default();
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        (lease.name_any(), (holder, owner))
    };
    Ok(leases.list(&ListParams::default()).await?.into_iter().map(words).collect())
}

async fn claim(lab: &Lab, name: &str, holder: &str) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(lab.kube().clone(), NAMESPACE);
    let lease = json!({ "metadata": { "name": name }, "spec": { "holderIdentity": holder } });
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    Ok(())
}

/// Waits until no claim is left that nobody needs: what a Node does not need is given back after it has what it needs.
async fn claims_are_in_order(lab: &Lab) -> Result<()> {
    wait_for("each block is claimed by its Node", SOON, async || each_block_is_claimed_by_its_node(lab).await).await
}

/// No block is on two Nodes, each has a claim of its Node, and there is no other claim.
async fn each_block_is_claimed_by_its_node(lab: &Lab) -> Result<()> {
    let mut claims = claims(lab).await?;
    let mut owners = BTreeMap::<String, String>::new();
    for node in nodes(lab).list(&ListParams::default()).await? {
        let (name, uid) = (node.name_any(), node.uid().unwrap_or_default());
        for cidr in node.spec.and_then(|spec| spec.pod_cidrs).unwrap_or_default() {
            let block = cidr.parse().with_context(|| format!("{cidr} of {name}"))?;
            let claim = claims.remove(&cairn::ipam::claim::name(block));
            let wanted = (format!("{name}/{uid}"), uid.clone());
            ensure!(claim.as_ref() == Some(&wanted), "{cidr} of {name} is claimed by {claim:?}");
            let other = owners.insert(cidr.clone(), name.clone());
            ensure!(other.is_none(), "{cidr} is on {other:?} and on {name}");
        }
    }
    ensure!(claims.is_empty(), "claims that nobody needs: {claims:?}");
    Ok(())
}

/// Status and message of the condition `PodCIDRUnavailable`.
async fn unavailable(lab: &Lab, name: &str) -> Result<Option<(String, String)>> {
    let conditions = nodes(lab).get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
    let condition = conditions.into_iter().find(|condition| condition.type_ == "PodCIDRUnavailable");
    Ok(condition.map(|condition| (condition.status, condition.message.unwrap_or_default())))
}

/// Object, reason and note of each Event.
async fn told(lab: &Lab) -> Result<Vec<(String, String, String)>> {
    let events: Api<Event> = Api::default_namespaced(lab.kube().clone());
    let words = |event: Event| {
        let name = event.regarding.and_then(|object| object.name).unwrap_or_default();
        (name, event.reason.unwrap_or_default(), event.note.unwrap_or_default())
    };
    Ok(events.list(&ListParams::default()).await?.into_iter().map(words).collect())
}
