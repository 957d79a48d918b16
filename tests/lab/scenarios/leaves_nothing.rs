//! A lab ends with the test that began it, however that ends.

use std::{
    io::{BufRead, BufReader, ErrorKind},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::SOON;
use crate::harness::{Lab, RouterKind, cgroups, enclosure::inside, full_node, wait_for};

/// Every process of a lab inherits this, and it can be read from outside.
const MARK: &str = "CAIRN_LAB_TEST_MARK";
const STARTED: &str = "the lab has started";

#[test]
#[ignore = "the lab that the other test kills; it would wait for ever"]
fn a_lab_that_waits_to_be_killed() {
    inside(async || {
        let _lab = Lab::builder().nodes(1).router(RouterKind::Bird).client().start().await?;
        println!("{STARTED}");
        std::future::pending().await
    });
}

#[test]
fn a_lab_whose_test_is_killed_leaves_no_process() -> Result<()> {
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        // Whoever is started in the background by a shell ignores SIGINT, and so do its children.
        let mut test = Command::new("env");
        test.args(["--default-signal=INT,TERM", "--"]).arg(std::env::current_exe()?);
        leaves_nothing_after(signal, test)?;
    }
    Ok(())
}

#[test]
fn a_lab_whose_tests_caller_is_killed_leaves_no_process() -> Result<()> {
    let mut caller = Command::new("sh");
    caller.args(["-c", "\"$@\" & wait", "caller"]).arg(std::env::current_exe()?);
    leaves_nothing_after(Signal::KILL, caller)
}

#[test]
fn the_cgroups_of_a_dead_lab_are_removed_and_those_of_a_living_one_are_not() -> Result<()> {
    if let Some(why) = full_node::obstacle() {
        println!("skipped: {why}");
        return Ok(());
    }
    let mut dead = Command::new("true").spawn()?;
    dead.wait()?;
    let groups = [dead.id(), std::process::id()].map(|pid| {
        let name = cgroups::name(&pid.to_string(), "leaves-nothing");
        Path::new(cgroups::ROOT).join("memory").join(name)
    });
    for group in &groups {
        let folder = group.join("kubepods/besteffort");
        // Another lab may remove the first of them while it is made.
        while std::fs::create_dir_all(&folder).is_err_and(|error| error.kind() == ErrorKind::NotFound) {}
    }
    cgroups::remove_those_of_dead_labs();
    let is_there = groups.each_ref().map(|group| group.join("kubepods/besteffort").exists());
    let [dead, living] = groups;
    for folder in ["kubepods/besteffort", "kubepods", ""] {
        std::fs::remove_dir(living.join(folder))?;
    }
    ensure!(is_there == [false, true] && !dead.exists(), "there: {is_there:?}");
    Ok(())
}

/// Starts the waiting lab by `command`, which is given the arguments of a test runner, and kills what it started.
fn leaves_nothing_after(signal: Signal, command: Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mark = format!("{}-{:?}-{}", std::process::id(), std::thread::current().id(), signal.as_raw());
    let mut started = start_marked_lab(command, &mark)?;
    let processes = marked_processes(&mark);
    ensure!(processes.len() > 4, "a lab has more processes than {processes:?}");
    kill_process(Pid::from_raw(i32::try_from(started.id())?).context("a process id is positive")?, signal)?;
    started.wait()?;
    runtime.block_on(wait_for(&format!("no process is left after {signal:?}"), SOON, async || {
        let left = marked_processes(&mark);
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    }))
}

/// Runs the waiting lab as a test runner of its own, until it says that it has started.
fn start_marked_lab(mut command: Command, mark: &str) -> Result<Child> {
    let name = "scenarios::leaves_nothing::a_lab_that_waits_to_be_killed";
    command.args(["--exact", name, "--include-ignored", "--nocapture"]).env(MARK, mark);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().context("the output is a pipe")?);
    let mut said = output.lines().map_while(Result::ok).inspect(|line| println!("{line}"));
    ensure!(said.any(|line| line.contains(STARTED)), "the lab ended before it had started");
    Ok(child)
}

/// The command lines of all processes with this mark in their environment.
fn marked_processes(mark: &str) -> Vec<String> {
    let mark = format!("{MARK}={mark}");
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    folders
        .filter(|folder| {
            let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
        })
        .map(|folder| {
            String::from_utf8_lossy(&std::fs::read(folder.join("cmdline")).unwrap_or_default()).replace('\0', " ")
        })
        .collect()
}
