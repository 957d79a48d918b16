//! What a Node gets from its machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::MachineId;
use crate::model::views::{NodeAddress, Taint};

/// What a Node gets from its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Its id.
    pub id: MachineId,
    /// Another provider's ID that its Node may have.
    pub foreign_id: Option<String>,
    /// Its addresses in order; empty leaves them to the kubelet.
    pub addresses: Vec<NodeAddress>,
    /// `node.kubernetes.io/instance-type`.
    pub instance_type: Option<String>,
    /// `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// Labels of our own prefix; those without a value are taken off.
    pub own_labels: BTreeMap<String, Option<String>>,
    /// Other labels; those the Node has already stay as they are.
    pub labels: BTreeMap<String, String>,
    /// Annotations for a new Node.
    pub annotations: BTreeMap<String, String>,
    /// Taints for a new Node.
    pub taints: Vec<Taint>,
}
