//! What the room has on its desk: what it knows, what is to be written, and what is on its way.
//!
//! News goes in, writes come out, each when it may be sent; there is no round in which everything
//! waits for everything. An object has at most one write on its way, and what is heard of it
//! meanwhile is looked at when the answer is there.

mod conditions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use tracing::{debug, warn};

use super::allocator::{Changed, Ledger, News, Now};
use super::leaving::Leaving;
use super::plan::{self, Action};
use super::pool_desk::PoolDesk;
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
use conditions::Conditions;

/// One write to be sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Write {
    /// To a Service.
    Service(ServiceKey, Box<Action>),
    /// Of a pool's status, in place of this version of it.
    Pool(PoolName, String, Box<AddressPoolStatus>),
    /// All of a Service's conditions, in place of those of this version of it; told when there is time.
    Conditions(ServiceKey, String, Value),
}

/// What came of a write.
#[derive(Debug)]
pub(super) enum Answered {
    Service(ServiceKey, Box<Action>, Result<Box<ServiceView>, WriteError>),
    Pool(PoolName, Result<Box<ObservedPool>, WriteError>),
    Conditions(ServiceKey, Result<Box<ServiceView>, WriteError>),
}

/// What a write is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Service(ServiceKey),
    Pool(PoolName),
    /// For trying again: on its way is the Service.
    Conditions(ServiceKey),
}

/// Something to tell about a Service.
pub(super) type Word = (Arc<ServiceView>, Note);

