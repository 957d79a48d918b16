#![expect(clippy::disallowed_methods, reason = "shell: the watchdog is a thread of its own")]
//! How a lab's namespaces come and go.
//!
//! The test binary runs itself again as pid 1 of fresh namespaces. The process outside holds the only writing end of
//! a pipe that the one inside reads: when it ends, whatever the cause, the pipe ends, pid 1 exits, and the kernel
//! takes every process, namespace and interface of the lab away. A parent-death signal alone would not do: it fires
//! when the spawning *thread* ends. The one outside ends with its own parent: `make` and cargo, when a signal ends
//! them, leave their children running.

use std::{
    env,
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Once, OnceLock},
};

use anyhow::{Context, Result, ensure};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{PidfdFlags, getppid, pidfd_open},
};

use super::{binaries, cgroups};

const INSIDE: &str = "CAIRN_LAB_INSIDE";
const LOGS: &str = "CAIRN_LAB_LOGS";
const KEEP_LOGS: &str = "CAIRN_LAB_KEEP_LOGS";
/// The file in which the process inside says why it failed.
const FAILURE: &str = "failure";
const LAST_LINES: usize = 20;

/// The number that `unshare`, which is in the lab's namespaces too, has outside.
static OUTSIDE_PID: OnceLock<String> = OnceLock::new();

/// The folder of a lab's own files: in memory, and gone with it.
pub(crate) const WORK: &str = "/run/lab";

/// Runs `body` in a lab's namespaces; called by a `#[test]` with a closure of its own and nothing else.
///
/// # Panics
/// When the body fails, after printing the last lines of every part's log.
pub(crate) fn inside<F: AsyncFnOnce() -> Result<()>>(body: F) {
    if env::var_os(INSIDE).is_some() {
        return run_or_exit(body);
    }
    let test = test_path::<F>();
    let arguments = ["--exact", test, "--include-ignored", "--nocapture", "--test-threads=1"];
    let ended = run_enclosed(test, &arguments, Output::Relayed).expect("the lab's process can be started");
    if let Err(failure) = ended {
        panic!("{test}: {failure}");
    }
}

/// Like [`inside`] for a program that is no test; returns its exit code.
pub(crate) fn program<F: AsyncFnOnce() -> Result<()>>(name: &str, body: F) -> u8 {
    if env::var_os(INSIDE).is_some() {
        run_or_exit(body);
        return 0;
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = run_enclosed(name, &arguments, Output::Inherited).unwrap_or_else(|error| Err(format!("{error:#}")));
    let Err(failure) = ended else { return 0 };
    eprintln!("{name} failed: {failure}");
    1
}

/// The words that, before a command, run it in this lab from another terminal.
pub(crate) fn way_in() -> Result<String> {
    let pid = outside_pid()?;
    let user = if has_user_of_its_own() { " --user --preserve-credentials" } else { "" };
    Ok(format!("nsenter -t {pid} --mount --net{user}"))
}

/// True in a lab that an ordinary user started: its user namespace holds nobody else.
pub(crate) fn has_user_of_its_own() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.split_whitespace().nth(2) == Some("1"))
}

/// The number by which the machine knows this lab.
pub(crate) fn outside_pid() -> Result<&'static str> {
    OUTSIDE_PID.get().map(String::as_str).context("the process outside says its number first")
}

/// The folder for the logs of a lab's parts.
pub(crate) fn logs() -> PathBuf {
    env::var_os(LOGS).map_or_else(|| WORK.into(), PathBuf::from)
}

/// `scenarios::first_service::answers` from the type name of the closure that a test passes.
fn test_path<F>() -> &'static str {
    let name = std::any::type_name::<F>();
    let path = name.split("::{{closure}}").next().unwrap_or(name);
    path.split_once("::").map_or(path, |(_crate, path)| path)
}

/// Where what a lab says goes.
enum Output {
    /// Through `println!`, where the test runner can capture it.
    Relayed,
    /// Straight to the terminal.
    Inherited,
}

