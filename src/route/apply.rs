//! Writes what the plan says, some objects at a time.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::observe;
use super::plan::{ConditionWrite, ObservedRoute, RouteAction};
use crate::api::{NodeRoute, NodeRouteSpec};
use crate::cluster::patch::{FIELD_MANAGER, WriteError, side_by_side, within};
use crate::cluster::views;
use crate::model::NodeName;
use crate::model::views::{NodeView, Truth};

/// Carries out the actions; answers with each `NodeRoute` as it is afterwards, `None` when deleted.
pub(super) async fn routes(
    client: &Client,
    actions: &BTreeMap<NodeName, RouteAction>,
) -> Vec<(NodeName, Result<Option<ObservedRoute>, WriteError>)> {
    let api: Api<NodeRoute> = Api::all(client.clone());
    let api = &api;
    let writes = actions.iter().map(|(name, action)| {
        async move {
            let result = match action {
                RouteAction::Write { owner_uid, spec } => write(api, name, owner_uid, spec).await,
                RouteAction::Delete => delete(api, name).await.map(|()| None),
            };
            (name.clone(), result)
        }
        .boxed()
    });
    side_by_side(writes.collect()).await
}

async fn write(
    api: &Api<NodeRoute>,
    name: &NodeName,
    owner_uid: &str,
    spec: &NodeRouteSpec,
) -> Result<Option<ObservedRoute>, WriteError> {
    // Nobody else writes these: what someone changed by hand is put right.
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let route = owned(name, owner_uid, spec);
    let written = within(api.patch(name.as_str(), &parameters, &Patch::Apply(&route))).await?;
    Ok(observe::route(&written))
}

async fn delete(api: &Api<NodeRoute>, name: &NodeName) -> Result<(), WriteError> {
    match within(api.delete(name.as_str(), &DeleteParams::default())).await {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A `NodeRoute` that goes with its Node.
fn owned(name: &NodeName, owner_uid: &str, spec: &NodeRouteSpec) -> NodeRoute {
    let mut route = NodeRoute::new(name.as_str(), spec.clone());
    route.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_string(),
        uid: owner_uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    route
}

/// Writes the conditions; answers with each Node as it is afterwards.
pub(super) async fn conditions(
    client: &Client,
    conditions: &BTreeMap<NodeName, ConditionWrite>,
) -> Vec<(NodeName, Result<NodeView, WriteError>)> {
    let api: Api<Node> = Api::all(client.clone());
    let api = &api;
    let writes = conditions.iter().map(|(name, write)| {
        async move {
            let body = body(write, Timestamp::now());
            // Strategic: conditions are merged by their type, the kubelet's stay.
            let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let written = within(api.patch_status(name.as_str(), &parameters, &Patch::Strategic(&body))).await;
            (name.clone(), written.and_then(|node| views::node(&node).ok_or(WriteError::Gone)))
        }
        .boxed()
    });
    side_by_side(writes.collect()).await
}

/// A Node that was registered again meanwhile is another, and the API server refuses by its uid.
fn body(write: &ConditionWrite, now: Timestamp) -> Value {
    let ConditionWrite { uid, condition, is_transition } = write;
    let status = match condition.status {
        Truth::True => "True",
        Truth::False => "False",
        Truth::Unknown => "Unknown",
    };
    let mut written = json!({
        "type": "NetworkUnavailable",
        "status": status,
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": Time(now),
    });
    if *is_transition {
        written["lastTransitionTime"] = json!(Time(now));
    }
    json!({ "metadata": { "uid": uid }, "status": { "conditions": [written] } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::network::Network;

    #[test]
    fn the_condition_reads_as_upstreams() {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let condition = Network::Routed.condition();
        let write = ConditionWrite { uid: "uid-1".to_owned(), condition, is_transition: true };
        let body = body(&write, now);
        assert_eq!(body["metadata"]["uid"], "uid-1");
        assert_eq!(
            body["status"]["conditions"][0],
            json!({
                "type": "NetworkUnavailable",
                "status": "False",
                "reason": "RouteCreated",
                "message": "RouteController created a route",
                "lastHeartbeatTime": "2027-01-15T08:00:00Z",
                "lastTransitionTime": "2027-01-15T08:00:00Z",
            })
        );
    }
}
