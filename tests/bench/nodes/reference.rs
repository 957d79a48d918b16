//! Kubernetes' own framework at the same work, in the same lab.
//!
//! With its default flags it holds itself back, so that it gets fewer Nodes; with raised limits it is as fast as it can
//! be. `CAIRN_BENCH_REFERENCE=0` leaves it out.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use super::{
    IDLE,
    harness::{Lab, Stopwatch, kubelet, namespace::Program, reference_ccm::ReferenceCcm, wait::wait_every},
    many_nodes::{
        QUIET, SETTLED_WITHIN, STATUS_REPORT, elapsed_after,
        events::{LEASE, holder, leases, until, watch_lease, watch_node},
        is_done, node_name, register_all, say_alive,
        targets::{megabytes, number, rounded, seconds},
    },
};

/// Twenty requests a second are three seconds for twenty Nodes.
const MOST_AT_DEFAULTS: usize = 300;
const MOST: usize = 1000;
const DONE_WITHIN: Duration = Duration::from_secs(200);

/// The flags of one run, and how many Nodes it gets.
struct Run {
    flags: &'static [&'static str],
    count: usize,
}

/// One object for each run; none where the framework was not built.
pub(crate) async fn measure(lab: &Lab, count: usize) -> Result<Vec<Value>> {
    if std::env::var("CAIRN_BENCH_REFERENCE").is_ok_and(|wish| wish == "0") {
        return Ok(Vec::new());
    }
    let Some(reference) = ReferenceCcm::install(lab.control_plane()).await? else {
        println!("upstream's framework is not built: `make lab-reference` does");
        return Ok(Vec::new());
    };
    let runs = [
        Run { flags: &[], count: count.min(MOST_AT_DEFAULTS) },
        Run {
            flags: &["--kube-api-qps=1000", "--kube-api-burst=1000", "--concurrent-node-syncs=50"],
            count: count.min(MOST),
        },
    ];
    let mut measured = Vec::new();
    for Run { flags, count } in runs {
        println!("upstream's framework: {count} Nodes, flags {flags:?}");
        start_afresh(lab).await?;
        measured.push(run(lab, &reference, flags, count).await?);
    }
    Ok(measured)
}

/// No Nodes, and nobody who held the Lease.
async fn start_afresh(lab: &Lab) -> Result<()> {
    let nodes: Api<Node> = Api::all(lab.kube().clone());
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    // A framework that was stopped has not given it back.
    leases(lab.kube()).delete(LEASE, &DeleteParams::default()).await?;
    Ok(())
}

async fn run(lab: &Lab, reference: &ReferenceCcm, flags: &[&str], count: usize) -> Result<Value> {
    let earlier = reference.writes(lab.control_plane())?.len();
    let first = node_name(count + 1);
    kubelet::register(lab.kube(), &first).await?;
    let (lease, node) = (watch_lease(lab.kube()).await?, watch_node(lab.kube(), &first).await?);
    let began = Stopwatch::start();
    let mut program = reference.spawn(lab.control_plane(), flags)?;
    let (lease_held, first_done) = tokio::try_join!(
        elapsed_after(began, until(lease, |lease| !holder(lease).is_empty())),
        elapsed_after(began, until(node, |node| is_done(node) && has_addresses(node))),
    )?;
    let (before, used) = (settled(lab, reference).await?, program.processor_time()?);
    let began = Stopwatch::start();
    register_all(lab.kube(), "node", count).await?;
    let register = began.elapsed();
    all_done(lab, count + 1).await?;
    let all_done = began.elapsed();
    let written = settled(lab, reference).await? - before;
    let processor = program.processor_time()? - used;
    let (idle_writes, idle_processor) = idle(lab, reference, &program, count).await?;
    let resident = program.resident_kib()?;
    program.kill().await?;
    let all = reference.writes(lab.control_plane())?;
    let node_writes = all[earlier..].iter().filter(|write| write.resource.starts_with("nodes") && write.code < 300);
    Ok(json!({
        "flags": flags,
        "nodes": count,
        "first_created_to_last_created_seconds": seconds(register),
        "first_created_to_all_initialized_seconds": seconds(all_done),
        "last_created_to_all_initialized_seconds": seconds(all_done.saturating_sub(register)),
        "node_writes_per_node": rounded(number(node_writes.count()) / number(count + 1)),
        "writes_and_events_per_node": rounded(number(written) / number(count)),
        "cpu_for_the_burst_seconds": seconds(processor),
        "resident_megabytes": rounded(megabytes(resident)),
        "idle_writes_but_lease_renewals": idle_writes,
        "idle_cpu_percent": rounded(100.0 * idle_processor.as_secs_f64() / IDLE.as_secs_f64()),
        "start_to_lease_held_seconds": seconds(lease_held),
        "start_to_first_node_initialized_seconds": seconds(first_done),
    }))
}

fn has_addresses(node: &Node) -> bool {
    node.status.as_ref().is_some_and(|status| status.addresses.as_ref().is_some_and(|all| !all.is_empty()))
}

/// Looks twice a second at what a Node gets last here, its addresses.
async fn all_done(lab: &Lab, count: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(lab.kube().clone());
    wait_every(Duration::from_millis(500), "every Node has its addresses", DONE_WITHIN, async || {
        let all = nodes.list(&ListParams::default()).await?.items;
        let done = all.iter().filter(|node| is_done(node) && has_addresses(node)).count();
        ensure!(done == count, "{done} of {count} have");
        Ok(())
    })
    .await
}

/// Waits until it writes nothing more, and returns how much it has written.
async fn settled(lab: &Lab, reference: &ReferenceCcm) -> Result<usize> {
    let mut before = None;
    wait_every(QUIET, "upstream's framework has settled", SETTLED_WITHIN, async || {
        let now = reference.writes(lab.control_plane())?.len();
        ensure!(before.replace(now) == Some(now), "{now} writes");
        Ok(now)
    })
    .await
}

/// Writes and processor time while kubelets only say that they live.
async fn idle(lab: &Lab, reference: &ReferenceCcm, program: &Program, count: usize) -> Result<(usize, Duration)> {
    let (written, used) = (reference.writes(lab.control_plane())?.len(), program.processor_time()?);
    say_alive(lab, IDLE, STATUS_REPORT / u32::try_from(count)?, count).await?;
    Ok((reference.writes(lab.control_plane())?.len() - written, program.processor_time()? - used))
}
