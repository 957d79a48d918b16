//! Which of the routes that routers told of go into this node's kernel.
//!
//! Of each prefix the best paths by next hops on this node's own networks, sharing the packets where they
//! are equally good. A route that would take packets from where they must go is refused, whatever the
//! peer's policy says: one that is, or lies within, a network of this node, its pod CIDRs, what it
//! reaches directly, an address of a router or Service, a pool. A wider route takes nothing from these, since
//! the kernel prefers the longer prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::agent::next_hop::neighbour;
use crate::agent::routes::RoutePlan;
use crate::agent::snapshot::Snapshot;
use crate::api::PeerException;
use crate::config::AddressBlock;
use crate::model::learned::{LearnedPath, LearnedRoutes};
use crate::model::{FibRoute, Hop, Hops, LocalAddress, PeerName, Prefix};

/// The most next hops of a route.
const HOPS: usize = 16;

/// Networks that no router leads to (RFC 6890).
const NOWHERE: [(IpAddr, u8); 9] = [
    (IpAddr::V4(Ipv4Addr::new(0, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::LOCALHOST), 8),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4),
    (IpAddr::V4(Ipv4Addr::new(240, 0, 0, 0)), 4),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
    (IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0)), 96),
];

/// The learned routes that should be in the kernel, and those that should not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportPlan {
    /// One route a prefix.
    pub routes: BTreeSet<FibRoute>,
    /// The first peer that told of each.
    pub told_by: BTreeMap<Prefix, PeerName>,
    /// By peer, what is not imported of what it told: how many, the first, and why.
    pub exceptions: Vec<PeerException>,
}

/// Plans the routes for what peers told of.
pub fn plan(snapshot: &Snapshot, routes: &RoutePlan) -> ImportPlan {
    let mut plan = ImportPlan::default();
    if snapshot.learned.values().all(|routes| routes.is_empty()) && snapshot.stale.learned.is_empty() {
        return plan;
    }
    let guarded = Guarded::of(snapshot, routes);
    let mut paths = BTreeMap::<Prefix, Vec<(Hop, LearnedPath)>>::new();
    for (peer, learned) in &snapshot.learned {
        let mut refused = Refused::default();
        for (prefix, path) in learned.iter() {
            match hop(path, &snapshot.local).and_then(|hop| guarded.check(*prefix).map(|()| hop)) {
                Ok(hop) => {
                    plan.told_by.entry(*prefix).or_insert_with(|| peer.clone());
                    paths.entry(*prefix).or_default().push((hop, *path));
                }
                Err(why) => refused.add(*prefix, why),
            }
        }
        plan.exceptions.extend(refused.told(peer));
    }
    let mut hops: BTreeMap<_, _> = paths.into_iter().map(|(prefix, paths)| (prefix, best(&paths))).collect();
    for (prefix, stale) in snapshot.stale.learned.iter().filter(|(prefix, _)| guarded.check(**prefix).is_ok()) {
        // What routers told before stands beside what they have told anew, until they are done.
        let still = stale.iter().filter_map(|hop| neighbour(hop.gateway, &snapshot.local));
        hops.entry(*prefix).or_default().extend(still);
    }
    let route = |(prefix, hops): (Prefix, BTreeSet<Hop>)| {
        Hops::new(hops.into_iter().take(HOPS)).map(|hops| FibRoute::learned(prefix, hops))
    };
    plan.routes = hops.into_iter().filter_map(route).collect();
    plan
}

/// The next hops of all the best paths.
fn best(paths: &[(Hop, LearnedPath)]) -> BTreeSet<Hop> {
    let merit = paths.iter().map(|(_, path)| path.merit).max();
    paths.iter().filter(|(_, path)| Some(path.merit) == merit).map(|(hop, _)| *hop).collect()
}

fn hop(path: &LearnedPath, local: &[LocalAddress]) -> Result<Hop, String> {
    let next_hop = path.next_hop;
    neighbour(next_hop, local).ok_or_else(|| format!("its next hop {next_hop} is on no network of this node"))
}

