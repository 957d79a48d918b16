//! For which Service addresses this node is a right entry.
//!
//! Planned Service by Service: a change costs the Services that it is about and those that share an address
//! with them, and the result is that of planning everything anew.

mod refusals;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use self::refusals::Refusals;
use self::rules::{Asked, Before, Counts, Verdict, WITHOUT_ENDPOINTS, judge};
use crate::agent::node_addresses::NodeAddresses;
use crate::agent::snapshot::{NodeRouteView, Objects, Snapshot};
use crate::api::{EntryFlag, NoEntry};
use crate::model::views::{EndpointView, IpMode, ServiceView};
use crate::model::{
    Admission, Family, Guarded, Moment, NodeName, PortProtocol, Prefix, Scope, ServedPort, ServiceKey, SharedMap,
    SharedSet, claim,
};

/// The Service addresses to announce.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryPlan {
    /// The addresses this node is an entry for, and the ports served on them.
    pub guarded: Arc<Guarded>,
    /// The Services this node is an entry for, and their addresses.
    pub entries: SharedMap<ServiceKey, Vec<IpAddr>>,
    /// All addresses to announce; those of Services with another proxy are not guarded.
    pub announced: BTreeSet<IpAddr>,
    /// Services that have an address and are not announced here, and why.
    pub refused: Refusals,
    /// The Services that do not admit everyone, and their addresses, whether or not this node is an entry
    /// for them: pods come to the address on every node.
    pub limited: BTreeMap<ServiceKey, Vec<IpAddr>>,
    /// The Services of which kube-proxy is to be asked whether it forwards to their endpoints on this node,
    /// and where: it answers `GET /healthz` on the Service's `healthCheckNodePort` with 200. It forwards each
    /// family by itself, so every place has to say so.
    pub asks: BTreeMap<ServiceKey, BTreeSet<SocketAddr>>,
    /// When to plan again although nothing changed.
    pub deadline: Option<Moment>,
}

/// What is remembered from one plan to the next.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    grace: Grace,
    planner: Planner,
}

/// What is remembered that decides anything.
#[derive(Debug, Clone, Default)]
struct Grace {
    announced: BTreeSet<ServiceKey>,
    /// Since when Services of policy Cluster have had no endpoint.
    without_endpoints: BTreeMap<ServiceKey, Moment>,
    /// The Services of policy Local that have come to have an endpoint here.
    asked: BTreeMap<ServiceKey, Asked>,
}

impl Memory {
    /// kube-proxy says that it forwards to the Service's endpoints on this node.
    pub fn proxy_forwards(&mut self, service: &ServiceKey) {
        if let Some(asked) = self.grace.asked.get_mut(service) {
            *asked = Asked::Forwards;
        }
    }
}

#[cfg(test)]
impl Memory {
    /// Only what decides something.
    pub(super) fn without_what_saves_work(&self) -> Self {
        Self { grace: self.grace.clone(), planner: Planner::default() }
    }
}

/// Plans which addresses this node announces; `memory` is brought up to `now`.
pub fn plan(snapshot: &Snapshot, of_nodes: &NodeAddresses, memory: &mut Memory, now: Moment) -> Arc<EntryPlan> {
    memory.planner.plan(snapshot, of_nodes, &mut memory.grace, now)
}

/// What each Service hangs on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ground {
    me: NodeName,
    scope: Scope,
    entry: Result<(), NoEntry>,
    /// The node's own addresses, where kube-proxy listens.
    addresses: Vec<IpAddr>,
}

impl Ground {
    /// Where kube-proxy answers for these addresses: on the node's first address of each of their families.
    fn proxies(&self, addresses: &[IpAddr], port: u16) -> BTreeSet<SocketAddr> {
        let of_family = |address: &IpAddr| self.addresses.iter().find(|own| own.is_ipv4() == address.is_ipv4());
        addresses.iter().filter_map(of_family).map(|own| SocketAddr::new(*own, port)).collect()
    }
}

/// The plan, and what it was made from.
#[derive(Debug, Clone, Default)]
struct Planner {
    ground: Option<Ground>,
    services: Objects<ServiceView>,
    endpoints: Objects<EndpointView>,
    nodes: Objects<NodeRouteView>,
    counts: BTreeMap<ServiceKey, Counts>,
    /// The Services that are ours, by their addresses.
    holders: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    plan: Arc<EntryPlan>,
}

