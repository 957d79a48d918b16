//! Which kernel routes this node should have to other nodes' pods.
//!
//! Planned node by node: a change of one costs what hangs on that one, its routes and what overlaps
//! them, and the result is that of planning everything anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::next_hop::{self, Networks, Way};
use crate::agent::node_addresses::{NodeAddresses, take_one};
use crate::agent::snapshot::{NodeRouteView, Objects, Snapshot};
use crate::api::{RouteException, RouteExceptionReason};
use crate::model::{FibRoute, FibWish, Prefix};

/// The routes to other nodes' pods, and the pod CIDRs that get none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoutePlan {
    /// Every route there should be, and the pod CIDRs that a router has to carry.
    pub wanted: Arc<FibWish>,
    /// Who says that a pod CIDR is theirs; more than one is a mistake.
    pub claims: BTreeMap<Prefix, Vec<Claim>>,
    /// How many pod CIDRs other nodes have.
    pub pod_cidrs: usize,
    /// Pod CIDRs that no route of ours is made for, and why; those that a router has to carry as well.
    exceptions: BTreeMap<Prefix, Vec<RouteException>>,
    malformed: BTreeMap<String, Vec<RouteException>>,
    shared: BTreeSet<Prefix>,
    unreached: BTreeSet<Prefix>,
}

/// A node that has a pod CIDR, and the way there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The node.
    pub node: Arc<NodeRouteView>,
    /// How its pods are reached from here.
    pub way: Way,
}

impl RoutePlan {
    /// The pod CIDRs that no route of ours is made for, or that are told of although one is.
    pub fn exceptions(&self) -> impl Iterator<Item = &RouteException> {
        self.exceptions.values().chain(self.malformed.values()).flatten()
    }

    /// Why a pod CIDR of a node gets no route of ours, if it does not.
    pub fn obstacle(&self, node: &NodeRouteView, cidr: &Prefix) -> Option<&RouteException> {
        let stops =
            |told: &&RouteException| told.node == node.node.as_str() && told.reason != RouteExceptionReason::Overlapped;
        self.exceptions.get(cidr)?.iter().find(stops)
    }

    /// Pod CIDRs that several nodes claim.
    pub fn shared(&self) -> impl Iterator<Item = (Prefix, &[Claim])> {
        let of = |cidr: &Prefix| self.claims.get(cidr).map(|claims| (*cidr, claims.as_slice()));
        self.shared.iter().filter_map(of)
    }

    /// Pod CIDRs of other nodes that are not reached straight and share an address with `network`.
    pub fn unreached_around(&self, network: Prefix) -> impl Iterator<Item = Prefix> {
        let within = self.unreached.range(network..).take_while(move |cidr| network.contains(cidr.address())).copied();
        within.chain(network.around().filter(|wider| self.unreached.contains(wider)))
    }

    /// The node that a route leads to.
    pub fn owner(&self, route: &FibRoute) -> Option<&NodeRouteView> {
        let leads_there = |claim: &&Claim| claim.route(route.destination).as_ref() == Some(route);
        self.claims.get(&route.destination)?.iter().find(leads_there).map(|claim| &*claim.node)
    }
}

impl Claim {
    /// The route by which this node is reached, if it is a neighbour.
    pub fn route(&self, destination: Prefix) -> Option<FibRoute> {
        match self.way {
            Way::Neighbour(hop) => Some(FibRoute::direct(destination, hop)),
            Way::Router(_) | Way::None(_) => None,
        }
    }

    /// The older is preferred; names only make it certain.
    fn seniority(&self) -> (i64, &str) {
        (self.node.created_seconds, self.node.node.as_str())
    }
}

/// Plans, and remembers what it planned from.
#[derive(Debug, Clone, Default)]
pub struct Planner {
    networks: Networks,
    own: Vec<Prefix>,
    nodes: Objects<NodeRouteView>,
    addresses: NodeAddresses,
    /// The lengths that claimed pod CIDRs have, and how many have each.
    lengths: BTreeMap<u8, usize>,
    plan: Arc<RoutePlan>,
}

