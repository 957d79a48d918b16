//! Many Services that wait when a controller starts.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

use super::{
    SOON,
    harness::{Lab, Stopwatch, control_plane::ApiRequest, namespace::Program},
    objects::{self, is_served},
    product::Product,
    watches::{Events, holder, until, watch_lease},
};

pub(crate) struct Burst {
    /// From the start of the process until it may act.
    pub(crate) start: Duration,
    /// From then until the first Service, and until all of them have an address.
    pub(crate) first: Duration,
    pub(crate) all: Duration,
    /// From its start until it has nothing left to write, which takes the bench some seconds to know.
    pub(crate) settled: Duration,
    pub(crate) processor: Duration,
    pub(crate) writes: Vec<ApiRequest>,
}

pub(crate) async fn measure(lab: &Lab, product: &Product, count: usize) -> Result<(Program, Burst)> {
    warm_up(lab, product).await?;
    objects::create(lab, "waits", None, count).await?;
    let written = product.writes(lab)?.len();
    let (events, first) = (objects::watch_all(lab).await?, objects::watch_all(lab).await?);
    let mut lease = watch_lease(lab.kube()).await?;
    let began = Stopwatch::start();
    let controller = product.spawn(lab)?;
    let elected = async {
        if product.is_elected() {
            until(&mut lease, |lease| !holder(lease).is_empty()).await?;
            return Ok(began.elapsed());
        }
        anyhow::Ok(Duration::ZERO)
    };
    let (start, first, all) =
        tokio::try_join!(elected, at(began, all_served(first, 1)), at(began, all_served(events, count)))?;
    product.settle(lab).await?;
    let writes = product.writes(lab)?.into_iter().skip(written).collect();
    let processor = controller.processor_time()?;
    let (first, all) = (first.saturating_sub(start), all.saturating_sub(start));
    Ok((controller, Burst { start, first, all, settled: began.elapsed(), processor, writes }))
}

/// Lets the product watch all that it watches once: at the first watch of a kind, the API server takes its time.
async fn warm_up(lab: &Lab, product: &Product) -> Result<()> {
    let mut events = objects::watch_all(lab).await?;
    let mut controller = product.spawn(lab)?;
    objects::create(lab, "first", None, 1).await?;
    until(&mut events, is_served).await?;
    objects::delete_all_but(lab, 0).await?;
    product.settle(lab).await?;
    controller.terminate(SOON).await?;
    Ok(())
}

/// The time from `began` until `step` has ended.
async fn at(began: Stopwatch, step: impl Future<Output = Result<()>>) -> Result<Duration> {
    step.await?;
    Ok(began.elapsed())
}

/// Waits until so many Services have an address.
pub(crate) async fn all_served(mut events: Events<Service>, count: usize) -> Result<()> {
    let mut seen = BTreeSet::new();
    until(&mut events, |service| {
        if is_served(service) {
            seen.insert(service.name_any());
        }
        seen.len() == count
    })
    .await
    .with_context(|| format!("{} of {count} Services have an address", seen.len()))
}
