//! The directions between rooms, and what pure files may know.
//!
//! ARCHITECTURE.md draws these tables; this test holds the code to them. It reads paths that start
//! with `crate::`, so a room is named the same way everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Whom each room may know, besides itself.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("api", &["model"]),
    ("config", &["api", "model"]),
    // Shared shells.
    ("cluster", &["config", "api", "model"]),
    ("inventory", &["cluster", "config", "api", "model"]),
    ("leader", &["cluster", "config", "api", "model"]),
    ("telemetry", &["cluster", "config", "api", "model"]),
    // Rooms: never each other.
    ("node", SHARED),
    ("machine", SHARED),
    ("lifecycle", SHARED),
    ("ipam", SHARED),
    ("service", SHARED),
    ("advertisement", SHARED),
    ("peer", SHARED),
    ("route", SHARED),
    ("bgp", SHARED),
    ("kernel", SHARED),
    // Wiring.
    (
        "controller",
        &[
            "node",
            "machine",
            "lifecycle",
            "ipam",
            "service",
            "advertisement",
            "peer",
            "route",
            "cluster",
            "inventory",
            "leader",
            "telemetry",
            "config",
            "api",
            "model",
        ],
    ),
    ("agent", &["bgp", "kernel", "cluster", "telemetry", "config", "api", "model"]),
    (
        "cli",
        &["controller", "agent", "service", "cluster", "inventory", "leader", "telemetry", "config", "api", "model"],
    ),
];
const SHARED: &[&str] = &["cluster", "inventory", "leader", "telemetry", "config", "api", "model"];

/// Files, or folders with all in them, that decide without seeing the world.
const PURE: &[&str] = &[
    "model",
    "api",
    "cli/controller/value.rs",
    "cli/overview.rs",
    "cluster/queue.rs",
    "cluster/throttle.rs",
    "config/advertisement.rs",
    "config/block.rs",
    "config/cluster_cidrs.rs",
    "config/controllers.rs",
    "config/document.rs",
    "config/fault.rs",
    "config/label.rs",
    "config/last_good.rs",
    "config/nearest.rs",
    "config/node_cidrs.rs",
    "config/object.rs",
    "config/peer.rs",
    "config/pool.rs",
    "config/pool_view.rs",
    "config/schema",
    "config/schema.rs",
    "config/typed.rs",
    "config/selector.rs",
    "inventory/bmc",
    "inventory/brake.rs",
    "inventory/catalog.rs",
    "inventory/document.rs",
    "inventory/entry.rs",
    "inventory/instance_type.rs",
    "inventory/label.rs",
    "inventory/location.rs",
    "inventory/mac.rs",
    "inventory/machine.rs",
    "inventory/matching.rs",
    "inventory/place.rs",
    "inventory/shared.rs",
    "inventory/survey.rs",
    "inventory/unique.rs",
    "inventory/uuid.rs",
    "ipam/allocator.rs",
    "ipam/assignment.rs",
    "ipam/claim.rs",
    "ipam/desk",
    "ipam/desk.rs",
    "ipam/knowledge.rs",
    "ipam/plan.rs",
    "ipam/span.rs",
    "ipam/survey.rs",
    "leader/election.rs",
    "leader/migration.rs",
    "leader/others.rs",
    "leader/record.rs",
    "leader/timing.rs",
    "machine/plan.rs",
    "machine/quiet.rs",
    "lifecycle/brake.rs",
    "lifecycle/plan.rs",
    "node/addresses.rs",
    "node/facts.rs",
    "node/labels.rs",
    "node/owners.rs",
    "node/plan.rs",
    "telemetry/access/subject.rs",
    "telemetry/access/user.rs",
    "advertisement/plan.rs",
    "peer/plan.rs",
    "service/allocator",
    "service/announced.rs",
    "service/conditions.rs",
    "service/explain",
    "service/explain.rs",
    "service/leaving.rs",
    "service/misspelt.rs",
    "service/pace.rs",
    "service/plan.rs",
    "service/pool_status.rs",
    "service/request.rs",
    "service/selection.rs",
    "service/term.rs",
    "route/brake.rs",
    "route/case.rs",
    "route/evidence.rs",
    "route/forecast.rs",
    "route/network.rs",
    "route/plan",
    "route/plan.rs",
    "route/spec.rs",
    "route/witnesses.rs",
    "bgp/codec",
    "bgp/exchange.rs",
    "bgp/fsm",
    "bgp/fsm.rs",
    "bgp/retained.rs",
    "bgp/rib",
    "bgp/rib.rs",
    "bgp/rib_in.rs",
    "kernel/firewall.rs",
    "kernel/change.rs",
    "kernel/forwarding.rs",
    "kernel/guard/codec.rs",
    "kernel/guard/rules.rs",
    "kernel/guard/sets.rs",
    "kernel/known.rs",
    "kernel/messages.rs",
    "kernel/neighbour.rs",
    "kernel/pace.rs",
    "kernel/place.rs",
    "kernel/plan.rs",
    "kernel/present.rs",
    "kernel/route.rs",
    "kernel/route_codec.rs",
    "kernel/rules.rs",
    "kernel/standing.rs",
    "kernel/wire.rs",
    "agent/announce",
    "agent/answers.rs",
    "agent/announce.rs",
    "agent/default_addresses.rs",
    "agent/desired.rs",
    "agent/entries",
    "agent/entries.rs",
    "agent/fib.rs",
    "agent/forecast.rs",
    "agent/imports",
    "agent/imports.rs",
    "agent/last_resort.rs",
    "agent/next_hop.rs",
    "agent/node_addresses.rs",
    "agent/nodes.rs",
    "agent/outcome.rs",
    "agent/pacer.rs",
    "agent/peers.rs",
    "agent/report.rs",
    "agent/routes.rs",
    "agent/saved/change.rs",
    "agent/snapshot.rs",
    "agent/stale.rs",
    "agent/state.rs",
    "agent/testimony.rs",
    "agent/unassigned.rs",
    "agent/witness.rs",
];
/// What a pure file never mentions. (`kube::` alone would also refuse the derives of `api`.)
const IMPURE: &[&str] =
    &["tokio", "kube::Client", "kube::Api", "crate::cluster", "std::fs", ".await", "Instant::now", "TcpStream"];