/// Runs this program again in namespaces of its own, and returns why it failed there.
fn run_enclosed(name: &str, arguments: &[&str], output: Output) -> Result<Result<(), String>> {
    static PARENT: Once = Once::new();
    PARENT.call_once(watch_parent);
    let logs = make_log_folder(name)?;
    cgroups::remove_those_of_dead_labs();
    let mut command = Command::new("unshare");
    binaries::provide(&mut command)?;
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    command.arg(env::current_exe()?).args(arguments);
    command.env(INSIDE, "1").env(LOGS, &logs).stdin(Stdio::piped());
    let reader = match output {
        Output::Inherited => None,
        Output::Relayed => {
            let (reader, writer) = std::io::pipe()?;
            command.stdout(writer.try_clone()?).stderr(writer);
            Some(reader)
        }
    };
    let mut child = command.spawn().context("cannot run unshare")?;
    // It holds writing ends of the pipe that is read to its end here.
    drop(command);
    // Taken out, since `wait` would close the pipe that keeps the lab alive.
    let mut lifeline = child.stdin.take().context("the lab's input is a pipe")?;
    writeln!(lifeline, "{}", child.id())?;
    if let Some(reader) = reader {
        relay_lines(reader, name);
    }
    let status = child.wait()?;
    drop(lifeline);
    cgroups::remove_those_of_dead_labs();
    if !status.success() {
        let failure = std::fs::read_to_string(logs.join(FAILURE)).unwrap_or_else(|_| status.to_string());
        print_last_lines(&logs);
        return Ok(Err(failure));
    }
    if env::var_os(KEEP_LOGS).is_none() {
        std::fs::remove_dir_all(&logs)?;
    }
    Ok(Ok(()))
}

/// Prints what a lab says, without what the test runner inside says of itself.
fn relay_lines(reader: std::io::PipeReader, test: &str) {
    let announcement = format!("test {test} ... ");
    for line in BufReader::new(reader).lines().map_while(Result::ok) {
        let line = line.strip_prefix(&announcement).unwrap_or(&line);
        let is_noise = matches!(line, "" | "ok" | "FAILED" | "running 1 test") || line.starts_with("test result:");
        if !is_noise {
            println!("{line}");
        }
    }
}

/// What failed goes to the process outside, which says it after all that the parts have said.
fn run_or_exit<F: AsyncFnOnce() -> Result<()>>(body: F) {
    if let Err(error) = run_body(body) {
        std::fs::write(logs().join(FAILURE), format!("{error:#}")).expect("the folder of the logs is there");
        std::process::exit(1);
    }
}

fn run_body<F: AsyncFnOnce() -> Result<()>>(body: F) -> Result<()> {
    watch_lifeline();
    mount_memory()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    let outcome = runtime.block_on(body());
    // Threads that still serve a pod or a node end with the process.
    runtime.shutdown_background();
    outcome
}

/// Ends this process, and so the lab, when the process outside is gone.
fn watch_lifeline() {
    std::thread::spawn(|| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            OUTSIDE_PID.get_or_init(|| line);
        }
        std::process::exit(1);
    });
}

/// Ends this process outside, and so its labs, when whoever started it is gone.
fn watch_parent() {
    let Some(Ok(parent)) = getppid().map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
    std::thread::spawn(move || {
        while poll(&mut [PollFd::new(&parent, PollFlags::IN)], None).is_err() {}
        std::process::exit(1);
    });
}

fn mount_memory() -> Result<()> {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]).status()?;
    ensure!(mounted.success(), "cannot mount a tmpfs on /run of the lab's own mount namespace");
    std::fs::create_dir_all(WORK)?;
    Ok(())
}

/// `<target>/tmp/lab-logs/<name>@<pid>`; folders of earlier runs of the same test go.
fn make_log_folder(name: &str) -> Result<PathBuf> {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-logs");
    std::fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let stem = name.replace("::", ".");
    for entry in std::fs::read_dir(&parent)?.flatten() {
        let file_name = entry.file_name();
        let pid = file_name.to_str().and_then(|f| f.strip_prefix(&stem)).and_then(|rest| rest.strip_prefix('@'));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another run that begins now may do the same.
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
    let folder = parent.join(format!("{stem}@{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn print_last_lines(logs: &Path) {
    let mut files: Vec<_> = std::fs::read_dir(logs).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "log"));
    files.sort();
    for file in files {
        println!("--- {}", file.display());
        for line in last_lines(&file).unwrap_or_default() {
            println!("    {line}");
        }
    }
}

fn last_lines(path: &Path) -> Result<Vec<String>> {
    const TAIL_BYTES: u64 = 16 * 1024;
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let text = String::from_utf8_lossy(&tail);
    let mut lines: Vec<_> = text.lines().rev().take(LAST_LINES).map(str::to_owned).collect();
    lines.reverse();
    Ok(lines)
}
