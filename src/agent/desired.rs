//! From what the agent knows to what should be: routes, announcements, sessions, the guard.
//!
//! Pure: the same snapshot gives the same wish, whatever happened before. The one exception is the
//! grace of a Service that lost its endpoints, whose memory is handed in. What else is remembered only
//! saves work: a change costs what hangs on it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::agent::announce::{AnnouncePlan, Announcer};
use crate::agent::entries::{self, EntryPlan};
use crate::agent::fib::Fib;
use crate::agent::imports::{ImportPlan, Importer};
use crate::agent::last_resort;
use crate::agent::peers;
use crate::agent::routes::{Planner, RoutePlan};
use crate::agent::snapshot::{NodeRouteView, Snapshot};
use crate::agent::unassigned::Unassigned;
use crate::agent::witness::{self, Witnessed};
use crate::api::PeerException;
use crate::config::peer::Peer;
use crate::model::{FibRoute, FibWish, Guarded, LocalAddress, Moment, Neighbour, NextHops, NodeName, Prefix, RouterId};

/// What is remembered from one plan to the next.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// The grace of Services that lost their endpoints: the one thing that decides anything.
    pub entries: entries::Memory,
    /// The routes as they were planned, so that only what changed is planned again.
    pub routes: Planner,
    /// The nodes this one is a witness for.
    witnessed: Witnessed,
    /// All routes, put together.
    fib: Fib,
    /// What is announced, as it was planned.
    announce: Announcer,
    /// What routers told, as it was planned.
    imports: Importer,
    /// The announced networks of which Services have only some.
    unassigned: Unassigned,
}

#[cfg(test)]
impl Memory {
    /// Only what decides something.
    pub(super) fn without_what_saves_work(&self) -> Self {
        Self { entries: self.entries.without_what_saves_work(), ..Self::default() }
    }
}

/// Everything this node should do.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    /// Kernel routes to other nodes' pods.
    pub routes: Arc<RoutePlan>,
    /// Kernel routes that routers told of.
    pub imports: ImportPlan,
    /// Kernel routes for packets that would go in circles.
    pub last_resorts: BTreeSet<FibRoute>,
    /// All of these kernel routes.
    pub fib: Arc<FibWish>,
    /// Addresses of Services this node is an entry for.
    pub entries: Arc<EntryPlan>,
    /// What the guard watches over: what Services have there, and networks of which they have only some.
    pub guarded: Arc<Guarded>,
    /// What to announce: the own pod CIDRs and those addresses.
    pub announce: AnnouncePlan,
    /// The routers to announce it to.
    pub peers: Vec<Arc<Peer>>,
    /// The `BgpPeer`s of a router that another one is in force for.
    pub doubles: Vec<PeerException>,
    /// This node's name among BGP speakers.
    pub router_id: RouterId,
    /// Where the announced packets should be sent.
    pub next_hops: NextHops,
    /// The pod CIDRs of this node.
    pub own_pod_cidrs: Vec<Prefix>,
    /// The networks that this node's addresses are on.
    pub networks: BTreeSet<Prefix>,
    /// The version of the own `NodeRoute` all this follows from.
    pub own_route: Option<String>,
    /// The nodes this one is a witness for.
    pub witnessed: Vec<Arc<NodeRouteView>>,
    /// The next hops of the routes to them.
    pub neighbours: BTreeSet<Neighbour>,
}

/// Plans everything; `memory` is brought up to `now`.
pub fn plan(snapshot: &Snapshot, memory: &mut Memory, now: Moment) -> Desired {
    let own = snapshot.node_routes.get(snapshot.me.as_str());
    let routes = memory.routes.plan(snapshot);
    let of_nodes = memory.routes.node_addresses();
    let entries = entries::plan(snapshot, of_nodes, &mut memory.entries, now);
    let (peers, doubles) = peers::sessions(&snapshot.peers, &snapshot.labels);
    let witnessed = memory.witnessed.look(&snapshot.me, &snapshot.node_routes);
    let imports = memory.imports.plan(snapshot, &routes);
    let announce = memory.announce.plan(snapshot, of_nodes, &entries, &peers);
    let last_resorts = last_resort::plan(snapshot, of_nodes, &routes, &imports, &announce);
    Desired {
        guarded: memory.unassigned.guard(snapshot, of_nodes, &announce, &entries.guarded),
        neighbours: witness::neighbours(&witnessed, &routes),
        fib: memory.fib.of(&routes.wanted, &imports.routes, &last_resorts),
        last_resorts,
        routes,
        imports,
        announce,
        peers,
        doubles,
        router_id: router_id(snapshot, own),
        next_hops: next_hops(snapshot, own),
        own_pod_cidrs: own.map(|route| route.pod_cidrs.clone()).unwrap_or_default(),
        networks: networks(snapshot, own),
        own_route: own.map(|route| route.digest.clone()),
        witnessed,
        entries,
    }
}

