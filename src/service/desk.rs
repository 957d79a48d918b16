//! What the room has on its desk: what it knows, what is to be written, and what is on its way.
//!
//! News goes in, writes come out, each when it may be sent; there is no round in which everything
//! waits for everything. An object has at most one write on its way, and what is heard of it
//! meanwhile is looked at when the answer is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use super::allocator::{Changed, Ledger, News, Now};
use super::leaving::Leaving;
use super::plan::{self, Action};
use super::pool_status::{self, ObservedPool};
use super::term::Terms;
use crate::api::AddressPoolStatus;
use crate::cluster::backoff::Backoff;
use crate::cluster::events;
use crate::cluster::patch::WriteError;
use crate::cluster::told::Told;
use crate::cluster::traffic::IN_FLIGHT;
use crate::cluster::written::is_older;
use crate::model::views::ServiceView;
use crate::model::{Moment, Note, PoolName, Scope, ServiceKey};

/// A pool's status changes with every Service; it is written no more often than this.
const POOL_PACE: Duration = Duration::from_secs(1);

/// One write to be sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Write {
    /// To a Service.
    Service(ServiceKey, Box<Action>),
    /// Of a pool's status, in place of this version of it.
    Pool(PoolName, String, Box<AddressPoolStatus>),
}

/// What came of a write.
#[derive(Debug)]
pub(super) enum Answered {
    Service(ServiceKey, Box<Action>, Result<Box<ServiceView>, WriteError>),
    Pool(PoolName, Result<Box<ObservedPool>, WriteError>),
}

/// What a write is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Service(ServiceKey),
    Pool(PoolName),
}

/// Something to tell about a Service.
pub(super) type Word = (Arc<ServiceView>, Note);

/// See the module.
pub(super) struct Desk {
    scope: Scope,
    lease_term: u64,
    /// None before the first Services are heard of, which are all.
    terms: Option<Terms>,
    ledger: Ledger,
    services: BTreeMap<ServiceKey, Arc<ServiceView>>,
    pools: BTreeMap<PoolName, Arc<ObservedPool>>,
    /// Services that have to be looked at, the oldest first.
    queue: BTreeSet<(i64, ServiceKey)>,
    /// Services whose write waits until the next leader would know what they give back.
    gated: BTreeSet<ServiceKey>,
    /// When they are looked at, whatever pools say.
    gate_opens: Option<Moment>,
    pool_queue: BTreeSet<PoolName>,
    pool_written: BTreeMap<PoolName, Moment>,
    on_their_way: BTreeSet<Object>,
    /// What was heard of Services with a write on its way.
    held_back: BTreeMap<ServiceKey, Option<Arc<ServiceView>>>,
    leaving: Leaving,
    backoff: Backoff<Object>,
    told: events::News<ServiceKey>,
    to_tell: Vec<Word>,
}

impl Desk {
    /// Nothing is known yet. `lease_term` is `spec.leaseTransitions` of the Lease under which this process leads.
    pub(super) fn new(seed: u64, scope: Scope, lease_term: u64) -> Self {
        Self {
            scope,
            lease_term,
            terms: None,
            ledger: Ledger::default(),
            services: BTreeMap::new(),
            pools: BTreeMap::new(),
            queue: BTreeSet::new(),
            gated: BTreeSet::new(),
            gate_opens: None,
            pool_queue: BTreeSet::new(),
            pool_written: BTreeMap::new(),
            on_their_way: BTreeSet::new(),
            held_back: BTreeMap::new(),
            leaving: Leaving::default(),
            backoff: Backoff::new(seed),
            told: events::News::default(),
            to_tell: Vec::new(),
        }
    }

    /// Every Service that is known.
    pub(super) fn known(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services.keys()
    }

    /// Who has what.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Takes what was heard; the Services and pools of `news` come as views.
    pub(super) fn hear(
        &mut self,
        services: BTreeMap<ServiceKey, Option<Arc<ServiceView>>>,
        pools: Option<BTreeMap<PoolName, Arc<ObservedPool>>>,
        mut news: News,
        now: Now,
    ) {
        for (key, view) in services {
            if self.on_their_way.contains(&Object::Service(key.clone())) {
                self.held_back.insert(key, view);
            } else if self.see(&key, view) {
                news.services
                    .insert(key.clone(), self.services.get(&key).and_then(|view| plan::standing(view, self.scope)));
            }
        }
        if self.terms.is_none() {
            self.terms = Some(Terms::new(self.lease_term, self.services.values().map(|view| &**view)));
        }
        if let Some(pools) = pools {
            self.see_pools(pools);
            news.pools = Some(self.pools.clone());
        }
        self.apply(news, now);
    }

