//! How fast many Nodes that wait get their pod CIDRs, and what that costs; `make bench-pod-cidrs` runs it.
//!
//! The measure is the floor: what a client that does nothing else needs in the same lab for the same two writes a
//! Node, a Lease and the Node. The lab has neither kubelets nor Kubernetes' own controllers, and of Cairn's only the
//! allocator runs, so that the API server works for nobody else. The last line is one JSON object with every target
//! and whether it was met; the targets are for 5,000 Nodes (`CAIRN_BENCH_NODES=5000`) and a release build.

#[path = "../lab/harness/mod.rs"]
#[expect(unused_imports, reason = "this lab has no router")]
mod harness;
#[path = "many_nodes/mod.rs"]
#[expect(dead_code, reason = "the benchmarks of many Nodes share it, and each uses a part of it")]
mod many_nodes;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use harness::{Lab, Stopwatch, control_plane::ApiRequest, enclosure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
};
use many_nodes::{
    SETTLED_WITHIN, SOON, each, elapsed_after,
    events::{Events, holder, until, watch_lease},
    node_count, register_all, settle, spawn,
    targets::{self, Target, build, megabytes, number, rounded, seconds},
};
use serde_json::{Value, json};

/// As many writes as the controller has on their way at most.
const FLOOR_WORKERS: usize = 50;
const NAMESPACE: &str = "cairn-pod-cidrs";
const FLAGS: &[&str] =
    &["--controllers=node-ipam-controller", "--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8", "--secure-port=0"];

fn main() -> ExitCode {
    enclosure::program("bench-pod-cidrs", bench).into()
}

async fn bench() -> Result<()> {
    let count = node_count()?;
    let mut lab = Lab::builder().api_only().start().await?;
    lab.install_cairn().await?;
    lab.cairn()?.allow_node_ipam(lab.control_plane()).await?;
    println!("the floor: {count} Nodes, a Lease and a patch each, {FLOOR_WORKERS} at a time");
    let floor = measure_floor(&lab, count).await?;
    println!("the controller: started while {count} Nodes wait");
    let measured = measure_controller(&lab, count).await?;
    println!("{}", print(count, floor, &measured));
    Ok(())
}

/// How long the floor takes.
struct Floor {
    /// From the first request on.
    all: Duration,
    /// From the first Node that has its pod CIDR.
    first_to_all: Duration,
}

async fn measure_floor(lab: &Lab, count: usize) -> Result<Floor> {
    register_all(lab.kube(), "floor", count).await?;
    let client = lab.cairn()?.controller_client().await?;
    let events = watch_nodes(lab.kube()).await?;
    let began = Stopwatch::start();
    let written = each(FLOOR_WORKERS, count, move |number| claim_and_patch(client.clone(), number));
    // The watch of the bench costs the floor what it costs the controller.
    let ((), first) = tokio::try_join!(written, all_have_pod_cidrs(events, count))?;
    let floor = Floor { all: began.elapsed(), first_to_all: first.elapsed() };
    Api::<Node>::all(lab.kube().clone()).delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let leases: Api<Lease> = Api::namespaced(lab.kube().clone(), NAMESPACE);
    leases.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let left = leases.list_metadata(&ListParams::default()).await?.items.len();
    ensure!(left == 0, "{left} Leases are left of the floor");
    Ok(floor)
}

/// The controller's two writes, with the same content.
async fn claim_and_patch(client: Client, number: usize) -> Result<()> {
    let name = format!("floor-{number:05}");
    let (leases, nodes) = (Api::<Lease>::namespaced(client.clone(), NAMESPACE), Api::<Node>::all(client));
    let (high, low) = (number / 256, number % 256);
    let uid = "00000000-0000-0000-0000-000000000000";
    let lease = json!({
        "metadata": {
            "name": format!("cairn-cidr-10-{high}-{low}-0-24"),
            "labels": { "app.kubernetes.io/managed-by": "cairn" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid }],
        },
        "spec": { "holderIdentity": format!("{name}/{uid}"), "acquireTime": "2027-01-01T00:00:00.000000Z" },
    });
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    let cidr = format!("10.{high}.{low}.0/24");
    let patch = Patch::Merge(json!({ "spec": { "podCIDR": cidr, "podCIDRs": [cidr] } }));
    let params = PatchParams { field_manager: Some("floor".to_owned()), ..PatchParams::default() };
    nodes.patch(&name, &params, &patch).await?;
    Ok(())
}

