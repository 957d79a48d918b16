//! Somebody writes by hand what is Cairn's to write.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use cairn::api::{NodeReport, NodeReportStatus};
use k8s_openapi::api::core::v1::Service as ServiceObject;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    SOON, cluster_with_cairn,
    first_service::{answered_by, next_hops_of},
};
use crate::harness::{
    Lab,
    enclosure::inside,
    kubernetes::Kubernetes,
    service::{ExternalTrafficPolicy, Service, host_prefix},
    wait::stays,
    wait_for,
};

/// Longer than Cairn needs to answer a change.
const A_WHILE: Duration = Duration::from_secs(2);

#[test]
fn a_report_that_is_deleted_or_changed_is_written_anew() {
    inside(async || {
        let lab = cluster_with_cairn().await?;
        let reports: Api<NodeReport> = Api::all(lab.kube().clone());
        let status = async |name: &str| -> Result<NodeReportStatus> {
            reports.get(name).await?.status.with_context(|| format!("NodeReport {name} has no status"))
        };
        let settled = async |name: &str| {
            wait_for(&format!("NodeReport {name} has its agent's words"), SOON, async || {
                let status = status(name).await?;
                let is_its_own = status.own_route.as_deref().is_some_and(|route| route != "by-hand");
                ensure!(is_its_own && status.routes.installed == status.routes.wanted, "{status:?}");
                Ok(())
            })
            .await
        };
        for name in ["n1", "n2", "n3"] {
            settled(name).await?;
        }
        reports.delete("n1", &DeleteParams::default()).await?;
        let by_hand = json!({ "status": { "ownRoute": "by-hand", "witness": [] } });
        reports.patch_status("n2", &PatchParams::default(), &Patch::Merge(by_hand)).await?;
        for name in ["n1", "n2"] {
            settled(name).await?;
        }
        Ok(())
    });
}

#[test]
fn a_nodes_address_in_a_service_cuts_no_node_off() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        lab.start_pod("n1", "web-1", "web").await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        let [v4, _] = web.wait_for_addresses(SOON).await?;
        announced_by_all(&lab, v4).await?;

        let of_node = lab.node("n2")?.host().v4();
        let by_hand = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": of_node, "ipMode": "VIP" }] } } });
        let services: Api<ServiceObject> = Api::default_namespaced(lab.kube().clone());
        services.patch_status("web", &PatchParams::default(), &Patch::Merge(by_hand)).await?;
        let addresses = web.wait_for_addresses(SOON).await?;
        ensure!(!addresses.contains(&of_node.into()), "{addresses:?}");
        for address in addresses {
            announced_by_all(&lab, address).await?;
            answered_by(&lab, address, &["n1"]).await?;
        }
        ensure!(!lab.router()?.log()?.contains("Error"), "a session broke: {}", lab.router()?.log()?);
        Ok(())
    });
}

#[test]
fn addresses_said_to_be_a_proxys_are_ours_again() {
    inside(async || ip_mode_is_kept(Kubernetes::default()).await);
}

/// `ipMode` is ours to say (KEP-1860), and said once.
pub(super) async fn ip_mode_is_kept(kubernetes: Kubernetes) -> Result<()> {
    let mut lab = Lab::builder().kubernetes(kubernetes).start().await?;
    lab.install_cairn().await?;
    lab.apply_pool_and_peer().await?;
    lab.spawn_controller()?;
    let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
    let addresses = web.wait_for_addresses(SOON).await?;
    let services: Api<ServiceObject> = Api::default_namespaced(lab.kube().clone());
    let is_said = async || {
        let status = services.get("web").await?.status.and_then(|status| status.load_balancer);
        let ingress = status.and_then(|balancer| balancer.ingress).unwrap_or_default();
        let modes: Vec<_> = ingress.iter().map(|entry| entry.ip_mode.as_deref()).collect();
        ensure!(modes == [Some("VIP"); 2], "{ingress:?}");
        Ok(())
    };
    is_said().await?;

    let entry = |ip: IpAddr| json!({ "ip": ip, "ipMode": "Proxy" });
    let by_hand = json!({ "status": { "loadBalancer": { "ingress": addresses.map(entry) } } });
    services.patch_status("web", &PatchParams::default(), &Patch::Merge(by_hand)).await?;
    wait_for("the addresses are virtual IPs again", SOON, is_said).await?;
    let written = async || {
        let writes = lab.control_plane().writes_by_cairn()?;
        let of_status = writes.iter().filter(|request| request.resource == "services/status" && request.is_accepted());
        let count = of_status.filter(|request| !request.is_of_service_conditions()).count();
        ensure!(count == 2, "{count} writes: {writes:#?}");
        Ok(())
    };
    wait_for("both writes are logged", SOON, written).await?;
    stays("each was written once", A_WHILE, written).await?;
    ensure!(web.wait_for_addresses(SOON).await? == addresses, "the Service lost its addresses");
    Ok(())
}

async fn announced_by_all(lab: &Lab, address: IpAddr) -> Result<()> {
    let nodes = next_hops_of(lab, address, &["n1", "n2", "n3"]);
    lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, SOON).await
}