    fn apply(&mut self, news: News, now: Now) {
        let keys: Vec<_> = news.services.keys().cloned().collect();
        let Changed { services, pools } = self.ledger.apply(news, now);
        services.into_iter().chain(keys).for_each(|key| self.enqueue(key));
        self.pool_queue.extend(pools);
    }

    /// Keeps the newer of what is known and what is seen of a Service; whether that is news.
    fn see(&mut self, key: &ServiceKey, view: Option<Arc<ServiceView>>) -> bool {
        let Some(view) = view else { return self.services.remove(key).is_some() };
        let known = self.services.get(key);
        // A store that lags behind the own writes says nothing new.
        if known.is_some_and(|known| is_older(&view.resource_version, &known.resource_version) || *known == view) {
            return false;
        }
        self.services.insert(key.clone(), view);
        true
    }

    fn see_pools(&mut self, pools: BTreeMap<PoolName, Arc<ObservedPool>>) {
        let mut newest = BTreeMap::new();
        for (name, pool) in pools {
            let known = self.pools.get(&name);
            let is_behind = known.filter(|known| is_older(&pool.resource_version, &known.resource_version));
            let pool = is_behind.cloned().unwrap_or(pool);
            if known != Some(&pool) {
                self.pool_queue.insert(name.clone());
            }
            newest.insert(name, pool);
        }
        self.pools = newest;
    }

    fn enqueue(&mut self, key: ServiceKey) {
        self.gated.remove(&key);
        let created = self.services.get(&key).map_or(0, |view| view.created_seconds);
        self.queue.insert((created, key));
    }

    /// The writes that may be sent now.
    pub(super) fn writes(&mut self, now: Now) -> Vec<Write> {
        self.apply(News::default(), now);
        for object in self.backoff.take_due(now.moment) {
            match object {
                Object::Service(key) => self.enqueue(key),
                Object::Pool(name) => _ = self.pool_queue.insert(name),
            }
        }
        if self.gate_opens.is_some_and(|opens| opens <= now.moment) {
            self.open_gate();
        }
        let mut writes = Vec::new();
        let mut later = Vec::new();
        while self.on_their_way.len() < IN_FLIGHT
            && let Some((created, key)) = self.queue.pop_first()
        {
            if self.on_their_way.contains(&Object::Service(key.clone())) {
                later.push((created, key));
            } else if let Some(action) = self.service_action(&key, now) {
                self.on_their_way.insert(Object::Service(key.clone()));
                writes.push(Write::Service(key, Box::new(action)));
            }
        }
        self.queue.extend(later);
        // After the Services, so that what they give back is in it.
        writes.extend(self.pool_writes(now));
        writes
    }

    /// What to write to a Service now, if anything may be.
    fn service_action(&mut self, key: &ServiceKey, now: Now) -> Option<Action> {
        let object = Object::Service(key.clone());
        let Some(view) = self.services.get(key).cloned() else {
            self.told.is_new(key, None);
            self.leaving.only(key, &BTreeSet::new());
            self.backoff.succeeded(&object);
            return None;
        };
        let answer = self.ledger.answer(key);
        let note = answer.as_ref().and_then(|answer| answer.note.as_ref());
        if self.told.is_new(key, note)
            && let Some(note) = note
        {
            self.to_tell.push((Arc::clone(&view), note.clone()));
        }
        let action = plan::service_action(&view, answer.as_ref(), self.scope);
        self.leaving.only(key, &action.as_ref().map(|action| action.frees.clone()).unwrap_or_default());
        let Some(action) = action else {
            self.backoff.succeeded(&object);
            return None;
        };
        // Its time comes by itself.
        if !self.backoff.is_due(&object, now.moment) {
            return None;
        }
        if !self.may_leave(key, &action, now) {
            let patience_ends = self.leaving.patience_ends(key);
            self.gate_opens = self.gate_opens.into_iter().chain(patience_ends).min();
            self.gated.insert(key.clone());
            return None;
        }
        let term = self.terms.as_mut().and_then(|terms| terms.number(&view, &action));
        Some(Action { term, ..action })
    }

