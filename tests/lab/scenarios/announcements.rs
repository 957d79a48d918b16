//! Which nodes say that they take an address, and what becomes of packets that nobody serves.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service as ServiceObject;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::{
    SOON,
    advertisements::{advertise, network_of},
    cluster_with_cairn,
    first_service::{announced_by_all, answered_by, next_hops_of},
};
use crate::harness::{
    Lab, Stopwatch,
    address::CLIENT_V4,
    client::Unanswered,
    enclosure::inside,
    namespace::Namespace,
    service::{self, ExternalTrafficPolicy, Service, host_prefix},
    wait::stays,
    wait_for,
};

/// Long enough for an announcement.
const A_SECOND: Duration = Duration::from_secs(1);
/// So long an agent waits for kube-proxy, from the moment on that it hears of the endpoint.
const WITHOUT_PROXY: Duration = Duration::from_secs(3);

#[test]
fn only_nodes_with_a_ready_endpoint_announce_a_local_service() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        lab.start_pod("n1", "web-1", "web").await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Local).await?;
        let addresses = web.wait_for_addresses(SOON).await?;
        let announced_by = async |lab: &crate::harness::Lab, names: &[&str]| -> Result<()> {
            for address in addresses {
                let nodes = next_hops_of(lab, address, names);
                lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, SOON).await?;
            }
            Ok(())
        };
        announced_by(&lab, &["n1"]).await?;
        answered_by(&lab, addresses[0], &["n1"]).await?;
        let answer = lab.client()?.http_get(addresses[0], service::PORT).await?;
        let keeps_client = answer.as_ref().is_ok_and(|answer| answer.contains(&format!("client={CLIENT_V4}\n")));
        ensure!(keeps_client, "the client's own address does not arrive: {answer:?}");

        lab.pod("web-1")?.set_ready(false).await?;
        announced_by(&lab, &[]).await?;
        lab.start_pod("n2", "web-2", "web").await?;
        announced_by(&lab, &["n2"]).await?;
        lab.pod("web-1")?.set_ready(true).await?;
        announced_by(&lab, &["n1", "n2"]).await
    });
}

#[test]
fn a_local_service_is_announced_once_kube_proxy_forwards_to_its_first_endpoint_on_the_node() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Local).await?;
        let addresses = web.wait_for_addresses(SOON).await?;
        lab.node("n1")?.program("kube-proxy")?.freeze().await?;
        let stopped = Stopwatch::start();
        lab.start_pod("n1", "web-1", "web").await?;
        let slices: Api<EndpointSlice> = Api::default_namespaced(lab.kube().clone());
        let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
        wait_for("the endpoint is there", SOON, async || {
            let endpoints =
                slices.list(&of_web).await?.into_iter().map(|slice| slice.endpoints.map_or(0, |all| all.len()));
            ensure!(endpoints.sum::<usize>() == 2, "not yet");
            Ok(())
        })
        .await?;
        stays("nobody announces what kube-proxy does not forward yet", A_SECOND, async || {
            for address in addresses {
                let announcing = lab.router()?.next_hops(&host_prefix(address)).await?;
                let is_lawful = announcing.is_empty() || stopped.elapsed() > WITHOUT_PROXY;
                ensure!(is_lawful, "{announcing:?} announce {address}");
            }
            Ok(())
        })
        .await?;
        lab.node("n1")?.program("kube-proxy")?.thaw()?;
        for address in addresses {
            let nodes = next_hops_of(&lab, address, &["n1"]);
            lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, SOON).await?;
            let first = lab.client()?.http_get(address, service::PORT).await?;
            ensure!(first.is_ok(), "the first request to {address}: {first:?}");
        }
        Ok(())
    });
}

#[test]
fn another_traffic_policy_changes_who_announces_and_not_the_addresses() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        let (web, addresses) = announced_by_all(&mut lab).await?;
        let services: Api<ServiceObject> = Api::default_namespaced(lab.kube().clone());
        for (policy, announcing) in [("Local", &["n1"][..]), ("Cluster", &["n1", "n2", "n3"])] {
            let change = Patch::Merge(json!({ "spec": { "externalTrafficPolicy": policy } }));
            services.patch("web", &PatchParams::default(), &change).await?;
            for address in addresses {
                let nodes = next_hops_of(&lab, address, announcing);
                lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, SOON).await?;
                answered_by(&lab, address, &["n1"]).await?;
            }
            ensure!(web.addresses().await? == addresses, "it had {addresses:?}");
        }
        Ok(())
    });
}

#[test]
fn a_deleted_service_leaves_the_router() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        let (web, addresses) = announced_by_all(&mut lab).await?;
        web.delete().await?;
        for address in addresses {
            lab.router()?.wait_for_next_hops(&host_prefix(address), [], SOON).await?;
        }
        Ok(())
    });
}

