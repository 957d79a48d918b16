//! The demo: three machines without a cloud, and a client outside that gets its answer. A line a step.
//!
//! `make demo` runs it. With `KEEP=1` the lab stays up and says how to look around.

mod harness;

use std::{collections::BTreeMap, net::IpAddr, process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use harness::{
    Lab, RouterKind, Stopwatch,
    address::in_url,
    binaries,
    client::Client,
    enclosure::{self, WORK},
    node::{Death, Node},
    service::{self, ExternalTrafficPolicy, Service, host_prefix},
    wait_for,
};

const SOON: Duration = Duration::from_secs(30);
const NODES: [&str; 3] = ["n1", "n2", "n3"];
const VICTIM: &str = "n3";

fn main() -> ExitCode {
    enclosure::program("demo", demo).into()
}

async fn demo() -> Result<()> {
    let mut narrator = Narrator::default();
    let mut lab = raise_lab(&mut narrator).await?;
    start_cairn(&mut lab, &mut narrator).await?;
    show_nodes(&lab, &mut narrator).await?;
    lab.start_proxies().await?;
    for (number, node) in (1..).zip(NODES) {
        lab.start_pod(node, &format!("web-{number}"), "web").await?;
    }
    narrator.step("pods web-1..3", "run, one on each node, behind a real kube-proxy");
    let addresses = show_service(&lab, &mut narrator).await?;
    kill_a_node(&mut lab, addresses, &mut narrator).await?;
    println!("\nDone in {:.1} s.", narrator.began.elapsed().as_secs_f64());
    if std::env::var("KEEP").is_ok_and(|keep| keep == "1") {
        keep(&lab, addresses)?;
        std::future::pending::<()>().await;
    }
    Ok(())
}

async fn raise_lab(narrator: &mut Narrator) -> Result<Lab> {
    println!("Three machines, a router, a client outside; no cloud.\n");
    let mut lab = Lab::builder().router(RouterKind::Bird).client().start().await?;
    narrator.step("control plane", "answers at https://10.90.0.10:6443; BIRD routes, a client waits behind it");
    for number in 1..=3 {
        lab.add_node(number).await?;
        narrator.step(&format!("machine n{number}"), "registered as a kubelet does it: tainted, without addresses");
    }
    Ok(lab)
}

async fn start_cairn(lab: &mut Lab, narrator: &mut Narrator) -> Result<()> {
    lab.install_cairn().await?;
    lab.apply_pool_and_peer().await?;
    narrator.step("manifests", "applied: CRDs, RBAC, and the pool and the peer of examples/flat-lan");
    lab.spawn_controller()?;
    lab.spawn_agents()?;
    narrator.step("cairn", "controller started, and an agent on each node");
    Ok(())
}

async fn show_nodes(lab: &Lab, narrator: &mut Narrator) -> Result<()> {
    for node in lab.nodes() {
        node.wait_until_initialized().await?;
        let provider_id = node.object().await?.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
        let (v4, v6) = (node.host().v4(), node.host().v6());
        narrator.step(&format!("node {}", node.name()), &format!("initialized: {provider_id} at {v4} and {v6}"));
    }
    for node in lab.nodes() {
        wait_for(&format!("{}'s network is available", node.name()), SOON, async || network_available(node).await)
            .await?;
    }
    let first = lab.nodes().next().context("the lab has nodes")?;
    narrator.step("routes", "programmed on every node (NetworkUnavailable=False); the kernel of n1 says:");
    for family in ["-4", "-6"] {
        let routes = first.exec(["ip", family, "route", "show", "proto", "202"]).await?;
        narrator.quote(&format!("ip {family} route show proto 202"), &routes);
    }
    Ok(())
}

async fn network_available(node: &Node) -> Result<()> {
    let status = node.object().await?.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let condition = conditions.into_iter().find(|condition| condition.type_ == "NetworkUnavailable");
    ensure!(condition.as_ref().is_some_and(|condition| condition.status == "False"), "{condition:?}");
    Ok(())
}

async fn show_service(lab: &Lab, narrator: &mut Narrator) -> Result<[IpAddr; 2]> {
    let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
    let addresses = web.wait_for_addresses(SOON).await?;
    narrator.step("service web", &format!("got {} and {}", addresses[0], addresses[1]));
    for address in addresses {
        show_next_hops(lab, address, &NODES, narrator).await?;
    }
    for address in addresses {
        let answers = wait_for(&format!("{address} is answered from every node"), SOON, async || {
            let answers = lab.client()?.answers_by_node(address, service::PORT, 20).await?;
            ensure!(answers.len() == NODES.len(), "answers from {answers:?}");
            Ok(answers)
        })
        .await?;
        narrator.step("client", &format!("20 × curl http://{}/ answered by {}", in_url(address), counts(&answers)));
    }
    Ok(addresses)
}

async fn kill_a_node(lab: &mut Lab, addresses: [IpAddr; 2], narrator: &mut Narrator) -> Result<()> {
    lab.node(VICTIM)?.kill(Death::Silent).await?;
    narrator.step(&format!("node {VICTIM}"), "killed: its cable is cut, every process is dead, nobody is told");
    for address in addresses {
        show_next_hops(lab, address, &["n1", "n2"], narrator).await?;
    }
    for address in addresses {
        let (lost, answers) = answers_in_a_row(lab.client()?, address).await?;
        let url = in_url(address);
        narrator.step(
            "client",
            &format!("20 × curl http://{url}/ answered by {}, after {lost} unanswered", counts(&answers)),
        );
    }
    Ok(())
}

async fn show_next_hops(lab: &Lab, address: IpAddr, names: &[&str], narrator: &mut Narrator) -> Result<()> {
    let hosts = lab.nodes().filter(|node| names.contains(&node.name())).map(Node::host);
    let wanted: Vec<IpAddr> =
        hosts.map(|host| if address.is_ipv4() { host.v4().into() } else { host.v6().into() }).collect();
    let prefix = host_prefix(address);
    lab.router()?.wait_for_next_hops(&prefix, wanted.iter().copied(), SOON).await?;
    let hops: Vec<_> = wanted.iter().map(IpAddr::to_string).collect();
    narrator.step("router", &format!("{prefix} via {} ({})", hops.join(", "), names.join(", ")));
    Ok(())
}

/// Twenty answers in a row, and how many requests before that got none: until the cluster takes a dead node's pods
/// out of the endpoints, the living nodes still send some of the connections there.
async fn answers_in_a_row(client: &Client, address: IpAddr) -> Result<(u32, BTreeMap<String, u32>)> {
    let mut lost = 0;
    let answers = wait_for(&format!("{address} is answered again"), SOON, async || {
        let answers = client.answers_by_node(address, service::PORT, 20).await;
        lost += u32::from(answers.is_err());
        answers
    })
    .await?;
    Ok((lost, answers))
}

fn counts(answers: &BTreeMap<String, u32>) -> String {
    let counts: Vec<_> = answers.iter().map(|(node, count)| format!("{node} {count}×")).collect();
    counts.join(", ")
}

/// Lines that can be pasted into another terminal.
fn keep(lab: &Lab, addresses: [IpAddr; 2]) -> Result<()> {
    let way_in = enclosure::way_in()?;
    let kubectl = lab.control_plane().binaries().path("kubectl")?.display();
    let kubeconfig = lab.control_plane().admin_kubeconfig().display();
    println!("\nThe lab stays up. To look around from another terminal:");
    println!("  {way_in} {kubectl} --cache-dir {WORK}/cache --kubeconfig {kubeconfig} get nodes,services -o wide");
    let cairn = format!("{way_in} env KUBECONFIG={kubeconfig} {}", env!("CARGO_BIN_EXE_cairn"));
    println!("  {cairn} status");
    println!("  {cairn} explain service default/web");
    let birdc = binaries::program("birdc");
    println!("  {way_in} ip netns exec r {} -s {WORK}/bird.ctl show route", birdc.display());
    println!("  {way_in} ip netns exec n1 ip route show proto 202");
    for address in addresses {
        println!("  {way_in} ip netns exec c curl -gs 'http://{}/'", in_url(address));
    }
    println!("  tail -f {}/*", enclosure::logs().display());
    println!("Ctrl-C ends it, and nothing of it is left.");
    Ok(())
}

/// Says what happened, and how long after the line before.
struct Narrator {
    began: Stopwatch,
    step: Stopwatch,
}

impl Default for Narrator {
    fn default() -> Self {
        Self { began: Stopwatch::start(), step: Stopwatch::start() }
    }
}

impl Narrator {
    fn step(&mut self, subject: &str, what: &str) {
        println!("{:>7.0} ms  {subject:<14} {what}", self.step.elapsed().as_secs_f64() * 1e3);
        self.step = Stopwatch::start();
    }

    fn quote(&self, command: &str, answer: &str) {
        println!("{:26} $ {command}", "");
        for line in answer.lines() {
            println!("{:26} {line}", "");
        }
    }
}
