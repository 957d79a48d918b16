//! How fast the controller serves many Services at once, and what that costs; `make bench-services` runs it.
//!
//! Three measures in one lab, one after the other: the floor, which is what a client that decides nothing needs for
//! the same writes; the controller; and MetalLB's controller with at most 1,000 Services, where
//! `tests/lab/build-metallb` has built it. The lab has none of Kubernetes' own controllers, so that the API server
//! works for nobody else. The last line is one JSON object with every target and whether it was met; the targets are
//! for 10,000 Services (`CAIRN_BENCH_SERVICES=10000`) and a release build.

#[path = "services/burst.rs"]
mod burst;
#[path = "services/conditions.rs"]
mod conditions;
#[path = "services/objects.rs"]
mod objects;
#[path = "crowd.rs"]
mod crowd;
#[path = "services/figures.rs"]
mod figures;
#[path = "services/floor.rs"]
mod floor;
#[path = "../lab/harness/mod.rs"]
#[expect(unused_imports, reason = "this lab has no router")]
mod harness;
#[path = "services/present.rs"]
mod present;
#[path = "services/product.rs"]
mod product;
#[path = "many_nodes/targets.rs"]
mod targets;
#[path = "watches.rs"]
mod watches;

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use burst::Burst;
use conditions::Conditions;
use floor::Floor;
use harness::{Lab, enclosure, metallb::MetalLb};
use present::{Latency, NodeChange, Restart};
use product::Product;

const DEFAULT_COUNT: usize = 1000;
/// With more, the API server would begin a second file of its audit log.
const MOST: usize = 10_000;
/// MetalLB is measured with no more than this: with five times as many it takes minutes.
const MOST_FOR_METALLB: usize = 1000;
/// Changes of Services that ask for nothing, by which the cost of one is measured.
const CHANGES: usize = 1000;
const SOON: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    enclosure::program("bench-services", bench).into()
}

async fn bench() -> Result<()> {
    let count = service_count()?;
    let mut lab = Lab::builder().api_only().start().await?;
    lab.install_cairn().await?;
    objects::prepare(&lab).await?;
    println!("the floor: {count} Services, one write each");
    let floor = floor::measure(&lab, count).await?;
    let cairn = measure_cairn(&lab, count).await?;
    let metallb = match MetalLb::install(lab.control_plane()).await {
        Ok(metallb) => Some(measure_metallb(&lab, metallb, count.min(MOST_FOR_METALLB)).await?),
        Err(error) => {
            println!("MetalLB is not measured: {error:#}");
            None
        }
    };
    println!("{}", figures::print(&Measured { count, floor, cairn, metallb }));
    Ok(())
}

/// All that one run finds out.
struct Measured {
    count: usize,
    floor: Floor,
    cairn: Cairn,
    metallb: Option<Other>,
}

/// What the controller does with all the Services, and then with fewer and fewer.
struct Cairn {
    burst: Burst,
    conditions: Conditions,
    /// With all of them, a tenth, and a hundredth; no fewer than a hundred.
    rungs: Vec<Rung>,
    node: NodeChange,
    restart: Restart,
    peak_resident_kib: u64,
}

/// One Service among so many.
struct Rung {
    present: usize,
    latency: Latency,
    processor_per_change: Duration,
}

struct Other {
    present: usize,
    burst: Burst,
    latency: Latency,
    restart: Restart,
    peak_resident_kib: u64,
}

fn service_count() -> Result<usize> {
    let count = match std::env::var("CAIRN_BENCH_SERVICES") {
        Ok(text) => text.parse().with_context(|| format!("CAIRN_BENCH_SERVICES: {text:?} is no number"))?,
        Err(_) => DEFAULT_COUNT,
    };
    ensure!((10..=MOST).contains(&count), "CAIRN_BENCH_SERVICES is {count}; from 10 to {MOST} can be measured");
    Ok(count)
}

async fn measure_cairn(lab: &Lab, count: usize) -> Result<Cairn> {
    let product = Product::Cairn;
    product.apply_pool(lab).await?;
    println!("the controller: {count} Services wait when it starts");
    let (mut controller, burst) = burst::measure(lab, &product, count).await?;
    println!("what their conditions say is written");
    let conditions = conditions::measure(lab, count).await?;
    println!("a Node comes and goes");
    let node = present::change_of_nodes(lab, count).await?;
    println!("a start with {count} Services that are served");
    controller.terminate(SOON).await?;
    let restart;
    (controller, restart) = present::restart(lab, &product, count).await?;
    let mut rungs = Vec::new();
    let mut present = count;
    loop {
        println!("one Service among {present}");
        let latency = present::latency(lab).await?;
        let processor_per_change = present::processor_per_change(lab, &product, &controller, CHANGES).await?;
        rungs.push(Rung { present, latency, processor_per_change });
        if present / 10 < 100 {
            break;
        }
        present /= 10;
        objects::delete_all_but(lab, present).await?;
        product.settle(lab).await?;
    }
    let peak_resident_kib = controller.peak_resident_kib()?;
    objects::delete_all_but(lab, 0).await?;
    controller.terminate(SOON).await?;
    Ok(Cairn { burst, conditions, rungs, node, restart, peak_resident_kib })
}

async fn measure_metallb(lab: &Lab, metallb: MetalLb, count: usize) -> Result<Other> {
    let product = Product::MetalLb(metallb);
    product.apply_pool(lab).await?;
    println!("MetalLB: {count} Services wait when it starts");
    let (mut controller, burst) = burst::measure(lab, &product, count).await?;
    println!("MetalLB: one Service among {count}");
    let latency = present::latency(lab).await?;
    println!("MetalLB: a start with {count} Services that are served");
    controller.kill().await?;
    let restart;
    (controller, restart) = present::restart(lab, &product, count).await?;
    let peak_resident_kib = controller.peak_resident_kib()?;
    objects::delete_all_but(lab, 0).await?;
    Ok(Other { present: count, burst, latency, restart, peak_resident_kib })
}
