//! What MetalLB's unit tests of its allocator show, and what its faults of the past have taught.

use super::changes::World;
use super::*;
use crate::model::PortProtocol::Tcp;

/// The rows AllocateFromPool and Allocate: four Services of four addresses, and two too many.
#[test]
fn allocate_from_a_pool_or_from_any() {
    let one = || pools(vec![pool("test", &["1.2.3.4/31", "1.2.3.10/31", "1000::/127", "2000::/127"], true)]);
    let two = || {
        pools(vec![
            pool("test", &["1.2.3.4/31", "1000::/127"], true),
            pool("test2", &["1.2.3.10/31", "2000::/127"], true),
        ])
    };
    for (row, ground, wish) in [("AllocateFromPool", one(), Some("test")), ("Allocate", two(), None)] {
        for families in [vec![Family::V4], vec![Family::V6], vec![Family::V4, Family::V6]] {
            let mut world = World::of(ground.clone());
            let asks =
                |service: &str| Request { families: families.clone(), wish: asking(&[], wish), ..request(service) };
            let sharing = |port| Sharing {
                key: Some("share".to_owned()),
                ports: BTreeSet::from([(Tcp, port)]),
                ..Sharing::default()
            };
            let has = |world: &World| {
                ["s1", "s2", "s3", "s4", "s5", "s6"]
                    .map(|service| world.ledger.answer(&key(service)).map_or(0, |answer| answer.addresses.len()))
            };
            let all = families.len();
            for service in ["s1", "s2", "s3", "s4", "s5", "s6"] {
                world.set(asks(service));
            }
            assert_eq!(has(&world), [all, all, all, all, 0, 0], "{row} {families:?}");
            world.delete("s1");
            assert_eq!(has(&world), [0, all, all, all, all, 0], "{row} {families:?}: what s1 gave back is s5's");
            world.set(Request { sharing: sharing(80), ..asks("s5") });
            world.set(Request { sharing: sharing(443), ..asks("s6") });
            assert_eq!(has(&world), [0, all, all, all, all, all], "{row} {families:?}: shared");
            assert_eq!(world.has("s5"), world.has("s6"), "{row} {families:?}");
        }
    }
}

/// The row PoolMetrics: what three share is counted once.
#[test]
fn what_is_in_use_is_addresses_and_not_services() {
    let mut world = World::of(pools(vec![pool("test", &["1.2.3.4/30", "1000::4/126"], true)]));
    let counts = |world: &World| {
        let report = world.ledger.report(&name("test")).expect("a report");
        let (v4, v6) = (report.v4.expect("counts"), report.v6.expect("counts"));
        (v4.0 + v6.0, v4.1 + v6.1)
    };
    assert_eq!(counts(&world), (8, 0));
    for (service, port, used) in [("s1", 80, 1), ("s2", 81, 1), ("s3", 82, 1)] {
        let key = Some("share".to_owned());
        world.set(Request {
            sharing: Sharing { key, ports: BTreeSet::from([(Tcp, port)]), ..Sharing::default() },
            ..request(service)
        });
        assert_eq!(counts(&world), (8, used), "{service}");
    }
    world.set(dual("s4"));
    assert_eq!(counts(&world), (8, 3));
    for (service, used) in [("s4", 1), ("s3", 1), ("s2", 1), ("s1", 0)] {
        world.delete(service);
        assert_eq!(counts(&world), (8, used), "{service} is gone");
    }
}

