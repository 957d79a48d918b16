//! Routes to other nodes' pods, and what does not make them go.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cairn::api::{EntryFlag, NodeReport, NodeReportStatus, NodeRoute, NodeRouteSpec, RouteExceptionReason};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    SOON, cluster_with_cairn,
    first_service::{announced_by_all, has_routes},
    route_monitor::{self, changes_of_ours},
};
use crate::harness::{Lab, cairn::AGENT, enclosure::inside, node::Node, service::host_prefix, wait::stays, wait_for};

/// Longer than any period of an agent.
const A_WHILE: Duration = Duration::from_secs(12);

/// Every node has its routes; from here on each change of them is written down.
async fn settled(lab: &mut Lab) -> Result<()> {
    for node in lab.nodes() {
        wait_for(&format!("{} has its routes", node.name()), SOON, async || {
            has_routes(lab, node).await?;
            has_last_resorts(node).await
        })
        .await?;
    }
    for name in ["n1", "n2", "n3"] {
        route_monitor::watch(lab, name).await?;
    }
    Ok(())
}

/// What goes to the node's own pods, and to none that there is, ends there.
async fn has_last_resorts(node: &Node) -> Result<()> {
    for (family, cidr) in ["-4", "-6"].into_iter().zip(node.pod_cidrs().await?) {
        let shown = node.exec(["ip", family, "route", "show", "proto", "202"]).await?;
        ensure!(shown.contains(&format!("blackhole {cidr} ")), "no last resort of {cidr}: {shown}");
    }
    Ok(())
}

/// None of our routes was deleted or replaced on a node since [`settled`].
fn nothing_moved(lab: &mut Lab) -> Result<()> {
    for name in ["n1", "n2", "n3"] {
        let ours = changes_of_ours(lab, name)?;
        ensure!(ours.is_empty(), "on {name}: {ours:#?}");
    }
    Ok(())
}

async fn report_of(lab: &Lab, node: &str) -> Result<NodeReportStatus> {
    let reports: Api<NodeReport> = Api::all(lab.kube().clone());
    reports.get(node).await?.status.with_context(|| format!("NodeReport {node} has no status"))
}

#[test]
fn no_route_and_no_session_goes_when_node_routes_are_deleted_by_hand() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        let (_, addresses) = announced_by_all(&mut lab).await?;
        settled(&mut lab).await?;
        lab.control_plane().kubectl(["delete", "noderoutes", "--all"]).await?;
        let routes: Api<NodeRoute> = Api::all(lab.kube().clone());
        for name in ["n1", "n2", "n3"] {
            wait_for(&format!("NodeRoute {name} is written again"), SOON, async || Ok(routes.get(name).await?)).await?;
        }
        stays("nothing moves", A_WHILE, async || nothing_moved(&mut lab)).await?;

        // Nobody writes them again now, and their kind goes too.
        lab.controller()?.kill().await?;
        lab.control_plane().kubectl(["delete", "noderoutes", "--all"]).await?;
        stays("nothing moves without a leader", A_WHILE, async || nothing_moved(&mut lab)).await?;
        lab.control_plane().kubectl(["delete", "customresourcedefinition", "noderoutes.cairn.dev"]).await?;
        stays("nothing moves without the kind", A_WHILE, async || nothing_moved(&mut lab)).await?;
        for address in addresses {
            let announcing = lab.router()?.next_hops(&host_prefix(address)).await?.len();
            ensure!(announcing == 3, "{announcing} nodes announce {address}");
        }
        ensure!(!lab.router()?.log()?.contains("Error"), "a session broke: {}", lab.router()?.log()?);
        Ok(())
    });
}

