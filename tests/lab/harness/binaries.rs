//! The binaries of the control plane: found, or built once (`tests/lab/build-control-plane`).

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::kubernetes::Kubernetes;

/// How the list travels into the lab.
const VARIABLE: &str = "CAIRN_LAB_BINARIES";
const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/build-control-plane");
/// What only a few scenarios need, these programs, the older control planes and full nodes, takes minutes: that is left
/// to `make lab`, and the last of these to `make bench-nodes`.
const BUILD_PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/build-program");
const PROGRAMS_OF_FEW: [&str; 2] = ["migration-partner", "reference-ccm"];
const BUILD_METALLB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/build-metallb");
/// Programs of the distribution, each with the Debian package that has it.
const PROGRAMS: [(&str, &str); 7] = [
    ("bird", "bird2"),
    ("birdc", "bird2"),
    ("ip", "iproute2"),
    ("bridge", "iproute2"),
    ("nft", "nftables"),
    ("curl", "curl"),
    ("unshare", "util-linux"),
];
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Gives `command` all that a lab needs from outside; builds what is missing, which can take minutes.
pub(crate) fn provide(command: &mut Command) -> Result<()> {
    // Debian leaves the sbin folders out of an ordinary user's path.
    let path = format!("{}:{PATH}", std::env::var("PATH").unwrap_or_default());
    let lacking = missing_packages(&path);
    ensure!(lacking.is_empty(), "the lab needs packages that are not installed: apt-get install {}", lacking.join(" "));
    let mut list = output_of(BUILD, &[])?;
    for program in PROGRAMS_OF_FEW {
        list += &output_of(BUILD_PROGRAM, &["--find", program])?;
    }
    list += &output_of(BUILD_METALLB, &["--find"])?;
    for other in Kubernetes::OLDER.iter().map(|older| older.minor()).chain(["full-nodes"]) {
        list += &output_of(BUILD, &["--find", other])?;
    }
    command.env("PATH", path).env(VARIABLE, list);
    Ok(())
}

fn output_of(script: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(script);
    command.args(arguments).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot run {script}"))?;
    ensure!(output.status.success(), "{script} failed ({})", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

fn missing_packages(path: &str) -> Vec<&'static str> {
    let found = |program: &str| path.split(':').any(|folder| PathBuf::from(folder).join(program).is_file());
    let mut packages: Vec<_> =
        PROGRAMS.iter().filter(|(program, _)| !found(program)).map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

/// Where a program of the distribution is, for users whose path may leave the sbin folders out.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut places = path.split(':').map(|folder| PathBuf::from(folder).join(name));
    places.find(|place| place.is_file()).unwrap_or_else(|| name.into())
}

/// Paths by name, inside a lab.
pub(crate) struct Binaries(BTreeMap<String, PathBuf>);

impl Binaries {
    pub(crate) fn provided() -> Result<Self> {
        let list = std::env::var(VARIABLE).context("binaries are provided by the process outside the lab")?;
        let pairs = list.lines().filter_map(|line| line.split_once(' '));
        Ok(Self(pairs.map(|(name, path)| (name.to_owned(), path.into())).collect()))
    }

    pub(crate) fn path(&self, name: &str) -> Result<&PathBuf> {
        self.0.get(name).with_context(|| format!("the lab has no {name}: `make lab` builds it"))
    }
}
