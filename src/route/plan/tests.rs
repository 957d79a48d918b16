//! What the planner makes of a cluster in which agents answer, hang, lack routes or cannot reach each other.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::model::views::Condition;
use crate::route::cases::{World, name, node, report};

fn condition(status: Truth, reason: &str) -> Condition {
    Condition { status, reason: reason.to_owned(), message: String::new() }
}

/// Cuts a node off from so many of its witnesses, the first.
fn cut(world: &mut World, number: usize, witnesses: usize) {
    let cut = world.witnesses(number).into_iter().take(witnesses).map(|witness| (witness, name(number)));
    world.cut.extend(cut);
}

/// Cuts a node off from all others.
fn cut_from_all(world: &mut World, number: usize) {
    let others = world.planner.observed().nodes.keys().filter(|other| **other != name(number)).cloned();
    let cut: Vec<_> = others.map(|other| (other, name(number))).collect();
    world.cut.extend(cut);
}

/// Agents look at the world again.
fn look(world: &mut World) {
    world.planner.look_at_all();
    world.settle();
}

#[test]
fn the_first_node_needs_no_witness_and_the_next_has_the_first() {
    let mut world = World::new(Responsibility::Everything);
    for (number, want) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 5)] {
        world.put(node(number));
        world.settle();
        assert!(world.is_available(number), "n{number}");
        assert_eq!(world.witnesses(number).len(), want, "n{number}");
    }
    assert!((1..=7).all(|number| world.witnesses(number).len() == 5), "those of the first days have five as well");
}

#[test]
fn a_join_costs_six_writes_and_what_the_agent_says_of_its_start() {
    let mut world = World::settled(20);
    world.put(node(21));
    world.settle();
    assert!(world.is_available(21));
    // Its route, three witnesses, its condition; its agent's report when it starts and when it has its routes.
    assert_eq!((world.route_writes, world.condition_writes, world.report_writes), (1, 1, 3 + 1));
    world.start_counting();
    world.pass(3600);
    assert_eq!((world.route_writes, world.condition_writes, world.report_writes), (0, 0, 0));
}

#[test]
fn a_node_has_its_time_to_join_from_when_it_can_be_reached() {
    let mut world = World::settled(7);
    world.put(NodeView { addresses: Vec::new(), ..node(8) });
    world.pass(60);
    world.put(NodeView { pod_cidrs: Vec::new(), ..node(8) });
    world.pass(60);
    assert_eq!(world.network(8), None);
    world.hung.insert(name(8));
    world.put(node(8));
    world.pass(4);
    assert_eq!(world.network(8), None);
    world.pass(2);
    assert!(!world.is_available(8) && world.network(8).is_some());
}

#[test]
fn a_node_that_joins_five_thousand_has_a_handful_of_them_looked_at() {
    let mut world = World::settled(0);
    for number in 1..=5000 {
        world.put(node(number));
    }
    world.settle();
    assert!((1..=5000).all(|number| world.is_available(number)));
    let most = (1..=5000).flat_map(|number| world.witnesses(number)).fold(BTreeMap::new(), |mut load, witness| {
        *load.entry(witness).or_insert(0) += 1;
        load
    });
    assert!(most.values().all(|count| *count <= 60), "{:?}", most.values().max());
    world.start_counting();
    world.put(node(5001));
    world.settle();
    assert!(world.is_available(5001));
    assert!(world.looks <= 40, "{} were looked at", world.looks);
}

#[test]
fn a_node_without_an_agent_stays_unavailable_and_says_so() {
    let mut world = World::settled(7);
    world.hung.insert(name(8));
    world.put(node(8));
    world.pass(4);
    assert_eq!(world.network(8), None, "it has its time to join");
    world.pass(2);
    let told = "Cairn's agent has never reported from this node; does its pod run there?";
    assert_eq!(world.network(8), Some((Truth::True, told)));
    assert_eq!(world.notes(8), ["FailedToCreateRoute"]);
    world.hung.clear();
    world.settle();
    assert!(world.is_available(8) && world.notes(8).is_empty());
}

#[test]
fn a_report_of_another_boot_or_node_or_version_is_no_answer() {
    for (what, edit) in [
        ("boot", (|node| node.boot_id = Some("boot-2".to_owned())) as fn(&mut NodeView)),
        ("uid", |node| node.uid = "uid-2".to_owned()),
        ("pod CIDRs", |node| node.pod_cidrs = vec!["10.9.9.0/24".parse().expect("a prefix")]),
    ] {
        let mut world = World::settled(7);
        world.hung.extend((1..=7).map(name));
        world.edit(3, |node| {
            edit(node);
            node.network_unavailable = None;
        });
        world.pass(8);
        assert!(!world.is_available(3), "another {what}");
    }
}

