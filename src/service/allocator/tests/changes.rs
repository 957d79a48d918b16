//! What follows from one change after another.

use super::*;

/// A cluster whose Services are written as the ledger says, each as soon as it says so.
pub(super) struct World {
    pub(super) ledger: Ledger,
    requests: BTreeMap<ServiceKey, Request>,
    pub(super) seconds: u64,
    /// The Services that had to be looked at for the last change.
    pub(super) concerned: BTreeSet<ServiceKey>,
}

impl World {
    pub(super) fn of(ground: Ground) -> Self {
        let mut ledger = Ledger::default();
        drop(ledger.apply(ground.news(), at(0)));
        Self { ledger, requests: BTreeMap::new(), seconds: 0, concerned: BTreeSet::new() }
    }

    /// A Service as people write it; what it holds is carried over.
    pub(super) fn set(&mut self, request: Request) {
        let held = self.requests.get(&request.key).map(|known| known.held.clone());
        let request = Request { held: held.unwrap_or(request.held), ..request };
        self.requests.insert(request.key.clone(), request.clone());
        self.apply(News { services: BTreeMap::from([asks(request)]), ..News::default() });
    }

    /// As [`Self::set`], with the first answer that it leads to.
    pub(super) fn told(&mut self, request: Request) -> Answer {
        let held = self.requests.get(&request.key).map(|known| known.held.clone());
        let request = Request { held: held.unwrap_or(request.held), ..request };
        self.requests.insert(request.key.clone(), request.clone());
        let key = request.key.clone();
        let changed =
            self.ledger.apply(News { services: BTreeMap::from([asks(request)]), ..News::default() }, at(self.seconds));
        let answer = self.ledger.answer(&key).expect("an answer");
        self.write(changed.services);
        answer
    }

    pub(super) fn delete(&mut self, service: &str) {
        self.requests.remove(&key(service));
        self.apply(News { services: BTreeMap::from([(key(service), None)]), ..News::default() });
    }

    pub(super) fn pools(&mut self, ground: &Ground) {
        self.apply(News { pools: Some(ground.pools.clone()), ..News::default() });
    }

    pub(super) fn later(&mut self, seconds: u64) {
        self.seconds += seconds;
        self.apply(News::default());
    }

    pub(super) fn apply(&mut self, news: News) {
        self.concerned.clear();
        let changed = self.ledger.apply(news, at(self.seconds));
        self.write(changed.services);
    }

    /// Writes what changed, and what follows from that.
    fn write(&mut self, mut services: BTreeSet<ServiceKey>) {
        while let Some(key) = services.pop_first() {
            self.concerned.insert(key.clone());
            let (Some(request), Some(answer)) = (self.requests.get_mut(&key), self.ledger.answer(&key)) else {
                continue;
            };
            if request.held != answer.addresses {
                request.held = answer.addresses;
                let news = News { services: BTreeMap::from([asks(request.clone())]), ..News::default() };
                services.extend(self.ledger.apply(news, at(self.seconds)).services);
            }
        }
    }

    pub(super) fn has(&self, service: &str) -> Vec<IpAddr> {
        self.ledger.answer(&key(service)).expect("an answer").addresses
    }

    pub(super) fn note(&self, service: &str) -> Option<&'static str> {
        self.ledger.answer(&key(service)).expect("an answer").note.map(|note| note.reason())
    }
}

fn reusing(seconds: u32, addresses: &[&str]) -> Ground {
    pools(vec![observed("a", &AddressPoolSpec { reuse_after_seconds: seconds, ..spec(addresses) })])
}

/// A freed address reaches whoever waits, without any other event (MetalLB's issues 321 and 413).
#[test]
fn a_freed_address_goes_to_one_that_waits_without_another_event() {
    for reuse_after in [0, 60] {
        let mut world = World::of(reusing(reuse_after, &["10.60.0.10/32"]));
        world.set(request("svc0"));
        world.set(Request { created_seconds: 200, ..request("svc1") });
        world.set(Request { created_seconds: 150, ..request("svc2") });
        assert_eq!((world.note("svc1"), world.note("svc2")), (Some("PoolExhausted"), Some("PoolExhausted")));
        world.delete("svc0");
        assert_eq!(world.has("svc2"), [ip("10.60.0.10")], "the oldest of those that wait, reuse {reuse_after}");
        assert_eq!(world.has("svc1"), Vec::<IpAddr>::new());
    }
}

