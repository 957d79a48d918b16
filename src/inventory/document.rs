//! The inventory file's shape: what people type, not yet looked at.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::MachineState;
use crate::config::Faults;
use crate::config::document::Node;

/// A document with the place it came from, so that its faults have one.
#[derive(Debug, Clone)]
pub struct Sourced {
    /// The file, as the user named it.
    pub file: PathBuf,
    /// The document as it stands in the file.
    pub node: Node,
    /// The same in the raw type, without what has a fault.
    pub document: InventoryDocument,
    /// What is wrong with its shape.
    pub faults: Faults,
}

/// One document of the inventory; several are merged.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InventoryDocument {
    /// The version of the format.
    pub api_version: String,
    /// What the document is.
    pub kind: String,
    /// What machines of this document inherit.
    #[serde(default)]
    pub defaults: Defaults,
    /// Places that machines can name, of all documents together.
    #[serde(default)]
    pub locations: BTreeMap<String, Location>,
    /// The machines.
    #[serde(default)]
    pub machines: Vec<MachineEntry>,
}

/// What machines inherit; the machine wins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// `topology.kubernetes.io/region`.
    pub region: Option<String>,
}

/// A place with what its machines share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Location {
    /// `topology.kubernetes.io/region`, before the default.
    pub region: Option<String>,
    /// `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
}

/// A machine as written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineEntry {
    /// Its id, for ever.
    pub id: String,
    /// Where it is in its life.
    #[serde(default)]
    pub state: MachineState,
    /// How its Node is found.
    #[serde(default, rename = "match")]
    pub match_keys: MatchEntry,
    /// The location it is in.
    pub location: Option<String>,
    /// `topology.kubernetes.io/region`, before the location's and the default.
    pub region: Option<String>,
    /// `node.kubernetes.io/instance-type`.
    pub instance_type: Option<String>,
    /// Its addresses.
    #[serde(default)]
    pub addresses: Vec<AddressEntry>,
    /// More labels for its Node.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Keys of a machine as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchEntry {
    /// The name of its Node.
    pub node_name: Option<String>,
    /// What its firmware says it is.
    #[serde(rename = "systemUUID")]
    pub system_uuid: Option<String>,
}

/// An address as written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddressEntry {
    /// What kind of address it is.
    #[serde(rename = "type")]
    pub kind: AddressKind,
    /// The address or name.
    pub address: String,
}

/// `type` of an address, as in a Node's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum AddressKind {
    /// An address within the cluster's network.
    #[serde(rename = "InternalIP")]
    InternalIp,
    /// An address the world can reach.
    #[serde(rename = "ExternalIP")]
    ExternalIp,
    /// The host name.
    Hostname,
    /// A name within the cluster's network.
    #[serde(rename = "InternalDNS")]
    InternalDns,
    /// A name the world can resolve.
    #[serde(rename = "ExternalDNS")]
    ExternalDns,
}
