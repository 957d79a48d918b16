//! Waiting for what happens to Nodes.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt, api::WatchParams, core::PartialObjectMeta};

pub(crate) use super::watches::{Events, LEASE, holder, leases, until, watch_lease};
use super::watches::{version, watch};

/// A Node gets it in the write that takes its taint away.
pub(crate) const INITIALIZED: &str = "topology.kubernetes.io/region=bench";

/// Each Node as it is initialized; only its metadata, which costs the API server and the bench the least.
pub(crate) async fn watch_initialized(client: &Client) -> Result<Events<PartialObjectMeta<Node>>> {
    let nodes = Api::all(client.clone());
    let params = WatchParams::default().labels(INITIALIZED);
    Ok(nodes.watch_metadata(&params, &version(&nodes).await?).await?.boxed())
}

pub(crate) async fn watch_node(client: &Client, name: &str) -> Result<Events<Node>> {
    watch(&Api::all(client.clone()), WatchParams::default().fields(&format!("metadata.name={name}"))).await
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
