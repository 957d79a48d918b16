#![expect(clippy::disallowed_methods, reason = "shell: owns the watch tasks")]
//! Stores: watch a kind of object, keep views of it, say when something changed.
//!
//! A store shows nothing before its first complete list and never goes back: while the API server is
//! away it keeps the last state, and a new list replaces the old one at once when it is complete.
//! So an outage looks like silence, never like absence.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures_util::StreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::InitialListStrategy;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::changes::{Changes, Mailbox, Mailboxes};
use super::clock;
use super::told::Told;
use crate::model::Moment;

/// Pauses between attempts while the server is away. A node that is back late serves
/// stale routes, and what an attempt costs a server that is coming up is one connection.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(8);

/// The pauses: twice as long each time, half of each random.
#[derive(Debug, Default)]
struct Retries {
    last: Option<Duration>,
}

impl Iterator for Retries {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let next = self.last.map_or(FIRST_RETRY, |last| (last * 2).min(LAST_RETRY));
        self.last = Some(next);
        Some(next.mul_f64(0.5 + fastrand::f64() / 2.0))
    }
}

impl Backoff for Retries {
    fn reset(&mut self) {
        self.last = None;
    }
}

/// Views by name, and who has to hear of changes: as a store and its writer share them.
#[derive(Debug)]
struct Shared<V> {
    objects: RwLock<BTreeMap<String, Arc<V>>>,
    mailboxes: Mailboxes,
}

impl<V> Shared<V> {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Arc<V>>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Arc<V>>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Default for Shared<V> {
    fn default() -> Self {
        Self { objects: RwLock::default(), mailboxes: Mailboxes::default() }
    }
}

/// Views of every object of one kind, by name (`namespace/name` for namespaced kinds).
///
/// Clones see the same objects, and each notices changes for itself: a new one has everything to
/// look at.
#[derive(Debug)]
pub struct Store<V> {
    shared: Arc<Shared<V>>,
    state: watch::Receiver<State>,
    mailbox: Arc<Mailbox>,
    // Aborts the watch when the last clone goes.
    _task: Arc<AbortOnDrop>,
}

impl<V> Clone for Store<V> {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        let mailbox = shared.mailboxes.open();
        Self { shared, state: self.state.clone(), mailbox, _task: Arc::clone(&self._task) }
    }
}

/// Counts changes; zero before the first complete list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    changes: u64,
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<V> Store<V>
where
    V: PartialEq + Send + Sync + 'static,
{
    /// Starts watching `api`; `view` keeps what is needed of an object, or nothing of it.
    ///
    /// Watching goes on until the last clone of the store is dropped. Errors are retried with
    /// jittered backoff and told once each time the server goes away and comes back.
    pub fn watch<K>(api: Api<K>, config: watcher::Config, view: fn(&K) -> Option<V>) -> Self
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        Self::watch_news(api, config, view, V::eq)
    }

    /// As [`Store::watch`], but an object that `says_the_same` as before is kept without a word.
    ///
    /// For views that carry a resource version to guard writes: a kubelet's heartbeat changes
    /// nothing else, and what is planned of it would be planned again.
    pub fn watch_news<K>(
        api: Api<K>,
        config: watcher::Config,
        view: fn(&K) -> Option<V>,
        says_the_same: fn(&V, &V) -> bool,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        Self::start(async {}, says_the_same, |writer| writer.run(api, config, view))
    }

    /// As [`Store::watch`], but the first list is asked for only when its `turn` has come: what is waited for
    /// first is not held up by what comes second.
    pub fn watch_in_turn<K>(
        turn: impl Future<Output = ()> + Send + 'static,
        api: Api<K>,
        config: watcher::Config,
        view: fn(&K) -> Option<V>,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        Self::start(turn, V::eq, |writer| writer.run(api, config, view))
    }

    fn start<R>(
        turn: impl Future<Output = ()> + Send + 'static,
        says_the_same: fn(&V, &V) -> bool,
        run: impl FnOnce(Writer<V>) -> R,
    ) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        let (writer, state) = Writer::new(says_the_same);
        let shared = Arc::clone(&writer.shared);
        let mailbox = shared.mailboxes.open();
        let run = run(writer);
        let task = tokio::spawn(async {
            turn.await;
            run.await;
        });
        Self { shared, state, mailbox, _task: Arc::new(AbortOnDrop(task)) }
    }

    /// Whether the first complete list has arrived.
    pub fn is_synced(&self) -> bool {
        self.state.borrow().changes > 0
    }

    /// Waits for the first complete list.
    pub async fn synced(&mut self) {
        // The sender lives in the task, which lives as long as `self`.
        let _ = self.state.wait_for(|state| state.changes > 0).await;
    }

    /// As [`Self::synced`], for whoever does not keep the store: over as well when nobody does any more.
    pub fn listed(&self) -> impl Future<Output = ()> + Send + use<V> {
        let mut state = self.state.clone();
        async move { drop(state.wait_for(|state| state.changes > 0).await) }
    }

    /// Waits until something changed since this clone last asked, here or by [`Self::take_changes`].
    ///
    /// Cancel-safe: a change that was not awaited to its end is seen by the next call. What changed
    /// stays to be taken.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// As [`Self::changed`], and not before a moment: what changes all the time is then looked at now and then.
    ///
    /// For loops that look at everything after each wait: one that is not awaited to its end may forget a change.
    pub async fn changed_not_before(&mut self, earliest: Moment) {
        self.changed().await;
        clock::until(Some(earliest)).await;
    }

    /// What changed since this clone last took it; at first everything.
    ///
    /// What is read after this is at least as new as what was taken. A heartbeat is no change.
    pub fn take_changes(&mut self) -> Changes {
        // In this order a change that comes in between is told twice; in the other it could be lost.
        self.state.mark_unchanged();
        self.mailbox.take()
    }

    /// Every object now. The map is copied, the views are shared.
    pub fn snapshot(&self) -> BTreeMap<String, Arc<V>> {
        self.shared.read().clone()
    }

    /// Looks at every object without copying the map. Nothing can change meanwhile: look quickly.
    pub fn with<T>(&self, look: impl FnOnce(&BTreeMap<String, Arc<V>>) -> T) -> T {
        look(&self.shared.read())
    }

    /// One object now.
    pub fn get(&self, name: &str) -> Option<Arc<V>> {
        self.shared.read().get(name).cloned()
    }
}

