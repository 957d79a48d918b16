//! `cairn validate FILE…`: everything that is wrong with files, before Cairn meets them.
//!
//! It runs the very checks of the controller and the agent, each file by itself and all together:
//! names and addresses that two files give out, locations in another file. Files that a cloud config
//! names are checked as well. It asks no API server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use kube::Resource;

use crate::api::{AddressPool, AddressPoolSpec, Advertisement, AdvertisementSpec, BgpPeer, BgpPeerSpec};
use crate::config::document::{self, Node};
use crate::config::nearest::nearest;
use crate::config::object::{self, Head};
use crate::config::{self, CloudConfig, Fault, Faults, FieldPath, Peer, Pool, schema, source};
use crate::inventory::document::Sourced;
use crate::inventory::{self, Extent, Inventory, Machine, MachineState};
use crate::leader::{Migration, migration};

/// The name of the standard input on the command line.
const STANDARD_INPUT: &str = "-";

/// Check files before Cairn meets them: cloud config, inventory, leader migration, AddressPool, Advertisement,
/// BgpPeer.
///
/// Prints for each file what it holds, or each fault with its line and field. Exits with 0 when all
/// is right and with 1 when not.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files, folders of *.yaml and *.yml, or - for the standard input.
    #[arg(required_unless_present = "schema", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the JSON schema of a format, for editors and other tools, and check nothing.
    #[arg(long, value_name = "FORMAT", conflicts_with = "files")]
    schema: Option<Format>,
}

/// A format whose schema can be printed. Kubernetes has those of its objects: `kubectl explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Which machines there are.
    Inventory,
    /// Where the inventory is.
    CloudConfig,
}

impl Format {
    fn json_schema(self) -> serde_json::Value {
        match self {
            Self::Inventory => Inventory::json_schema(),
            Self::CloudConfig => CloudConfig::json_schema(),
        }
    }
}

impl Args {
    /// Validates and prints.
    ///
    /// # Errors
    /// Only when the standard output cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut out = io::stdout().lock();
        match self.schema {
            Some(format) => writeln!(out, "{:#}", format.json_schema()).map(|()| ExitCode::SUCCESS),
            None => validate(&self.files, &mut out).map(ExitCode::from),
        }
        .map_err(Into::into)
    }
}

/// Whether everything was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No fault: exit code 0.
    Right,
    /// At least one: exit code 1.
    Faulty,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Right => Self::SUCCESS,
            Verdict::Faulty => Self::FAILURE,
        }
    }
}

/// Checks files, directories of files, and the standard input (`-`), and writes for each file what
/// it holds, or each of its faults.
///
/// # Errors
/// Only when `out` cannot be written.
pub fn validate(paths: &[PathBuf], out: &mut impl Write) -> io::Result<Verdict> {
    let mut check = Check::default();
    for path in paths {
        // One at a time, so that one bad folder does not hide the other files.
        let files = check.faults.take(source::expand(std::slice::from_ref(path)));
        files.into_iter().flatten().for_each(|file| check.file(&file));
    }
    check.all_together();
    check.write(out)
}

/// The kinds that can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    CloudConfig,
    Inventory,
    LeaderMigration,
    AddressPool,
    Advertisement,
    BgpPeer,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::CloudConfig,
        Self::Inventory,
        Self::LeaderMigration,
        Self::AddressPool,
        Self::Advertisement,
        Self::BgpPeer,
    ];

    fn api_version(self) -> String {
        match self {
            Self::CloudConfig => CloudConfig::API_VERSION.to_owned(),
            Self::Inventory => Inventory::API_VERSION.to_owned(),
            Self::LeaderMigration => migration::API_VERSION.to_owned(),
            Self::AddressPool => AddressPool::api_version(&()).into_owned(),
            Self::Advertisement => Advertisement::api_version(&()).into_owned(),
            Self::BgpPeer => BgpPeer::api_version(&()).into_owned(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::CloudConfig => CloudConfig::KIND,
            Self::Inventory => Inventory::KIND,
            Self::LeaderMigration => migration::KIND,
            Self::AddressPool => "AddressPool",
            Self::Advertisement => "Advertisement",
            Self::BgpPeer => "BgpPeer",
        }
    }

    /// Versions that are read as well.
    fn older_versions(self) -> &'static [&'static str] {
        match self {
            Self::LeaderMigration => &migration::OLDER_VERSIONS,
            Self::CloudConfig | Self::Inventory | Self::AddressPool | Self::Advertisement | Self::BgpPeer => &[],
        }
    }
}

