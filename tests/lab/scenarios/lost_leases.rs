//! A Lease that is lost, by whatever cause: the process ends, and writes nothing that a successor would not know of.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use super::{SOON, migration::Migration};
use crate::harness::{Lab, cairn::Cairn, control_plane::ApiRequest, enclosure::inside, namespace::Program, wait_for};

const MAIN: &str = "cloud-controller-manager";
const SECOND: &str = "cloud-provider-extraction-migration";
/// Shorter than by default, so that a lease runs out soon.
const TIMES: [&str; 3] =
    ["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"];

#[test]
fn a_leader_that_cannot_reach_the_api_server_for_the_renew_deadline_exits_with_1() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller_with(&TIMES)?;
        lab.node("n1")?.wait_until_initialized().await?;
        lab.control_plane_mut().kill_api_server().await?;
        ends_with(lab.controller()?, &["cannot reach the lease", "leaderelection lost"]).await?;
        lab.control_plane_mut().restart_api_server().await?;
        let holder = holder(&lab, MAIN).await?;
        ensure!(!holder.is_empty(), "a Lease that could not be given back runs out by itself");
        Ok(())
    });
}

#[test]
fn a_leader_that_stood_still_until_another_led_ends_and_writes_nothing_more() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).start().await?;
        lab.install_cairn().await?;
        let mut first = start(&lab)?;
        lab.node("n1")?.wait_until_initialized().await?;
        let first_holder = holder(&lab, MAIN).await?;
        lab.renew_controller_token().await?;
        let _second = start(&lab)?;
        first.freeze().await?;
        wait_for("the second leads", SOON, async || {
            let holder = holder(&lab, MAIN).await?;
            ensure!(holder != first_holder, "{holder} holds the Lease");
            Ok(())
        })
        .await?;
        // It is there for whoever believes to lead.
        lab.add_node(2).await?;
        first.thaw()?;
        ends_with(&mut first, &["leaderelection lost"]).await?;
        lab.node("n2")?.wait_until_initialized().await?;
        // What can be seen is logged a moment later.
        wait_for("the last write is logged", SOON, async || {
            each_leader_initialized_its_node(&lab.control_plane().writes_by_cairn()?)
        })
        .await
    });
}

#[test]
fn a_second_lease_that_is_lost_ends_the_process() {
    inside(async || {
        let mut lab = with_both_leases().await?;
        take(&lab, SECOND).await?;
        ends_with(lab.controller()?, &["migration leaderelection lost"]).await?;
        wait_for("the first Lease is given back", SOON, async || is_free(&lab, MAIN).await).await
    });
}

#[test]
fn a_main_lease_that_is_lost_while_the_second_is_held_ends_the_process() {
    inside(async || {
        let mut lab = with_both_leases().await?;
        take(&lab, MAIN).await?;
        ends_with(lab.controller()?, &["leaderelection lost"]).await?;
        wait_for("the second Lease is given back", SOON, async || is_free(&lab, SECOND).await).await
    });
}

/// A controller that runs everything it has under one of its two Leases.
async fn with_both_leases() -> Result<Lab> {
    let mut lab = Lab::builder().nodes(1).start().await?;
    lab.install_cairn().await?;
    lab.cairn()?.allow_leader_migration(lab.control_plane()).await?;
    Migration::of(&["cloud-node-lifecycle-controller"], &[])?.spawn_cairn(&mut lab)?;
    lab.node("n1")?.wait_until_initialized().await?;
    wait_for("the controller holds both Leases", SOON, async || {
        let holders = [holder(&lab, MAIN).await?, holder(&lab, SECOND).await?];
        ensure!(!holders[0].is_empty() && holders[0] == holders[1], "{holders:?} hold them");
        Ok(())
    })
    .await?;
    Ok(lab)
}

fn start(lab: &Lab) -> Result<Program> {
    let flags = [&TIMES[..], &["--secure-port=0"]].concat();
    Cairn::spawn_controller(lab.cairn()?, lab.control_plane().namespace(), &flags)
}

/// Another holder, as one that believes it expired would write itself.
async fn take(lab: &Lab, lease: &str) -> Result<()> {
    let taken = r#"{"spec":{"holderIdentity":"another_1"}}"#;
    let patch = ["patch", "lease", lease, "--namespace=kube-system", "--type=merge", "--patch", taken];
    lab.control_plane().kubectl(patch).await?;
    Ok(())
}

async fn ends_with(controller: &mut Program, told: &[&str]) -> Result<()> {
    let status = controller.wait(SOON).await?;
    ensure!(status.code() == Some(1), "the controller ended with {status}");
    let log = controller.log()?;
    for told in told {
        ensure!(log.contains(told), "{told:?} is not in its log: {log}");
    }
    Ok(())
}

async fn is_free(lab: &Lab, lease: &str) -> Result<()> {
    let holder = holder(lab, lease).await?;
    ensure!(holder.is_empty(), "{holder} holds it");
    Ok(())
}

/// Who holds a Lease; empty when nobody does.
async fn holder(lab: &Lab, lease: &str) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(lab.kube().clone(), "kube-system");
    let spec = leases.get_opt(lease).await?.and_then(|lease| lease.spec);
    Ok(spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
}

/// Taint and provider ID are one write. Whose it is, its token tells. A refused one may come before it: somebody else
/// had written to the Node in between, and the leader tried again.
fn each_leader_initialized_its_node(writes: &[ApiRequest]) -> Result<()> {
    let of_nodes: Vec<_> = writes.iter().filter(|write| write.resource == "nodes").collect();
    let mut tried = BTreeMap::<&str, BTreeSet<&str>>::new();
    let mut accepted = BTreeMap::<&str, usize>::new();
    for write in &of_nodes {
        tried.entry(&write.credential).or_default().insert(&write.name);
        *accepted.entry(&write.name).or_default() += usize::from(write.is_accepted());
    }
    let tried: Vec<_> = tried.into_values().collect();
    let is_one_each = tried.len() == 2 && tried.iter().all(|names| names.len() == 1);
    ensure!(is_one_each, "each leader tried to write to its own Node: {of_nodes:#?}");
    ensure!(accepted == [("n1", 1), ("n2", 1)].into(), "each Node was written once: {of_nodes:#?}");
    Ok(())
}
