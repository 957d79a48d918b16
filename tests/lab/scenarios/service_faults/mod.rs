//! What goes wrong while Services get their addresses, and what nobody loses by it.
//!
//! A write to a Service is one patch of its status with finalizer, addresses and term in it, and the Event follows its
//! answer: there is no moment between finalizer and status in which a leader could die, and one that dies before its
//! Event leaves a Service that is served.

mod churn;
mod leaders;
mod refusals;
mod restarts;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cairn::{api::AddressPool, model::Scope};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{QUICK_LEASE, SOON};
use crate::harness::{Lab, allocation::ensure_sound, wait::stays, wait_for};

/// So many Services are made at once.
const BURST: usize = 300;
/// For all of them, on a busy machine and with a Lease to wait for.
const BURST_SERVED_WITHIN: Duration = Duration::from_secs(60);

/// A control plane and Cairn's objects; no nodes, and no controller yet.
async fn lab() -> Result<Lab> {
    let mut lab = Lab::builder().api_only().start().await?;
    lab.install_cairn().await?;
    Ok(lab)
}

fn services(lab: &Lab) -> Api<Service> {
    Api::default_namespaced(lab.kube().clone())
}

/// A pool whose addresses can be given again at once.
async fn create_pool(lab: &Lab, name: &str, addresses: &str) -> Result<()> {
    let spec = json!({ "addresses": [addresses], "reuseAfterSeconds": 0 });
    let pool = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
    Api::<AddressPool>::all(lab.kube().clone()).create(&PostParams::default(), &pool).await?;
    Ok(())
}

fn service(name: &str, annotations: Value, class: Option<&str>) -> Result<Service> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": class,
            "allocateLoadBalancerNodePorts": false,
            "ports": [{ "port": 80 }],
        },
    }))?)
}

async fn create(lab: &Lab, name: &str, annotations: Value) -> Result<()> {
    services(lab).create(&PostParams::default(), &service(name, annotations, None)?).await?;
    Ok(())
}

async fn create_burst(lab: &Lab) -> Result<()> {
    let creating = (0..BURST).map(|number| async move { create(lab, &format!("burst-{number:03}"), json!({})).await });
    stream::iter(creating).buffer_unordered(16).try_collect().await
}

async fn patch(lab: &Lab, name: &str, body: Value) -> Result<()> {
    services(lab).patch(name, &PatchParams::default(), &Patch::Merge(body)).await?;
    Ok(())
}

async fn patch_status(lab: &Lab, name: &str, body: Value) -> Result<()> {
    services(lab).patch_status(name, &PatchParams::default(), &Patch::Merge(body)).await?;
    Ok(())
}

async fn delete(lab: &Lab, name: &str) -> Result<()> {
    services(lab).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

fn addresses_of(service: &Service) -> Vec<String> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    ingress.iter().filter_map(|entry| entry.ip.clone()).collect()
}

async fn addresses(lab: &Lab, name: &str) -> Result<Vec<String>> {
    Ok(addresses_of(&services(lab).get(name).await?))
}

async fn has(lab: &Lab, name: &str, wanted: &[&str]) -> Result<()> {
    let addresses = addresses(lab, name).await?;
    ensure!(addresses == wanted, "Service {name} has {addresses:?}");
    Ok(())
}

async fn comes_to_have(lab: &Lab, name: &str, wanted: &[&str]) -> Result<()> {
    wait_for(&format!("Service {name} has {wanted:?}"), SOON, async || has(lab, name, wanted).await).await
}

/// How many Services have addresses.
async fn served(lab: &Lab) -> Result<usize> {
    let all = services(lab).list(&ListParams::default()).await?;
    Ok(all.iter().filter(|service| !addresses_of(service).is_empty()).count())
}

/// Waits until a burst has begun to be served and is not over.
async fn in_the_middle_of_it(lab: &Lab) -> Result<()> {
    wait_for("some Services have addresses", SOON, async || {
        let served = served(lab).await?;
        ensure!(served > 0, "none has");
        Ok(())
    })
    .await
}

async fn all_served(lab: &Lab, count: usize) -> Result<()> {
    wait_for(&format!("all {count} Services have addresses"), BURST_SERVED_WITHIN, async || {
        let served = served(lab).await?;
        ensure!(served == count, "{served} have");
        Ok(())
    })
    .await
}

/// Waits until Services, pools and allocator agree, and sees that they go on to.
async fn all_is_sound(lab: &Lab, scope: Scope) -> Result<()> {
    // Long enough for what is written with a delay.
    const A_WHILE: Duration = Duration::from_secs(3);
    wait_for("Services, pools and allocator agree", SOON, async || ensure_sound(lab, scope).await).await?;
    stays("Services, pools and allocator agree", A_WHILE, async || ensure_sound(lab, scope).await).await
}

/// Waits until a Service is gone.
async fn gone(lab: &Lab, name: &str) -> Result<()> {
    wait_for(&format!("Service {name} is gone"), SOON, async || {
        let service = services(lab).get_opt(name).await?;
        ensure!(service.is_none(), "{:?}", service.map(|service| service.metadata));
        Ok(())
    })
    .await
}

async fn uid(lab: &Lab, name: &str) -> Result<String> {
    services(lab).get(name).await?.uid().context("a uid")
}
