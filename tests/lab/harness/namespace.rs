#![expect(clippy::disallowed_methods, reason = "shell: a thread is what enters a network namespace")]
//! A network namespace with a name, and programs that run in it.

use std::{fs::File, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::process::{Child, Command};

use super::{address::LanHost, enclosure, wait::wait_for};

/// Longer than `kubectl wait` waits: what it says then is worth more.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(40);
const FROZEN_WITHIN: Duration = Duration::from_secs(20);

/// A network namespace that `ip netns` knows by its name.
#[derive(Clone)]
pub(crate) struct Namespace(String);

impl Namespace {
    /// Makes it, with loopback up and without duplicate address detection, which would hold addresses back for a second.
    pub(crate) async fn make(name: &str) -> Result<Self> {
        let namespace = Self(name.to_owned());
        run("ip", ["netns", "add", name]).await?;
        namespace.sysctl("net/ipv6/conf/default/accept_dad", "0")?;
        namespace.sysctl("net/ipv6/conf/all/accept_dad", "0")?;
        namespace.ip("link set lo up").await?;
        Ok(namespace)
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Writes one of the namespace's own sysctls, named by its path under `/proc/sys`.
    pub(crate) fn sysctl(&self, path: &str, value: &'static str) -> Result<()> {
        let file = PathBuf::from("/proc/sys").join(path);
        self.enter(move || std::fs::write(&file, value).with_context(|| format!("cannot write {}", file.display())))?
    }

    /// Runs `work` on a thread in this namespace; sockets it opens stay there.
    pub(crate) fn enter<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let thread = self.spawn_thread(work)?;
        thread.join().map_err(|_| anyhow!("a thread in namespace {} panicked", self.0))
    }

    /// Starts a thread that lives in this namespace.
    pub(crate) fn spawn_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<std::thread::JoinHandle<T>> {
        let path = format!("/run/netns/{}", self.0);
        let file = File::open(&path).with_context(|| format!("cannot open {path}"))?;
        Ok(std::thread::spawn(move || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network))
                .expect("the lab owns its namespaces");
            work()
        }))
    }

    /// Runs lines of `ip` in this namespace, as one batch.
    pub(crate) async fn ip(&self, lines: &str) -> Result<()> {
        ip_batch(&["-n", &self.0], lines).await
    }

    /// A command to run in this namespace.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program);
        command
    }

    /// Runs a program to its end and returns what it printed; failure carries what it said.
    pub(crate) async fn exec<const N: usize>(&self, words: [&str; N]) -> Result<String> {
        let (program, arguments) = words.split_first().context("a command has a first word")?;
        let mut command = self.command(program);
        command.args(arguments);
        output_of(command, &words.join(" ")).await.with_context(|| format!("in namespace {}", self.0))
    }

    /// Starts a program that logs to the part's own file and dies with the returned value.
    pub(crate) fn spawn(&self, part: &str, mut command: Command) -> Result<Program> {
        let log = enclosure::logs().join(format!("{part}.log"));
        let file = File::options().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("cannot start {part}"))?;
        Ok(Program { part: part.to_owned(), child, log })
    }

    /// Kills every process of this namespace at once.
    pub(crate) async fn kill_all(&self) -> Result<()> {
        let pids = run("ip", ["netns", "pids", &self.0]).await?;
        for pid in pids.split_whitespace() {
            signal(pid.parse()?, rustix::process::Signal::KILL)?;
        }
        Ok(())
    }

    /// Connects this namespace to the switch by an interface `eth0`.
    pub(crate) async fn plug_in(&self, host: LanHost) -> Result<()> {
        let (name, v4, v6) = (&self.0, host.v4(), host.v6());
        ip_batch(
            &[],
            &format!("link add p-{name} type veth peer name eth0 netns {name}\nlink set p-{name} master br0 up"),
        )
        .await?;
        self.ip(&format!("link set eth0 up\naddr add {v4}/24 dev eth0\naddr add {v6}/64 dev eth0 nodad")).await
    }
}

/// Processor time of a process since its start, of all threads, in user and kernel mode; `self` is this one.
pub(crate) fn processor_time(process: &str) -> Result<Duration> {
    // `proc_pid_stat(5)`: the second field is a name in parentheses; fields 14 and 15 count hundredths of a second.
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("a process has a name")?;
    let times = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(Duration::from_millis(10 * times.sum::<Result<u64, _>>()?))
}

