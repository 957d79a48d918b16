#![expect(clippy::disallowed_methods, reason = "shell: the time of an Event, the task that sends them")]
//! Events: notes told to whoever looks at an object.
//!
//! Telling never holds up doing: Events wait in a short queue, and one too many is dropped. A note
//! is told once, and again only after it changed ([`News`]), so that nothing has to be counted.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Resource};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::told::Told;
use crate::api::Machine;
use crate::model::views::{NodeView, ServiceView};
use crate::model::{MachineId, Note, Severity};

/// Events that wait to be sent. A burst of new Services is longer than this; their Events are worth
/// less than memory, and the status says the same.
const QUEUE: usize = 512;
const TIMEOUT: Duration = Duration::from_secs(5);
/// The API server's limit of `note`.
const LONGEST_NOTE: usize = 1024;

/// Who tells.
#[derive(Debug, Clone)]
pub struct Reporter {
    /// The controller, as upstream's Events name it.
    pub controller: &'static str,
    /// The process.
    pub instance: String,
}

/// Where to put what is to be told. Clones share one queue.
#[derive(Debug, Clone)]
pub struct Events {
    queue: mpsc::Sender<(ObjectReference, Note)>,
}

impl Events {
    /// Starts the task that sends Events; it ends when the last clone is dropped, or with `tasks`.
    pub fn start(client: Client, reporter: Reporter, tasks: &mut JoinSet<()>) -> Self {
        let (queue, mut waiting) = mpsc::channel::<(ObjectReference, Note)>(QUEUE);
        tasks.spawn(async move {
            while let Some((regarding, note)) = waiting.recv().await {
                send(&client, &reporter, regarding, &note).await;
            }
        });
        Self { queue }
    }

    /// Tells something about an object.
    pub fn tell(&self, object: ObjectReference, note: Note) {
        if self.queue.try_send((object, note)).is_err() {
            debug!("too many events wait: one was dropped");
        }
    }
}

/// How an Event names a Lease.
pub fn about_lease(namespace: &str, name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// How an Event names a Node.
pub fn about_node(node: &NodeView) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.to_string()),
        uid: Some(node.uid.clone()),
        ..ObjectReference::default()
    }
}

/// How an Event names a `Machine`; one that has no object yet has no uid.
pub fn about_machine(machine: &MachineId, uid: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some(Machine::api_version(&()).into_owned()),
        kind: Some(Machine::kind(&()).into_owned()),
        name: Some(machine.to_string()),
        uid,
        ..ObjectReference::default()
    }
}

/// How an Event names a Service.
pub fn about_service(service: &ServiceView) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Service".to_owned()),
        namespace: Some(service.key.namespace().to_owned()),
        name: Some(service.key.name().to_owned()),
        uid: Some(service.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Tells something at once; [`Events::tell`] is for whoever has better to do than to wait.
pub async fn send(client: &Client, reporter: &Reporter, regarding: ObjectReference, note: &Note) {
    // Events about objects without a namespace go where upstream's do.
    let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let event = event(reporter, namespace, regarding, note, Timestamp::now());
    let answer = tokio::time::timeout(TIMEOUT, api.create(&PostParams::default(), &event)).await;
    match answer {
        Ok(Ok(_)) => {}
        // The namespace is going away, and its Services with it.
        Ok(Err(kube::Error::Api(status))) if status.code == 403 && status.message.contains("being terminated") => {}
        Ok(Err(error)) => warn!(error = %Told(&error), "cannot write an event"),
        Err(error) => warn!(error = %Told(&error), "cannot write an event"),
    }
}

fn event(reporter: &Reporter, namespace: String, regarding: ObjectReference, note: &Note, now: Timestamp) -> Event {
    let severity = match note.severity() {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let name = format!("{}.{:x}", regarding.name.as_deref().unwrap_or_default(), now.as_nanosecond());
    let text: String = note.to_string().chars().take(LONGEST_NOTE).collect();
    Event {
        action: Some(note.reason().to_owned()),
        event_time: Some(MicroTime(now)),
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
        note: Some(text),
        reason: Some(note.event_reason().to_owned()),
        regarding: Some(regarding),
        reporting_controller: Some(reporter.controller.to_owned()),
        reporting_instance: Some(reporter.instance.chars().take(128).collect()),
        type_: Some(severity.to_owned()),
        ..Event::default()
    }
}

/// What has been told of each object.
#[derive(Debug)]
pub struct News<K> {
    told: BTreeMap<K, Note>,
}

impl<K> Default for News<K> {
    fn default() -> Self {
        Self { told: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> News<K> {
    /// Which of the notes are new or have changed since the last call.
    pub fn of(&mut self, notes: &BTreeMap<K, Note>) -> Vec<(K, Note)> {
        let fresh = notes.iter().filter(|(key, note)| self.told.get(*key) != Some(*note));
        let fresh = fresh.map(|(key, note)| (key.clone(), note.clone())).collect();
        self.told.clone_from(notes);
        fresh
    }

    /// Whether the note of one object is new or has changed since the last call; the others stay as they are.
    pub fn is_new(&mut self, key: &K, note: Option<&Note>) -> bool {
        match note {
            None => {
                self.told.remove(key);
                false
            }
            Some(note) if self.told.get(key) == Some(note) => false,
            Some(note) => {
                self.told.insert(key.clone(), note.clone());
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_told_once_and_again_when_it_changed() {
        let unknown = |why: &str| Note::MachineUnknown { why: why.to_owned() };
        let (mut news, mut one_by_one) = (News::default(), News::default());
        for (name, notes, want) in [
            ("new", vec![("a", unknown("x"))], vec![("a", unknown("x"))]),
            ("the same", vec![("a", unknown("x"))], vec![]),
            (
                "changed, and another",
                vec![("a", unknown("y")), ("b", Note::NoPool)],
                vec![("a", unknown("y")), ("b", Note::NoPool)],
            ),
            ("over", vec![("b", Note::NoPool)], vec![]),
            ("back", vec![("a", unknown("y")), ("b", Note::NoPool)], vec![("a", unknown("y"))]),
        ] {
            let notes = notes.into_iter().collect::<BTreeMap<_, _>>();
            let is_new = |key| one_by_one.is_new(key, notes.get(key)).then(|| (*key, notes[key].clone()));
            assert_eq!(["a", "b"].iter().filter_map(is_new).collect::<Vec<_>>(), want, "{name}, one by one");
            assert_eq!(news.of(&notes), want, "{name}");
        }
    }

    #[test]
    fn an_event_has_upstreams_reason_and_the_notes_sentence() {
        let reporter = Reporter { controller: "service-controller", instance: "n1_1".to_owned() };
        let regarding = ObjectReference { name: Some("web".to_owned()), ..ObjectReference::default() };
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let event = event(&reporter, "default".to_owned(), regarding, &Note::NoPool, now);
        assert_eq!(event.reason.as_deref(), Some("SyncLoadBalancerFailed"));
        assert_eq!(event.action.as_deref(), Some("NoPool"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.note, Some(Note::NoPool.to_string()));
        assert_eq!(event.metadata.name.as_deref(), Some("web.18fae27693b40000"));
    }
}
