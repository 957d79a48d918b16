//! Pools: which serve whom, which addresses are whose, and what becomes of Services when they change.

use super::changes::World;
use super::*;
use crate::api::{LabelSelector, Reservation, Serves};

fn serving(namespaces: &[&str], app: Option<&str>) -> Option<Serves> {
    let labels = |app: &str| Labels::from([("app".to_owned(), app.to_owned())]);
    let select = |app| LabelSelector { match_labels: labels(app), ..LabelSelector::default() };
    let namespaces = namespaces.iter().map(ToString::to_string).collect();
    Some(Serves { namespaces, service_selector: app.map(select), ..Serves::default() })
}

fn of_priority(pool: &str, address: &str, priority: Option<u16>, serves: Option<Serves>) -> (PoolName, ObservedPool) {
    observed(pool, &AddressPoolSpec { priority, serves, ..spec(&[address]) })
}

fn reserving(addresses: &[&str], reserved: &[(&str, &str)]) -> AddressPoolSpec {
    let reservation = |(address, service): &(&str, &str)| Reservation {
        address: (*address).to_owned(),
        namespace: "default".to_owned(),
        name: (*service).to_owned(),
    };
    AddressPoolSpec { reservations: reserved.iter().map(reservation).collect(), ..spec(addresses) }
}

fn given(ground: &Ground, requests: &[Request]) -> Vec<String> {
    let answers = allocate(ground, requests, &BTreeMap::new());
    let text = |answer: &Answer| answer.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    requests.iter().map(|request| text(&answers[&request.key])).collect()
}

/// Pools that select, then priority, then name (MetalLB's issues 2656 and 2714 among them).
#[test]
fn pools_are_asked_in_their_order() {
    let three = [request("s1"), request("s2"), request("s3")];
    for (name, all) in [
        (
            "pinned, by priority, none last",
            vec![
                of_priority("x", "10.0.3.1/32", None, serving(&["default"], None)),
                of_priority("y", "10.0.2.1/32", Some(20), serving(&["default"], None)),
                of_priority("z", "10.0.1.1/32", Some(10), serving(&["default"], None)),
            ],
        ),
        (
            "nothing but priority",
            vec![
                of_priority("x", "10.0.3.1/32", None, None),
                of_priority("y", "10.0.2.1/32", Some(20), None),
                of_priority("z", "10.0.1.1/32", Some(10), None),
            ],
        ),
        (
            "those that select before those that serve all",
            vec![
                of_priority("x", "10.0.3.1/32", Some(1), None),
                of_priority("y", "10.0.1.1/32", Some(10), serving(&["default"], None)),
                of_priority("z", "10.0.2.1/32", None, serving(&["default"], None)),
            ],
        ),
        (
            "by name",
            vec![
                of_priority("z", "10.0.3.1/32", None, None),
                of_priority("x", "10.0.1.1/32", None, None),
                of_priority("y", "10.0.2.1/32", None, None),
            ],
        ),
    ] {
        assert_eq!(given(&pools(all), &three), ["10.0.1.1", "10.0.2.1", "10.0.3.1"], "{name}");
    }
}

/// As in MetalLB's assignment tests, and the rows of its controller's unit test.
#[test]
fn namespace_and_label_have_to_hold_both() {
    let labelled = |app: &str| Labels::from([("app".to_owned(), app.to_owned())]);
    let ground = pools(vec![
        of_priority("both", "10.0.1.1/32", Some(1), serving(&["default"], Some("web"))),
        of_priority("elsewhere", "10.0.2.1/32", Some(1), serving(&["team-a"], Some("web"))),
        of_priority("label", "10.0.3.1/32", Some(2), serving(&[], Some("web"))),
        of_priority("namespace", "10.0.4.1-10.0.4.9", Some(3), serving(&["default"], None)),
    ]);
    let web = |service: &str| Request { labels: labelled("web").into(), ..request(service) };
    let requests = [web("a"), web("b"), web("c"), Request { labels: labelled("db").into(), ..request("d") }];
    assert_eq!(given(&ground, &requests), ["10.0.1.1", "10.0.3.1", "10.0.4.1", "10.0.4.2"]);
}

