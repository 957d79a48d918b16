//! Two leaders, one after the other, of which the first wakes up now and then, from a seed.
//!
//! Each looks at what a watch shows, perhaps as it was some time ago, plans, and sends one write after
//! the other. The first stops at any instruction, also between looking at the clock and sending, and
//! what it had decided arrives at any time after its successor began. Meanwhile people create, change
//! and delete Services, and write into their status. When the world calms down no address is served
//! twice, none is lost, and what the successor gave stays given.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::allocator::Now;
use super::cases::service;
use super::plan::{self, Action, CLEANUP_FINALIZER, Observed};
use super::pool_status::ObservedPool;
use super::term::Terms;
use crate::api::AddressPoolSpec;
use crate::model::claim::ALLOCATION;
use crate::model::views::{Ingress, IpMode, ServiceView};
use crate::model::{Moment, ServiceKey, Term};

/// Few enough to be fought for.
const ADDRESSES: usize = 6;
const NAMES: usize = 10;

type Services = BTreeMap<ServiceKey, Arc<ServiceView>>;

/// The API server: writes happen one after the other, each guarded by a version.
#[derive(Default)]
struct Server {
    version: u64,
    services: Services,
}

impl Server {
    fn put(&mut self, mut view: ServiceView) {
        self.version += 1;
        view.resource_version = self.version.to_string();
        if view.is_deleting && view.finalizers.is_empty() {
            self.services.remove(&view.key);
        } else {
            self.services.insert(view.key.clone(), Arc::new(view));
        }
    }

    /// What a write does when it arrives.
    fn take(&mut self, write: &Write) {
        let Some(now) = self.services.get(&write.key) else { return };
        let adds_to_one_that_goes = now.is_deleting && write.action.finalizers.as_ref().is_some_and(|f| !f.is_empty());
        if now.resource_version != write.action.resource_version || adds_to_one_that_goes {
            return;
        }
        self.put(after(now, write));
    }
}

/// A Service after a write.
fn after(before: &ServiceView, write: &Write) -> ServiceView {
    let mut view = before.clone();
    let Action { finalizers, ingress, .. } = &write.action;
    view.finalizers = finalizers.clone().unwrap_or(view.finalizers);
    view.ingress = ingress.iter().map(|ip| Ingress { ip: Some(*ip), ip_mode: IpMode::Vip }).collect();
    match write.term {
        Some(term) => drop(view.annotations.insert(ALLOCATION.to_owned(), term.to_string())),
        None if ingress.is_empty() => drop(view.annotations.remove(ALLOCATION)),
        None => {}
    }
    view
}

struct Write {
    key: ServiceKey,
    action: Action,
    term: Option<Term>,
}

/// One leader: what its store shows, and what it has decided and not sent yet.
struct Leader {
    lease: u64,
    seen: Services,
    terms: Option<Terms>,
    decided: Vec<Write>,
}

impl Leader {
    fn new(lease: u64) -> Self {
        Self { lease, seen: Services::new(), terms: None, decided: Vec::new() }
    }

    fn plan(&mut self, pool: &Arc<ObservedPool>) {
        let name = "a".parse().expect("a name");
        let pools = BTreeMap::from([(name, Arc::clone(pool))]);
        let observed = Observed { services: self.seen.clone(), pools, ..Observed::default() };
        let terms = self.terms.get_or_insert_with(|| Terms::new(self.lease, self.seen.values().map(|view| &**view)));
        let now = Now { moment: Moment::default(), unix_seconds: 1_800_000_000 };
        let (plan, _) = plan::plan(&observed, now);
        self.decided = plan
            .actions
            .into_iter()
            .map(|(key, action)| {
                let term = terms.number(&self.seen[&key], &action);
                Write { key, action, term }
            })
            .collect();
    }
}

struct World {
    random: fastrand::Rng,
    server: Server,
    pool: Arc<ObservedPool>,
    /// Past what a watch may still show.
    history: Vec<Services>,
}