/// What no learned route may take packets from.
struct Guarded<'a> {
    routes: &'a RoutePlan,
    prefixes: BTreeMap<Prefix, String>,
    blocks: Vec<(AddressBlock, String)>,
}

impl<'a> Guarded<'a> {
    fn of(snapshot: &Snapshot, routes: &'a RoutePlan) -> Self {
        let mut prefixes = BTreeMap::new();
        for (address, length) in NOWHERE {
            let network = Prefix::containing(address, length).expect("the length is the family's");
            prefixes.insert(network, "networks that no router leads to".to_owned());
        }
        let own = snapshot.node_routes.get(snapshot.me.as_str());
        let pods = own.into_iter().flat_map(|route| route.pod_cidrs.iter().copied());
        prefixes.extend(pods.map(|cidr| (cidr, "this node's own pods".to_owned())));
        let addresses =
            snapshot.services.values().flat_map(|service| service.ingress.iter().filter_map(|entry| entry.ip));
        prefixes.extend(addresses.map(|address| (Prefix::host(address), "an address of a Service".to_owned())));
        prefixes
            .extend(snapshot.peers.iter().map(|peer| (Prefix::host(peer.address), format!("BgpPeer {}", peer.name))));
        for local in &snapshot.local {
            prefixes.insert(local.prefix, format!("the network of {}", local.interface));
            prefixes.insert(Prefix::host(local.address), "an address of this node".to_owned());
        }
        let of_pool = |(block, pool): (AddressBlock, &str)| (block, format!("AddressPool {pool}"));
        let blocks =
            snapshot.pools.iter().flat_map(|pool| pool.blocks.iter().map(move |block| (*block, pool.name.as_str())));
        Self { routes, prefixes, blocks: blocks.map(of_pool).collect() }
    }

    /// What is at exactly this prefix.
    fn at(&self, prefix: &Prefix) -> Option<String> {
        let of_node = || {
            let owner = self.routes.wanted.to(prefix).first().and_then(|route| self.routes.owner(route))?;
            Some(format!("the pods of node {}, which is reached directly", owner.node))
        };
        self.prefixes.get(prefix).cloned().or_else(of_node)
    }

    /// # Errors
    /// What the prefix is, or lies within.
    fn check(&self, prefix: Prefix) -> Result<(), String> {
        let around = (0..=prefix.length()).filter_map(|length| Prefix::containing(prefix.address(), length));
        let mut known = around.filter_map(|network| Some((network, self.at(&network)?)));
        if let Some((network, what)) = known.next() {
            return Err(format!("it would take packets from {network}, {what}"));
        }
        let whole = AddressBlock::from(prefix);
        let of_pool = self
            .blocks
            .iter()
            .find(|(block, _)| whole.overlaps(block) && (!block.is_within(&whole) || *block == whole));
        match of_pool {
            Some((block, pool)) => Err(format!("it would take packets from {block} of {pool}")),
            None => Ok(()),
        }
    }
}

/// What is not imported of one peer.
#[derive(Default)]
struct Refused {
    count: usize,
    first: Option<(Prefix, String)>,
}

impl Refused {
    fn add(&mut self, prefix: Prefix, why: String) {
        self.count += 1;
        self.first.get_or_insert((prefix, why));
    }

    fn told(self, peer: &PeerName) -> Option<PeerException> {
        let (prefix, why) = self.first?;
        let message = match self.count - 1 {
            0 => format!("{prefix} is not imported: {why}"),
            more => format!("{prefix} is not imported: {why}; nor are {more} more"),
        };
        Some(PeerException { peer: peer.to_string(), message })
    }
}

