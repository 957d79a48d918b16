//! Each document by itself: the very checks of the controller and the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::Verdict;
use super::kind::{Kind, Recognised, recognise};
use crate::api::{AddressPoolSpec, AdvertisementSpec, BgpPeerSpec};
use crate::config::document::{self, Node};
use crate::config::object::{self, Head};
use crate::config::{self, CloudConfig, Fault, Faults, FieldPath, Peer, Pool, source};
use crate::inventory;
use crate::inventory::document::Sourced;
use crate::leader::Migration;

/// The name of the standard input on the command line.
const STANDARD_INPUT: &str = "-";

/// All that was found so far.
#[derive(Default)]
pub(super) struct Check {
    pub(super) faults: Faults,
    /// What is not wrong, and most likely not meant.
    warnings: Faults,
    /// What each file holds, in the order the files were given.
    files: Vec<(PathBuf, Vec<String>)>,
    /// Files by the place they are really at, so that none is checked twice.
    seen: BTreeSet<PathBuf>,
    pub(super) inventories: Vec<Sourced>,
    pub(super) pools: Vec<(PathBuf, Node, Pool)>,
    pub(super) peers: Vec<(PathBuf, Node, Peer)>,
    /// Titles of the API's objects, and the first file and line of each.
    titles: BTreeMap<String, String>,
}

impl Check {
    /// Checks a file, once.
    pub(super) fn file(&mut self, path: &Path) {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if !self.seen.insert(real) {
            return;
        }
        let text = if path == Path::new(STANDARD_INPUT) {
            source::read_from(path, io::stdin().lock())
        } else {
            source::read(path)
        };
        let at = self.files.len();
        self.files.push((path.to_owned(), Vec::new()));
        let Some(text) = self.faults.take(text.map_err(Faults::from)) else { return };
        let parsed = document::parse(path, &text);
        self.faults.extend(parsed.faults);
        for document in parsed.documents {
            if let Some(what) = self.document(path, document) {
                self.files[at].1.push(what);
            }
        }
    }

    /// Checks one document; what it is, unless it has faults.
    fn document(&mut self, file: &Path, document: Node) -> Option<String> {
        let head = self.faults.take(Head::read(file, &document))?;
        match self.faults.take(recognise(file, &document, &head).map_err(Faults::from))? {
            Recognised::Kubernetes => Some(format!("{} not checked, it is Kubernetes' own", head.title())),
            Recognised::Ours(Kind::CloudConfig) => self.cloud_config(file, &document),
            Recognised::Ours(Kind::Inventory) => self.inventory(file, document),
            Recognised::Ours(Kind::LeaderMigration) => self.leader_migration(file, &document),
            Recognised::Ours(Kind::AddressPool) => self.address_pool(file, document, &head),
            Recognised::Ours(Kind::Advertisement) => self.advertisement(file, document, &head),
            Recognised::Ours(Kind::BgpPeer) => self.bgp_peer(file, document, &head),
        }
    }

    fn cloud_config(&mut self, file: &Path, document: &Node) -> Option<String> {
        let config = self.faults.take(CloudConfig::check(file, document))?;
        let field = FieldPath::of("inventory").field("files");
        for (index, path) in config.inventory_files.iter().enumerate() {
            let field = field.entry(index);
            if path.exists() {
                let files = self.faults.take(source::expand(std::slice::from_ref(path)));
                files.into_iter().flatten().for_each(|file| self.file(&file));
            } else {
                let position = document.position_of(&field);
                let message = format!("{} does not exist: it takes a path from this file's folder", path.display());
                self.faults.push(Fault::new(field, message).in_file(file).at(position));
            }
        }
        Some("cloud config".to_owned())
    }

    fn inventory(&mut self, file: &Path, document: Node) -> Option<String> {
        let sourced = self.faults.take(inventory::file::read(file, document))?;
        let machines = sourced.document.machines.len();
        self.inventories.push(sourced);
        Some(format!("{machines} machine{}", if machines == 1 { "" } else { "s" }))
    }

