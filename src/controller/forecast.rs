//! What a saved state of a controller leads to, or objects as the API server shows them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anyhow::{Context, ensure};
use kube::ResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::views;
use crate::model::{NodeName, Prefix};
use crate::route;
use crate::route::forecast;
use crate::route::plan::Observed;
use crate::route::spec::Responsibility;

/// What the route room would write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Forecast {
    /// These, in order.
    Writes(forecast::Forecast),
    /// The process does not lead, or not this controller.
    SeesToNone,
}

/// What a state of [`State::show`](super::state::State::show) leads to.
///
/// # Errors
/// When it is none.
pub fn forecast(state: &Value) -> anyhow::Result<Forecast> {
    let part = |name: &str| state.get(name).cloned().unwrap_or_default();
    let observed = part("observed");
    let kinds = ["nodes", "nodeRoutes", "nodeReports"];
    // A standby has no stores: it sees nothing, and would do nothing.
    let is_leading = kinds.iter().all(|kind| observed.get(kind).is_some_and(|objects| !objects.is_null()));
    if !is_leading && observed.is_object() {
        return Ok(Forecast::SeesToNone);
    }
    let observed = serde_json::from_value(observed).context("observed")?;
    let responsibility = match part("routes") {
        Value::Null => Responsibility::default(),
        routes => serde_json::from_value(routes).context("routes")?,
    };
    Ok(Forecast::Writes(forecast::forecast(observed, responsibility)))
}

/// What Nodes, `NodeRoute`s and `NodeReport`s lead to, as `kubectl get -o yaml` shows them: objects, and lists of
/// them. Other kinds do not count. `cluster_cidrs` are those of the controller's flag, if it has one.
///
/// # Errors
/// When there is no Node, or an object is not of its kind's form.
pub fn forecast_objects(documents: &[Value], cluster_cidrs: Vec<Prefix>) -> anyhow::Result<Forecast> {
    let mut observed = Observed::default();
    for object in documents.iter().flat_map(objects) {
        match object.get("kind").and_then(Value::as_str) {
            Some("Node") => observed.nodes.extend(viewed(object, views::node)?),
            Some("NodeRoute") => observed.node_routes.extend(viewed(object, route::route)?),
            Some("NodeReport") => observed.node_reports.extend(viewed(object, route::report)?),
            _ => {}
        }
    }
    ensure!(!observed.nodes.is_empty(), "it has no Node: a plan takes all Nodes, NodeRoutes and NodeReports");
    let responsibility = match cluster_cidrs.is_empty() {
        true => Responsibility::Everything,
        false => Responsibility::Within(cluster_cidrs),
    };
    Ok(Forecast::Writes(forecast::forecast(observed, responsibility)))
}

/// The objects of a list, or the one that it is.
fn objects(document: &Value) -> &[Value] {
    match document.get("items").and_then(Value::as_array) {
        Some(items) => items,
        None => std::slice::from_ref(document),
    }
}

/// An object as the planner sees it, by its name.
fn viewed<K, V>(object: &Value, view: impl Fn(&K) -> Option<V>) -> anyhow::Result<BTreeMap<NodeName, Arc<V>>>
where
    K: ResourceExt + DeserializeOwned,
{
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let what = || format!("{} {}", text("/kind"), text("/metadata/name"));
    let read = K::deserialize(object).with_context(what)?;
    let name: NodeName = read.name_any().parse().with_context(what)?;
    Ok(view(&read).map(|view| (name, Arc::new(view))).into_iter().collect())
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writes(writes) => writes.fmt(f),
            Self::SeesToNone => {
                writeln!(f, "this process does not see to routes: it does not lead, or not this controller")
            }
        }
    }
}
