//! What the room remembers, what it has still to look at, and which writes are on their way.
//!
//! A machine is looked at once it has been quiet about it for a while; all of them when the inventory
//! changed and once a period. What is not looked at costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::jiff::Timestamp;
use tracing::{debug, warn};

use super::observe::{self, MachineObject, Trust};
use super::plan::{self, Action, Held, Plan};
use super::quiet::Quiet;
use super::{Context, PERIOD, apply};
use crate::cluster::backoff::Backoff;
use crate::cluster::changes::Changes;
use crate::cluster::clock;
use crate::cluster::events::{News, about_machine};
use crate::cluster::patch::WriteError;
use crate::cluster::queue::Queue;
use crate::cluster::told::Told;
use crate::cluster::written::Written;
use crate::inventory::{InventoryState, NodeIdentity, Survey};
use crate::model::{MachineId, Moment, NodeName, Note};

/// Writes on their way; its client lets no more go at a time than it should.
const AT_ONCE: usize = 8;

/// A write that was answered, and the object as it is now; none when it was deleted.
pub(super) struct Answered {
    id: MachineId,
    result: Result<Option<MachineObject>, WriteError>,
}

/// The room's memory from one signal to the next.
pub(super) struct Work {
    inventory: Arc<InventoryState>,
    survey: Survey,
    trust: Trust,
    held: BTreeMap<MachineId, Held>,
    quiet: Quiet,
    queue: Queue<MachineId>,
    writes: FuturesUnordered<BoxFuture<'static, Answered>>,
    written: Written<MachineId, MachineObject>,
    backoff: Backoff<MachineId>,
    news: News<MachineId>,
    /// When all are looked at again.
    next_full: Moment,
}

