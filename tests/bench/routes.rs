#![expect(clippy::disallowed_methods, reason = "shell: owns the task that reads what the kernel says")]
//! How fast an agent of a large cluster makes and repairs its routes, and what that costs, beside `ip -batch`;
//! `make bench-routes` runs it.
//!
//! The last line is one JSON object. Times of single routes are those between two messages of the kernel.

#[path = "../lab/harness/mod.rs"]
mod harness;

use std::{
    collections::BTreeMap,
    ops::Range,
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cairn::api::{EntryFlag, NodeRoute, NodeRouteSpec};
use futures_util::{StreamExt, TryStreamExt, stream};
use harness::{
    Lab, RouterKind, Stopwatch,
    cairn::AGENT,
    enclosure,
    namespace::{Namespace, Program, ip_batch},
    wait::stays,
    wait_for,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    sync::mpsc,
};

const SOON: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(3);
/// Two routes each.
const NODES: u16 = 5000;
/// The sizes at which a change is measured as well: it must not cost what the cluster is.
const SMALLER: [u16; 2] = [100, 1000];
const CHANGES: u16 = 200;
const REPAIRS: u16 = 200;
const CONCURRENT_WRITES: usize = 50;

fn main() -> ExitCode {
    enclosure::program("bench-routes", bench).into()
}

async fn bench() -> Result<()> {
    let nodes = nodes()?;
    let mut lab = Lab::builder().nodes(1).router(RouterKind::Bird).api_only().start().await?;
    lab.install_cairn().await?;
    lab.node("n1")?.initialize_by_hand().await?;
    let namespace = lab.node("n1")?.namespace().clone();
    let floor = floor(&namespace, nodes).await?;
    let routes: Api<NodeRoute> = Api::all(lab.kube().clone());
    let mut monitor = Monitor::start(&namespace).await?;
    let smaller: Vec<u16> = SMALLER.into_iter().filter(|count| *count < nodes).collect();
    let mut costs = in_a_cluster_that_grows(&mut lab, &routes, &mut monitor, &smaller).await?;

    create(&routes, smaller.last().copied().unwrap_or_default()..nodes).await?;
    println!("an agent that starts among {nodes} nodes");
    monitor.drain();
    let began = Stopwatch::start();
    lab.spawn_agent("n1")?;
    let (first, last) = monitor.added(2 * usize::from(nodes - 1)).await?;
    let start = began.elapsed();
    let programmed = first.elapsed().saturating_sub(last.elapsed());
    stays("time passes", QUIET, async || Ok(())).await?;
    monitor.drain();
    let resident = lab.node("n1")?.program(AGENT)?.resident_kib()?;
    let mut changed = changes(&mut lab, &routes, &mut monitor, nodes).await?;
    costs.insert(nodes, changed.cost);

    let mut repaired = Vec::new();
    for round in 0..REPAIRS {
        repaired.push(repair(&namespace, &mut monitor, 1 + round * 11 % (nodes - 1)).await?);
    }
    let agent = lab.node("n1")?.program(AGENT)?;
    agent.ensure_running()?;
    let figures = json!({
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "routes": 2 * u32::from(nodes - 1),
        "routes_10000_s": rounded(programmed.as_secs_f64()),
        "floor_ip_batch_s": rounded(floor.as_secs_f64()),
        "agent_start_to_all_s": rounded(start.as_secs_f64()),
        "node_change_ms_p50": milliseconds(percentile(&mut changed.followed, 50)?),
        "node_change_ms_p95": milliseconds(percentile(&mut changed.followed, 95)?),
        "routes_per_change": changed.messages as f64 / f64::from(CHANGES),
        "cpu_us_per_change": costs.iter().map(|(nodes, cost)| (nodes.to_string(), cost.as_micros())).collect::<BTreeMap<_, _>>(),
        "cpu_growth_ratio": growth(&costs),
        "repair_ms_p50": milliseconds(percentile(&mut repaired, 50)?),
        "repair_ms_p95": milliseconds(percentile(&mut repaired, 95)?),
        "rss_mb": mebibytes(resident),
        "peak_rss_mb": mebibytes(agent.peak_resident_kib()?),
    });
    for (name, value) in figures.as_object().into_iter().flatten() {
        println!("{name:<28} {value}");
    }
    println!("{figures}");
    Ok(())
}

/// What a change costs one agent while its cluster grows to each of these sizes. It leaves nothing behind.
async fn in_a_cluster_that_grows(
    lab: &mut Lab,
    routes: &Api<NodeRoute>,
    monitor: &mut Monitor,
    sizes: &[u16],
) -> Result<BTreeMap<u16, Duration>> {
    let mut costs = BTreeMap::new();
    let mut there = 0;
    for &nodes in sizes {
        println!("an agent whose cluster grows to {nodes} nodes");
        create(routes, there..nodes).await?;
        if there == 0 {
            lab.spawn_agent("n1")?;
        }
        monitor.added(2 * usize::from(nodes - there.max(1))).await?;
        stays("time passes", QUIET, async || Ok(())).await?;
        monitor.drain();
        costs.insert(nodes, changes(lab, routes, monitor, nodes).await?.cost);
        there = nodes;
    }
    if there > 0 {
        let node = lab.node("n1")?;
        node.program(AGENT)?.terminate(SOON).await?;
        let cairn = env!("CARGO_BIN_EXE_cairn");
        node.exec([cairn, "agent", "--cleanup", "--state-file", "/run/lab/n1/state.json"]).await?;
    }
    Ok(costs)
}

/// Adds the `NodeRoute`s of these nodes.
async fn create(routes: &Api<NodeRoute>, numbers: Range<u16>) -> Result<()> {
    let writes = stream::iter(numbers).map(|number| {
        let (routes, route) = (routes.clone(), node_route(number));
        async move { routes.create(&PostParams::default(), &route).await }
    });
    writes.buffer_unordered(CONCURRENT_WRITES).try_for_each(async |_| Ok(())).await.context("NodeRoutes")
}

/// What many changes of one node each came to.
struct Changed {
    /// From the request to the kernel's new route.
    followed: Vec<Duration>,
    /// What the kernel said of routes meanwhile.
    messages: usize,
    /// Processor time of the agent for one.
    cost: Duration,
}

async fn changes(lab: &mut Lab, routes: &Api<NodeRoute>, monitor: &mut Monitor, nodes: u16) -> Result<Changed> {
    let before = processor_time(lab.node("n1")?.program(AGENT)?)?;
    let (mut followed, mut messages) = (Vec::new(), 0);
    // Never the address that a node has, be it from a change in the smaller cluster.
    let first = 221 + 10 * SMALLER.iter().filter(|size| **size < nodes).count();
    for round in 0..CHANGES {
        let address = format!("10.90.0.{}", first + usize::from(round % 10));
        let (took, seen) = change(routes, monitor, 1 + round * 7 % (nodes - 1), address).await?;
        followed.push(took);
        messages += seen;
    }
    let cost = (processor_time(lab.node("n1")?.program(AGENT)?)? - before) / u32::from(CHANGES);
    ensure!(messages == usize::from(CHANGES), "{CHANGES} changes cost {messages} routes");
    Ok(Changed { followed, messages, cost })
}

/// Processor time of its threads: in nanoseconds, where `/proc/PID/stat` counts hundredths of a second.
fn processor_time(program: &Program) -> Result<Duration> {
    let mut all = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{}/task", program.id()?))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanoseconds = text.split_whitespace().next().context("a thread has its time")?;
        all += Duration::from_nanos(nanoseconds.parse()?);
    }
    Ok(all)
}