/// See the module.
#[derive(Debug)]
pub(super) struct Desk {
    scope: Scope,
    lease_term: u64,
    /// None before the first Services are heard of, which are all.
    terms: Option<Terms>,
    ledger: Ledger,
    services: BTreeMap<ServiceKey, Arc<ServiceView>>,
    pools: PoolDesk,
    /// Services that have to be looked at, the oldest first.
    queue: BTreeSet<(i64, ServiceKey)>,
    /// Services whose write waits until the next leader would know what they give back.
    gated: BTreeSet<ServiceKey>,
    /// When they are looked at, whatever pools say.
    gate_opens: Option<Moment>,
    on_their_way: BTreeSet<Object>,
    /// What was heard of Services with a write on its way.
    held_back: BTreeMap<ServiceKey, Option<Arc<ServiceView>>>,
    leaving: Leaving,
    backoff: Backoff<Object>,
    told: events::News<ServiceKey>,
    /// Why the last writes of Services failed.
    failures: events::News<ServiceKey>,
    conditions: Conditions,
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
            pools: PoolDesk::default(),
            queue: BTreeSet::new(),
            gated: BTreeSet::new(),
            gate_opens: None,
            on_their_way: BTreeSet::new(),
            held_back: BTreeMap::new(),
            leaving: Leaving::default(),
            backoff: Backoff::new(seed),
            told: events::News::default(),
            failures: events::News::default(),
            conditions: Conditions::default(),
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
            self.pools.see(pools);
            news.pools = Some(self.pools.known().clone());
        }
        self.apply(news, now);
    }

    fn apply(&mut self, news: News, now: Now) {
        let keys: Vec<_> = news.services.keys().cloned().collect();
        let Changed { services, pools } = self.ledger.apply(news, now);
        services.into_iter().chain(keys).for_each(|key| self.enqueue(key));
        self.pools.enqueue(pools);
    }

    /// Keeps the newer of what is known and what is seen of a Service; whether that is news.
    fn see(&mut self, key: &ServiceKey, view: Option<Arc<ServiceView>>) -> bool {
        let Some(view) = view else { return self.services.remove(key).is_some() };
        let Some(known) = self.services.get_mut(key) else {
            self.services.insert(key.clone(), view);
            return true;
        };
        // A store that lags behind the own writes says nothing new.
        if is_older(&view.resource_version, &known.resource_version) {
            return false;
        }
        let is_news = *known != view;
        // Also where it says the same, so that there is one copy of it and not two.
        *known = view;
        is_news
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
                Object::Pool(name) => self.pools.enqueue([name]),
                Object::Conditions(key) => self.judge(&key, now.moment),
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
        writes.extend(self.condition_writes(now));
        writes
    }

    /// What to write to a Service now, if anything may be.
    fn service_action(&mut self, key: &ServiceKey, now: Now) -> Option<Action> {
        let object = Object::Service(key.clone());
        let Some(view) = self.services.get(key).cloned() else {
            self.told.is_new(key, None);
            self.failures.is_new(key, None);
            self.leaving.only(key, &BTreeSet::new());
            self.backoff.succeeded(&object);
            self.judge(key, now.moment);
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
            self.failures.is_new(key, None);
            self.backoff.succeeded(&object);
            self.judge(key, now.moment);
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
                self.pools.enqueue([pool.clone()]);
            }
            may &= self.leaving.is_told(address, self.pools.status(&pool), now.moment);
        }
        may
    }

    fn open_gate(&mut self) {
        self.gate_opens = None;
        std::mem::take(&mut self.gated).into_iter().for_each(|key| self.enqueue(key));
    }

    fn pool_writes(&mut self, now: Now) -> Vec<Write> {
        let (on_their_way, backoff) = (&self.on_their_way, &self.backoff);
        let due = self.pools.take_due(now.moment, |name| {
            let object = Object::Pool(name.clone());
            !on_their_way.contains(&object) && backoff.is_due(&object, now.moment)
        });
        let mut writes = Vec::new();
        for name in due {
            let object = Object::Pool(name.clone());
            let (Some(pool), Some(mut report)) = (self.pools.known().get(&name), self.ledger.report(&name)) else {
                self.backoff.succeeded(&object);
                continue;
            };
            self.leaving.add_to(&name, &mut report);
            let Some(status) = pool_status::status(pool, &report, now.unix_seconds, super::apply::time) else {
                self.backoff.succeeded(&object);
                continue;
            };
            writes.push(Write::Pool(name.clone(), pool.resource_version.clone(), Box::new(status)));
            self.pools.sent(name, now.moment);
            self.on_their_way.insert(object);
        }
        writes
    }

    /// Takes the answer to a write.
    pub(super) fn answered(&mut self, answered: Answered, now: Now) {
        match answered {
            Answered::Service(key, action, result) => self.service_answered(key, *action, result, now),
            Answered::Conditions(key, result) => self.conditions_answered(key, result, now),
            Answered::Pool(name, result) => {
                let object = Object::Pool(name.clone());
                self.on_their_way.remove(&object);
                if let Some(pool) = self.settle(object, result, now) {
                    self.pools.answered(&name, *pool);
                    self.open_gate();
                } else {
                    self.pools.enqueue([name]);
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
        self.tell_failure(&key, result.as_ref().err());
        let view: Option<Arc<ServiceView>> = self.settle(object, result, now).map(Arc::from);
        if let Some(view) = &view {
            let still = view.ingress.iter().filter_map(|entry| entry.ip).collect();
            self.leaving.only(&key, &still);
            self.to_tell.extend(action.note.map(|note| (Arc::clone(view), note)));
        }
        self.hear_answer(key, view, now);
    }

    /// Tells why a Service is not written, once: the tries that follow may fail for the same reason.
    fn tell_failure(&mut self, key: &ServiceKey, error: Option<&WriteError>) {
        let note = match error {
            Some(error) if !error.is_failure() => return,
            error => error.map(|error| Note::ServiceNotWritten { error: Told(error).to_string() }),
        };
        if self.failures.is_new(key, note.as_ref()) {
            let view = self.services.get(key).cloned();
            self.to_tell.extend(view.zip(note));
        }
    }

    /// Takes a Service as it was answered, and what was heard of it meanwhile.
    fn hear_answer(&mut self, key: ServiceKey, view: Option<Arc<ServiceView>>, now: Now) {
        let mut news = News::default();
        if let Some(view) = view.filter(|_| self.services.contains_key(&key)) {
            news.services.insert(key.clone(), plan::standing(&view, self.scope));
            self.services.insert(key.clone(), view);
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
            Object::Conditions(key) => {
                warn!(service = %key, error = %cause, "cannot write the conditions; trying again")
            }
        }
        self.backoff.not_written(object, &error, now.moment);
        None
    }

    /// What is to be told since the last call.
    pub(super) fn words(&mut self) -> Vec<Word> {
        std::mem::take(&mut self.to_tell)
    }

    /// When to ask for writes again, even without news.
    pub(super) fn deadline(&self) -> Option<Moment> {
        let is_full = self.on_their_way.len() >= IN_FLIGHT;
        let is_on_its_way = |name: &PoolName| self.on_their_way.contains(&Object::Pool(name.clone()));
        let retry = |name: &PoolName| self.backoff.until(&Object::Pool(name.clone()));
        let pools = self.pools.deadline(is_on_its_way, retry);
        let gated = self.gate_opens.filter(|_| !self.gated.is_empty());
        let retries = self.backoff.deadline();
        let conditions = self.conditions_deadline();
        [self.ledger.deadline(), pools, gated, retries, conditions].into_iter().flatten().filter(|_| !is_full).min()
    }
}

#[cfg(test)]
mod churn;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod tests;