impl Planner {
    fn plan(
        &mut self,
        snapshot: &Snapshot,
        of_nodes: &NodeAddresses,
        grace: &mut Grace,
        now: Moment,
    ) -> Arc<EntryPlan> {
        let own = snapshot.node_routes.get(snapshot.me.as_str());
        let ground = Ground {
            me: snapshot.me.clone(),
            scope: snapshot.scope,
            entry: entry_flag(snapshot),
            addresses: own.map(|route| route.addresses.clone()).unwrap_or_default(),
        };
        let mut open = BTreeSet::new();
        if self.ground.as_ref() != Some(&ground) {
            *self = Self { ground: Some(ground.clone()), ..Self::default() };
            let remembered = grace.announced.iter().chain(grace.without_endpoints.keys()).chain(grace.asked.keys());
            open.extend(remembered.cloned());
        }
        self.see_services(snapshot, &mut open);
        self.see_endpoints(snapshot, &mut open);
        self.see_nodes(snapshot, &mut open);
        let ended = grace.without_endpoints.iter().filter(|(_, since)| **since + WITHOUT_ENDPOINTS <= now);
        open.extend(ended.map(|(key, _)| key.clone()));
        let answered = grace.asked.iter().filter(|(_, asked)| asked.until().is_none_or(|until| until <= now));
        open.extend(answered.map(|(key, _)| key.clone()));
        if !open.is_empty() {
            self.add_rivals(&mut open);
            self.decide(&ground, of_nodes, &open, grace, now);
        }
        Arc::clone(&self.plan)
    }

    fn see_services(&mut self, snapshot: &Snapshot, open: &mut BTreeSet<ServiceKey>) {
        for (_, old, new) in snapshot.services.differences(&self.services) {
            for (service, is_there) in old.map(|old| (old, false)).into_iter().chain(new.map(|new| (new, true))) {
                let key = &service.key;
                for address in addresses(service) {
                    let holders = self.holders.entry(address).or_default();
                    if is_there && snapshot.scope.includes(service) {
                        holders.insert(key.clone());
                    } else {
                        holders.remove(key);
                    }
                    // Those that it shared the address with, or does now.
                    open.extend(holders.iter().cloned());
                    if holders.is_empty() {
                        self.holders.remove(&address);
                    }
                }
                open.insert(key.clone());
            }
        }
        self.services = snapshot.services.clone();
    }

    fn see_endpoints(&mut self, snapshot: &Snapshot, open: &mut BTreeSet<ServiceKey>) {
        for (_, old, new) in snapshot.endpoints.differences(&self.endpoints) {
            if let Some(old) = old {
                let counts = self.counts.entry(old.service.clone()).or_default();
                counts.take(old, &snapshot.me);
                if *counts == Counts::default() {
                    self.counts.remove(&old.service);
                }
            }
            if let Some(new) = new {
                self.counts.entry(new.service.clone()).or_default().add(new, &snapshot.me);
            }
            // Most are of Services without a load balancer.
            let keys = old.into_iter().chain(new).map(|slice| &slice.service);
            open.extend(keys.filter(|key| self.services.contains_key(&key.to_string())).cloned());
        }
        self.endpoints = snapshot.endpoints.clone();
    }

    fn see_nodes(&mut self, snapshot: &Snapshot, open: &mut BTreeSet<ServiceKey>) {
        for (_, old, new) in snapshot.node_routes.differences(&self.nodes) {
            let addresses = old.into_iter().chain(new).flat_map(|node| &node.addresses);
            open.extend(addresses.filter_map(|address| self.holders.get(address)).flatten().cloned());
        }
        self.nodes = snapshot.node_routes.clone();
    }

    /// Adds the Services that share an address with one of these, and those that share one with them.
    fn add_rivals(&self, open: &mut BTreeSet<ServiceKey>) {
        let mut new: Vec<_> = open.iter().cloned().collect();
        while let Some(key) = new.pop() {
            let service = self.services.get(&key.to_string());
            let addresses = service.into_iter().flat_map(|service| addresses(service));
            for rival in addresses.filter_map(|address| self.holders.get(&address)).flatten() {
                if open.insert(rival.clone()) {
                    new.push(rival.clone());
                }
            }
        }
    }

    /// Plans these Services anew; nobody else has an address of theirs.
    fn decide(
        &mut self,
        ground: &Ground,
        of_nodes: &NodeAddresses,
        open: &BTreeSet<ServiceKey>,
        grace: &mut Grace,
        now: Moment,
    ) {
        let plan = Arc::make_mut(&mut self.plan);
        open.iter().for_each(|key| plan.retract(key));
        let services = open.iter().filter_map(|key| self.services.get(&key.to_string()).map(|service| &**service));
        let ours: Vec<_> = services.filter(|service| ground.scope.includes(service)).collect();
        let of_others = claim::without_right(ours.iter().copied());
        let mut before: BTreeMap<_, _> = open.iter().map(|key| (key, grace.take(key))).collect();
        for service in ours {
            let key = &service.key;
            let (addresses, wrong): (Vec<IpAddr>, Vec<_>) =
                vips(service).partition(|address| is_carried(*address) && !of_nodes.contains(address));
            if !wrong.is_empty() {
                plan.refused.insert(key.clone(), NoEntry::NoAddressOfService);
            }
            let is_anothers = |address: &IpAddr| of_others.get(key).is_some_and(|lost| lost.contains(address));
            let (lost, addresses): (Vec<_>, Vec<_>) = addresses.into_iter().partition(is_anothers);
            if !lost.is_empty() {
                plan.refused.insert(key.clone(), NoEntry::AddressOfAnother);
            }
            if addresses.is_empty() {
                continue;
            }
            plan.limit(service, &addresses);
            let counts = self.counts.get(key).copied().unwrap_or_default();
            let before = before.remove(key).unwrap_or_default();
            let verdict = match ground.entry {
                Ok(()) => judge(service, counts, before, now),
                Err(reason) => Verdict::Refused(reason),
            };
            match verdict {
                Verdict::Announced { without_endpoints } => {
                    grace.announced.insert(key.clone());
                    grace.without_endpoints.extend(without_endpoints.map(|since| (key.clone(), since)));
                    plan.announce(service, addresses);
                }
                Verdict::Asked { since, port } => {
                    grace.asked.insert(key.clone(), Asked::Since(since));
                    plan.asks.insert(key.clone(), ground.proxies(&addresses, port));
                    plan.refused.insert(key.clone(), NoEntry::ProxyNotReady);
                }
                Verdict::Refused(reason) => {
                    plan.refused.insert(key.clone(), reason);
                }
            }
        }
        plan.deadline = grace.deadline();
    }
}

