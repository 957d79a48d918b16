#![expect(clippy::disallowed_methods, reason = "shell: clients that write side by side, and heartbeats by the clock")]
//! How fast the controller initializes many Nodes that register at once, and what that costs; `make bench-nodes` runs it.
//!
//! The measure is the floor: what a client that does nothing else needs in the same lab for the same two writes a
//! Node. The lab has no kubelets and none of Kubernetes' own controllers, so that the API server works for nobody
//! else. The last line is one JSON object with every target and whether it was met; the targets are for 5,000 Nodes
//! (`CAIRN_BENCH_NODES=5000`) and a release build.

#[path = "nodes/events.rs"]
mod events;
#[path = "nodes/figures.rs"]
mod figures;
#[path = "nodes/reference.rs"]
mod reference;
#[path = "../lab/harness/mod.rs"]
#[expect(unused_imports, reason = "this lab has no router")]
mod harness;

use std::{
    net::Ipv4Addr,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use events::{INITIALIZED, LEASE, all_initialized, holder, leases, until, watch_initialized, watch_lease, watch_node};
use harness::{
    Lab, Stopwatch, control_plane::ApiRequest, enclosure, kubelet, namespace::Program, wait::wait_every, wait_for,
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Taint},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::task::JoinSet;

const DEFAULT_COUNT: usize = 1000;
/// With more, the API server would begin a second file of its audit log.
const MOST: usize = 10_000;
/// As many writes as the controller has on their way at most.
const FLOOR_WORKERS: usize = 50;
const REGISTERING_CLIENTS: usize = 32;
/// How often a start and a hand-over are measured; each needs a Node of its own.
const REPEATED: usize = 3;
const IDLE: Duration = Duration::from_secs(20);
/// How often a kubelet writes its Node's status when nothing changes (`nodeStatusReportFrequency`).
const STATUS_REPORT: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(30);
const SETTLED_WITHIN: Duration = Duration::from_secs(300);
const QUIET: Duration = Duration::from_secs(3);
/// The port belongs to the leader of the moment.
const STANDBY: &[&str] = &["--secure-port=0"];

fn main() -> ExitCode {
    enclosure::program("bench-nodes", bench).into()
}

async fn bench() -> Result<()> {
    let count = node_count()?;
    let mut lab = Lab::builder().api_only().start().await?;
    lab.install_cairn().await?;
    write_inventory(&lab, count + 2 * REPEATED)?;
    println!("the floor: {count} Nodes, two writes each, {FLOOR_WORKERS} at a time");
    let floor = measure_floor(&lab, count).await?;
    println!("the controller: {count} Nodes, registered by {REGISTERING_CLIENTS} clients");
    let mut controller = spawn(&lab, &[])?;
    settle(&lab).await?;
    let burst = measure_burst(&lab, &controller, count).await?;
    println!("idle: {IDLE:?} in which kubelets say that they live");
    let idle = measure_idle(&lab, &controller, count).await?;
    let (resident_kib, peak_resident_kib) = (controller.resident_kib()?, controller.peak_resident_kib()?);
    println!("starts and hand-overs: {REPEATED} each");
    let (mut starts, mut hand_overs) = (Vec::new(), Vec::new());
    for number in count + 1..=count + REPEATED {
        controller.terminate(SOON).await?;
        let start;
        (controller, start) = measure_start(&lab, number).await?;
        starts.push(start);
    }
    for number in count + REPEATED + 1..=count + 2 * REPEATED {
        let hand_over;
        (controller, hand_over) = measure_hand_over(&lab, controller, number).await?;
        hand_overs.push(hand_over);
    }
    let (start, hand_over) = (median(starts)?, median(hand_overs)?);
    let measured = Measured { count, floor, burst, idle, resident_kib, peak_resident_kib, start, hand_over };
    controller.terminate(SOON).await?;
    let upstream = reference::measure(&lab, count).await?;
    println!("{}", figures::print(&measured, upstream));
    Ok(())
}

/// All that one run finds out.
struct Measured {
    count: usize,
    floor: Floor,
    burst: Burst,
    idle: Idle,
    resident_kib: u64,
    peak_resident_kib: u64,
    start: Milestones,
    hand_over: Milestones,
}

fn node_count() -> Result<usize> {
    let count = match std::env::var("CAIRN_BENCH_NODES") {
        Ok(text) => text.parse().with_context(|| format!("CAIRN_BENCH_NODES: {text:?} is no number"))?,
        Err(_) => DEFAULT_COUNT,
    };
    ensure!((1..=MOST).contains(&count), "CAIRN_BENCH_NODES is {count}; from 1 to {MOST} Nodes can be measured");
    Ok(count)
}

fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

fn machine_address(number: usize) -> Result<Ipv4Addr> {
    Ok(Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 0).to_bits() + u32::try_from(number)?))
}

