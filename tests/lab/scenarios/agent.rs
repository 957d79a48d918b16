//! The agents by themselves: a hand writes what the leader would.

use cairn::api::{EntryFlag, NodeRoute, NodeRouteSpec};
use kube::{Api, api::PostParams};

use super::{
    SOON,
    first_service::{answered_by, has_routes, next_hops_of},
};
use crate::harness::{
    Lab, RouterKind,
    enclosure::inside,
    service::{ExternalTrafficPolicy, Service, host_prefix},
    wait_for,
};

#[test]
fn agents_route_and_announce_what_the_leader_writes() {
    inside(async || {
        let mut lab = Lab::builder().nodes(3).router(RouterKind::Bird).client().start().await?;
        lab.install_cairn().await?;
        lab.apply_pool_and_peer().await?;
        let routes: Api<NodeRoute> = Api::all(lab.kube().clone());
        for node in lab.nodes() {
            node.initialize_by_hand().await?;
            let spec = NodeRouteSpec {
                addresses: node.host().both().map(|address| address.to_string()).into(),
                pod_cidrs: node.pod_cidrs().await?.into(),
                zone: None,
                entry: EntryFlag::Eligible,
                witnesses: Vec::new(),
            };
            routes.create(&PostParams::default(), &NodeRoute::new(node.name(), spec)).await?;
        }
        lab.spawn_agents()?;
        lab.start_proxies().await?;
        for node in lab.nodes() {
            wait_for(&format!("{} has its routes", node.name()), SOON, async || has_routes(&lab, node).await).await?;
        }
        lab.start_pod("n1", "web-1", "web").await?;
        lab.start_pod("n2", "web-2", "web").await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        let addresses = ["10.60.0.10".parse()?, "fd60::10".parse()?];
        web.give_addresses_by_hand(addresses).await?;
        for address in addresses {
            let nodes = next_hops_of(&lab, address, &["n1", "n2", "n3"]);
            lab.router()?.wait_for_next_hops(&host_prefix(address), nodes, SOON).await?;
            answered_by(&lab, address, &["n1", "n2"]).await?;
        }
        Ok(())
    });
}