#[test]
fn silence_never_turns_a_condition_that_is_false() {
    for reason in ["RouteCreated", "CalicoIsUp"] {
        let mut world = World::settled(12);
        for number in 1..=12 {
            world.edit(number, |node| node.network_unavailable = Some(condition(Truth::False, reason)));
        }
        world.hung.extend((1..=12).map(name));
        world.edit(1, |node| node.boot_id = Some("boot-2".to_owned()));
        world.edit(2, |node| node.addresses[0].address = "10.90.9.9".to_owned());
        world.edit(3, |node| node.ready = Some(Truth::Unknown));
        let all: Vec<_> = world.planner.observed().node_reports.keys().cloned().collect();
        all.iter().skip(4).for_each(|name| world.planner.report(name, None));
        world.pass(3600);
        assert!((1..=12).all(|number| world.is_available(number)), "{reason}");
    }
}

#[test]
fn a_silent_witness_is_passed_over_after_ten_seconds() {
    let mut world = World::settled(20);
    let asked = {
        let mut probe = World::settled(20);
        probe.put(node(21));
        probe.settle();
        probe.witnesses(21)
    };
    world.hung.extend(asked.iter().take(2).cloned());
    world.put(node(21));
    world.pass(9);
    assert!(!world.is_available(21), "one of three has answered");
    assert_eq!(world.witnesses(21), asked);
    world.pass(2);
    assert!(world.is_available(21), "{:?}", world.network(21));
    let after = world.witnesses(21);
    assert!(after[..3].iter().all(|witness| !asked[..2].contains(witness)), "{asked:?} to {after:?}");
}

#[test]
fn while_nobody_answers_ever_fewer_writes_ask() {
    let mut world = World::settled(30);
    world.hung.extend((1..=30).map(name));
    world.put(node(31));
    world.pass(600);
    assert!(!world.is_available(31));
    assert!(world.route_writes <= 20, "{} writes", world.route_writes);
}

#[test]
fn a_denial_by_three_of_five_turns_the_condition_after_a_minute_and_a_second_opinion() {
    let mut world = World::settled(30);
    let first = world.witnesses(7);
    cut_from_all(&mut world, 7);
    look(&mut world);
    world.pass(59);
    assert!(world.is_available(7));
    assert_eq!(world.witnesses(7), first);
    world.pass(2);
    assert!(world.witnesses(7).iter().all(|witness| !first.contains(witness)), "others are asked");
    let (status, told) = world.network(7).expect("a condition");
    assert_eq!(status, Truth::True);
    assert!(told.starts_with("5 of 5 other nodes have no route to it: "), "{told}");
    assert!(world.witnesses(7).iter().all(|witness| told.contains(&format!("{witness} (cut)"))), "{told}");
    assert_eq!(world.notes(7), ["FailedToCreateRoute"]);

    world.cut.clear();
    world.pass(1);
    assert!(world.is_available(7), "and back at once");
}

#[test]
fn a_denial_that_ends_within_a_minute_or_that_others_do_not_share_is_none() {
    for (name_of_case, cut_witnesses, seconds) in [("two of five", 2, 3600), ("three, for a while", 3, 50)] {
        let mut world = World::settled(30);
        cut(&mut world, 7, cut_witnesses);
        look(&mut world);
        world.pass(seconds);
        world.cut.clear();
        world.pass(3600);
        assert!(world.is_available(7), "{name_of_case}");
        assert_eq!((world.condition_writes, world.notes(7).len()), (0, 0), "{name_of_case}");
    }
    let mut world = World::settled(30);
    let first = world.witnesses(7);
    cut(&mut world, 7, 5);
    look(&mut world);
    world.pass(3600);
    assert!(world.is_available(7), "others say otherwise");
    assert_eq!((world.route_writes, world.condition_writes), (1, 0));
    assert!(world.witnesses(7).iter().all(|witness| !first.contains(witness)));
}

#[test]
fn with_fewer_than_five_others_the_majority_of_all_decides() {
    for (nodes, cut_from, want) in
        [(2, 1, false), (3, 1, true), (3, 2, false), (4, 1, true), (4, 2, false), (5, 2, true)]
    {
        let mut world = World::settled(nodes);
        cut(&mut world, 1, cut_from);
        look(&mut world);
        world.pass(100);
        assert_eq!(world.is_available(1), want, "{cut_from} of {} others deny", nodes - 1);
    }
}

#[test]
fn a_node_that_is_not_ready_is_not_judged_by_its_routes() {
    let mut world = World::settled(30);
    world.edit(7, |node| node.ready = Some(Truth::Unknown));
    cut_from_all(&mut world, 7);
    look(&mut world);
    world.pass(3600);
    assert!(world.is_available(7));
}

