//! The inventory file's shape: what people type, not yet looked at.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::MachineState;
use super::bmc::document::{BmcDefaults, BmcEntry, FencingDefaults, FencingEntry};
use crate::config::document::Node;
use crate::config::{Faults, Fields};
use crate::model::views::NodeAddressKind;

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
    /// The fields whose shape is wrong.
    pub misshapen: Fields,
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
    /// Types of machines, of all documents together; the first that fits a machine is its type.
    #[serde(default)]
    pub instance_types: Vec<InstanceTypeEntry>,
    /// The machines.
    #[serde(default)]
    pub machines: Vec<MachineEntry>,
    /// Ids of machines that are dropped or decommissioned on purpose: a change that takes many out
    /// of service is not taken before each of those beyond the limit is named here.
    #[serde(default)]
    pub acknowledged_removals: Vec<String>,
}

/// What machines inherit; the machine wins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// How BMCs are spoken to.
    pub bmc: Option<BmcDefaults>,
    /// How machines are fenced.
    pub fencing: Option<FencingDefaults>,
}

/// A place with what its machines share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Location {
    /// `topology.kubernetes.io/region`, before the default.
    pub region: Option<String>,
    /// `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// `cairn.dev/room`.
    pub room: Option<String>,
    /// `cairn.dev/row`.
    pub row: Option<String>,
    /// `cairn.dev/rack`.
    pub rack: Option<String>,
    /// What it gets its power from: machines with a feed in common fail together.
    #[serde(default)]
    pub power_feeds: Vec<String>,
}

/// A type of machines as written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceTypeEntry {
    /// `node.kubernetes.io/instance-type`.
    pub name: String,
    /// Which machines are of this type; every pattern given has to fit.
    #[serde(rename = "match")]
    pub patterns: HardwarePatterns,
    /// Labels that Nodes of this type get; the machine's own win.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Regular expressions that fit the whole of a machine's `hardware`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HardwarePatterns {
    /// Who made it.
    pub manufacturer: Option<String>,
    /// What the maker calls it.
    pub model: Option<String>,
    /// What the maker calls its processors.
    pub cpu_model: Option<String>,
}

/// What a machine is made of, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HardwareEntry {
    /// Who made it.
    pub manufacturer: Option<String>,
    /// What the maker calls it.
    pub model: Option<String>,
    /// What the maker calls its processors.
    pub cpu_model: Option<String>,
    /// How many processors it has.
    #[schemars(range(min = 1))]
    pub cpus: Option<u16>,
    /// How many cores each of them has.
    #[schemars(range(min = 1))]
    pub cores_per_cpu: Option<u16>,
    /// Its memory in GiB, as it is sold.
    #[serde(rename = "memoryGiB")]
    #[schemars(range(min = 1))]
    pub memory_gib: Option<u32>,
}

/// A machine as written. What few have is boxed: there are thousands of these at a time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineEntry {
    /// Its id, for ever.
    pub id: String,
    /// Where it is in its life.
    #[serde(default)]
    pub state: MachineState,
    /// Why it is in maintenance.
    pub maintenance: Option<Box<MaintenanceEntry>>,
    /// How its Node is found.
    #[serde(default, rename = "match")]
    pub match_keys: MatchEntry,
    /// The location it is in.
    pub location: Option<String>,
    /// The lowest rack unit it takes.
    #[schemars(range(min = 1, max = 100))]
    pub unit: Option<u8>,
    /// `topology.kubernetes.io/region`, before the location's and the default.
    pub region: Option<String>,
    /// `node.kubernetes.io/instance-type`, before what `instanceTypes` say.
    pub instance_type: Option<String>,
    /// What it is made of.
    pub hardware: Option<Box<HardwareEntry>>,
    /// Its addresses.
    #[serde(default)]
    pub addresses: Vec<AddressEntry>,
    /// More labels for its Node.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Annotations its Node gets when it is initialized.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Taints its Node gets when it is initialized.
    #[serde(default)]
    pub taints: Vec<TaintEntry>,
    /// The computer that watches over it.
    pub bmc: Option<Box<BmcEntry>>,
    /// Whether and how it may be switched off when its Node is silent.
    pub fencing: Option<Box<FencingEntry>>,
}

/// Why a machine is in maintenance, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MaintenanceEntry {
    /// Why, for people.
    pub reason: Option<String>,
    /// Until when it is planned, RFC 3339; it ends when `state` says so, not by the clock.
    pub until: Option<String>,
    /// Whether it may be fenced all the same.
    #[serde(default)]
    pub allow_fencing: bool,
}

/// A taint as written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaintEntry {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Option<String>,
    /// What it does to pods.
    pub effect: TaintEffect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// They are not placed there.
    NoSchedule,
    /// They are placed there last.
    PreferNoSchedule,
    /// They are evicted.
    NoExecute,
}

impl TaintEffect {
    /// As a Node's taint has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
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
    /// Serial numbers of the system, its chassis or its board.
    #[serde(default)]
    pub serials: Vec<String>,
    /// MAC addresses of its network cards.
    #[serde(default)]
    pub macs: Vec<String>,
    /// The provider ID its Node has from another provider, which then counts as this machine's.
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
}

/// An address as written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddressEntry {
    /// What kind of address it is.
    #[serde(rename = "type")]
    pub kind: NodeAddressKind,
    /// The address or name.
    pub address: String,
}

/// Whether documents are all there are, or others could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All there are.
    Whole,
    /// Some; what is missing in them may be in the others.
    Part,
}