/// The task that fills a store.
struct Writer<V> {
    shared: Arc<Shared<V>>,
    state: watch::Sender<State>,
    /// A list that is not complete yet.
    listing: BTreeMap<String, Arc<V>>,
    is_away: bool,
    says_the_same: fn(&V, &V) -> bool,
}

impl<V: PartialEq + Send + Sync + 'static> Writer<V> {
    fn new(says_the_same: fn(&V, &V) -> bool) -> (Self, watch::Receiver<State>) {
        let (sender, state) = watch::channel(State::default());
        let (shared, listing) = (Arc::default(), BTreeMap::new());
        (Self { shared, state: sender, listing, is_away: false, says_the_same }, state)
    }

    async fn run<K>(mut self, api: Api<K>, config: watcher::Config, view: fn(&K) -> Option<V>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        if self.follow(api.clone(), config.clone(), view).await == Ended::CannotStream {
            let config = watcher::Config { initial_list_strategy: InitialListStrategy::ListWatch, ..config };
            self.follow(api, config, view).await;
        }
    }

    /// Follows the events of a watch, which do not end unless the server cannot begin as it was asked to.
    async fn follow<K>(&mut self, api: Api<K>, config: watcher::Config, view: fn(&K) -> Option<V>) -> Ended
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let kind = K::kind(&()).into_owned();
        let streams = config.initial_list_strategy == InitialListStrategy::StreamingList;
        let mut events = pin!(watcher(api, config).backoff(Retries::default()));
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    // The beginning of a list is said before the server was even asked.
                    if !matches!(event, watcher::Event::Init) {
                        self.is_back(&kind);
                    }
                    self.take(event, view);
                }
                Err(error) if streams && is_no_stream(&error) => return Ended::CannotStream,
                Err(error) => self.went_away(&kind, &error),
            }
        }
        Ended::Closed
    }

    fn is_back(&mut self, kind: &str) {
        if std::mem::take(&mut self.is_away) {
            info!(kind, "watching again");
        }
    }

    fn went_away(&mut self, kind: &str, error: &watcher::Error) {
        // An expired resource version or a watch the server cut is ordinary: the watcher lists again.
        let is_ordinary = matches!(error, watcher::Error::WatchError(status) if status.code == 410);
        if !is_ordinary && !std::mem::replace(&mut self.is_away, true) {
            let error = Told(error);
            warn!(kind, %error, "cannot watch; the last state stays in force");
        }
    }

    fn take<K: Resource<DynamicType = ()>>(&mut self, event: watcher::Event<K>, view: fn(&K) -> Option<V>) {
        match event {
            watcher::Event::Init => self.listing = BTreeMap::new(),
            watcher::Event::InitApply(object) => {
                if let Some(view) = view(&object) {
                    self.list(name_of(&object), view);
                }
            }
            watcher::Event::InitDone => self.replace(),
            watcher::Event::Apply(object) => self.put(&name_of(&object), view(&object)),
            watcher::Event::Delete(object) => self.put(&name_of(&object), None),
        }
    }

    /// Adds to the list; what is known already is shared with the old one, so that a list of all the
    /// same objects takes no memory.
    fn list(&mut self, name: String, view: V) {
        let known = self.shared.read().get(&name).filter(|known| ***known == view).cloned();
        self.listing.insert(name, known.unwrap_or_else(|| Arc::new(view)));
    }

    /// Puts the list in place of what was there, and tells what differs.
    fn replace(&mut self) {
        let complete = std::mem::take(&mut self.listing);
        let before = std::mem::replace(&mut *self.shared.write(), complete);
        let is_first = self.state.borrow().changes == 0;
        let different = {
            let now = self.shared.read();
            let is_news = |name: &str| match (before.get(name), now.get(name)) {
                (Some(one), Some(other)) => !Arc::ptr_eq(one, other) && !(self.says_the_same)(one, other),
                (one, other) => one.is_some() != other.is_some(),
            };
            let names = now.keys().chain(before.keys().filter(|name| !now.contains_key(*name)));
            names.filter(|name| is_news(name)).cloned().collect::<Vec<_>>()
        };
        if is_first || !different.is_empty() {
            self.tell(different.iter().map(String::as_str));
        }
    }

    /// Puts one object in place of what was there, and tells it if it is news.
    fn put(&self, name: &str, view: Option<V>) {
        let is_news = {
            let mut objects = self.shared.write();
            match (view, objects.get_mut(name)) {
                (Some(view), Some(known)) if **known == view => false,
                (Some(view), Some(known)) => {
                    let is_news = !(self.says_the_same)(known, &view);
                    *known = Arc::new(view);
                    is_news
                }
                (Some(view), None) => objects.insert(name.to_owned(), Arc::new(view)).is_none(),
                (None, _) => objects.remove(name).is_some(),
            }
        };
        if is_news {
            self.tell(std::iter::once(name));
        }
    }

    /// First what, then that: whoever wakes finds it.
    fn tell<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) {
        self.shared.mailboxes.post(names);
        self.state.send_modify(|state| state.changes += 1);
    }
}

