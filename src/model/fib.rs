//! The routes that should be in the kernel: what the agent's core asks of the kernel room.
//!
//! A [`FibWish`] is everything that is asked. Cloning it shares the routes, so that handing over the
//! wish of a large cluster after each change costs little.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::net::{Family, Prefix};
use super::shared_map::SharedMap;

/// A neighbour to hand packets to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hop {
    /// Its address. It may be of IPv6 where the destination is of IPv4 (`RTA_VIA`, Linux 5.2), not
    /// the other way round.
    pub gateway: IpAddr,
    /// The index of the interface it is on. Without it the kernel looks for the gateway among its
    /// networks; a link-local gateway cannot do without.
    pub interface: Option<u32>,
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gateway.fmt(f)
    }
}

/// The next hops of one route: at least one, each once, in order. Flows spread evenly over them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Hops(Arc<[Hop]>);

impl Hops {
    /// These next hops, or `None` when there are none.
    pub fn new(hops: impl IntoIterator<Item = Hop>) -> Option<Self> {
        let mut hops: Vec<_> = hops.into_iter().collect();
        hops.sort_unstable();
        hops.dedup();
        (!hops.is_empty()).then(|| Self(hops.into()))
    }

    /// They in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Hop> {
        self.0.iter()
    }
}

impl From<Hop> for Hops {
    fn from(hop: Hop) -> Self {
        Self(Arc::new([hop]))
    }
}

impl<'a> IntoIterator for &'a Hops {
    type Item = &'a Hop;
    type IntoIter = std::slice::Iter<'a, Hop>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Hops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, hop) in self.iter().enumerate() {
            let between = if place == 0 { "" } else { ", " };
            write!(f, "{between}{hop}")?;
        }
        Ok(())
    }
}

/// Where packets to a destination go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Target {
    /// To neighbours.
    Via(Hops),
    /// Nowhere, without a word.
    Blackhole,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Via(hops) => hops.fmt(f),
            Self::Blackhole => f.write_str("a blackhole"),
        }
    }
}

/// Which of our own routes to one destination decides: the first of these. The kernel room makes
/// metrics of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Rank {
    /// Straight to a node on a network of this one.
    Direct,
    /// By a router that announced it.
    Learned,
    /// Only where nobody else, we or others, has a route: packets go nowhere instead of in circles.
    LastResort,
}

/// A route that should be in the kernel, with our protocol number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FibRoute {
    /// Its destination.
    pub destination: Prefix,
    /// What it stands behind.
    pub rank: Rank,
    /// Where packets go.
    pub target: Target,
}

impl FibRoute {
    /// A route straight to a neighbour.
    pub fn direct(destination: Prefix, hop: Hop) -> Self {
        Self { destination, rank: Rank::Direct, target: Target::Via(hop.into()) }
    }

    /// A route by the routers that announced the destination.
    pub fn learned(destination: Prefix, hops: Hops) -> Self {
        Self { destination, rank: Rank::Learned, target: Target::Via(hops) }
    }

    /// The route for packets to what is not there (any more), worse than every other.
    pub fn last_resort(destination: Prefix) -> Self {
        Self { destination, rank: Rank::LastResort, target: Target::Blackhole }
    }

    /// The interfaces of its next hops; `None` where the kernel chooses.
    fn interfaces(&self) -> impl Iterator<Item = Option<u32>> {
        let hops = match &self.target {
            Target::Via(hops) => Some(hops),
            Target::Blackhole => None,
        };
        hops.into_iter().flatten().map(|hop| hop.interface)
    }

    /// The address family of the route.
    pub fn family(&self) -> Family {
        self.destination.family()
    }
}

/// Those of some routes that are to a destination.
pub fn routes_to(all: &BTreeSet<FibRoute>, destination: Prefix) -> impl Iterator<Item = &FibRoute> {
    // Routes are in the order of their destinations, and a hop of this address is before all others.
    let least = Hop { gateway: Ipv4Addr::UNSPECIFIED.into(), interface: None };
    let from = all.range(FibRoute::direct(destination, least)..);
    from.take_while(move |route| route.destination == destination)
}