/// What a document turns out to be.
enum Recognised {
    Ours(Kind),
    /// An object of Kubernetes itself, for the API server to check.
    Kubernetes,
}

fn recognise(file: &Path, document: &Node, head: &Head) -> Result<Recognised, Fault> {
    let group = head.api_version.split_once('/').map_or("", |(group, _)| group);
    let fault = |field: &str, message: String| {
        let field = FieldPath::of(field);
        let position = document.position_of(&field);
        Err(Fault::new(field, message).in_file(file).at(position))
    };
    let Head { api_version, kind, .. } = head;
    if let Some(ours) = Kind::ALL.into_iter().find(|ours| ours.name() == kind) {
        return match ours.api_version() {
            right if right == *api_version => Ok(Recognised::Ours(ours)),
            _ if ours.older_versions().contains(&api_version.as_str()) => Ok(Recognised::Ours(ours)),
            right => fault("apiVersion", format!("{api_version:?} is not that of {kind} here: it takes {right}")),
        };
    }
    if let Some(near) = nearest(kind, Kind::ALL.map(Kind::name)) {
        return fault("kind", format!("{kind:?} is not a kind: did you mean {near}?"));
    }
    if !group.contains('.') || group.ends_with(".k8s.io") {
        return Ok(Recognised::Kubernetes);
    }
    let known: Vec<_> = Kind::ALL.map(|kind| format!("{} of {}", kind.name(), kind.api_version())).to_vec();
    let takes = schema::one_of(known.iter().map(String::as_str));
    fault("kind", format!("{kind} of {api_version} is none that can be checked: it takes {takes}"))
}

/// All that was found so far.
#[derive(Default)]
struct Check {
    faults: Faults,
    /// What is not wrong, and most likely not meant.
    warnings: Faults,
    /// What each file holds, in the order the files were given.
    files: Vec<(PathBuf, Vec<String>)>,
    /// Files by the place they are really at, so that none is checked twice.
    seen: BTreeSet<PathBuf>,
    inventories: Vec<Sourced>,
    pools: Vec<(PathBuf, Node, Pool)>,
    peers: Vec<(PathBuf, Node, Peer)>,
    /// Titles of the API's objects, and the first file and line of each.
    titles: BTreeMap<String, String>,
}

