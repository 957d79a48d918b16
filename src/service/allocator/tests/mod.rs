//! What a ledger made of everything at once says: the rules one by one.

mod changes;
mod metallb;
mod model;
mod pools;
mod sharing;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::api::{AddressPoolSpec, AddressPoolStatus};
use crate::config::Pool;
use crate::model::{KeptReason, ShareRefusal};
use crate::service::request::{Sharing, Wish};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn name(text: &str) -> PoolName {
    text.parse().expect("a name")
}

fn spec(addresses: &[&str]) -> AddressPoolSpec {
    let addresses = addresses.iter().map(ToString::to_string).collect();
    AddressPoolSpec { addresses, auto_assign: true, ..AddressPoolSpec::default() }
}

fn observed(pool: &str, spec: &AddressPoolSpec) -> (PoolName, ObservedPool) {
    let observed = ObservedPool {
        resource_version: "3".to_owned(),
        created_seconds: 0,
        generation: Some(1),
        is_deleting: false,
        check: Pool::check(pool, spec),
        blocks: Vec::new(),
        draining: Vec::new(),
        cooling: Vec::new(),
        status: AddressPoolStatus::default(),
    };
    (name(pool), observed)
}

fn pool(pool: &str, addresses: &[&str], auto_assign: bool) -> (PoolName, ObservedPool) {
    observed(pool, &AddressPoolSpec { auto_assign, ..spec(addresses) })
}

/// What there is beside Services.
#[derive(Clone, Default)]
struct Ground {
    pools: BTreeMap<PoolName, Arc<ObservedPool>>,
    of_nodes: BTreeMap<IpAddr, NodeName>,
}

impl Ground {
    fn news(&self) -> News {
        let facts = |(address, node): (&IpAddr, &NodeName)| {
            (node.clone(), Some(NodeFacts { addresses: BTreeSet::from([*address]), ..NodeFacts::default() }))
        };
        News {
            pools: Some(self.pools.clone()),
            nodes: self.of_nodes.iter().map(facts).collect(),
            cidrs: Some(BTreeMap::new()),
            ..News::default()
        }
    }
}

/// These, and one that is wrong.
fn pools(all: Vec<(PoolName, ObservedPool)>) -> Ground {
    let broken = observed("broken", &spec(&["nonsense"]));
    let pools = all.into_iter().chain([broken]).map(|(name, pool)| (name, Arc::new(pool))).collect();
    Ground { pools, of_nodes: BTreeMap::new() }
}

/// Two addresses of each family, and two more of a pool that gives out nothing by itself.
fn small() -> Ground {
    pools(vec![
        pool("a", &["10.60.0.10-10.60.0.11", "fd60::10-fd60::11"], true),
        pool("b", &["10.60.1.10-10.60.1.11"], false),
    ])
}

fn request(service: &str) -> Request {
    Request {
        key: key(service),
        uid: service.to_owned(),
        created_seconds: 100,
        labels: Arc::default(),
        families: vec![Family::V4],
        needs_every_family: true,
        held: Vec::new(),
        allocation: None,
        assigned_seconds: None,
        wish: Ok(Wish::default()),
        sharing: Sharing::default(),
        may_move: false,
    }
}

fn dual(service: &str) -> Request {
    Request { families: vec![Family::V4, Family::V6], ..request(service) }
}

fn asking(addresses: &[&str], pool: Option<&str>) -> Result<Wish, Note> {
    Ok(Wish { addresses: addresses.iter().map(|text| ip(text)).collect(), pool: pool.map(name) })
}

fn has(addresses: &[&str]) -> Answer {
    Answer { addresses: addresses.iter().map(|text| ip(text)).collect(), note: None }
}

fn refused(note: Note) -> Answer {
    Answer { addresses: Vec::new(), note: Some(note) }
}

fn keeps(addresses: &[&str], note: Note) -> Answer {
    Answer { note: Some(note), ..has(addresses) }
}

fn kept(address: &str, why: KeptReason) -> Answer {
    keeps(&[address], Note::AddressKept { address: ip(address), why })
}

fn exhausted(family: Family) -> Note {
    Note::PoolExhausted { pools: vec![name("a")], family }
}

fn at(seconds: u64) -> Now {
    let unix_seconds = 1_800_000_000 + i64::try_from(seconds).expect("a small number");
    Now { moment: Moment::since_boot(Duration::from_secs(1000 + seconds)), unix_seconds }
}

fn asks(request: Request) -> (ServiceKey, Option<Standing>) {
    (request.key.clone(), Some(Standing::Asks(Box::new(request))))
}

