//! What goes wrong around Cairn, and what it does not do then.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use super::{
    SOON, cluster_with_cairn,
    first_service::{announced_by_all, answered_within},
};
use crate::harness::{
    Lab, RouterKind,
    cairn::AGENT,
    enclosure::inside,
    service::{ExternalTrafficPolicy, Service, host_prefix},
    wait::stays,
    wait_for,
};

/// Longer than the router's hold time and any period of the agents.
const AWAY: Duration = Duration::from_secs(12);
/// The kernel's half minute, and a little for what follows.
const NOTICED_WITHIN: Duration = Duration::from_secs(35);
/// Between two looks at the controller.
const A_MOMENT: Duration = Duration::from_secs(1);
/// Kubernetes' own controllers and kube-proxy come back up to half a minute after the API server, one after the other.
const RECOVERY: Duration = Duration::from_secs(90);

#[test]
fn nothing_is_withdrawn_while_the_api_server_is_away() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        let (_, addresses) = announced_by_all(&mut lab).await?;
        lab.control_plane_mut().kill_api_server().await?;
        stays("every node announces both addresses", AWAY, async || {
            for address in addresses {
                let announcing = lab.router()?.next_hops(&host_prefix(address)).await?.len();
                ensure!(announcing == 3, "{announcing} nodes announce {address}");
            }
            Ok(())
        })
        .await?;
        lab.control_plane_mut().restart_api_server().await?;
        let api = Service::create(lab.kube(), "api", ExternalTrafficPolicy::Cluster).await?;
        lab.start_pod("n2", "api-1", "api").await?;
        let addresses = wait_for("a new Service has addresses", RECOVERY, async || {
            lab.keep_controller()?;
            api.wait_for_addresses(A_MOMENT).await
        });
        for address in addresses.await? {
            answered_within(RECOVERY, &lab, address, &["n2"]).await?;
        }
        Ok(())
    });
}

#[test]
fn connections_that_die_without_a_word_are_noticed_in_half_a_minute() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller()?;
        lab.node("n1")?.wait_until_initialized().await?;
        // As when a server's machine dies behind an address that another one takes: what there was is silent on
        // both sides for ever, and new connections work.
        let namespace = lab.control_plane().namespace();
        let connections = namespace.exec(["ss", "-tnpH", "state", "established"]).await?;
        let of_cairn = connections.lines().filter(|line| line.contains("\"cairn\""));
        let ports: Vec<_> = of_cairn.filter_map(|line| line.split_whitespace().nth(2)?.rsplit(':').next()).collect();
        ensure!(!ports.is_empty(), "Cairn has no connection: {connections}");
        let ports = ports.join(", ");
        let rules = format!(
            "add table inet silence; add chain inet silence output {{ type filter hook output priority 0; }}; \
             add rule inet silence output tcp sport {{ {ports} }} drop; \
             add rule inet silence output tcp dport {{ {ports} }} drop"
        );
        namespace.exec(["nft", &rules]).await?;
        lab.add_node(2).await?;
        wait_for("a node that joined since is seen", NOTICED_WITHIN, async || {
            let node = Api::<Node>::all(lab.kube().clone()).get("n2").await?;
            let spec = node.spec.unwrap_or_default();
            ensure!(spec.provider_id.is_some(), "{spec:?}");
            Ok(())
        })
        .await
    });
}

#[test]
fn a_wrong_inventory_at_reload_keeps_the_last_good_one() {
    inside(async || {
        let mut lab = Lab::builder().nodes(2).start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller()?;
        for name in ["n1", "n2"] {
            lab.node(name)?.wait_until_initialized().await?;
        }
        let before = of_inventory(&lab.node("n1")?.object().await?);
        lab.cairn()?.edit("inventory.yaml", "10.90.0.11", "10.90.0.311")?;
        let controller = lab.controller()?;
        wait_for("the controller names the fault", SOON, async || {
            let log = controller.log()?;
            ensure!(log.contains("10.90.0.311"), "its log: {log}");
            Ok(())
        })
        .await?;
        lab.add_node(3).await?;
        lab.node("n3")?.wait_until_initialized().await?;
        lab.controller()?.ensure_running()?;
        let after = of_inventory(&lab.node("n1")?.object().await?);
        ensure!(before == after, "n1 was {before:?} and is {after:?}");
        Ok(())
    });
}

/// What the inventory says of a Node; others write to it too.
fn of_inventory(node: &Node) -> (Option<String>, Vec<String>) {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
    (provider_id, addresses.map(|address| address.address.clone()).collect())
}

#[test]
fn a_router_that_refuses_is_named_once() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).router(RouterKind::Bird).start().await?;
        lab.install_cairn().await?;
        lab.cairn()?.edit("peer.yaml", "64513", "64999")?;
        lab.apply_pool_and_peer().await?;
        lab.spawn_controller()?;
        lab.spawn_agents()?;
        let agent = lab.node("n1")?.program(AGENT)?;
        let warnings = |log: &str| -> Vec<String> {
            let refused = |line: &&str| line.contains("WARN") && line.to_lowercase().contains("bad peer as");
            log.lines().filter(refused).map(str::to_owned).collect()
        };
        wait_for("the agent says what the router's NOTIFICATION means", SOON, async || {
            let log = agent.log()?;
            ensure!(!warnings(&log).is_empty(), "its log: {log}");
            Ok(())
        })
        .await?;
        stays("it says so once", AWAY, async || {
            let warnings = warnings(&agent.log()?);
            ensure!(warnings.len() == 1, "{warnings:#?}");
            Ok(())
        })
        .await
    });
}