#[test]
fn an_agent_that_lacks_many_routes_is_at_fault_itself() {
    let mut world = World::settled(30);
    let subject = world.witnesses(7)[0].clone();
    let number: usize = subject.as_str()[1..].parse().expect("a number");
    world.lacking.insert(subject.clone(), 4);
    let all: Vec<_> = (1..=30).filter(|other| *other != number).map(|other| (subject.clone(), name(other))).collect();
    world.cut.extend(all);
    look(&mut world);
    assert_eq!(world.notes(number), ["RoutesIncomplete"]);
    assert!(world.is_available(number), "for ten seconds it may be an interface that flaps");
    world.pass(11);
    let (status, told) = world.network(number).expect("a condition");
    assert_eq!(status, Truth::True);
    assert!(told.starts_with("this node itself lacks routes to 4 others"), "{told}");
    world.pass(3600);
    assert!((1..=30).filter(|other| *other != number).all(|other| world.is_available(other)), "it taints nobody else");
    assert!(!(1..=30).any(|other| world.witnesses(other).contains(&subject)), "and is nobody's witness");
}

#[test]
fn when_many_nodes_would_lose_their_network_none_does() {
    let mut world = World::settled(30);
    for number in 1..=4 {
        cut_from_all(&mut world, number);
    }
    // Nodes that are cut off still see the others.
    look(&mut world);
    world.pass(300);
    assert!((1..=30).all(|number| world.is_available(number)), "three of thirty is the limit");
    assert!(world.planner.is_held());
    assert!((1..=4).all(|number| world.notes(number) == ["RouteStormHeld"]));
    let fourth = name(4);
    world.cut.retain(|(_, to)| *to != fourth);
    world.pass(60);
    let unavailable: Vec<_> = (1..=30).filter(|number| !world.is_available(*number)).collect();
    assert_eq!(unavailable, [1, 2, 3]);
    assert!(!world.planner.is_held());
    cut_from_all(&mut world, 20);
    look(&mut world);
    world.pass(400);
    assert!(world.is_available(20), "those of the last ten minutes count");
    world.pass(300);
    assert!(!world.is_available(20));
}

#[test]
fn a_condition_of_others_makes_way_and_only_the_wording_is_written_seldom() {
    let mut world = World::settled(7);
    world.edit(1, |node| node.network_unavailable = Some(condition(Truth::False, "CalicoIsUp")));
    world.settle();
    assert_eq!(world.view(1).network_unavailable.as_ref().map(|known| known.reason.as_str()), Some("RouteCreated"));

    world.hung.insert(name(8));
    world.put(NodeView { network_unavailable: Some(condition(Truth::True, "NoRouteCreated")), ..node(8) });
    world.pass(6);
    let told = world.network(8).expect("a condition").1.to_owned();
    assert!(told.contains("never reported"), "{told}");
    world.planner.report(&name(8), Some(Arc::new(report(8))));
    world.pass(5);
    assert_eq!(world.network(8).expect("a condition").1, told);
    world.pass(6);
    assert!(world.network(8).expect("a condition").1.contains("does not act on"), "{:?}", world.network(8));
}

#[test]
fn a_witness_that_is_away_for_a_minute_is_replaced() {
    let mut world = World::settled(30);
    let before = world.witnesses(7);
    let gone: usize = before[1].as_str()[1..].parse().expect("a number");
    world.edit(gone, |node| node.ready = Some(Truth::Unknown));
    world.pass(59);
    assert_eq!((world.witnesses(7), world.route_writes), (before.clone(), 0));
    world.edit(gone, |node| node.ready = Some(Truth::True));
    world.pass(100);
    assert_eq!((world.witnesses(7), world.route_writes), (before.clone(), 0), "it came back");
    world.edit(gone, |node| node.ready = Some(Truth::Unknown));
    world.pass(61);
    let after = world.witnesses(7);
    assert!(after.len() == 5 && !after.contains(&name(gone)), "{after:?}");
    assert!((1..=30).all(|number| world.is_available(number)));
}

#[test]
fn a_node_that_is_registered_again_is_another() {
    let mut world = World::settled(7);
    let again = NodeView {
        uid: "uid-again".to_owned(),
        pod_cidrs: vec!["10.244.99.0/24".parse().expect("a prefix")],
        ..node(3)
    };
    world.put(again);
    world.settle();
    let route = &world.planner.observed().node_routes[&name(3)];
    assert_eq!(
        (route.owner_uid.as_deref(), route.spec.pod_cidrs.as_slice()),
        (Some("uid-again"), &["10.244.99.0/24".to_owned()][..])
    );
    assert!(world.is_available(3));
    world.remove(3);
    world.settle();
    assert!(!world.planner.observed().node_routes.contains_key(&name(3)));
}