impl Grace {
    /// Takes out what is remembered of a Service.
    fn take(&mut self, key: &ServiceKey) -> Before {
        Before {
            is_announced: self.announced.remove(key),
            without_endpoints: self.without_endpoints.remove(key),
            asked: self.asked.remove(key),
        }
    }

    /// When something remembered changes a verdict.
    fn deadline(&self) -> Option<Moment> {
        let ends = self.without_endpoints.values().min().map(|since| *since + WITHOUT_ENDPOINTS);
        ends.into_iter().chain(self.asked.values().filter_map(|asked| asked.until())).min()
    }
}

impl EntryPlan {
    fn announce(&mut self, service: &ServiceView, addresses: Vec<IpAddr>) {
        self.announced.extend(&addresses);
        if !service.has_foreign_proxy {
            let guarded = Arc::make_mut(&mut self.guarded);
            guarded.announced.extend(&addresses);
            guarded.served.extend(ports(service, &addresses));
        }
        self.entries.insert(service.key.clone(), addresses);
    }

    /// Lets only those in that the Service admits.
    fn limit(&mut self, service: &ServiceView, addresses: &[IpAddr]) {
        let Some(ranges) = &service.source_ranges else { return };
        let guarded = Arc::make_mut(&mut self.guarded);
        for to in ports(service, addresses) {
            let Some(admitted) = ranges.admitted(Family::of(to.address)) else { return };
            guarded.limited.insert(to);
            guarded.admitted.extend(admitted.map(|from| Admission { to, from }));
        }
        self.limited.insert(service.key.clone(), addresses.to_vec());
    }

    /// Takes a Service out, and its addresses, whoever else has them.
    fn retract(&mut self, key: &ServiceKey) {
        self.refused.remove(key);
        self.asks.remove(key);
        // No port is 0: what comes from here on is of the address.
        let first = |address| ServedPort { address, protocol: PortProtocol::Tcp, port: 0 };
        for address in self.limited.remove(key).into_iter().flatten() {
            let guarded = Arc::make_mut(&mut self.guarded);
            let none = Admission { to: first(address), from: Prefix::host(address) };
            take_out(&mut guarded.limited, first(address), |port| port.address == address);
            take_out(&mut guarded.admitted, none, |admission| admission.to.address == address);
        }
        for address in self.entries.remove(key).into_iter().flatten() {
            self.announced.remove(&address);
            if !self.guarded.announced.contains(&address) {
                continue;
            }
            let guarded = Arc::make_mut(&mut self.guarded);
            guarded.announced.remove(&address);
            take_out(&mut guarded.served, first(address), |port| port.address == address);
        }
    }
}

/// Takes what belongs together out of a set: it begins at `first`, or right after it.
fn take_out<T: Ord + Copy>(set: &mut SharedSet<T>, first: T, belongs: impl Fn(&T) -> bool) {
    let all: Vec<_> = set.onwards(&first).take_while(|one| belongs(one)).copied().collect();
    all.iter().for_each(|one| _ = set.remove(one));
}

fn ports(service: &ServiceView, addresses: &[IpAddr]) -> impl Iterator<Item = ServedPort> {
    let of = |address| service.ports.iter().map(move |&(protocol, port)| ServedPort { address, protocol, port });
    addresses.iter().copied().flat_map(of)
}

/// Its addresses, whatever they are for.
fn addresses(service: &ServiceView) -> impl Iterator<Item = IpAddr> {
    service.ingress.iter().filter_map(|entry| entry.ip)
}

/// Its addresses that packets arrive with as destination.
fn vips(service: &ServiceView) -> impl Iterator<Item = IpAddr> {
    service.ingress.iter().filter(|entry| entry.ip_mode != IpMode::Proxy).filter_map(|entry| entry.ip)
}

/// Whether routers carry packets to the address.
fn is_carried(address: IpAddr) -> bool {
    let is_local_to_a_link = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_local_to_a_link)
}

fn entry_flag(snapshot: &Snapshot) -> Result<(), NoEntry> {
    match snapshot.node_routes.get(snapshot.me.as_str()).map(|route| route.entry) {
        None => Err(NoEntry::NoNodeRoute),
        Some(EntryFlag::ExcludedByLabel) => Err(NoEntry::ExcludedByLabel),
        Some(EntryFlag::Eligible) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
