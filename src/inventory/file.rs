//! Reads the inventory's files and watches them.
//!
//! One task, [`watch`], owned by whoever calls it. It looks at the files' metadata once a second,
//! which costs little, works on every file system and sees the symlink swap of a ConfigMap mount;
//! only when something changed are they read. It ends when nobody listens any more. Every await in it
//! may be cancelled: all it keeps is what it last saw.
#![expect(clippy::disallowed_methods, reason = "shell: reads files off the executor's threads")]

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Sender;
use tokio::time::{self, MissedTickBehavior};
use tracing::{info, warn};

use super::document::Sourced;
use super::{Extent, Inventory, InventoryState, faultless};
use crate::config::document::{self, Node};
use crate::config::object::{self, Head, Shaped};
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
    let files = source::expand(paths)?;
    if let Some(inventory) = faultless::load(&files) {
        return Ok(inventory);
    }
    let mut faults = Faults::NONE;
    let mut sources = Vec::new();
    for file in files {
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

/// Reads one document of an inventory; the faults of its shape come with it.
///
/// # Errors
/// Why it is none.
pub fn read(file: &Path, node: Node) -> Result<Sourced, Faults> {
    Head::expect(file, &node, Inventory::API_VERSION, Inventory::KIND)?;
    let Shaped { raw: document, faults, misshapen } = object::read(file, &node)?;
    Ok(Sourced { file: file.to_owned(), node, document, faults, misshapen })
}

/// Keeps `out` at what the files say, until nobody listens any more.
///
/// A reading with any fault leaves the inventory in force as it is; the faults travel in the state,
/// and each distinct set of them is logged once.
pub async fn watch(paths: Vec<PathBuf>, out: Sender<Arc<InventoryState>>) {
    let mut ticks = time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = Seen::default();
    loop {
        tokio::select! {
            () = out.closed() => return,
            _ = ticks.tick() => {}
        }
        if let Some((now, result)) = reading_told_when_late(&paths, seen.clone(), &out).await {
            seen = now;
            result.into_iter().for_each(|result| take(&out, result));
        }
    }
}

/// What a reading saw, and what the files say, if not what they said before.
type Reading = (Seen, Option<Result<Inventory, Faults>>);

/// A reading; while it hangs, the state says so. `None` also when nobody listens any more.
async fn reading_told_when_late(paths: &[PathBuf], seen: Seen, out: &Sender<Arc<InventoryState>>) -> Option<Reading> {
    // One at a time: a disk that hangs would otherwise take one thread after the other.
    let mut reading = Box::pin(reading(paths.to_vec(), seen));
    let mut is_late = false;
    loop {
        tokio::select! {
            () = out.closed() => return None,
            read = &mut reading => match read {
                // The state says that it hangs: what is in the files has to be said again.
                Some((_, None)) | None if std::mem::take(&mut is_late) => {
                    reading.set(self::reading(paths.to_vec(), Seen::default()));
                }
                read => return read,
            },
            () = time::sleep(PATIENCE) => {
                is_late = true;
                let message = format!("is not read after {} s: check the disk it is on", PATIENCE.as_secs());
                take(out, Err(paths.iter().map(|path| Fault::of_file(path, message.clone())).collect()));
            }
        }
    }
}

/// What the files say now, or `None` when they are as seen before.
async fn reading(paths: Vec<PathBuf>, seen: Seen) -> Option<Reading> {
    let read = move || {
        // Stamped before it is read, and its text before what it says: a change in between is then seen by
        // the next look.
        let now = seen.then(stamps(&paths));
        if seen.is_settled && now == seen {
            return None;
        }
        let now = Seen { text: Some(text_of(&paths)), ..now };
        let is_news = now.text != seen.text;
        Some((now, is_news.then(|| load(&paths))))
    };
    // A panic in there is a defect of ours; the files then count as not yet read.
    tokio::task::spawn_blocking(read).await.ok().flatten()
}

/// A number that is another when the files' names or texts are, or why they cannot be read.
fn text_of(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    match source::expand(paths) {
        Err(faults) => faults.to_string().hash(&mut hasher),
        Ok(files) => files.iter().for_each(|file| {
            file.hash(&mut hasher);
            match source::read(file) {
                Ok(text) => text.hash(&mut hasher),
                Err(fault) => fault.to_string().hash(&mut hasher),
            }
        }),
    }
    hasher.finish()
}

/// Publishes the outcome of a reading, and says once what is new in it.
fn take(out: &Sender<Arc<InventoryState>>, result: Result<Inventory, Faults>) {
    out.send_if_modified(|state| {
        let now = state.then(result);
        if now == **state {
            return false;
        }
        tell(&now);
        *state = Arc::new(now);
        true
    });
}

fn tell(state: &InventoryState) {
    let machines = state.inventory.as_ref().map_or(0, |inventory| inventory.machines().len());
    if let Some(removals) = &state.removals {
        warn!(machines, error = %removals, "inventory not taken, the last good one stays in force");
        return;
    }
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

/// What the files looked like when they were last read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Seen {
    stamps: Vec<Stamp>,
    /// Whether they were read twice with the same stamps. Once is not enough: a file that changes
    /// again within the grain of its file system's clock keeps its stamp.
    is_settled: bool,
    /// What was in them: read twice, they are taken apart once.
    text: Option<u64>,
}

impl Seen {
    fn then(&self, stamps: Vec<Stamp>) -> Self {
        Self { is_settled: self.stamps == stamps, stamps, text: self.text }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tokio::sync::watch::{Receiver, channel};

    fn text(ids: &[&str]) -> String {
        let machines: String = ids.iter().map(|id| format!("- {{id: {id}}}\n")).collect();
        format!("apiVersion: inventory.cairn.dev/v1\nkind: Inventory\nmachines:\n{machines}")
    }

    fn ids(state: &InventoryState) -> Option<Vec<String>> {
        Some(state.inventory.as_ref()?.machines().map(|machine| machine.id.to_string()).collect())
    }

    async fn next(states: &mut Receiver<Arc<InventoryState>>) -> Arc<InventoryState> {
        let changed = time::timeout(Duration::from_secs(60), states.changed()).await;
        changed.expect("a change is noticed").expect("the watch goes on");
        Arc::clone(&states.borrow_and_update())
    }

    #[test]
    fn every_file_is_read_and_every_fault_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.yaml"), text(&["a", "B"])).expect("a file");
        fs::write(path("b.yaml"), "apiVersion: v1\nkind: Service\n").expect("a file");
        let told = load(&[folder.path().to_owned(), path("none.yaml")]).expect_err("faults").to_string();
        let told = told.replace(&format!("{}/", folder.path().display()), "");
        assert_eq!(
            told,
            "a.yaml:5:8: machines[1].id: \"B\" is not a name: it takes 1 to 253 lower-case letters, digits, '-' and '.', \
             and starts and ends with a letter or digit\n\
             b.yaml:1:13: apiVersion: \"v1\" is not right in this file: it takes inventory.cairn.dev/v1\n\
             b.yaml:2:7: kind: \"Service\" is not right in this file: it takes Inventory\n\
             none.yaml: does not exist: check the path"
        );
        assert!(load(&[]).is_err());
    }

    #[tokio::test]
    async fn files_are_read_twice_and_taken_apart_when_their_text_is_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("inventory.yaml");
        let read = async |seen: &Seen| reading(vec![file.clone()], seen.clone()).await;
        fs::write(&file, text(&["a"])).expect("a file");
        let (first, said) = read(&Seen::default()).await.expect("it was never read");
        assert!(said.expect("it says something").is_ok());
        let (second, said) = read(&first).await.expect("once is not enough");
        assert!(said.is_none() && read(&second).await.is_none(), "it says the same");
        fs::write(&file, text(&["a", "b"])).expect("a file");
        let (third, said) = read(&second).await.expect("it has another length");
        assert_eq!(said.expect("it says something else").expect("an inventory").machines().len(), 2);
        fs::remove_file(&file).expect("the file was there");
        let (_, said) = read(&third).await.expect("it is gone");
        assert!(said.expect("that is something to say").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_or_missing_file_leaves_the_last_good_inventory_in_force() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("inventory.yaml");
        let (out, mut states) = channel(Arc::new(InventoryState::unread()));
        let watching = tokio::spawn(watch(vec![file.clone()], out));

        let state = next(&mut states).await;
        assert_eq!((ids(&state), state.faults.len()), (None, 1));
        fs::write(&file, text(&["a", "b"])).expect("a file");
        let state = next(&mut states).await;
        assert_eq!((ids(&state), state.faults.len()), (Some(vec!["a".into(), "b".into()]), 0));
        for broken in ["", "machines: [", &text(&["a", "a"])] {
            fs::write(&file, broken).expect("a file");
            let state = next(&mut states).await;
            assert_eq!((ids(&state).map(|ids| ids.len()), state.faults.is_empty()), (Some(2), false), "{broken}");
        }
        fs::remove_file(&file).expect("the file was there");
        let state = next(&mut states).await;
        assert_eq!(ids(&state).map(|ids| ids.len()), Some(2));
        assert!(state.faults.to_string().ends_with("does not exist: check the path"));
        fs::write(&file, text(&["a"])).expect("a file");
        let state = next(&mut states).await;
        assert_eq!((ids(&state), state.faults.len()), (Some(vec!["a".into()]), 0));

        drop(states);
        watching.await.expect("the watch ends when nobody listens");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reload_that_loses_many_machines_waits_for_its_acknowledgement() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("inventory.yaml");
        fs::write(&file, text(&["a", "b", "c"])).expect("a file");
        let (out, mut states) = channel(Arc::new(InventoryState::unread()));
        let watching = tokio::spawn(watch(vec![file.clone()], out));

        assert_eq!(ids(&*next(&mut states).await).map(|ids| ids.len()), Some(3));
        fs::write(&file, text(&["c"])).expect("a file");
        let state = next(&mut states).await;
        let held = state.removals.as_ref().map(|removals| removals.machines.len());
        assert_eq!((ids(&state).map(|ids| ids.len()), state.faults.len(), held), (Some(3), 0, Some(2)));
        fs::write(&file, format!("{}acknowledgedRemovals: [a]\n", text(&["c"]))).expect("a file");
        let state = next(&mut states).await;
        assert_eq!((ids(&state), &state.removals), (Some(vec!["c".into()]), &None));

        drop(states);
        watching.await.expect("the watch ends when nobody listens");
    }

    #[tokio::test(start_paused = true)]
    async fn the_swap_of_a_mounted_config_map_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for (version, id) in [("..1", "a"), ("..2", "b")] {
            fs::create_dir(path(version)).expect("a folder");
            fs::write(path(version).join("inventory.yaml"), text(&[id])).expect("a file");
        }
        symlink("..1", path("..data")).expect("a link");
        symlink("..data/inventory.yaml", path("inventory.yaml")).expect("a link");
        let (out, mut states) = channel(Arc::new(InventoryState::unread()));
        let watching = tokio::spawn(watch(vec![folder.path().to_owned()], out));

        assert_eq!(ids(&*next(&mut states).await), Some(vec!["a".into()]));
        symlink("..2", path("..data_tmp")).expect("a link");
        fs::rename(path("..data_tmp"), path("..data")).expect("the link was there");
        assert_eq!(ids(&*next(&mut states).await), Some(vec!["b".into()]));

        drop(states);
        watching.await.expect("the watch ends when nobody listens");
    }
}