/// The rows PoolCount without `avoidBuggyIPs`, and AutoAssign.
#[test]
fn pools_count_what_they_have_and_give_unasked_only_where_they_may() {
    let total = |addresses: &[&str], family| {
        let ledger = ledger(&pools(vec![pool("test", addresses, true)]), &[], &BTreeMap::new());
        let report = ledger.report(&name("test")).expect("a report");
        let counts = if family == Family::V4 { report.v4 } else { report.v6 };
        counts.map(|(total, ..)| total)
    };
    assert_eq!(total(&["1.2.3.0/24"], Family::V4), Some(256));
    assert_eq!(total(&["1.2.3.0/24", "1.2.4.0/25"], Family::V4), Some(384));
    assert_eq!(total(&["1.2.3.0/24", "1000::/64"], Family::V6), Some(1 << 64));
    assert_eq!(total(&["1.2.3.0/24"], Family::V6), None);
    for families in [vec![Family::V4], vec![Family::V6], vec![Family::V4, Family::V6]] {
        let ground = pools(vec![
            pool("test1", &["1.2.3.4/31", "1000::4/127"], false),
            pool("test2", &["1.2.3.10/31", "1000::10/127"], true),
        ]);
        let requests =
            ["s1", "s2", "s3", "s4", "s5"].map(|service| Request { families: families.clone(), ..request(service) });
        let answers = allocate(&ground, &requests, &BTreeMap::new());
        let served = answers.values().filter(|answer| answer.addresses.len() == families.len()).count();
        assert_eq!(served, 2, "AutoAssign {families:?}");
    }
}

/// Statement 46.
#[test]
fn statement_46_an_address_and_a_pool_may_be_asked_for_together() {
    check(vec![
        Case {
            name: "the pool has the address",
            pools: small(),
            requests: vec![Request { wish: asking(&["10.60.1.11"], Some("b")), ..request("x") }],
            want: vec![has(&["10.60.1.11"])],
        },
        Case {
            name: "one family by address, both of the pool",
            pools: small(),
            requests: vec![Request { wish: asking(&["fd60::11"], Some("a")), ..dual("x") }],
            want: vec![has(&["10.60.0.10", "fd60::11"])],
        },
        Case {
            name: "another pool has it",
            pools: small(),
            requests: vec![Request { wish: asking(&["10.60.1.11"], Some("a")), ..request("x") }],
            want: vec![refused(Note::AddressNotInPool { address: ip("10.60.1.11") })],
        },
    ]);
}

/// Statement 48: what all see is not changed while addresses are given.
#[test]
fn statement_48_pools_are_as_they_were_after_all_is_given() {
    let ground = small();
    let before: BTreeMap<_, ObservedPool> =
        ground.pools.iter().map(|(name, pool)| (name.clone(), ObservedPool::clone(pool))).collect();
    let mut world = World::of(ground.clone());
    for service in ["a", "b", "c"] {
        world.set(dual(service));
    }
    world.delete("a");
    let after: BTreeMap<_, ObservedPool> =
        ground.pools.iter().map(|(name, pool)| (name.clone(), ObservedPool::clone(pool))).collect();
    assert_eq!(before, after);
}

/// Statement 50.
#[test]
fn statement_50_only_what_changes_something_is_looked_at_for_all() {
    let ground = || pools(vec![pool("a", &["10.60.0.10-10.60.0.11"], true), pool("b", &["10.60.1.10/32"], false)]);
    let mut world = World::of(ground());
    for service in ["a", "b", "waits", "waits-too"] {
        world.set(request(service));
    }
    world.pools(&ground());
    assert_eq!(world.concerned, BTreeSet::new(), "the same pools again");
    let mut status = ground();
    for pool in status.pools.values_mut() {
        Arc::make_mut(pool).resource_version = "4".to_owned();
    }
    world.pools(&status);
    assert_eq!(world.concerned, BTreeSet::new(), "a pool of which only the status changed");
    world.delete("waits-too");
    assert_eq!(world.concerned, BTreeSet::from([key("waits-too")]), "one that had no address is gone");
    world.delete("a");
    assert_eq!(world.concerned, BTreeSet::from([key("a"), key("waits")]), "one that had an address is gone");
}

