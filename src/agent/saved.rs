#![expect(clippy::disallowed_methods, reason = "shell: keeps the last state in a file")]
//! The last state, kept in memory of the host while the agent is away.
//!
//! An agent that starts while the API server is away goes on from there: it withdraws nothing, and
//! repairs what happens meanwhile. What is kept holds for one boot only: after another, sessions and
//! routes have to begin with what the cluster says.

use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::agent::snapshot::Snapshot;
use crate::model::views::EndpointView;
use crate::model::{Moment, NodeName};

/// What this version writes; another is not read.
const VERSION: u32 = 1;
/// After a change it is written no sooner than this after the last time: the longer the more there is to write.
fn pause(state: &Snapshot) -> Duration {
    let objects = state.node_routes.len() + state.services.len() + state.endpoints.len();
    Duration::from_millis(500 + u64::try_from(objects).unwrap_or(u64::MAX)).min(LONGEST_PAUSE)
}

const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The first time it waits for what comes with the first lists.
const FIRST: Duration = Duration::from_secs(1);

/// The file's contents.
#[derive(Serialize, Deserialize)]
struct Saved<S> {
    version: u32,
    boot_id: String,
    snapshot: S,
}

/// Which state a file has to be of.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The file.
    pub file: PathBuf,
    /// The kernel's boot id.
    pub boot_id: String,
    /// The node.
    pub node: NodeName,
}

/// The state that an earlier run of this boot has left, if one has. What cannot be used is told in one line.
pub fn load(origin: &Origin) -> Option<Snapshot> {
    let file = origin.file.display();
    let text = match std::fs::read(&origin.file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            warn!(%file, %error, "cannot read the kept state; waiting for the API server");
            return None;
        }
    };
    let saved: Saved<Snapshot> = match serde_json::from_slice(&text) {
        Ok(saved) => saved,
        Err(error) => {
            warn!(%file, %error, "the kept state is damaged or of another version; waiting for the API server");
            return None;
        }
    };
    let is_of_now = saved.version == VERSION && saved.boot_id == origin.boot_id && saved.snapshot.me == origin.node;
    if !is_of_now {
        info!(%file, "the kept state is of another boot, node or version; waiting for the API server");
    }
    is_of_now.then_some(saved.snapshot)
}

/// Writes each state it is handed, until the sender is dropped.
pub async fn run(origin: Origin, mut states: mpsc::Receiver<Snapshot>) {
    let mut is_failing = false;
    while let Some(state) = states.recv().await {
        let target = origin.clone();
        // Megabytes in a large cluster: not on a thread that others wait for.
        let written = tokio::task::spawn_blocking(move || write(&target, state)).await;
        match written.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
            Ok(()) => is_failing = false,
            Err(error) if !std::mem::replace(&mut is_failing, true) => {
                warn!(file = %origin.file.display(), %error, "cannot keep the state; a restart will need the API server");
            }
            Err(_) => {}
        }
    }
}

/// When the state is handed over: soon after the first lists, then once in a while. What is kept is that
/// much older than what is known.
#[derive(Debug)]
pub struct Keeping {
    states: mpsc::Sender<Snapshot>,
    due: Moment,
}

impl Keeping {
    /// Hands states to `states`; the first one no sooner than a second from `now`.
    pub fn new(states: mpsc::Sender<Snapshot>, now: Moment) -> Self {
        Self { states, due: now + FIRST }
    }

    /// Hands over a state that is new when it is time. Says when it is, otherwise.
    pub fn keep(&mut self, state: Snapshot, now: Moment) -> Option<Moment> {
        if now < self.due {
            return Some(self.due);
        }
        self.due = now + pause(&state);
        // One that finds the last one still being written waits for its turn.
        self.states.try_send(state).err().map(|_| self.due)
    }

    /// Hands over the last one.
    pub async fn end(self, state: Option<Snapshot>) {
        if let Some(state) = state {
            // Without a receiver there is nobody to keep it, which was told.
            let _ = self.states.send(state).await;
        }
    }
}

/// Takes the file away.
pub fn remove(file: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What a later run can use: it reads the interfaces itself, and of the endpoints only those of load
/// balancers count.
fn useful(mut snapshot: Snapshot) -> Snapshot {
    snapshot.local.clear();
    snapshot.learned.clear();
    let services = &snapshot.services;
    let counts = |slice: &EndpointView| services.contains_key(&slice.service.to_string());
    let endpoints = snapshot.endpoints.iter().filter(|(_, slice)| counts(slice));
    snapshot.endpoints = endpoints.map(|(name, slice)| (name.clone(), Arc::clone(slice))).collect();
    snapshot
}

fn write(origin: &Origin, snapshot: Snapshot) -> std::io::Result<()> {
    let snapshot = useful(snapshot);
    let saved = Saved { version: VERSION, boot_id: origin.boot_id.clone(), snapshot };
    if let Some(folder) = origin.file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // It holds the keys of BGP sessions. Renamed into place: a reader never sees half of it.
    let new = origin.file.with_extension("new");
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    // As it goes: the text of a large cluster has megabytes.
    let mut file = BufWriter::new(file);
    serde_json::to_writer(&mut file, &saved)?;
    file.flush()?;
    drop(file);
    std::fs::rename(new, &origin.file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::agent::cases::{local, node_route, snapshot, web};
    use crate::model::views::TrafficPolicy;

    fn origin(folder: &Path) -> Origin {
        Origin {
            file: folder.join("run/state.json"),
            boot_id: "boot-1".to_owned(),
            node: "n1".parse().expect("a name"),
        }
    }

    fn state() -> Snapshot {
        snapshot()
            .node(node_route("n2", &["10.90.0.12", "fd90::12"], &["10.244.1.0/24"]))
            .local([local("eth0", "10.90.0.11/24")])
            .service(web(TrafficPolicy::Local))
            .endpoints("n2", 1, 2)
            .endpoints_of("shop", "n2", 1, 0)
            .build()
    }

    #[test]
    fn the_state_comes_back_as_it_was_kept_for_its_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let origin = origin(folder.path());
        assert_eq!(load(&origin), None, "nothing is kept yet");
        write(&origin, state()).expect("it is written");
        let kept = load(&origin).expect("it was kept");
        assert_eq!(kept, Snapshot { local: Vec::new(), endpoints: kept.endpoints.clone(), ..state() });
        assert_eq!(kept.endpoints.len(), 1, "of the Service that is known");
        let mode = std::fs::metadata(&origin.file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_not_of_this_boot_and_node_or_is_damaged_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let origin = origin(folder.path());
        write(&origin, state()).expect("it is written");
        assert_eq!(load(&Origin { boot_id: "boot-2".to_owned(), ..origin.clone() }), None);
        assert_eq!(load(&Origin { node: "n9".parse().expect("a name"), ..origin.clone() }), None);
        let text = std::fs::read_to_string(&origin.file).expect("a file");
        for (name, damaged) in [
            ("cut", text[..text.len() / 2].to_owned()),
            ("empty", String::new()),
            ("of a later version", text.replacen("\"version\":1", "\"version\":2", 1)),
            ("something else", "[]".to_owned()),
        ] {
            std::fs::write(&origin.file, damaged).expect("it is written");
            assert_eq!(load(&origin), None, "{name}");
        }
    }
}