    /// Whether the next leader would know what the Service gives back.
    fn may_leave(&mut self, key: &ServiceKey, action: &Action, now: Now) -> bool {
        let mut may = true;
        for &address in &action.frees {
            let Some(pool) = self.ledger.cools_in(address) else { continue };
            if self.leaving.note(address, &pool, key, now) {
                self.pool_queue.insert(pool.clone());
            }
            let status = self.pools.get(&pool).map(|pool| &pool.status);
            may &= self.leaving.is_told(address, status, now.moment);
        }
        may
    }

    fn open_gate(&mut self) {
        self.gate_opens = None;
        std::mem::take(&mut self.gated).into_iter().for_each(|key| self.enqueue(key));
    }

    fn pool_writes(&mut self, now: Now) -> Vec<Write> {
        let mut writes = Vec::new();
        for name in self.pool_queue.clone() {
            let object = Object::Pool(name.clone());
            let is_due = self.pool_due(&name) <= Some(now.moment) && self.backoff.is_due(&object, now.moment);
            if self.on_their_way.contains(&object) || !is_due {
                continue;
            }
            self.pool_queue.remove(&name);
            let (Some(pool), Some(mut report)) = (self.pools.get(&name), self.ledger.report(&name)) else { continue };
            self.leaving.add_to(&name, &mut report);
            let Some(status) = pool_status::status(pool, &report, now.unix_seconds, super::apply::time) else {
                self.backoff.succeeded(&object);
                continue;
            };
            writes.push(Write::Pool(name.clone(), pool.resource_version.clone(), Box::new(status)));
            self.pool_written.insert(name, now.moment);
            self.on_their_way.insert(object);
        }
        writes
    }

    /// When a pool may be written again; `None` is at once.
    fn pool_due(&self, name: &PoolName) -> Option<Moment> {
        self.pool_written.get(name).map(|written| *written + POOL_PACE)
    }

    /// Takes the answer to a write.
    pub(super) fn answered(&mut self, answered: Answered, now: Now) {
        match answered {
            Answered::Service(key, action, result) => self.service_answered(key, *action, result, now),
            Answered::Pool(name, result) => {
                let object = Object::Pool(name.clone());
                self.on_their_way.remove(&object);
                if let Some(pool) = self.settle(object, result, now) {
                    self.pools.insert(name.clone(), Arc::new(*pool));
                    self.open_gate();
                } else {
                    self.pool_queue.insert(name);
                }
            }
        }
    }

    fn service_answered(
        &mut self,
        key: ServiceKey,
        action: Action,
        result: Result<Box<ServiceView>, WriteError>,
        now: Now,
    ) {
        let object = Object::Service(key.clone());
        self.on_their_way.remove(&object);
        let mut news = News::default();
        if let Some(view) = self.settle(object, result, now) {
            let view = Arc::new(*view);
            let still = view.ingress.iter().filter_map(|entry| entry.ip).collect();
            self.leaving.only(&key, &still);
            self.to_tell.extend(action.note.map(|note| (Arc::clone(&view), note)));
            if self.services.contains_key(&key) {
                news.services.insert(key.clone(), plan::standing(&view, self.scope));
                self.services.insert(key.clone(), view);
            }
        }
        if let Some(view) = self.held_back.remove(&key)
            && self.see(&key, view)
        {
            news.services
                .insert(key.clone(), self.services.get(&key).and_then(|view| plan::standing(view, self.scope)));
        }
        self.apply(news, now);
    }