#[test]
fn an_address_that_was_given_back_cools_down_before_another_service_gets_it() {
    let mut world = World::of(reusing(60, &["10.60.0.10-10.60.0.12"]));
    world.set(request("a"));
    world.delete("a");
    world.set(request("b"));
    assert_eq!(world.has("b"), [ip("10.60.0.11")], "not the one that was just given back");
    world.later(60);
    world.set(request("c"));
    assert_eq!(world.has("c"), [ip("10.60.0.10")], "its time is over");
}

#[test]
fn a_service_of_the_same_name_has_its_address_back_at_once() {
    let mut world = World::of(reusing(60, &["10.60.0.10-10.60.0.12"]));
    world.set(request("x"));
    world.set(request("a"));
    world.delete("x");
    world.delete("a");
    world.set(Request { uid: "another".to_owned(), ..request("a") });
    assert_eq!(world.has("a"), [ip("10.60.0.11")]);
    world.set(Request { uid: "a third".to_owned(), ..request("a") });
    assert_eq!(world.has("a"), [ip("10.60.0.11")], "deleted and made again between two looks");
}

#[test]
fn whoever_asks_for_an_address_that_cools_down_gets_it_when_its_time_is_over() {
    let mut world = World::of(reusing(60, &["10.60.0.10-10.60.0.12"]));
    world.set(request("a"));
    world.delete("a");
    let wanting = Request { wish: asking(&["10.60.0.10"], None), ..request("b") };
    let cooling = Note::AddressCooling { address: ip("10.60.0.10"), by: key("a") };
    assert_eq!(world.told(wanting), refused(cooling));
    assert_eq!(world.ledger.deadline(), Some(at(60).moment));
    world.later(59);
    assert_eq!(world.has("b"), Vec::<IpAddr>::new());
    world.later(1);
    assert_eq!(world.has("b"), [ip("10.60.0.10")]);
    assert_eq!(world.ledger.deadline(), None);
}

#[test]
fn the_wait_is_over_early_when_the_pool_has_nothing_else() {
    let mut world = World::of(reusing(60, &["10.60.0.10-10.60.0.11"]));
    world.set(request("a"));
    world.set(request("b"));
    world.delete("b");
    world.later(1);
    world.delete("a");
    world.set(request("c"));
    assert_eq!(world.has("c"), [ip("10.60.0.11")], "the one that has waited longest");
    world.set(Request { wish: asking(&["10.60.0.10"], None), ..request("d") });
    assert_eq!(world.has("d"), [ip("10.60.0.10")], "by name as well");
}

#[test]
fn one_that_waits_by_name_is_served_once_the_pool_has_nothing_else() {
    let mut world = World::of(reusing(60, &["10.60.0.10-10.60.0.11"]));
    world.set(request("a"));
    world.delete("a");
    world.set(Request { wish: asking(&["10.60.0.10"], None), ..request("b") });
    assert_eq!(world.has("b"), Vec::<IpAddr>::new());
    world.set(request("c"));
    assert_eq!((world.has("c"), world.has("b")), (vec![ip("10.60.0.11")], vec![ip("10.60.0.10")]));
}

