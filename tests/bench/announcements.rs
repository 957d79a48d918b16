//! What a change of one Service costs an agent that announces many addresses and has learned many routes;
//! `make bench-announcements` runs it.
//!
//! One agent's cluster grows to 100, 1,000 and 10,000 announced addresses, each of a Service of its own. At each size
//! Services get another address, one after the other, and a router that the agent announces to says when it has heard of it.
//! The last line is one JSON object.

#[path = "../lab/harness/mod.rs"]
mod harness;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    ops::Range,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cairn::api::{BgpPeer, EntryFlag, NodeReport, NodeRoute, NodeRouteSpec};
use futures_util::{StreamExt, TryStreamExt, stream};
use harness::{
    Lab, RouterKind, Stopwatch,
    address::{NODE_ASN, ROUTER_ASN},
    cairn::AGENT,
    enclosure,
    namespace::Program,
    uplink::Make,
    wait::stays,
    wait_for,
};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

const SOON: Duration = Duration::from_secs(120);
const QUIET: Duration = Duration::from_secs(3);
/// The sizes at which a change is measured: it must not cost what there is.
const ADDRESSES: [u32; 3] = [100, 1_000, 10_000];
const LEARNED: u32 = 2_000;
const CHANGES: u32 = 100;
const CONCURRENT_WRITES: usize = 50;

fn main() -> ExitCode {
    enclosure::program("bench-announcements", bench).into()
}

async fn bench() -> Result<()> {
    let most = most()?;
    let mut lab = Lab::builder().nodes(1).router(RouterKind::Bird).api_only().start().await?;
    lab.install_cairn().await?;
    lab.node("n1")?.initialize_by_hand().await?;
    lab.apply_pool_and_peer().await?;
    let learned: Vec<String> = (0..LEARNED).map(|number| format!("{}/32", address(100, number))).collect();
    let learned: Vec<&str> = learned.iter().map(String::as_str).collect();
    let uplink = lab.start_uplink(Make::Bird, 2, ROUTER_ASN + 2, &learned).await?;
    let peer = json!({ "metadata": { "name": "uplink" }, "spec": {
        "localAsn": NODE_ASN, "peerAsn": uplink.asn(), "address": uplink.host().v4(),
        "import": { "prefixes": [{ "prefix": "100.0.0.0/8", "le": 32 }], "maxPrefixes": 2 * LEARNED },
    } });
    let peers: Api<BgpPeer> = Api::all(lab.kube().clone());
    peers.create(&PostParams::default(), &serde_json::from_value(peer)?).await?;
    let routes: Api<NodeRoute> = Api::all(lab.kube().clone());
    routes.create(&PostParams::default(), &own_route()).await?;
    lab.spawn_agent("n1")?;

    let (mut costs, mut followed, mut there) = (BTreeMap::new(), Vec::new(), 0);
    for size in ADDRESSES.into_iter().filter(|size| *size <= most) {
        println!("an agent that announces {size} addresses, and has learned {LEARNED} routes");
        create(lab.kube(), there..size).await?;
        there = size;
        is_settled(&lab, size).await?;
        stays("time passes", QUIET, async || Ok(())).await?;
        costs.insert(size, changes(&mut lab, size, &mut followed).await?);
    }
    let agent = lab.node("n1")?.program(AGENT)?;
    agent.ensure_running()?;
    followed.sort_unstable();
    let percentile = |percent: usize| followed.get(followed.len() * percent / 100).copied().unwrap_or_default();
    let growth = costs.values().next_back().zip(costs.values().next());
    let figures = json!({
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "learned_routes": LEARNED,
        "cpu_us_per_change": costs.iter().map(|(size, cost)| (size.to_string(), cost.as_micros())).collect::<BTreeMap<_, _>>(),
        "cpu_growth_ratio": growth.map(|(last, first)| rounded(last.as_secs_f64() / first.as_secs_f64())),
        "change_ms_p50": rounded(percentile(50).as_secs_f64() * 1000.0),
        "change_ms_p95": rounded(percentile(95).as_secs_f64() * 1000.0),
        "rss_mb": rounded(agent.resident_kib()? as f64 / 1024.0),
    });
    for (name, value) in figures.as_object().into_iter().flatten() {
        println!("{name:<28} {value}");
    }
    println!("{figures}");
    Ok(())
}

