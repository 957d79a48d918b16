//! Waiting for what happens in the API server, by watches that were there before it.

use std::{collections::BTreeSet, fmt::Debug, pin::Pin};

use anyhow::{Context, Result, bail};
use futures_util::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    core::PartialObjectMeta,
};
use serde::de::DeserializeOwned;

pub(crate) const LEASE: &str = "cloud-controller-manager";
/// A Node gets it in the write that takes its taint away.
pub(crate) const INITIALIZED: &str = "topology.kubernetes.io/region=bench";

pub(crate) type Events<K> = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<K>>> + Send>>;

/// Each Node as it is initialized; only its metadata, which costs the API server and the bench the least.
pub(crate) async fn watch_initialized(client: &Client) -> Result<Events<PartialObjectMeta<Node>>> {
    let nodes = Api::all(client.clone());
    let params = WatchParams::default().labels(INITIALIZED);
    Ok(nodes.watch_metadata(&params, &version(&nodes).await?).await?.boxed())
}

pub(crate) async fn watch_node(client: &Client, name: &str) -> Result<Events<Node>> {
    let nodes = Api::all(client.clone());
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    Ok(nodes.watch(&params, &version(&nodes).await?).await?.boxed())
}

pub(crate) async fn watch_lease(client: &Client) -> Result<Events<Lease>> {
    let leases = leases(client);
    let params = WatchParams::default().fields(&format!("metadata.name={LEASE}"));
    Ok(leases.watch(&params, &version(&leases).await?).await?.boxed())
}

pub(crate) fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-system")
}

/// Who holds a Lease; empty when nobody does.
pub(crate) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

pub(crate) async fn all_initialized(events: Events<PartialObjectMeta<Node>>, count: usize) -> Result<()> {
    let mut seen = BTreeSet::new();
    until(events, |node| {
        seen.insert(node.name_any());
        seen.len() == count
    })
    .await
    .with_context(|| format!("{} of {count} Nodes are initialized", seen.len()))
}

/// Waits until an object is there for which `is_last` holds.
pub(crate) async fn until<K>(mut events: Events<K>, mut is_last: impl FnMut(&K) -> bool) -> Result<()> {
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) if is_last(&object) => return Ok(()),
            WatchEvent::Error(status) => bail!("a watch failed: {}", status.message),
            _ => {}
        }
    }
    bail!("a watch ended")
}

/// What a watch begins after: now.
async fn version<K: Clone + DeserializeOwned + Debug>(api: &Api<K>) -> Result<String> {
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    list.metadata.resource_version.context("a list has a resource version")
}
