//! What to change in the kernel so that the wanted routes are there: the pure difference.
//!
//! The kernel tells routes apart by destination, metric and type of service. IPv4 keeps several
//! under one such key in a row; IPv6 makes them hops of one multipath route. So a route is added
//! only where its key is free (`NLM_F_EXCL`), and replaced only where ours is the one in place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::{METRIC, PROTOCOL, TABLE};
use crate::model::{FibRoute, Prefix};

/// A route as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelRoute {
    /// Its destination.
    pub destination: Prefix,
    /// Its next hop; `None` when it has none (a device or blackhole route) or several.
    pub gateway: Option<IpAddr>,
    /// The index of the interface it leaves through; `None` when it has none or several.
    pub oif: Option<u32>,
    /// Who made it (`rtm_protocol`).
    pub protocol: u8,
    /// The routing table it is in.
    pub table: u32,
    /// Its metric; the smallest decides.
    pub metric: u32,
    /// The type of service it is for; 0 is any.
    pub tos: u8,
}

impl KernelRoute {
    fn is_ours(&self) -> bool {
        self.protocol == PROTOCOL
    }

    fn has_our_key(&self) -> bool {
        self.metric == METRIC && self.tos == 0
    }

    /// What the kernel holds when this wanted route is in place; it finds the interface itself.
    pub(super) fn made(wanted: &FibRoute) -> Self {
        Self {
            destination: wanted.destination,
            gateway: Some(wanted.gateway),
            oif: None,
            protocol: PROTOCOL,
            table: TABLE,
            metric: METRIC,
            tos: 0,
        }
    }

    fn is(&self, wanted: &FibRoute) -> bool {
        self.is_ours()
            && self.has_our_key()
            && self.destination == wanted.destination
            && self.gateway == Some(wanted.gateway)
    }
}

/// One change to the kernel's routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteChange {
    /// Add it; its key is free, and the kernel refuses if that is no longer so.
    Add(FibRoute),
    /// Put it in place of ours under the same key, without a moment between.
    Replace(FibRoute),
    /// Remove this one of ours.
    Delete(KernelRoute),
}

impl RouteChange {
    /// The wanted route this makes, if it makes one.
    pub fn makes(&self) -> Option<FibRoute> {
        match self {
            Self::Add(route) | Self::Replace(route) => Some(*route),
            Self::Delete(_) => None,
        }
    }

    /// The destination it is about.
    pub fn destination(&self) -> Prefix {
        match self {
            Self::Add(route) | Self::Replace(route) => route.destination,
            Self::Delete(route) => route.destination,
        }
    }
}

/// Why a wanted route does not carry its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteFailure {
    /// The gateway is on no network of this node, or the interface is down.
    Unreachable,
    /// A route of another protocol to the same destination decides; ours at most stands behind it.
    OwnedByOther {
        /// Its `rtm_protocol`, as in `/etc/iproute2/rt_protos`.
        protocol: u8,
    },
    /// Another wanted route has the same destination and was there first.
    Contested {
        /// The gateway of the one in place.
        gateway: IpAddr,
    },
    /// This process may not change routes (it lacks CAP_NET_ADMIN).
    Denied,
    /// The kernel refused for another reason.
    Refused {
        /// The error number, as in errno(3).
        errno: i32,
    },
}

impl RouteFailure {
    /// Its kind in one word, for logs and metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::OwnedByOther { .. } => "owned_by_other",
            Self::Contested { .. } => "contested",
            Self::Denied => "denied",
            Self::Refused { .. } => "refused",
        }
    }
}

impl fmt::Display for RouteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("the gateway is on no network of this node"),
            Self::OwnedByOther { protocol } => {
                write!(f, "a route of protocol {protocol} to the same destination decides")
            }
            Self::Contested { gateway } => write!(f, "the destination is already routed to {gateway}"),
            Self::Denied => f.write_str("changing routes takes CAP_NET_ADMIN"),
            Self::Refused { errno } => write!(f, "the kernel refused: {}", std::io::Error::from_raw_os_error(*errno)),
        }
    }
}

/// Where the wanted routes stand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteStatus {
    /// Wanted routes that are in the kernel and decide.
    pub installed: BTreeSet<FibRoute>,
    /// Wanted routes that do not carry their packets, and why.
    pub failed: BTreeMap<FibRoute, RouteFailure>,
    /// How often a route of ours was gone or changed by others and was put back, since the start.
    pub repaired_total: u64,
}

