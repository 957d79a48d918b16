//! Which of the routes that routers told of go into this node's kernel.
//!
//! Of each prefix the best paths by next hops on this node's own networks, sharing the packets where they
//! are equally good. A route that would take packets from where they must go is refused, whatever the
//! peer's policy says; which those are, [`guarded`] knows.
//!
//! Planned prefix by prefix: a change costs what hangs on it, and the result is that of planning everything anew.

mod guarded;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use self::guarded::{Guarded, Owner};
use crate::agent::next_hop::neighbour;
use crate::agent::node_addresses::take_one;
use crate::agent::routes::RoutePlan;
use crate::agent::snapshot::Snapshot;
use crate::agent::stale::StaleRoutes;
use crate::api::PeerException;
use crate::model::learned::{Learned, LearnedPath, LearnedRoutes};
use crate::model::{FibRoute, FibWish, Hop, Hops, LocalAddress, PeerName, Prefix, SharedMap};

/// The most next hops of a route.
const HOPS: usize = 16;

/// The learned routes that should be in the kernel, and those that should not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportPlan {
    /// One route a prefix.
    pub routes: FibWish,
    /// The first peer that told of each.
    pub told_by: SharedMap<Prefix, PeerName>,
    /// By peer, what is not imported of what it told: how many, the first, and why.
    pub exceptions: Vec<PeerException>,
}

/// Why something that was told is not imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Its next hop is on no network of this node.
    Unreached(IpAddr),
    /// It would take packets from where they must go.
    TakesFrom(Owner),
}

/// Plans, and remembers what it planned from.
#[derive(Debug, Clone, Default)]
pub struct Importer {
    learned: Learned,
    stale: Arc<StaleRoutes>,
    ways: Ways,
    guarded: Guarded,
    refused: BTreeMap<PeerName, BTreeMap<Prefix, Why>>,
    routes: FibWish,
    told_by: SharedMap<Prefix, PeerName>,
}

impl Importer {
    /// Plans the routes for what peers told of.
    pub fn plan(&mut self, snapshot: &Snapshot, routes: &RoutePlan) -> ImportPlan {
        if snapshot.learned.values().all(LearnedRoutes::is_empty) && snapshot.stale.learned.is_empty() {
            *self = Self::default();
            return ImportPlan::default();
        }
        let mut open = BTreeSet::new();
        self.see_told(&snapshot.learned, &mut open);
        self.see_stale(&snapshot.stale, &mut open);
        let moved = self.ways.move_to(&snapshot.local);
        if !moved.is_empty() {
            open.extend(self.told_by_way_of(&moved));
        }
        for network in self.guarded.look(snapshot, &routes.wanted) {
            open.extend(self.told_in(network));
        }
        open.into_iter().for_each(|prefix| self.decide(prefix));
        let exceptions = self.refused.iter().filter_map(|(peer, refused)| self.told_refused(peer, refused, routes));
        ImportPlan { exceptions: exceptions.collect(), routes: self.routes.clone(), told_by: self.told_by.clone() }
    }

    fn see_told(&mut self, learned: &Learned, open: &mut BTreeSet<Prefix>) {
        let before = std::mem::replace(&mut self.learned, learned.clone());
        let nothing = LearnedRoutes::default();
        let peers: BTreeSet<&PeerName> = before.keys().chain(learned.keys()).collect();
        for peer in peers {
            let [old, new] = [&before, learned].map(|all| all.get(peer).unwrap_or(&nothing));
            for (prefix, old, new) in new.differences(old) {
                new.iter().for_each(|path| self.ways.add(path.next_hop));
                old.iter().for_each(|path| self.ways.take(path.next_hop));
                open.insert(*prefix);
            }
        }
        self.refused.retain(|peer, _| learned.contains_key(peer));
    }

    fn see_stale(&mut self, stale: &Arc<StaleRoutes>, open: &mut BTreeSet<Prefix>) {
        if Arc::ptr_eq(&self.stale, stale) {
            return;
        }
        let before = std::mem::replace(&mut self.stale, Arc::clone(stale));
        stale.learned.values().flatten().for_each(|hop| self.ways.add(hop.gateway));
        before.learned.values().flatten().for_each(|hop| self.ways.take(hop.gateway));
        open.extend(before.learned.keys().chain(stale.learned.keys()));
    }

    /// What was told within a network.
    fn told_in(&self, network: Prefix) -> Vec<Prefix> {
        let is_within = |prefix: &&Prefix| network.contains(prefix.address());
        let learned = self.learned.values();
        let learned = learned.flat_map(|told| told.from(&network).map(|(prefix, _)| prefix).take_while(is_within));
        let stale = self.stale.learned.range(network..).map(|(prefix, _)| prefix).take_while(is_within);
        learned.chain(stale).copied().collect()
    }

    /// What was told by one of these next hops.
    fn told_by_way_of(&self, hops: &BTreeSet<IpAddr>) -> Vec<Prefix> {
        let learned = self.learned.values().flat_map(|told| told.iter());
        let learned = learned.filter(|(_, path)| hops.contains(&path.next_hop)).map(|(prefix, _)| prefix);
        let is_by = |hop: &Hop| hops.contains(&hop.gateway);
        let stale = self.stale.learned.iter().filter(|(_, all)| all.iter().any(is_by)).map(|(prefix, _)| prefix);
        learned.chain(stale).copied().collect()
    }