#[test]
fn a_kernel_route_that_someone_deletes_comes_back() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        let [v4, v6] = lab.node("n2")?.pod_cidrs().await?;
        let node = lab.node("n1")?;
        for (family, cidr) in [("-4", v4), ("-6", v6)] {
            let has_route = async || {
                let routes = node.exec(["ip", family, "route", "show", "proto", "202"]).await?;
                ensure!(routes.contains(&cidr), "routes {routes}");
                Ok(())
            };
            wait_for(&format!("n1 has a route to {cidr}"), SOON, has_route).await?;
            node.exec(["ip", family, "route", "del", &cidr]).await?;
            wait_for(&format!("the route to {cidr} is back"), SOON, has_route).await?;
        }
        Ok(())
    });
}

#[test]
fn a_port_that_no_service_has_is_refused_at_once() {
    const UNSERVED: u16 = 81;
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        lab.start_pod("n1", "web-1", "web").await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        for address in web.wait_for_addresses(SOON).await? {
            answered_by(&lab, address, &["n1"]).await?;
            wait_for(&format!("port {UNSERVED} of {address} is refused"), SOON, async || {
                let answer = lab.client()?.http_get(address, UNSERVED).await?;
                ensure!(answer == Err(Unanswered::Refused), "{answer:?}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    });
}

/// Packets that went through the router, then ICMP messages that came to the client: unreachable, time exceeded.
async fn counted(lab: &Lab) -> Result<[u64; 3]> {
    let read = async |namespace: &Namespace, group: &str, name: &str| -> Result<u64> {
        let shown = namespace.exec(["cat", "/proc/net/snmp"]).await?;
        let mut lines = shown.lines().filter(|line| line.starts_with(&format!("{group}: ")));
        let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let at = names.split_whitespace().position(|word| word == name);
        let value = at.and_then(|at| values.split_whitespace().nth(at)?.parse().ok());
        value.with_context(|| format!("no {group} {name} in {shown}"))
    };
    let (router, client) = (lab.router()?.namespace(), lab.client()?.namespace());
    Ok([
        read(router, "Ip", "ForwDatagrams").await?,
        read(client, "Icmp", "InDestUnreachs").await?,
        read(client, "Icmp", "InTimeExcds").await?,
    ])
}

#[test]
fn an_address_of_an_announced_network_that_no_service_has_is_unreachable_and_those_of_services_answer() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        lab.start_pod("n1", "web-1", "web").await?;
        let bgp = json!({ "aggregationLength": 26, "aggregationLengthV6": 124 });
        advertise(&lab, "wide", json!({ "services": { "pools": ["public"] }, "bgp": bgp })).await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        let [v4, v6] = web.wait_for_addresses(SOON).await?;
        let nodes = next_hops_of(&lab, v4, &["n1", "n2", "n3"]);
        lab.router()?.wait_for_next_hops(&network_of(&lab, v4)?, nodes, SOON).await?;
        answered_by(&lab, v4, &["n1"]).await?;
        answered_by(&lab, v6, &["n1"]).await?;
        // The pool begins at .10, and the widest network that does not leave it ends at .11.
        let nobody = |address: IpAddr| match address {
            IpAddr::V4(v4) => IpAddr::from((u32::from(v4) ^ 1).to_be_bytes()),
            IpAddr::V6(v6) => IpAddr::from((u128::from(v6) ^ 0x8).to_be_bytes()),
        };
        for address in [v4, v6].map(nobody) {
            wait_for(&format!("{address} is unreachable"), SOON, async || {
                let answer = lab.client()?.http_get(address, service::PORT).await?;
                ensure!(answer == Err(Unanswered::Refused), "{answer:?}");
                Ok(())
            })
            .await?;
        }
        // The router may choose another node for each connection.
        wait_for("what nobody has is unreachable at once", SOON, async || {
            let [forwarded, unreachable, expired] = counted(&lab).await?;
            let answer = lab.client()?.http_get(nobody(v4), service::PORT).await?;
            ensure!(answer == Err(Unanswered::Refused), "{answer:?}");
            let after = counted(&lab).await?;
            // There and back once; in a circle it would be dozens of times.
            ensure!(after[0] - forwarded < 10, "the router forwarded {} packets", after[0] - forwarded);
            ensure!(after[1] > unreachable && after[2] == expired, "{unreachable} and {expired}, then {after:?}");
            Ok(())
        })
        .await?;
        // The nodes' own programs reach the Service by its address, as ever: kube-proxy translates after routing.
        let url = format!("http://{v4}/");
        for name in ["n1", "n2"] {
            let answer = lab.node(name)?.exec(["curl", "--silent", "--show-error", "--max-time", "5", &url]).await?;
            ensure!(answer.contains("node=n1"), "on {name}: {answer}");
        }
        Ok(())
    });
}