impl Check {
    fn file(&mut self, path: &Path) {
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

    /// What only shows when the documents are seen side by side.
    fn all_together(&mut self) {
        let extent = if self.faults.is_empty() { Extent::Whole } else { Extent::Part };
        let inventory = self.faults.take(Inventory::merge(&self.inventories, extent));
        self.machines_in_pools(inventory.as_ref());
        self.routers_with_two_sessions();
        let field = FieldPath::of("spec").field("addresses");
        for (index, (file, document, pool)) in self.pools.iter().enumerate() {
            for (other_file, _, other) in &self.pools[..index] {
                if let Some((mine, theirs)) = pool.overlap(other) {
                    let message = format!(
                        "{mine} shares addresses with {theirs} of AddressPool {} in {}: each address takes one pool",
                        other.name,
                        other_file.display()
                    );
                    let fault = Fault::new(field.clone(), message).of_object(format!("AddressPool {}", pool.name));
                    self.faults.push(fault.in_file(file).at(document.position_of(&field)));
                }
            }
        }
    }

    /// Addresses of machines and routers in pools: a Service that got one would cut that host off.
    fn machines_in_pools(&mut self, inventory: Option<&Inventory>) {
        let living = |machine: &&Arc<Machine>| machine.state != MachineState::Decommissioned;
        let machines = inventory.into_iter().flat_map(Inventory::machines).filter(living).flat_map(|machine| {
            machine.ips().map(move |address| (address, format!("an address of machine {}", machine.id)))
        });
        let routers =
            self.peers.iter().map(|(_, _, peer)| (peer.address, format!("the address of BgpPeer {}", peer.name)));
        let hosts: BTreeMap<_, _> = routers.chain(machines).collect();
        for (file, document, pool) in &self.pools {
            for (index, block) in pool.written.iter().enumerate() {
                let is_given = |address: &IpAddr| block.contains(*address) && pool.contains(*address);
                let mut within = hosts.iter().filter(|(address, _)| is_given(address));
                let Some((address, what)) = within.next() else { continue };
                let more = match within.count() {
                    0 => String::new(),
                    more => format!(", and {more} more such"),
                };
                let message = format!(
                    "{block} holds {address}, {what}{more}: it takes addresses that no host has, or put it into spec.exclude"
                );
                let field = FieldPath::of("spec").field("addresses").entry(index);
                let fault = Fault::new(field.clone(), message).of_object(format!("AddressPool {}", pool.name));
                self.faults.push(fault.in_file(file).at(document.position_of(&field)));
            }
        }
    }

    fn routers_with_two_sessions(&mut self) {
        let field = FieldPath::of("spec").field("address");
        for (index, (file, document, peer)) in self.peers.iter().enumerate() {
            let others = self.peers[..index].iter().map(|(_, _, other)| other);
            for other in others.filter(|other| peer.is_same_router(other) && peer.may_meet(other)) {
                let fault = Fault::new(field.clone(), peer.doubles(other)).of_object(format!("BgpPeer {}", peer.name));
                self.faults.push(fault.in_file(file).at(document.position_of(&field)));
            }
        }
    }

    fn write(mut self, out: &mut impl Write) -> io::Result<Verdict> {
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
        out.write_all(text.as_bytes())?;
        Ok(if self.faults.is_empty() { Verdict::Right } else { Verdict::Faulty })
    }
}

/// Faults of an object's checked form, at their places in the file.
fn placed(faults: Faults, file: &Path, document: &Node) -> Faults {
    faults.map(|fault| {
        let position = document.position_of(&fault.field);
        fault.in_file(file).at(position)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes files, validates those named in `given`, and gives what is printed, folder left out.
    fn run(files: &[(&str, &str)], given: &[&str]) -> (Verdict, String) {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let paths: Vec<_> = given.iter().map(|name| folder.path().join(name)).collect();
        let mut out = Vec::new();
        let verdict = validate(&paths, &mut out).expect("a Vec takes everything");
        let printed = String::from_utf8(out).expect("text");
        (verdict, printed.replace(&format!("{}/", folder.path().display()), ""))
    }

    const POOL: &str = "apiVersion: cairn.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: public}\nspec: {addresses: [10.60.0.0/24]}\n";
    const INVENTORY: &str =
        "apiVersion: inventory.cairn.dev/v1\nkind: Inventory\nmachines:\n- {id: a, location: r1}\n- {id: b}\n";

    #[test]
    fn a_leader_migration_is_checked_and_entries_without_effect_are_told() {
        let with = |version: &str, rest: &str| {
            format!("apiVersion: controllermanager.config.k8s.io/{version}\nkind: LeaderMigrationConfiguration\n{rest}")
        };
        for (name, text, want) in [
            (
                "right",
                with("v1", "leaderName: m\ncontrollerLeaders: [{name: route, component: '*'}]\n"),
                (Verdict::Right, "m.yaml: ok (leader migration under Lease m)\n"),
            ),
            (
                "an older version",
                with("v1beta1", "leaderName: m\nresourceLock: leases\n"),
                (Verdict::Right, "m.yaml: ok (leader migration under Lease m)\n"),
            ),
            (
                "an entry without effect",
                with(
                    "v1",
                    "leaderName: m\ncontrollerLeaders: [{name: garbage-collector-controller, component: '*'}]\n",
                ),
                (
                    Verdict::Right,
                    "m.yaml: ok (leader migration under Lease m)\nm.yaml:4:28: controllerLeaders[0].name: \
                     \"garbage-collector-controller\" is no controller of Cairn: the entry has no effect here\n",
                ),
            ),
            (
                "wrong",
                with("v1", "leaderName: m\nresourceLock: leases\n"),
                (Verdict::Faulty, "m.yaml:4:1: resourceLock: is not a field"),
            ),
            (
                "a version that never was",
                with("v2", "leaderName: m\n"),
                (Verdict::Faulty, "m.yaml:1:13: apiVersion: \"controllermanager.config.k8s.io/v2\" is not that of"),
            ),
        ] {
            let (verdict, printed) = run(&[("m.yaml", &text)], &["m.yaml"]);
            assert!(verdict == want.0 && printed.starts_with(want.1), "{name}: {printed}");
        }
    }

    #[test]
    fn the_example_has_no_fault() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/flat-lan");
        let mut out = Vec::new();
        let verdict = validate(&[folder], &mut out).expect("a Vec takes everything");
        let printed = String::from_utf8(out).expect("text");
        assert_eq!(verdict, Verdict::Right, "{printed}");
        for line in
            ["inventory.yaml: ok (3 machines)", "pool.yaml: ok (AddressPool public)", "peer.yaml: ok (BgpPeer router)"]
        {
            assert!(printed.lines().any(|printed| printed.ends_with(line)), "{line} is not in\n{printed}");
        }
    }

    #[test]
    fn an_advertisement_is_checked() {
        let text = "apiVersion: cairn.dev/v1alpha1\nkind: Advertisement\nmetadata: {name: a}\nspec:\n  services: {}\n  \
                    bgp:\n    communities: [no-export, '64512']\n    medd: 5\n";
        let (verdict, printed) = run(&[("a.yaml", text)], &["a.yaml"]);
        assert_eq!(verdict, Verdict::Faulty);
        for want in [
            "a.yaml:7:30: Advertisement a: spec.bgp.communities[1]: \"64512\" is not a community",
            "a.yaml:8:5: spec.bgp.medd",
        ] {
            assert!(printed.contains(want), "{want} is not in\n{printed}");
        }
        let right = text.replace(", '64512'", "").replace("medd", "med");
        assert_eq!(
            run(&[("a.yaml", &right)], &["a.yaml"]),
            (Verdict::Right, "a.yaml: ok (Advertisement a)\n".to_owned())
        );
    }

    #[test]
    fn what_only_shows_side_by_side_is_told() {
        let peer = |name: &str, more: &str| {
            format!(
                "---\napiVersion: cairn.dev/v1alpha1\nkind: BgpPeer\nmetadata: {{name: {name}}}\nspec:\n  localAsn: 64513\n  peerAsn: 64512\n  address: 10.60.0.1\n{more}"
            )
        };
        let inventory = "apiVersion: inventory.cairn.dev/v1\nkind: Inventory\nmachines:\n\
             - {id: a, addresses: [{type: InternalIP, address: 10.60.0.7}, {type: ExternalIP, address: 10.60.0.8}]}\n";
        let peers = [
            peer("one", "  nodeSelector: {rack: r1}\n"),
            peer("other-rack", "  nodeSelector: {rack: r2}\n"),
            peer("other-port", "  port: 1790\n"),
            peer("twin", ""),
        ];
        let (verdict, printed) = run(
            &[("pool.yaml", POOL), ("inv.yaml", inventory), ("peers.yaml", &peers.concat())],
            &["pool.yaml", "inv.yaml", "peers.yaml"],
        );
        assert_eq!(verdict, Verdict::Faulty);
        assert_eq!(
            printed,
            "pool.yaml:4:20: AddressPool public: spec.addresses[0]: 10.60.0.0/24 holds 10.60.0.1, the address of BgpPeer twin, and 2 more such: it takes addresses that no host has, or put it into spec.exclude\n\
             inv.yaml: ok (1 machine)\n\
             peers.yaml:35:12: BgpPeer twin: spec.address: 10.60.0.1 with port 179 is the router of BgpPeer one: a node keeps one session with a router, so leave one of the two, or select other nodes\n\
             peers.yaml:35:12: BgpPeer twin: spec.address: 10.60.0.1 with port 179 is the router of BgpPeer other-rack: a node keeps one session with a router, so leave one of the two, or select other nodes\n"
        );
    }

    #[test]
    fn the_schemas_know_every_field_and_refuse_others() {
        let inventory = Format::Inventory.json_schema();
        let fields = |pointer: &str| -> Vec<String> {
            let fields = inventory.pointer(pointer).and_then(serde_json::Value::as_object);
            fields.into_iter().flatten().map(|(name, _)| name.clone()).collect()
        };
        let top = ["acknowledgedRemovals", "apiVersion", "defaults", "instanceTypes", "kind", "locations", "machines"];
        assert_eq!(fields("/properties"), top);
        assert!(fields("/$defs/MachineEntry/properties").contains(&"fencing".to_owned()));
        assert_eq!(inventory["additionalProperties"], false);
        let cloud_config = Format::CloudConfig.json_schema();
        assert!(cloud_config["properties"]["inventory"].is_object(), "{cloud_config:#}");
    }

    #[test]
    fn each_fault_is_one_line_with_its_place() {
        for (text, want) in [
            (
                "apiVersion: cairn.dev/v1alpha1\nkind: BgpPeer\nmetadata: {name: router}\nspec:\n  localASN: 64513\n  peerAsn: 0\n  address: 10.90.0.1\n  port: bgp\n  holdTimeSeconds: 2\n",
                "f.yaml:5:3: spec.localASN: is not a field: did you mean localAsn?\n\
                 f.yaml:6:12: spec.peerAsn: 0 is out of range: it takes 1 to 4294967294\n\
                 f.yaml:8:9: spec.port: \"bgp\" is text: it takes a whole number, 1 to 65535\n\
                 f.yaml:9:20: BgpPeer router: spec.holdTimeSeconds: 2 is too short: it takes 3 to 65535 seconds, or 0 for a session that never expires\n",
            ),
            (
                "apiVersion: cairn.dev/v1alpha1\nkind: BgpPeer\nmetadata: {name: router}\nspec: {localAsn: 23456, peerAsn: 1, address: fe80::1, holdTimeSeconds: 2}\n",
                "f.yaml:4:18: BgpPeer router: spec.localAsn: 23456 is not an AS number: it takes 1 to 4294967294, without 23456 and 65535 (RFC 6793, RFC 7300)\n\
                 f.yaml:4:46: BgpPeer router: spec.address: fe80::1 is a link-local address: it takes an address of the router itself, such as 10.90.0.1 or fd90::1\n\
                 f.yaml:4:72: BgpPeer router: spec.holdTimeSeconds: 2 is too short: it takes 3 to 65535 seconds, or 0 for a session that never expires\n",
            ),
            (
                "apiVersion: cairn.dev/v1alpha1\nkind: AddressPool\nspec: {addresses: []}\n",
                "f.yaml:1:1: metadata: is missing: it takes a mapping of name\n\
                 f.yaml:3:19: spec.addresses: is empty: it takes at least one entry\n",
            ),
            (
                "apiVersion: cairn.dev/v1beta1\nkind: AddressPool\n",
                "f.yaml:1:13: apiVersion: \"cairn.dev/v1beta1\" is not that of AddressPool here: it takes cairn.dev/v1alpha1\n",
            ),
            (
                "apiVersion: cairn.dev/v1alpha1\nkind: AdressPool\n",
                "f.yaml:2:7: kind: \"AdressPool\" is not a kind: did you mean AddressPool?\n",
            ),
            (
                "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\n",
                "f.yaml:2:7: kind: \"IPAddressPool\" is not a kind: did you mean AddressPool?\n",
            ),
            (
                "apiVersion: metallb.io/v1beta2\nkind: BFDProfile\n",
                "f.yaml:2:7: kind: BFDProfile of metallb.io/v1beta2 is none that can be checked: it takes CloudConfig of config.cairn.dev/v1alpha1, Inventory of inventory.cairn.dev/v1, LeaderMigrationConfiguration of controllermanager.config.k8s.io/v1, AddressPool of cairn.dev/v1alpha1, Advertisement of cairn.dev/v1alpha1 or BgpPeer of cairn.dev/v1alpha1\n",
            ),
            (
                "machines: []\n",
                "f.yaml:1:1: apiVersion: is missing: it says what the document is\n\
                 f.yaml:1:1: kind: is missing: it says what the document is\n",
            ),
            ("just words\n", "f.yaml:1:1: is not an object: it takes a mapping that starts with apiVersion and kind\n"),
            ("", "f.yaml: is empty: it takes at least one YAML document\n"),
        ] {
            assert_eq!(run(&[("f.yaml", text)], &["f.yaml"]), (Verdict::Faulty, want.to_owned()), "{text}");
        }
    }

    #[test]
    fn objects_of_kubernetes_are_left_to_it() {
        let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n";
        let (verdict, printed) = run(&[("web.yaml", service)], &["web.yaml"]);
        assert_eq!(verdict, Verdict::Right);
        assert_eq!(printed, "web.yaml: ok (Service web not checked, it is Kubernetes' own)\n");
    }

    #[test]
    fn a_cloud_config_brings_the_files_it_names() {
        let config =
            "apiVersion: config.cairn.dev/v1alpha1\nkind: CloudConfig\ninventory:\n  files: [a.yaml, none.yaml]\n";
        let (verdict, printed) = run(&[("c.yaml", config), ("a.yaml", INVENTORY)], &["c.yaml"]);
        assert_eq!(verdict, Verdict::Faulty);
        assert_eq!(
            printed,
            "c.yaml:4:19: inventory.files[1]: none.yaml does not exist: it takes a path from this file's folder\n\
             a.yaml: ok (2 machines)\n"
        );
    }

    #[test]
    fn files_are_checked_side_by_side() {
        let other = POOL.replace("10.60.0.0/24", "10.60.0.128-10.60.1.4");
        let locations =
            "apiVersion: inventory.cairn.dev/v1\nkind: Inventory\nlocations: {r1: {}}\nmachines: [{id: b}]\n";
        let files = [("a.yaml", POOL), ("b.yaml", &other), ("i.yaml", INVENTORY), ("j.yaml", locations)];
        let (verdict, printed) = run(&files, &["a.yaml", "b.yaml", "i.yaml", "j.yaml"]);
        assert_eq!(verdict, Verdict::Faulty);
        assert_eq!(
            printed,
            "a.yaml: ok (AddressPool public)\n\
             b.yaml:3:18: metadata.name: AddressPool public is already at a.yaml:3:18: metadata.name: each takes a name of its own\n\
             b.yaml:4:19: AddressPool public: spec.addresses: 10.60.0.128-10.60.1.4 shares addresses with 10.60.0.0/24 of AddressPool public in a.yaml: each address takes one pool\n\
             i.yaml: ok (2 machines)\n\
             j.yaml:4:17: machines[0].id: machine id b is already at i.yaml:5:8: machines[1].id: each takes its own\n"
        );
    }

    #[test]
    fn a_folder_without_files_is_told() {
        let (verdict, printed) = run(&[("notes.txt", "")], &[""]);
        assert_eq!(verdict, Verdict::Faulty);
        assert!(printed.ends_with("has no file that ends in .yaml or .yml: it takes at least one\n"), "{printed}");
    }
}
