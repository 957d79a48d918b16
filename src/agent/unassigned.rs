//! Announced networks around addresses of Services, and what of them somebody has: the guard refuses the rest.
//!
//! A router sends a packet to an address that nobody has to a node that announces the network around it, which
//! would send it back by its default route, until its TTL ends.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::agent::announce::AnnouncePlan;
use crate::agent::node_addresses::NodeAddresses;
use crate::agent::snapshot::Snapshot;
use crate::config::advertisement::How;
use crate::model::views::ServiceView;
use crate::model::{Family, Guarded, Prefix};

/// What is guarded, with the networks in which packets to nobody's addresses would go in circles: those that hold
/// nothing but addresses of Services, which kube-proxy or this host takes.
pub fn guard(
    snapshot: &Snapshot,
    of_nodes: &NodeAddresses,
    announce: &AnnouncePlan,
    guarded: &Arc<Guarded>,
) -> Arc<Guarded> {
    let mut aggregated = announced(snapshot, announce);
    if aggregated.is_empty() {
        return Arc::clone(guarded);
    }
    let used = used_otherwise(snapshot);
    aggregated.retain(|network| of_nodes.first_in(*network).is_none() && !overlaps_one(&used, *network));
    let all: BTreeSet<_> = snapshot.services.values().flat_map(|service| addresses(service)).collect();
    let is_in = |network: Prefix| move |address: &&IpAddr| network.contains(**address);
    let assigned = aggregated.iter().flat_map(|network| all.range(network.address()..).take_while(is_in(*network)));
    let assigned = assigned.copied().collect();
    Arc::new(Guarded { aggregated, assigned, ..Guarded::clone(guarded) })
}

/// The networks around addresses of Services that some peer is told of: all that are wide and have no pods of
/// this node.
fn announced(snapshot: &Snapshot, announce: &AnnouncePlan) -> BTreeSet<Prefix> {
    let widens = |how: &How| match how {
        How::Bgp(bgp) => [Family::V4, Family::V6].into_iter().any(|family| bgp.length(family).is_some()),
        How::L2(_) | How::Withhold => false,
    };
    if !snapshot.advertisements.iter().any(|advertisement| widens(&advertisement.how)) {
        return BTreeSet::new();
    }
    let own = snapshot.node_routes.get(snapshot.me.as_str());
    let pods: Vec<_> = own.into_iter().flat_map(|route| route.pod_cidrs.iter().copied()).collect();
    let is_of_services = |prefix: &&Prefix| is_wide(prefix) && pods.iter().all(|cidr| !cidr.overlaps(prefix));
    announce.by_peer.values().flat_map(|adverts| adverts.keys()).filter(is_of_services).copied().collect()
}

fn is_wide(prefix: &Prefix) -> bool {
    prefix.length() < prefix.family().bits()
}

fn addresses(service: &ServiceView) -> impl Iterator<Item = IpAddr> {
    service.ingress.iter().filter_map(|entry| entry.ip)
}

/// Where packets have a way that is not kube-proxy's, apart from the addresses of nodes: to a neighbour on a network
/// of this node, to a router or pod, or as another proxy has it.
fn used_otherwise(snapshot: &Snapshot) -> BTreeSet<Prefix> {
    // One address alone is this host's own, which the guard lets in.
    let local = snapshot.local.iter().map(|local| local.prefix).filter(is_wide);
    let pods = snapshot.node_routes.values().flat_map(|route| route.pod_cidrs.iter().copied());
    let routers = snapshot.peers.iter().map(|peer| Prefix::host(peer.address));
    let foreign = snapshot.services.values().filter(|service| service.has_foreign_proxy);
    let foreign = foreign.flat_map(|service| addresses(service)).map(Prefix::host);
    local.chain(pods).chain(routers).chain(foreign).collect()
}

/// Whether the network overlaps one of these; looked up, as there may be thousands of both.
fn overlaps_one(these: &BTreeSet<Prefix>, network: Prefix) -> bool {
    let is_around =
        |length| Prefix::containing(network.address(), length).is_some_and(|around| these.contains(&around));
    let next = these.range(network..).next();
    next.is_some_and(|next| next.overlaps(&network)) || (0..network.length()).any(is_around)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::cases::{Builder, local, node_route, peer, snapshot, web};
    use crate::config::Advertisement;
    use crate::model::views::TrafficPolicy;

    fn guarded(builder: Builder, router: &str) -> (String, String) {
        let mut snapshot = builder.build();
        snapshot.peers = vec![peer("router", router)];
        let spec = serde_json::json!({ "services": {}, "bgp": { "aggregationLength": 24 } });
        let spec = serde_json::from_value(spec).expect("a spec");
        snapshot.advertisements = vec![Advertisement::check("wide", &spec).expect("an Advertisement").into()];
        let network = "10.60.0.0/24".parse().expect("a prefix");
        let told = ["10.60.0.0/24", "10.60.0.10/32", "10.244.0.0/24"].map(|text| text.parse().expect("a prefix"));
        let adverts = told.into_iter().map(|prefix| (prefix, Arc::default())).collect();
        let by_peer = [("router".parse().expect("a name"), Arc::new(adverts))].into();
        let announce = AnnouncePlan { by_peer, ..AnnouncePlan::default() };
        let of_nodes = NodeAddresses::of(&snapshot.node_routes);
        let guarded = guard(&snapshot, &of_nodes, &announce, &Arc::default());
        assert!(guarded.aggregated.iter().all(|guarded| *guarded == network));
        let networks: Vec<_> = guarded.aggregated.iter().map(ToString::to_string).collect();
        let addresses: Vec<_> = guarded.assigned.iter().map(ToString::to_string).collect();
        (networks.join(" "), addresses.join(" "))
    }

    #[test]
    fn a_network_that_holds_nothing_but_addresses_of_services_is_guarded() {
        let base = || {
            let own = node_route("n1", &["10.90.0.11"], &["10.244.0.0/24"]);
            snapshot().node(own).local([local("eth0", "10.90.0.11/24")])
        };
        let served = || base().service(web(TrafficPolicy::Local));
        let mut foreign = web(TrafficPolicy::Cluster);
        foreign.has_foreign_proxy = true;
        let (near, whole, web) = ("10.90.0.1", "10.60.0.0/24", "10.60.0.10");
        for (name, builder, router, want) in [
            ("no Service is left", base(), near, (whole, "")),
            ("one, not announced here", served(), near, (whole, web)),
            ("an address of this host's own", served().local([local("lo1", "10.60.0.10/32")]), near, (whole, web)),
            ("a network of this node around it", served().local([local("eth1", "10.60.7.1/16")]), near, ("", "")),
            ("a network of this node in it", served().local([local("eth1", "10.60.0.129/28")]), near, ("", "")),
            ("a node in it", served().node(node_route("n2", &["10.60.0.99"], &[])), near, ("", "")),
            ("pods in it", served().node(node_route("n2", &[], &["10.60.0.64/26"])), near, ("", "")),
            ("a router in it", served(), "10.60.0.1", ("", "")),
            ("another proxy's Service in it", base().service(foreign), near, ("", "")),
        ] {
            let (networks, addresses) = guarded(builder, router);
            assert_eq!((networks.as_str(), addresses.as_str()), want, "{name}");
        }
    }
}