#[test]
fn pools_follow_the_labels_of_namespaces() {
    let selector = LabelSelector {
        match_labels: Labels::from([("tier".to_owned(), "edge".to_owned())]),
        ..LabelSelector::default()
    };
    let serves = Serves { namespace_selector: Some(selector), ..Serves::default() };
    let mut world =
        World::of(pools(vec![observed("a", &AddressPoolSpec { serves: Some(serves), ..spec(&["10.60.0.10/32"]) })]));
    world.set(request("x"));
    assert_eq!(world.note("x"), Some("NotServed"));
    let labels = |tier: &str| News {
        namespaces: BTreeMap::from([(
            "default".to_owned(),
            Some(Labels::from([("tier".to_owned(), tier.to_owned())])),
        )]),
        ..News::default()
    };
    world.apply(labels("edge"));
    assert_eq!(world.has("x"), [ip("10.60.0.10")]);
    world.apply(labels("core"));
    assert_eq!((world.has("x"), world.note("x")), (vec![ip("10.60.0.10")], Some("AddressKept")));
    assert_eq!(world.ledger.report(&name("a")).expect("a report").kept, 1, "the pool drains");
    world.apply(labels("edge"));
    assert_eq!((world.note("x"), world.ledger.report(&name("a")).expect("a report").kept), (None, 0));
}

#[test]
fn both_families_come_of_one_pool_where_one_has_them() {
    let prefer = |service: &str, families: &[Family]| Request {
        families: families.to_vec(),
        needs_every_family: false,
        ..request(service)
    };
    let (v4, v6, both) = (
        pool("a", &["10.1.0.1/32"], true),
        pool("b", &["fd01::1/128"], true),
        pool("c", &["10.2.0.1/32", "fd02::1/128"], true),
    );
    let all = pools(vec![v4.clone(), v6.clone(), both]);
    assert_eq!(given(&all, &[prefer("x", &[Family::V4, Family::V6])]), ["10.2.0.1,fd02::1"], "one pool has both");
    // MetalLB gives one of the two only: a Service that prefers both is better off with both.
    let single = pools(vec![v4.clone(), v6]);
    assert_eq!(given(&single, &[prefer("x", &[Family::V4, Family::V6])]), ["10.1.0.1,fd01::1"], "IPv4 first");
    assert_eq!(given(&single, &[prefer("x", &[Family::V6, Family::V4])]), ["fd01::1,10.1.0.1"], "IPv6 first");
    let mut world = World::of(pools(vec![v4]));
    world.set(prefer("x", &[Family::V4, Family::V6]));
    assert_eq!(world.has("x"), [ip("10.1.0.1")]);
    world.pools(&all);
    assert_eq!(world.has("x")[0], ip("10.1.0.1"), "what it has stays");
    assert_eq!(world.has("x").len(), 2, "and the other family is added");
}

/// What it has stays while the second family cannot be had.
#[test]
fn a_service_that_comes_to_need_both_families_keeps_the_one_it_has() {
    let mut world = World::of(pools(vec![pool("a", &["10.1.0.1/32"], true)]));
    let with = |needs_every_family| Request { needs_every_family, ..dual("x") };
    for (needs_both, note) in [(false, None), (true, Some("FamilyNotInPools")), (false, None)] {
        world.set(with(needs_both));
        assert_eq!((world.has("x"), world.note("x")), (vec![ip("10.1.0.1")], note));
    }
}