#[test]
fn where_routes_are_left_alone_nodes_are_reached_and_nothing_is_judged() {
    let mut world = World::new(Responsibility::Nothing);
    for number in 1..=4 {
        world.put(node(number));
    }
    world.pass(3600);
    assert_eq!((world.route_writes, world.condition_writes), (4, 0));
    let specs: Vec<_> = world.planner.observed().node_routes.values().map(|route| route.spec.clone()).collect();
    assert!(
        specs.iter().all(|spec| spec.pod_cidrs.is_empty() && spec.witnesses.is_empty() && spec.addresses.len() == 1)
    );
}

#[test]
fn a_pod_cidr_outside_the_cluster_is_told_and_left_alone() {
    let mut world = World::new(Responsibility::Within(vec!["10.244.0.0/16".parse().expect("a prefix")]));
    world.put(NodeView { pod_cidrs: vec!["192.0.2.0/24".parse().expect("a prefix")], ..node(1) });
    world.put(node(2));
    world.pass(60);
    assert_eq!((world.network(1), world.notes(1)), (None, vec!["PodCIDROutsideCluster"]));
    assert!(world.is_available(2));
}

/// What can happen to a cluster of eight.
#[derive(Debug, Clone)]
enum Happening {
    Join(usize),
    Leave(usize),
    Reboot(usize),
    Ready(usize, bool),
    Hang(usize, bool),
    Cut(usize, usize, bool),
    Pass(u64),
}

fn happenings() -> impl Strategy<Value = Happening> {
    let number = 1..=8usize;
    prop_oneof![
        number.clone().prop_map(Happening::Join),
        number.clone().prop_map(Happening::Leave),
        number.clone().prop_map(Happening::Reboot),
        (number.clone(), any::<bool>()).prop_map(|(n, is)| Happening::Ready(n, is)),
        (number.clone(), any::<bool>()).prop_map(|(n, is)| Happening::Hang(n, is)),
        (number.clone(), number, any::<bool>()).prop_map(|(from, to, is)| Happening::Cut(from, to, is)),
        (1..100u64).prop_map(Happening::Pass),
    ]
}

fn happen(world: &mut World, what: &Happening) {
    let is_there = |world: &World, number: usize| world.planner.observed().nodes.contains_key(&name(number));
    match *what {
        Happening::Join(number) if !is_there(world, number) => world.put(node(number)),
        Happening::Leave(number) => world.remove(number),
        Happening::Reboot(number) if is_there(world, number) => {
            let boot_id = format!("boot-{}", world.now.since(Moment::default()).as_secs());
            world.edit(number, |node| node.boot_id = Some(boot_id));
        }
        Happening::Ready(number, is) if is_there(world, number) => {
            world.edit(number, |node| node.ready = Some(if is { Truth::True } else { Truth::Unknown }));
        }
        Happening::Hang(number, true) => drop(world.hung.insert(name(number))),
        Happening::Hang(number, false) => drop(world.hung.remove(&name(number))),
        Happening::Cut(from, to, true) => drop(world.cut.insert((name(from), name(to)))),
        Happening::Cut(from, to, false) => drop(world.cut.remove(&(name(from), name(to)))),
        Happening::Pass(seconds) => world.pass(seconds),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_settles_and_what_was_not_looked_at_needed_no_look(
        happenings in proptest::collection::vec(happenings(), 1..40),
    ) {
        let mut world = World::new(Responsibility::Everything);
        for what in &happenings {
            happen(&mut world, what);
            world.settle();
            // Looking at everything finds nothing that looking at what changed has missed.
            let mut again = world.planner.clone();
            again.look_at_all();
            let plan = again.plan(world.now);
            prop_assert!(plan.routes.is_empty() && plan.conditions.is_empty(), "{:?} {:?}", plan.routes, plan.conditions);
        }
    }

    #[test]
    fn whoever_hangs_no_condition_turns(happenings in proptest::collection::vec(happenings(), 1..40)) {
        let mut world = World::settled(8);
        for what in &happenings {
            let is_silence = matches!(what, Happening::Reboot(_) | Happening::Ready(..) | Happening::Hang(..) | Happening::Pass(_));
            if is_silence {
                happen(&mut world, what);
                world.settle();
            }
        }
        prop_assert!((1..=8).all(|number| world.is_available(number)));
    }

    #[test]
    fn once_all_is_well_every_node_is_available(happenings in proptest::collection::vec(happenings(), 1..40)) {
        let mut world = World::new(Responsibility::Everything);
        for what in &happenings {
            happen(&mut world, what);
            world.settle();
        }
        world.hung.clear();
        world.cut.clear();
        let numbers: Vec<usize> = (1..=8).filter(|number| world.planner.observed().nodes.contains_key(&name(*number))).collect();
        for number in &numbers {
            world.edit(*number, |node| node.ready = Some(Truth::True));
        }
        world.pass(400);
        prop_assert!(numbers.iter().all(|number| world.is_available(*number)));
    }
}
