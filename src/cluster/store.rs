#![expect(clippy::disallowed_methods, reason = "shell: owns the watch tasks")]
//! Stores: watch a kind of object, keep views of it, say when something changed.
//!
//! A store shows nothing before its first complete list and never goes back: while the API server is
//! away it keeps the last state, and a new list replaces the old one at once when it is complete.
//! So an outage looks like silence, never like absence.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures_util::StreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::told::Told;

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

/// Views by name, as a store and its writer share them.
type Shared<V> = Arc<RwLock<BTreeMap<String, Arc<V>>>>;

/// Views of every object of one kind, by name (`namespace/name` for namespaced kinds).
///
/// Clones see the same objects, and each notices changes for itself.
#[derive(Debug)]
pub struct Store<V> {
    shared: Shared<V>,
    state: watch::Receiver<State>,
    // Aborts the watch when the last clone goes.
    _task: Arc<AbortOnDrop>,
}

impl<V> Clone for Store<V> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), state: self.state.clone(), _task: Arc::clone(&self._task) }
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
        let (writer, shared, state) = Writer::new(says_the_same);
        let task = tokio::spawn(writer.run(api, config, view));
        Self { shared, state, _task: Arc::new(AbortOnDrop(task)) }
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

    /// Waits until something changed since this clone last asked.
    ///
    /// Cancel-safe: a change that was not awaited to its end is seen by the next call.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Every object now. The map is copied, the views are shared.
    pub fn snapshot(&self) -> BTreeMap<String, Arc<V>> {
        self.read().clone()
    }

    /// One object now.
    pub fn get(&self, name: &str) -> Option<Arc<V>> {
        self.read().get(name).cloned()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Arc<V>>> {
        self.shared.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The task that fills a store.
struct Writer<V> {
    shared: Shared<V>,
    state: watch::Sender<State>,
    /// A list that is not complete yet.
    listing: BTreeMap<String, Arc<V>>,
    is_away: bool,
    says_the_same: fn(&V, &V) -> bool,
}

impl<V: PartialEq + Send + Sync + 'static> Writer<V> {
    fn new(says_the_same: fn(&V, &V) -> bool) -> (Self, Shared<V>, watch::Receiver<State>) {
        let shared = Shared::<V>::default();
        let (sender, state) = watch::channel(State::default());
        let listing = BTreeMap::new();
        (Self { shared: Arc::clone(&shared), state: sender, listing, is_away: false, says_the_same }, shared, state)
    }

    async fn run<K>(mut self, api: Api<K>, config: watcher::Config, view: fn(&K) -> Option<V>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let kind = K::kind(&()).into_owned();
        let mut events = pin!(watcher(api, config).backoff(Retries::default()));
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    self.is_back(&kind);
                    self.take(event, view);
                }
                Err(error) => self.went_away(&kind, &error),
            }
        }
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
                    self.listing.insert(name_of(&object), Arc::new(view));
                }
            }
            watcher::Event::InitDone => {
                let complete = std::mem::take(&mut self.listing);
                self.change(|objects| {
                    *objects = complete;
                    true
                });
            }
            watcher::Event::Apply(object) => {
                let (name, view) = (name_of(&object), view(&object));
                self.change(|objects| match (view, objects.get(&name)) {
                    (Some(view), Some(known)) if **known == view => false,
                    (Some(view), known) => {
                        let is_news = known.is_none_or(|known| !(self.says_the_same)(known, &view));
                        objects.insert(name, Arc::new(view));
                        is_news
                    }
                    (None, _) => objects.remove(&name).is_some(),
                });
            }
            watcher::Event::Delete(object) => {
                let name = name_of(&object);
                self.change(|objects| objects.remove(&name).is_some());
            }
        }
    }

    fn change(&self, edit: impl FnOnce(&mut BTreeMap<String, Arc<V>>) -> bool) {
        let has_changed = edit(&mut self.shared.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
        if has_changed {
            self.state.send_modify(|state| state.changes += 1);
        }
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

    #[test]
    fn a_heartbeat_is_kept_and_not_told() {
        let (mut writer, shared, mut state) = Writer::new(NodeView::says_the_same);
        let known = || shared.read().expect("not poisoned").get("n1").cloned().expect("a node");
        writer.take(watcher::Event::InitApply(node(1, &ready("2027-01-01T00:00:00Z", "True"))), views::node);
        writer.take(watcher::Event::<Node>::InitDone, views::node);
        state.mark_unchanged();
        for (name, object, is_told) in [
            ("a heartbeat", node(2, &ready("2027-01-01T00:05:00Z", "True")), false),
            ("not ready", node(3, &ready("2027-01-01T00:10:00Z", "False")), true),
            ("another heartbeat", node(4, &ready("2027-01-01T00:15:00Z", "False")), false),
        ] {
            let version = object.metadata.resource_version.clone();
            writer.take(watcher::Event::Apply(object), views::node);
            assert_eq!(state.has_changed().expect("a writer"), is_told, "{name}");
            assert_eq!(Some(known().resource_version.clone()), version, "{name}: the version guards writes");
            state.mark_unchanged();
        }
        assert_eq!(known().ready, Some(Truth::False));
    }
}
