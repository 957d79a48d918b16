//! `Machine`: what the inventory says of a machine, and which Node it is.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;
use crate::model::MachineState;

/// A machine of the inventory, written by the leader; it has the machine's id and only a status.
///
/// It shows what the inventory's files say and is no place to say it: a change by hand is put right.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "cairn.dev",
    version = "v1alpha1",
    kind = "Machine",
    plural = "machines",
    category = "cairn",
    status = "MachineStatus",
    doc = "A machine of the inventory, and which Node it is.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.node"),
    printcolumn(name = "Matched", type_ = "string", json_path = ".status.conditions[?(@.type=='Matched')].reason"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Read", type_ = "date", json_path = ".status.lastReading.time", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct MachineSpec {}

/// What is known of a machine.
///
/// Every field is always written, so that a merge patch replaces all of the last status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Where it is in its life, as the inventory says.
    pub state: MachineState,
    /// `spec.providerID` that its Node has or gets.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// The Node it is.
    #[serde(default)]
    pub node: Option<String>,
    /// What was read of it last.
    #[serde(default)]
    pub last_reading: Option<Reading>,
    /// `Matched`: a Node is found, or why none is. `Ready`: it is active and its Node initialized.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// What was read of a machine, where, and since when that is what is read there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// What was read.
    pub source: ReadingSource,
    /// A word that changes when what is said of the machine changes.
    pub digest: String,
    /// When it was first read so, RFC 3339. Readings that say the same do not change it.
    pub time: String,
}

/// What readings of machines are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReadingSource {
    /// The inventory's files.
    File,
}
