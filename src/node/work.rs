//! What the room remembers, what it has still to look at, and which writes are on their way.
//!
//! A Node is looked at when it changed, when another one that has a key of it or wants its machine did,
//! when its agent reports an address that it waits for, and when its next try is due; all of them when
//! the inventory changed and once a period. While a write to it is on its way it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use tracing::{info, warn};

use super::owners::Owners;
use super::plan::{self, Action, Observed, Plan};
use super::{Context, apply, observe};
use crate::cluster::backoff::Backoff;
use crate::cluster::changes::Changes;
use crate::cluster::clock;
use crate::cluster::events::{News, about_node};
use crate::cluster::patch::WriteError;
use crate::cluster::queue::Queue;
use crate::cluster::store::Store;
use crate::cluster::traffic::IN_FLIGHT;
use crate::cluster::written::Written;
use crate::inventory::{InventoryState, NodeIdentity, SharedKeys};
use crate::model::views::NodeView;
use crate::model::{MachineId, Moment, NodeName, Note};

/// Reports that are not listed by then will not be: Nodes that wait for them are told of.
const REPORTS_WITHIN: Duration = Duration::from_secs(10);

/// A write that was answered.
pub(super) struct Answered {
    name: NodeName,
    /// The machine that the Node becomes by it.
    becomes: Option<MachineId>,
    result: Result<NodeView, WriteError>,
}

/// The room's memory from one signal to the next.
pub(super) struct Work {
    inventory: Arc<InventoryState>,
    /// When all Nodes are looked at again.
    next_full: Moment,
    queue: Queue<NodeName>,
    writes: FuturesUnordered<BoxFuture<'static, Answered>>,
    written: Written<NodeName, NodeView>,
    backoff: Backoff<NodeName>,
    news: News<NodeName>,
    shared: SharedKeys,
    owners: Owners,
    /// Nodes that have no address unless their agents find one.
    without_address: BTreeSet<NodeName>,
    /// Until when nobody knows what agents find, since their reports are not listed yet.
    unreported_until: Option<Moment>,
    /// Nodes that something stands in the way of, and the word for it.
    held: BTreeMap<NodeName, &'static str>,
}

impl Work {
    /// Nothing is known and everything to be looked at.
    pub(super) fn new(context: &mut Context, seed: u64) -> Self {
        Self {
            inventory: Arc::clone(&context.inventory.borrow_and_update()),
            next_full: clock::now() + context.period,
            queue: Queue::default(),
            writes: FuturesUnordered::new(),
            written: Written::new(|view| &view.resource_version),
            backoff: Backoff::new(seed),
            news: News::default(),
            shared: SharedKeys::default(),
            owners: Owners::default(),
            without_address: BTreeSet::new(),
            unreported_until: context.reports.as_ref().map(|_| clock::now() + REPORTS_WITHIN),
            held: BTreeMap::new(),
        }
    }

    /// Waits for the next answer to a write; for ever when none is on its way. Cancel-safe.
    pub(super) async fn answered(&mut self) -> Answered {
        match self.writes.next().await {
            Some(answered) => answered,
            None => std::future::pending().await,
        }
    }

    /// Whether agents may help.
    pub(super) fn waits_for_agents(&self) -> bool {
        !self.without_address.is_empty()
    }

    /// When something is due although nothing changes.
    pub(super) fn deadline(&self) -> Moment {
        let waits = self.unreported_until.filter(|_| self.waits_for_agents());
        [self.backoff.deadline(), waits].into_iter().flatten().fold(self.next_full, Moment::min)
    }

    /// Finds out which Nodes have to be looked at.
    pub(super) fn look(&mut self, context: &mut Context) {
        let now = clock::now();
        let mut changes = context.nodes.take_changes();
        let inventory = Arc::clone(&context.inventory.borrow_and_update());
        if !Arc::ptr_eq(&inventory, &self.inventory) {
            self.inventory = inventory;
            changes = Changes::All;
        }
        if self.next_full <= now {
            self.next_full = now + context.period;
            changes = Changes::All;
        }
        match changes {
            Changes::Keys(keys) => self.changed(context, keys.iter().filter_map(|key| key.parse().ok())),
            Changes::All => {
                let mut names: BTreeSet<NodeName> = self.shared.nodes().cloned().collect();
                context.nodes.with(|nodes| names.extend(nodes.values().map(|view| view.name.clone())));
                self.changed(context, names.into_iter());
            }
        }
        let reported = context.reports.as_mut().map(|reports| reports.take_changes()).unwrap_or_default();
        // After what was taken: a list that comes in between wakes again.
        let is_listed = context.reports.as_ref().is_none_or(Store::is_synced);
        let is_known_now = self.unreported_until.take_if(|until| is_listed || *until <= now).is_some();
        let is_reported = |name: &&NodeName| match &reported {
            _ if is_known_now => true,
            Changes::All => true,
            Changes::Keys(keys) => keys.contains(name.as_str()),
        };
        self.without_address.iter().filter(is_reported).cloned().for_each(|name| self.queue.add(name));
        self.backoff.take_due(now).into_iter().for_each(|name| self.queue.add(name));
    }