    /// Notes whether a write went well.
    fn settle<V>(&mut self, object: Object, result: Result<V, WriteError>, now: Now) -> Option<V> {
        let error = match result {
            Ok(view) => {
                self.backoff.succeeded(&object);
                return Some(view);
            }
            Err(error) => error,
        };
        let (cause, is_ordinary) = (Told(&error), matches!(error, WriteError::Conflict | WriteError::Gone));
        match &object {
            _ if is_ordinary => debug!(?object, error = %cause, "not written"),
            Object::Service(key) => warn!(service = %key, error = %cause, "cannot write the status; trying again"),
            Object::Pool(name) => warn!(pool = %name, error = %cause, "cannot write the status; trying again"),
        }
        self.backoff.failed(object, now.moment);
        None
    }

    /// What is to be told since the last call.
    pub(super) fn words(&mut self) -> Vec<Word> {
        std::mem::take(&mut self.to_tell)
    }

    /// When to ask for writes again, even without news.
    pub(super) fn deadline(&self) -> Option<Moment> {
        let is_full = self.on_their_way.len() >= IN_FLIGHT;
        let pools = self.pool_queue.iter().filter(|name| !self.on_their_way.contains(&Object::Pool((*name).clone())));
        let retry = |name: &PoolName| self.backoff.until(&Object::Pool(name.clone()));
        let pools = pools.map(|name| self.pool_due(name).max(retry(name)).unwrap_or_default()).min();
        let gated = self.gate_opens.filter(|_| !self.gated.is_empty());
        let retries = self.backoff.deadline();
        [self.ledger.deadline(), pools, gated, retries].into_iter().flatten().filter(|_| !is_full).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{AddressPoolSpec, CoolingAddress};
    use crate::config::Pool;
    use crate::model::views::{Ingress, IpMode};
    use crate::service::cases;
    use crate::service::pool_status::ObservedPool;

    fn at(millis: u64) -> Now {
        Now { moment: Moment::since_boot(Duration::from_secs(1000) + Duration::from_millis(millis)), unix_seconds: 0 }
    }

    fn key() -> ServiceKey {
        ServiceKey::new("default", "web")
    }

    fn view(version: u32, ip: Option<&str>) -> ServiceView {
        let ingress = ip.map(|ip| Ingress { ip: ip.parse().ok(), ip_mode: IpMode::Vip });
        let finalizers = ip.map(|_| plan::CLEANUP_FINALIZER.to_owned());
        ServiceView {
            uid: "u".to_owned(),
            resource_version: version.to_string(),
            ports: BTreeSet::new(),
            finalizers: finalizers.into_iter().collect(),
            ingress: ingress.into_iter().collect(),
            ..cases::service("web")
        }
    }

    fn pool(version: u32, status: AddressPoolStatus) -> (PoolName, Arc<ObservedPool>) {
        let spec = AddressPoolSpec {
            addresses: vec!["10.60.0.10-10.60.0.11".to_owned()],
            auto_assign: true,
            reuse_after_seconds: 60,
            ..AddressPoolSpec::default()
        };
        let pool = ObservedPool {
            resource_version: version.to_string(),
            created_seconds: 0,
            generation: Some(1),
            is_deleting: false,
            check: Pool::check("a", &spec),
            blocks: Vec::new(),
            draining: Vec::new(),
            cooling: Vec::new(),
            status,
        };
        ("a".parse().expect("a name"), Arc::new(pool))
    }

    fn hear(desk: &mut Desk, view: ServiceView, now: Now) {
        desk.hear(BTreeMap::from([(key(), Some(Arc::new(view)))]), None, News::default(), now);
    }

    fn desk() -> Desk {
        let mut desk = Desk::new(7, Scope::Default, 4);
        let pools = Some(BTreeMap::from([pool(1, AddressPoolStatus::default())]));
        desk.hear(BTreeMap::from([(key(), Some(Arc::new(view(1, None))))]), pools, News::default(), at(0));
        desk
    }

    /// The writes to Services, by their addresses, and the status of the pool if it is written.
    fn sent(desk: &mut Desk, now: Now) -> (Vec<Action>, Option<AddressPoolStatus>) {
        let (mut actions, mut status) = (Vec::new(), None);
        for write in desk.writes(now) {
            match write {
                Write::Service(_, action) => actions.push(*action),
                Write::Pool(_, _, written) => status = Some(*written),
            }
        }
        (actions, status)
    }

    fn served(desk: &mut Desk, version: u32, ip: Option<&str>, action: Action, now: Now) {
        desk.answered(Answered::Service(key(), Box::new(action), Ok(Box::new(view(version, ip)))), now);
    }

    fn told(desk: &mut Desk, version: u32, status: AddressPoolStatus, now: Now) {
        let (name, pool) = pool(version, status);
        desk.answered(Answered::Pool(name, Ok(Box::new(ObservedPool::clone(&pool)))), now);
    }

    #[test]
    fn one_write_serves_a_service_and_its_own_echo_leads_to_none() {
        let mut desk = desk();
        let (actions, status) = sent(&mut desk, at(0));
        assert_eq!(actions.len(), 1);
        assert_eq!(status.and_then(|status| status.ipv4).map(|counts| counts.used), Some(1));
        served(&mut desk, 2, Some("10.60.0.10"), actions[0].clone(), at(5));
        hear(&mut desk, view(1, None), at(6));
        hear(&mut desk, view(2, Some("10.60.0.10")), at(7));
        assert_eq!(sent(&mut desk, at(8)).0, [], "a store that lags behind says nothing new");
        assert_eq!(desk.words().len(), 1, "one Event");
    }

    #[test]
    fn what_is_heard_of_a_service_while_it_is_written_is_looked_at_afterwards() {
        let mut desk = desk();
        let (actions, _) = sent(&mut desk, at(0));
        hear(&mut desk, ServiceView { is_load_balancer: false, ..view(3, None) }, at(1));
        assert_eq!(sent(&mut desk, at(2)).0, [], "one write of an object at a time");
        desk.answered(Answered::Service(key(), Box::new(actions[0].clone()), Err(WriteError::Conflict)), at(3));
        assert_eq!(sent(&mut desk, at(4)).0, [], "it is no load balancer any more and has nothing of us");
    }

    #[test]
    fn a_refused_write_is_tried_again_later_and_not_before() {
        let mut desk = desk();
        let (actions, _) = sent(&mut desk, at(0));
        desk.answered(Answered::Service(key(), Box::new(actions[0].clone()), Err(WriteError::TimedOut)), at(1));
        assert_eq!(sent(&mut desk, at(2)).0, []);
        assert!(desk.deadline().is_some_and(|deadline| deadline <= at(21).moment));
        assert_eq!(sent(&mut desk, at(21)).0.len(), 1);
    }

    #[test]
    fn a_pools_status_is_written_once_a_second() {
        let mut desk = desk();
        let (actions, status) = sent(&mut desk, at(0));
        told(&mut desk, 2, status.expect("a status"), at(1));
        served(&mut desk, 2, Some("10.60.0.10"), actions[0].clone(), at(2));
        desk.hear(BTreeMap::from([(key(), None)]), None, News::default(), at(3));
        assert_eq!(sent(&mut desk, at(4)).1, None);
        assert_eq!(desk.deadline(), Some(at(1000).moment));
        assert!(sent(&mut desk, at(1000)).1.is_some());
    }

    #[test]
    fn a_service_gives_back_an_address_once_the_pool_says_so_for_the_next_leader() {
        let mut desk = desk();
        let (actions, status) = sent(&mut desk, at(0));
        told(&mut desk, 2, status.expect("a status"), at(1));
        served(&mut desk, 2, Some("10.60.0.10"), actions[0].clone(), at(2));
        assert_eq!(sent(&mut desk, at(2000)), (vec![], None));
        hear(&mut desk, ServiceView { is_deleting: true, ..view(3, Some("10.60.0.10")) }, at(2000));
        let (actions, status) = sent(&mut desk, at(2000));
        let status = status.expect("a status, at once");
        let cooling = |entry: &CoolingAddress| (entry.address.clone(), entry.service.clone());
        assert_eq!(
            status.cooling.iter().map(cooling).collect::<Vec<_>>(),
            [("10.60.0.10".into(), "default/web".into())]
        );
        assert_eq!(actions, [], "not yet");
        assert_eq!(desk.deadline(), Some(at(7000).moment), "it waits no longer than is reasonable");
        told(&mut desk, 3, status, at(2005));
        let (actions, _) = sent(&mut desk, at(2005));
        assert_eq!(actions.len(), 1);
        assert_eq!(actions[0].note, Some(Note::LoadBalancerDeleted));
    }
}