/// The only files that read the wall clock, which jumps; each says what for. Nothing is decided by it but what
/// another process wrote down with it, and there a jump costs no more than the wait it is about.
const WALL_CLOCK: &[(&str, &str)] = &[
    ("cli/cluster_state.rs", "for how long addresses cool down that a leader wrote down"),
    ("cluster/conditions.rs", "lastTransitionTime of conditions"),
    ("cluster/events.rs", "eventTime of Events"),
    ("ipam/apply.rs", "lastTransitionTime of conditions"),
    ("ipam/lease.rs", "acquireTime of claims"),
    ("leader/lease.rs", "acquireTime and renewTime of the Lease, which nobody here reads as a time"),
    ("machine/work.rs", "lastTransitionTime of conditions"),
    ("node/work.rs", "the age of a Node, for a metric"),
    ("route/apply.rs", "lastTransitionTime of conditions"),
    ("service/mod.rs", "for how long addresses cool down that the leader before wrote down"),
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every source file with its path below `src/`.
fn files() -> BTreeMap<String, String> {
    fn walk(folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let name = entry.strip_prefix(source()).expect("below src").display().to_string();
                found.insert(name, fs::read_to_string(&entry).expect("a source file"));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&source(), &mut found);
    found
}

/// The room a file is in: its folder, or its own name.
fn room(file: &str) -> &str {
    file.split('/').next().expect("a path").trim_end_matches(".rs")
}

/// Code without comments: docs may mention anyone.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// The rooms a file names by `crate::`.
fn named(text: &str) -> BTreeSet<(usize, String)> {
    let mut rooms = BTreeSet::new();
    for (number, line) in code(text) {
        for tail in line.split("crate::").skip(1) {
            let room: String = tail.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            rooms.insert((number + 1, room));
        }
    }
    rooms
}

#[test]
fn rooms_know_only_those_they_may_know() {
    let table: BTreeMap<&str, &[&str]> = MAY_KNOW.iter().copied().collect();
    let mut faults = Vec::new();
    for (file, text) in files() {
        let from = room(&file);
        if matches!(from, "lib" | "main") {
            continue;
        }
        let Some(allowed) = table.get(from) else {
            faults.push(format!("src/{file}: room {from} is not in the table"));
            continue;
        };
        for (line, to) in named(&text) {
            if !to.is_empty() && to != from && !allowed.contains(&to.as_str()) {
                faults.push(format!("src/{file}:{line}: {from} may not know {to}"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_table_names_rooms_that_exist() {
    let rooms: BTreeSet<String> = files().keys().map(|file| room(file).to_owned()).collect();
    for (name, allowed) in MAY_KNOW {
        for name in allowed.iter().chain([name]) {
            assert!(rooms.contains(*name), "there is no room {name}");
        }
    }
}

#[test]
fn pure_files_see_no_clock_socket_file_or_task() {
    let files = files();
    let mut faults = Vec::new();
    for pure in PURE {
        let of_it: Vec<_> =
            files.iter().filter(|(file, _)| file == pure || file.starts_with(&format!("{pure}/"))).collect();
        assert!(!of_it.is_empty(), "src/{pure} does not exist");
        for (file, text) in of_it {
            let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            for (number, line) in code(shipped) {
                faults.extend(
                    IMPURE
                        .iter()
                        .filter(|word| line.contains(**word))
                        .map(|word| format!("src/{file}:{}: a pure file may not mention {word}", number + 1)),
                );
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_wall_clock_is_read_where_it_is_only_told() {
    let files = files();
    let readers = files.iter().filter(|(_, text)| {
        let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        code(shipped)
            .any(|(_, line)| ["Timestamp::now", "SystemTime::now", "Zoned::now"].iter().any(|word| line.contains(word)))
    });
    let readers: Vec<_> = readers.map(|(file, _)| file.as_str()).collect();
    let table: Vec<_> = WALL_CLOCK.iter().map(|(file, _)| *file).collect();
    assert_eq!(readers, table, "time is a Moment of CLOCK_BOOTTIME: say here what else the wall clock is for");
}

#[test]
fn exceptions_from_the_clock_rule_are_shells_that_say_so() {
    for (file, text) in files() {
        if text.contains("clippy::disallowed_methods") {
            assert!(text.contains("reason = \"shell: "), "src/{file}: say `reason = \"shell: …\"`");
        }
    }
}
