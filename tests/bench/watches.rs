//! Waiting for what happens in the API server, by watches that were there before it.

use std::{fmt::Debug, pin::Pin};

use anyhow::{Context, Result, bail};
use futures_util::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;

pub(crate) const LEASE: &str = "cloud-controller-manager";

pub(crate) type Events<K> = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<K>>> + Send>>;

pub(crate) async fn watch_lease(client: &Client) -> Result<Events<Lease>> {
    watch(&leases(client), WatchParams::default().fields(&format!("metadata.name={LEASE}"))).await
}

pub(crate) fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-system")
}

/// Who holds a Lease; empty when nobody does.
pub(crate) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// What changes from now on.
pub(crate) async fn watch<K>(api: &Api<K>, params: WatchParams) -> Result<Events<K>>
where
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    Ok(api.watch(&params, &version(api).await?).await?.boxed())
}

/// Waits until an object is there for which `is_last` holds. Events that are only lent go on behind it.
pub(crate) async fn until<K>(
    mut events: impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin,
    mut is_last: impl FnMut(&K) -> bool,
) -> Result<()> {
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
pub(crate) async fn version<K: Clone + DeserializeOwned + Debug>(api: &Api<K>) -> Result<String> {
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    list.metadata.resource_version.context("a list has a resource version")
}
