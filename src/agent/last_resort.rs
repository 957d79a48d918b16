//! Routes for packets that would otherwise go in circles.
//!
//! A router sends a packet to a pod that is gone here, because this node announces its CIDR; without a route this
//! node would send it back by its default route, until its TTL ends. A route that leads nowhere, with a metric
//! worse than every other, ends that: the bridge of a CNI, or any other route to the same CIDR, decides before it.

use std::collections::BTreeSet;

use crate::agent::announce::{AnnouncePlan, stranger};
use crate::agent::imports::ImportPlan;
use crate::agent::node_addresses::NodeAddresses;
use crate::agent::routes::RoutePlan;
use crate::agent::snapshot::{OwnCidr, Snapshot};
use crate::model::{FibRoute, Prefix};

/// Plans one for each of the node's pod CIDRs, and for each network around them that it announces, where
/// nothing else is in it.
pub fn plan(
    snapshot: &Snapshot,
    of_nodes: &NodeAddresses,
    routes: &RoutePlan,
    imports: &ImportPlan,
    announce: &AnnouncePlan,
) -> BTreeSet<FibRoute> {
    if snapshot.own_cidr == OwnCidr::Left {
        return BTreeSet::new();
    }
    let own = snapshot.node_routes.get(snapshot.me.as_str());
    let cidrs: BTreeSet<Prefix> = own.into_iter().flat_map(|route| route.pod_cidrs.iter().copied()).collect();
    let has_route = |cidr: &Prefix| cidrs.contains(cidr) || !imports.routes.to(cidr).is_empty();
    // A longer prefix decides before the default route, which may be the way to other nodes' pods.
    let are_all_reached = |network: &Prefix| routes.unreached_around(*network).all(|cidr| has_route(&cidr));
    let networks = announce.pod_aggregates.iter().filter(|network| are_all_reached(network));
    let alone = cidrs.iter().chain(networks).filter(|network| !is_used_otherwise(snapshot, of_nodes, **network));
    // Before everything is known, what was there is as good as what would be.
    alone.chain(&snapshot.stale.last_resorts).map(|network| FibRoute::last_resort(*network)).collect()
}

/// Whether packets to some of the network have another way, which a route to all of it would cut off: it lies
/// within a network of this node, whose pods are neighbours then, or a node, router or pool has an address in it.
fn is_used_otherwise(snapshot: &Snapshot, of_nodes: &NodeAddresses, network: Prefix) -> bool {
    let holds = |wider: Prefix| wider.length() < network.length() && wider.contains(network.address());
    snapshot.local.iter().any(|local| holds(local.prefix)) || stranger(snapshot, of_nodes, network).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::cases::{local, node_route, peer, snapshot};
    use crate::agent::desired;
    use crate::agent::desired::Memory;
    use std::sync::Arc;

    use crate::agent::snapshot::NodeRouteView;
    use crate::agent::stale::StaleRoutes;
    use crate::config::Advertisement;
    use crate::model::{LocalAddress, Moment};

    fn planned(
        others: Vec<NodeRouteView>,
        local_addresses: Vec<LocalAddress>,
        change: impl FnOnce(&mut Snapshot),
    ) -> Vec<String> {
        let mut builder = snapshot().node(node_route("n1", &["10.90.0.11"], &["10.244.0.0/24", "fd00:244::/64"]));
        for other in others {
            builder = builder.node(other);
        }
        let mut snapshot = builder.local([local("eth0", "10.90.0.11/24")]).local(local_addresses).build();
        snapshot.own_cidr = OwnCidr::Blackholed;
        snapshot.peers = vec![peer("router", "10.90.0.1")];
        change(&mut snapshot);
        let desired = desired::plan(&snapshot, &mut Memory::default(), Moment::default());
        desired.last_resorts.iter().map(|route| route.destination.to_string()).collect()
    }

    #[test]
    fn the_own_pod_cidrs_end_in_a_blackhole_unless_they_are_used_otherwise() {
        let both = ["10.244.0.0/24", "fd00:244::/64"];
        let v6 = ["fd00:244::/64"];
        for (name, others, locals, want) in [
            ("alone", vec![], vec![], &both[..]),
            ("with a bridge", vec![], vec![local("cni0", "10.244.0.1/24")], &both),
            ("with an address of a pod's own", vec![], vec![local("veth1", "10.244.0.7/32")], &both),
            ("within a network of this node", vec![], vec![local("eth1", "10.244.7.9/16")], &v6),
            ("with a node's address in it", vec![node_route("n2", &["10.244.0.99"], &[])], vec![], &v6),
        ] {
            assert_eq!(planned(others, locals, |_| ()), want, "{name}");
        }
        assert!(planned(vec![], vec![], |snapshot| snapshot.own_cidr = OwnCidr::Left).is_empty());
        assert_eq!(planned(vec![], vec![], |snapshot| snapshot.peers = vec![peer("router", "10.244.0.1")]), v6);
    }

    #[test]
    fn an_announced_network_around_pods_does_so_where_all_pods_in_it_are_reached() {
        let announce = |snapshot: &mut Snapshot| {
            let spec = serde_json::json!({ "podCidrs": {}, "bgp": { "aggregationLength": 16 } });
            let spec = serde_json::from_value(spec).expect("a spec");
            snapshot.advertisements = vec![Advertisement::check("pods", &spec).expect("an Advertisement").into()];
        };
        let near = node_route("n2", &["10.90.0.12"], &["10.244.1.0/24"]);
        let far = node_route("n3", &["192.0.2.13"], &["10.244.2.0/24"]);
        let wide = ["10.244.0.0/16", "10.244.0.0/24", "fd00:244::/64"];
        assert_eq!(planned(vec![near.clone()], vec![], announce), wide);
        assert_eq!(planned(vec![near, far], vec![], announce), wide[1..]);
    }

    #[test]
    fn what_an_earlier_run_left_stays_while_it_is_held() {
        let hold = |snapshot: &mut Snapshot| {
            let last_resorts = ["10.244.0.0/16", "10.244.0.0/24"].map(|text| text.parse().expect("a prefix")).into();
            snapshot.stale = Arc::new(StaleRoutes { last_resorts, ..StaleRoutes::default() });
        };
        assert_eq!(planned(vec![], vec![], hold), ["10.244.0.0/16", "10.244.0.0/24", "fd00:244::/64"]);
    }
}