fn most() -> Result<u32> {
    match std::env::var("CAIRN_BENCH_ADDRESSES") {
        Ok(text) => text.parse().with_context(|| format!("CAIRN_BENCH_ADDRESSES={text}")),
        Err(_) => Ok(ADDRESSES[ADDRESSES.len() - 1]),
    }
}

fn own_route() -> NodeRoute {
    let spec = NodeRouteSpec {
        addresses: vec!["10.90.0.11".to_owned(), "fd90::11".to_owned()],
        pod_cidrs: vec!["10.244.0.0/24".to_owned()],
        zone: None,
        entry: EntryFlag::Eligible,
        witnesses: Vec::new(),
    };
    NodeRoute::new("n1", spec)
}

/// Addresses of Services are in 60.0.0.0/8, the routes that a router tells of in 100.0.0.0/8.
fn address(network: u8, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(network) << 24 | number)
}

fn name(number: u32) -> String {
    format!("s-{number}")
}

/// Adds these Services, each with an address and a ready endpoint.
async fn create(client: &Client, numbers: Range<u32>) -> Result<()> {
    let writes = stream::iter(numbers).map(|number| {
        let client = client.clone();
        async move {
            let services: Api<Service> = Api::default_namespaced(client.clone());
            let slices: Api<EndpointSlice> = Api::default_namespaced(client);
            let slice = json!({
                "metadata": { "name": name(number), "labels": { "kubernetes.io/service-name": name(number) } },
                "addressType": "IPv4",
                "endpoints": [{ "addresses": ["10.244.0.9"], "nodeName": "n1", "conditions": { "ready": true } }],
            });
            slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;
            let service = json!({
                "metadata": { "name": name(number) },
                "spec": { "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{ "port": 80 }] },
            });
            services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
            give(&services, number, address(60, number)).await
        }
    });
    writes.buffer_unordered(CONCURRENT_WRITES).try_for_each(async |()| Ok(())).await.context("Services")
}

/// Gives a Service an address, as the leader does.
async fn give(services: &Api<Service>, number: u32, address: Ipv4Addr) -> Result<()> {
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
    services.patch_status(&name(number), &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// Waits until the agent says that it announces and has learned all that.
async fn is_settled(lab: &Lab, size: u32) -> Result<()> {
    let last = format!("{}/32", address(60, size - 1));
    lab.router()?.wait_for_next_hops(&last, [IpAddr::from([10, 90, 0, 11])], SOON).await?;
    let reports: Api<NodeReport> = Api::all(lab.kube().clone());
    wait_for("the agent has announced and learned everything", SOON, async || {
        let bgp = reports.get("n1").await?.status.unwrap_or_default().bgp;
        ensure!(bgp.established == 2 && bgp.imported == LEARNED && bgp.announced > size, "{bgp:?}");
        Ok(())
    })
    .await
}

/// What one of many changes of one Service each costs the agent in processor time.
async fn changes(lab: &mut Lab, size: u32, followed: &mut Vec<Duration>) -> Result<Duration> {
    let services: Api<Service> = Api::default_namespaced(lab.kube().clone());
    let before = processor_time(lab.node("n1")?.program(AGENT)?)?;
    for round in 0..CHANGES {
        let number = (round * 37) % size;
        // Never one that a Service has, or had at another size.
        let new = address(60, 1_000_000 + size * CHANGES + round);
        let began = Stopwatch::start();
        give(&services, number, new).await?;
        lab.router()?.wait_for_next_hops(&format!("{new}/32"), [IpAddr::from([10, 90, 0, 11])], SOON).await?;
        followed.push(began.elapsed());
    }
    Ok((processor_time(lab.node("n1")?.program(AGENT)?)? - before) / CHANGES)
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

fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