#[test]
fn the_next_leader_goes_on_with_what_cools_down() {
    let mut world = World::of(reusing(60, &["10.60.0.10-10.60.0.12"]));
    world.set(request("a"));
    world.delete("a");
    world.later(20);
    let report = world.ledger.report(&name("a")).expect("a report");
    assert_eq!(report.cooling, [(ip("10.60.0.10"), key("a"), at(0).unix_seconds)]);
    let mut ground = reusing(60, &["10.60.0.10-10.60.0.12"]);
    let pool = Arc::make_mut(ground.pools.get_mut(&name("a")).expect("a pool"));
    let (address, by, freed_seconds) = report.cooling[0].clone();
    pool.cooling.push(crate::service::pool_status::ObservedCooling { address, by, freed_seconds });
    for (name, elapsed, want) in [
        ("at once", 20, "10.60.0.11"),
        ("later", 60, "10.60.0.10"),
        ("the clock was set back a day: it waits no longer than the pool says", -86_400, "10.60.0.11"),
        ("the clock was set forward a day: it waits no longer", 86_400, "10.60.0.10"),
    ] {
        let mut next = Ledger::default();
        let unix_seconds = at(0).unix_seconds + elapsed;
        let now = Now { moment: Moment::since_boot(Duration::from_secs(5)), unix_seconds };
        let services = BTreeMap::from([asks(request("b"))]);
        drop(next.apply(News { services, ..ground.news() }, now));
        assert_eq!(next.answer(&key("b")).expect("an answer").addresses, [ip(want)], "{name}");
        assert!(next.deadline() <= Some(now.moment + Duration::from_secs(60)), "{name}");
    }
}

#[test]
fn a_wall_clock_that_jumps_changes_nothing_while_one_leads() {
    for jump in [-86_400, 0, 86_400] {
        let mut ledger = ledger(&reusing(60, &["10.60.0.10-10.60.0.12"]), &[request("a")], &BTreeMap::new());
        let jumped = |seconds: u64| Now { unix_seconds: at(seconds).unix_seconds + jump, ..at(seconds) };
        let mut apply = |services: Vec<_>, now| {
            drop(ledger.apply(News { services: services.into_iter().collect(), ..News::default() }, now));
            ledger.answer(&key("b")).map(|answer| answer.addresses)
        };
        apply(vec![(key("a"), None)], at(0));
        let wanting = Request { wish: asking(&["10.60.0.10"], None), ..request("b") };
        assert_eq!(apply(vec![asks(wanting)], jumped(1)), Some(vec![]), "{jump} s: it cools down");
        assert_eq!(apply(vec![], jumped(59)), Some(vec![]), "{jump} s: still");
        assert_eq!(apply(vec![], jumped(60)), Some(vec![ip("10.60.0.10")]), "{jump} s: its time is over");
    }
}

/// Another pool, or another address, is asked for (MetalLB's issue 448).
#[test]
fn what_a_service_asks_for_is_followed_and_never_costs_it_what_it_has() {
    let mut world = World::of(small());
    world.set(request("x"));
    assert_eq!(world.has("x"), [ip("10.60.0.10")]);
    world.set(Request { wish: asking(&[], Some("b")), ..request("x") });
    assert_eq!(world.has("x"), [ip("10.60.1.10")], "another pool");
    world.set(Request { wish: asking(&["10.60.1.11"], Some("b")), ..request("x") });
    assert_eq!(world.has("x"), [ip("10.60.1.11")], "another address of it");
    world.set(Request { wish: asking(&["10.99.0.1"], None), ..request("x") });
    assert_eq!((world.has("x"), world.note("x")), (vec![ip("10.60.1.11")], Some("AddressNotInPool")));
    let malformed = Note::AddressMalformed { field: "spec.loadBalancerIP".to_owned(), text: "x".to_owned() };
    world.set(Request { wish: Err(malformed), ..request("x") });
    assert_eq!((world.has("x"), world.note("x")), (vec![ip("10.60.1.11")], Some("AddressMalformed")));
}

/// The families of a Service change (MetalLB's issue 2726).
#[test]
fn families_follow_the_service() {
    let mut world = World::of(small());
    world.set(request("x"));
    world.set(Request { families: vec![Family::V6], ..request("x") });
    assert_eq!(world.has("x"), [ip("fd60::10")]);
    world.set(dual("x"));
    assert_eq!(world.has("x"), [ip("10.60.0.10"), ip("fd60::10")]);
}

