//! SIGTERM: what is held is given back, soon.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use super::{SOON, cluster_with_cairn, first_service::next_hops_of};
use crate::harness::{
    Lab,
    cairn::AGENT,
    enclosure::inside,
    service::{ExternalTrafficPolicy, Service, host_prefix},
    wait_for,
};

const ENDS_WITHIN: Duration = Duration::from_secs(2);
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
        Ok(())
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
fn an_agent_that_is_told_to_end_closes_its_sessions() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        lab.start_pod("n1", "web-1", "web").await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        let addresses = web.wait_for_addresses(SOON).await?;
        for address in addresses {
            let nodes = next_hops_of(&lab, address, &["n1", "n2", "n3"]);
            lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, SOON).await?;
        }
        let status = lab.node("n1")?.program(AGENT)?.terminate(ENDS_WITHIN).await?;
        ensure!(status.success(), "the agent ended with {status}");
        for address in addresses {
            let nodes = next_hops_of(&lab, address, &["n2", "n3"]);
            // Less than the hold time: the session was closed, not lost.
            lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, ENDS_WITHIN).await?;
        }
        Ok(())
    });
}
