//! What to change in the kernel so that the wanted routes are there: the pure difference.
//!
//! The kernel tells routes apart by destination, metric and type of service. IPv4 keeps several
//! under one such key in a row; IPv6 makes them hops of one multipath route. So a route is added
//! only where its key is free (`NLM_F_EXCL`), and replaced only where ours is the one in place.

use std::collections::{BTreeMap, BTreeSet};

use super::change::RouteChange;
use super::place::Place;
use super::present::Present;
use super::route::KernelRoute;
use super::standing::{Carrier, RouteFailure};
use crate::model::{FibRoute, FibWish, Prefix, Rank, Target};

/// What to do, and what is settled whatever we do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoutePlan {
    /// The changes, in an order that never leaves a wanted destination without its route.
    pub changes: Vec<RouteChange>,
    /// Wanted routes that will not carry packets even when the changes are made, and why. The others
    /// do: those in place already, and those that a change makes.
    pub failed: BTreeMap<FibRoute, RouteFailure>,
    /// Who carries the destinations that are only asked about.
    pub carried: BTreeMap<Prefix, Carrier>,
}

/// What the kernel is like, besides its routes.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// Where our routes live.
    pub place: Place,
    /// The indices of interfaces that nothing gets out of.
    pub down: &'a BTreeSet<u32>,
}

/// Compares what is wanted with what the kernel has for these destinations.
///
/// Touches only routes of our protocol; those are ours in every table. Of two wanted routes of one
/// destination and rank the one already in place stays, else the first is made.
pub fn plan(
    wish: &FibWish,
    present: &Present,
    destinations: impl IntoIterator<Item = Prefix>,
    around: Surroundings<'_>,
) -> RoutePlan {
    let mut result = RoutePlan::default();
    let mut deletions = Vec::new();
    for destination in destinations {
        settle(wish.to(&destination), present.to(&destination), around, &mut result, &mut deletions);
        if wish.is_asked(&destination) {
            let carrier = present.carrier(&destination, around.place);
            result.carried.extend(carrier.map(|carrier| (destination, carrier)));
        }
    }
    result.changes.append(&mut deletions);
    result
}

/// Every destination that a wish and the kernel have something of ours for.
pub fn all_destinations(wish: &FibWish, present: &Present) -> BTreeSet<Prefix> {
    wish.destinations().copied().chain(present.ours()).collect()
}

/// One destination: the routes wanted to it against all that the kernel has for it.
fn settle(
    wanted: &[FibRoute],
    here: &[KernelRoute],
    around: Surroundings<'_>,
    result: &mut RoutePlan,
    deletions: &mut Vec<RouteChange>,
) {
    let mut ours: Vec<&KernelRoute> = here.iter().filter(|route| route.is_ours()).collect();
    for rank in [Rank::Direct, Rank::Learned, Rank::LastResort] {
        let rivals: Vec<_> = wanted.iter().filter(|route| route.rank == rank).collect();
        if let Some(&first) = rivals.first() {
            let in_place =
                rivals.iter().copied().find(|wanted| here.iter().any(|route| route.is(wanted, around.place)));
            let chosen = in_place.unwrap_or(first);
            settle_rank(chosen, here, &mut ours, around, result);
            let contested = || RouteFailure::Contested { to: chosen.target.clone() };
            result
                .failed
                .extend(rivals.iter().filter(|rival| **rival != chosen).map(|rival| ((*rival).clone(), contested())));
        }
    }
    deletions.extend(ours.into_iter().map(|route| RouteChange::Delete(route.clone())));
}

/// One wanted route: takes what it needs of `ours`; what is left there in the end goes.
fn settle_rank(
    chosen: &FibRoute,
    here: &[KernelRoute],
    ours: &mut Vec<&KernelRoute>,
    around: Surroundings<'_>,
    result: &mut RoutePlan,
) {
    let place = around.place;
    let rivals = || here.iter().filter(|route| route.is_rival_in(place));
    let holder = rivals().find(|route| route.has_key_of(chosen, place));
    if let Some(kept) = ours.iter().position(|route| route.is(chosen, place)) {
        ours.remove(kept);
    } else if holder.is_none() {
        match ours.iter().position(|route| route.has_key_of(chosen, place)) {
            Some(first) => {
                // The kernel replaces the first of its key; the others go by name.
                ours.remove(first);
                result.changes.push(RouteChange::Replace(chosen.clone()));
            }
            None => result.changes.push(RouteChange::Add(chosen.clone())),
        }
    }
    let deciding = match chosen.rank {
        // That somebody else has a route is what it waits for; only in its own place nobody may be.
        Rank::LastResort => holder,
        _ => rivals().filter(|route| route.metric <= place.metric(chosen.rank)).min_by_key(|route| route.metric),
    };
    let failure = match deciding {
        Some(other) => Some(RouteFailure::OwnedByOther { protocol: other.protocol }),
        None => is_cut_off(chosen, around.down).then_some(RouteFailure::NoCarrier),
    };
    result.failed.extend(failure.map(|failure| (chosen.clone(), failure)));
}

/// Whether nothing gets out by any of its next hops.
fn is_cut_off(route: &FibRoute, down: &BTreeSet<u32>) -> bool {
    match &route.target {
        Target::Blackhole => false,
        Target::Via(hops) => hops.iter().all(|hop| hop.interface.is_some_and(|interface| down.contains(&interface))),
    }
}

#[cfg(test)]
mod tests;
