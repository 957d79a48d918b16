#![expect(clippy::disallowed_methods, reason = "shell: the time of an Event, the task that sends them")]
//! Events: notes told to whoever looks at an object.
//!
//! Telling never holds up doing: Events wait in a queue while there are other writes
//! (`traffic::Lane::Later`), and one that the API server has no time for is tried again. A note is told
//! once, and again only after it changed ([`News`]), so that nothing has to be counted.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::{Client, Resource};
use serde::de::IgnoredAny;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::client::TOLD_AT_ONCE;
use super::patch::{WriteError, create};
use super::told::Told;
use super::traffic::Fenced;
use crate::api::Machine;
use crate::model::views::{NodeView, ServiceView};
use crate::model::{MachineId, Note, ServiceKey, Severity};

/// Events that wait to be sent, at a fifth of a kilobyte each for a Service: as many as there are Nodes that come at once,
/// and some. One too many is dropped: it is worth less than memory, and the status says the same.
const QUEUE: usize = 16_384;
/// An Event is tried this often, with longer and longer waits in between.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(500);
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
    queue: mpsc::Sender<Message>,
}

/// What an Event is about. Services come by the ten thousand, and wait here until there is time for them.
#[derive(Debug)]
pub enum About {
    /// A Service.
    Service {
        /// Its namespace and name.
        key: ServiceKey,
        /// `metadata.uid`.
        uid: Box<str>,
    },
    /// Another object.
    Other(Box<ObjectReference>),
}

impl From<ObjectReference> for About {
    fn from(object: ObjectReference) -> Self {
        Self::Other(Box::new(object))
    }
}

impl About {
    /// How an Event names it.
    fn reference(&self) -> ObjectReference {
        match self {
            Self::Other(object) => ObjectReference::clone(object),
            Self::Service { key, uid } => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Service".to_owned()),
                namespace: Some(key.namespace().to_owned()),
                name: Some(key.name().to_owned()),
                uid: Some(uid.to_string()),
                ..ObjectReference::default()
            },
        }
    }
}

/// Something told, and when.
#[derive(Debug)]
struct Message {
    about: About,
    note: Note,
    when: Timestamp,
}

impl Events {
    /// Starts the task that sends Events; it ends when the last clone is dropped, or with `tasks`.
    pub fn start(client: Client, reporter: Reporter, tasks: &mut JoinSet<()>) -> Self {
        let (queue, mut waiting) = mpsc::channel::<Message>(QUEUE);
        tasks.spawn(async move {
            let told = stream::poll_fn(|context| waiting.poll_recv(context));
            told.for_each_concurrent(TOLD_AT_ONCE, |told| deliver(&client, &reporter, told)).await;
        });
        Self { queue }
    }

    /// Tells something about an object.
    pub fn tell(&self, object: impl Into<About>, note: Note) {
        if self.queue.try_send(Message { about: object.into(), note, when: Timestamp::now() }).is_err() {
            debug!("too many events wait: one was dropped");
        }
    }
}

/// Sends an Event, again and again for a while if that may help.
async fn deliver(client: &Client, reporter: &Reporter, told: Message) {
    for failures in 0..TRIES {
        match post(client, reporter, &told).await {
            Ok(()) => return,
            Err(error) if failures + 1 < TRIES && may_pass(&error) => {
                let wait = FIRST_WAIT * 2_u32.pow(failures);
                tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            }
            Err(error) => {
                warn!(error = %Told(&error), "cannot write an event");
                return;
            }
        }
    }
}

/// Whether the next try may go better: the server was busy or out of reach.
fn may_pass(error: &WriteError) -> bool {
    match error {
        WriteError::TimedOut => true,
        WriteError::Refused(cause) => match &**cause {
            kube::Error::Api(status) => status.code == 429 || status.code >= 500,
            kube::Error::Service(cause) => !cause.is::<Fenced>(),
            _ => true,
        },
        WriteError::Conflict | WriteError::Gone => false,
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

/// An Event about a Service.
pub fn about_service(service: &ServiceView) -> About {
    About::Service { key: service.key.clone(), uid: service.uid.as_str().into() }
}

/// Tells something at once; [`Events::tell`] is for whoever has better to do than to wait.
pub async fn send(client: &Client, reporter: &Reporter, regarding: ObjectReference, note: &Note) {
    let told = Message { about: regarding.into(), note: note.clone(), when: Timestamp::now() };
    if let Err(error) = post(client, reporter, &told).await {
        warn!(error = %Told(&error), "cannot write an event");
    }
}

async fn post(client: &Client, reporter: &Reporter, told: &Message) -> Result<(), WriteError> {
    // Events about objects without a namespace go where upstream's do.
    let regarding = told.about.reference();
    let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let event = event(reporter, namespace.clone(), regarding, told);
    match create::<Event, IgnoredAny>(client, Some(&namespace), &event).await {
        // An earlier try came through.
        Ok(_) | Err(WriteError::Conflict) => Ok(()),
        // The namespace is going away, and its Services with it.
        Err(WriteError::Refused(error)) if is_of_an_ending_namespace(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_of_an_ending_namespace(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403 && status.message.contains("being terminated"))
}

fn event(reporter: &Reporter, namespace: String, regarding: ObjectReference, told: &Message) -> Event {
    let Message { about: _, note, when } = told;
    let severity = match note.severity() {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let name = format!("{}.{:x}", regarding.name.as_deref().unwrap_or_default(), when.as_nanosecond());
    let text: String = note.to_string().chars().take(LONGEST_NOTE).collect();
    Event {
        action: Some(note.reason().to_owned()),
        event_time: Some(MicroTime(*when)),
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
        let about = About::Service { key: ServiceKey::new("default", "web"), uid: "u1".into() };
        let when = Timestamp::from_second(1_800_000_000).expect("a time");
        let regarding = about.reference();
        let event = event(&reporter, "default".to_owned(), regarding, &Message { about, note: Note::NoPool, when });
        let regarding = event.regarding.clone().unwrap_or_default();
        let named = [regarding.kind, regarding.namespace, regarding.name, regarding.uid].map(Option::unwrap_or_default);
        assert_eq!(named, ["Service", "default", "web", "u1"]);
        assert_eq!(event.reason.as_deref(), Some("SyncLoadBalancerFailed"));
        assert_eq!(event.action.as_deref(), Some("NoPool"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.note, Some(Note::NoPool.to_string()));
        assert_eq!(event.metadata.name.as_deref(), Some("web.18fae27693b40000"));
    }
}
