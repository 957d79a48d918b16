//! How fast the controller initializes many Nodes that register at once, and what that costs; `make bench-nodes` runs it.
//!
//! The measure is the floor: what a client that does nothing else needs in the same lab for the same two writes a
//! Node. The lab has no kubelets and none of Kubernetes' own controllers, so that the API server works for nobody
//! else. The last line is one JSON object with every target and whether it was met; the targets are for 5,000 Nodes
//! (`CAIRN_BENCH_NODES=5000`) and a release build.

#[path = "nodes/figures.rs"]
mod figures;
#[path = "../lab/harness/mod.rs"]
#[expect(unused_imports, reason = "this lab has no router")]
mod harness;
#[path = "many_nodes/mod.rs"]
mod many_nodes;
#[path = "nodes/reference.rs"]
mod reference;

use std::{process::ExitCode, time::Duration};

use anyhow::{Result, ensure};
use harness::{
    Lab, Stopwatch,
    control_plane::ApiRequest,
    enclosure,
    namespace::{self, Program},
    wait::wait_every,
};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use many_nodes::{
    QUIET, REGISTERING_CLIENTS, SETTLED_WITHIN, SOON, STATUS_REPORT, each, elapsed_after,
    events::{INITIALIZED, all_initialized, watch_initialized},
    is_done,
    leaders::{Milestones, measure_hand_over, measure_start, median},
    machine_address, node_count, register_all, say_alive, settle, spawn, write_inventory, writes,
};
use serde_json::json;

/// As many writes as the controller has on their way at most.
const FLOOR_WORKERS: usize = 50;
/// How often a start and a hand-over are measured; each needs a Node of its own.
const REPEATED: usize = 3;
const IDLE: Duration = Duration::from_secs(20);

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
    // An inventory is there long before its racks are switched on.
    machines_are_shown(&lab, count + 2 * REPEATED).await?;
    settle(&lab).await?;
    let before = (controller.processor_time()?, controller.peak_resident_kib()?);
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
    let (processor_before_burst, peak_resident_before_burst_kib) = before;
    let measured = Measured {
        count,
        floor,
        processor_before_burst,
        peak_resident_before_burst_kib,
        burst,
        idle,
        resident_kib,
        peak_resident_kib,
        start,
        hand_over,
    };
    controller.terminate(SOON).await?;
    let upstream = reference::measure(&lab, count).await?;
    println!("{}", figures::print(&measured, upstream));
    Ok(())
}

/// All that one run finds out.
struct Measured {
    count: usize,
    floor: Floor,
    /// The controller's, for reading the inventory and showing its machines.
    processor_before_burst: Duration,
    peak_resident_before_burst_kib: u64,
    burst: Burst,
    idle: Idle,
    resident_kib: u64,
    peak_resident_kib: u64,
    start: Milestones,
    hand_over: Milestones,
}

/// What the API server takes from a client that has nothing to decide.
struct Floor {
    /// Until the Nodes exist.
    register: Duration,
    /// Until both writes of each are answered.
    write: Duration,
    /// The processor time of that client, and of the watch beside it.
    processor: Duration,
}

async fn measure_floor(lab: &Lab, count: usize) -> Result<Floor> {
    let began = Stopwatch::start();
    register_all(lab.kube(), "floor", count).await?;
    let register = began.elapsed();
    let client = lab.cairn()?.controller_client().await?;
    let nodes: Api<Node> = Api::all(client);
    let initialized = watch_initialized(lab.kube()).await?;
    let (began, used) = (Stopwatch::start(), namespace::processor_time("self")?);
    let written = each(FLOOR_WORKERS, count, move |number| write_twice(nodes.clone(), number));
    // The watch of the bench costs the floor what it costs the controller.
    tokio::try_join!(written, all_initialized(initialized, count))?;
    let (write, processor) = (began.elapsed(), namespace::processor_time("self")? - used);
    let nodes: Api<Node> = Api::all(lab.kube().clone());
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default().labels(INITIALIZED)).await?;
    let left = nodes.list_metadata(&ListParams::default()).await?.items.len();
    ensure!(left == 0, "{left} Nodes are left of the floor");
    Ok(Floor { register, write, processor })
}

/// Waits until each machine of the inventory has its object, with a status.
async fn machines_are_shown(lab: &Lab, count: usize) -> Result<()> {
    wait_every(QUIET, "the machines are shown", SETTLED_WITHIN, async || {
        let shown = writes(lab)?.iter().filter(|write| write.resource == "machines/status" && write.code < 300).count();
        ensure!(shown >= count, "{shown} of {count} are");
        Ok(())
    })
    .await
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
    let processor = controller.processor_time()? - used;
    let writes = writes(lab)?.into_iter().skip(written).collect();
    Ok(Burst { register, first_to_all, processor, writes })
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
