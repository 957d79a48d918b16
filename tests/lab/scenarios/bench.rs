//! The bench proves itself, without Cairn: what a scenario stands on works.

use anyhow::{Result, ensure};

use super::SOON;
use crate::harness::{
    Lab, RouterKind, Stopwatch, address,
    enclosure::inside,
    service::{self, ExternalTrafficPolicy, Service},
    wait_for,
};

#[test]
fn a_control_plane_alone_starts() {
    inside(async || {
        let began = Stopwatch::start();
        let lab = Lab::builder().start().await?;
        println!("control plane: {:?}", began.elapsed());
        lab.control_plane().kubectl(["get", "namespaces"]).await?;
        Ok(())
    });
}

#[test]
fn a_service_set_up_by_hand_answers_the_client_in_both_families() {
    inside(async || {
        let began = Stopwatch::start();
        let mut lab = Lab::builder().nodes(3).router(RouterKind::Bird).client().start().await?;
        println!("lab: {:?}", began.elapsed());
        for node in lab.nodes() {
            node.initialize_by_hand().await?;
        }
        lab.route_pods_by_hand().await?;
        lab.start_pod("n1", "web-1", "web").await?;
        lab.start_pod("n2", "web-2", "web").await?;
        lab.start_proxies().await?;
        println!("kube-proxies: {:?}", began.elapsed());
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        let addresses = ["10.60.0.10".parse()?, "fd60::10".parse()?];
        web.give_addresses_by_hand(addresses).await?;
        for (address, via) in addresses.iter().zip(address::node(1).both()) {
            let prefix = service::host_prefix(*address);
            lab.router()?.namespace().ip(&format!("route add {prefix} via {via}")).await?;
            both_nodes_answer(&lab, *address).await?;
        }
        println!("answers: {:?}", began.elapsed());
        Ok(())
    });
}

async fn both_nodes_answer(lab: &Lab, address: std::net::IpAddr) -> Result<()> {
    wait_for(&format!("{address} is answered by both nodes"), SOON, async || {
        let answers = lab.client()?.answers_by_node(address, service::PORT, 20).await?;
        ensure!(answers.keys().eq(["n1", "n2"]), "answers from {answers:?}");
        Ok(())
    })
    .await
}
