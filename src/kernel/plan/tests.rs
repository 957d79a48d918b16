//! What the plan makes of the kernel's routes, and that it ends where it wants to.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::kernel::PROTOCOL;
use crate::kernel::route::RouteKind;
use crate::model::{Hop, Hops};

const STATIC: u8 = 4;

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn hop(gateway: &str) -> Hop {
    Hop { gateway: gateway.parse().expect("an address"), interface: Some(2) }
}

fn direct(destination: &str, gateway: &str) -> FibRoute {
    FibRoute::direct(prefix(destination), hop(gateway))
}

fn learned(destination: &str, gateways: &[&str]) -> FibRoute {
    FibRoute::learned(prefix(destination), Hops::new(gateways.iter().map(|gateway| hop(gateway))).expect("hops"))
}

fn made(wanted: &FibRoute) -> KernelRoute {
    KernelRoute::made(wanted, Place::default())
}

fn plan_all(wanted: &[FibRoute], present: &[KernelRoute], down: &BTreeSet<u32>) -> RoutePlan {
    let place = Place::default();
    let wish = wanted.iter().cloned().collect();
    let present = Present::of(present.iter().cloned(), place);
    plan(&wish, &present, all_destinations(&wish, &present), Surroundings { place, down })
}

struct Case {
    name: &'static str,
    wanted: Vec<FibRoute>,
    present: Vec<KernelRoute>,
    changes: Vec<RouteChange>,
    failed: Vec<(FibRoute, RouteFailure)>,
}

fn check(cases: Vec<Case>) {
    for case in cases {
        let got = plan_all(&case.wanted, &case.present, &BTreeSet::from([7]));
        assert_eq!(got.changes, case.changes, "{}", case.name);
        assert_eq!(got.failed, case.failed.into_iter().collect(), "{}", case.name);
    }
}

#[test]
fn the_plan_makes_what_is_wanted_of_what_is_present() {
    let a = direct("10.244.2.0/24", "10.90.0.12");
    let a6 = direct("fd00:244:2::/64", "fd90::12");
    let (here, here6) = (made(&a), made(&a6));
    let moved = made(&direct("10.244.2.0/24", "10.90.0.99"));
    let stray = KernelRoute { metric: 7, ..here.clone() };
    let elsewhere = KernelRoute { table: 100, ..here.clone() };
    let two_hops = made(&FibRoute { rank: Rank::Direct, ..learned("fd00:244:2::/64", &["fd90::12", "fd90::99"]) });
    let by_object = KernelRoute { nexthop_object: Some(5), ..here.clone() };
    let add = |route: &FibRoute| RouteChange::Add(route.clone());
    let replace = |route: &FibRoute| RouteChange::Replace(route.clone());
    let delete = |route: &KernelRoute| RouteChange::Delete(route.clone());
    let case = |name, wanted: &[&FibRoute], present: &[&KernelRoute], changes| Case {
        name,
        wanted: wanted.iter().copied().cloned().collect(),
        present: present.iter().copied().cloned().collect(),
        changes,
        failed: vec![],
    };
    check(vec![
        case("nothing there", &[&a, &a6], &[], vec![add(&a), add(&a6)]),
        case("all there", &[&a, &a6], &[&here, &here6], vec![]),
        case("left by an earlier run", &[&a], &[&here, &here6], vec![delete(&here6)]),
        case("left in another table by another configuration", &[&a], &[&elsewhere], vec![add(&a), delete(&elsewhere)]),
        case("left in another table, and not wanted", &[], &[&elsewhere], vec![delete(&elsewhere)]),
        case("another gateway", &[&a], &[&moved], vec![replace(&a)]),
        case("someone appended a hop to ours", &[&a6], &[&two_hops], vec![replace(&a6)]),
        case("a nexthop object in place of the hop", &[&a], &[&by_object], vec![replace(&a)]),
        case("ours under another metric as well", &[&a], &[&stray], vec![add(&a), delete(&stray)]),
        case("two of ours under one key", &[&a], &[&moved, &here], vec![delete(&moved)]),
    ]);
}