/// Statement 51; the model's random pools and wishes show it as well.
#[test]
fn statement_51_pools_may_change_under_a_service_that_asks_for_an_address() {
    let of = |addresses: &[&str]| pools(vec![pool("a", addresses, true)]);
    let wanting = |service: &str| Request { wish: asking(&["10.60.0.10"], Some("a")), ..request(service) };
    let mut world = World::of(of(&["10.60.0.0/24"]));
    world.set(wanting("has"));
    world.set(wanting("wants"));
    for (step, ground, of_holder, of_waiting) in [
        ("shrunk", of(&["10.60.0.128/25"]), Some("AddressKept"), "AddressNotInPool"),
        ("gone", pools(vec![]), Some("AddressKept"), "PoolMissing"),
        ("wrong", of(&["10.60.0.10-10.60.0.1"]), Some("AddressKept"), "PoolInvalid"),
        ("of another family", of(&["fd60::/64"]), Some("AddressKept"), "AddressNotInPool"),
        ("as it was", of(&["10.60.0.0/24"]), None, "AddressInUse"),
    ] {
        world.pools(&ground);
        assert_eq!((world.has("has"), world.note("has")), (vec![ip("10.60.0.10")], of_holder), "{step}");
        assert_eq!((world.has("wants"), world.note("wants")), (vec![], Some(of_waiting)), "{step}");
    }
}

/// Statement 56: what comes and goes, twenty changes a round, leaves nothing behind.
#[test]
fn statement_56_ten_thousand_updates_leave_nothing_behind() {
    let resting = |name: &str, addresses: &[&str]| {
        observed(name, &AddressPoolSpec { reuse_after_seconds: 60, namespace_quota: Some(50), ..spec(addresses) })
    };
    let usual = || vec![resting("a", &["10.60.0.0/24", "fd60::/64"])];
    let mut world = World::of(pools(usual()));
    let resident = || Request { wish: asking(&["10.60.0.0"], None), ..dual("one") };
    world.set(resident());
    for service in ["two", "three"] {
        world.set(dual(service));
    }
    world.set(Request { wish: asking(&["10.99.0.1"], None), ..request("waits") });
    let before = shown(&mut world);
    for round in 0..500_u32 {
        let [_, _, third, fourth] = round.to_be_bytes();
        let named = |what: &str| format!("{what}-{round}");
        let sharing = Sharing {
            key: Some(named("key")),
            ports: BTreeSet::from([(Tcp, u16::from_be_bytes([third, fourth]))]),
            ..Sharing::default()
        };
        let elsewhere = Request { key: ServiceKey::new(named("team"), "x"), ..request("x") };
        world.set(Request { sharing, ..dual(&named("shares")) });
        world.set(Request { wish: asking(&[], Some("nowhere")), ..request(&named("waits")) });
        world.set(Request { wish: asking(&["10.60.0.200"], None), ..resident() });
        world.set(elsewhere.clone());
        let node: NodeName = named("node").parse().expect("a name");
        let facts = NodeFacts {
            addresses: BTreeSet::from([IpAddr::from([10, 60, 0, 201]), IpAddr::from([192, 168, third, fourth])]),
            pod_cidrs: BTreeSet::from([format!("10.{}.{fourth}.0/24", 100 + third).parse().expect("a prefix")]),
        };
        let labels = Labels::from([("round".to_owned(), round.to_string())]);
        world.apply(News {
            nodes: BTreeMap::from([(node.clone(), Some(facts))]),
            namespaces: BTreeMap::from([(named("team"), Some(labels))]),
            ..News::default()
        });
        let more = format!("10.{}.{fourth}.0/30", 80 + third);
        world.pools(&pools(vec![resting("a", &["10.60.0.0/24", &more]), resting(&named("pool"), &["10.61.0.0/24"])]));
        world.pools(&pools(usual()));
        world.apply(News {
            nodes: BTreeMap::from([(node, None)]),
            namespaces: BTreeMap::from([(named("team"), None)]),
            ..News::default()
        });
        world.delete(&named("shares"));
        world.delete(&named("waits"));
        world.apply(News { services: BTreeMap::from([(elsewhere.key, None)]), ..News::default() });
        world.later(61);
        world.set(resident());
        world.later(61);
    }
    let after = shown(&mut world);
    let surplus = after.lines().zip(before.lines()).find(|(now, then)| now != then);
    assert_eq!(surplus, None, "{} lines, {} before", after.lines().count(), before.lines().count());
}

/// All that a ledger knows, at one time.
fn shown(world: &mut World) -> String {
    world.later(61);
    drop(world.ledger.apply(News::default(), at(0)));
    format!("{:#?}", world.ledger)
}