fn nodes() -> Result<u16> {
    match std::env::var("CAIRN_BENCH_NODES") {
        Ok(text) => text.parse().with_context(|| format!("CAIRN_BENCH_NODES={text}")),
        Err(_) => Ok(NODES),
    }
}

/// Node 0 is the one with the agent.
fn node_route(number: u16) -> NodeRoute {
    let name = if number == 0 { "n1".to_owned() } else { format!("far-{number}") };
    let spec = NodeRouteSpec {
        addresses: vec![gateway_v4(number), format!("fd90::{}", host(number))],
        pod_cidrs: vec![cidr_v4(number), format!("fd00:244:{number:x}::/64")],
        zone: None,
        entry: EntryFlag::Eligible,
        witnesses: Vec::new(),
    };
    NodeRoute::new(&name, spec)
}

/// The last part of a node's addresses. Nodes share them: what counts is how many routes there are.
fn host(number: u16) -> u16 {
    if number == 0 { 11 } else { 20 + number % 200 }
}

fn gateway_v4(number: u16) -> String {
    format!("10.90.0.{}", host(number))
}

fn cidr_v4(number: u16) -> String {
    format!("10.{}.{}.0/24", 100 + number / 256, number % 256)
}

/// How long `ip -batch` takes for as many routes.
async fn floor(namespace: &Namespace, nodes: u16) -> Result<Duration> {
    let add = |number: u16| {
        let NodeRouteSpec { addresses, pod_cidrs, .. } = node_route(number).spec;
        let both = pod_cidrs.into_iter().zip(addresses);
        both.map(|(cidr, via)| format!("route add {cidr} via {via} dev eth0 proto static metric 1024\n"))
            .collect::<String>()
    };
    let lines: String = (1..nodes).map(add).collect();
    let began = Stopwatch::start();
    namespace.ip(&lines).await?;
    let took = began.elapsed();
    ip_batch(&["-n", "n1"], &lines.replace("route add", "route del")).await?;
    Ok(took)
}

