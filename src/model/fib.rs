//! The routes that should be in the kernel: what the agent's core asks of the kernel room.
//!
//! A [`FibWish`] is everything that is asked. Cloning it shares the routes, so that handing over the
//! wish of a large cluster after each change costs little.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use super::net::{Family, Prefix};

/// A neighbour to hand packets to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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

    /// The address family of the route.
    pub fn family(&self) -> Family {
        self.destination.family()
    }
}

/// Every route that should be there, by destination, and destinations that others should carry.
///
/// Of several routes of one destination and rank the first is preferred, but one that is in place
/// already is never moved for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FibWish(BTreeMap<Prefix, Arc<[FibRoute]>>);

impl FibWish {
    /// Replaces all routes to one destination; none takes the destination out.
    pub fn set(&mut self, destination: Prefix, routes: impl IntoIterator<Item = FibRoute>) {
        let routes: Arc<[FibRoute]> = routes.into_iter().filter(|route| route.destination == destination).collect();
        if routes.is_empty() {
            self.0.remove(&destination);
        } else {
            self.0.insert(destination, routes);
        }
    }

    /// Asks who carries packets to a destination that no node on a network of this one has. A router may
    /// have announced it: such a route can be added.
    pub fn ask(&mut self, destination: Prefix) {
        self.0.insert(destination, Arc::default());
    }

    /// Adds a route, behind those of its rank.
    pub fn add(&mut self, route: FibRoute) {
        let routes = self.0.entry(route.destination).or_default();
        *routes = routes.iter().cloned().chain([route]).collect();
    }

    /// The destinations within `prefix` that are asked about.
    pub fn asked_in(&self, prefix: Prefix) -> impl Iterator<Item = Prefix> {
        // Prefixes are ordered by address, and one that holds the others comes first.
        let within = self.0.range(prefix..).take_while(move |(destination, _)| prefix.contains(destination.address()));
        within.filter(|(_, routes)| leaves_it_to_others(routes)).map(|(destination, _)| *destination)
    }

    /// Whether it matters who carries this destination: no node on a network of this one does.
    pub fn is_asked(&self, destination: &Prefix) -> bool {
        self.0.get(destination).is_some_and(|routes| leaves_it_to_others(routes))
    }

    /// The routes to one destination, the preferred one of each rank first.
    pub fn to(&self, destination: &Prefix) -> &[FibRoute] {
        self.0.get(destination).map(|routes| &**routes).unwrap_or_default()
    }

    /// Whether exactly this route is asked for.
    pub fn contains(&self, route: &FibRoute) -> bool {
        self.to(&route.destination).contains(route)
    }

    /// All routes, by destination.
    pub fn routes(&self) -> impl Iterator<Item = &FibRoute> {
        self.0.values().flat_map(|routes| routes.iter())
    }

    /// The destinations.
    pub fn destinations(&self) -> impl Iterator<Item = &Prefix> {
        self.0.keys()
    }

    /// How many destinations there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The destinations whose routes differ from those of `other`, in order. What both share is not
    /// compared, so that one change among many costs a walk and no more.
    pub fn changed_since(&self, other: &Self) -> Vec<Prefix> {
        let (mut new, mut old) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut changed = Vec::new();
        loop {
            let order = match (new.peek(), old.peek()) {
                (Some((new, _)), Some((old, _))) => new.cmp(old),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return changed,
            };
            let (new, old) = (new.next_if(|_| order.is_le()), old.next_if(|_| order.is_ge()));
            match (new, old) {
                (Some((_, new)), Some((_, old))) if Arc::ptr_eq(new, old) || new == old => {}
                (new, old) => changed.extend(new.or(old).map(|(destination, _)| *destination)),
            }
        }
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
        Self(by_destination.into_iter().map(|(destination, routes)| (destination, routes.into())).collect())
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
    }
}