#[test]
fn a_pool_counts_what_it_has() {
    let of = |addresses: &[&str]| pools(vec![pool("a", addresses, true)]);
    let mut world = World::of(of(&["10.60.0.8/30", "fd60::8/126"]));
    world.set(dual("x"));
    let counts = |world: &World| {
        let report = world.ledger.report(&name("a")).expect("a report");
        (report.v4.expect("counts"), report.v6.expect("counts"))
    };
    assert_eq!(counts(&world), ((4, 1, 3), (4, 1, 3)), "one block");
    world.pools(&of(&["10.60.0.8/29", "fd60::8/125"]));
    assert_eq!(counts(&world), ((8, 1, 7), (8, 1, 7)), "grown");
    world.delete("x");
    assert_eq!(counts(&world), ((8, 0, 8), (8, 0, 8)), "deleted");
}

/// MetalLB's PoolCount rows.
#[test]
fn buggy_addresses_are_neither_counted_nor_given() {
    let of = |addresses: &[&str]| {
        let ground = pools(vec![observed("a", &AddressPoolSpec { avoid_buggy_ips: true, ..spec(addresses) })]);
        ledger(&ground, &[], &BTreeMap::new()).report(&name("a")).expect("a report")
    };
    assert_eq!(of(&["1.2.3.0/24", "1.2.4.0/25"]).v4, Some((381, 0, 381)));
    let small = of(&["1.2.3.0/31", "1000::/127"]);
    assert_eq!((small.v4, small.v6), (Some((1, 0, 1)), Some((2, 0, 2))));
    assert_eq!(of(&["2000::/64"]).v6.map(|(total, ..)| total), Some(1 << 64));
    let ground =
        pools(vec![observed("a", &AddressPoolSpec { avoid_buggy_ips: true, ..spec(&["10.0.0.254-10.0.1.1"]) })]);
    assert_eq!(given(&ground, &[request("a"), request("b"), request("c")]), ["10.0.0.254", "10.0.1.1", ""]);
}

/// MetalLB's row "AutoAssign": a pool that gives nothing out by itself is used by name only.
#[test]
fn autoassign_false_is_used_only_when_asked_for() {
    let ground = pools(vec![pool("a", &["10.60.0.10/32"], true), pool("b", &["10.60.1.10/32"], false)]);
    let named = Request { wish: asking(&[], Some("b")), ..request("c") };
    assert_eq!(given(&ground, &[request("a"), request("b"), named]), ["10.60.0.10", "", "10.60.1.10"]);
}

#[test]
fn an_address_is_reserved_before_its_service_exists_and_after_it_went() {
    let ground = || pools(vec![observed("a", &reserving(&["10.60.0.10-10.60.0.12"], &[("10.60.0.10", "web")]))]);
    let mut world = World::of(ground());
    world.set(request("other"));
    assert_eq!(world.has("other"), [ip("10.60.0.11")], "before");
    let asking_for_it = Request { wish: asking(&["10.60.0.10"], None), ..request("thief") };
    assert_eq!(world.told(asking_for_it), refused(Note::AddressReserved { address: ip("10.60.0.10"), by: key("web") }));
    world.set(request("web"));
    assert_eq!(world.has("web"), [ip("10.60.0.10")]);
    world.delete("web");
    world.set(request("next"));
    assert_eq!(world.has("next"), [ip("10.60.0.12")], "after");
    let counts = world.ledger.report(&name("a")).expect("a report").v4;
    assert_eq!(counts, Some((3, 2, 0)), "a reserved address is not free");
}

#[test]
fn a_reservation_moves_nobody_unasked() {
    let mut world = World::of(pools(vec![pool("a", &["10.60.0.10-10.60.0.12"], true)]));
    world.set(request("web"));
    world.set(request("other"));
    world.pools(&pools(vec![observed(
        "a",
        &reserving(&["10.60.0.10-10.60.0.12"], &[("10.60.0.10", "other"), ("10.60.0.12", "web")]),
    )]));
    assert_eq!((world.has("web"), world.has("other")), (vec![ip("10.60.0.10")], vec![ip("10.60.0.11")]));
    assert_eq!(world.note("web"), Some("AddressKept"));
    world.set(Request { may_move: true, ..request("web") });
    world.set(Request { may_move: true, ..request("other") });
    assert_eq!((world.has("web"), world.has("other")), (vec![ip("10.60.0.12")], vec![ip("10.60.0.10")]));
}

