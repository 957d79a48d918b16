//! Random sequences of changes, and a model that looks at every address.

use fastrand::Rng;

use super::*;
use crate::api::{Reservation, Serves};
use crate::model::PortProtocol;
use crate::service::request::Entry;

/// A cluster that changes at random, with its statuses written now and then.
struct World {
    rng: Rng,
    ledger: Ledger,
    ground: Ground,
    requests: BTreeMap<ServiceKey, Request>,
    /// What was being written; written once the turn comes.
    unwritten: BTreeSet<ServiceKey>,
    seconds: u64,
    terms: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let ground = any_ground(&mut rng);
        let mut ledger = Ledger::default();
        drop(ledger.apply(ground.news(), at(0)));
        Self { rng, ledger, ground, requests: BTreeMap::new(), unwritten: BTreeSet::new(), seconds: 0, terms: 0 }
    }

    fn step(&mut self) {
        let before = self.answers();
        let mut meddled = BTreeSet::new();
        let news = match self.rng.u8(0..20) {
            0..9 => {
                let request = self.any_request();
                meddled.insert(request.key.clone());
                self.requests.insert(request.key.clone(), request.clone());
                News { services: BTreeMap::from([asks(request)]), ..News::default() }
            }
            9..13 => {
                let key = any_key(&mut self.rng);
                self.requests.remove(&key);
                News { services: BTreeMap::from([(key, None)]), ..News::default() }
            }
            13 => {
                self.ground.pools = any_ground(&mut self.rng).pools;
                News { pools: Some(self.ground.pools.clone()), ..News::default() }
            }
            14 => {
                let node: NodeName = format!("n{}", self.rng.u8(0..2)).parse().expect("a name");
                let address = IpAddr::from([10, 60, 0, self.rng.u8(8..24)]);
                let facts = NodeFacts { addresses: BTreeSet::from([address]), ..NodeFacts::default() };
                let facts = self.rng.bool().then_some(facts);
                self.ground.of_nodes.retain(|_, other| *other != node);
                self.ground.of_nodes.extend(facts.as_ref().map(|_| (address, node.clone())));
                News { nodes: BTreeMap::from([(node, facts)]), ..News::default() }
            }
            15 => {
                self.seconds += self.rng.u64(1..40);
                News::default()
            }
            _ => self.write(),
        };
        let changed = self.ledger.apply(news, at(self.seconds));
        self.unwritten.extend(changed.services);
        self.unwritten.extend(meddled.iter().cloned());
        self.check(&before, &meddled);
    }

    /// One status is written.
    fn write(&mut self) -> News {
        let Some(key) = self.unwritten.pop_first() else { return News::default() };
        let (Some(request), Some(answer)) = (self.requests.get_mut(&key), self.ledger.answer(&key)) else {
            return News::default();
        };
        if request.held != answer.addresses {
            self.terms += 1;
            request.allocation = Some(crate::model::Term { lease: 1, number: self.terms });
            request.held = answer.addresses;
        }
        News { services: BTreeMap::from([asks(request.clone())]), ..News::default() }
    }

    fn any_request(&mut self) -> Request {
        let rng = &mut self.rng;
        let key = any_key(rng);
        let known = self.requests.get(&key);
        let families = match rng.u8(0..4) {
            0 | 1 => vec![Family::V4],
            2 => vec![Family::V6],
            _ => vec![Family::V4, Family::V6],
        };
        let wish = match rng.u8(0..8) {
            0 if families.contains(&Family::V4) => {
                Wish { addresses: vec![IpAddr::from([10, 60, 0, rng.u8(8..24)])], pool: None }
            }
            1 => Wish { addresses: Vec::new(), pool: Some(name(["a", "b", "c"][rng.usize(0..3)])) },
            _ => Wish::default(),
        };
        let selector = BTreeMap::from([("app".to_owned(), rng.u8(0..2).to_string())]);
        let sharing = Sharing {
            key: (rng.u8(0..3) == 0).then(|| ["k", "l"][rng.usize(0..2)].to_owned()),
            entry: if rng.u8(0..4) == 0 {
                Entry::Local { namespace: key.namespace().to_owned(), selector }
            } else {
                Entry::Cluster
            },
            ports: BTreeSet::from([(PortProtocol::Tcp, rng.u16(80..84))]),
        };
        Request {
            uid: known.map_or_else(|| rng.u32(..).to_string(), |known| known.uid.clone()),
            created_seconds: known.map_or_else(|| rng.i64(0..4), |known| known.created_seconds),
            held: known.map(|known| known.held.clone()).unwrap_or_default(),
            allocation: known.and_then(|known| known.allocation),
            families,
            needs_every_family: rng.bool(),
            wish: Ok(wish),
            sharing,
            may_move: rng.u8(0..6) == 0,
            key,
            ..request("")
        }
    }

    fn answers(&self) -> BTreeMap<ServiceKey, Answer> {
        let answer = |key: &ServiceKey| Some((key.clone(), self.ledger.answer(key)?));
        self.requests.keys().filter_map(answer).collect()
    }

    fn check(&mut self, before: &BTreeMap<ServiceKey, Answer>, meddled: &BTreeSet<ServiceKey>) {
        let answers = self.answers();
        self.nobody_has_what_another_has(&answers);
        for (key, answer) in &answers {
            let (Some(had), false) = (before.get(key), meddled.contains(key)) else { continue };
            let request = &self.requests[key];
            let moves = request.may_move || request.wish.as_ref().is_ok_and(|wish| *wish != Wish::default());
            for address in &had.addresses {
                let is_kept = answer.addresses.contains(address) || self.ground.of_nodes.contains_key(address);
                assert!(is_kept || moves, "{key} lost {address}: {had:?}, then {answer:?}");
            }
        }
        self.nobody_waits_in_vain(&answers);
    }

    fn nobody_has_what_another_has(&self, answers: &BTreeMap<ServiceKey, Answer>) {
        let mut holders = BTreeMap::<IpAddr, Vec<&Request>>::new();
        for (key, answer) in answers {
            for address in &answer.addresses {
                assert!(!self.ground.of_nodes.contains_key(address), "{key} has a Node's {address}");
                holders.entry(*address).or_default().push(&self.requests[key]);
            }
        }
        for (address, holders) in holders {
            for (index, one) in holders.iter().enumerate() {
                for other in &holders[..index] {
                    assert!(may_share(&one.sharing, &other.sharing), "{address}: {} and {}", one.key, other.key);
                }
            }
        }
    }

    /// No Service lacks a family that a pool has for it, found by looking at each address.
    fn nobody_waits_in_vain(&mut self, answers: &BTreeMap<ServiceKey, Answer>) {
        let taken: BTreeSet<IpAddr> = (answers.values().flat_map(|answer| answer.addresses.iter()))
            .chain(self.requests.values().flat_map(|request| request.held.iter()))
            .copied()
            .collect();
        for (key, answer) in answers {
            let request = self.requests[key].clone();
            let Ok(wish) = &request.wish else { continue };
            if answer.addresses.len() == request.families.len() || !wish.addresses.is_empty() {
                continue;
            }
            let lacking = |family: &&Family| !answer.addresses.iter().any(|ip| Family::of(*ip) == **family);
            let lacking: Vec<_> = request.families.iter().filter(lacking).copied().collect();
            let could = lacking.iter().filter(|family| self.has_any(&request, wish, **family, &taken)).count();
            let is_served = if request.needs_every_family { could == lacking.len() } else { could > 0 };
            assert!(!is_served, "{key} waits in vain: {answer:?} of {request:?}");
        }
    }

    fn has_any(&self, request: &Request, wish: &Wish, family: Family, taken: &BTreeSet<IpAddr>) -> bool {
        for (name, observed) in &self.ground.pools {
            let (Ok(pool), Some(report)) = (&observed.check, self.ledger.report(name)) else { continue };
            let is_asked = wish.pool.as_ref().map_or(pool.auto_assign, |wished| wished == name);
            if !is_asked || !pick::serves(pool, request, &BTreeMap::new()) {
                continue;
            }
            let namespace = request.key.namespace();
            let used = self.ledger.shelves[name].used_by(namespace);
            // With room for one of two that it needs, neither is its own.
            if pool.namespace_quota.is_some_and(|limit| used + request.families.len() > limit as usize) {
                continue;
            }
            let addresses = report.blocks.iter().flat_map(|block| (0..).map_while(|offset| block.address_at(offset)));
            let is_free = |address: &IpAddr| {
                Family::of(*address) == family
                    && pool.contains(*address)
                    && !taken.contains(address)
                    && !self.ground.of_nodes.contains_key(address)
                    && pool.reservations.get(address).is_none_or(|key| *key == request.key)
            };
            if addresses.into_iter().any(|address| is_free(&address)) {
                return true;
            }
        }
        false
    }

    /// Once everything is written, a ledger made of everything says the same.
    fn settles(&mut self) {
        for _ in 0..1000 {
            if self.unwritten.is_empty() {
                break;
            }
            let news = self.write();
            let changed = self.ledger.apply(news, at(self.seconds));
            self.unwritten.extend(changed.services);
        }
        assert!(self.unwritten.is_empty(), "it never comes to rest");
        let mut ground = self.ground.clone();
        for (name, pool) in &mut ground.pools {
            let report = self.ledger.report(name).expect("a report");
            let pool = Arc::make_mut(pool);
            pool.blocks.clone_from(&report.ground);
            pool.draining.clone_from(&report.draining);
            let observed = |(address, by, freed_seconds)| crate::service::pool_status::ObservedCooling {
                address,
                by,
                freed_seconds,
            };
            pool.cooling = report.cooling.into_iter().map(observed).collect();
        }
        let requests: Vec<_> = self.requests.values().cloned().collect();
        for requests in [requests.clone(), requests.into_iter().rev().collect()] {
            let mut fresh = Ledger::default();
            let services = requests.iter().cloned().map(asks).collect();
            drop(fresh.apply(News { services, ..ground.news() }, at(self.seconds)));
            for request in &requests {
                let (here, there) = (self.ledger.answer(&request.key), fresh.answer(&request.key));
                let addresses = |answer: Option<Answer>| answer.expect("an answer").addresses;
                assert_eq!(addresses(here), addresses(there), "{request:?}");
            }
        }
    }
}