/// A running program of a lab, and where its log is.
pub(crate) struct Program {
    part: String,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// All that it has said so far.
    pub(crate) fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned())
    }

    pub(crate) fn id(&self) -> Result<u32> {
        self.child.id().with_context(|| format!("{} has ended", self.part))
    }

    /// Resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        self.status_kib("VmRSS:")
    }

    /// The most resident memory there was, in KiB.
    pub(crate) fn peak_resident_kib(&self) -> Result<u64> {
        self.status_kib("VmHWM:")
    }

    fn status_kib(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        Ok(line.with_context(|| format!("a process has a {field}"))?.trim().trim_end_matches(" kB").parse()?)
    }

    /// Processor time since its start, of all threads, in user and kernel mode.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        processor_time(&self.id()?.to_string())
    }

    pub(crate) fn signal(&self, what: rustix::process::Signal) -> Result<()> {
        signal(self.id()?.try_into()?, what)
    }

    /// Stops all of its threads, and waits until they stand: one that waits for a processor when the signal comes goes
    /// on for a moment, and lets the others go on.
    pub(crate) async fn freeze(&self) -> Result<()> {
        self.signal(rustix::process::Signal::STOP)?;
        let threads = format!("/proc/{}/task", self.id()?);
        wait_for(&format!("{} stands still", self.part), FROZEN_WITHIN, async || {
            for thread in std::fs::read_dir(&threads)? {
                let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
                // The name before it is in parentheses, and may have some in it.
                let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
                ensure!(state == Some('T'), "a thread is in state {state:?}");
            }
            Ok(())
        })
        .await
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) -> Result<()> {
        self.signal(rustix::process::Signal::CONT)
    }

    /// Kills it without a word, and waits for its end.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("cannot kill {}", self.part))
    }

    /// Waits for its end, which it comes to by itself.
    pub(crate) async fn wait(&mut self, deadline: Duration) -> Result<std::process::ExitStatus> {
        let ended = tokio::time::timeout(deadline, self.child.wait()).await;
        Ok(ended.with_context(|| format!("{} does not end within {deadline:?}", self.part))??)
    }

    /// Sends SIGTERM and returns the exit status; an error when it does not end within `deadline`.
    pub(crate) async fn terminate(&mut self, deadline: Duration) -> Result<std::process::ExitStatus> {
        self.signal(rustix::process::Signal::TERM)?;
        self.wait(deadline).await.context("after SIGTERM")
    }

    /// An error that says so when it has ended.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(anyhow!("{} ended ({status}); its log is {}", self.part, self.log.display())),
        }
    }
}

/// Runs lines of `ip` in the switch's namespace or, with `-n NAME`, in another.
pub(crate) async fn ip_batch(options: &[&str], lines: &str) -> Result<()> {
    use tokio::io::AsyncWriteExt;
    let mut command = Command::new("ip");
    command.args(options).args(["-batch", "-"]).kill_on_drop(true);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("the child's input is a pipe")?;
    stdin.write_all(lines.as_bytes()).await?;
    drop(stdin);
    let output = tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output()).await??;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}\n{lines}", options.join(" "), said.trim());
    Ok(())
}

/// Runs a program in the switch's namespace.
pub(crate) async fn run<const N: usize>(program: &str, arguments: [&str; N]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments);
    output_of(command, &format!("{program} {}", arguments.join(" "))).await
}

/// What a command prints, once it has ended well.
pub(crate) async fn output_of(mut command: Command, shown: &str) -> Result<String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await;
    let output = output.with_context(|| format!("`{shown}` does not end"))?.with_context(|| format!("`{shown}`"))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let said = if err.trim().is_empty() { &out } else { &err };
    ensure!(output.status.success(), "`{shown}` failed ({}): {}", output.status, said.trim());
    Ok(out.into_owned())
}

fn signal(pid: i32, what: rustix::process::Signal) -> Result<()> {
    let pid = rustix::process::Pid::from_raw(pid).context("a process id is positive")?;
    match rustix::process::kill_process(pid, what) {
        // It ended meanwhile.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