#[test]
fn a_node_that_leaves_loses_its_routes_and_one_that_is_not_ready_keeps_them() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        settled(&mut lab).await?;
        let [cidr, _] = lab.node("n3")?.pod_cidrs().await?;
        let nodes: Api<NodeObject> = Api::all(lab.kube().clone());
        let not_ready =
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "Lab" }] } });
        nodes.patch_status("n3", &PatchParams::default(), &Patch::Strategic(not_ready)).await?;
        stays("nothing moves", Duration::from_secs(4), async || nothing_moved(&mut lab)).await?;

        nodes.delete("n3", &DeleteParams::default()).await?;
        for name in ["n1", "n2"] {
            wait_for(&format!("{name} has no route to n3's pods"), 2 * SOON, async || {
                let shown = lab.node(name)?.exec(["ip", "route", "show", "proto", "202"]).await?;
                ensure!(!shown.contains(&cidr), "{shown}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    });
}

#[test]
fn an_agent_that_is_killed_while_the_api_server_is_away_goes_on_where_it_was() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        let (_, addresses) = announced_by_all(&mut lab).await?;
        settled(&mut lab).await?;
        let state = std::path::Path::new(crate::harness::enclosure::WORK).join("n1/state.json");
        wait_for("the agent has kept its state", SOON, async || {
            let kept = std::fs::read_to_string(&state)?;
            addresses.iter().try_for_each(|address| {
                ensure!(kept.contains(&address.to_string()), "{address} is not in it");
                Ok(())
            })
        })
        .await?;
        let [cidr, _] = lab.node("n1")?.pod_cidrs().await?;
        // What has just changed is kept a moment later.
        stays("time passes", Duration::from_secs(2), async || Ok(())).await?;
        lab.control_plane_mut().kill_api_server().await?;
        lab.node("n1")?.program(AGENT)?.kill().await?;
        for address in addresses {
            wait_for("the router knows that n1 is gone", SOON, async || {
                let announcing = lab.router()?.next_hops(&host_prefix(address)).await?.len();
                ensure!(announcing == 2, "{announcing} nodes announce {address}");
                Ok(())
            })
            .await?;
        }
        lab.spawn_agent("n1")?;
        for prefix in addresses.map(host_prefix).into_iter().chain([cidr]) {
            let via: IpAddr = lab.node("n1")?.host().v4().into();
            wait_for(&format!("n1 announces {prefix} again"), SOON, async || {
                let hops = lab.router()?.next_hops(&prefix).await?;
                ensure!(hops.contains(&via) || hops.len() == 3, "via {hops:?}");
                Ok(())
            })
            .await?;
        }
        stays("nothing moves", A_WHILE, async || nothing_moved(&mut lab)).await?;
        // It repairs what it only knows from before.
        let deleted = lab.node("n1")?.exec(["ip", "route", "flush", "proto", "202"]).await;
        deleted.context("a hand deletes the routes")?;
        wait_for("they are back", SOON, async || {
            let shown = lab.node("n1")?.exec(["ip", "route", "show", "proto", "202"]).await?;
            ensure!(shown.matches(" via ").count() == 2, "{shown}");
            Ok(())
        })
        .await
    });
}

