//! What we know of the kernel's routes and links, and what an event changes about it: pure.

use std::collections::{BTreeMap, BTreeSet};

use super::change::RouteChange;
use super::messages::{Event, Link};
use super::place::Place;
use super::plan::Surroundings;
use super::present::Present;
use super::route::KernelRoute;
use crate::model::{FibWish, Prefix};

/// What is to be done about an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing that is wanted changed.
    Nothing,
    /// One destination is to be looked at again.
    Settle(Prefix),
    /// Who carries the destinations in it that are only asked about may be another now.
    SettleWithin(Prefix),
    /// What the kernel refused may be possible now.
    TryAgain,
    /// What is known may be wrong: the kernel does not tell all that came with it.
    ReadAgain,
}

/// The kernel's routes that can matter to us, and its links.
#[derive(Debug, Clone)]
pub(super) struct Known {
    place: Place,
    present: Present,
    links: BTreeMap<u32, LinkState>,
    down: BTreeSet<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LinkState {
    is_up: bool,
    has_carrier: bool,
}

impl Known {
    /// From complete lists.
    pub(super) fn new(
        routes: impl IntoIterator<Item = KernelRoute>,
        links: impl IntoIterator<Item = Link>,
        place: Place,
    ) -> Self {
        let links: BTreeMap<_, _> = links.into_iter().map(|link| (link.index, LinkState::of(&link))).collect();
        let down = links.iter().filter(|(_, state)| !state.carries()).map(|(index, _)| *index).collect();
        Self { place, present: Present::of(routes, place), links, down }
    }

    pub(super) fn present(&self) -> &Present {
        &self.present
    }

    pub(super) fn around(&self) -> Surroundings<'_> {
        Surroundings { place: self.place, down: &self.down }
    }

    /// The kernel has accepted a change of ours.
    pub(super) fn accepted(&mut self, change: &RouteChange) {
        self.present.accepted(change, self.place);
    }

    /// Others changed something.
    pub(super) fn see(&mut self, event: Event, wish: &FibWish) -> Effect {
        match event {
            Event::RouteGone(route) if self.is_of_use(&route) => {
                let matters = matters(&route, wish);
                match (self.present.remove(&route), matters) {
                    (true, true) => Effect::Settle(route.destination),
                    (false, true) => Effect::ReadAgain,
                    (_, false) => asked_within(route.destination, wish),
                }
            }
            // Which place a route took among others of its key, or which hop of one, is not told.
            Event::Route(route) | Event::Replaced(route) if matters(&route, wish) && self.is_of_use(&route) => {
                Effect::ReadAgain
            }
            Event::Route(route) if self.is_of_use(&route) => {
                let destination = route.destination;
                self.present.insert(route);
                asked_within(destination, wish)
            }
            Event::Replaced(route) if self.is_of_use(&route) => {
                let destination = route.destination;
                self.present.replace(route);
                asked_within(destination, wish)
            }
            Event::Link(link) => self.see_link(link.index, Some(LinkState::of(&link)), wish),
            Event::LinkGone(index) => self.see_link(index, None, wish),
            Event::Address => Effect::TryAgain,
            Event::AddressGone(index) if self.is_used(index, wish) || self.carries_for(index, wish) => {
                Effect::ReadAgain
            }
            Event::RouteGone(_) | Event::Route(_) | Event::Replaced(_) | Event::AddressGone(_) | Event::Other => {
                Effect::Nothing
            }
        }
    }

    /// IPv4 does not tell which routes went with a link, nor which next hops came back with it.
    fn see_link(&mut self, index: u32, state: Option<LinkState>, wish: &FibWish) -> Effect {
        let before = match state {
            Some(state) => self.links.insert(index, state),
            None => self.links.remove(&index),
        };
        if before == state {
            return Effect::Nothing;
        }
        let carries = state.is_some_and(LinkState::carries);
        // Of a link that is gone the kernel refuses routes, so that there is nothing to remember.
        if state.is_some() && !carries {
            self.down.insert(index);
        } else {
            self.down.remove(&index);
        }
        if self.is_used(index, wish) || self.carries_for(index, wish) {
            return Effect::ReadAgain;
        }
        if !state.is_some_and(|state| state.is_up) {
            self.present.forget_interface(index);
        }
        if carries { Effect::TryAgain } else { Effect::Nothing }
    }

    fn is_of_use(&self, route: &KernelRoute) -> bool {
        Present::is_of_use(route, self.place)
    }

    /// Whether a route of others leaves by this interface that carries what is only asked about.
    fn carries_for(&self, index: u32, wish: &FibWish) -> bool {
        self.present.of_others_by(index).any(|destination| wish.asked_in(*destination).next().is_some())
    }

    /// Whether a route that is ours or wanted leaves by this interface.
    fn is_used(&self, index: u32, wish: &FibWish) -> bool {
        wish.may_leave_by(index)
            || self.present.is_used_by_ours(index)
            || self.present.of_others_by(index).any(|destination| !wish.to(destination).is_empty())
    }
}

impl LinkState {
    fn of(link: &Link) -> Self {
        Self { is_up: link.is_up, has_carrier: link.has_carrier }
    }

    fn carries(self) -> bool {
        self.is_up && self.has_carrier
    }
}

fn asked_within(prefix: Prefix, wish: &FibWish) -> Effect {
    if wish.asked_in(prefix).next().is_some() { Effect::SettleWithin(prefix) } else { Effect::Nothing }
}

fn matters(route: &KernelRoute, wish: &FibWish) -> bool {
    route.is_ours() || !wish.to(&route.destination).is_empty()
}
