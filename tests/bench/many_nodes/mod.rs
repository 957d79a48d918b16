//! A cluster of many Nodes, and nothing else in it: for benchmarks of the controller.

#[path = "../crowd.rs"]
mod crowd;
pub(crate) mod events;
pub(crate) mod leaders;
pub(crate) mod targets;
#[path = "../watches.rs"]
mod watches;

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, ensure};
pub(crate) use crowd::each;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Client;

use super::harness::{Lab, Stopwatch, control_plane::ApiRequest, kubelet, namespace::Program, wait::wait_every};

const DEFAULT_COUNT: usize = 1000;
/// With more, the API server would begin a second file of its audit log.
const MOST: usize = 10_000;
pub(crate) const REGISTERING_CLIENTS: usize = 32;
pub(crate) const SOON: Duration = Duration::from_secs(30);
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_secs(300);
pub(crate) const QUIET: Duration = Duration::from_secs(3);
/// How often a kubelet writes its Node's status when nothing changes (`nodeStatusReportFrequency`).
pub(crate) const STATUS_REPORT: Duration = Duration::from_secs(300);

/// `CAIRN_BENCH_NODES`.
pub(crate) fn node_count() -> Result<usize> {
    let count = match std::env::var("CAIRN_BENCH_NODES") {
        Ok(text) => text.parse().with_context(|| format!("CAIRN_BENCH_NODES: {text:?} is no number"))?,
        Err(_) => DEFAULT_COUNT,
    };
    ensure!((1..=MOST).contains(&count), "CAIRN_BENCH_NODES is {count}; from 1 to {MOST} Nodes can be measured");
    Ok(count)
}

pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

pub(crate) fn machine_address(number: usize) -> Result<Ipv4Addr> {
    Ok(Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 0).to_bits() + u32::try_from(number)?))
}

/// A machine for each Node, found by the Node's name.
pub(crate) fn write_inventory(lab: &Lab, machines: usize) -> Result<()> {
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

pub(crate) fn is_done(node: &Node) -> bool {
    let Some(spec) = &node.spec else { return false };
    let is_awaiting = |taint: &Taint| taint.key == kubelet::UNINITIALIZED;
    spec.provider_id.is_some() && !spec.taints.iter().flatten().any(is_awaiting)
}

/// Lets one kubelet after the other write its Node's status, and returns how often one did.
pub(crate) async fn say_alive(lab: &Lab, how_long: Duration, period: Duration, count: usize) -> Result<usize> {
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

pub(crate) fn spawn(lab: &Lab, flags: &[&str]) -> Result<Program> {
    lab.cairn()?.spawn_controller(lab.control_plane().namespace(), flags)
}

pub(crate) async fn register_all(client: &Client, stem: &'static str, count: usize) -> Result<()> {
    let client = client.clone();
    each(REGISTERING_CLIENTS, count, move |number| {
        let client = client.clone();
        async move { kubelet::register(&client, &format!("{stem}-{number:05}")).await }
    })
    .await
}

/// The time from `began` until `step` has ended.
pub(crate) async fn elapsed_after(began: Stopwatch, step: impl Future<Output = Result<()>>) -> Result<Duration> {
    step.await?;
    Ok(began.elapsed())
}

/// Waits until the controller has nothing left to write.
pub(crate) async fn settle(lab: &Lab) -> Result<()> {
    let mut before = None;
    wait_every(QUIET, "Cairn has settled", SETTLED_WITHIN, async || {
        let now = writes(lab)?.len();
        let earlier = before.replace(now);
        ensure!(now > 0 && earlier == Some(now), "{now} writes, {earlier:?} before");
        Ok(())
    })
    .await
}

pub(crate) fn writes(lab: &Lab) -> Result<Vec<ApiRequest>> {
    let all = lab.control_plane().writes_by_cairn()?;
    Ok(all.into_iter().filter(|write| write.resource != "leases").collect())
}
