//! Services and pools that come and go by the thousand, and writes that fail in every way: nothing is left behind.

use std::time::Duration;

use super::tests::said;
use super::*;
use crate::api::AddressPoolSpec;
use crate::model::views::{Ingress, IpMode};
use crate::service::cases;

/// An API server that answers at once, and not always well.
struct World {
    desk: Desk,
    version: u64,
    now: u64,
    services: BTreeMap<ServiceKey, Arc<ServiceView>>,
    pools: BTreeMap<PoolName, Arc<ObservedPool>>,
    writes: usize,
}

impl World {
    fn new() -> Self {
        let (desk, services, pools) = (Desk::new(7, Scope::Default, 4), BTreeMap::new(), BTreeMap::new());
        let mut world = Self { desk, version: 0, now: 0, services, pools, writes: 0 };
        world.desk.hear_entrances(|_, _| {}, world.at());
        world
    }

    fn at(&self) -> Now {
        let unix_seconds = 1_800_000_000 + i64::try_from(self.now).expect("a short test");
        Now { moment: Moment::since_boot(Duration::from_secs(1000 + self.now)), unix_seconds }
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn put(&mut self, view: ServiceView) {
        let (key, resource_version) = (view.key.clone(), self.next_version());
        let view = Arc::new(ServiceView { resource_version, ..view });
        if view.is_deleting && view.finalizers.is_empty() {
            self.services.remove(&key);
        } else {
            self.services.insert(key.clone(), view);
        }
        self.show(&key);
    }

    fn show(&mut self, key: &ServiceKey) {
        let seen = BTreeMap::from([(key.clone(), self.services.get(key).cloned())]);
        self.desk.hear(seen, None, News::default(), self.at());
    }

    fn put_pool(&mut self, name: &str, addresses: &str) {
        let spec = AddressPoolSpec {
            addresses: vec![addresses.to_owned()],
            auto_assign: true,
            reuse_after_seconds: 30,
            ..AddressPoolSpec::default()
        };
        let pool = ObservedPool { resource_version: self.next_version(), ..cases::observed_pool(name, &spec) };
        self.pools.insert(name.parse().expect("a name"), Arc::new(pool));
        self.show_pools();
    }

    fn show_pools(&mut self) {
        self.desk.hear(BTreeMap::new(), Some(self.pools.clone()), News::default(), self.at());
    }

    /// Sends what is to be sent; every third write fails, each time in another way.
    fn work(&mut self) {
        for write in self.desk.writes(self.at()) {
            self.writes += 1;
            let failure = match self.writes % 12 {
                0 => Some(WriteError::TimedOut),
                3 | 6 => Some(WriteError::Conflict),
                9 => Some(WriteError::Gone),
                _ => None,
            };
            let now = self.at();
            let answered = match write {
                Write::Service(key, action) => {
                    let result = failure.map_or_else(|| self.take(&key, &action).ok_or(WriteError::Gone), Err);
                    Answered::Service(key, action, result.map(Box::new))
                }
                Write::Pool(name, _, status) => {
                    let result = failure.map_or_else(|| self.take_pool(&name, *status).ok_or(WriteError::Gone), Err);
                    Answered::Pool(name, result.map(Box::new))
                }
                Write::Conditions(key, version, list) => {
                    let taken = || self.take_conditions(&key, &version, &list).ok_or(WriteError::Gone);
                    let result = failure.map_or_else(taken, Err);
                    Answered::Conditions(key, result.map(Box::new))
                }
            };
            self.desk.answered(answered, now);
        }
        drop(self.desk.words());
        self.services.keys().cloned().collect::<Vec<_>>().iter().for_each(|key| self.show(key));
    }

    fn take(&mut self, key: &ServiceKey, action: &Action) -> Option<ServiceView> {
        let before = self.services.get(key).filter(|view| view.resource_version == action.resource_version)?;
        let entry = |ip: &_| Ingress { ip: Some(*ip), ip_mode: IpMode::Vip };
        let view = ServiceView {
            finalizers: action.finalizers.clone().unwrap_or_else(|| before.finalizers.clone()),
            ingress: action.ingress.iter().map(entry).collect(),
            conditions: if action.conditions.is_some() { Default::default() } else { before.conditions.clone() },
            ..ServiceView::clone(before)
        };
        self.put(view.clone());
        Some(ServiceView { resource_version: self.version.to_string(), ..view })
    }

    fn take_conditions(&mut self, key: &ServiceKey, version: &str, list: &Value) -> Option<ServiceView> {
        let before = self.services.get(key).filter(|view| view.resource_version == version)?;
        let view = ServiceView { conditions: said(list), ..ServiceView::clone(before) };
        self.put(view.clone());
        Some(ServiceView { resource_version: self.version.to_string(), ..view })
    }

    fn take_pool(&mut self, name: &PoolName, status: AddressPoolStatus) -> Option<ObservedPool> {
        let resource_version = self.next_version();
        let before = self.pools.get(name)?;
        let pool = ObservedPool { resource_version, status, ..ObservedPool::clone(before) };
        self.pools.insert(name.clone(), Arc::new(pool.clone()));
        Some(pool)
    }

    /// Lets everything come to rest, and tells how much is known then.
    fn settled(&mut self) -> usize {
        for _ in 0..40 {
            self.now += 5;
            self.show_pools();
            self.work();
        }
        assert_eq!(self.desk.on_their_way, BTreeSet::new());
        format!("{:#?}", self.desk).lines().count()
    }
}

/// MetalLB's issues 246, 1570 and 1581.
#[test]
fn statement_56_nothing_is_left_of_what_came_and_went() {
    let mut world = World::new();
    world.put_pool("a", "10.60.0.0/24");
    let labels = |round: u64| BTreeMap::from([("round".to_owned(), (round % 2).to_string())]);
    world.put(ServiceView { labels: labels(1).into(), ..cases::service("one") });
    world.put(cases::service("two"));
    let before = world.settled();
    for round in 0..1_000 {
        let (name, other) = (format!("s{round}"), format!("t{round}"));
        world.put(cases::service(&name));
        world.put(ServiceView { load_balancer_ip: Some("10.99.0.1".to_owned()), ..cases::service(&other) });
        world.put_pool(&format!("p{round}"), &format!("10.{}.0.0/28", 61 + round % 100));
        world.work();
        world.now += round % 7;
        world.work();
        let key = ServiceKey::new("default", "one");
        let view = ServiceView::clone(&world.services[&key]);
        world.put(ServiceView { labels: labels(round).into(), ..view });
        for name in [&name, &other] {
            if let Some(view) = world.services.get(&ServiceKey::new("default", name.as_str())).cloned() {
                world.put(ServiceView { is_deleting: true, ..ServiceView::clone(&view) });
            }
        }
        world.pools.remove(&format!("p{round}").parse::<PoolName>().expect("a name"));
        world.show_pools();
        world.work();
    }
    let after = world.settled();
    assert_eq!(world.services.len(), 2, "{:?}", world.services.keys());
    assert!(world.writes > 3_000, "only {} writes", world.writes);
    assert_eq!(after, before, "lines of {:#?}", world.desk);
}
