//! Announced networks around addresses of Services, and what of them somebody has: the guard refuses the rest.
//!
//! A router sends a packet to an address that nobody has to a node that announces the network around it, which
//! would send it back by its default route, until its TTL ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::agent::announce::AnnouncePlan;
use crate::agent::node_addresses::{NodeAddresses, take_one};
use crate::agent::snapshot::{NodeRouteView, Objects, Snapshot};
use crate::config::advertisement::How;
use crate::model::views::ServiceView;
use crate::model::{Adverts, Family, Guarded, PeerName, Prefix, SharedSet};

/// Plans, and remembers what it planned from: a change costs the networks that it touches.
#[derive(Debug, Clone, Default)]
pub struct Unassigned {
    told: BTreeMap<PeerName, Arc<Adverts>>,
    services: Objects<ServiceView>,
    nodes: Objects<NodeRouteView>,
    nearby: BTreeSet<Prefix>,
    /// The announced networks, and how many peers are told of each.
    announced: BTreeMap<Prefix, usize>,
    /// Where packets have a way that is not kube-proxy's, apart from the addresses of nodes: to a neighbour on a
    /// network of this node, to a router or pod, or as another proxy has it. And how often.
    used: BTreeMap<Prefix, usize>,
    /// The addresses of Services, and how many have each.
    held: BTreeMap<IpAddr, usize>,
    aggregated: SharedSet<Prefix>,
    assigned: SharedSet<IpAddr>,
}

impl Unassigned {
    /// What is guarded, with the networks in which packets to nobody's addresses would go in circles: those that hold
    /// nothing but addresses of Services, which kube-proxy or this host takes.
    pub fn guard(
        &mut self,
        snapshot: &Snapshot,
        of_nodes: &NodeAddresses,
        announce: &AnnouncePlan,
        guarded: &Arc<Guarded>,
    ) -> Arc<Guarded> {
        if !is_any_widened(snapshot) {
            *self = Self::default();
            return Arc::clone(guarded);
        }
        let mut open = self.see_told(&announce.by_peer);
        let mut touched = self.see_nodes(&snapshot.node_routes);
        touched.extend(self.see_nearby(snapshot));
        let (of_services, addresses) = self.see_services(&snapshot.services);
        touched.extend(of_services);
        open.extend(touched.into_iter().flat_map(|prefix| self.announced_around(prefix)));
        open.into_iter().for_each(|network| self.decide(network, of_nodes));
        addresses.into_iter().for_each(|address| self.settle(address));
        if self.aggregated.is_empty() {
            return Arc::clone(guarded);
        }
        let (aggregated, assigned) = (self.aggregated.clone(), self.assigned.clone());
        Arc::new(Guarded { aggregated, assigned, ..Guarded::clone(guarded) })
    }

    /// Takes in what peers are told. Returns the networks that somebody is told of and was not, or the other way round.
    fn see_told(&mut self, by_peer: &BTreeMap<PeerName, Arc<Adverts>>) -> BTreeSet<Prefix> {
        let before = std::mem::replace(&mut self.told, by_peer.clone());
        let nothing = Arc::default();
        let peers: BTreeSet<&PeerName> = before.keys().chain(by_peer.keys()).collect();
        let mut touched = BTreeSet::new();
        for peer in peers {
            let [old, new] = [&before, by_peer].map(|all| all.get(peer).unwrap_or(&nothing));
            for (network, old, new) in new.differences(old).filter(|(prefix, ..)| is_wide(prefix)) {
                match (old, new) {
                    (None, Some(_)) => *self.announced.entry(*network).or_default() += 1,
                    (Some(_), None) => _ = take_one(&mut self.announced, *network),
                    _ => continue,
                }
                touched.insert(*network);
            }
        }
        touched
    }

    /// Takes in which nodes there are. Returns what is used otherwise, or is a node's, since they changed.
    fn see_nodes(&mut self, nodes: &Objects<NodeRouteView>) -> Vec<Prefix> {
        let before = std::mem::replace(&mut self.nodes, nodes.clone());
        let mut touched = Vec::new();
        for (_, old, new) in nodes.differences(&before) {
            new.iter().flat_map(|node| &node.pod_cidrs).for_each(|cidr| self.use_otherwise(*cidr));
            old.iter().flat_map(|node| &node.pod_cidrs).for_each(|cidr| self.use_no_more(*cidr));
            for node in [old, new].into_iter().flatten() {
                touched.extend(node.pod_cidrs.iter().copied());
                touched.extend(node.addresses.iter().map(|address| Prefix::host(*address)));
            }
        }
        touched
    }

