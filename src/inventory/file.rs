//! Reads the inventory's files and watches them.
//!
//! One task, [`watch`], owned by whoever calls it. It looks at the files' metadata once a second,
//! which costs little, works on every file system and sees the symlink swap of a ConfigMap mount;
//! only when something changed are they read. It ends when nobody listens any more. Every await in it
//! may be cancelled: all it keeps is what it last saw.
#![expect(clippy::disallowed_methods, reason = "shell: reads files off the executor's threads")]

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Sender;
use tokio::time::{self, MissedTickBehavior};
use tracing::{info, warn};

use super::document::Sourced;
use super::{Extent, Inventory, InventoryState};
use crate::config::document::{self, Node};
use crate::config::object::{self, Head};
use crate::config::{Fault, Faults, FieldPath, source};

/// How often the files are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a reading may take; a network file system can hang for ever.
const PATIENCE: Duration = Duration::from_secs(10);
/// Faults logged of one reading; the state carries them all.
const MOST_LOGGED: usize = 20;

/// Reads the inventory from files and directories.
///
/// # Errors
/// Every fault of every file.
pub fn load(paths: &[PathBuf]) -> Result<Inventory, Faults> {
    if paths.is_empty() {
        return Err(Fault::new(FieldPath::ROOT, "no inventory file is named: it takes at least one").into());
    }
    let mut faults = Faults::NONE;
    let mut sources = Vec::new();
    for file in source::expand(paths)? {
        match source::read(&file) {
            Err(fault) => faults.push(fault),
            Ok(text) => {
                let parsed = document::parse(&file, &text);
                faults.extend(parsed.faults);
                sources.extend(parsed.documents.into_iter().filter_map(|node| faults.take(read(&file, node))));
            }
        }
    }
    let extent = if faults.is_empty() { Extent::Whole } else { Extent::Part };
    match faults.take(Inventory::merge(&sources, extent)) {
        Some(inventory) => faults.or(inventory),
        None => {
            faults.sort();
            Err(faults)
        }
    }
}

/// Reads one document of an inventory.
///
/// # Errors
/// Every way in which it is not one.
pub fn read(file: &Path, node: Node) -> Result<Sourced, Faults> {
    Head::expect(file, &node, Inventory::API_VERSION, Inventory::KIND)?;
    let document = object::read(file, &node)?;
    Ok(Sourced { file: file.to_owned(), node, document })
}

/// Keeps `out` at what the files say, until nobody listens any more.
///
/// A reading with any fault leaves the inventory in force as it is; the faults travel in the state,
/// and each distinct set of them is logged once.
pub async fn watch(paths: Vec<PathBuf>, out: Sender<Arc<InventoryState>>) {
    let mut ticks = time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = None;
    loop {
        tokio::select! {
            () = out.closed() => return,
            _ = ticks.tick() => {}
        }
        if let Some((stamps, result)) = reading_told_when_late(&paths, seen.clone(), &out).await {
            seen = Some(stamps);
            take(&out, result);
        }
    }
}

/// A reading; while it hangs, the state says so. `None` also when nobody listens any more.
async fn reading_told_when_late(
    paths: &[PathBuf],
    seen: Option<Vec<Stamp>>,
    out: &Sender<Arc<InventoryState>>,
) -> Option<(Vec<Stamp>, Result<Inventory, Faults>)> {
    // One at a time: a disk that hangs would otherwise take one thread after the other.
    let mut reading = pin!(reading(paths.to_vec(), seen));
    loop {
        tokio::select! {
            () = out.closed() => return None,
            read = &mut reading => return read,
            () = time::sleep(PATIENCE) => {
                let message = format!("is not read after {} s: check the disk it is on", PATIENCE.as_secs());
                take(out, Err(paths.iter().map(|path| Fault::of_file(path, message.clone())).collect()));
            }
        }
    }
}

/// What the files say now and their stamps, or `None` when they are as seen before.
async fn reading(paths: Vec<PathBuf>, seen: Option<Vec<Stamp>>) -> Option<(Vec<Stamp>, Result<Inventory, Faults>)> {
    let read = move || {
        // Stamped before it is read: a change in between is then seen by the next look.
        let stamps = stamps(&paths);
        (seen.as_ref() != Some(&stamps)).then(|| (stamps, load(&paths)))
    };
    // A panic in there is a defect of ours; the files then count as not yet read.
    tokio::task::spawn_blocking(read).await.ok().flatten()
}

/// Publishes the outcome of a reading, and says once what is new in it.
fn take(out: &Sender<Arc<InventoryState>>, result: Result<Inventory, Faults>) {
    out.send_if_modified(|state| {
        let before = Arc::clone(state);
        let now = match result {
            Ok(inventory) => InventoryState { inventory: Some(Arc::new(inventory)), faults: Faults::NONE },
            Err(faults) => InventoryState { inventory: before.inventory.clone(), faults },
        };
        if now == *before {
            return false;
        }
        tell(&now);
        *state = Arc::new(now);
        true
    });
}

fn tell(state: &InventoryState) {
    let machines = state.inventory.as_ref().map_or(0, |inventory| inventory.machines().len());
    if state.faults.is_empty() {
        info!(machines, "inventory read");
        return;
    }
    for fault in state.faults.iter().take(MOST_LOGGED) {
        warn!(error = %fault, "inventory is wrong");
    }
    match state.inventory {
        Some(_) => {
            warn!(machines, faults = state.faults.len(), "inventory not taken, the last good one stays in force")
        }
        None => warn!(faults = state.faults.len(), "inventory not taken, no node is touched until one is right"),
    }
}

/// What changes when a file does: which file it is, its length and its times.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// `None` where there is none to see, which is a change as well.
    identity: Option<[i64; 7]>,
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let files = source::expand(paths).unwrap_or_else(|_| paths.to_vec());
    let identity = |path: &Path| -> io::Result<[i64; 7]> {
        let of = fs::metadata(path)?;
        let (device, inode, length) = (of.dev().cast_signed(), of.ino().cast_signed(), of.len().cast_signed());
        Ok([device, inode, length, of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()])
    };
    files.into_iter().map(|path| Stamp { identity: identity(&path).ok(), path }).collect()
}