    /// What it says, and below it what of that has no effect.
    fn leader_migration(&mut self, file: &Path, document: &Node) -> Option<String> {
        let migration = self.faults.take(Migration::check(file, document))?;
        self.warnings.extend(migration.warnings);
        Some(format!("leader migration under Lease {}", migration.lease))
    }

    fn address_pool(&mut self, file: &Path, document: Node, head: &Head) -> Option<String> {
        self.refuse_twice(file, &document, head);
        let name = head.name.as_deref().unwrap_or_default();
        let pool = object::read_spec::<AddressPoolSpec>(file, &document).and_then(|spec| {
            spec.check(|spec| Pool::check(name, &spec).map_err(|faults| placed(faults, file, &document)))
        });
        let pool = self.faults.take(pool)?;
        self.pools.push((file.to_owned(), document, pool));
        Some(head.title())
    }

    fn advertisement(&mut self, file: &Path, document: Node, head: &Head) -> Option<String> {
        self.refuse_twice(file, &document, head);
        let name = head.name.as_deref().unwrap_or_default();
        let checked = object::read_spec::<AdvertisementSpec>(file, &document).and_then(|spec| {
            spec.check(|spec| {
                config::Advertisement::check(name, &spec).map_err(|faults| placed(faults, file, &document))
            })
        });
        self.faults.take(checked).map(|_| head.title())
    }

    fn bgp_peer(&mut self, file: &Path, document: Node, head: &Head) -> Option<String> {
        self.refuse_twice(file, &document, head);
        let name = head.name.as_deref().unwrap_or_default();
        let peer = object::read_spec::<BgpPeerSpec>(file, &document).and_then(|spec| {
            spec.check(|spec| Peer::check(name, &spec).map_err(|faults| placed(faults, file, &document)))
        });
        let peer = self.faults.take(peer)?;
        self.peers.push((file.to_owned(), document, peer));
        Some(head.title())
    }

    fn refuse_twice(&mut self, file: &Path, document: &Node, head: &Head) {
        let field = FieldPath::of("metadata").field("name");
        let fault = Fault::new(field.clone(), "").in_file(file).at(document.position_of(&field));
        let here = fault.place();
        if let Some(first) = self.titles.get(&head.title()) {
            let message = format!("{} is already at {first}: each takes a name of its own", head.title());
            self.faults.push(Fault { message, ..fault });
        } else {
            self.titles.insert(head.title(), here);
        }
    }

    /// Tells all of it, file by file.
    pub(super) fn told(mut self) -> (Verdict, String) {
        self.faults.sort();
        let mut text = String::new();
        for (file, contents) in &self.files {
            let mut faults = self.faults.iter().filter(|fault| fault.file.as_ref() == Some(file)).peekable();
            if faults.peek().is_none() {
                writeln!(text, "{}: ok ({})", file.display(), contents.join(", ")).expect("a String takes all text");
            }
            let warnings = self.warnings.iter().filter(|warning| warning.file.as_ref() == Some(file));
            warnings.for_each(|warning| writeln!(text, "{warning}").expect("a String takes all text"));
            faults.for_each(|fault| writeln!(text, "{fault}").expect("a String takes all text"));
        }
        // Folders have no line of their own unless something is wrong with them.
        let is_of_file = |fault: &&Fault| self.files.iter().any(|(file, _)| fault.file.as_ref() == Some(file));
        for fault in self.faults.iter().filter(|fault| !is_of_file(fault)) {
            writeln!(text, "{fault}").expect("a String takes all text");
        }
        (if self.faults.is_empty() { Verdict::Right } else { Verdict::Faulty }, text)
    }
}

/// Faults of an object's checked form, at their places in the file.
fn placed(faults: Faults, file: &Path, document: &Node) -> Faults {
    faults.map(|fault| {
        let position = document.position_of(&fault.field);
        fault.in_file(file).at(position)
    })
}