    /// These Nodes changed: they are looked at, and whoever is touched by that.
    fn changed(&mut self, context: &Context, names: impl Iterator<Item = NodeName>) {
        let mut touched = BTreeSet::new();
        for name in names {
            touched.extend(match self.newest(context, &name) {
                Some(view) => self.shared.put(&NodeIdentity::from(&*view)),
                None => self.shared.remove(&name),
            });
            touched.insert(name);
        }
        let mut settled = Vec::new();
        for name in touched {
            let view = self.newest(context, &name);
            let waits = view.as_ref().is_some_and(|view| view.is_uninitialized());
            let machine = view.and_then(|view| observe::is_already(&view, &self.inventory, &self.shared));
            self.owners.put(&name, machine.as_ref()).into_iter().for_each(|rival| self.queue.add(rival));
            match waits {
                true => self.queue.add(name),
                false => settled.push(name),
            }
        }
        // Of thousands that a new leader looks at, those come first that run nothing yet.
        settled.into_iter().for_each(|name| self.queue.add(name));
    }

    /// Whether [`Self::begin`] has more to plan for now.
    pub(super) fn has_more(&self) -> bool {
        !self.queue.is_empty() && self.writes.len() < IN_FLIGHT
    }

    /// Whether nothing waits to be looked at, and no write is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.writes.is_empty()
    }

    fn newest(&mut self, context: &Context, name: &NodeName) -> Option<Arc<NodeView>> {
        self.written.newest(name, context.nodes.get(name.as_str()))
    }

    /// Plans for some of the Nodes that wait, as far as writes may be on their way, and begins those
    /// writes, which go on only while nothing is planned.
    pub(super) fn begin(&mut self, context: &Context) {
        let names = self.queue.take(IN_FLIGHT.saturating_sub(self.writes.len()));
        let observed = self.observe(context, &names);
        let Plan { mut actions, mut notes } = plan::plan(&observed);
        for name in names {
            self.hear(context, &observed, &name, notes.remove(&name));
            match (actions.remove(&name), observed.nodes.get(&name)) {
                (Some(action), Some(node)) if self.backoff.is_due(&name, clock::now()) => {
                    self.write(context, Arc::clone(&node.view), action);
                }
                (action, _) => {
                    if action.is_none() {
                        self.backoff.succeeded(&name);
                    }
                    self.queue.done(&name);
                }
            }
        }
    }

    fn observe(&mut self, context: &Context, names: &[NodeName]) -> Observed {
        let mut observed = Observed::default();
        for name in names {
            let Some(view) = self.newest(context, name) else { continue };
            // Of the many reports only those of Nodes that wait say something here.
            let report = context.reports.as_ref().filter(|_| view.is_uninitialized());
            let report = report.and_then(|reports| reports.get(name.as_str()));
            let node = observe::node(view, &self.inventory, &self.shared, report.as_deref());
            if let plan::ObservedMachine::Present(machine) = &node.machine
                && let Some(owner) = self.owners.of(&machine.id)
            {
                observed.owners.insert(machine.id.clone(), owner.clone());
            }
            observed.nodes.insert(name.clone(), node);
        }
        observed
    }

    /// Takes note of what stands in a Node's way, and tells it if it is new.
    fn hear(&mut self, context: &Context, observed: &Observed, name: &NodeName, note: Option<Note>) {
        self.without_address.remove(name);
        if matches!(note, Some(Note::NoAddresses { .. })) {
            self.without_address.insert(name.clone());
        }
        // A report that nobody has read yet is not one that says nothing.
        let is_open = |note: &Note| self.unreported_until.is_some() && matches!(note, Note::NoAddresses { .. });
        let note = note.filter(|note| !is_open(note));
        let reason = note.as_ref().map(Note::reason);
        let before = match reason {
            Some(reason) => self.held.insert(name.clone(), reason),
            None => self.held.remove(name),
        };
        context.metrics.held(before, reason);
        if let Some(Note::MachineTaken { machine, by: _ }) = &note {
            self.owners.waits(name.clone(), machine.clone());
        }
        let is_new = self.news.is_new(name, note.as_ref());
        if let (Some(note), Some(node), true) = (note, observed.nodes.get(name), is_new) {
            tell(context, &node.view, note);
        }
    }

    fn write(&mut self, context: &Context, view: Arc<NodeView>, action: Action) {
        let becomes = match &action {
            Action::Initialize(initialization) => Some(initialization.machine.clone()),
            Action::Reconcile(_) => None,
        };
        if let Some(machine) = &becomes {
            self.owners.becomes(view.name.clone(), machine.clone());
        }
        let (api, name) = (Api::all(context.client.clone()), view.name.clone());
        self.writes
            .push(async move { Answered { result: apply::apply(api, view, &action).await, name, becomes } }.boxed());
    }

    /// Takes note of how a write went.
    pub(super) fn finish(&mut self, context: &Context, answered: Answered) {
        let Answered { name, becomes, result } = answered;
        if let Some(machine) = &becomes {
            self.owners.became(machine).into_iter().for_each(|rival| self.queue.add(rival));
        }
        match result {
            Ok(view) => {
                self.backoff.succeeded(&name);
                if becomes.is_some() {
                    context.metrics.initialized(seconds_since(view.created_seconds));
                    tell(context, &view, Note::NodeSynced);
                }
                self.written.remember(name.clone(), view);
                self.changed(context, std::iter::once(name.clone()));
            }
            Err(error) => {
                apply::log(&name, &error);
                self.backoff.not_written(name.clone(), &error, clock::now());
            }
        }
        self.queue.done(&name);
    }
}