impl World {
    fn new(seed: u64) -> Self {
        let addresses = vec![format!("10.60.0.1-10.60.0.{ADDRESSES}")];
        let spec =
            AddressPoolSpec { addresses, reuse_after_seconds: 0, auto_assign: true, ..AddressPoolSpec::default() };
        let pool =
            ObservedPool { resource_version: "1".to_owned(), ..crate::service::cases::observed_pool("a", &spec) };
        let (random, server, history) = (fastrand::Rng::with_seed(seed), Server::default(), Vec::new());
        Self { random, server, pool: Arc::new(pool), history }
    }

    /// Somebody does something.
    fn meddle(&mut self) {
        self.history.push(self.server.services.clone());
        let name = format!("s{}", self.random.usize(0..NAMES));
        let key = ServiceKey::new("default", &name);
        let Some(now) = self.server.services.get(&key).cloned() else {
            let created_seconds = i64::try_from(self.server.version).expect("a short simulation");
            let uid = format!("{name}-{created_seconds}");
            return self.server.put(ServiceView { created_seconds, uid, ..service(&name) });
        };
        let mut view = ServiceView::clone(&now);
        match self.random.u32(0..10) {
            0..3 => view.is_deleting = true,
            3 => view.ingress.clear(),
            4 => view.is_load_balancer = !view.is_load_balancer,
            5 => view.finalizers.clear(),
            _ => {
                let wish = self.address();
                view.annotations.insert("cairn.dev/load-balancer-ips".to_owned(), wish.to_string());
            }
        }
        self.server.put(view);
    }

    fn address(&mut self) -> IpAddr {
        format!("10.60.0.{}", self.random.usize(1..=ADDRESSES)).parse().expect("an address")
    }

    /// One instruction of a leader: its watch goes on, it plans, or it sends.
    fn step(&mut self, leader: &mut Leader) {
        match self.random.u32(0..4) {
            0 => leader.seen = self.server.services.clone(),
            1 if !self.history.is_empty() => {
                let index = self.random.usize(0..self.history.len());
                // A watch never goes back.
                leader.seen = newest(&leader.seen, &self.history[index]);
            }
            2 => leader.plan(&self.pool),
            _ => {
                if let Some(write) = leader.decided.pop() {
                    self.history.push(self.server.services.clone());
                    self.server.take(&write);
                    // What was answered counts before the watch shows it.
                    if let Some(view) = self.server.services.get(&write.key) {
                        leader.seen.insert(write.key.clone(), Arc::clone(view));
                    }
                }
            }
        }
    }

    /// Lets a leader work on what is there until it finds nothing to do.
    fn settle(&mut self, leader: &mut Leader) {
        for _ in 0..100 {
            leader.seen = self.server.services.clone();
            leader.plan(&self.pool);
            if leader.decided.is_empty() {
                return;
            }
            for write in std::mem::take(&mut leader.decided) {
                self.server.take(&write);
            }
        }
        panic!("it never finds nothing to do");
    }

    /// Who has which address.
    fn holders(&self) -> BTreeMap<IpAddr, Vec<&ServiceView>> {
        let mut holders = BTreeMap::<_, Vec<_>>::new();
        for view in self.server.services.values() {
            for ip in view.ingress.iter().filter_map(|entry| entry.ip) {
                holders.entry(ip).or_default().push(&**view);
            }
        }
        holders
    }
}

fn version(view: &ServiceView) -> u64 {
    view.resource_version.parse().expect("a number")
}

fn newest(one: &Services, other: &Services) -> Services {
    let latest = |services: &Services| services.values().map(|view| version(view)).max().unwrap_or_default();
    if latest(one) < latest(other) { other.clone() } else { one.clone() }
}

/// What happened in one run.
struct Run {
    world: World,
    successor: Leader,
    /// Writes of the first leader that arrived after its successor had begun, and changed something.
    late: usize,
    /// How often an address was with two Services for a while.
    doubled: usize,
}