#[test]
fn a_namespace_has_no_more_addresses_than_its_quota() {
    let limited = |quota| {
        pools(vec![observed("a", &AddressPoolSpec { namespace_quota: Some(quota), ..spec(&["10.60.0.0/24"]) })])
    };
    let mut world = World::of(limited(2));
    for service in ["a", "b", "c"] {
        world.set(request(service));
    }
    assert_eq!((world.has("c"), world.note("c")), (vec![], Some("QuotaReached")));
    let elsewhere = Request { key: ServiceKey::new("team-a", "x"), ..request("x") };
    world.set(elsewhere.clone());
    assert!(world.ledger.answer(&elsewhere.key).is_some_and(|answer| answer.addresses.len() == 1), "another namespace");
    world.delete("a");
    assert_eq!(world.has("c").len(), 1, "one made room");
    world.pools(&limited(1));
    assert_eq!((world.has("b").len(), world.has("c").len()), (1, 1), "a lower quota takes nothing");
    let both = pools(vec![observed(
        "a",
        &AddressPoolSpec { namespace_quota: Some(1), ..spec(&["10.60.0.0/24", "fd60::/64"]) },
    )]);
    assert_eq!(given(&both, &[dual("x")]), [""], "two addresses are more than one");
}

fn territory(ground: &Ground) -> BTreeMap<String, (Vec<String>, usize)> {
    let ledger = ledger(ground, &[], &BTreeMap::new());
    let of = |name: &PoolName| {
        let report = ledger.report(name).expect("a report");
        (report.blocks.iter().map(ToString::to_string).collect(), report.conflicts.len())
    };
    ground.pools.keys().filter(|name| name.as_str() != "broken").map(|name| (name.to_string(), of(name))).collect()
}

#[test]
fn of_two_pools_that_overlap_the_one_that_had_the_addresses_keeps_them() {
    let born =
        |created_seconds, (name, pool): (PoolName, ObservedPool)| (name, ObservedPool { created_seconds, ..pool });
    let using = |blocks: &[&str], (name, pool): (PoolName, ObservedPool)| {
        let blocks = blocks.iter().map(|text| text.parse().expect("a block")).collect();
        (name, ObservedPool { blocks, ..pool })
    };
    let old = || born(1, pool("old", &["10.60.0.0/24"], true));
    let young = |blocks: &[&str]| born(2, pool("a-young", blocks, true));
    let has =
        |blocks: &[&str], conflicts: usize| (blocks.iter().map(ToString::to_string).collect::<Vec<_>>(), conflicts);
    for (name, all, want_old, want_young) in [
        ("apart", vec![old(), young(&["10.61.0.0/24"])], has(&["10.60.0.0/24"], 0), has(&["10.61.0.0/24"], 0)),
        (
            "the younger one gives nothing, not even what nobody else has",
            vec![old(), young(&["10.60.0.128-10.60.1.9", "10.61.0.0/24"])],
            has(&["10.60.0.0/24"], 0),
            has(&[], 1),
        ),
        (
            "the older one grew into the younger: what was added is not used",
            vec![using(&["10.60.0.0/25"], old()), using(&["10.60.0.128/25"], young(&["10.60.0.128/25"]))],
            has(&["10.60.0.0/25"], 1),
            has(&["10.60.0.128/25"], 0),
        ),
        (
            "the younger one grew: what it had stays",
            vec![using(&["10.60.0.0/24"], old()), using(&["10.61.0.0/24"], young(&["10.61.0.0/24", "10.60.0.0/28"]))],
            has(&["10.60.0.0/24"], 0),
            has(&["10.61.0.0/24"], 1),
        ),
        (
            "the older one is wrong for now, and its addresses are its own",
            vec![using(&["10.60.0.0/24"], born(1, pool("old", &["nonsense"], true))), young(&["10.60.0.0/28"])],
            has(&[], 0),
            has(&[], 1),
        ),
    ] {
        let got = territory(&pools(all));
        assert_eq!((&got["old"], &got["a-young"]), (&want_old, &want_young), "{name}");
    }
}

