//! Each document by itself: the very checks of the controller and the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::Verdict;
use super::kind::{Kind, Recognised, recognise};
use crate::api::{AddressPoolSpec, AdvertisementSpec, BgpPeerSpec};
use crate::cli::controller::flags::MAIN_LEASE;
use crate::config::document::{self, Node, Value};
use crate::config::object::{self, Head};
use crate::config::{self, CloudConfig, Fault, Faults, FieldPath, Peer, Pool, remark, schema, source};
use crate::inventory::document::Sourced;
use crate::inventory::{self, Inventory};
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
    /// Files that are read as inventory, by the place they are really at.
    pub(super) inventory_files: BTreeSet<PathBuf>,
    /// What the controller says to documents that are no inventory, if it reads their file as one.
    pub(super) no_inventories: Vec<(PathBuf, Faults)>,
    /// Titles of the API's objects, and the first file and line of each.
    titles: BTreeMap<String, String>,
}

impl Check {
    /// Checks a file, once.
    pub(super) fn file(&mut self, path: &Path) {
        if !self.seen.insert(real(path)) {
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
        self.refuse_several(path, &parsed.documents);
        for document in parsed.documents {
            if let Some(what) = self.document(path, document) {
                self.files[at].1.push(what);
            }
        }
    }

    /// Refuses a second document where the controller reads one.
    fn refuse_several(&mut self, file: &Path, documents: &[Node]) {
        let [_, second, ..] = documents else { return };
        let takes = [
            (Kind::CloudConfig, "a cloud config takes one"),
            (Kind::LeaderMigration, "it takes one LeaderMigrationConfiguration"),
        ];
        for (kind, takes) in takes {
            if documents.iter().any(|document| document.text("kind") == Some(kind.name())) {
                let fault = Fault::of_file(file, format!("has several documents: {takes}"));
                self.faults.push(fault.at(second.position));
            }
        }
    }

    /// Checks one document; what it is, unless it has faults.
    fn document(&mut self, file: &Path, document: Node) -> Option<String> {
        let head = self.faults.take(Head::read(file, &document))?;
        let recognised = self.faults.take(recognise(file, &document, &head).map_err(Faults::from))?;
        if let Err(faults) = Head::expect(file, &document, Inventory::API_VERSION, Inventory::KIND) {
            self.no_inventories.push((real(file), faults));
        }
        self.recognised(file, document, &head, recognised)
    }

    fn recognised(&mut self, file: &Path, document: Node, head: &Head, recognised: Recognised) -> Option<String> {
        match recognised {
            Recognised::List(of) => self.list(file, &document, of),
            Recognised::Kubernetes => Some(format!("{} not checked, it is Kubernetes' own", head.title())),
            Recognised::Ours(Kind::CloudConfig) => self.cloud_config(file, &document),
            Recognised::Ours(Kind::Inventory) => self.inventory(file, document),
            Recognised::Ours(Kind::LeaderMigration) => self.leader_migration(file, &document),
            Recognised::Ours(Kind::AddressPool) => self.address_pool(file, document, head),
            Recognised::Ours(Kind::Advertisement) => self.advertisement(file, document, head),
            Recognised::Ours(Kind::BgpPeer) => self.bgp_peer(file, document, head),
        }
    }

    /// Checks each item of a List as the document that it could be.
    fn list(&mut self, file: &Path, document: &Node, of: Option<Kind>) -> Option<String> {
        self.refuse_unknown(file, document, &["apiVersion", "kind", "metadata", "items"]);
        let field = FieldPath::of("items");
        let Some(Value::List(items)) = document.get("items").map(|items| &items.value) else {
            let fault = Fault::new(field.clone(), "is no list: it takes the objects of the List").in_file(file);
            self.faults.push(fault.at(document.position_of(&field)));
            return None;
        };
        let items: Vec<_> = items.iter().map(|item| self.item(file, item, of)).collect();
        let items: Option<Vec<_>> = items.into_iter().collect();
        items.map(|items| format!("List of {}", if items.is_empty() { "nothing".to_owned() } else { items.join(", ") }))
    }

    /// Refuses other fields than these.
    fn refuse_unknown(&mut self, file: &Path, document: &Node, known: &[&str]) {
        let Value::Mapping(entries) = &document.value else { return };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let (message, _) = schema::unknown_field(&entry.key, known.to_vec());
            self.faults.push(Fault::new(FieldPath::of(&entry.key), message).in_file(file).at(entry.key_position));
        }
    }

