//! How long the first Service takes, step by step, and what Cairn costs meanwhile; `make bench-first-service` runs it.
//!
//! The last line is one JSON object. Times are medians of repeated steps in a lab where nothing else happens.

#[path = "../lab/harness/mod.rs"]
mod harness;

use std::{net::IpAddr, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use futures_util::TryStreamExt;
use harness::{
    Lab, RouterKind, Stopwatch,
    cairn::AGENT,
    enclosure, kubelet,
    namespace::Program,
    router::BirdConnection,
    service::{ExternalTrafficPolicy, Service, host_prefix},
    wait::{stays, wait_every},
    wait_for,
};
use k8s_openapi::api::core::v1::{Node as NodeObject, Service as ServiceObject};
use kube::{
    Api,
    api::{DeleteParams, WatchEvent, WatchParams},
};
use serde_json::json;

const SOON: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(1);
const REPEATED: usize = 21;
const AGENT_STARTS: usize = 7;
const IDLE: Duration = Duration::from_secs(15);
const QUIET: Duration = Duration::from_secs(3);
/// Longer than agents keep back a report that nobody waits for.
const LAST_REPORTS: Duration = Duration::from_secs(12);

fn main() -> ExitCode {
    enclosure::program("bench-first-service", bench).into()
}

async fn bench() -> Result<()> {
    let began = Stopwatch::start();
    let mut lab = Lab::builder().router(RouterKind::Bird).client().start().await?;
    let control_plane = began.elapsed();
    for number in 1..=3 {
        lab.add_node(number).await?;
    }
    lab.run_cairn().await?;
    let lab_start = began.elapsed();
    lab.start_pod("n1", "web-1", "web").await?;
    lab.start_pod("n2", "web-2", "web").await?;
    settle(&lab).await?;

    let node = repeat(REPEATED, async |_| initialize_node(&lab).await).await?;
    settle(&lab).await?;
    let mut bird = lab.router()?.connect().await?;
    let mut routes = Vec::new();
    let status = repeat(REPEATED, async |number| {
        let (status, route) = serve(&lab, &mut bird, number).await?;
        routes.push(route);
        Ok(status)
    })
    .await?;
    let agent_start = repeat(AGENT_STARTS, async |_| start_agent(&mut lab, &mut bird).await).await?;
    settle_for(LAST_REPORTS, &lab).await?;
    let before = writes(&lab)?;
    stays("time passes", IDLE, async || Ok(())).await?;
    let idle_writes = writes(&lab)? - before;
    let figures = json!({
        "control_plane_start_seconds": rounded(control_plane.as_secs_f64()),
        "lab_start_seconds": rounded(lab_start.as_secs_f64()),
        "node_tainted_to_initialized_p50_milliseconds": milliseconds(node),
        "service_created_to_status_p50_milliseconds": milliseconds(status),
        "status_to_all_next_hops_in_bird_p50_milliseconds": milliseconds(median(routes)?),
        "agent_start_to_first_update_p50_milliseconds": milliseconds(agent_start),
        "controller_resident_mebibytes": mebibytes(lab.controller()?)?,
        "agent_resident_mebibytes": mebibytes(lab.node("n2")?.program(AGENT)?)?,
        "idle_writes_but_lease_renewals": idle_writes,
        "idle_watched_seconds": IDLE.as_secs(),
    });
    for (name, value) in figures.as_object().into_iter().flatten() {
        println!("{name:<52} {value}");
    }
    println!("{figures}");
    Ok(())
}

/// The time from a Node's registration until its taint is gone.
async fn initialize_node(lab: &Lab) -> Result<Duration> {
    const NAME: &str = "n3";
    let nodes: Api<NodeObject> = Api::all(lab.kube().clone());
    nodes.delete(NAME, &DeleteParams::default()).await?;
    let params = WatchParams::default().fields("metadata.name=n3");
    let version = nodes.list_metadata(&Default::default()).await?.metadata.resource_version.unwrap_or_default();
    let mut events = std::pin::pin!(nodes.watch(&params, &version).await?);
    kubelet::register(lab.kube(), NAME).await?;
    let registered = Stopwatch::start();
    while let Some(event) = events.try_next().await? {
        let (WatchEvent::Added(node) | WatchEvent::Modified(node)) = event else { continue };
        let spec = node.spec.unwrap_or_default();
        let is_tainted = spec.taints.iter().flatten().any(|taint| taint.key.ends_with("/uninitialized"));
        if spec.provider_id.is_some() && !is_tainted {
            return Ok(registered.elapsed());
        }
    }
    bail!("the watch of Node {NAME} ended")
}

/// The times from a Service's creation to its status, and from there to its next hops in the router.
async fn serve(lab: &Lab, bird: &mut BirdConnection, number: usize) -> Result<(Duration, Duration)> {
    let services: Api<ServiceObject> = Api::default_namespaced(lab.kube().clone());
    let name = format!("web-{number}");
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let version = services.list_metadata(&Default::default()).await?.metadata.resource_version.unwrap_or_default();
    let mut events = std::pin::pin!(services.watch(&params, &version).await?);
    let service = Service::create_for_app(lab.kube(), &name, "web", ExternalTrafficPolicy::Cluster).await?;
    let created = Stopwatch::start();
    let address = loop {
        let event = events.try_next().await?.context("the watch of the Service ended")?;
        let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else { continue };
        if let Some(address) = first_address(&object) {
            break address.parse::<IpAddr>()?;
        }
    };
    let status = created.elapsed();
    let written = Stopwatch::start();
    let prefix = host_prefix(address);
    wait_every(LOOK_EVERY, "every node announces the address", SOON, async || {
        let hops = bird.next_hops(&prefix).await?;
        ensure!(hops.len() == 3, "via {hops:?}");
        Ok(())
    })
    .await?;
    let route = written.elapsed();
    service.delete().await?;
    wait_every(LOOK_EVERY, "the address is withdrawn", SOON, async || {
        let hops = bird.next_hops(&prefix).await?;
        ensure!(hops.is_empty(), "via {hops:?}");
        Ok(())
    })
    .await?;
    Ok((status, route))
}

fn first_address(service: &ServiceObject) -> Option<String> {
    service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?.ip.clone()
}

/// The time from an agent's start until the router has its node's pod CIDR.
async fn start_agent(lab: &mut Lab, bird: &mut BirdConnection) -> Result<Duration> {
    let [cidr, _] = lab.node("n1")?.pod_cidrs().await?;
    let is_announced = async |bird: &mut BirdConnection, wanted: bool| {
        wait_every(LOOK_EVERY, "the router knows n1's pods or not", SOON, async || {
            let hops = bird.next_hops(&cidr).await?;
            ensure!(hops.is_empty() != wanted, "via {hops:?}");
            Ok(())
        })
        .await
    };
    lab.node("n1")?.program(AGENT)?.kill().await?;
    is_announced(bird, false).await?;
    let started = Stopwatch::start();
    lab.spawn_agent("n1")?;
    is_announced(bird, true).await?;
    Ok(started.elapsed())
}

async fn settle(lab: &Lab) -> Result<()> {
    settle_for(QUIET, lab).await
}

async fn settle_for(quiet: Duration, lab: &Lab) -> Result<()> {
    wait_for("Cairn has settled", 2 * SOON, async || {
        let before = writes(lab)?;
        stays("Cairn writes nothing", quiet, async || {
            let new = writes(lab)? - before;
            ensure!(new == 0, "{new} writes");
            Ok(())
        })
        .await
    })
    .await
}

fn writes(lab: &Lab) -> Result<usize> {
    Ok(lab.control_plane().writes_by_cairn()?.iter().filter(|write| write.resource != "leases").count())
}

async fn repeat(times: usize, mut step: impl AsyncFnMut(usize) -> Result<Duration>) -> Result<Duration> {
    let mut all = Vec::new();
    for number in 0..times {
        all.push(step(number).await?);
    }
    median(all)
}

fn median(mut durations: Vec<Duration>) -> Result<Duration> {
    durations.sort();
    durations.get(durations.len() / 2).copied().context("a median needs a value")
}

fn milliseconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1e3)
}

fn mebibytes(program: &Program) -> Result<f64> {
    Ok(rounded(f64::from(u32::try_from(program.resident_kib()?)?) / 1024.0))
}

/// To three decimals: the rest is noise.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
