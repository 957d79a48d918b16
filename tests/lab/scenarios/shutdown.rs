//! SIGTERM: what is held is given back, soon.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};

use super::{
    QUICK_LEASE, SOON, cluster_with_cairn,
    first_service::{announced_by_all, next_hops_of},
};
use crate::harness::{
    Lab,
    cairn::AGENT,
    control_plane::ApiRequest,
    enclosure::inside,
    holding_proxy::{HoldingProxy, Rule},
    namespace::Program,
    service::host_prefix,
    wait::{Stopwatch, stays},
    wait_for,
};

/// A controller waits for answers to its writes, gives its Lease back, and tells so: 3.2 seconds at most.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// An agent takes leave of its routers: 1.5 seconds at most, and less than the hold time of three.
const AGENT_ENDS_WITHIN: Duration = Duration::from_secs(2);
const LEASE: &str = "cloud-controller-manager";

#[test]
fn a_controller_that_is_told_to_end_gives_its_lease_back() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        let leases: Api<Lease> = Api::namespaced(lab.kube().clone(), "kube-system");
        let holder = async || anyhow::Ok(leases.get(LEASE).await?.spec.and_then(|spec| spec.holder_identity));
        wait_for("the controller leads", SOON, async || {
            let holder = holder().await?.unwrap_or_default();
            ensure!(!holder.is_empty(), "nobody holds Lease {LEASE}");
            Ok(())
        })
        .await?;
        let status = lab.controller()?.terminate(ENDS_WITHIN).await?;
        ensure!(status.success(), "the controller ended with {status}");
        let holder = holder().await?.unwrap_or_default();
        ensure!(holder.is_empty(), "the Lease is still held by {holder}");
        let told = told_of_lease(&lab).await?;
        for what in ["became leader", "stopped leading"] {
            let times = told.iter().filter(|told| told.starts_with("LeaderElection: ") && told.ends_with(what)).count();
            ensure!(times == 1, "{what}: {times} times in {told:?}");
        }
        Ok(())
    });
}

#[test]
fn a_controller_whose_write_is_not_answered_ends_and_keeps_its_lease() {
    inside(async || {
        const SETTLED_WITHIN: Duration = Duration::from_millis(1500);
        let mut lab = Lab::builder().nodes(1).start().await?;
        lab.install_cairn().await?;
        let proxy = HoldingProxy::start(lab.cairn()?.controller_client().await?).await?;
        lab.spawn_controller_with(&[&format!("--master={}", proxy.url())])?;
        lab.node("n1")?.wait_until_initialized().await?;
        proxy.rule(Rule::KeepAnswersAboutNodes);
        lab.add_node(2).await?;
        wait_for("a write waits for its answer", SOON, async || proxy.ensure_holding()).await?;

        let terminated = Stopwatch::start();
        let status = lab.controller()?.terminate(ENDS_WITHIN).await?;
        let took = terminated.elapsed();
        ensure!(status.success(), "the controller ended with {status}");
        ensure!(took >= SETTLED_WITHIN, "it ended after {took:?}, before the answer could have come");
        let log = lab.controller()?.log()?;
        ensure!(log.contains("a write has not been answered: the lease is not given back"), "its log: {log}");
        stays("the Lease is held by whoever may still write", Duration::from_secs(1), async || {
            let spec = leases(&lab).get(LEASE).await?.spec.unwrap_or_default();
            ensure!(spec.holder_identity.is_some_and(|holder| !holder.is_empty()), "nobody holds the Lease");
            Ok(())
        })
        .await
    });
}

#[test]
fn a_controller_that_lost_its_lease_exits_with_1() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller()?;
        lab.node("n1")?.wait_until_initialized().await?;
        let taken = r#"{"spec":{"holderIdentity":"another_1"}}"#;
        lab.control_plane()
            .kubectl(["patch", "lease", LEASE, "--namespace=kube-system", "--type=merge", "--patch", taken])
            .await?;
        let controller = lab.controller()?;
        let status = controller.wait(SOON).await?;
        ensure!(status.code() == Some(1), "the controller ended with {status}");
        let log = controller.log()?;
        ensure!(log.contains("leaderelection lost"), "its log: {log}");
        Ok(())
    });
}