    /// One prefix: whether it gets a route, and who is told that it does not.
    fn decide(&mut self, prefix: Prefix) {
        let owner = self.guarded.owner(prefix);
        let mut paths = Vec::new();
        let mut first = None;
        for (peer, told) in &self.learned {
            let refused = told.get(&prefix).and_then(|path| match (self.ways.to(path.next_hop), owner) {
                (None, _) => Some(Why::Unreached(path.next_hop)),
                (Some(_), Some(owner)) => Some(Why::TakesFrom(owner)),
                (Some(hop), None) => {
                    first = first.or(Some(peer));
                    paths.push((hop, *path));
                    None
                }
            });
            if let Some(why) = refused {
                self.refused.entry(peer.clone()).or_default().insert(prefix, why);
            } else if let Some(refused) = self.refused.get_mut(peer) {
                refused.remove(&prefix);
            }
        }
        match first {
            Some(peer) => drop(self.told_by.insert(prefix, peer.clone())),
            None => drop(self.told_by.remove(&prefix)),
        }
        let mut hops = best(&paths);
        if owner.is_none() {
            // What routers told before stands beside what they have told anew, until they are done.
            let stale = self.stale.learned.get(&prefix).into_iter().flatten();
            hops.extend(stale.filter_map(|hop| self.ways.to(hop.gateway)));
        }
        let hops = Hops::new(hops.into_iter().take(HOPS));
        self.routes.set(prefix, hops.map(|hops| FibRoute::learned(prefix, hops)));
    }

    fn told_refused(
        &self,
        peer: &PeerName,
        refused: &BTreeMap<Prefix, Why>,
        routes: &RoutePlan,
    ) -> Option<PeerException> {
        let (prefix, why) = refused.first_key_value()?;
        let why = match why {
            Why::Unreached(next_hop) => format!("its next hop {next_hop} is on no network of this node"),
            Why::TakesFrom(owner) => format!("it would take packets from {}", self.guarded.describe(owner, routes)),
        };
        let message = match refused.len() - 1 {
            0 => format!("{prefix} is not imported: {why}"),
            more => format!("{prefix} is not imported: {why}; nor are {more} more"),
        };
        Some(PeerException { peer: peer.to_string(), message })
    }
}

/// The next hops of all the best paths.
fn best(paths: &[(Hop, LearnedPath)]) -> BTreeSet<Hop> {
    let merit = paths.iter().map(|(_, path)| path.merit).max();
    paths.iter().filter(|(_, path)| Some(path.merit) == merit).map(|(hop, _)| *hop).collect()
}

/// How the next hops that were told are reached from here. There are few of them, for many prefixes.
#[derive(Debug, Clone, Default)]
struct Ways {
    local: Vec<LocalAddress>,
    /// How often each was told.
    counts: BTreeMap<IpAddr, usize>,
    hops: BTreeMap<IpAddr, Hop>,
}

impl Ways {
    fn to(&self, gateway: IpAddr) -> Option<Hop> {
        self.hops.get(&gateway).copied()
    }

    fn add(&mut self, gateway: IpAddr) {
        let count = self.counts.entry(gateway).or_default();
        *count += 1;
        if *count == 1
            && let Some(hop) = neighbour(gateway, &self.local)
        {
            self.hops.insert(gateway, hop);
        }
    }

    fn take(&mut self, gateway: IpAddr) {
        if take_one(&mut self.counts, gateway) {
            self.hops.remove(&gateway);
        }
    }

    /// Takes in the networks this node is on now. Says which next hops are reached otherwise than before.
    fn move_to(&mut self, local: &[LocalAddress]) -> BTreeSet<IpAddr> {
        if self.local == local {
            return BTreeSet::new();
        }
        self.local = local.to_vec();
        let before = std::mem::take(&mut self.hops);
        self.hops = self.counts.keys().filter_map(|hop| Some((*hop, neighbour(*hop, local)?))).collect();
        self.counts.keys().filter(|hop| before.get(hop) != self.hops.get(hop)).copied().collect()
    }
}

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
            is_current: true,
        };
        LearnedPath { next_hop: next_hop.parse().expect("an address"), merit }
    }

    /// Told before its router restarted, and not since.
    fn outdated(mut path: LearnedPath) -> LearnedPath {
        path.merit.is_current = false;
        path
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
        snapshot.learned = learned.iter().map(|(peer, told)| (peer.parse().expect("a name"), routes(told))).collect();
        snapshot
    }

    fn planned(learned: &[(&str, &[(&str, LearnedPath)])]) -> (Vec<String>, Vec<String>) {
        let snapshot = scene(learned);
        let plan = Importer::default().plan(&snapshot, &Planner::default().plan(&snapshot));
        let route = |route: &FibRoute| format!("{} via {}", route.destination, route.target);
        (
            plan.routes.routes().map(route).collect(),
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
            ("one of a router that restarts", outdated(near), None, "192.0.2.0/24 via 10.90.0.1"),
            ("beside an equal one of another", outdated(near), Some(same), "192.0.2.0/24 via 10.90.0.2"),
            ("beside a worse one of another", outdated(near), Some(far), "192.0.2.0/24 via 10.90.0.1"),
            ("both restart", outdated(near), Some(outdated(same)), "192.0.2.0/24 via 10.90.0.1, 10.90.0.2"),
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
            let plan = Importer::default().plan(&snapshot, &Planner::default().plan(&snapshot));
            let routes: Vec<_> =
                plan.routes.routes().map(|route| format!("{} via {}", route.destination, route.target)).collect();
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
