//! Objects as they are read: without what nobody here looks at.
//!
//! Half of a Node as the API server sends it is `metadata.managedFields`, and most of the rest are
//! images. What is not kept is not taken apart either: a list of thousands of Nodes takes no more
//! memory than their views.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Service, ServiceSpec, ServiceStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};

use crate::api::{
    Machine, MachineSpec, MachineStatus, NodeReport, NodeReportSpec, NodeReportStatus, NodeRoute, NodeRouteSpec,
};

/// An object whose unread fields are empty.
#[derive(Debug, Clone)]
pub struct Lean<K>(pub K);

/// A kind that is read in parts.
pub trait Parts: Resource<DynamicType = ()> + Sized {
    /// What is read of its spec.
    type Spec: for<'de> Deserialize<'de>;
    /// What is read of its status.
    type Status: for<'de> Deserialize<'de>;

    /// The object of these parts; none without one that it has to have.
    fn of(metadata: ObjectMeta, spec: Option<Self::Spec>, status: Option<Self::Status>) -> Option<Self>;
}

impl Parts for Node {
    type Spec = NodeSpec;
    type Status = ReadNodeStatus;

    fn of(metadata: ObjectMeta, spec: Option<NodeSpec>, status: Option<ReadNodeStatus>) -> Option<Self> {
        let status = status.map(|status| NodeStatus {
            addresses: status.addresses,
            conditions: status.conditions.map(|all| all.into_iter().map(NodeCondition::from).collect()),
            node_info: status.node_info.map(NodeSystemInfo::from),
            ..NodeStatus::default()
        });
        Some(Self { metadata, spec, status })
    }
}

/// What is read of a Node's status.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadNodeStatus {
    addresses: Option<Vec<NodeAddress>>,
    conditions: Option<Vec<ReadCondition>>,
    node_info: Option<ReadSystemInfo>,
}

/// What a condition of a Node says; when, nobody here asks.
#[derive(Debug, Deserialize)]
struct ReadCondition {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

impl From<ReadCondition> for NodeCondition {
    fn from(read: ReadCondition) -> Self {
        let ReadCondition { kind, status, reason, message } = read;
        Self { type_: kind, status, reason, message, ..Self::default() }
    }
}

#[derive(Debug, Deserialize)]
struct ReadSystemInfo {
    #[serde(rename = "bootID", default)]
    boot_id: String,
    #[serde(rename = "systemUUID", default)]
    system_uuid: String,
}

impl From<ReadSystemInfo> for NodeSystemInfo {
    fn from(read: ReadSystemInfo) -> Self {
        Self { boot_id: read.boot_id, system_uuid: read.system_uuid, ..Self::default() }
    }
}

/// All of it but the half that is `metadata.managedFields`.
impl Parts for Service {
    type Spec = ServiceSpec;
    type Status = ServiceStatus;

    fn of(metadata: ObjectMeta, spec: Option<ServiceSpec>, status: Option<ServiceStatus>) -> Option<Self> {
        Some(Self { metadata, spec, status })
    }
}

impl Parts for Machine {
    type Spec = MachineSpec;
    type Status = MachineStatus;

    fn of(metadata: ObjectMeta, spec: Option<MachineSpec>, status: Option<MachineStatus>) -> Option<Self> {
        Some(Self { metadata, spec: spec.unwrap_or(MachineSpec {}), status })
    }
}

impl Parts for NodeReport {
    type Spec = NodeReportSpec;
    type Status = NodeReportStatus;

    fn of(metadata: ObjectMeta, spec: Option<NodeReportSpec>, status: Option<NodeReportStatus>) -> Option<Self> {
        Some(Self { metadata, spec: spec.unwrap_or(NodeReportSpec {}), status })
    }
}

impl Parts for NodeRoute {
    type Spec = NodeRouteSpec;
    type Status = IgnoredAny;

    fn of(metadata: ObjectMeta, spec: Option<NodeRouteSpec>, _: Option<IgnoredAny>) -> Option<Self> {
        Some(Self { metadata, spec: spec? })
    }
}

impl<'de, K: Parts> Deserialize<'de> for Lean<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Read { metadata, spec, status } = Read::<K::Spec, K::Status>::deserialize(deserializer)?;
        K::of(metadata.into(), spec, status).map(Self).ok_or_else(|| D::Error::missing_field("spec"))
    }
}

