//! The cgroups of full nodes: the one thing that outlives a lab, since no namespace takes them away.
//!
//! Each is named after the process outside that holds its lab's namespaces; without that process it is nobody's.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::enclosure::outside_pid;

/// Where the hierarchies are, each a folder.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "cairn-lab-";

/// The name, in every hierarchy, of the cgroup of a node of this lab.
pub(crate) fn of_node(node: &str) -> Result<String> {
    Ok(name(outside_pid()?, node))
}

/// The same for a lab whose process outside is `pid`.
pub(crate) fn name(pid: &str, node: &str) -> String {
    format!("{PREFIX}{pid}-{node}")
}

/// True where cgroup v1 has a hierarchy for each controller, which full nodes are made for.
pub(crate) fn are_version_1() -> bool {
    let hierarchy = |name: &str| Path::new(ROOT).join(name);
    // Where two controllers share a hierarchy, the name of each is a link to it.
    hierarchy("cpuset/cpuset.cpus").exists() && !hierarchy("cpu").is_symlink()
}

/// Removes what labs left that are gone; nothing to do where no full node ever ran.
pub(crate) fn remove_those_of_dead_labs() {
    for group in entries(Path::new(ROOT)).iter().flat_map(|hierarchy| entries(hierarchy)) {
        let rest = group.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
        let pid = rest.and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(&group);
        }
    }
}

/// Children first; a cgroup's files go with it. Another lab that begins now may do the same.
fn remove(group: &Path) {
    for child in entries(group).iter().filter(|child| child.is_dir()) {
        remove(child);
    }
    std::fs::remove_dir(group).ok();
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
