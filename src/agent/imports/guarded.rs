//! What no learned route may take packets from: a network of this node, its pod CIDRs, what it reaches directly, an
//! address of a router or Service, a pool, and what lies within one of these. A wider route takes nothing from them,
//! since the kernel prefers the longer prefix.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::agent::node_addresses::take_one;
use crate::agent::routes::RoutePlan;
use crate::agent::snapshot::{Objects, Snapshot};
use crate::config::AddressBlock;
use crate::config::peer::Peer;
use crate::config::pool_view::PoolView;
use crate::model::views::ServiceView;
use crate::model::{FibWish, LocalAddress, Prefix};

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
const EVERYTHING: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

/// What a route would take packets from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A network, or one address.
    Network(Prefix),
    /// Addresses of a pool.
    OfPool(AddressBlock),
}

/// See the module; it remembers what it was made of.
#[derive(Debug, Clone, Default)]
pub(super) struct Guarded {
    ground: Ground,
    /// What follows from that, with the name of each.
    fixed: BTreeMap<Prefix, String>,
    services: Objects<ServiceView>,
    /// Their addresses, and how many have each.
    addresses: BTreeMap<IpAddr, usize>,
    /// What this node reaches directly.
    reached: FibWish,
    pools: Vec<Arc<PoolView>>,
    blocks: Vec<(AddressBlock, String)>,
}

/// What is of this node, and its routers.
#[derive(Debug, Clone, PartialEq, Default)]
struct Ground {
    pods: Vec<Prefix>,
    local: Vec<LocalAddress>,
    peers: Vec<Arc<Peer>>,
}

impl Ground {
    fn of(snapshot: &Snapshot) -> Self {
        let own = snapshot.node_routes.get(snapshot.me.as_str());
        Self {
            pods: own.map(|route| route.pod_cidrs.clone()).unwrap_or_default(),
            local: snapshot.local.clone(),
            peers: snapshot.peers.clone(),
        }
    }

    fn named(&self) -> BTreeMap<Prefix, String> {
        let mut named = BTreeMap::new();
        for (address, length) in NOWHERE {
            let network = Prefix::containing(address, length).expect("the length is the family's");
            named.insert(network, "networks that no router leads to".to_owned());
        }
        named.extend(self.pods.iter().map(|cidr| (*cidr, "this node's own pods".to_owned())));
        named.extend(self.peers.iter().map(|peer| (Prefix::host(peer.address), format!("BgpPeer {}", peer.name))));
        for local in &self.local {
            named.insert(local.prefix, format!("the network of {}", local.interface));
            named.insert(Prefix::host(local.address), "an address of this node".to_owned());
        }
        named
    }
}

impl Guarded {
    /// Takes in what is known now, and returns the networks that are guarded and were not, or the other way round.
    pub(super) fn look(&mut self, snapshot: &Snapshot, reached: &FibWish) -> Vec<Prefix> {
        let mut touched = reached.changed_since(&self.reached);
        self.reached = reached.clone();
        self.see_ground(Ground::of(snapshot), &mut touched);
        self.see_services(&snapshot.services, &mut touched);
        if self.pools != snapshot.pools {
            self.pools.clone_from(&snapshot.pools);
            let of_pool = |pool: &Arc<PoolView>| {
                let name = format!("AddressPool {}", pool.name);
                pool.blocks.iter().map(move |block| (*block, name.clone())).collect::<Vec<_>>()
            };
            self.blocks = self.pools.iter().flat_map(of_pool).collect();
            touched.extend(EVERYTHING.iter().filter_map(|address| Prefix::containing(*address, 0)));
        }
        touched
    }

    fn see_ground(&mut self, ground: Ground, touched: &mut Vec<Prefix>) {
        if self.ground == ground && !self.fixed.is_empty() {
            return;
        }
        let before = std::mem::replace(&mut self.fixed, ground.named());
        touched.extend(before.keys().filter(|network| !self.fixed.contains_key(network)));
        touched.extend(self.fixed.keys().filter(|network| !before.contains_key(network)));
        self.ground = ground;
    }

    fn see_services(&mut self, services: &Objects<ServiceView>, touched: &mut Vec<Prefix>) {
        let before = std::mem::replace(&mut self.services, services.clone());
        let addresses = |service: &ServiceView| service.ingress.iter().filter_map(|entry| entry.ip).collect::<Vec<_>>();
        for (_, old, new) in services.differences(&before) {
            for address in new.into_iter().flat_map(|service| addresses(service)) {
                let count = self.addresses.entry(address).or_default();
                *count += 1;
                touched.extend((*count == 1).then(|| Prefix::host(address)));
            }
            for address in old.into_iter().flat_map(|service| addresses(service)) {
                touched.extend(take_one(&mut self.addresses, address).then(|| Prefix::host(address)));
            }
        }
    }

    /// Whether exactly this prefix is guarded.
    fn is_at(&self, prefix: &Prefix) -> bool {
        self.fixed.contains_key(prefix) || self.is_of_service(prefix) || !self.reached.to(prefix).is_empty()
    }

    fn is_of_service(&self, prefix: &Prefix) -> bool {
        *prefix == Prefix::host(prefix.address()) && self.addresses.contains_key(&prefix.address())
    }

    /// Both what it is and whose, for people.
    pub(super) fn describe(&self, owner: &Owner, routes: &RoutePlan) -> String {
        match owner {
            Owner::Network(network) => format!("{network}, {}", self.name(network, routes)),
            Owner::OfPool(block) => {
                let pool = self.blocks.iter().find(|(known, _)| known == block).map_or("a pool", |(_, name)| name);
                format!("{block} of {pool}")
            }
        }
    }

    /// What is at exactly this prefix, which is guarded.
    fn name(&self, prefix: &Prefix, routes: &RoutePlan) -> String {
        if let Some(name) = self.fixed.get(prefix) {
            return name.clone();
        }
        if self.is_of_service(prefix) {
            return "an address of a Service".to_owned();
        }
        match routes.wanted.to(prefix).first().and_then(|route| routes.owner(route)) {
            Some(owner) => format!("the pods of node {}, which is reached directly", owner.node),
            None => "what is reached directly".to_owned(),
        }
    }

    /// What the prefix is, or lies within.
    pub(super) fn owner(&self, prefix: Prefix) -> Option<Owner> {
        if let Some(network) = prefix.around().chain([prefix]).find(|network| self.is_at(network)) {
            return Some(Owner::Network(network));
        }
        let whole = AddressBlock::from(prefix);
        let takes_of = |block: &AddressBlock| whole.overlaps(block) && (!block.is_within(&whole) || *block == whole);
        self.blocks.iter().map(|(block, _)| *block).find(takes_of).map(Owner::OfPool)
    }
}