/// What one start of the controller with many waiting Nodes shows.
struct Measured {
    /// From the start of the process until the last Node has its pod CIDR.
    start_to_all: Duration,
    /// Until it leads.
    start_to_lease: Duration,
    /// From the first Node that has its pod CIDR to the last.
    first_to_all: Duration,
    processor: Duration,
    peak_resident_kib: u64,
    /// To Nodes and Leases.
    writes: Vec<ApiRequest>,
    /// Pod CIDRs that two Nodes have.
    given_twice: usize,
}

async fn measure_controller(lab: &Lab, count: usize) -> Result<Measured> {
    register_all(lab.kube(), "node", count).await?;
    let written = lab.control_plane().writes_by_cairn()?.len();
    let (events, lease) = (watch_nodes(lab.kube()).await?, watch_lease(lab.kube()).await?);
    let began = Stopwatch::start();
    let mut controller = spawn(lab, FLAGS)?;
    let milestones = async {
        let leads = elapsed_after(began, until(lease, |lease| !holder(lease).is_empty()));
        let all = async {
            let first = all_have_pod_cidrs(events, count).await?;
            Ok((began.elapsed(), first.elapsed()))
        };
        tokio::try_join!(leads, all)
    };
    let milestones = tokio::time::timeout(SETTLED_WITHIN, milestones).await;
    let (start_to_lease, (start_to_all, first_to_all)) = milestones.context("not all Nodes got pod CIDRs")??;
    settle(lab).await?;
    let (processor, peak_resident_kib) = (controller.processor_time()?, controller.peak_resident_kib()?);
    controller.terminate(SOON).await?;
    let is_counted = |write: &ApiRequest| write.resource == "nodes" || write.name.starts_with("cairn-cidr-");
    let writes = lab.control_plane().writes_by_cairn()?.into_iter().skip(written).filter(is_counted).collect();
    let mut owners = BTreeMap::<String, usize>::new();
    for node in Api::<Node>::all(lab.kube().clone()).list(&ListParams::default()).await? {
        for cidr in node.spec.and_then(|spec| spec.pod_cidrs).unwrap_or_default() {
            *owners.entry(cidr).or_default() += 1;
        }
    }
    let given_twice = owners.values().filter(|count| **count > 1).count();
    Ok(Measured { start_to_all, start_to_lease, first_to_all, processor, peak_resident_kib, writes, given_twice })
}

async fn watch_nodes(client: &Client) -> Result<Events<Node>> {
    let nodes: Api<Node> = Api::all(client.clone());
    let list = nodes.list_metadata(&ListParams::default().limit(1)).await?;
    let version = list.metadata.resource_version.context("a list has a resource version")?;
    Ok(nodes.watch(&WatchParams::default(), &version).await?.boxed())
}

/// Waits for so many, and returns a watch that runs since the first.
async fn all_have_pod_cidrs(events: Events<Node>, count: usize) -> Result<Stopwatch> {
    let (mut seen, mut first) = (BTreeSet::new(), None);
    until(events, |node| {
        let has = node.spec.as_ref().is_some_and(|spec| spec.pod_cidrs.is_some());
        if has {
            first.get_or_insert_with(Stopwatch::start);
        }
        has && seen.insert(node.name_any()) && seen.len() == count
    })
    .await
    .with_context(|| format!("{} of {count} Nodes have pod CIDRs", seen.len()))?;
    first.context("a benchmark has Nodes")
}

fn print(count: usize, floor: Floor, measured: &Measured) -> Value {
    let Measured { start_to_all, start_to_lease, first_to_all, processor, peak_resident_kib, writes, given_twice } =
        measured;
    let lease_to_all = start_to_all.saturating_sub(*start_to_lease);
    let ratio = |time: &Duration| time.as_secs_f64() / floor.all.as_secs_f64();
    let writes_per_node = number(writes.len()) / number(count);
    let figures = json!({
        "nodes": count,
        "build": build(),
        "floor_claim_and_patch_seconds": seconds(floor.all),
        "start_to_lease_held_seconds": seconds(*start_to_lease),
        "start_to_all_pod_cidrs_seconds": seconds(*start_to_all),
        "start_to_all_ratio": rounded(ratio(start_to_all)),
        "first_to_all_ratio": rounded(first_to_all.as_secs_f64() / floor.first_to_all.as_secs_f64()),
        "writes_refused": writes.iter().filter(|write| write.code >= 400).count(),
    });
    let targets = [
        ("from_lease_ratio", 1.15, ratio(&lease_to_all)),
        ("writes_per_node", 2.0, writes_per_node),
        ("pod_cidrs_given_twice", 0.0, number(*given_twice)),
        ("controller_cpu_seconds", 3.0, processor.as_secs_f64()),
        ("controller_peak_resident_megabytes", 60.0, megabytes(*peak_resident_kib)),
    ]
    .map(|(name, at_most, figure)| Target { name, at_most, figure });
    targets::print(figures, &targets)
}