/// A ledger that was told everything at once.
fn ledger(ground: &Ground, requests: &[Request], blocked: &BTreeMap<IpAddr, ServiceKey>) -> Ledger {
    let mut ledger = Ledger::default();
    let holds = blocked.iter().map(|(address, key)| (key.clone(), Some(Standing::Holds(vec![*address]))));
    let services = requests.iter().cloned().map(asks).chain(holds).collect();
    drop(ledger.apply(News { services, ..ground.news() }, at(0)));
    ledger
}

fn allocate(
    ground: &Ground,
    requests: &[Request],
    blocked: &BTreeMap<IpAddr, ServiceKey>,
) -> BTreeMap<ServiceKey, Answer> {
    let ledger = ledger(ground, requests, blocked);
    requests.iter().map(|request| (request.key.clone(), ledger.answer(&request.key).expect("an answer"))).collect()
}

struct Case {
    name: &'static str,
    pools: Ground,
    requests: Vec<Request>,
    want: Vec<Answer>,
}

fn check(cases: Vec<Case>) {
    for Case { name, pools, requests, want } in cases {
        let answers = allocate(&pools, &requests, &BTreeMap::new());
        let got: Vec<_> = requests.iter().map(|request| answers[&request.key].clone()).collect();
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn the_lowest_free_address_goes_to_the_oldest() {
    check(vec![
        Case {
            name: "by age, then by name",
            pools: small(),
            requests: vec![
                request("z"),
                Request { created_seconds: 90, ..request("y") },
                Request { created_seconds: 200, ..request("x") },
            ],
            want: vec![has(&["10.60.0.11"]), has(&["10.60.0.10"]), refused(exhausted(Family::V4))],
        },
        Case {
            name: "pools in the order of their names",
            pools: pools(vec![pool("n", &["10.1.0.1/32"], true), pool("m", &["10.2.0.1/32"], true)]),
            requests: vec![request("x"), request("y")],
            want: vec![has(&["10.2.0.1"]), has(&["10.1.0.1"])],
        },
        Case {
            name: "holders come before older newcomers",
            pools: small(),
            requests: vec![
                Request { created_seconds: 1, ..request("old") },
                Request { held: vec![ip("10.60.0.10")], ..request("holder") },
            ],
            want: vec![has(&["10.60.0.11"]), has(&["10.60.0.10"])],
        },
        Case {
            name: "no pool at all",
            pools: Ground::default(),
            requests: vec![request("x")],
            want: vec![refused(Note::NoPool)],
        },
        Case {
            name: "only pools that are to be asked for",
            pools: pools(vec![pool("b", &["10.60.1.0/24"], false)]),
            requests: vec![request("x")],
            want: vec![refused(Note::NoPool)],
        },
        Case {
            name: "no addresses of the family",
            pools: pools(vec![pool("a", &["10.60.0.0/24"], true)]),
            requests: vec![Request { families: vec![Family::V6], ..request("x") }],
            want: vec![refused(Note::FamilyNotInPools { pools: vec![name("a")], family: Family::V6 })],
        },
    ]);
}

#[test]
fn no_service_has_the_address_of_a_node() {
    let node: NodeName = "n1".parse().expect("a name");
    // The Node came after the pool, which goes on without its address.
    let around_a_node = |addresses: &[&str]| {
        let (name, mut pool) = pool("a", addresses, true);
        pool.blocks = pool.check.as_ref().expect("a pool").blocks.clone();
        Ground {
            of_nodes: BTreeMap::from([(ip("10.60.0.10"), "n1".parse().expect("a name"))]),
            ..pools(vec![(name, pool)])
        }
    };
    let of_node = Note::AddressOfNode { address: ip("10.60.0.10"), node: node.clone() };
    check(vec![
        Case {
            name: "a newcomer",
            pools: around_a_node(&["10.60.0.10-10.60.0.11"]),
            requests: vec![request("x")],
            want: vec![has(&["10.60.0.11"])],
        },
        Case {
            name: "one that has it",
            pools: around_a_node(&["10.60.0.10-10.60.0.11"]),
            requests: vec![Request { held: vec![ip("10.60.0.10")], ..request("x") }],
            want: vec![keeps(&["10.60.0.11"], of_node.clone())],
        },
        Case {
            name: "one that asks for it",
            pools: around_a_node(&["10.60.0.10-10.60.0.11"]),
            requests: vec![Request { wish: asking(&["10.60.0.10"], None), ..request("x") }],
            want: vec![refused(of_node)],
        },
        Case {
            name: "a pool of nothing else",
            pools: around_a_node(&["10.60.0.10/32"]),
            requests: vec![request("x")],
            want: vec![refused(exhausted(Family::V4))],
        },
    ]);
}

#[test]
fn both_families_come_as_the_policy_says() {
    let v6_gone = || {
        vec![
            Request { created_seconds: 1, families: vec![Family::V6], held: vec![ip("fd60::10")], ..request("p") },
            Request { created_seconds: 1, families: vec![Family::V6], held: vec![ip("fd60::11")], ..request("q") },
        ]
    };
    let with = |request: Request| v6_gone().into_iter().chain([request]).collect::<Vec<_>>();
    let want = |answer: Answer| vec![has(&["fd60::10"]), has(&["fd60::11"]), answer];
    check(vec![
        Case {
            name: "both are there",
            pools: small(),
            requests: vec![dual("x")],
            want: vec![has(&["10.60.0.10", "fd60::10"])],
        },
        Case {
            name: "in the order of the service's families",
            pools: small(),
            requests: vec![Request { families: vec![Family::V6, Family::V4], ..request("x") }],
            want: vec![has(&["fd60::10", "10.60.0.10"])],
        },
        Case {
            name: "RequireDualStack takes both or nothing",
            pools: small(),
            requests: with(dual("x")),
            want: want(refused(exhausted(Family::V6))),
        },
        Case {
            name: "PreferDualStack takes what there is",
            pools: small(),
            requests: with(Request { needs_every_family: false, ..dual("x") }),
            want: want(has(&["10.60.0.10"])),
        },
        Case {
            name: "what it has stays when the second family cannot be had",
            pools: small(),
            requests: with(Request { held: vec![ip("10.60.0.11")], ..dual("x") }),
            want: want(keeps(&["10.60.0.11"], exhausted(Family::V6))),
        },
        Case {
            name: "a family it no longer wants is given up",
            pools: small(),
            requests: vec![Request { held: vec![ip("10.60.0.11"), ip("fd60::11")], ..request("x") }],
            want: vec![has(&["10.60.0.11"])],
        },
    ]);
    let rolled_back = allocate(
        &small(),
        &[
            dual("x"),
            Request {
                families: vec![Family::V6],
                created_seconds: 1,
                held: vec![ip("fd60::10"), ip("fd60::11")],
                ..request("p")
            },
            Request { families: vec![Family::V6], created_seconds: 1, held: vec![ip("fd60::11")], ..request("q") },
            Request { created_seconds: 900, ..request("young") },
        ],
        &BTreeMap::new(),
    );
    assert_eq!(rolled_back[&key("young")], has(&["10.60.0.10"]), "what a refused service was given is free again");
}

#[test]
fn particular_addresses_are_given_where_they_are_free() {
    let holder = || Request { held: vec![ip("10.60.0.10")], ..request("holder") };
    check(vec![
        Case {
            name: "an address",
            pools: small(),
            requests: vec![Request { wish: asking(&["10.60.0.11"], None), ..request("x") }],
            want: vec![has(&["10.60.0.11"])],
        },
        Case {
            name: "an address of a pool that gives out nothing by itself",
            pools: small(),
            requests: vec![Request { wish: asking(&["10.60.1.10"], None), ..request("x") }],
            want: vec![has(&["10.60.1.10"])],
        },
        Case {
            name: "before an older one that takes any",
            pools: small(),
            requests: vec![
                Request { created_seconds: 1, ..request("any") },
                Request { wish: asking(&["10.60.0.10"], None), ..request("x") },
            ],
            want: vec![has(&["10.60.0.11"]), has(&["10.60.0.10"])],
        },
        Case {
            name: "in use",
            pools: small(),
            requests: vec![
                holder(),
                Request { created_seconds: 1, wish: asking(&["10.60.0.10"], None), ..request("x") },
            ],
            want: vec![
                has(&["10.60.0.10"]),
                refused(Note::AddressInUse { address: ip("10.60.0.10"), by: key("holder") }),
            ],
        },
        Case {
            name: "in no pool",
            pools: small(),
            requests: vec![Request { wish: asking(&["10.99.0.1"], None), ..request("x") }],
            want: vec![refused(Note::AddressNotInPool { address: ip("10.99.0.1") })],
        },
        Case {
            name: "not in the pool asked for",
            pools: small(),
            requests: vec![Request { wish: asking(&["10.60.0.10"], Some("b")), ..request("x") }],
            want: vec![refused(Note::AddressNotInPool { address: ip("10.60.0.10") })],
        },
        Case {
            name: "one family asked for, the other from the pools",
            pools: small(),
            requests: vec![Request { wish: asking(&["fd60::11"], None), ..dual("x") }],
            want: vec![has(&["10.60.0.10", "fd60::11"])],
        },
        Case {
            name: "it moves when asked to",
            pools: small(),
            requests: vec![Request { wish: asking(&["10.60.0.11"], None), ..holder() }, request("next")],
            want: vec![has(&["10.60.0.11"]), refused(exhausted(Family::V4))],
        },
        Case {
            name: "it keeps what it has until it can move",
            pools: small(),
            requests: vec![Request { wish: asking(&["10.99.0.1"], None), ..holder() }],
            want: vec![keeps(&["10.60.0.10"], Note::AddressNotInPool { address: ip("10.99.0.1") })],
        },
    ]);
}

#[test]
fn a_pool_is_taken_at_its_name() {
    let asking_for = |pool| vec![Request { wish: asking(&[], Some(pool)), ..request("x") }];
    check(vec![
        Case { name: "named", pools: small(), requests: asking_for("b"), want: vec![has(&["10.60.1.10"])] },
        Case {
            name: "missing",
            pools: small(),
            requests: asking_for("c"),
            want: vec![refused(Note::PoolMissing { pool: name("c") })],
        },
        Case {
            name: "invalid",
            pools: small(),
            requests: asking_for("broken"),
            want: vec![refused(Note::PoolInvalid { pool: name("broken") })],
        },
        Case {
            name: "whoever has an address of another pool moves",
            pools: small(),
            requests: vec![Request { held: vec![ip("10.60.0.10")], wish: asking(&[], Some("b")), ..request("x") }],
            want: vec![has(&["10.60.1.10"])],
        },
        Case {
            name: "and keeps it as long as the pool has none",
            pools: pools(vec![pool("a", &["10.60.0.10/32"], true), pool("b", &["fd60::1/128"], false)]),
            requests: vec![Request { held: vec![ip("10.60.0.10")], wish: asking(&[], Some("b")), ..request("x") }],
            want: vec![kept("10.60.0.10", KeptReason::OutsidePool { pool: name("b") })],
        },
    ]);
}

#[test]
fn an_address_in_use_is_never_taken() {
    let holder = |service| Request { held: vec![ip("10.60.0.10")], ..request(service) };
    let of_term = |service, term: &str| Request { allocation: term.parse().ok(), ..holder(service) };
    let malformed = Note::AddressMalformed { field: "spec.loadBalancerIP".to_owned(), text: "x".to_owned() };
    let lost = |by| Note::AddressLost { address: ip("10.60.0.10"), by: key(by), why: ShareRefusal::NoCommonKey };
    check(vec![
        Case {
            name: "pool gone",
            pools: Ground::default(),
            requests: vec![holder("x")],
            want: vec![kept("10.60.0.10", KeptReason::InNoPool)],
        },
        Case {
            name: "pool shrunk",
            pools: pools(vec![pool("a", &["10.60.0.11/32"], true)]),
            requests: vec![holder("x")],
            want: vec![kept("10.60.0.10", KeptReason::InNoPool)],
        },
        Case {
            name: "the wish no longer makes sense",
            pools: small(),
            requests: vec![Request { wish: Err(malformed.clone()), ..holder("x") }],
            want: vec![keeps(&["10.60.0.10"], malformed)],
        },
        Case {
            name: "of two who have it, the one of the higher term keeps it, though it is younger",
            pools: small(),
            requests: vec![
                Request { created_seconds: 1, ..of_term("a", "4.200") },
                Request { created_seconds: 99, ..of_term("b", "5.1") },
            ],
            want: vec![keeps(&["10.60.0.11"], lost("b")), has(&["10.60.0.10"])],
        },
        Case {
            name: "one with a term before one without",
            pools: small(),
            requests: vec![Request { created_seconds: 1, ..holder("a") }, of_term("b", "0.1")],
            want: vec![keeps(&["10.60.0.11"], lost("b")), has(&["10.60.0.10"])],
        },
        Case {
            name: "of two without, the one whose condition is older",
            pools: small(),
            requests: vec![
                Request { assigned_seconds: Some(20), ..holder("a") },
                Request { assigned_seconds: Some(10), ..holder("b") },
            ],
            want: vec![keeps(&["10.60.0.11"], lost("b")), has(&["10.60.0.10"])],
        },
        Case {
            name: "an address that no packet can be sent to is no one's",
            pools: small(),
            requests: vec![Request { held: vec![ip("127.0.0.1")], ..request("x") }],
            want: vec![has(&["10.60.0.10"])],
        },
    ]);
    let blocked = BTreeMap::from([(ip("10.60.0.10"), key("deleting"))]);
    let answers = allocate(&small(), &[request("x")], &blocked);
    assert_eq!(answers[&key("x")], has(&["10.60.0.11"]), "what another still has is not free");
}

#[test]
fn a_large_pool_costs_no_more_than_a_small_one() {
    let large = pools(vec![pool("a", &["fd60::/64", "10.0.0.0/8"], true)]);
    let requests: Vec<_> = (0..2000).map(|index| dual(&format!("s{index:04}"))).collect();
    let answers = allocate(&large, &requests, &BTreeMap::new());
    assert_eq!(answers[&key("s1999")], has(&["10.0.7.207", "fd60::7cf"]));
}

fn any_held() -> impl Strategy<Value = Vec<IpAddr>> {
    let v4 = (8_u8..16).prop_map(|last| IpAddr::from([10, 60, 0, last]));
    let v6 = (0_u16..8).prop_map(|last| IpAddr::from([0xfd60, 0, 0, 0, 0, 0, 0, last]));
    prop::collection::vec(prop_oneof![v4, v6], 0..3)
}

fn any_wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        6 => Just(Wish::default()),
        2 => (8_u8..16).prop_map(|last| Wish { addresses: vec![IpAddr::from([10, 60, 0, last])], pool: None }),
        1 => Just(Wish { addresses: Vec::new(), pool: Some(name("b")) }),
    ]
}

fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    let families = prop_oneof![Just(vec![Family::V4]), Just(vec![Family::V6]), Just(vec![Family::V4, Family::V6])];
    let one = (families, any::<bool>(), any_held(), any_wish(), 0_i64..4).prop_map(
        |(families, needs_every_family, held, mut wish, created_seconds)| {
            wish.addresses.retain(|address| families.contains(&Family::of(*address)));
            Request { created_seconds, families, needs_every_family, held, wish: Ok(wish), ..request("s") }
        },
    );
    prop::collection::vec(one, 0..14).prop_map(|all| {
        let named = |(index, request)| Request { key: key(&format!("s{index}")), ..request };
        all.into_iter().enumerate().map(named).collect()
    })
}

fn any_pools() -> Ground {
    pools(vec![
        pool("a", &["10.60.0.8/30", "fd60::/126"], true),
        pool("b", &["10.60.0.12-10.60.0.14", "fd60::4/127"], false),
    ])
}

proptest! {
    #[test]
    fn no_address_is_given_twice(requests in any_requests()) {
        let answers = allocate(&any_pools(), &requests, &BTreeMap::new());
        let given: Vec<_> = answers.values().flat_map(|answer| &answer.addresses).collect();
        let distinct: BTreeSet<_> = given.iter().collect();
        prop_assert_eq!(given.len(), distinct.len());
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(requests in any_requests()) {
        let reversed: Vec<_> = requests.iter().rev().cloned().collect();
        prop_assert_eq!(
            allocate(&any_pools(), &requests, &BTreeMap::new()),
            allocate(&any_pools(), &reversed, &BTreeMap::new())
        );
    }

    #[test]
    fn who_has_an_address_alone_keeps_it_or_has_the_one_it_asks_for(requests in any_requests()) {
        let answers = allocate(&any_pools(), &requests, &BTreeMap::new());
        for request in &requests {
            for family in &request.families {
                let Some(held) = request.held.iter().find(|ip| Family::of(**ip) == *family) else { continue };
                if requests.iter().any(|other| other.key != request.key && other.held.contains(held)) {
                    continue;
                }
                let addresses = &answers[&request.key].addresses;
                let wish = request.wish.clone().expect("a wish");
                let asked = wish.addresses.iter().any(|ip| addresses.contains(ip)) || wish.pool.is_some();
                prop_assert!(addresses.contains(held) || asked, "{} lost {held}", request.key);
            }
        }
    }

    #[test]
    fn asking_again_with_what_was_given_comes_to_rest(requests in any_requests()) {
        let settle = |answers: &BTreeMap<ServiceKey, Answer>| -> Vec<_> {
            let held = |request: Request| Request { held: answers[&request.key].addresses.clone(), ..request };
            requests.iter().cloned().map(held).collect()
        };
        // What someone gave up in one round is free in the next.
        let mut last = allocate(&any_pools(), &requests, &BTreeMap::new());
        for _ in 0..requests.len() {
            last = allocate(&any_pools(), &settle(&last), &BTreeMap::new());
        }
        prop_assert_eq!(&last, &allocate(&any_pools(), &settle(&last), &BTreeMap::new()));
    }
}