#[test]
fn a_new_pool_with_addresses_of_nodes_pods_or_cluster_ips_is_not_used() {
    let ground = pools(vec![pool("a", &["10.60.0.0/24"], true)]);
    let node = |facts| BTreeMap::from([("n1".parse::<NodeName>().expect("a name"), Some(facts))]);
    let address = NodeFacts { addresses: BTreeSet::from([ip("10.60.0.7")]), ..NodeFacts::default() };
    let pods =
        NodeFacts { pod_cidrs: BTreeSet::from(["10.60.0.0/16".parse().expect("a prefix")]), ..NodeFacts::default() };
    let services = BTreeMap::from([("10.60.0.64/26".parse().expect("a prefix"), "the cluster IPs".to_owned())]);
    for (name, around, want) in [
        (
            "a Node's",
            News { nodes: node(address.clone()), ..ground.news() },
            "10.60.0.7 is an address of node n1: put it into spec.exclude",
        ),
        (
            "pods",
            News { nodes: node(pods), ..ground.news() },
            "10.60.0.0/24 shares addresses with 10.60.0.0/16, the pods of node n1: it takes addresses that nothing else has",
        ),
        (
            "cluster IPs",
            News { cidrs: Some(services), ..ground.news() },
            "10.60.0.0/24 shares addresses with 10.60.0.64/26, the cluster IPs: it takes addresses that nothing else has",
        ),
    ] {
        let mut ledger = Ledger::default();
        drop(ledger.apply(around, at(0)));
        let report = ledger.report(&super::name("a")).expect("a report");
        assert_eq!((report.blocks, report.conflicts), (vec![], vec![want.to_owned()]), "{name}");
    }
    let mut world = World::of(ground);
    world.set(Request { wish: asking(&["10.60.0.7"], None), ..request("x") });
    world.set(request("y"));
    world.apply(News { nodes: node(address), ..News::default() });
    assert_eq!(
        world.ledger.report(&name("a")).expect("a report").blocks.len(),
        1,
        "the pool was there before the Node"
    );
    assert_eq!(world.has("x"), Vec::<IpAddr>::new(), "but a Node's address is no Service's");
    assert_eq!(world.has("y"), [ip("10.60.0.0")]);
}

#[test]
fn a_pod_cidr_of_two_nodes_is_in_use_until_both_are_gone() {
    let ground = pools(vec![pool("a", &["10.60.0.0/24"], true)]);
    let pods =
        NodeFacts { pod_cidrs: BTreeSet::from(["10.60.0.0/16".parse().expect("a prefix")]), ..NodeFacts::default() };
    let node = |name: &str, facts| (name.parse::<NodeName>().expect("a name"), facts);
    let both = BTreeMap::from([node("n1", Some(pods.clone())), node("n2", Some(pods))]);
    let mut ledger = Ledger::default();
    drop(ledger.apply(News { nodes: both, ..ground.news() }, at(0)));
    for (gone, want) in [("n1", 0), ("n2", 1)] {
        drop(ledger.apply(News { nodes: BTreeMap::from([node(gone, None)]), ..ground.news() }, at(1)));
        assert_eq!(ledger.report(&name("a")).expect("a report").blocks.len(), want, "after {gone}");
    }
}

