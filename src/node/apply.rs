//! Writes what the plan says, one Node at a time.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};
use tracing::{debug, warn};

use super::plan::{Action, Differences, Initialization};
use crate::cluster::lean::Lean;
use crate::cluster::patch::{self, WriteError};
use crate::cluster::told::Told;
use crate::cluster::views;
use crate::model::NodeName;
use crate::model::views::{NodeAddress, NodeView};

/// Carries out what was planned for a Node; answers with the Node as it is afterwards.
pub(super) async fn apply(api: Api<Lean<Node>>, view: Arc<NodeView>, action: &Action) -> Result<NodeView, WriteError> {
    let differences = match action {
        Action::Initialize(initialization) => &initialization.differences,
        Action::Reconcile(differences) => differences,
    };
    let (name, version) = (&view.name, &view.resource_version);
    let mut written = None;
    if let Some(addresses) = &differences.addresses {
        written = Some(write_addresses(&api, name, version, addresses).await?);
    }
    let version = written.as_ref().and_then(|node| node.0.metadata.resource_version.as_ref()).unwrap_or(version);
    let body = match action {
        Action::Initialize(initialization) => Some(initialized(version, initialization)),
        Action::Reconcile(differences) => metadata(version, differences),
    };
    if let Some(body) = body {
        written = Some(patch::merge(&api, name.as_str(), &body).await?);
    }
    written.as_ref().and_then(|node| views::node(&node.0)).ok_or(WriteError::Gone)
}

async fn write_addresses(
    api: &Api<Lean<Node>>,
    name: &NodeName,
    version: &str,
    addresses: &[NodeAddress],
) -> Result<Lean<Node>, WriteError> {
    // A merge patch replaces the list; a strategic one would merge it by type and mix up two families.
    let body = json!({ "metadata": { "resourceVersion": version }, "status": { "addresses": addresses } });
    patch::merge_status(api, name.as_str(), &body).await
}

/// Labels and annotations, if any differ.
fn metadata(version: &str, differences: &Differences) -> Option<Value> {
    let Differences { addresses: _, labels, annotations } = differences;
    let mut metadata = json!({ "resourceVersion": version });
    if !labels.is_empty() {
        // `null` takes a label off (RFC 7396).
        metadata["labels"] = json!(labels);
    }
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    (!labels.is_empty() || !annotations.is_empty()).then(|| json!({ "metadata": metadata }))
}

/// Provider ID, labels and taints in one write: a Node is never half initialized.
fn initialized(version: &str, initialization: &Initialization) -> Value {
    let Initialization { machine: _, provider_id, taints, differences } = initialization;
    let mut body =
        metadata(version, differences).unwrap_or_else(|| json!({ "metadata": { "resourceVersion": version } }));
    body["spec"] = json!({ "taints": taints });
    if let Some(provider_id) = provider_id {
        body["spec"]["providerID"] = json!(provider_id);
    }
    body
}

/// Logs a failed write; a conflict or a Node that went away is nothing to see to.
pub(super) fn log(name: &NodeName, error: &WriteError) {
    let cause = Told(error);
    match error {
        WriteError::Conflict | WriteError::Gone => debug!(node = %name, error = %cause, "not written"),
        WriteError::Refused(_) | WriteError::TimedOut => {
            warn!(node = %name, error = %cause, "cannot write to the node; trying again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::views::Taint;
    use std::collections::BTreeMap;

    #[test]
    fn one_write_makes_a_node_initialized() {
        let taint = Taint {
            key: "other".to_owned(),
            value: None,
            effect: "NoExecute".to_owned(),
            time_added: Some("2027-01-01T00:00:00Z".to_owned()),
        };
        let mut initialization = Initialization {
            machine: "m1".parse().expect("an id"),
            provider_id: Some("cairn://m1".parse().expect("a provider ID")),
            taints: vec![taint],
            differences: Differences {
                addresses: None,
                labels: BTreeMap::from([
                    ("topology.kubernetes.io/zone".to_owned(), Some("row-a".to_owned())),
                    ("cairn.dev/row".to_owned(), None),
                ]),
                annotations: BTreeMap::from([("cairn.dev/machine".to_owned(), "m1".to_owned())]),
            },
        };
        assert_eq!(
            initialized("7", &initialization),
            json!({
                "metadata": {
                    "resourceVersion": "7",
                    "labels": { "topology.kubernetes.io/zone": "row-a", "cairn.dev/row": null },
                    "annotations": { "cairn.dev/machine": "m1" },
                },
                "spec": {
                    "providerID": "cairn://m1",
                    "taints": [{ "key": "other", "effect": "NoExecute", "timeAdded": "2027-01-01T00:00:00Z" }],
                },
            })
        );
        initialization.provider_id = None;
        assert_eq!(initialized("7", &initialization)["spec"].get("providerID"), None);
        assert_eq!(metadata("7", &Differences::default()), None, "nothing is written where nothing differs");
    }
}