#[derive(Deserialize)]
struct Read<Spec, Status> {
    metadata: ReadMetadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<ReadMetadata> for ObjectMeta {
    fn from(read: ReadMetadata) -> Self {
        Self {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            generation: read.generation,
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            labels: read.labels,
            annotations: read.annotations,
            finalizers: read.finalizers,
            owner_references: read.owner_references,
            ..Self::default()
        }
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Lean<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::views;

    /// A Node with everything a kubelet writes, in short.
    fn node() -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "n1", "uid": "u1", "resourceVersion": "7", "creationTimestamp": "2027-01-01T00:00:00Z",
                "labels": { "kubernetes.io/os": "linux" },
                "annotations": { "cairn.dev/machine": "m1", "alpha.kubernetes.io/provided-node-ip": "10.0.0.1" },
                "finalizers": ["f"],
                "managedFields": [{ "manager": "kubelet", "operation": "Update", "apiVersion": "v1",
                    "time": "2027-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": { "f:status": {} } }],
            },
            "spec": {
                "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"], "providerID": "cairn://m1",
                "taints": [{ "key": "k", "effect": "NoSchedule", "timeAdded": "2027-01-01T00:00:00Z" }],
            },
            "status": {
                "capacity": { "cpu": "2" },
                "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
                "conditions": [
                    { "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
                      "lastHeartbeatTime": "2027-01-01T00:00:00Z", "lastTransitionTime": "2027-01-01T00:00:00Z" },
                    { "type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated" },
                ],
                "nodeInfo": { "architecture": "amd64", "operatingSystem": "linux", "osImage": "", "kernelVersion": "",
                    "bootID": "b1", "machineID": "", "systemUUID": "s1", "containerRuntimeVersion": "",
                    "kubeletVersion": "", "kubeProxyVersion": "" },
                "images": [{ "names": ["registry.example.net/a:1"], "sizeBytes": 1 }],
            },
        })
    }

    #[test]
    fn a_lean_node_has_the_view_of_the_whole_one() {
        let whole: Node = serde_json::from_value(node()).expect("a Node");
        let lean: Lean<Node> = serde_json::from_value(node()).expect("a Node");
        let view = views::node(&whole).expect("a view");
        assert_eq!(views::node(&lean.0), Some(view.clone()));
        assert!(
            view.ready.is_some() && view.boot_id.is_some() && !view.taints.is_empty(),
            "the test has something to say"
        );
        assert_eq!(lean.meta().finalizers, whole.meta().finalizers);
        assert!(lean.0.metadata.managed_fields.is_none() && lean.0.status.expect("a status").images.is_none());
    }

    #[test]
    fn what_one_node_does_not_say_hides_not_all_of_them() {
        for status in [
            json!({}),
            json!({ "conditions": null, "nodeInfo": null, "addresses": null }),
            json!({ "conditions": [], "nodeInfo": {}, "addresses": [] }),
            json!({ "conditions": [{}, { "type": "Ready" }, { "status": "True", "reason": null, "message": null }] }),
            json!({ "addresses": [{}], "nodeInfo": { "bootID": "b1" } }),
        ] {
            let node = json!({ "metadata": { "name": "n1" }, "status": status });
            let whole: Node = serde_json::from_value(node.clone()).expect("a Node");
            let lean = serde_json::from_value::<Lean<Node>>(node);
            let view = lean.map(|lean| views::node(&lean.0)).map_err(|error| error.to_string());
            assert_eq!(view, Ok(views::node(&whole)), "{status}");
        }
    }

    #[test]
    fn an_object_without_spec_and_status_is_one() {
        let lean: Lean<Machine> = serde_json::from_value(json!({ "metadata": { "name": "m1" } })).expect("a Machine");
        assert_eq!((lean.meta().name.as_deref(), &lean.0.status), (Some("m1"), &None));
        assert_eq!(Lean::<Machine>::api_version(&()), Machine::api_version(&()));
        let route = serde_json::from_value::<Lean<NodeRoute>>(json!({ "metadata": { "name": "n1" } }));
        assert_eq!(route.map(|_| ()).expect_err("a NodeRoute says something").to_string(), "missing field `spec`");
    }
}