/// What each peer told of and may tell of.
pub type Learned = BTreeMap<PeerName, Arc<LearnedRoutes>>;

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;
    use crate::agent::cases::{local, node_route, peer, snapshot, web};
    use crate::agent::routes::Planner;
    use crate::agent::stale::StaleRoutes;
    use crate::config::Pool;
    use crate::config::pool_view::PoolView;
    use crate::model::learned::Merit;
    use crate::model::views::TrafficPolicy;

    fn path(next_hop: &str, path_length: u32) -> LearnedPath {
        let merit = Merit {
            local_preference: 100,
            path_length: Reverse(path_length),
            origin: Reverse(0),
            med: Reverse(0),
            is_external: true,
        };
        LearnedPath { next_hop: next_hop.parse().expect("an address"), merit }
    }

    fn scene(learned: &[(&str, &[(&str, LearnedPath)])]) -> Snapshot {
        let mut snapshot = snapshot()
            .node(node_route("n1", &["10.90.0.11"], &["10.244.0.0/24"]))
            .node(node_route("n2", &["10.90.0.12"], &["10.244.1.0/24"]))
            .node(node_route("n3", &["192.0.2.13"], &["10.244.2.0/24"]))
            .local([local("eth0", "10.90.0.11/24"), local("eth0", "fd90::11/64"), local("cni0", "10.244.0.1/24")])
            .service(web(TrafficPolicy::Cluster))
            .build();
        let pool = Pool::check(
            "public",
            &serde_json::from_value(serde_json::json!({ "addresses": ["10.60.0.0/24", "10.61.0.10-10.61.0.20"] }))
                .expect("a spec"),
        );
        snapshot.pools = vec![Arc::new(PoolView::new(pool.expect("a pool"), &BTreeMap::new()))];
        snapshot.peers = vec![peer("a", "10.90.0.1"), peer("far", "198.51.100.1")];
        let routes = |routes: &[(&str, LearnedPath)]| {
            routes.iter().map(|(prefix, path)| (prefix.parse().expect("a prefix"), *path)).collect::<LearnedRoutes>()
        };
        snapshot.learned =
            learned.iter().map(|(peer, told)| (peer.parse().expect("a name"), Arc::new(routes(told)))).collect();
        snapshot
    }

    fn planned(learned: &[(&str, &[(&str, LearnedPath)])]) -> (Vec<String>, Vec<String>) {
        let snapshot = scene(learned);
        let plan = plan(&snapshot, &Planner::default().plan(&snapshot));
        let route = |route: &FibRoute| format!("{} via {}", route.destination, route.target);
        (
            plan.routes.iter().map(route).collect(),
            plan.exceptions.into_iter().map(|e| format!("{}: {}", e.peer, e.message)).collect(),
        )
    }

    #[test]
    fn equally_good_paths_share_the_packets_and_worse_ones_wait() {
        let (near, far) = (path("10.90.0.1", 1), path("10.90.0.2", 2));
        let same = path("10.90.0.2", 1);
        for (name, a, b, want) in [
            ("one peer", near, None, "192.0.2.0/24 via 10.90.0.1"),
            ("two that are equal", near, Some(same), "192.0.2.0/24 via 10.90.0.1, 10.90.0.2"),
            ("a better one", near, Some(far), "192.0.2.0/24 via 10.90.0.1"),
            ("one router told twice", near, Some(near), "192.0.2.0/24 via 10.90.0.1"),
            ("a better one that cannot be reached", path("172.16.0.1", 0), Some(far), "192.0.2.0/24 via 10.90.0.2"),
        ] {
            let told_by_b: Vec<_> = b.map(|path| ("192.0.2.0/24", path)).into_iter().collect();
            let (routes, _) = planned(&[("a", &[("192.0.2.0/24", a)]), ("b", &told_by_b)]);
            assert_eq!(routes, [want], "{name}");
        }
    }

    #[test]
    fn next_hops_of_an_earlier_run_stand_beside_those_that_are_told_anew() {
        let held = |gateways: &[&str]| {
            let hop = |gateway: &&str| Hop { gateway: gateway.parse().expect("an address"), interface: Some(2) };
            gateways.iter().map(hop).collect::<BTreeSet<_>>()
        };
        let (near, far) = (path("10.90.0.1", 1), path("10.90.0.3", 9));
        for (name, stale, told, want) in [
            (
                "nothing told yet",
                vec![("192.0.2.0/24", held(&["10.90.0.1", "10.90.0.2"]))],
                None,
                vec!["192.0.2.0/24 via 10.90.0.1, 10.90.0.2"],
            ),
            (
                "one told again",
                vec![("192.0.2.0/24", held(&["10.90.0.1", "10.90.0.2"]))],
                Some(near),
                vec!["192.0.2.0/24 via 10.90.0.1, 10.90.0.2"],
            ),
            (
                "one goes elsewhere",
                vec![("192.0.2.0/24", held(&["10.90.0.2"]))],
                Some(far),
                vec!["192.0.2.0/24 via 10.90.0.2, 10.90.0.3"],
            ),
            ("not to be reached any more", vec![("192.0.2.0/24", held(&["172.16.0.1"]))], None, vec![]),
            ("in the way by now", vec![("10.244.1.0/24", held(&["10.90.0.1"]))], None, vec![]),
        ] {
            let told: Vec<_> = told.map(|path| ("192.0.2.0/24", path)).into_iter().collect();
            let mut snapshot = scene(&[("a", &told)]);
            let learned = stale.into_iter().map(|(prefix, hops)| (prefix.parse().expect("a prefix"), hops)).collect();
            snapshot.stale = Arc::new(StaleRoutes { learned, ..StaleRoutes::default() });
            let plan = plan(&snapshot, &Planner::default().plan(&snapshot));
            let routes: Vec<_> =
                plan.routes.iter().map(|route| format!("{} via {}", route.destination, route.target)).collect();
            assert_eq!(routes, want, "{name}");
        }
    }

    #[test]
    fn no_learned_route_takes_packets_from_where_they_must_go() {
        let hop = path("10.90.0.1", 1);
        for (prefix, why) in [
            ("10.90.0.0/24", "it would take packets from 10.90.0.0/24, the network of eth0"),
            ("10.90.0.0/25", "it would take packets from 10.90.0.0/24, the network of eth0"),
            ("10.90.0.1/32", "it would take packets from 10.90.0.0/24, the network of eth0"),
            ("10.244.0.0/24", "it would take packets from 10.244.0.0/24, the network of cni0"),
            (
                "10.244.1.128/25",
                "it would take packets from 10.244.1.0/24, the pods of node n2, which is reached directly",
            ),
            ("10.60.0.0/24", "it would take packets from 10.60.0.0/24 of AddressPool public"),
            ("10.60.0.10/32", "it would take packets from 10.60.0.10/32, an address of a Service"),
            ("10.60.0.128/25", "it would take packets from 10.60.0.0/24 of AddressPool public"),
            ("10.61.0.0/28", "it would take packets from 10.61.0.10-10.61.0.20 of AddressPool public"),
            ("198.51.100.1/32", "it would take packets from 198.51.100.1/32, BgpPeer far"),
            ("127.0.0.0/8", "it would take packets from 127.0.0.0/8, networks that no router leads to"),
            ("224.0.0.0/24", "it would take packets from 224.0.0.0/4, networks that no router leads to"),
        ] {
            let (routes, told) = planned(&[("a", &[(prefix, hop)])]);
            assert_eq!((routes, told), (vec![], vec![format!("a: {prefix} is not imported: {why}")]));
        }
        // Wider ones take nothing from these, and what is beyond a router may be learned.
        for prefix in ["0.0.0.0/0", "10.0.0.0/8", "10.244.0.0/16", "10.61.0.0/24", "10.244.2.0/24", "192.0.2.0/24"] {
            let (routes, told) = planned(&[("a", &[(prefix, hop)])]);
            assert_eq!((routes.len(), told.len()), (1, 0), "{prefix}: {told:?}");
        }
        let (_, told) = planned(&[("a", &[("10.90.0.0/25", hop), ("10.90.0.128/25", hop), ("192.0.2.0/24", hop)])]);
        assert!(told[0].ends_with("the network of eth0; nor are 1 more"), "{told:?}");
        let (_, told) = planned(&[("a", &[("192.0.2.0/24", path("172.16.0.1", 1))])]);
        assert_eq!(told, ["a: 192.0.2.0/24 is not imported: its next hop 172.16.0.1 is on no network of this node"]);
    }
}
