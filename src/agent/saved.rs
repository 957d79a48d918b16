#![expect(clippy::disallowed_methods, reason = "shell: keeps the last state in a file")]
//! The last state, kept in memory of the host while the agent is away.
//!
//! The file's first line is a whole state, each further one what changed since the line before; when these
//! have become as long as the first, it is written anew. So a change costs what it is, however large the cluster.
//!
//! An agent that starts while the API server is away goes on from there: it withdraws nothing, and
//! repairs what happens meanwhile. What is kept holds for one boot only: after another, sessions and
//! routes have to begin with what the cluster says.

mod change;

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tracing::{info, warn};

use self::change::{Change, Useful};
use crate::agent::snapshot::Snapshot;
use crate::model::{Moment, NodeName};

/// What this version writes; another is not read.
const VERSION: u32 = 1;
/// After a change it is written no sooner than this after the last time.
const PAUSE: Duration = Duration::from_millis(500);
/// The first time it waits for what comes with the first lists.
const FIRST: Duration = Duration::from_secs(1);

/// The file's first line.
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
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let mut saved: Saved<Snapshot> = match serde_json::from_slice(lines.next().unwrap_or_default()) {
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
    for line in lines {
        match serde_json::from_slice::<Change>(line) {
            Ok(change) => change.make(&mut saved.snapshot),
            // What stands before it was so.
            Err(error) => {
                warn!(%file, %error, "the end of the kept state is damaged: going on from what it was before");
                break;
            }
        }
    }
    is_of_now.then_some(saved.snapshot)
}

/// Writes each state it is handed, until the sender is dropped.
pub async fn run(origin: Origin, mut states: mpsc::Receiver<Snapshot>) {
    let mut is_failing = false;
    let mut keeper = Keeper::new(origin.clone());
    while let Some(state) = states.recv().await {
        // Megabytes in a large cluster, now and then: not on a thread that others wait for.
        let written = tokio::task::spawn_blocking(move || {
            let written = keeper.write(state);
            (keeper, written)
        });
        let (next, written) =
            written.await.unwrap_or_else(|panic| (Keeper::new(origin.clone()), Err(std::io::Error::other(panic))));
        keeper = next;
        match written {
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
        self.due = now + PAUSE;
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

/// Writes states into the file.
#[derive(Debug)]
struct Keeper {
    origin: Origin,
    useful: Useful,
    kept: Option<Kept>,
}

/// The file as it was written.
#[derive(Debug)]
struct Kept {
    file: File,
    state: Snapshot,
    /// Bytes of the first line.
    whole: usize,
    /// Bytes of those behind it.
    changes: usize,
}

impl Keeper {
    fn new(origin: Origin) -> Self {
        Self { origin, useful: Useful::default(), kept: None }
    }

    fn write(&mut self, state: Snapshot) -> std::io::Result<()> {
        let state = self.useful.of(state);
        // Without its success nothing is known of the file.
        let kept = match self.kept.take() {
            Some(mut kept) if kept.is_there()? && kept.changes <= kept.whole => {
                kept.append(state)?;
                kept
            }
            _ => write_anew(&self.origin, state)?,
        };
        self.kept = Some(kept);
        Ok(())
    }
}

impl Kept {
    /// Somebody may have taken the file away.
    fn is_there(&self) -> std::io::Result<bool> {
        Ok(self.file.metadata()?.nlink() > 0)
    }

    fn append(&mut self, state: Snapshot) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(&Change::between(&self.state, &state))?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.changes += line.len();
        self.state = state;
        Ok(())
    }
}

fn write_anew(origin: &Origin, state: Snapshot) -> std::io::Result<Kept> {
    if let Some(folder) = origin.file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // It holds the keys of BGP sessions. Renamed into place: a reader never sees half of it.
    let new = origin.file.with_extension("new");
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    // As it goes: the text of a large cluster has megabytes.
    let mut out = BufWriter::new(file);
    let saved = Saved { version: VERSION, boot_id: origin.boot_id.clone(), snapshot: &state };
    serde_json::to_writer(&mut out, &saved)?;
    out.write_all(b"\n")?;
    let mut file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    std::fs::rename(new, &origin.file)?;
    let whole = usize::try_from(file.stream_position()?).unwrap_or(usize::MAX);
    Ok(Kept { file, state, whole, changes: 0 })
}

#[cfg(test)]
mod tests;