/// Another address for one node: the time from the request to the kernel's word, and how many words there were.
async fn change(
    routes: &Api<NodeRoute>,
    monitor: &mut Monitor,
    number: u16,
    address: String,
) -> Result<(Duration, usize)> {
    let mut spec = node_route(number).spec;
    spec.addresses[0] = address;
    let patch = json!({ "spec": { "addresses": spec.addresses } });
    let began = Stopwatch::start();
    routes.patch(&format!("far-{number}"), &PatchParams::default(), &Patch::Merge(patch)).await?;
    let want = format!("{} via {} ", cidr_v4(number), spec.addresses[0]);
    let mut others = 0;
    let seen = monitor.until(|line| {
        let is_it = line.starts_with(&want);
        others += usize::from(!is_it);
        is_it
    });
    let seen = seen.await?;
    Ok((began.elapsed().saturating_sub(seen.elapsed()), 1 + others))
}

/// Somebody deletes a route: the time between the kernel's two words.
async fn repair(namespace: &Namespace, monitor: &mut Monitor, number: u16) -> Result<Duration> {
    let cidr = cidr_v4(number);
    namespace.exec(["ip", "route", "del", &cidr]).await?;
    let (gone, back) = (format!("Deleted {cidr} "), format!("{cidr} via "));
    let gone = monitor.until(|line| line.starts_with(&gone)).await?;
    let back = monitor.until(|line| line.starts_with(&back)).await?;
    Ok(gone.elapsed().saturating_sub(back.elapsed()))
}

/// What the kernel says about routes, each line with when it came.
struct Monitor {
    lines: mpsc::UnboundedReceiver<(Stopwatch, String)>,
    _child: Child,
}

impl Monitor {
    async fn start(namespace: &Namespace) -> Result<Self> {
        let mut command = namespace.command("ip");
        // Room for all routes at once, or the kernel drops some of its words.
        command.args(["-rcvbuf", "67108864", "monitor", "route"]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("its output is a pipe")?).lines();
        let (said, mut lines) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = output.next_line().await {
                if said.send((Stopwatch::start(), line)).is_err() {
                    break;
                }
            }
        });
        wait_for("the monitor listens", SOON, async || {
            // What is there already is not said again.
            let _ = namespace.exec(["ip", "route", "del", "192.0.2.0/24"]).await;
            namespace.exec(["ip", "route", "add", "192.0.2.0/24", "via", "10.90.0.1"]).await?;
            lines.try_recv().context("it says nothing yet")
        })
        .await?;
        let mut monitor = Self { lines, _child: child };
        monitor.drain();
        Ok(monitor)
    }

    /// Waits for so many routes of ours; when the first came, and the last.
    async fn added(&mut self, routes: usize) -> Result<(Stopwatch, Stopwatch)> {
        let is_ours = |line: &str| line.contains("proto 202");
        let first = self.until(is_ours).await?;
        let mut last = first;
        for _ in 1..routes {
            last = self.until(is_ours).await?;
        }
        Ok((first, last))
    }

    async fn until(&mut self, mut is_it: impl FnMut(&str) -> bool) -> Result<Stopwatch> {
        let found = async {
            loop {
                let (at, line) = self.lines.recv().await.context("the monitor ended")?;
                if is_it(&line) {
                    return Ok(at);
                }
            }
        };
        tokio::time::timeout(SOON, found).await.context("the kernel says nothing of it")?
    }

    fn drain(&mut self) {
        while self.lines.try_recv().is_ok() {}
    }
}

/// What a change costs in the largest cluster, for each unit of what it costs in the smallest.
fn growth(costs: &BTreeMap<u16, Duration>) -> Option<f64> {
    let (smallest, largest) = costs.values().next().zip(costs.values().next_back())?;
    Some(rounded(largest.as_secs_f64() / smallest.as_secs_f64()))
}

fn percentile(times: &mut [Duration], percent: usize) -> Result<Duration> {
    times.sort_unstable();
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().context("nothing was measured")
}

fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

fn milliseconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1000.0)
}

fn mebibytes(kibibytes: u64) -> f64 {
    (kibibytes as f64 / 1024.0 * 10.0).round() / 10.0
}