fn may_share(one: &Sharing, other: &Sharing) -> bool {
    one.key.is_some() && one.key == other.key && one.entry == other.entry && one.ports.is_disjoint(&other.ports)
}

fn any_key(rng: &mut Rng) -> ServiceKey {
    ServiceKey::new(["default", "team-a"][rng.usize(0..2)], format!("s{}", rng.u8(0..16)))
}

fn any_ground(rng: &mut Rng) -> Ground {
    let serves = |rng: &mut Rng| {
        let namespaces = vec!["team-a".to_owned()];
        (rng.u8(0..3) == 0).then(|| Serves { namespaces, ..Serves::default() })
    };
    let first = rng.u8(8..11);
    let reserved =
        Reservation { address: "10.60.0.12".to_owned(), namespace: "team-a".to_owned(), name: "s1".to_owned() };
    let a = AddressPoolSpec {
        reuse_after_seconds: 60,
        reservations: if rng.bool() { vec![reserved] } else { Vec::new() },
        ..spec(&[&format!("10.60.0.{first}-10.60.0.13"), "fd60::/126"])
    };
    let b = AddressPoolSpec {
        auto_assign: rng.bool(),
        namespace_quota: rng.bool().then_some(2),
        serves: serves(rng),
        ..spec(&["10.60.0.16/30", "fd60::8/127"])
    };
    let c = AddressPoolSpec { serves: serves(rng), reuse_after_seconds: 10, ..spec(&["10.60.0.20-10.60.0.22"]) };
    let mut all = vec![observed("a", &a), observed("b", &b)];
    all.extend(rng.bool().then(|| observed("c", &c)));
    pools(all)
}

#[test]
fn ten_thousand_random_changes_break_no_rule() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..250 {
            world.step();
        }
        world.settles();
    }
}