/// A machine for each Node, found by the Node's name.
fn write_inventory(lab: &Lab, machines: usize) -> Result<()> {
    let mut text = "apiVersion: inventory.cairn.dev/v1\nkind: Inventory\ndefaults: {region: bench}\n\
                    locations:\n  rack1: {zone: rack1}\nmachines:\n"
        .to_owned();
    for number in 1..=machines {
        let (name, address) = (node_name(number), machine_address(number)?);
        text += &format!(
            "- {{id: machine-{number:05}, state: active, match: {{nodeName: {name}}}, location: rack1, \
             instanceType: bench.small, addresses: [{{type: InternalIP, address: {address}}}, \
             {{type: Hostname, address: {name}}}]}}\n"
        );
    }
    Ok(std::fs::write(lab.cairn()?.configuration().join("inventory.yaml"), text)?)
}

/// What the API server takes from a client that has nothing to decide.
struct Floor {
    /// Until the Nodes exist.
    register: Duration,
    /// Until both writes of each are answered.
    write: Duration,
}

async fn measure_floor(lab: &Lab, count: usize) -> Result<Floor> {
    let began = Stopwatch::start();
    register_all(lab.kube(), "floor", count).await?;
    let register = began.elapsed();
    let client = lab.cairn()?.controller_client().await?;
    let nodes: Api<Node> = Api::all(client);
    let initialized = watch_initialized(lab.kube()).await?;
    let began = Stopwatch::start();
    let written = each(FLOOR_WORKERS, count, move |number| write_twice(nodes.clone(), number));
    // The watch of the bench costs the floor what it costs the controller.
    tokio::try_join!(written, all_initialized(initialized, count))?;
    let write = began.elapsed();
    let nodes: Api<Node> = Api::all(lab.kube().clone());
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default().labels(INITIALIZED)).await?;
    let left = nodes.list_metadata(&ListParams::default()).await?.items.len();
    ensure!(left == 0, "{left} Nodes are left of the floor");
    Ok(Floor { register, write })
}

/// The controller's two writes, with the same content.
async fn write_twice(nodes: Api<Node>, number: usize) -> Result<()> {
    let name = format!("floor-{number:05}");
    let addresses = json!([
        { "type": "InternalIP", "address": machine_address(number)? },
        { "type": "Hostname", "address": name },
    ]);
    let params = PatchParams { field_manager: Some("floor".to_owned()), ..PatchParams::default() };
    let status = Patch::Merge(json!({ "status": { "addresses": addresses } }));
    let written = nodes.patch_status(&name, &params, &status).await?;
    let initialized = Patch::Merge(json!({
        "metadata": {
            "resourceVersion": written.resource_version(),
            "labels": {
                "node.kubernetes.io/instance-type": "bench.small",
                "beta.kubernetes.io/instance-type": "bench.small",
                "topology.kubernetes.io/region": "bench",
                "failure-domain.beta.kubernetes.io/region": "bench",
                "topology.kubernetes.io/zone": "rack1",
                "failure-domain.beta.kubernetes.io/zone": "rack1",
            },
            "annotations": { "cairn.dev/machine": format!("machine-{number:05}") },
        },
        "spec": { "providerID": format!("floor://machine-{number:05}"), "taints": [] },
    }));
    nodes.patch(&name, &params, &initialized).await?;
    Ok(())
}