/// Honoured for newcomers, holders drain (MetalLB's issue 2097), and nobody loses anything.
#[test]
fn a_pool_that_shrinks_or_goes_takes_nothing_from_living_services() {
    let of = |addresses: &[&str]| pools(vec![pool("a", addresses, true)]);
    let mut world = World::of(of(&["10.60.0.10-10.60.0.19"]));
    world.set(request("x"));
    world.pools(&of(&["10.60.0.15-10.60.0.19"]));
    assert_eq!((world.has("x"), world.note("x")), (vec![ip("10.60.0.10")], Some("AddressKept")));
    let report = world.ledger.report(&name("a")).expect("a report");
    assert_eq!(report.draining.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.60.0.10-10.60.0.14"]);
    assert_eq!((report.kept, report.first_kept), (1, Some((key("x"), ip("10.60.0.10")))));
    world.set(request("y"));
    assert_eq!(world.has("y"), [ip("10.60.0.15")], "a newcomer gets what the pool says now");
    world.set(Request { may_move: true, ..request("x") });
    assert_eq!((world.has("x"), world.note("x")), (vec![ip("10.60.0.16")], None), "moved when asked to");
    assert_eq!(world.ledger.report(&name("a")).expect("a report").kept, 0);
    world.pools(&pools(vec![]));
    assert_eq!(
        (world.has("x"), world.has("y")),
        (vec![ip("10.60.0.16")], vec![ip("10.60.0.15")]),
        "nobody loses anything"
    );
    world.set(request("z"));
    assert_eq!(world.note("z"), Some("NoPool"));
    world.pools(&of(&["10.60.0.15-10.60.0.19"]));
    assert_eq!((world.has("z"), world.note("x")), (vec![ip("10.60.0.17")], None));
}

#[test]
fn a_wider_renamed_or_split_pool_changes_nothing_for_holders() {
    let mut world = World::of(pools(vec![pool("a", &["10.60.0.10-10.60.0.19"], true)]));
    world.set(request("x"));
    for (name, all) in [
        ("wider", vec![pool("a", &["10.60.0.0/24"], true)]),
        ("renamed", vec![pool("b", &["10.60.0.0/24"], true)]),
        ("split", vec![pool("b", &["10.60.0.0/25"], true), pool("c", &["10.60.0.128/25"], true)]),
        (
            "with a better one",
            vec![pool("b", &["10.60.0.0/25"], true), of_priority("d", "10.70.0.0/24", Some(1), None)],
        ),
        ("no longer automatic", vec![pool("b", &["10.60.0.0/25"], false)]),
    ] {
        world.pools(&pools(all));
        assert_eq!((world.has("x"), world.note("x")), (vec![ip("10.60.0.10")], None), "{name}");
    }
}

#[test]
fn each_pool_says_why_it_has_nothing_for_a_service() {
    let quota = AddressPoolSpec { namespace_quota: Some(1), ..spec(&["10.5.0.0/24"]) };
    let cooling = AddressPoolSpec { reuse_after_seconds: 60, ..spec(&["10.7.0.1/32"]) };
    let mut world = World::of(pools(vec![
        of_priority("a", "10.1.0.0/24", None, serving(&["team-a"], None)),
        pool("b", &["10.2.0.0/24"], false),
        pool("c", &["fd60::/64"], true),
        pool("d", &["10.4.0.1/32"], true),
        observed("e", &quota),
        observed("f", &cooling),
        pool("g", &["10.8.0.0/24"], true),
    ]));
    for service in ["one", "two"] {
        world.set(request(service));
    }
    world.set(Request { wish: asking(&[], Some("f")), ..request("three") });
    world.delete("three");
    world.set(request("x"));
    let considered = world.ledger.considered(&key("x"), Family::V4);
    let got: Vec<_> = considered.iter().map(|(name, verdict)| (name.as_str(), verdict.clone())).collect();
    assert_eq!(
        got,
        [
            ("a", Verdict::NotServing),
            ("b", Verdict::NotAutomatic),
            ("c", Verdict::NoFamily),
            ("d", Verdict::Exhausted),
            ("e", Verdict::QuotaReached { limit: 1 }),
            ("f", Verdict::OnlyCooling { address: ip("10.7.0.1") }),
            ("g", Verdict::Free { address: ip("10.8.0.1") }),
            ("broken", Verdict::Unusable),
        ]
    );
}