    /// An item of a list of one kind need not say which, as the API server has it.
    fn item(&mut self, file: &Path, item: &Node, of: Option<Kind>) -> Option<String> {
        let says_nothing = item.get("kind").is_none() && item.get("apiVersion").is_none();
        let head = match of.filter(|_| says_nothing && matches!(item.value, Value::Mapping(_))) {
            Some(kind) => Head::of_item(item, kind.api_version(), kind.name()),
            None => self.faults.take(Head::read(file, item))?,
        };
        match self.faults.take(recognise(file, item, &head).map_err(Faults::from))? {
            Recognised::Ours(kind) if !kind.is_object() => {
                let field = FieldPath::of("kind");
                let message = format!("{} is read from a file, not from a List: it takes one of its own", kind.name());
                let fault = Fault::new(field.clone(), message).in_file(file);
                self.faults.push(fault.at(item.position_of(&field)));
                None
            }
            recognised => self.recognised(file, item.clone(), &head, recognised),
        }
    }

    fn cloud_config(&mut self, file: &Path, document: &Node) -> Option<String> {
        let config = self.faults.take(CloudConfig::check(file, document))?;
        let field = FieldPath::of("inventory").field("files");
        for (index, path) in config.inventory_files.iter().enumerate() {
            let field = field.entry(index);
            // One that cannot be looked at is there: what is wrong with it is told when it is read.
            if path.try_exists().unwrap_or(true) {
                let files = self.faults.take(source::expand(std::slice::from_ref(path)));
                for file in files.into_iter().flatten() {
                    self.inventory_files.insert(real(&file));
                    self.file(&file);
                }
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
        if migration.lease == MAIN_LEASE {
            let field = FieldPath::of("leaderName");
            let message = format!(
                "{MAIN_LEASE:?} is the name of the main Lease too, which the controller refuses: it takes another, \
                 unless --leader-elect-resource-name names the main one otherwise"
            );
            let position = document.position_of(&field);
            self.warnings.push(Fault::new(field, message).in_file(file).at(position));
        }
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
        let spec = object::read_spec::<AdvertisementSpec>(file, &document);
        if let Ok(spec) = &spec {
            self.remark(remark::of_advertisement(&spec.raw), file, &document, head);
        }
        let checked = spec.and_then(|spec| {
            spec.check(|spec| {
                config::Advertisement::check(name, &spec).map_err(|faults| placed(faults, file, &document))
            })
        });
        self.faults.take(checked).map(|_| head.title())
    }

    fn bgp_peer(&mut self, file: &Path, document: Node, head: &Head) -> Option<String> {
        self.refuse_twice(file, &document, head);
        let name = head.name.as_deref().unwrap_or_default();
        let spec = object::read_spec::<BgpPeerSpec>(file, &document);
        if let Ok(spec) = &spec {
            self.remark(remark::of_peer(&spec.raw), file, &document, head);
        }
        let peer = spec.and_then(|spec| {
            spec.check(|spec| Peer::check(name, &spec).map_err(|faults| placed(faults, file, &document)))
        });
        let peer = self.faults.take(peer)?;
        self.peers.push((file.to_owned(), document, peer));
        Some(head.title())
    }

    fn remark(&mut self, remarks: Faults, file: &Path, document: &Node, head: &Head) {
        let of_object = remarks.map(|remark| remark.of_object(head.title()));
        self.warnings.extend(placed(of_object, file, document));
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

/// The place where a file really is, whatever it is called.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Faults of an object's checked form, at their places in the file.
fn placed(faults: Faults, file: &Path, document: &Node) -> Faults {
    faults.map(|fault| {
        let position = document.position_of(&fault.field);
        fault.in_file(file).at(position)
    })
}