/// Nodes that register at once, and what the controller does about them.
struct Burst {
    /// From the first registration to the last.
    register: Duration,
    /// From the first registration until all are initialized.
    first_to_all: Duration,
    /// The controller's processor time from before the first registration until it has nothing left to write.
    processor: Duration,
    /// The same since the controller's start: with reading the inventory and showing its machines.
    processor_since_start: Duration,
    writes: Vec<ApiRequest>,
}

async fn measure_burst(lab: &Lab, controller: &Program, count: usize) -> Result<Burst> {
    let (written, used) = (writes(lab)?.len(), controller.processor_time()?);
    let initialized = watch_initialized(lab.kube()).await?;
    let began = Stopwatch::start();
    let (register, first_to_all) = tokio::try_join!(
        elapsed_after(began, register_all(lab.kube(), "node", count)),
        elapsed_after(began, all_initialized(initialized, count)),
    )?;
    let nodes: Api<Node> = Api::all(lab.kube().clone());
    let waiting = nodes.list(&ListParams::default()).await?.items.into_iter().filter(|node| !is_done(node)).count();
    ensure!(waiting == 0, "{waiting} Nodes have their labels but not all the rest");
    settle(lab).await?;
    let processor_since_start = controller.processor_time()?;
    let writes = writes(lab)?.into_iter().skip(written).collect();
    Ok(Burst { register, first_to_all, processor: processor_since_start - used, processor_since_start, writes })
}

fn is_done(node: &Node) -> bool {
    let Some(spec) = &node.spec else { return false };
    let is_awaiting = |taint: &Taint| taint.key == kubelet::UNINITIALIZED;
    spec.provider_id.is_some() && !spec.taints.iter().flatten().any(is_awaiting)
}

/// A cluster in which kubelets only say that they live.
struct Idle {
    watched: Duration,
    heartbeats: usize,
    processor: Duration,
    writes: usize,
}

async fn measure_idle(lab: &Lab, controller: &Program, count: usize) -> Result<Idle> {
    let (written, used) = (writes(lab)?.len(), controller.processor_time()?);
    let began = Stopwatch::start();
    let heartbeats = say_alive(lab, IDLE, STATUS_REPORT / u32::try_from(count)?, count).await?;
    let (watched, processor) = (began.elapsed(), controller.processor_time()? - used);
    Ok(Idle { watched, heartbeats, processor, writes: writes(lab)?.len() - written })
}

/// Lets one kubelet after the other write its Node's status, and returns how often one did.
async fn say_alive(lab: &Lab, how_long: Duration, period: Duration, count: usize) -> Result<usize> {
    let began = Stopwatch::start();
    let mut ticks = tokio::time::interval(period);
    let mut heartbeats = 0;
    ticks.tick().await;
    while began.elapsed() < how_long {
        heartbeats += 1;
        kubelet::say_ready(lab.kube(), &node_name(1 + heartbeats % count)).await?;
        ticks.tick().await;
    }
    Ok(heartbeats)
}

/// How a controller came to act.
#[derive(Clone, Copy)]
struct Milestones {
    lease_held: Duration,
    node_done: Duration,
}

/// The run in the middle, by the time until its Node was done.
fn median(mut runs: Vec<Milestones>) -> Result<Milestones> {
    runs.sort_by_key(|run| run.node_done);
    runs.get(runs.len() / 2).copied().context("a median needs a value")
}