#[test]
fn the_routes_of_others_are_told_and_left_alone() {
    let a = direct("10.244.2.0/24", "10.90.0.12");
    let here = made(&a);
    let other = KernelRoute { protocol: STATIC, ..here.clone() };
    let owned = || vec![(a.clone(), RouteFailure::OwnedByOther { protocol: STATIC })];
    let last = FibRoute::last_resort(a.destination);
    check(vec![
        Case {
            name: "it has our key",
            wanted: vec![a.clone()],
            present: vec![other.clone()],
            changes: vec![],
            failed: owned(),
        },
        Case {
            name: "it decides before ours",
            wanted: vec![a.clone()],
            present: vec![KernelRoute { metric: 0, ..other.clone() }],
            changes: vec![RouteChange::Add(a.clone())],
            failed: owned(),
        },
        Case {
            name: "it stands behind ours",
            wanted: vec![a.clone()],
            present: vec![here.clone(), KernelRoute { metric: 20_000, ..other.clone() }],
            changes: vec![],
            failed: vec![],
        },
        Case {
            name: "it is in another table",
            wanted: vec![a.clone()],
            present: vec![here.clone(), KernelRoute { metric: 0, table: 100, ..other.clone() }],
            changes: vec![],
            failed: vec![],
        },
        Case {
            name: "nobody wants that destination",
            wanted: vec![],
            present: vec![other.clone()],
            changes: vec![],
            failed: vec![],
        },
        Case {
            name: "a bridge carries what the last resort stands behind",
            wanted: vec![last.clone()],
            present: vec![KernelRoute { metric: 0, protocol: 2, ..other.clone() }],
            changes: vec![RouteChange::Add(last.clone())],
            failed: vec![],
        },
    ]);
}

#[test]
fn of_two_claims_on_a_destination_the_one_in_place_stays() {
    let a = direct("10.244.2.0/24", "10.90.0.12");
    let b = direct("10.244.2.0/24", "10.90.0.13");
    let contested = |route: &FibRoute, holder: &FibRoute| {
        vec![(route.clone(), RouteFailure::Contested { to: holder.target.clone() })]
    };
    check(vec![
        Case {
            name: "the first is made",
            wanted: vec![b.clone(), a.clone()],
            present: vec![],
            changes: vec![RouteChange::Add(b.clone())],
            failed: contested(&a, &b),
        },
        Case {
            name: "the one in place is not the first",
            wanted: vec![a.clone(), b.clone()],
            present: vec![made(&b)],
            changes: vec![],
            failed: contested(&a, &b),
        },
    ]);
}

#[test]
fn ranks_stand_behind_each_other() {
    let near = direct("10.244.2.0/24", "10.90.0.12");
    let far = learned("10.244.2.0/24", &["10.90.0.1", "10.90.0.2"]);
    let last = FibRoute::last_resort(near.destination);
    let all = vec![near.clone(), far.clone(), last.clone()];
    let other_hops = made(&learned("10.244.2.0/24", &["10.90.0.1", "10.90.0.3"]));
    check(vec![
        Case {
            name: "all are made",
            wanted: all.clone(),
            present: vec![],
            changes: all.iter().cloned().map(RouteChange::Add).collect(),
            failed: vec![],
        },
        Case {
            name: "all are there",
            wanted: all.clone(),
            present: all.iter().map(made).collect(),
            changes: vec![],
            failed: vec![],
        },
        Case {
            name: "a router went",
            wanted: vec![far.clone()],
            present: vec![other_hops],
            changes: vec![RouteChange::Replace(far.clone())],
            failed: vec![],
        },
    ]);
}

#[test]
fn a_route_without_carrier_is_made_and_not_said_to_carry() {
    let by =
        |interface| FibRoute::direct(prefix("10.244.2.0/24"), Hop { interface: Some(interface), ..hop("10.90.0.12") });
    let far = |interfaces: [u32; 2]| {
        let hops = interfaces.map(|interface| Hop { interface: Some(interface), ..hop("10.90.0.1") });
        FibRoute::learned(prefix("10.244.3.0/24"), Hops::new(hops).expect("hops"))
    };
    let failed_with =
        |route: FibRoute| plan_all(std::slice::from_ref(&route), &[], &BTreeSet::from([7, 8])).failed.remove(&route);
    assert_eq!(failed_with(by(7)), Some(RouteFailure::NoCarrier));
    assert_eq!(failed_with(by(2)), None);
    assert_eq!(failed_with(far([7, 8])), Some(RouteFailure::NoCarrier));
    assert_eq!(failed_with(far([2, 7])), None, "one of two carries");
}

/// What the kernel does with a change; refuses what would touch another's route.
fn apply(present: &mut Vec<KernelRoute>, change: &RouteChange, place: Place) {
    let same_key =
        |route: &KernelRoute, new: &FibRoute| route.destination == new.destination && route.has_key_of(new, place);
    match change {
        RouteChange::Add(new) => {
            assert!(!present.iter().any(|route| same_key(route, new)), "EEXIST: {new:?}");
            present.push(KernelRoute::made(new, place));
        }
        RouteChange::Replace(new) => {
            let old = present.iter_mut().find(|route| same_key(route, new)).expect("something to replace");
            assert!(old.is_ours(), "replaces another's route: {old:?}");
            *old = KernelRoute::made(new, place);
        }
        RouteChange::Delete(old) => {
            assert!(old.is_ours(), "deletes another's route: {old:?}");
            let place = present.iter().position(|route| route == old).expect("something to delete");
            present.remove(place);
        }
    }
}