/// How fast, `make bench-routes` says (`change_to_route_ms`): each hop waits for a signal, none for a time.
#[test]
fn an_address_that_changes_is_followed_by_everyone() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        settled(&mut lab).await?;
        let [cidr, _] = lab.node("n2")?.pod_cidrs().await?;
        let n2 = lab.node("n2")?;
        n2.exec(["ip", "address", "add", "10.90.0.42/24", "dev", "eth0"]).await?;
        lab.cairn()?.edit("inventory.yaml", "10.90.0.12", "10.90.0.42")?;
        wait_for("the Node has its new address", SOON, async || {
            let addresses =
                lab.node("n2")?.object().await?.status.and_then(|status| status.addresses).unwrap_or_default();
            ensure!(addresses.iter().any(|address| address.address == "10.90.0.42"), "{addresses:?}");
            Ok(())
        })
        .await?;
        for name in ["n1", "n3"] {
            wait_for(&format!("{name} follows"), SOON, async || {
                let shown = lab.node(name)?.exec(["ip", "route", "show", "proto", "202"]).await?;
                ensure!(shown.contains(&format!("{cidr} via 10.90.0.42")), "{shown}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    });
}

#[test]
fn what_node_routes_say_wrong_is_told_and_moves_no_route() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).api_only().start().await?;
        lab.install_cairn().await?;
        lab.node("n1")?.initialize_by_hand().await?;
        let routes: Api<NodeRoute> = Api::all(lab.kube().clone());
        let write = async |name: &str, addresses: &[&str], cidrs: &[&str]| {
            let text = |items: &[&str]| items.iter().map(ToString::to_string).collect();
            let spec = NodeRouteSpec {
                addresses: text(addresses),
                pod_cidrs: text(cidrs),
                zone: None,
                entry: EntryFlag::Eligible,
                witnesses: Vec::new(),
            };
            routes.create(&PostParams::default(), &NodeRoute::new(name, spec)).await
        };
        write("n1", &["10.90.0.11", "fd90::11"], &["10.244.0.0/24", "fd00:244::/64"]).await?;
        write("n2", &["10.90.0.12", "fd90::12"], &["10.244.2.0/23", "fd00:244:0:2::/64"]).await?;
        lab.spawn_agents()?;
        let shown = async |lab: &mut Lab| {
            let node = lab.node("n1")?;
            let v4 = node.exec(["ip", "-4", "route", "show", "proto", "202"]).await?;
            anyhow::Ok(v4 + &node.exec(["ip", "-6", "route", "show", "proto", "202"]).await?)
        };
        wait_for("n1 has its routes", SOON, async || {
            let shown = shown(&mut lab).await?;
            ensure!(shown.contains("10.244.2.0/23 via 10.90.0.12") && shown.contains("fd00:244:0:2::/64"), "{shown}");
            Ok(())
        })
        .await?;
        let before = shown(&mut lab).await?;
        // The age of objects counts seconds: the others shall be younger.
        stays("n2 grows older", Duration::from_millis(1100), async || Ok(())).await?;
        write("n3", &["10.90.0.13"], &["10.244.2.0/23", "fd00:244:0:3::/64"]).await?;
        write("n4", &["10.90.0.14"], &["10.244.3.0/24"]).await?;
        write("n5", &["10.90.0.15"], &["10.244.0.128/25"]).await?;
        write("n6", &["10.90.0.16"], &["10.90.0.0/26"]).await?;
        use RouteExceptionReason::{Contested, HoldsAddress, NoAddressOfFamily, Overlapped};
        let want = [
            ("n2", Overlapped),
            ("n3", Contested),
            ("n3", NoAddressOfFamily),
            ("n4", Contested),
            ("n5", Contested),
            ("n6", HoldsAddress),
        ];
        wait_for("each is told", 2 * SOON, async || {
            let report = report_of(&lab, "n1").await?;
            let mut told: Vec<_> =
                report.routes.exceptions.iter().map(|told| (told.node.as_str(), told.reason)).collect();
            told.sort_by_key(|(node, reason)| (*node, format!("{reason:?}")));
            told.dedup();
            ensure!(told == want, "{:#?}", report.routes);
            Ok(())
        })
        .await?;
        let after = shown(&mut lab).await?;
        ensure!(after == before, "before:\n{before}after:\n{after}");
        // Registered again with another CIDR: the old route goes as the new one comes.
        routes.delete("n2", &DeleteParams::default()).await?;
        write("n2", &["10.90.0.12", "fd90::12"], &["10.244.9.0/24"]).await?;
        wait_for("the route follows", SOON, async || {
            let shown = shown(&mut lab).await?;
            ensure!(shown.contains("10.244.9.0/24 via 10.90.0.12") && !shown.contains("fd00:244:0:2::/64"), "{shown}");
            ensure!(shown.contains("10.244.2.0/23 via 10.90.0.13"), "n3 has it alone now: {shown}");
            Ok(())
        })
        .await
    });
}

#[test]
fn a_node_without_an_agent_is_left_clean() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        announced_by_all(&mut lab).await?;
        settled(&mut lab).await?;
        let node = lab.node("n1")?;
        wait_for("the guard stands", SOON, async || node.exec(["nft", "list", "table", "inet", "cairn"]).await).await?;
        node.exec(["nft", "add", "table", "inet", "another"]).await?;
        node.program(AGENT)?.kill().await?;
        node.exec([env!("CARGO_BIN_EXE_cairn"), "agent", "--cleanup", "--state-file", "/run/lab/n1/state.json"])
            .await?;
        let routes = node.exec(["ip", "route", "show", "table", "all"]).await?;
        ensure!(!routes.contains("proto 202") && routes.contains("192.0.2.0/24"), "{routes}");
        let tables = node.exec(["nft", "list", "tables"]).await?;
        ensure!(!tables.contains("inet cairn") && tables.contains("inet another"), "{tables}");
        ensure!(!std::path::Path::new("/run/lab/n1/state.json").exists(), "the state is still kept");
        Ok(())
    });
}

#[test]
fn a_host_that_does_not_forward_is_told() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        settled(&mut lab).await?;
        lab.node("n1")?.exec(["sysctl", "-qw", "net.ipv4.ip_forward=0"]).await?;
        wait_for("the report says so", 2 * SOON, async || {
            let faults = report_of(&lab, "n1").await?.forwarding;
            ensure!(faults.iter().any(|fault| fault.message.contains("net.ipv4.ip_forward is 0")), "{faults:?}");
            Ok(())
        })
        .await?;
        let agent = lab.node("n1")?.program(AGENT)?;
        wait_for("its log says so", SOON, async || {
            let log = agent.log()?;
            ensure!(log.contains("net.ipv4.ip_forward is 0"), "{log}");
            Ok(())
        })
        .await
    });
}