/// From the start of the process, with a Node waiting and nobody holding the Lease.
async fn measure_start(lab: &Lab, number: usize) -> Result<(Program, Milestones)> {
    let name = node_name(number);
    kubelet::register(lab.kube(), &name).await?;
    let (lease, node) = (watch_lease(lab.kube()).await?, watch_node(lab.kube(), &name).await?);
    let began = Stopwatch::start();
    let controller = spawn(lab, &[])?;
    let (lease_held, node_done) = tokio::try_join!(
        elapsed_after(began, until(lease, |lease| !holder(lease).is_empty())),
        elapsed_after(began, until(node, is_done)),
    )?;
    Ok((controller, Milestones { lease_held, node_done }))
}

/// From the leader's SIGTERM, with a standby waiting; the Node registers when the leader has ended.
async fn measure_hand_over(lab: &Lab, mut leader: Program, number: usize) -> Result<(Program, Milestones)> {
    let watches = lease_watches(lab)?;
    let standby = spawn(lab, STANDBY)?;
    wait_for("the standby watches the Lease", SOON, async || {
        ensure!(lease_watches(lab)? > watches, "it does not");
        Ok(())
    })
    .await?;
    settle(lab).await?;
    let name = node_name(number);
    let before = holder(&leases(lab.kube()).get(LEASE).await?).to_owned();
    let (lease, node) = (watch_lease(lab.kube()).await?, watch_node(lab.kube(), &name).await?);
    let began = Stopwatch::start();
    let is_taken = |lease: &Lease| !holder(lease).is_empty() && holder(lease) != before;
    let next_acts = async {
        leader.terminate(SOON).await?;
        kubelet::register(lab.kube(), &name).await?;
        until(node, is_done).await
    };
    let (lease_held, node_done) =
        tokio::try_join!(elapsed_after(began, until(lease, is_taken)), elapsed_after(began, next_acts))?;
    Ok((standby, Milestones { lease_held, node_done }))
}

fn lease_watches(lab: &Lab) -> Result<usize> {
    let requests = lab.control_plane().requests_by_cairn()?;
    Ok(requests.iter().filter(|request| request.resource == "leases" && request.verb == "watch").count())
}

fn spawn(lab: &Lab, flags: &[&str]) -> Result<Program> {
    lab.cairn()?.spawn_controller(lab.control_plane().namespace(), flags)
}

async fn register_all(client: &Client, stem: &'static str, count: usize) -> Result<()> {
    let client = client.clone();
    each(REGISTERING_CLIENTS, count, move |number| {
        let client = client.clone();
        async move { kubelet::register(&client, &format!("{stem}-{number:05}")).await }
    })
    .await
}

/// Does the work of each number up to `count`; `workers` of them at a time.
async fn each<F>(workers: usize, count: usize, work: impl Fn(usize) -> F + Clone + Send + 'static) -> Result<()>
where
    F: Future<Output = Result<()>> + Send,
{
    let next = Arc::new(AtomicUsize::new(1));
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (next, work) = (Arc::clone(&next), work.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number > count {
                    return anyhow::Ok(());
                }
                work(number).await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// The time from `began` until `step` has ended.
async fn elapsed_after(began: Stopwatch, step: impl Future<Output = Result<()>>) -> Result<Duration> {
    step.await?;
    Ok(began.elapsed())
}

/// Waits until the controller has nothing left to write.
async fn settle(lab: &Lab) -> Result<()> {
    let mut before = None;
    wait_every(QUIET, "Cairn has settled", SETTLED_WITHIN, async || {
        let now = writes(lab)?.len();
        let earlier = before.replace(now);
        ensure!(now > 0 && earlier == Some(now), "{now} writes, {earlier:?} before");
        Ok(())
    })
    .await
}

fn writes(lab: &Lab) -> Result<Vec<ApiRequest>> {
    let all = lab.control_plane().writes_by_cairn()?;
    Ok(all.into_iter().filter(|write| write.resource != "leases").collect())
}
