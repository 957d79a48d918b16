//! Writes what the plan says, one object at a time.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::plan::{ConditionWrite, ObservedRoute, RouteAction};
use super::view;
use crate::api::{NodeRoute, NodeRouteSpec};
use crate::cluster::lean::Lean;
use crate::cluster::patch::{FIELD_MANAGER, WriteError, create, merge, within};
use crate::cluster::views;
use crate::model::NodeName;
use crate::model::views::{NodeView, Truth};

/// Carries out an action; answers with the `NodeRoute` as it is afterwards, `None` when deleted.
pub(super) async fn route(
    client: Client,
    name: &NodeName,
    action: &RouteAction,
    is_there: bool,
) -> Result<Option<ObservedRoute>, WriteError> {
    let api: Api<Lean<NodeRoute>> = Api::all(client.clone());
    let written = match action {
        RouteAction::Write { owner_uid, spec } if is_there => {
            // Nobody else writes these: what someone changed by hand is put right.
            merge(&api, name.as_str(), &body(owner(name, owner_uid), spec)).await?
        }
        RouteAction::Write { owner_uid, spec } => {
            let mut route = NodeRoute::new(name.as_str(), spec.clone());
            route.metadata.owner_references = Some(vec![owner(name, owner_uid)]);
            create::<NodeRoute, Lean<NodeRoute>>(&client, None, &route).await?
        }
        RouteAction::Delete => return delete(&api, name).await.map(|()| None),
    };
    Ok(view::route(&written.0))
}

async fn delete(api: &Api<Lean<NodeRoute>>, name: &NodeName) -> Result<(), WriteError> {
    match within(api.delete(name.as_str(), &DeleteParams::default())).await {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A `NodeRoute` goes with its Node.
fn owner(name: &NodeName, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_string(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// All of a `NodeRoute`: a merge patch leaves alone what it does not name, so what is empty is taken away.
fn body(owner: OwnerReference, spec: &NodeRouteSpec) -> Value {
    let mut said = json!(spec);
    if let Some(fields) = said.as_object_mut() {
        for field in ["zone", "witnesses"] {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    json!({ "metadata": { "ownerReferences": [owner] }, "spec": said })
}

/// Writes a condition; answers with the Node as it is afterwards.
pub(super) async fn condition(client: Client, name: &NodeName, write: &ConditionWrite) -> Result<NodeView, WriteError> {
    let api: Api<Lean<Node>> = Api::all(client);
    let body = conditions(write, Timestamp::now());
    // Strategic: conditions are merged by their type, the kubelet's stay.
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let written = within(api.patch_status(name.as_str(), &parameters, &Patch::Strategic(&body))).await?;
    views::node(&written.0).ok_or(WriteError::Gone)
}

/// A Node that was registered again meanwhile is another, and the API server refuses by its uid.
fn conditions(write: &ConditionWrite, now: Timestamp) -> Value {
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
    use crate::api::EntryFlag;
    use crate::route::network::Network;

    #[test]
    fn the_condition_reads_as_upstreams() {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let condition = Network::Routed.condition();
        let write = ConditionWrite { uid: "uid-1".to_owned(), condition, is_transition: true };
        let body = conditions(&write, now);
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

    #[test]
    fn a_route_is_changed_as_a_whole() {
        let spec = NodeRouteSpec {
            addresses: vec!["10.90.0.1".to_owned()],
            pod_cidrs: Vec::new(),
            zone: None,
            entry: EntryFlag::Eligible,
            witnesses: Vec::new(),
        };
        let name = "n1".parse().expect("a name");
        let body = body(owner(&name, "uid-1"), &spec);
        assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "uid-1");
        assert_eq!(
            body["spec"],
            json!({
                "addresses": ["10.90.0.1"], "podCidrs": [], "zone": null, "entry": "Eligible", "witnesses": null,
            })
        );
    }
}
