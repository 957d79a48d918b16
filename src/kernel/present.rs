//! The kernel's routes as far as they can matter to us, by destination.

use std::collections::BTreeMap;

use super::change::RouteChange;
use super::place::{MAIN_TABLE, Place};
use super::route::{KernelRoute, RouteKind};
use super::standing::{Carrier, Protocol};
use crate::model::Prefix;

/// Every route of our table and of the main one, and ours in every other.
///
/// Others' routes to destinations that nobody asked for are kept as well: the next wish may.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Present {
    by_destination: BTreeMap<Prefix, Vec<KernelRoute>>,
    by_interface: BTreeMap<u32, Users>,
}

/// The routes that use an interface: a pod that comes or goes costs no look at all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Users {
    /// How many next hops of ours.
    ours: usize,
    /// The destinations of others' routes, and how many next hops each has there.
    others: BTreeMap<Prefix, usize>,
}

impl Present {
    /// Those of `routes` that can matter.
    pub fn of(routes: impl IntoIterator<Item = KernelRoute>, place: Place) -> Self {
        let mut present = Self::default();
        for route in routes.into_iter().filter(|route| Self::is_of_use(route, place)) {
            present.insert(route);
        }
        present
    }

    /// Whether a route is one to keep in mind.
    pub(super) fn is_of_use(route: &KernelRoute, place: Place) -> bool {
        route.is_ours() || route.table == place.table() || route.table == MAIN_TABLE
    }

    /// The route that packets to `destination` take: the longest that holds it, of our table before
    /// the main one. `None` where there is none, or one that drops them.
    pub fn carrier(&self, destination: &Prefix, place: Place) -> Option<Carrier> {
        [place.table(), MAIN_TABLE]
            .into_iter()
            .find_map(|table| {
                let of_length = |length| Prefix::containing(destination.address(), length);
                (0..=destination.length()).rev().filter_map(of_length).find_map(|prefix| {
                    let routes = self.to(&prefix).iter().filter(|route| route.table == table && route.tos == 0);
                    routes.min_by_key(|route| route.metric)
                })
            })
            .filter(|route| route.kind == RouteKind::Unicast)
            .map(|route| Carrier {
                destination: route.destination,
                gateways: route.hops.iter().filter_map(|hop| hop.gateway).collect(),
                protocol: Protocol(route.protocol),
            })
    }

    /// The routes to one destination, in the kernel's order.
    pub fn to(&self, destination: &Prefix) -> &[KernelRoute] {
        self.by_destination.get(destination).map(Vec::as_slice).unwrap_or_default()
    }

    /// The destinations with a route of ours.
    pub fn ours(&self) -> impl Iterator<Item = Prefix> {
        self.by_destination
            .iter()
            .filter(|(_, routes)| routes.iter().any(KernelRoute::is_ours))
            .map(|(destination, _)| *destination)
    }

    /// All of them.
    pub(super) fn routes(&self) -> impl Iterator<Item = &KernelRoute> {
        self.by_destination.values().flatten()
    }

    /// Whether a route of ours uses this interface.
    pub(super) fn is_used_by_ours(&self, interface: u32) -> bool {
        self.by_interface.get(&interface).is_some_and(|users| users.ours > 0)
    }

    /// The destinations of others' routes that use this interface.
    pub(super) fn of_others_by(&self, interface: u32) -> impl Iterator<Item = &Prefix> {
        self.by_interface.get(&interface).into_iter().flat_map(|users| users.others.keys())
    }

    /// The kernel has put it in place of the first one of its key.
    pub(super) fn replace(&mut self, route: KernelRoute) {
        let has_its_key =
            |old: &&mut KernelRoute| (old.table, old.metric, old.tos) == (route.table, route.metric, route.tos);
        self.edit(route.destination, |routes| match routes.iter_mut().find(has_its_key) {
            Some(old) => *old = route.clone(),
            None => routes.push(route.clone()),
        });
    }

    /// Nothing of others leaves by this interface any more.
    pub(super) fn forget_interface(&mut self, index: u32) {
        for destination in self.of_others_by(index).copied().collect::<Vec<_>>() {
            self.edit(destination, |routes| {
                routes.retain_mut(|route| {
                    let leaves_here = route.uses(index);
                    route.hops.retain(|hop| hop.interface != Some(index));
                    !(leaves_here && route.hops.is_empty())
                });
            });
        }
    }