fn destinations() -> impl Strategy<Value = Prefix> {
    prop::sample::select(vec!["10.244.1.0/24", "10.244.2.0/24", "fd00:244:1::/64", "fd00:244:2::/64"]).prop_map(prefix)
}

fn hop_for(destination: Prefix, last: u8) -> Hop {
    let gateway = match destination.address() {
        IpAddr::V4(_) => IpAddr::from([10, 90, 0, last]),
        IpAddr::V6(_) => IpAddr::from([0xfd90, 0, 0, 0, 0, 0, 0, u16::from(last)]),
    };
    Hop { gateway, interface: Some(2) }
}

prop_compose! {
    fn wishes()(destination in destinations(), hops in vec(11u8..14, 1..3), rank in 0..3) -> FibRoute {
        let hops = Hops::new(hops.into_iter().map(|last| hop_for(destination, last))).expect("hops");
        match rank {
            0 => FibRoute { rank: Rank::Direct, ..FibRoute::learned(destination, hops) },
            1 => FibRoute::learned(destination, hops),
            _ => FibRoute::last_resort(destination),
        }
    }
}

prop_compose! {
    fn routes()(
        wish in wishes(),
        protocol in prop::sample::select(vec![PROTOCOL, 2, STATIC]),
        table in prop::sample::select(vec![254, 100]),
        metric in prop::sample::select(vec![0, 1024, 1025, 2000, u32::MAX]),
        kind in prop::sample::select(vec![RouteKind::Unicast, RouteKind::Blackhole, RouteKind::Other(7)]),
    ) -> KernelRoute {
        KernelRoute { kind, protocol, table, metric, ..made(&wish) }
    }
}

proptest! {
    #[test]
    fn planning_after_applying_a_plan_yields_nothing(
        wanted in vec(wishes(), 0..6),
        present in vec(routes(), 0..8),
        table in prop::sample::select(vec![254, 100]),
    ) {
        let place = Place::new(table, 1024).expect("a place");
        let around = Surroundings { place, down: &BTreeSet::new() };
        let wish: FibWish = wanted.into_iter().collect();
        // The kernel holds no route twice.
        let mut kernel: Vec<KernelRoute> = Vec::new();
        for route in present {
            if !kernel.contains(&route) {
                kernel.push(route);
            }
        }
        let foreign = |kernel: &[KernelRoute]| -> Vec<KernelRoute> {
            kernel.iter().filter(|route| !route.is_ours()).cloned().collect()
        };
        let before = foreign(&kernel);
        let mut known = Present::of(kernel.iter().cloned(), place);
        let first = plan(&wish, &known, all_destinations(&wish, &known), around);
        for change in &first.changes {
            apply(&mut kernel, change, place);
            known.accepted(change, place);
        }
        let read = Present::of(kernel.iter().cloned(), place);
        let sorted = |present: &Present| { let mut all: Vec<_> = present.routes().cloned().collect(); all.sort(); all };
        prop_assert_eq!(sorted(&known), sorted(&read));
        let again = plan(&wish, &read, all_destinations(&wish, &read), around);
        prop_assert_eq!(&again.changes, &vec![]);
        prop_assert_eq!(&again.failed, &first.failed);
        prop_assert_eq!(foreign(&kernel), before);
        for route in wish.routes().filter(|route| !again.failed.contains_key(route)) {
            prop_assert!(kernel.iter().any(|held| held.is(route, place)), "{:?}", route);
        }
        for held in kernel.iter().filter(|held| held.is_ours()) {
            prop_assert!(wish.routes().any(|route| held.is(route, place)), "not wanted: {:?}", held);
        }
    }

    #[test]
    fn settling_one_destination_after_the_other_is_settling_all(
        wanted in vec(wishes(), 0..6),
        present in vec(routes(), 0..8),
    ) {
        let (place, none) = (Place::default(), BTreeSet::new());
        let around = Surroundings { place, down: &none };
        let wish: FibWish = wanted.into_iter().collect();
        let known = Present::of(present, place);
        let destinations = all_destinations(&wish, &known);
        let whole = plan(&wish, &known, destinations.iter().copied(), around);
        let parts: Vec<_> = destinations.iter().map(|one| plan(&wish, &known, [*one], around)).collect();
        let changes: BTreeSet<_> = parts.iter().flat_map(|part| part.changes.iter().cloned()).collect();
        let failed = parts.into_iter().flat_map(|part| part.failed).collect::<BTreeMap<_, _>>();
        prop_assert_eq!(whole.changes.into_iter().collect::<BTreeSet<_>>(), changes);
        prop_assert_eq!(whole.failed, failed);
    }
}
