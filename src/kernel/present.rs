//! The kernel's routes as far as they can matter to us, by destination.

use std::collections::BTreeMap;

use super::place::{MAIN_TABLE, Place};
use super::plan::RouteChange;
use super::route::{KernelRoute, RouteKind};
use super::standing::{Carrier, Protocol};
use crate::model::Prefix;

/// Every route of our table and of the main one, and ours in every other.
///
/// Others' routes to destinations that nobody asked for are kept as well: the next wish may.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Present(BTreeMap<Prefix, Vec<KernelRoute>>);

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
        self.0.get(destination).map(Vec::as_slice).unwrap_or_default()
    }

    /// The destinations with a route of ours.
    pub fn ours(&self) -> impl Iterator<Item = Prefix> {
        self.0.iter().filter(|(_, routes)| routes.iter().any(KernelRoute::is_ours)).map(|(destination, _)| *destination)
    }

    /// All of them.
    pub(super) fn routes(&self) -> impl Iterator<Item = &KernelRoute> {
        self.0.values().flatten()
    }

    /// The kernel has put it in place of the first one of its key.
    pub(super) fn replace(&mut self, route: KernelRoute) {
        let routes = self.0.entry(route.destination).or_default();
        let has_its_key =
            |old: &&mut KernelRoute| (old.table, old.metric, old.tos) == (route.table, route.metric, route.tos);
        match routes.iter_mut().find(has_its_key) {
            Some(old) => *old = route,
            None => routes.push(route),
        }
    }

    /// Nothing leaves by this interface any more.
    pub(super) fn forget_interface(&mut self, index: u32) {
        self.0.retain(|_, routes| {
            routes.retain_mut(|route| {
                let leaves_here = route.uses(index);
                route.hops.retain(|hop| hop.interface != Some(index));
                !(leaves_here && route.hops.is_empty())
            });
            !routes.is_empty()
        });
    }

    /// The kernel has one more.
    pub(super) fn insert(&mut self, route: KernelRoute) {
        // Nearly all destinations have one.
        self.0.entry(route.destination).or_insert_with(|| Vec::with_capacity(1)).push(route);
    }

    /// The kernel has lost this one. Says whether it was known.
    pub(super) fn remove(&mut self, route: &KernelRoute) -> bool {
        let Some(routes) = self.0.get_mut(&route.destination) else { return false };
        let Some(place) = routes.iter().position(|known| known == route) else { return false };
        routes.remove(place);
        if routes.is_empty() {
            self.0.remove(&route.destination);
        }
        true
    }

    /// The kernel has accepted a change of ours.
    pub(super) fn accepted(&mut self, change: &RouteChange, place: Place) {
        match change {
            RouteChange::Add(route) => self.insert(KernelRoute::made(route, place)),
            RouteChange::Replace(route) => {
                let routes = self.0.entry(route.destination).or_default();
                let made = KernelRoute::made(route, place);
                match routes.iter_mut().find(|old| old.has_key_of(route, place)) {
                    Some(old) => *old = made,
                    None => routes.push(made),
                }
            }
            RouteChange::Delete(route) => {
                self.remove(route);
            }
        }
    }
}
