//! What the API server takes from a client that has nothing to decide.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    burst::all_served,
    crowd::each,
    harness::{Lab, Stopwatch},
    objects::{self, NAMESPACE, WORKERS},
};

/// A class that nobody serves.
const NOBODY: &str = "bench.cairn.dev/nobody";

pub(crate) struct Floor {
    /// Until the Services exist.
    pub(crate) create: Duration,
    /// Until the write of each is answered.
    pub(crate) write: Duration,
}

pub(crate) async fn measure(lab: &Lab, count: usize) -> Result<Floor> {
    let began = Stopwatch::start();
    objects::create(lab, "floor", Some(NOBODY), count).await?;
    let create = began.elapsed();
    let api: Api<Service> = Api::namespaced(lab.cairn()?.controller_client().await?, NAMESPACE);
    let items = api.list_metadata(&ListParams::default()).await?.items;
    let versions: Vec<_> = items.iter().map(|item| (item.name_any(), item.resource_version())).collect();
    let events = objects::watch_all(lab).await?;
    let began = Stopwatch::start();
    let written = each(WORKERS, count, move |number| {
        let (name, version) = versions[number - 1].clone();
        write(api.clone(), number, name, version)
    });
    // The watch of the bench costs the floor what it costs the controller.
    tokio::try_join!(written, all_served(events, count))?;
    let write = began.elapsed();
    objects::delete_all_but(lab, 0).await?;
    Ok(Floor { create, write })
}

/// The controller's write, of the same size; in place of the finalizer an annotation, which nobody has to take off.
async fn write(api: Api<Service>, number: usize, name: String, version: Option<String>) -> Result<()> {
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 70, 0, 0).to_bits() + u32::try_from(number)?);
    let params = PatchParams { field_manager: Some("floor".to_owned()), ..PatchParams::default() };
    let body = json!({
        "metadata": {
            "resourceVersion": version,
            "annotations": {
                "bench.cairn.dev/allocation": format!("1.{number}"),
                "bench.cairn.dev/finalizer": "service.kubernetes.io/load-balancer-cleanup",
            },
        },
        "status": {
            "loadBalancer": { "ingress": [{ "ip": address, "ipMode": "VIP" }] },
            "conditions": [{
                "type": "bench.cairn.dev/AddressAssigned",
                "status": "True",
                "reason": "Assigned",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    });
    api.patch_status(&name, &params, &Patch::Merge(body)).await.with_context(|| format!("Service {name}"))?;
    Ok(())
}