    /// The same of this node's networks and the routers.
    fn see_nearby(&mut self, snapshot: &Snapshot) -> Vec<Prefix> {
        // One address alone is this host's own, which the guard lets in.
        let local = snapshot.local.iter().map(|local| local.prefix).filter(is_wide);
        let routers = snapshot.peers.iter().map(|peer| Prefix::host(peer.address));
        let now: BTreeSet<Prefix> = local.chain(routers).collect();
        let before = std::mem::replace(&mut self.nearby, now.clone());
        now.difference(&before).for_each(|prefix| self.use_otherwise(*prefix));
        before.difference(&now).for_each(|prefix| self.use_no_more(*prefix));
        now.symmetric_difference(&before).copied().collect()
    }

    /// The same of Services, and which addresses they gained or lost.
    fn see_services(&mut self, services: &Objects<ServiceView>) -> (Vec<Prefix>, BTreeSet<IpAddr>) {
        let before = std::mem::replace(&mut self.services, services.clone());
        let (mut touched, mut addresses) = (Vec::new(), BTreeSet::new());
        for (_, old, new) in services.differences(&before) {
            for (service, address) in new.into_iter().flat_map(|service| held_by(service)) {
                *self.held.entry(address).or_default() += 1;
                addresses.insert(address);
                if service.has_foreign_proxy {
                    self.use_otherwise(Prefix::host(address));
                    touched.push(Prefix::host(address));
                }
            }
            for (service, address) in old.into_iter().flat_map(|service| held_by(service)) {
                take_one(&mut self.held, address);
                addresses.insert(address);
                if service.has_foreign_proxy {
                    self.use_no_more(Prefix::host(address));
                    touched.push(Prefix::host(address));
                }
            }
        }
        (touched, addresses)
    }

    fn use_otherwise(&mut self, prefix: Prefix) {
        *self.used.entry(prefix).or_default() += 1;
    }

    fn use_no_more(&mut self, prefix: Prefix) {
        take_one(&mut self.used, prefix);
    }

    /// The announced networks that overlap this one.
    fn announced_around(&self, prefix: Prefix) -> Vec<Prefix> {
        let within = self.announced.range(prefix..).map(|(network, _)| *network);
        let within = within.take_while(|network| prefix.contains(network.address()));
        within.chain(prefix.around().filter(|network| self.announced.contains_key(network))).collect()
    }

    /// One network: whether the guard watches over it.
    fn decide(&mut self, network: Prefix, of_nodes: &NodeAddresses) {
        let is_announced = self.announced.contains_key(&network);
        if is_announced && of_nodes.first_in(network).is_none() && !overlaps_one(&self.used, network) {
            self.aggregated.insert(network);
        } else if !self.aggregated.remove(&network) {
            return;
        }
        let within = self.held.range(network.address()..).map(|(address, _)| *address);
        let within: Vec<IpAddr> = within.take_while(|address| network.contains(*address)).collect();
        within.into_iter().for_each(|address| self.settle(address));
    }

    /// One address: whether it is left to kube-proxy in a network that is watched over.
    fn settle(&mut self, address: IpAddr) {
        let is_watched = || Prefix::host(address).around().any(|network| self.aggregated.contains(&network));
        if self.held.contains_key(&address) && is_watched() {
            self.assigned.insert(address);
        } else {
            self.assigned.remove(&address);
        }
    }
}

/// Whether any Advertisement asks for networks around addresses.
fn is_any_widened(snapshot: &Snapshot) -> bool {
    let widens = |how: &How| match how {
        How::Bgp(bgp) => [Family::V4, Family::V6].into_iter().any(|family| bgp.length(family).is_some()),
        How::L2(_) | How::Withhold => false,
    };
    snapshot.advertisements.iter().any(|advertisement| widens(&advertisement.how))
}

fn is_wide(prefix: &Prefix) -> bool {
    prefix.length() < prefix.family().bits()
}

fn held_by(service: &ServiceView) -> impl Iterator<Item = (&ServiceView, IpAddr)> {
    service.ingress.iter().filter_map(move |entry| Some((service, entry.ip?)))
}

/// Whether the network overlaps one of these; looked up, as there may be thousands of both.
fn overlaps_one(these: &BTreeMap<Prefix, usize>, network: Prefix) -> bool {
    let next = these.range(network..).next();
    next.is_some_and(|(next, _)| next.overlaps(&network)) || network.around().any(|around| these.contains_key(&around))
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
        let guarded = Unassigned::default().guard(&snapshot, &of_nodes, &announce, &Arc::default());
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