/// The addresses of the node's own `NodeRoute` that are on its interfaces.
fn own_addresses<'a>(snapshot: &'a Snapshot, own: Option<&'a Arc<NodeRouteView>>) -> impl Iterator<Item = IpAddr> + 'a {
    let is_local = |address: &IpAddr| snapshot.local.iter().any(|local| local.address == *address);
    own.into_iter().flat_map(|route| route.addresses.iter().copied()).filter(is_local)
}

/// The networks of the interfaces that hold them.
fn networks(snapshot: &Snapshot, own: Option<&Arc<NodeRouteView>>) -> BTreeSet<Prefix> {
    let is_of_nodes = |local: &&LocalAddress| own.is_some_and(|route| route.addresses.contains(&local.address));
    snapshot.local.iter().filter(is_of_nodes).map(|local| local.prefix).collect()
}

fn next_hops(snapshot: &Snapshot, own: Option<&Arc<NodeRouteView>>) -> NextHops {
    let mut next_hops = NextHops::default();
    for address in own_addresses(snapshot, own) {
        match address {
            IpAddr::V4(address) => next_hops.v4 = next_hops.v4.or(Some(address)),
            IpAddr::V6(address) => next_hops.v6 = next_hops.v6.or(Some(address)),
        }
    }
    next_hops
}

/// The node's IPv4 address, else four octets made of its name (RFC 6286 §2.1 asks only that they
/// are unique within the AS).
fn router_id(snapshot: &Snapshot, own: Option<&Arc<NodeRouteView>>) -> RouterId {
    let v4 = |address: IpAddr| match address {
        IpAddr::V4(address) => RouterId::try_from(address).ok(),
        IpAddr::V6(_) => None,
    };
    own.into_iter()
        .flat_map(|route| route.addresses.iter().copied())
        .find_map(v4)
        .unwrap_or_else(|| of_name(&snapshot.me))
}

fn of_name(node: &NodeName) -> RouterId {
    // FNV-1a, 32 bit; the lowest bit keeps it from being zero.
    let hash =
        node.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    RouterId::try_from(Ipv4Addr::from(hash | 1)).expect("an odd number is not zero")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::cases::{local, node_route, peer, snapshot, web};
    use crate::model::views::TrafficPolicy;

    #[test]
    fn the_node_announces_its_pod_cidrs_and_the_addresses_it_is_an_entry_for() {
        let mut snapshot = snapshot()
            .node(node_route("n1", &["10.90.0.11", "fd90::11"], &["10.244.0.0/24", "fd00:244::/64"]))
            .node(node_route("n2", &["10.90.0.12"], &["10.244.1.0/24"]))
            .local([local("eth0", "10.90.0.11/24"), local("eth0", "fd90::11/64")])
            .service(web(TrafficPolicy::Cluster))
            .endpoints("n2", 1, 0)
            .build();
        snapshot.peers = vec![peer("router", "10.90.0.1")];
        let desired = plan(&snapshot, &mut Memory::default(), Moment::default());
        let adverts: Vec<_> =
            desired.announce.by_peer.values().flat_map(|adverts| adverts.keys()).map(ToString::to_string).collect();
        assert_eq!(adverts, ["10.60.0.10/32", "10.244.0.0/24", "fd00:244::/64"]);
        assert_eq!(desired.router_id.to_string(), "10.90.0.11");
        assert_eq!(desired.next_hops.v6.map(|a| a.to_string()).as_deref(), Some("fd90::11"));
    }

    #[test]
    fn an_address_that_is_on_no_interface_is_no_next_hop() {
        let snapshot = snapshot()
            .node(node_route("n1", &["192.0.2.11", "10.90.0.11"], &[]))
            .local([local("eth0", "10.90.0.11/24")])
            .build();
        let next_hops = plan(&snapshot, &mut Memory::default(), Moment::default()).next_hops;
        assert_eq!(next_hops.v4.map(|a| a.to_string()).as_deref(), Some("10.90.0.11"));
    }

    #[test]
    fn the_networks_are_those_of_the_node_s_own_addresses() {
        let snapshot = snapshot()
            .node(node_route("n1", &["10.90.0.11", "fd90::11", "192.0.2.11"], &["10.244.0.0/24"]))
            .local([local("eth0", "10.90.0.11/24"), local("eth0", "fd90::11/64"), local("eth0", "10.90.7.1/24")])
            .local([local("cni0", "10.244.0.1/24"), local("eth1", "10.91.0.11/24")])
            .build();
        let networks = plan(&snapshot, &mut Memory::default(), Moment::default()).networks;
        assert_eq!(networks.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.90.0.0/24", "fd90::/64"]);
    }

    #[test]
    fn a_node_without_ipv4_has_a_router_id_of_its_name() {
        let of = |name: &str| of_name(&name.parse().expect("a node name"));
        assert_eq!(of("n1"), of("n1"));
        assert_ne!(of("n1"), of("n2"));
    }
}