/// Every route that should be there, by destination, and destinations that others should carry.
///
/// Of several routes of one destination and rank the first is preferred, but one that is in place
/// already is never moved for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct FibWish {
    by_destination: SharedMap<Prefix, Arc<[FibRoute]>>,
    /// How many routes that are.
    #[serde(skip)]
    count: usize,
    /// The interfaces they leave by, and how many next hops are there; `None` are those that may be on any.
    #[serde(skip)]
    interfaces: BTreeMap<Option<u32>, usize>,
}

impl FibWish {
    /// Replaces all routes to one destination; none takes the destination out.
    pub fn set(&mut self, destination: Prefix, routes: impl IntoIterator<Item = FibRoute>) {
        let routes: Arc<[FibRoute]> = routes.into_iter().filter(|route| route.destination == destination).collect();
        self.put(destination, (!routes.is_empty()).then_some(routes));
    }

    /// Asks who carries packets to a destination that no node on a network of this one has. A router may
    /// have announced it: such a route can be added.
    pub fn ask(&mut self, destination: Prefix) {
        self.put(destination, Some(Arc::default()));
    }

    /// Adds a route, behind those of its rank.
    pub fn add(&mut self, route: FibRoute) {
        let destination = route.destination;
        let routes = self.to(&destination).iter().cloned().chain([route]).collect();
        self.put(destination, Some(routes));
    }

    /// What is asked for one destination becomes what `other` asks for it.
    pub fn take_over(&mut self, destination: Prefix, other: &Self) {
        self.put(destination, other.by_destination.get(&destination).cloned());
    }

    fn put(&mut self, destination: Prefix, routes: Option<Arc<[FibRoute]>>) {
        for route in routes.iter().flat_map(|routes| routes.iter()) {
            self.count += 1;
            route.interfaces().for_each(|interface| *self.interfaces.entry(interface).or_default() += 1);
        }
        let earlier = match routes {
            Some(routes) => self.by_destination.insert(destination, routes),
            None => self.by_destination.remove(&destination),
        };
        for route in earlier.iter().flat_map(|routes| routes.iter()) {
            self.count -= 1;
            for interface in route.interfaces() {
                if let Entry::Occupied(mut hops) = self.interfaces.entry(interface) {
                    *hops.get_mut() -= 1;
                    if *hops.get() == 0 {
                        hops.remove();
                    }
                }
            }
        }
    }

    /// The destinations within `prefix` that are asked about.
    pub fn asked_in(&self, prefix: Prefix) -> impl Iterator<Item = Prefix> {
        // Prefixes are ordered by address, and one that holds the others comes first.
        let onwards = self.by_destination.from(&prefix);
        let within = onwards.take_while(move |(destination, _)| prefix.contains(destination.address()));
        within.filter(|(_, routes)| leaves_it_to_others(routes)).map(|(destination, _)| *destination)
    }

    /// Whether it matters who carries this destination: no node on a network of this one does.
    pub fn is_asked(&self, destination: &Prefix) -> bool {
        self.by_destination.get(destination).is_some_and(|routes| leaves_it_to_others(routes))
    }

    /// The routes to one destination, the preferred one of each rank first.
    pub fn to(&self, destination: &Prefix) -> &[FibRoute] {
        self.by_destination.get(destination).map(|routes| &**routes).unwrap_or_default()
    }

    /// Whether exactly this route is asked for.
    pub fn contains(&self, route: &FibRoute) -> bool {
        self.to(&route.destination).contains(route)
    }

    /// All routes, by destination.
    pub fn routes(&self) -> impl Iterator<Item = &FibRoute> {
        self.by_destination.values().flat_map(|routes| routes.iter())
    }

    /// How many routes there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The indices of the interfaces that routes leave by, in order.
    pub fn interfaces(&self) -> impl Iterator<Item = u32> {
        self.interfaces.keys().copied().flatten()
    }

    /// Whether a route may leave by this interface: one whose next hop has none may leave by any.
    pub fn may_leave_by(&self, interface: u32) -> bool {
        [Some(interface), None].iter().any(|interface| self.interfaces.contains_key(interface))
    }

    /// The destinations.
    pub fn destinations(&self) -> impl Iterator<Item = &Prefix> {
        self.by_destination.keys()
    }

    /// How many destinations there are.
    pub fn len(&self) -> usize {
        self.by_destination.len()
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.by_destination.is_empty()
    }