impl Work {
    /// Nothing is known and everything to be looked at.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            inventory: Arc::new(InventoryState::unread()),
            survey: Survey::default(),
            trust: Trust::Objects,
            held: BTreeMap::new(),
            quiet: Quiet::default(),
            queue: Queue::default(),
            writes: FuturesUnordered::new(),
            written: Written::new(|object| &object.resource_version),
            backoff: Backoff::new(seed),
            news: News::default(),
            next_full: clock::now() + PERIOD,
        }
    }

    /// Waits for the next answer to a write; for ever when none is on its way. Cancel-safe.
    pub(super) async fn answered(&mut self) -> Answered {
        match self.writes.next().await {
            Some(answered) => answered,
            None => std::future::pending().await,
        }
    }

    /// When something is due although nothing changes.
    pub(super) fn deadline(&self) -> Moment {
        [self.quiet.deadline(), self.backoff.deadline()].into_iter().flatten().fold(self.next_full, Moment::min)
    }

    /// When all machines are looked at again.
    pub(super) fn next_full(&self) -> Moment {
        self.next_full
    }

    /// Finds out about which machines something changed.
    pub(super) fn look(&mut self, context: &mut Context) {
        let now = clock::now();
        let (nodes, objects) = (context.nodes.take_changes(), context.objects.take_changes());
        let inventory = Arc::clone(&context.inventory.borrow_and_update());
        if !Arc::ptr_eq(&inventory, &self.inventory) {
            // Every Node may be another machine.
            self.survey = Survey::default();
            self.inventory = inventory;
            return self.look_at_all(context, now);
        }
        match (nodes, objects) {
            (Changes::Keys(nodes), Changes::Keys(objects)) if now < self.next_full => {
                let names = nodes.iter().filter_map(|name| name.parse().ok()).collect();
                self.follow(context, names).into_iter().for_each(|id| self.quiet.stir(id, now));
                let ids = objects.iter().filter_map(|name| name.parse().ok());
                ids.for_each(|id| self.quiet.stir(id, now));
            }
            _ => self.look_at_all(context, now),
        }
    }

    fn look_at_all(&mut self, context: &Context, now: Moment) {
        self.next_full = now + PERIOD;
        let mut names: BTreeSet<NodeName> = self.survey.followed().cloned().collect();
        context.nodes.with(|nodes| names.extend(nodes.values().map(|view| view.name.clone())));
        self.follow(context, names);
        self.hold(context);
        let Some(inventory) = &self.inventory.inventory else { return };
        inventory.machines().for_each(|machine| self.quiet.stir(machine.id.clone(), now));
        let ids: Vec<MachineId> =
            context.objects.with(|objects| objects.keys().filter_map(|name| name.parse().ok()).collect());
        ids.into_iter().for_each(|id| self.quiet.stir(id, now));
    }

    fn follow(&mut self, context: &Context, names: BTreeSet<NodeName>) -> BTreeSet<MachineId> {
        let Some(inventory) = &self.inventory.inventory else { return BTreeSet::new() };
        let find = |name: &NodeName| Some(NodeIdentity::from(&*context.nodes.get(name.as_str())?));
        self.survey.follow(inventory, names, find)
    }

    /// Finds out whose removal waits to be acknowledged.
    fn hold(&mut self, context: &Context) {
        let states = context.objects.with(observe::states);
        self.held = observe::held(&self.inventory, &states, self.trust);
        if self.inventory.inventory.is_some() && self.held.is_empty() {
            self.trust = Trust::Files;
        }
    }

    /// Plans for the machines that it has been quiet about, as far as writes may be on their way, and
    /// begins those writes.
    pub(super) fn begin(&mut self, context: &Context) {
        let now = clock::now();
        self.quiet.take(now).into_iter().for_each(|id| self.queue.add(id));
        self.backoff.take_due(now).into_iter().for_each(|id| self.queue.add(id));
        while !self.queue.is_empty() && self.writes.len() < AT_ONCE {
            let ids = self.queue.take(AT_ONCE - self.writes.len());
            let objects = self.objects(context, &ids);
            let observed =
                observe::observed(&self.inventory, &ids, &objects, &self.held, &self.survey, |name: &NodeName| {
                    context.nodes.get(name.as_str())
                });
            let Plan { mut actions, mut notes } = plan::plan(&observed, &now_in_words());
            for id in ids {
                self.hear(context, &id, notes.remove(&id), objects.get(&id));
                match actions.remove(&id) {
                    Some(action) if self.backoff.is_due(&id, now) => self.write(context, id, action),
                    action => {
                        if action.is_none() {
                            self.backoff.succeeded(&id);
                        }
                        self.queue.done(&id);
                    }
                }
            }
        }
    }

    fn objects(&mut self, context: &Context, ids: &[MachineId]) -> BTreeMap<MachineId, Arc<MachineObject>> {
        let newest = |id: &MachineId| Some((id.clone(), self.written.newest(id, context.objects.get(id.as_str()))?));
        ids.iter().filter_map(newest).collect()
    }

    fn hear(&mut self, context: &Context, id: &MachineId, note: Option<Note>, object: Option<&Arc<MachineObject>>) {
        let is_new = self.news.is_new(id, note.as_ref());
        if let (Some(note), true) = (note, is_new) {
            warn!(machine = %id, reason = note.reason(), error = %note, "someone has to see to this machine");
            context.events.tell(about_machine(id, object.map(|object| object.uid.clone())), note);
        }
    }

    fn write(&mut self, context: &Context, id: MachineId, action: Action) {
        let client = context.client.clone();
        self.writes.push(
            async move {
                let result = apply::apply(client, &id, &action).await;
                Answered { id, result }
            }
            .boxed(),
        );
    }

    /// Takes note of how a write went.
    pub(super) fn finish(&mut self, Answered { id, result }: Answered) {
        match result {
            Ok(object) => {
                self.backoff.succeeded(&id);
                object.into_iter().for_each(|object| self.written.remember(id.clone(), object));
            }
            Err(error) => {
                let cause = Told(&error);
                match &error {
                    WriteError::Conflict | WriteError::Gone => debug!(machine = %id, error = %cause, "not written"),
                    _ => warn!(machine = %id, error = %cause, "cannot write the machine; trying again"),
                }
                self.backoff.not_written(id.clone(), &error, clock::now());
            }
        }
        self.queue.done(&id);
    }
}

/// RFC 3339, in whole seconds as conditions have it.
fn now_in_words() -> String {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string()
}