    /// The kernel has one more.
    pub(super) fn insert(&mut self, route: KernelRoute) {
        self.edit(route.destination, |routes| routes.push(route));
    }

    /// The kernel has lost this one. Says whether it was known.
    pub(super) fn remove(&mut self, route: &KernelRoute) -> bool {
        self.edit(route.destination, |routes| {
            let place = routes.iter().position(|known| known == route);
            place.map(|place| routes.remove(place)).is_some()
        })
    }

    /// The kernel has accepted a change of ours.
    pub(super) fn accepted(&mut self, change: &RouteChange, place: Place) {
        match change {
            RouteChange::Add(route) => self.insert(KernelRoute::made(route, place)),
            RouteChange::Replace(route) => {
                let made = KernelRoute::made(route, place);
                self.edit(route.destination, |routes| {
                    match routes.iter_mut().find(|old| old.has_key_of(route, place)) {
                        Some(old) => *old = made,
                        None => routes.push(made),
                    }
                });
            }
            RouteChange::Delete(route) => {
                self.remove(route);
            }
        }
    }

    /// Changes the routes to one destination.
    fn edit<T>(&mut self, destination: Prefix, change: impl FnOnce(&mut Vec<KernelRoute>) -> T) -> T {
        // Nearly all destinations have one.
        let mut routes = self.by_destination.remove(&destination).unwrap_or_else(|| Vec::with_capacity(1));
        routes.iter().for_each(|route| self.take_user(route));
        let result = change(&mut routes);
        routes.iter().for_each(|route| self.add_user(route));
        if !routes.is_empty() {
            self.by_destination.insert(destination, routes);
        }
        result
    }

    fn add_user(&mut self, route: &KernelRoute) {
        for index in route.hops.iter().filter_map(|hop| hop.interface) {
            let users = self.by_interface.entry(index).or_default();
            match route.is_ours() {
                true => users.ours += 1,
                false => *users.others.entry(route.destination).or_default() += 1,
            }
        }
    }

    fn take_user(&mut self, route: &KernelRoute) {
        for index in route.hops.iter().filter_map(|hop| hop.interface) {
            let Some(users) = self.by_interface.get_mut(&index) else { continue };
            match (route.is_ours(), users.others.get_mut(&route.destination)) {
                (true, _) => users.ours -= 1,
                (false, Some(hops)) if *hops > 1 => *hops -= 1,
                (false, _) => _ = users.others.remove(&route.destination),
            }
            if *users == Users::default() {
                self.by_interface.remove(&index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PROTOCOL;
    use super::super::route::KernelHop;
    use super::*;

    fn route(destination: &str, protocol: u8, interfaces: &[u32]) -> KernelRoute {
        let hop = |interface: &u32| KernelHop { gateway: None, interface: Some(*interface), weight: 0 };
        KernelRoute {
            destination: destination.parse().expect("a prefix"),
            kind: RouteKind::Unicast,
            hops: interfaces.iter().map(hop).collect(),
            nexthop_object: None,
            protocol,
            table: MAIN_TABLE,
            metric: 0,
            tos: 0,
        }
    }

    #[test]
    fn who_uses_an_interface_is_known_without_a_look_at_all_routes() {
        let all = [
            route("10.244.1.0/24", PROTOCOL, &[2]),
            route("10.244.2.0/24", PROTOCOL, &[2]),
            route("10.0.0.0/8", 4, &[2, 3]),
            route("10.244.0.7/32", 4, &[3]),
        ];
        let mut present = Present::of(all.clone(), Place::default());
        let others = |present: &Present, interface| present.of_others_by(interface).map(ToString::to_string).collect();
        let of = |present: &Present, interface| -> (bool, Vec<String>) {
            (present.is_used_by_ours(interface), others(present, interface))
        };
        assert_eq!(of(&present, 2), (true, vec!["10.0.0.0/8".to_owned()]));
        assert_eq!(of(&present, 3), (false, vec!["10.0.0.0/8".to_owned(), "10.244.0.7/32".to_owned()]));
        present.forget_interface(3);
        let left = [all[0].clone(), all[1].clone(), route("10.0.0.0/8", 4, &[2])];
        assert_eq!(present, Present::of(left, Place::default()));
        assert!(present.remove(&all[0]) && present.remove(&all[1]) && !present.remove(&all[1]));
        assert!(!present.is_used_by_ours(2));
    }
}