#[test]
fn an_address_that_a_service_moves_away_from_is_its_own_until_the_write() {
    let mut ledger = ledger(&small(), &[Request { held: vec![ip("10.60.0.10")], ..request("a") }], &BTreeMap::new());
    let moving = Request { held: vec![ip("10.60.0.10")], wish: asking(&[], Some("b")), ..request("a") };
    drop(ledger.apply(
        News { services: BTreeMap::from([asks(moving.clone()), asks(request("b"))]), ..News::default() },
        at(1),
    ));
    assert_eq!(ledger.answer(&key("a")), Some(has(&["10.60.1.10"])));
    assert_eq!(ledger.answer(&key("b")), Some(has(&["10.60.0.11"])), "the other one is still announced");
    let moved = Request { held: vec![ip("10.60.1.10")], ..moving };
    drop(ledger.apply(News { services: BTreeMap::from([asks(moved), asks(request("c"))]), ..News::default() }, at(2)));
    assert_eq!(ledger.answer(&key("c")), Some(has(&["10.60.0.10"])));
}

#[test]
fn what_someone_writes_into_a_status_by_hand_is_put_right() {
    let mut ledger = ledger(&small(), &[Request { held: vec![ip("10.60.0.10")], ..request("a") }], &BTreeMap::new());
    for (name, held) in [
        ("taken away", vec![]),
        ("another one", vec![ip("10.60.0.11")]),
        ("more", vec![ip("10.60.0.10"), ip("10.60.1.10")]),
    ] {
        let meddled = Request { held, ..request("a") };
        drop(ledger.apply(News { services: BTreeMap::from([asks(meddled)]), ..News::default() }, at(1)));
        assert_eq!(ledger.answer(&key("a")), Some(has(&["10.60.0.10"])), "{name}");
    }
}

#[test]
fn a_late_write_of_another_leader_takes_nothing() {
    let mut ledger = ledger(&small(), &[Request { held: vec![ip("10.60.0.10")], ..request("b") }], &BTreeMap::new());
    let late =
        Request { held: vec![ip("10.60.0.10")], allocation: "3.9".parse().ok(), created_seconds: 1, ..request("a") };
    drop(ledger.apply(News { services: BTreeMap::from([asks(late)]), ..News::default() }, at(1)));
    assert_eq!(ledger.answer(&key("b")), Some(has(&["10.60.0.10"])));
    let lost = Note::AddressLost { address: ip("10.60.0.10"), by: key("b"), why: ShareRefusal::NoCommonKey };
    assert_eq!(ledger.answer(&key("a")), Some(keeps(&["10.60.0.11"], lost)));
}

#[test]
fn a_change_concerns_only_the_service_and_those_it_makes_room_for() {
    let mut world = World::of(pools(vec![pool("a", &["10.0.0.0/8"], true)]));
    for number in 0..2000 {
        world.set(request(&format!("s{number:04}")));
    }
    world.set(request("one-more"));
    assert_eq!(world.concerned, BTreeSet::from([key("one-more")]));
    world.delete("s0700");
    assert_eq!(world.concerned, BTreeSet::from([key("s0700")]));
    let node =
        |last: u8| NodeFacts { addresses: BTreeSet::from([IpAddr::from([192, 168, 0, last])]), ..NodeFacts::default() };
    for (last, facts) in [(1, Some(node(1))), (1, Some(node(2))), (1, None)] {
        let name: NodeName = format!("n{last}").parse().expect("a name");
        world.apply(News { nodes: BTreeMap::from([(name, facts)]), ..News::default() });
        assert_eq!(world.concerned, BTreeSet::new(), "a Node whose addresses are in no pool");
    }
    let labels = Labels::from([("a".to_owned(), "b".to_owned())]);
    world.apply(News { namespaces: BTreeMap::from([("default".to_owned(), Some(labels))]), ..News::default() });
    assert_eq!(world.concerned, BTreeSet::new(), "no pool looks at namespaces");
}
