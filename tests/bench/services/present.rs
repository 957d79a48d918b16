//! What one change costs where many Services are served already.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    conditions,
    crowd::each,
    harness::{Lab, Stopwatch, control_plane::ApiRequest, kubelet, namespace::Program},
    objects::{self, NAMESPACE, is_served, services},
    product::Product,
    watches::{holder, until, watch_lease},
};

/// How often the way of one new Service is measured.
const REPEATED: usize = 50;
const CHANGING_CLIENTS: usize = 8;
const NODE: &str = "bench-node";

/// From the API server's answer to a creation until the Service has its address.
pub(crate) struct Latency {
    pub(crate) median: Duration,
    pub(crate) ninety_fifth: Duration,
}

pub(crate) async fn latency(lab: &Lab) -> Result<Latency> {
    let api = services(lab);
    let mut events = objects::watch_all(lab).await?;
    let mut all = Vec::new();
    for number in 0..REPEATED {
        let name = format!("z-single-{number}");
        api.create(&PostParams::default(), &objects::service(&name, None)?).await?;
        let answered = Stopwatch::start();
        until(&mut events, |service| service.name_any() == name && is_served(service)).await?;
        all.push(answered.elapsed());
    }
    drop(events);
    for number in 0..REPEATED {
        api.delete(&format!("z-single-{number}"), &DeleteParams::default()).await?;
    }
    all.sort();
    let quantile = |percent: usize| all.get((all.len() * percent / 100).min(all.len() - 1)).copied();
    Ok(Latency {
        median: quantile(50).context("a Service was measured")?,
        ninety_fifth: quantile(95).context("a Service was measured")?,
    })
}

/// The controller's processor time for one change of a Service that asks for nothing.
pub(crate) async fn processor_per_change(
    lab: &Lab,
    product: &Product,
    controller: &Program,
    changes: usize,
) -> Result<Duration> {
    product.settle(lab).await?;
    let api = services(lab);
    let names: Vec<_> =
        api.list_metadata(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
    let used = controller.processor_time()?;
    each(CHANGING_CLIENTS, changes, move |number| {
        let (api, name) = (api.clone(), names[number % names.len()].clone());
        async move {
            let body = json!({ "metadata": { "annotations": { "cairn.dev/bench": number.to_string() } } });
            api.patch(&name, &PatchParams::default(), &Patch::Merge(body)).await?;
            anyhow::Ok(())
        }
    })
    .await?;
    product.settle(lab).await?;
    Ok((controller.processor_time()? - used) / u32::try_from(changes)?)
}

/// What a Node that comes and goes costs the Services.
pub(crate) struct NodeChange {
    /// Writes and Events in the namespace of the Services.
    pub(crate) writes: usize,
}

pub(crate) async fn change_of_nodes(lab: &Lab, count: usize) -> Result<NodeChange> {
    let product = Product::Cairn;
    product.settle(lab).await?;
    let before = written(lab, &product, count)?.len();
    kubelet::register(lab.kube(), NODE).await?;
    product.settle(lab).await?;
    Api::<Node>::all(lab.kube().clone()).delete(NODE, &DeleteParams::default()).await?;
    product.settle(lab).await?;
    let writes = written(lab, &product, count)?;
    Ok(NodeChange { writes: writes.iter().skip(before).filter(|write| write.namespace == NAMESPACE).count() })
}

/// What was written so far. Among so many Services that not all of them have been waited for, what their conditions
/// say is still being written, and does not count.
fn written(lab: &Lab, product: &Product, count: usize) -> Result<Vec<ApiRequest>> {
    if count > conditions::WAITED_FOR { product.writes(lab) } else { product.all_writes(lab) }
}

/// A start with many Services that are served, and one that is not.
pub(crate) struct Restart {
    /// From the moment at which it may act until the new Service has its address.
    pub(crate) first: Duration,
    /// Writes about the others.
    pub(crate) writes: usize,
}

pub(crate) async fn restart(lab: &Lab, product: &Product, count: usize) -> Result<(Program, Restart)> {
    const NEW: &str = "z-new";
    let before = written(lab, product, count)?.len();
    services(lab).create(&PostParams::default(), &objects::service(NEW, None)?).await?;
    let (mut events, mut lease) = (objects::watch_all(lab).await?, watch_lease(lab.kube()).await?);
    let began = Stopwatch::start();
    let controller = product.spawn(lab)?;
    let mut start = Duration::ZERO;
    if product.is_elected() {
        until(&mut lease, |lease| !holder(lease).is_empty()).await?;
        start = began.elapsed();
    }
    until(&mut events, |service| service.name_any() == NEW && is_served(service)).await?;
    let first = began.elapsed() - start;
    drop((events, lease));
    product.settle(lab).await?;
    let writes = written(lab, product, count)?;
    let about_others = writes.iter().skip(before).filter(|write| {
        // An Event's name begins with that of what it is about.
        write.namespace == NAMESPACE && !write.name.starts_with(NEW)
    });
    let restart = Restart { first, writes: about_others.count() };
    services(lab).delete(NEW, &DeleteParams::default()).await?;
    Ok((controller, restart))
}