#[test]
fn a_standby_follows_a_leader_at_once_or_when_its_lease_has_run_out() {
    inside(async || {
        // One that only asked now and then would come far too late.
        const SLOW: [&str; 4] = [
            "--secure-port=0",
            "--leader-elect-lease-duration=60s",
            "--leader-elect-renew-deadline=50s",
            "--leader-elect-retry-period=20s",
        ];
        const AT_ONCE: Duration = Duration::from_secs(5);
        // The Lease runs out six seconds after it was renewed, and is asked for within two retry periods.
        const RUN_OUT: Duration = Duration::from_secs(6 + 2);
        let mut lab = Lab::builder().start().await?;
        lab.install_cairn().await?;
        let mut first = start_one_more(&lab, &SLOW).await?;
        let first_holder = follower(&lab, "", SOON).await?;
        let mut second = start_one_more(&lab, &SLOW).await?;

        let status = first.terminate(ENDS_WITHIN).await?;
        ensure!(status.success(), "the first ended with {status}");
        let second_holder = follower(&lab, &first_holder, AT_ONCE).await?;
        let lease = leases(&lab).get(LEASE).await?.spec.unwrap_or_default();
        ensure!(lease.lease_transitions == Some(1), "{lease:?}");

        let status = second.terminate(ENDS_WITHIN).await?;
        ensure!(status.success(), "the second ended with {status}");
        let mut third = start_one_more(&lab, &QUICK_LEASE).await?;
        let third_holder = follower(&lab, &second_holder, SOON).await?;
        let _fourth = start_one_more(&lab, &QUICK_LEASE).await?;
        third.kill().await?;
        follower(&lab, &third_holder, RUN_OUT).await?;
        Ok(())
    });
}

/// Reason and text of each Event about the Lease.
async fn told_of_lease(lab: &Lab) -> Result<Vec<String>> {
    let events: Api<Event> = Api::namespaced(lab.kube().clone(), "kube-system");
    let all = events.list(&ListParams::default()).await?.items.into_iter();
    let of_lease = all.filter(|event| {
        let regarding = event.regarding.as_ref();
        regarding.is_some_and(|regarding| regarding.name.as_deref() == Some(LEASE))
    });
    Ok(of_lease.map(|event| [event.reason, event.note].map(Option::unwrap_or_default).join(": ")).collect())
}

fn leases(lab: &Lab) -> Api<Lease> {
    Api::namespaced(lab.kube().clone(), "kube-system")
}

/// Starts a controller, and waits until it watches the Lease.
pub(super) async fn start_one_more(lab: &Lab, flags: &[&str]) -> Result<Program> {
    let watches = || {
        let is_watch = |request: &&ApiRequest| request.resource == "leases" && request.verb == "watch";
        anyhow::Ok(lab.control_plane().requests_by_cairn()?.iter().filter(is_watch).count())
    };
    let before = watches()?;
    let mut controller = lab.cairn()?.spawn_controller(lab.control_plane().namespace(), flags)?;
    wait_for("the controller watches the Lease", SOON, async || {
        controller.ensure_running()?;
        ensure!(watches()? > before, "no watch has begun");
        Ok(())
    })
    .await?;
    Ok(controller)
}

/// Waits until another one than `before` holds the Lease, and returns who.
pub(super) async fn follower(lab: &Lab, before: &str, deadline: Duration) -> Result<String> {
    wait_for("another one leads", deadline, async || {
        let spec = leases(lab).get_opt(LEASE).await?.and_then(|lease| lease.spec);
        let holder = spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        ensure!(!holder.is_empty() && holder != before, "{holder:?} holds it");
        Ok(holder)
    })
    .await
}

#[test]
fn an_agent_that_is_told_to_end_closes_its_sessions() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        let (_, addresses) = announced_by_all(&mut lab).await?;
        let status = lab.node("n1")?.program(AGENT)?.terminate(AGENT_ENDS_WITHIN).await?;
        ensure!(status.success(), "the agent ended with {status}");
        for address in addresses {
            let nodes = next_hops_of(&lab, address, &["n2", "n3"]);
            // Less than the hold time: the session was closed, not lost.
            lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, AGENT_ENDS_WITHIN).await?;
        }
        Ok(())
    });
}