fn run(seed: u64) -> Run {
    let mut world = World::new(seed);
    let mut first = Leader::new(4);
    for _ in 0..60 {
        if world.random.u32(0..3) == 0 {
            world.meddle();
        }
        world.step(&mut first);
    }
    // It stands still: what it had decided is on its way or will be, whenever it goes on.
    let mut under_way = first.decided;
    let mut successor = Leader::new(5);
    successor.seen = world.server.services.clone();
    let (mut late, mut doubled) = (0, 0);
    for _ in 0..60 {
        if world.random.u32(0..3) == 0 {
            world.meddle();
        }
        world.step(&mut successor);
        if world.random.u32(0..8) == 0
            && let Some(write) = under_way.pop()
        {
            let before = world.server.version;
            world.server.take(&write);
            late += usize::from(world.server.version > before);
        }
        doubled += usize::from(world.holders().values().any(|holders| holders.len() > 1));
    }
    for write in under_way {
        world.server.take(&write);
    }
    Run { world, successor, late, doubled }
}

#[test]
fn when_the_world_calms_down_no_address_is_served_twice_and_none_is_lost() {
    let (mut late, mut doubled) = (0, 0);
    for seed in 0..3_000 {
        let Run { mut world, mut successor, late: arrived, doubled: twice } = run(seed);
        (late, doubled) = (late + arrived, doubled + twice);
        let right = by_right(&world);
        world.settle(&mut successor);
        for (address, holders) in world.holders() {
            let names: Vec<_> = holders.iter().map(|view| view.key.to_string()).collect();
            assert_eq!(names.len(), 1, "seed {seed}: {address} is with {names:?}");
        }
        for (address, key) in right {
            let view = world.server.services.get(&key);
            let keeps = view.is_some_and(|view| view.ingress.iter().any(|entry| entry.ip == Some(address)));
            assert!(keeps, "seed {seed}: {key} lost {address}, which it had by right");
        }
        let orphans = world.server.services.values().filter(|view| {
            let has_ours = view.finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER);
            has_ours && (view.is_deleting || !view.is_load_balancer)
        });
        assert_eq!(orphans.count(), 0, "seed {seed}: a finalizer is left");
        every_address_can_be_had(seed, &mut world, &mut successor);
    }
    assert!(late > 100 && doubled > 100, "{late} late writes and {doubled} moments with two prove little");
}

/// What living Services of ours have that ask for nothing else, and have by the highest term.
fn by_right(world: &World) -> BTreeMap<IpAddr, ServiceKey> {
    let is_content = |view: &ServiceView| {
        view.is_load_balancer && !view.is_deleting && !view.annotations.contains_key("cairn.dev/load-balancer-ips")
    };
    let term = |view: &ServiceView| view.annotations.get(ALLOCATION).and_then(|text| text.parse::<Term>().ok());
    let owner = |(address, mut holders): (IpAddr, Vec<&ServiceView>)| {
        holders.sort_by_key(|view| term(view));
        let owner = holders.last().copied().filter(|owner| is_content(owner) && term(owner).is_some())?;
        Some((address, owner.key.clone()))
    };
    world.holders().into_iter().filter_map(owner).collect()
}

/// With everybody gone but those who ask for nothing in particular, the pool serves as many as it has addresses.
fn every_address_can_be_had(seed: u64, world: &mut World, leader: &mut Leader) {
    for view in world.server.services.clone().into_values() {
        world.server.put(ServiceView { is_deleting: true, ..ServiceView::clone(&view) });
    }
    world.settle(leader);
    assert!(world.server.services.is_empty(), "seed {seed}: {:?} cannot be deleted", world.server.services.keys());
    for number in 0..=ADDRESSES {
        world.server.put(service(&format!("n{number}")));
    }
    world.settle(leader);
    let had: BTreeSet<_> = world.holders().into_keys().collect();
    assert_eq!(had.len(), ADDRESSES, "seed {seed}: an address is lost");
}