    /// The destinations whose routes differ from those of `other`, in order. What both share is not looked at.
    pub fn changed_since(&self, other: &Self) -> Vec<Prefix> {
        self.by_destination.differences(&other.by_destination).map(|(destination, ..)| *destination).collect()
    }
}

fn leaves_it_to_others(routes: &[FibRoute]) -> bool {
    routes.iter().all(|route| route.rank != Rank::Direct)
}

impl FromIterator<FibRoute> for FibWish {
    /// Routes to one destination are kept in the order in which they come.
    fn from_iter<T: IntoIterator<Item = FibRoute>>(routes: T) -> Self {
        let mut by_destination = BTreeMap::<Prefix, Vec<FibRoute>>::new();
        for route in routes {
            by_destination.entry(route.destination).or_default().push(route);
        }
        let mut wish = Self::default();
        by_destination.into_iter().for_each(|(destination, routes)| wish.set(destination, routes));
        wish
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(gateway: &str) -> Hop {
        Hop { gateway: gateway.parse().expect("an address"), interface: Some(2) }
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn hops_are_in_order_each_once_and_at_least_one() {
        let hops = Hops::new([hop("10.0.0.2"), hop("10.0.0.1"), hop("10.0.0.2")]).expect("some");
        assert_eq!(hops.to_string(), "10.0.0.1, 10.0.0.2");
        assert_eq!(Hops::new([]), None);
    }

    #[test]
    fn the_routes_to_a_destination_are_found_among_others() {
        let [first, second, third] = ["10.1.0.0/24", "10.2.0.0/24", "10.2.0.0/25"].map(prefix);
        let hops = Hops::from(hop("10.0.0.1"));
        let of = [FibRoute::learned(second, hops.clone()), FibRoute::last_resort(second)];
        let others = [FibRoute::last_resort(first), FibRoute::learned(third, hops)];
        let all: BTreeSet<_> = of.iter().chain(&others).cloned().collect();
        assert_eq!(routes_to(&all, second).collect::<Vec<_>>(), of.iter().collect::<Vec<_>>());
        assert_eq!(routes_to(&all, prefix("10.3.0.0/24")).count(), 0);
    }

    #[test]
    fn a_wish_tells_which_destinations_changed() {
        let direct = |destination, gateway| FibRoute::direct(prefix(destination), hop(gateway));
        let old: FibWish = [
            direct("10.1.0.0/24", "10.0.0.1"),
            direct("10.2.0.0/24", "10.0.0.2"),
            direct("10.3.0.0/24", "10.0.0.3"),
            direct("10.4.0.0/24", "10.0.0.4"),
        ]
        .into_iter()
        .collect();
        let mut new = old.clone();
        assert_eq!(new.changed_since(&old), []);
        new.set(prefix("10.1.0.0/24"), [direct("10.1.0.0/24", "10.0.0.9")]);
        new.set(prefix("10.2.0.0/24"), []);
        new.set(prefix("10.3.0.0/24"), [direct("10.3.0.0/24", "10.0.0.3")]);
        new.set(prefix("10.5.0.0/24"), [FibRoute::last_resort(prefix("10.5.0.0/24"))]);
        assert_eq!(new.changed_since(&old), ["10.1.0.0/24", "10.2.0.0/24", "10.5.0.0/24"].map(prefix));
        assert_eq!((old.count(), new.count()), (4, 4));
    }

    #[test]
    fn a_wish_knows_the_interfaces_that_its_routes_leave_by() {
        let by = |interface| Hop { interface, ..hop("10.0.0.1") };
        let [first, second] = ["10.1.0.0/24", "10.2.0.0/24"].map(prefix);
        let hops = Hops::new([by(Some(2)), by(Some(3))]).expect("some");
        let mut wish: FibWish = [FibRoute::learned(first, hops)].into_iter().collect();
        wish.add(FibRoute::direct(second, by(Some(2))));
        wish.set(first, []);
        assert_eq!(wish.interfaces().collect::<Vec<_>>(), [2]);
        assert_eq!((wish.may_leave_by(2), wish.may_leave_by(3)), (true, false));
        wish.set(second, [FibRoute::direct(second, by(None))]);
        assert_eq!((wish.interfaces().count(), wish.may_leave_by(3)), (0, true));
    }
}
