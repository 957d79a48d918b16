//! A full node: a machine with a real kubelet, containerd, runc and a CNI bridge, in namespaces and cgroups of its own.
//!
//! What runs there is in `tests/lab/full-node/`: `boot` starts the machine and `init` is its pid 1.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use tokio::process::Command;

use super::{
    address::LanHost,
    binaries::{self, Binaries},
    cgroups,
    enclosure::{self, WORK},
    namespace::output_of,
};

const RECIPE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/full-node");
/// What users are told to give containerd.
const CNI_TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/flat-lan/cni-template");
const BINARIES: [&str; 4] = ["containerd", "containerd-shim-runc-v2", "ctr", "kubelet"];

/// An image that a full node has: busybox, and `/index.html` for its web server.
pub(crate) const IMAGE: &str = "lab.local/busybox:1";

/// The other one: Cairn itself, under the name that its manifests have.
pub(crate) const CAIRN_IMAGE: &str = "ghcr.io/cairn-dev/cairn:0.1.0";

/// Whether the kubelet is told the node's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeIp {
    /// By `--node-ip`, of both families.
    Told,
    /// It knows none: with an external cloud provider it does not look for one.
    Untold,
}

/// Why no full node can run here, in words for whoever reads a test's output.
pub(crate) fn obstacle() -> Option<&'static str> {
    // In a lab, an ordinary user is root as well, but only there.
    if !rustix::process::geteuid().is_root() || enclosure::has_user_of_its_own() {
        Some("a real kubelet needs cgroups, and so root")
    } else if !cgroups::are_version_1() {
        Some("the lab's machines with a real kubelet need cgroup v1, a hierarchy for each controller")
    } else {
        None
    }
}

/// Writes what the machine needs and returns the command that boots it.
pub(crate) async fn prepare(
    binaries: &Binaries,
    name: &str,
    host: LanHost,
    node_ip: NodeIp,
    kubeconfig: &Path,
) -> Result<Command> {
    let folder = Path::new(WORK).join(format!("machine-{name}"));
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin)?;
    for binary in BINARIES {
        symlink(binaries.path(binary)?, bin.join(binary))?;
    }
    for file in ["kubelet.yaml", "containerd.toml"] {
        copy(file, &folder.join(file))?;
    }
    let cni = folder.join("lib/cni");
    std::fs::create_dir_all(cni.join("net.d"))?;
    std::fs::copy(CNI_TEMPLATE, cni.join("template")).context(CNI_TEMPLATE)?;
    std::fs::copy(kubeconfig, folder.join("kubelet.kubeconfig"))?;
    make_images(&folder.join("images")).await?;

    let mut command = Command::new(Path::new(RECIPE).join("boot"));
    command.arg(name).arg(cgroups::of_node(name)?).arg(&folder);
    if node_ip == NodeIp::Told {
        command.arg(format!("--node-ip={},{}", host.v4(), host.v6()));
    }
    Ok(command)
}

fn copy(file: &str, to: &Path) -> Result<()> {
    let from = PathBuf::from(RECIPE).join(file);
    std::fs::copy(&from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

async fn make_images(folder: &Path) -> Result<()> {
    let mut command = Command::new(Path::new(RECIPE).join("images"));
    command.arg(folder).arg(binaries::program("busybox")).args([env!("CARGO_BIN_EXE_cairn"), CAIRN_IMAGE]);
    output_of(command, "images").await?;
    Ok(())
}