/// What to do, and what is already settled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoutePlan {
    /// The changes, in an order that never leaves a wanted destination without its route.
    pub changes: Vec<RouteChange>,
    /// Wanted routes that are in place and decide.
    pub installed: BTreeSet<FibRoute>,
    /// Wanted routes that cannot carry packets whatever we do.
    pub failed: BTreeMap<FibRoute, RouteFailure>,
}

/// Compares what is wanted with every route the kernel shows.
///
/// Touches only routes of [`PROTOCOL`] in the main table. Of two wanted routes to one destination
/// the one already in place stays, else the one with the lowest gateway is made.
pub fn plan(wanted: &BTreeSet<FibRoute>, present: &[KernelRoute]) -> RoutePlan {
    let mut by_destination: BTreeMap<Prefix, Vec<&KernelRoute>> = BTreeMap::new();
    for route in present.iter().filter(|route| route.table == TABLE) {
        by_destination.entry(route.destination).or_default().push(route);
    }
    let mut result = RoutePlan::default();
    let mut deletions = Vec::new();
    for rivals in by_destination_of(wanted) {
        let here = by_destination.remove(&rivals[0].destination).unwrap_or_default();
        settle(&rivals, &here, &mut result, &mut deletions);
    }
    let unwanted = by_destination.into_values().flatten().filter(|route| route.is_ours());
    deletions.extend(unwanted.map(|route| RouteChange::Delete(*route)));
    result.changes.append(&mut deletions);
    result
}

/// Wanted routes grouped by destination; no group is empty.
fn by_destination_of(wanted: &BTreeSet<FibRoute>) -> Vec<Vec<FibRoute>> {
    let mut groups: Vec<Vec<FibRoute>> = Vec::new();
    for route in wanted {
        match groups.last_mut() {
            Some(group) if group[0].destination == route.destination => group.push(*route),
            _ => groups.push(vec![*route]),
        }
    }
    groups
}

/// One destination: the wanted routes to it against all that the main table has for it.
fn settle(rivals: &[FibRoute], here: &[&KernelRoute], result: &mut RoutePlan, deletions: &mut Vec<RouteChange>) {
    let in_place = rivals.iter().find(|wanted| here.iter().any(|route| route.is(wanted)));
    let chosen = in_place.unwrap_or(&rivals[0]);
    for other in rivals.iter().filter(|rival| *rival != chosen) {
        result.failed.insert(*other, RouteFailure::Contested { gateway: chosen.gateway });
    }

    let foreign = || here.iter().filter(|route| !route.is_ours() && route.tos == 0);
    let key_is_taken = foreign().any(|route| route.has_our_key());
    let mut ours: Vec<&KernelRoute> = here.iter().filter(|route| route.is_ours()).copied().collect();

    if in_place.is_some() {
        let kept = ours.iter().position(|route| route.is(chosen)).expect("the route in place is one of ours");
        ours.remove(kept);
    } else if !key_is_taken {
        match ours.iter().position(|route| route.has_our_key()) {
            Some(first) => {
                // The kernel replaces the first of its key; the others go by name below.
                ours.remove(first);
                result.changes.push(RouteChange::Replace(*chosen));
            }
            None => result.changes.push(RouteChange::Add(*chosen)),
        }
    }
    deletions.extend(ours.into_iter().map(|route| RouteChange::Delete(*route)));

    let deciding = foreign().filter(|route| route.metric <= METRIC).min_by_key(|route| route.metric);
    if let Some(other) = deciding {
        result.failed.insert(*chosen, RouteFailure::OwnedByOther { protocol: other.protocol });
    } else if in_place.is_some() {
        result.installed.insert(*chosen);
    }
}

/// Keeps `present` true after the kernel accepted a change.
pub(super) fn accepted(present: &mut Vec<KernelRoute>, change: &RouteChange) {
    match change {
        RouteChange::Add(route) => present.push(KernelRoute::made(route)),
        RouteChange::Replace(route) => {
            let key = |old: &&mut KernelRoute| {
                old.table == TABLE && old.destination == route.destination && old.has_our_key()
            };
            if let Some(old) = present.iter_mut().find(key) {
                *old = KernelRoute::made(route);
            }
        }
        RouteChange::Delete(route) => {
            if let Some(place) = present.iter().position(|old| old == route) {
                present.swap_remove(place);
            }
        }
    }
}