/// Why a watch is not followed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The server sends no first list by a watch (`WatchList` is off, as in 1.33): it has to be asked page by page.
    CannotStream,
    Closed,
}

fn is_no_stream(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 400 | 403 | 422),
        _ => false,
    }
}

fn name_of<K: Resource>(object: &K) -> String {
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    match meta.namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::views;
    use crate::model::views::{NodeView, Truth};

    fn node(version: u32, status: &Value) -> Node {
        let object = json!({ "metadata": { "name": "n1", "resourceVersion": version.to_string() }, "status": status });
        serde_json::from_value(object).expect("a Node")
    }

    /// As a kubelet writes it every five minutes.
    fn ready(heartbeat: &str, status: &str) -> Value {
        json!({ "conditions": [{ "type": "Ready", "status": status, "lastHeartbeatTime": heartbeat }] })
    }

    fn named(name: &str, version: u32, ready: &str) -> Node {
        let mut node = node(version, &self::ready("2027-01-01T00:00:00Z", ready));
        node.metadata.name = Some(name.to_owned());
        node
    }

    /// A store without a watch, and the hand that fills it.
    fn by_hand() -> (Writer<NodeView>, Store<NodeView>) {
        let (writer, state) = Writer::new(NodeView::says_the_same);
        let shared = Arc::clone(&writer.shared);
        let mailbox = shared.mailboxes.open();
        let task = tokio::spawn(std::future::pending());
        (writer, Store { shared, state, mailbox, _task: Arc::new(AbortOnDrop(task)) })
    }

    impl Writer<NodeView> {
        fn lists(&mut self, nodes: Vec<Node>) {
            self.take(watcher::Event::<Node>::Init, views::node);
            nodes.into_iter().for_each(|node| self.take(watcher::Event::InitApply(node), views::node));
            self.take(watcher::Event::<Node>::InitDone, views::node);
        }

        fn sees(&mut self, node: Node) {
            self.take(watcher::Event::Apply(node), views::node);
        }
    }

    fn keys(names: &[&str]) -> Changes {
        Changes::Keys(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// Whether [`Store::changed`] would return at once.
    async fn is_woken(store: &mut Store<NodeView>) -> bool {
        tokio::select! {
            biased;
            () = store.changed() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn a_heartbeat_is_kept_and_not_told() {
        let (mut writer, mut store) = by_hand();
        writer.lists(vec![node(1, &ready("2027-01-01T00:00:00Z", "True"))]);
        let _ = store.take_changes();
        for (name, object, want) in [
            ("a heartbeat", node(2, &ready("2027-01-01T00:05:00Z", "True")), keys(&[])),
            ("not ready", node(3, &ready("2027-01-01T00:10:00Z", "False")), keys(&["n1"])),
            ("another heartbeat", node(4, &ready("2027-01-01T00:15:00Z", "False")), keys(&[])),
        ] {
            let version = object.metadata.resource_version.clone();
            writer.sees(object);
            assert_eq!(is_woken(&mut store).await, !want.is_empty(), "{name}");
            assert_eq!(store.take_changes(), want, "{name}");
            let known = store.get("n1").expect("a node");
            assert_eq!(Some(known.resource_version.clone()), version, "{name}: the version guards writes");
        }
        assert_eq!(store.get("n1").expect("a node").ready, Some(Truth::False));
    }

    #[tokio::test]
    async fn everything_is_new_at_first_and_to_each_new_reader() {
        let (mut writer, mut store) = by_hand();
        assert!(!is_woken(&mut store).await && !store.is_synced(), "nothing is known before the first list");
        writer.lists(vec![]);
        assert!(is_woken(&mut store).await && store.is_synced(), "an empty list is an answer");
        assert_eq!(store.take_changes(), Changes::All);
        writer.sees(named("n1", 1, "True"));
        let mut second = store.clone();
        assert_eq!((store.take_changes(), second.take_changes()), (keys(&["n1"]), Changes::All));
        writer.sees(named("n2", 2, "True"));
        assert_eq!((store.take_changes(), second.take_changes()), (keys(&["n2"]), keys(&["n2"])));
    }

    #[tokio::test]
    async fn a_change_between_taking_and_waiting_is_not_lost() {
        let (mut writer, mut store) = by_hand();
        writer.lists(vec![named("n1", 1, "True")]);
        let _ = store.take_changes();
        writer.sees(named("n1", 2, "False"));
        assert!(is_woken(&mut store).await);
        assert!(!is_woken(&mut store).await, "one change wakes once");
        writer.take(watcher::Event::Delete(named("n1", 3, "False")), views::node);
        writer.sees(named("n2", 4, "True"));
        assert_eq!(store.take_changes(), keys(&["n1", "n2"]), "what woke before it was taken is still there");
        assert!(!is_woken(&mut store).await, "what was taken wakes nobody");
        store.with(|nodes| assert_eq!(nodes.keys().collect::<Vec<_>>(), ["n2"]));
    }

    #[tokio::test]
    async fn a_new_list_tells_what_differs_and_nothing_before_it_is_complete() {
        let (mut writer, mut store) = by_hand();
        writer.lists(["same", "beats", "changes", "goes"].map(|name| named(name, 1, "True")).into());
        let _ = store.take_changes();
        let same = store.get("same").expect("a node");
        writer.take(watcher::Event::<Node>::Init, views::node);
        let list = [
            named("same", 1, "True"),
            named("beats", 2, "True"),
            named("changes", 2, "False"),
            named("comes", 2, "True"),
        ];
        for node in list {
            writer.take(watcher::Event::InitApply(node), views::node);
            assert!(!is_woken(&mut store).await && store.get("goes").is_some());
        }
        writer.take(watcher::Event::<Node>::InitDone, views::node);
        assert!(is_woken(&mut store).await);
        assert_eq!(store.take_changes(), keys(&["changes", "comes", "goes"]));
        assert!(Arc::ptr_eq(&same, &store.get("same").expect("a node")), "what is the same takes no more memory");
        assert_eq!(store.get("beats").expect("a node").resource_version, "2");
        writer.lists(store.snapshot().values().map(|view| named(view.name.as_str(), 2, "x")).collect());
        let _ = store.take_changes();
        writer.lists(store.snapshot().values().map(|view| named(view.name.as_str(), 3, "x")).collect());
        assert!(!is_woken(&mut store).await && store.take_changes().is_empty(), "a list of heartbeats is no change");
    }
}