impl Planner {
    /// Plans a route to each pod CIDR of each other node.
    pub fn plan(&mut self, snapshot: &Snapshot) -> Arc<RoutePlan> {
        let own = snapshot.node_routes.get(snapshot.me.as_str());
        let networks = Networks::new(&snapshot.local, own.map(|own| own.addresses.as_slice()).unwrap_or_default());
        let own: Vec<Prefix> = own.into_iter().flat_map(|own| own.pod_cidrs.iter().copied()).collect();
        let mut open = BTreeSet::new();
        if self.own != own {
            open.extend(own.iter().chain(&self.own).flat_map(|own| self.claimed_around(*own)));
            self.own = own;
        }
        if self.networks != networks {
            self.move_to(networks, &mut open);
        }
        for address in self.addresses.look(&snapshot.node_routes) {
            open.extend(self.claimed_around(Prefix::host(address)));
        }
        let before = std::mem::replace(&mut self.nodes, snapshot.node_routes.clone());
        for (name, old, new) in snapshot.node_routes.differences(&before) {
            if let Some(old) = old.filter(|old| old.node != snapshot.me) {
                self.forget(name, old, &mut open);
            }
            if let Some(new) = new.filter(|new| new.node != snapshot.me) {
                self.learn(name, new, &mut open);
            }
        }
        for destination in open {
            self.decide(destination);
        }
        Arc::clone(&self.plan)
    }

    /// The addresses of all nodes, as of the last plan.
    pub fn node_addresses(&self) -> &NodeAddresses {
        &self.addresses
    }

    /// This node is on other networks now: another way may lead to nodes that have an address there, and
    /// nobody's pod CIDR may hold an address of this node.
    fn move_to(&mut self, networks: Networks, open: &mut BTreeSet<Prefix>) {
        let before = std::mem::replace(&mut self.networks, networks);
        for address in self.networks.addresses().chain(before.addresses()) {
            open.extend(self.claimed_around(Prefix::host(address)));
        }
        let networks = &self.networks;
        let plan = Arc::make_mut(&mut self.plan);
        for (cidr, claims) in &mut plan.claims {
            for claim in claims {
                let way = next_hop::way(&claim.node, cidr.family(), networks);
                if claim.way != way {
                    claim.way = way;
                    open.insert(*cidr);
                }
            }
        }
    }

    fn learn(&mut self, name: &str, node: &Arc<NodeRouteView>, open: &mut BTreeSet<Prefix>) {
        let plan = Arc::make_mut(&mut self.plan);
        plan.pod_cidrs += node.pod_cidrs.len() + node.malformed.len();
        if !node.malformed.is_empty() {
            plan.malformed.insert(name.to_owned(), malformed(node));
        }
        for &cidr in &node.pod_cidrs {
            let way = next_hop::way(node, cidr.family(), &self.networks);
            // Nearly all have one claim.
            let claims = Arc::make_mut(&mut self.plan).claims.entry(cidr).or_insert_with(|| Vec::with_capacity(1));
            claims.push(Claim { node: Arc::clone(node), way });
            claims.sort_by(|one, other| one.seniority().cmp(&other.seniority()));
            *self.lengths.entry(cidr.length()).or_default() += 1;
            open.insert(cidr);
            open.extend(self.claimed_around(cidr));
        }
    }

    fn forget(&mut self, name: &str, node: &NodeRouteView, open: &mut BTreeSet<Prefix>) {
        let plan = Arc::make_mut(&mut self.plan);
        plan.pod_cidrs -= node.pod_cidrs.len() + node.malformed.len();
        plan.malformed.remove(name);
        for &cidr in &node.pod_cidrs {
            open.insert(cidr);
            open.extend(self.claimed_around(cidr));
            take_one(&mut self.lengths, cidr.length());
            let plan = Arc::make_mut(&mut self.plan);
            if let Some(claims) = plan.claims.get_mut(&cidr) {
                claims.retain(|claim| claim.node.node != node.node);
                if claims.is_empty() {
                    plan.claims.remove(&cidr);
                }
            }
        }
    }

    /// The claimed destinations that share an address with `prefix`.
    fn claimed_around(&self, prefix: Prefix) -> Vec<Prefix> {
        let wider = self.lengths.keys().filter(|length| **length < prefix.length());
        let holding = wider.filter_map(|length| Prefix::containing(prefix.address(), *length));
        let holding = holding.filter(|holder| self.plan.claims.contains_key(holder));
        let within = self.plan.claims.range(prefix..).map(|(within, _)| *within);
        holding.chain(within.take_while(|within| prefix.contains(within.address()))).collect()
    }

