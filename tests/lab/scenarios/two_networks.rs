//! A node on two networks: routes go by the one where node addresses live, and by the other when they must.
//!
//! ```text
//! n1 ─┬─ eth0  10.90.0.0/24, fd90::/64   its node address is here
//!     └─ eth1  10.93.0.0/24, fd93::/64
//! ```

use anyhow::{Result, ensure};
use cairn::api::{EntryFlag, NodeReport, NodeRoute, NodeRouteSpec};
use kube::{Api, api::PostParams};

use super::{
    SOON,
    route_monitor::{changes_of_ours, watch},
};
use crate::harness::{Lab, enclosure::inside, namespace::ip_batch, wait_for};

/// The agent's routes, of both families.
async fn routes(lab: &mut Lab) -> Result<String> {
    let node = lab.node("n1")?;
    let v4 = node.exec(["ip", "-4", "route", "show", "proto", "202"]).await?;
    Ok(v4 + &node.exec(["ip", "-6", "route", "show", "proto", "202"]).await?)
}

async fn go_by(lab: &mut Lab, what: &str, wanted: &[&str]) -> Result<()> {
    wait_for(what, SOON, async || {
        let shown = routes(lab).await?;
        ensure!(wanted.iter().all(|route| shown.contains(route)), "{wanted:?} are not all in\n{shown}");
        Ok(())
    })
    .await
}

/// n2 is on both networks and names the second one first; n3 is on the second one only.
async fn node_on_two_networks() -> Result<Lab> {
    let mut lab = Lab::builder().nodes(1).api_only().start().await?;
    ip_batch(
        &[],
        "link add br1 type bridge forward_delay 0 stp_state 0 mcast_snooping 0\n\
         link set br1 up\n\
         link add q-n1 type veth peer name eth1 netns n1\n\
         link set q-n1 master br1 up",
    )
    .await?;
    let node = lab.node("n1")?.namespace();
    node.ip("link set eth1 up\naddr add 10.93.0.11/24 dev eth1\naddr add fd93::11/64 dev eth1 nodad").await?;
    lab.install_cairn().await?;
    lab.node("n1")?.initialize_by_hand().await?;
    let routes: Api<NodeRoute> = Api::all(lab.kube().clone());
    for (name, addresses, number) in [
        ("n1", &["10.90.0.11", "fd90::11"][..], 1),
        ("n2", &["10.93.0.12", "fd93::12", "10.90.0.12", "fd90::12"], 2),
        ("n3", &["10.93.0.13", "fd93::13"], 3),
    ] {
        let spec = NodeRouteSpec {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            pod_cidrs: vec![format!("10.244.{number}.0/24"), format!("fd00:244:0:{number}::/64")],
            zone: None,
            entry: EntryFlag::Eligible,
            witnesses: Vec::new(),
        };
        routes.create(&PostParams::default(), &NodeRoute::new(name, spec)).await?;
    }
    lab.spawn_agents()?;
    Ok(lab)
}

const BY_NODES_NETWORK: [&str; 2] =
    ["10.244.2.0/24 via 10.90.0.12 dev eth0", "fd00:244:0:2::/64 via fd90::12 dev eth0"];
const BY_THE_OTHER: [&str; 2] = ["10.244.2.0/24 via 10.93.0.12 dev eth1", "fd00:244:0:2::/64 via fd93::12 dev eth1"];
const TO_THE_FAR_ONE: [&str; 2] = ["10.244.3.0/24 via 10.93.0.13 dev eth1", "fd00:244:0:3::/64 via fd93::13 dev eth1"];

#[test]
fn routes_prefer_the_network_of_node_addresses_and_take_the_other_while_that_has_no_carrier() {
    inside(async || {
        let mut lab = node_on_two_networks().await?;
        let all = [BY_NODES_NETWORK, TO_THE_FAR_ONE].concat();
        go_by(&mut lab, "each goes its way", &all).await?;
        let reports: Api<NodeReport> = Api::all(lab.kube().clone());
        wait_for("only the network of node addresses is reported", SOON, async || {
            let networks = reports.get("n1").await?.status.unwrap_or_default().networks;
            ensure!(networks == ["10.90.0.0/24", "fd90::/64"], "{networks:?}");
            Ok(())
        })
        .await?;
        // It goes on from what it knows: this cable leads to the API server as well.
        lab.node("n1")?.cut_cable().await?;
        go_by(&mut lab, "the other network takes over", &[BY_THE_OTHER, TO_THE_FAR_ONE].concat()).await?;
        lab.node("n1")?.plug_cable().await?;
        go_by(&mut lab, "it goes back", &all).await
    });
}

#[test]
fn a_second_interface_that_flaps_moves_no_route_of_the_first_and_has_its_own_back() {
    inside(async || {
        let mut lab = node_on_two_networks().await?;
        let all = [BY_NODES_NETWORK, TO_THE_FAR_ONE].concat();
        go_by(&mut lab, "each goes its way", &all).await?;
        watch(&mut lab, "n1").await?;
        for round in 0..3 {
            // The kernel takes routes along with the interface, and of IPv6 the addresses too.
            lab.node("n1")?.namespace().ip("link set eth1 down").await?;
            wait_for("the interface's routes are gone", SOON, async || {
                let shown = routes(&mut lab).await?;
                ensure!(!shown.contains("dev eth1"), "{shown}");
                Ok(())
            })
            .await?;
            lab.node("n1")?.namespace().ip("link set eth1 up\naddr replace fd93::11/64 dev eth1 nodad").await?;
            go_by(&mut lab, &format!("all are back, {round}"), &all).await?;
        }
        let moved: Vec<_> =
            changes_of_ours(&mut lab, "n1")?.into_iter().filter(|line| line.contains("dev eth0")).collect();
        ensure!(moved.is_empty(), "{moved:#?}");
        Ok(())
    });
}
