//! Writes the conditions of objects that people wrote: those that are to change, and again what failed.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::{debug, warn};

use super::backoff::Backoff;
use super::clock;
use super::patch::{WriteError, merge_status, side_by_side};
use super::told::Told;
use super::written::Written;
use crate::api::condition::NewConditions;
use crate::model::Moment;

/// How often everything is looked at without a signal.
const PERIOD: Duration = Duration::from_secs(300);
/// How often at most because of Nodes: when many join, nobody waits for what is said of their labels.
pub const NODES_PACE: Duration = Duration::from_secs(5);

/// What was written to objects of one kind and has not come back yet, and what is to be tried again.
#[derive(Debug)]
pub struct ConditionWriter<N, V> {
    written: Written<N, V>,
    backoff: Backoff<N>,
}

impl<N: Ord + Clone + Display + Send + Sync, V: Send> ConditionWriter<N, V> {
    /// Nothing written yet; `version` gives the resource version of a view.
    pub fn new(seed: u64, version: fn(&V) -> &str) -> Self {
        Self { written: Written::new(version), backoff: Backoff::new(seed) }
    }

    /// Puts what was written in place of what a store shows of it, as long as that is older.
    pub fn lay_over(&mut self, seen: &mut BTreeMap<N, Arc<V>>) {
        self.written.lay_over(seen);
    }

    /// When everything is to be looked at without a signal: once in a while, or when one that failed is due.
    pub fn next_look(&self, now: Moment) -> Moment {
        self.backoff.deadline().map_or(now + PERIOD, |retry| retry.min(now + PERIOD))
    }

    /// Writes what is due, side by side; each write is complete in itself. An object that changed meanwhile is
    /// left: something else may be true of it.
    pub async fn write<K>(&mut self, api: &Api<K>, mut wanted: BTreeMap<N, NewConditions>, view: fn(&K) -> Option<V>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync,
    {
        let now = clock::now();
        self.backoff.keep_only(|name| wanted.contains_key(name));
        wanted.retain(|name, _| self.backoff.is_due(name, now));
        let writes = wanted.iter().map(|(name, new)| async move { (name, write(api, name, new, view).await) }.boxed());
        for (name, result) in side_by_side(writes.collect()).await {
            match result {
                Ok(view) => {
                    self.backoff.succeeded(name);
                    self.written.remember(name.clone(), view);
                }
                Err(error) => {
                    let (kind, cause) = (K::kind(&()), Told(&error));
                    match &error {
                        WriteError::Conflict | WriteError::Gone => {
                            debug!(%kind, object = %name, error = %cause, "not written");
                        }
                        _ => warn!(%kind, object = %name, error = %cause, "cannot write the status; trying again"),
                    }
                    self.backoff.not_written(name.clone(), &error, clock::now());
                }
            }
        }
    }
}

/// RFC 3339, in whole seconds as conditions have it.
pub fn now_in_words() -> String {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string()
}

async fn write<K, V>(
    api: &Api<K>,
    name: &impl Display,
    new: &NewConditions,
    view: fn(&K) -> Option<V>,
) -> Result<V, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let NewConditions { resource_version, conditions } = new;
    let body = json!({
        "metadata": { "resourceVersion": resource_version },
        "status": { "conditions": conditions },
    });
    let written = merge_status(api, &name.to_string(), &body).await?;
    view(&written).ok_or(WriteError::Gone)
}
