#![expect(clippy::disallowed_methods, reason = "shell: waits until enough renewals have come")]
//! How late the leader renews its Lease while many clients list many Nodes, and how soon another one follows it;
//! `make bench-election` runs it.
//!
//! While the Nodes register and the controller initializes them, a crowd lists all Nodes again and again, as broken
//! clients do after an outage. Beside the leader a bare client renews a Lease of its own: what delays both of them is
//! the API server's doing, what delays the leader alone is ours. The last line is one JSON object with every target and
//! whether it was met; the targets are for 5,000 Nodes (`CAIRN_BENCH_NODES=5000`) and a release build.

#[path = "election/crowd.rs"]
mod crowd;
#[path = "election/floor.rs"]
mod floor;
#[path = "../lab/harness/mod.rs"]
#[expect(unused_imports, reason = "this lab has no router")]
mod harness;
#[path = "election/leader.rs"]
mod leader;
#[path = "many_nodes/mod.rs"]
#[expect(dead_code, reason = "the benchmarks of many Nodes share it, and each uses a part of it")]
mod many_nodes;
#[path = "election/renewals.rs"]
mod renewals;

use std::{pin::pin, process::ExitCode, time::Duration};

use anyhow::{Result, ensure};
use crowd::Crowd;
use floor::Floor;
use harness::{Lab, Stopwatch, enclosure, namespace::Program, wait::wait_every};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{Api, api::ListParams};
use leader::Watched;
use many_nodes::{
    SETTLED_WITHIN, elapsed_after,
    events::{INITIALIZED, LEASE, holder, leases, until, watch_lease},
    leaders::{Milestones, measure_hand_over, start_standby},
    node_count, register_all, settle, spawn,
    targets::{self, Target, build, number, rounded, seconds},
    write_inventory,
};
use renewals::Renewals;
use serde_json::{Value, json};

const CLIENTS: usize = 500;
/// Renewals come every two seconds: at least so long, for enough of them.
const LOADED: Duration = Duration::from_secs(60);
/// No longer, however slow the API server is; Nodes that are not initialized by then are without a crowd.
const LOADED_AT_MOST: Duration = Duration::from_secs(120);
/// The default of `--leader-elect-lease-duration`.
const LEASE_DURATION: Duration = Duration::from_secs(15);

fn main() -> ExitCode {
    enclosure::program("bench-election", bench).into()
}

async fn bench() -> Result<()> {
    let count = node_count()?;
    let mut lab = Lab::builder().api_only().start().await?;
    lab.install_cairn().await?;
    write_inventory(&lab, count + 1)?;
    let mut leader = spawn(&lab, &[])?;
    settle(&lab).await?;
    println!("{CLIENTS} clients list Nodes, of which {count} register");
    let loaded = measure_renewals(&lab, &mut leader, count).await?;
    println!("a leader is killed");
    settle(&lab).await?;
    let (next, killed) = measure_kill(&lab, leader).await?;
    println!("a leader is told to end");
    let (mut last, told) = measure_hand_over(&lab, next, count + 1).await?;
    last.kill().await?;
    println!("{}", print(count, &loaded, killed, told));
    Ok(())
}

/// What became of the Lease under load.
struct Loaded {
    lasted: Duration,
    all_initialized: Duration,
    lists: usize,
    renewals: Renewals,
    floor: Renewals,
    lost_leases: u32,
}

async fn measure_renewals(lab: &Lab, leader: &mut Program, count: usize) -> Result<Loaded> {
    let mut leader = Watched::begin(lab, leader).await?;
    let (floor, crowd) = (Floor::begin(lab).await?, Crowd::gather(lab, CLIENTS).await?);
    let began = Stopwatch::start();
    let mut all_done = pin!(elapsed_after(began, async {
        register_all(lab.kube(), "node", count).await?;
        all_initialized(lab, count).await
    }));
    let loaded = async {
        let done = tokio::time::timeout(LOADED_AT_MOST, &mut all_done).await;
        tokio::time::sleep(LOADED.saturating_sub(began.elapsed())).await;
        done.ok().transpose()
    };
    let done_under_load = tokio::select! {
        done = loaded => done?,
        failed = leader.keep() => match failed? {},
    };
    leader.look().await;
    let renewals = leader.renewals();
    let floor = renewals.of(&floor.end()?);
    let (lasted, lists) = (began.elapsed(), crowd.disperse().await?);
    ensure!(lists > 0, "the crowd got no list");
    let all_initialized = match done_under_load {
        Some(took) => took,
        None => all_done.await?,
    };
    Ok(Loaded { lasted, all_initialized, lists, renewals, floor, lost_leases: leader.ends() })
}

/// Looks once a second: a watch of the bench's own would be cut off under this load.
async fn all_initialized(lab: &Lab, count: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(lab.kube().clone());
    let initialized = ListParams::default().labels(INITIALIZED);
    wait_every(Duration::from_secs(1), "every Node is initialized", SETTLED_WITHIN, async || {
        let done = nodes.list_metadata(&initialized).await?.items.len();
        ensure!(done == count, "{done} of {count} are");
        Ok(())
    })
    .await
}

/// From a leader's death until another one holds the Lease.
async fn measure_kill(lab: &Lab, mut leader: Program) -> Result<(Program, Duration)> {
    let standby = start_standby(lab).await?;
    let before = holder(&leases(lab.kube()).get(LEASE).await?).to_owned();
    let lease = watch_lease(lab.kube()).await?;
    let began = Stopwatch::start();
    leader.kill().await?;
    let is_taken = |lease: &Lease| !holder(lease).is_empty() && holder(lease) != before;
    let took = elapsed_after(began, until(lease, is_taken)).await?;
    Ok((standby, took))
}

fn print(count: usize, loaded: &Loaded, killed: Duration, told: Milestones) -> Value {
    let Loaded { lasted, all_initialized, lists, renewals, floor, lost_leases } = loaded;
    let [p50, p99] = [0.5, 0.99].map(|quantile| 1e3 * renewals.quantile(quantile));
    let [floor_p50, floor_p99] = [0.5, 0.99].map(|quantile| 1e3 * floor.quantile(quantile));
    let figures = json!({
        "nodes": count,
        "build": build(),
        "listing_clients": CLIENTS,
        "lists_answered": lists,
        "loaded_seconds": seconds(*lasted),
        "first_created_to_all_initialized_seconds": seconds(*all_initialized),
        "renewals": renewals.count(),
        "renewal_ms_p50": rounded(p50),
        "floor_renewals": floor.count(),
        "floor_renewal_ms_p50": rounded(floor_p50),
        "floor_renewal_ms_p99": rounded(floor_p99),
        "renewal_p99_over_floor": rounded(p99 / floor_p99),
        "sigterm_to_lease_held_by_next_seconds": seconds(told.lease_held),
    });
    let targets = [
        ("renewal_ms_p99", 1000.0, p99),
        ("lost_leases", 0.0, f64::from(*lost_leases)),
        ("kill_to_lease_held_by_next_seconds", LEASE_DURATION.as_secs_f64(), killed.as_secs_f64()),
        ("sigterm_to_next_leader_initialized_a_node_seconds", 0.5, told.node_done.as_secs_f64()),
    ]
    .map(|(name, at_most, figure)| Target { name, at_most, figure });
    let mut all = targets::print(figures, &targets);
    all["renewals_by_seconds"] = renewals.by_bound();
    all["floor_renewals_by_seconds"] = floor.by_bound();
    all["lists_answered_per_second"] = rounded(number(*lists) / lasted.as_secs_f64()).into();
    all
}