/// Whether a change to this route can matter to us.
pub(super) fn concerns(wanted: &BTreeSet<FibRoute>, route: &KernelRoute) -> bool {
    let first = FibRoute { destination: route.destination, gateway: IpAddr::from([0, 0, 0, 0]) };
    let is_wanted = || wanted.range(first..).next().is_some_and(|next| next.destination == route.destination);
    route.table == TABLE && (route.is_ours() || is_wanted())
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    fn wanted(destination: &str, gateway: &str) -> FibRoute {
        FibRoute { destination: destination.parse().unwrap(), gateway: gateway.parse().unwrap() }
    }

    fn ours(destination: &str, gateway: &str) -> KernelRoute {
        KernelRoute { oif: Some(2), ..KernelRoute::made(&wanted(destination, gateway)) }
    }

    struct Case {
        name: &'static str,
        wanted: Vec<FibRoute>,
        present: Vec<KernelRoute>,
        changes: Vec<RouteChange>,
        failed: Vec<(FibRoute, RouteFailure)>,
    }

    #[test]
    fn the_plan_makes_what_is_wanted_of_what_is_present() {
        let a = wanted("10.244.2.0/24", "10.90.0.12");
        let a_elsewhere = wanted("10.244.2.0/24", "10.90.0.13");
        let a6 = wanted("fd00:244:2::/64", "fd90::12");
        let here = ours("10.244.2.0/24", "10.90.0.12");
        let here6 = ours("fd00:244:2::/64", "fd90::12");
        let moved = ours("10.244.2.0/24", "10.90.0.99");
        let stray = KernelRoute { metric: 7, ..here };
        let multipath = KernelRoute { gateway: None, oif: None, ..here6 };
        let static_route = KernelRoute { protocol: 4, ..here };
        for case in [
            Case {
                name: "nothing there",
                wanted: vec![a, a6],
                present: vec![],
                changes: vec![RouteChange::Add(a), RouteChange::Add(a6)],
                failed: vec![],
            },
            Case {
                name: "all there",
                wanted: vec![a, a6],
                present: vec![here, here6],
                changes: vec![],
                failed: vec![],
            },
            Case {
                name: "left by an earlier run",
                wanted: vec![a],
                present: vec![here, here6],
                changes: vec![RouteChange::Delete(here6)],
                failed: vec![],
            },
            Case {
                name: "another gateway",
                wanted: vec![a],
                present: vec![moved],
                changes: vec![RouteChange::Replace(a)],
                failed: vec![],
            },
            Case {
                name: "someone appended a hop to ours",
                wanted: vec![a6],
                present: vec![multipath],
                changes: vec![RouteChange::Replace(a6)],
                failed: vec![],
            },
            Case {
                name: "ours under another metric as well",
                wanted: vec![a],
                present: vec![stray],
                changes: vec![RouteChange::Add(a), RouteChange::Delete(stray)],
                failed: vec![],
            },
            Case {
                name: "two of ours under one key",
                wanted: vec![a],
                present: vec![moved, here],
                changes: vec![RouteChange::Delete(moved)],
                failed: vec![],
            },
            Case {
                name: "ours in another table is not ours to judge",
                wanted: vec![],
                present: vec![KernelRoute { table: 100, ..here }],
                changes: vec![],
                failed: vec![],
            },
            Case {
                name: "another's route has our key",
                wanted: vec![a],
                present: vec![static_route],
                changes: vec![],
                failed: vec![(a, RouteFailure::OwnedByOther { protocol: 4 })],
            },
            Case {
                name: "another's route decides before ours",
                wanted: vec![a],
                present: vec![KernelRoute { metric: 0, ..static_route }],
                changes: vec![RouteChange::Add(a)],
                failed: vec![(a, RouteFailure::OwnedByOther { protocol: 4 })],
            },
            Case {
                name: "another's route stands behind ours",
                wanted: vec![a],
                present: vec![here, KernelRoute { metric: 20_000, ..static_route }],
                changes: vec![],
                failed: vec![],
            },
            Case {
                name: "another's unwanted route",
                wanted: vec![],
                present: vec![static_route],
                changes: vec![],
                failed: vec![],
            },
            Case {
                name: "two nodes claim one prefix: the one in place stays",
                wanted: vec![a, a_elsewhere],
                present: vec![ours("10.244.2.0/24", "10.90.0.13")],
                changes: vec![],
                failed: vec![(a, RouteFailure::Contested { gateway: a_elsewhere.gateway })],
            },
        ] {
            let got = plan(&case.wanted.iter().copied().collect(), &case.present);
            assert_eq!(got.changes, case.changes, "{}", case.name);
            assert_eq!(got.failed, case.failed.into_iter().collect(), "{}", case.name);
        }
    }

    #[test]
    fn a_route_concerns_us_when_it_is_ours_or_its_destination_is_wanted() {
        let set = BTreeSet::from([wanted("10.244.2.0/24", "10.90.0.12")]);
        let route = ours("10.244.2.0/24", "10.90.0.1");
        let elsewhere = ours("10.244.3.0/24", "10.90.0.1");
        assert!(concerns(&set, &route));
        assert!(concerns(&set, &elsewhere));
        assert!(concerns(&set, &KernelRoute { protocol: 4, ..route }));
        assert!(!concerns(&set, &KernelRoute { protocol: 4, ..elsewhere }));
        assert!(!concerns(&set, &KernelRoute { table: 100, ..route }));
    }

    /// What the kernel does with a change; refuses what would touch another's route.
    fn apply(present: &mut Vec<KernelRoute>, change: &RouteChange) {
        let same_key = |route: &KernelRoute, new: &FibRoute| {
            route.table == TABLE && route.destination == new.destination && route.has_our_key()
        };
        match change {
            RouteChange::Add(new) => {
                assert!(!present.iter().any(|route| same_key(route, new)), "EEXIST: {new:?}");
                present.push(KernelRoute::made(new));
            }
            RouteChange::Replace(new) => {
                let old = present.iter_mut().find(|route| same_key(route, new)).expect("something to replace");
                assert!(old.is_ours(), "replaces another's route: {old:?}");
                *old = KernelRoute::made(new);
            }
            RouteChange::Delete(old) => {
                assert!(old.is_ours() && old.table == TABLE, "deletes another's route: {old:?}");
                let place = present.iter().position(|route| route == old).expect("something to delete");
                present.remove(place);
            }
        }
    }

    fn destinations() -> impl Strategy<Value = Prefix> {
        prop::sample::select(vec!["10.244.1.0/24", "10.244.2.0/24", "fd00:244:1::/64", "fd00:244:2::/64"])
            .prop_map(|text| text.parse().unwrap())
    }

    fn gateway_for(destination: Prefix, last: u8) -> IpAddr {
        match destination.address() {
            IpAddr::V4(_) => IpAddr::from([10, 90, 0, last]),
            IpAddr::V6(_) => IpAddr::from([0xfd90, 0, 0, 0, 0, 0, 0, u16::from(last)]),
        }
    }

    prop_compose! {
        fn wishes()(destination in destinations(), last in 11u8..14) -> FibRoute {
            FibRoute { destination, gateway: gateway_for(destination, last) }
        }
    }

    prop_compose! {
        fn routes()(
            destination in destinations(),
            last in prop::option::of(11u8..14),
            protocol in prop::sample::select(vec![PROTOCOL, 2, 4]),
            table in prop::sample::select(vec![TABLE, 100]),
            metric in prop::sample::select(vec![0, METRIC, 2000]),
        ) -> KernelRoute {
            let gateway = last.map(|last| gateway_for(destination, last));
            KernelRoute { destination, gateway, oif: Some(2), protocol, table, metric, tos: 0 }
        }
    }

    proptest! {
        #[test]
        fn planning_after_applying_a_plan_yields_nothing(
            wanted in btree_set(wishes(), 0..6),
            present in vec(routes(), 0..8),
        ) {
            // The kernel holds no route twice.
            let mut kernel: Vec<KernelRoute> = Vec::new();
            for route in present {
                if !kernel.contains(&route) {
                    kernel.push(route);
                }
            }
            let foreign = |kernel: &[KernelRoute]| -> Vec<KernelRoute> {
                kernel.iter().filter(|route| !(route.is_ours() && route.table == TABLE)).copied().collect()
            };
            let before = foreign(&kernel);
            let mut known = kernel.clone();
            for change in plan(&wanted, &kernel).changes {
                apply(&mut kernel, &change);
                accepted(&mut known, &change);
            }
            prop_assert_eq!(known.iter().collect::<BTreeSet<_>>(), kernel.iter().collect::<BTreeSet<_>>());
            let again = plan(&wanted, &kernel);
            prop_assert_eq!(&again.changes, &vec![]);
            prop_assert_eq!(foreign(&kernel), before);
            for destination in wanted.iter().map(|route| route.destination).collect::<BTreeSet<_>>() {
                let ours = kernel.iter().filter(|r| r.table == TABLE && r.is_ours() && r.destination == destination);
                prop_assert!(ours.count() <= 1);
            }
            for route in &wanted {
                prop_assert!(again.installed.contains(route) != again.failed.contains_key(route));
            }
        }
    }
}
