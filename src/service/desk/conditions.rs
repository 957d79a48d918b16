//! The conditions on the desk: whose are to be written, and what they follow from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Desk, Object, Write};
use crate::cluster::client::TOLD_AT_ONCE;
use crate::cluster::patch::WriteError;
use crate::model::views::{ServiceView, TrafficPolicy};
use crate::model::{Moment, NodeName, ServiceKey};
use crate::service::allocator::Now;
use crate::service::announced::{Concerned, Entrances};
use crate::service::conditions::{self, Gist, Wanted};
use crate::service::pace::Pace;
use crate::service::{apply, plan};

/// Nodes come in crowds: Services that keep their traffic local are looked at for all that changed
/// within this time at once.
const NODES_PACE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// None before all of it is known.
    entrances: Option<Entrances>,
    pace: Pace<Option<Gist>>,
    on_their_way: usize,
    /// Nodes that changed since Services that keep their traffic local were looked at.
    changed_nodes: BTreeSet<NodeName>,
    looked: Moment,
}

impl Conditions {
    /// Takes what was heard of nodes and endpoints; whose conditions may have to say something else.
    fn hear(
        &mut self,
        look: impl FnOnce(&mut Entrances, &mut Concerned),
        services: &BTreeMap<ServiceKey, Arc<ServiceView>>,
        now: Moment,
    ) -> BTreeSet<ServiceKey> {
        let mut concerned = Concerned { all: self.entrances.is_none(), ..Concerned::default() };
        let entrances = self.entrances.get_or_insert_default();
        look(entrances, &mut concerned);
        let Concerned { all, services: mut keys, mut nodes } = concerned;
        self.changed_nodes.append(&mut nodes);
        let is_due = now >= self.looked + NODES_PACE;
        if all || !self.changed_nodes.is_empty() && is_due {
            let nodes = std::mem::take(&mut self.changed_nodes);
            self.looked = now;
            let is_concerned = |view: &&Arc<ServiceView>| {
                let is_local = view.external_traffic_policy == TrafficPolicy::Local;
                all || view.is_load_balancer && is_local && entrances.is_on(&view.key, &nodes)
            };
            keys.extend(services.values().filter(is_concerned).map(|view| view.key.clone()));
        }
        keys
    }

    fn deadline(&self) -> Option<Moment> {
        let written = self.pace.deadline().filter(|_| self.on_their_way < TOLD_AT_ONCE);
        let looked = (!self.changed_nodes.is_empty()).then_some(self.looked + NODES_PACE);
        written.into_iter().chain(looked).min()
    }
}

impl Desk {
    /// Takes what was heard of nodes and endpoints, once all of it is known.
    pub(in crate::service) fn hear_entrances(&mut self, look: impl FnOnce(&mut Entrances, &mut Concerned), now: Now) {
        for key in self.conditions.hear(look, &self.services, now.moment) {
            self.judge(&key, now.moment);
        }
    }

    /// Notes whether a Service's conditions have to say something else.
    pub(super) fn judge(&mut self, key: &ServiceKey, now: Moment) {
        // It is looked at when the answer is there.
        if self.on_their_way.contains(&Object::Service(key.clone())) {
            return;
        }
        let object = Object::Conditions(key.clone());
        let wanted = self.services.get(key).and_then(|view| self.wanted(view));
        if wanted.is_none() {
            self.backoff.succeeded(&object);
        } else if !self.backoff.is_due(&object, now) {
            return;
        }
        self.conditions.pace.note(key, wanted.map(|wanted| wanted.map(|wanted| wanted.gist())), now);
    }

    /// What a Service's conditions are to say and do not; `Some(None)` is nothing any more.
    fn wanted(&self, view: &ServiceView) -> Option<Option<Wanted>> {
        let entrances = self.conditions.entrances.as_ref()?;
        if view.is_deleting {
            return None;
        }
        let wanted = plan::is_ours(view, self.scope).then(|| {
            let answer = self.ledger.answer(&view.key);
            let note = answer.as_ref().and_then(|answer| answer.note.as_ref());
            Wanted::of(view, note, entrances.announcement(view))
        });
        conditions::differ(&view.conditions, wanted.as_ref()).then_some(wanted)
    }

    /// The conditions that may be written now: none while a Service waits for something else.
    pub(super) fn condition_writes(&mut self, now: Now) -> Vec<Write> {
        let mut writes = Vec::new();
        while self.queue.is_empty()
            && self.conditions.on_their_way < TOLD_AT_ONCE
            && let Some(key) = self.conditions.pace.pop(now.moment)
        {
            let object = Object::Service(key.clone());
            if self.on_their_way.contains(&object) {
                continue;
            }
            let Some(view) = self.services.get(&key) else { continue };
            let Some(wanted) = self.wanted(view) else { continue };
            let list = conditions::list(&view.conditions, wanted.as_ref(), now.unix_seconds, apply::time);
            writes.push(Write::Conditions(key, view.resource_version.clone(), list));
            self.on_their_way.insert(object);
            self.conditions.on_their_way += 1;
        }
        writes
    }

    /// Takes the answer to a write of conditions.
    pub(super) fn conditions_answered(
        &mut self,
        key: ServiceKey,
        result: Result<Box<ServiceView>, WriteError>,
        now: Now,
    ) {
        self.conditions.on_their_way -= 1;
        self.on_their_way.remove(&Object::Service(key.clone()));
        let view = self.settle(Object::Conditions(key.clone()), result, now).map(Arc::from);
        self.hear_answer(key, view, now);
    }

    /// When conditions may be written.
    pub(super) fn conditions_deadline(&self) -> Option<Moment> {
        // While something waits, its answer comes first.
        self.conditions.deadline().filter(|_| self.queue.is_empty())
    }
}