/// By the wall clock, as the API server dates objects.
fn seconds_since(created_seconds: i64) -> f64 {
    let created = Timestamp::from_second(created_seconds).unwrap_or_default();
    Timestamp::now().duration_since(created).as_secs_f64().max(0.0)
}

fn tell(context: &Context, view: &NodeView, note: Note) {
    match note {
        Note::NodeSynced => info!(node = %view.name, "node initialized"),
        _ => warn!(node = %view.name, reason = note.reason(), error = %note, "node left as it is"),
    }
    context.events.tell(about_node(view), note);
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use kube::runtime::watcher::Config;
    use serde_json::{Value, json};
    use tokio::sync::watch;
    use tokio::task::JoinSet;
    use tower::service_fn;

    use super::*;
    use crate::api::NodeReport;
    use crate::cluster::events::{Events, Reporter};
    use crate::cluster::views;
    use crate::inventory::file;
    use crate::node::metrics::Metrics;

    /// An API server with a Node that waits, and without reports, which it lists once it is told to.
    fn api_server(reports: watch::Receiver<bool>) -> Client {
        let list = |items: Value| json!({ "metadata": { "resourceVersion": "1" }, "items": items });
        let service = service_fn(move |request: Request<Body>| {
            let mut reports = reports.clone();
            async move {
                let uri = request.uri().clone();
                if uri.query().is_some_and(|query| query.contains("watch=")) {
                    std::future::pending::<()>().await;
                }
                let answer = if uri.path() == "/api/v1/nodes" {
                    let taint =
                        json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule" });
                    list(json!([{ "metadata": { "name": "n1", "uid": "u1" }, "spec": { "taints": [taint] } }]))
                } else {
                    let _ = reports.wait_for(|are_listed| *are_listed).await;
                    list(json!([]))
                };
                Ok::<_, kube::Error>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        Client::new(service, "default")
    }

    fn inventory(machines: &str) -> InventoryState {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("inventory.yaml");
        let text = format!("apiVersion: inventory.cairn.dev/v1\nkind: Inventory\nmachines: {machines}\n");
        std::fs::write(&path, text).expect("a file");
        let inventory = file::load(&[path]).unwrap_or_else(|faults| panic!("{faults}"));
        InventoryState { inventory: Some(Arc::new(inventory)), ..InventoryState::unread() }
    }

    fn context(client: &Client, tasks: &mut JoinSet<()>) -> Context {
        let reporter = Reporter { controller: "c", instance: "i".to_owned() };
        Context {
            client: client.clone(),
            nodes: Store::watch(Api::all(client.clone()), Config::default(), views::node),
            inventory: watch::channel(Arc::new(inventory("[{id: m1, match: {nodeName: n1}}]"))).1,
            reports: Some(Store::watch(Api::all(client.clone()), Config::default(), |report: &NodeReport| {
                report.status.clone()
            })),
            events: Events::start(client.clone(), reporter, tasks),
            metrics: Metrics::register(&mut prometheus_client::registry::Registry::default()),
            period: REPORTS_WITHIN * 100,
            seen_to: watch::Sender::new(false),
        }
    }

    #[tokio::test]
    async fn a_report_that_is_not_listed_yet_is_not_one_that_says_nothing() {
        for (name, are_listed) in [("there are no reports", true), ("nobody lists them", false)] {
            let (lists, listed) = watch::channel(false);
            let mut tasks = JoinSet::new();
            let mut context = context(&api_server(listed), &mut tasks);
            context.nodes.synced().await;
            let mut work = Work::new(&mut context, 3);
            work.look(&mut context);
            work.begin(&context);
            assert!(work.held.is_empty() && work.waits_for_agents(), "{name}: {:?}", work.held);
            if are_listed {
                lists.send_replace(true);
                context.reports.as_mut().expect("a store").changed().await;
            } else {
                assert!(work.deadline() <= clock::now() + REPORTS_WITHIN, "{name}: it is looked at again");
                work.unreported_until = Some(clock::now());
            }
            work.look(&mut context);
            work.begin(&context);
            assert!(work.held.values().eq(&["NoAddresses"]), "{name}: {:?}", work.held);
            assert!(work.waits_for_agents(), "{name}: one may come all the same");
        }
    }
}