    /// One destination: who gets the route, and who is told that it has none, or not alone.
    fn decide(&mut self, destination: Prefix) {
        let claims = self.plan.claims.get(&destination).map(Vec::as_slice).unwrap_or_default();
        let mut exceptions = Vec::new();
        let mut routes = Vec::new();
        let mut is_for_router = false;
        let (is_claimed, is_shared) = (!claims.is_empty(), claims.len() > 1);
        let obstacle = self.obstacle(destination);
        for claim in claims {
            let told = match (&obstacle, &claim.way) {
                (Some(obstacle), _) => Some(obstacle.clone()),
                (None, Way::None(why)) => Some((RouteExceptionReason::NoAddressOfFamily, why.clone())),
                (None, Way::Router(address)) => {
                    is_for_router = true;
                    let message =
                        format!("{address} is on no network of this node; a router has to carry these packets");
                    Some((RouteExceptionReason::NotOnLink, message))
                }
                (None, Way::Neighbour(_)) => {
                    // Of several the first is told: the kernel tells the others that they have no route.
                    let is_first = routes.is_empty();
                    routes.extend(claim.route(destination));
                    self.told_rival(destination, claim).filter(|_| is_first)
                }
            };
            exceptions.extend(
                told.map(|(reason, message)| exception(&claim.node, &destination.to_string(), reason, message)),
            );
        }
        let plan = Arc::make_mut(&mut self.plan);
        put(&mut plan.shared, destination, is_shared);
        put(&mut plan.unreached, destination, is_claimed && routes.is_empty());
        let wish = Arc::make_mut(&mut plan.wanted);
        if routes.is_empty() && is_for_router {
            wish.ask(destination);
        } else {
            wish.set(destination, routes);
        }
        if exceptions.is_empty() {
            plan.exceptions.remove(&destination);
        } else {
            plan.exceptions.insert(destination, exceptions);
        }
    }

    /// Why nobody gets a route to this destination.
    fn obstacle(&self, destination: Prefix) -> Option<(RouteExceptionReason, String)> {
        if let Some(own) = self.own.iter().find(|own| own.overlaps(&destination)) {
            let message = format!("it overlaps {own}, the pod CIDR of this node; give one of the two nodes another");
            return Some((RouteExceptionReason::Contested, message));
        }
        let of_this_node = || self.networks.addresses().find(|address| destination.contains(*address));
        let held = self.addresses.first_in(destination).or_else(of_this_node);
        if let Some(address) = held {
            let message = format!("it holds {address}, an address of a node: that node could not be reached any more");
            return Some((RouteExceptionReason::HoldsAddress, message));
        }
        let senior = self.rivals(destination).min_by(|(_, one), (_, other)| one.seniority().cmp(&other.seniority()));
        let first = self.plan.claims.get(&destination).and_then(|claims| claims.first());
        senior.filter(|(_, rival)| first.is_some_and(|first| rival.seniority() < first.seniority())).map(
            |(cidr, rival)| {
                let message = format!("it overlaps {cidr} of node {}, which was there first", rival.node.node);
                (RouteExceptionReason::Contested, message)
            },
        )
    }

    /// What a node is told whose route stands although another claims a part of its pods.
    fn told_rival(&self, destination: Prefix, claim: &Claim) -> Option<(RouteExceptionReason, String)> {
        let (cidr, rival) = self.rivals(destination).find(|(_, rival)| rival.node.node != claim.node.node)?;
        let message =
            format!("node {} claims {cidr}, which overlaps it; the route stays with this node", rival.node.node);
        Some((RouteExceptionReason::Overlapped, message))
    }

    /// Claims of other destinations that overlap this one.
    fn rivals(&self, destination: Prefix) -> impl Iterator<Item = (Prefix, &Claim)> {
        let others = self.claimed_around(destination).into_iter().filter(move |other| *other != destination);
        others.flat_map(|other| self.plan.claims.get(&other).into_iter().flatten().map(move |claim| (other, claim)))
    }
}

fn put(all: &mut BTreeSet<Prefix>, destination: Prefix, is_one: bool) {
    if is_one {
        all.insert(destination);
    } else {
        all.remove(&destination);
    }
}

fn malformed(node: &NodeRouteView) -> Vec<RouteException> {
    let wrong = |text: &String| exception(node, text, RouteExceptionReason::Malformed, "it is not a CIDR".to_owned());
    node.malformed.iter().map(wrong).collect()
}

fn exception(node: &NodeRouteView, cidr: &str, reason: RouteExceptionReason, message: String) -> RouteException {
    RouteException { node: node.node.to_string(), cidr: cidr.to_owned(), reason, message }
}

#[cfg(test)]
mod tests;
