//! How a controller comes to lead, and to act.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;

use super::{
    SOON, elapsed_after,
    events::{LEASE, holder, leases, until, watch_lease, watch_node},
    is_done, node_name, settle, spawn,
};
use crate::harness::{Lab, Stopwatch, kubelet, namespace::Program, wait_for};

/// The port belongs to the leader of the moment.
const STANDBY: &[&str] = &["--secure-port=0"];

/// How a controller came to act.
#[derive(Clone, Copy)]
pub(crate) struct Milestones {
    pub(crate) lease_held: Duration,
    pub(crate) node_done: Duration,
}

/// The run in the middle, by the time until its Node was done.
pub(crate) fn median(mut runs: Vec<Milestones>) -> Result<Milestones> {
    runs.sort_by_key(|run| run.node_done);
    runs.get(runs.len() / 2).copied().context("a median needs a value")
}

/// From the start of the process, with a Node waiting and nobody holding the Lease.
pub(crate) async fn measure_start(lab: &Lab, number: usize) -> Result<(Program, Milestones)> {
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
pub(crate) async fn measure_hand_over(lab: &Lab, mut leader: Program, number: usize) -> Result<(Program, Milestones)> {
    let standby = start_standby(lab).await?;
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

/// A controller that waits for the leader's end.
pub(crate) async fn start_standby(lab: &Lab) -> Result<Program> {
    let watches = lease_watches(lab)?;
    let standby = spawn(lab, STANDBY)?;
    wait_for("the standby watches the Lease", SOON, async || {
        ensure!(lease_watches(lab)? > watches, "it does not");
        Ok(())
    })
    .await?;
    Ok(standby)
}

fn lease_watches(lab: &Lab) -> Result<usize> {
    let requests = lab.control_plane().requests_by_cairn()?;
    Ok(requests.iter().filter(|request| request.resource == "leases" && request.verb == "watch").count())
}
