//! Writes what the plan says, some Nodes at a time.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;

use super::plan::{Action, Observed};
use crate::cluster::patch::{self, WriteError, side_by_side, within};
use crate::model::NodeName;
use crate::model::views::NodeView;

/// Carries out the actions; each is refused when its Node changed since it was looked at.
pub(super) async fn apply(
    client: &Client,
    observed: &Observed,
    actions: &BTreeMap<NodeName, Action>,
) -> Vec<(NodeName, Result<(), WriteError>)> {
    let api: Api<Node> = Api::all(client.clone());
    let writes = actions.iter().filter_map(|(name, action)| {
        let (api, view) = (&api, &*observed.nodes.get(name)?.view);
        Some(async move { (name.clone(), write(api, view, action).await) }.boxed())
    });
    side_by_side(writes.collect()).await
}

async fn write(api: &Api<Node>, view: &NodeView, action: &Action) -> Result<(), WriteError> {
    match action {
        Action::Delete => within(api.delete(view.name.as_str(), &guarded(view))).await.map(drop),
        Action::WriteTaints(taints) => {
            let body = json!({
                "metadata": { "uid": view.uid, "resourceVersion": view.resource_version },
                "spec": { "taints": taints },
            });
            patch::merge(api, view.name.as_str(), &body).await.map(drop)
        }
    }
}

/// A Node that became Ready, or another one of the same name, stays.
fn guarded(view: &NodeView) -> DeleteParams {
    let preconditions =
        Preconditions { uid: Some(view.uid.clone()), resource_version: Some(view.resource_version.clone()) };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}
