//! The inventory: which machines there are, and which machine a Node is.
//!
//! It answers [`Finding::Present`], [`Finding::Absent`] or [`Finding::Unknown`]. Only an explicit
//! decommissioning is an absence; a missing file, a broken reload, a machine nobody wrote down and
//! keys that disagree are all unknown, and the answer says why.
//!
//! It never talks to the API server and never changes anything. Start at [`machine`] (what is known
//! of one), [`matching`] (pure: whose Node is it?) and [`file`] (the shell that reads and watches).
//!
//! Invariants: ids, node names, UUIDs and internal addresses are unique in an [`Inventory`]; a
//! reload with any fault leaves the last good inventory in force.

pub mod catalog;
pub mod document;
pub mod file;
pub mod machine;
pub mod matching;
pub mod uuid;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;

use crate::config::Faults;
use crate::model::MachineId;

pub use catalog::{Extent, Inventory};
pub use machine::{Machine, MachineAddress, MachineState, MatchKeys};
pub use matching::{NodeIdentity, SharedKeys};
pub use uuid::SystemUuid;

/// What the inventory says of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Finding {
    /// The Node is this machine, which is `active` or in `maintenance`.
    Present(Arc<Machine>),
    /// The Node was a machine that is `decommissioned`.
    Absent,
    /// Nobody can tell; nothing may be done to the Node.
    Unknown(Why),
}

/// Why a Node's machine is unknown, displayed as one sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Error)]
pub enum Why {
    /// No inventory was ever read without a fault.
    #[error("no inventory has been read yet without a fault")]
    NoInventory,
    /// No machine has any key of the Node.
    #[error("no machine of the inventory matches this node by provider ID, system UUID or name")]
    NoMachine,
    /// The provider ID is another provider's.
    #[error("its provider ID {provider_id} is another provider's")]
    ForeignProviderId {
        /// The provider ID.
        provider_id: String,
    },
    /// The provider ID is ours and names a machine that is not in the inventory.
    #[error("its provider ID names machine {machine}, which the inventory does not have")]
    MachineMissing {
        /// The machine named.
        machine: MachineId,
    },
    /// Two keys of the Node point at different machines.
    #[error("{one_key} points at machine {one}, {other_key} at machine {other}")]
    KeysDisagree {
        /// The stronger key.
        one_key: MatchKey,
        /// The machine it points at.
        one: MachineId,
        /// The weaker key.
        other_key: MatchKey,
        /// The machine that one points at.
        other: MachineId,
    },
    /// The machine found by one key has another value for a second one.
    #[error(
        "{found_by} points at machine {machine}, but {key} is {expected} in the inventory and {actual} on the node"
    )]
    KeyDiffers {
        /// The machine.
        machine: MachineId,
        /// The key that found it.
        found_by: MatchKey,
        /// The key that differs.
        key: MatchKey,
        /// Its value in the inventory.
        expected: String,
        /// Its value on the Node.
        actual: String,
    },
    /// One key points at several machines.
    #[error("{key} points at machine {one} as well as at machine {other}")]
    KeyAmbiguous {
        /// The key.
        key: MatchKey,
        /// One machine.
        one: MachineId,
        /// Another.
        other: MachineId,
    },
    /// The machine is `planned`: not yet in service.
    #[error("machine {machine} is planned: set its state to active to take it into service")]
    Planned {
        /// The machine.
        machine: MachineId,
    },
}

/// A key by which Nodes are matched, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum MatchKey {
    /// `spec.providerID`, written at the first match.
    ProviderId,
    /// `status.nodeInfo.systemUUID`.
    SystemUuid,
    /// The Node's whole name.
    NodeName,
    /// The first label of the Node's name.
    ShortName,
}

impl fmt::Display for MatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProviderId => "the provider ID",
            Self::SystemUuid => "the system UUID",
            Self::NodeName => "the node name",
            Self::ShortName => "the host name",
        })
    }
}

/// The inventory in force and what is wrong with the files now; travels by `watch`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InventoryState {
    /// The last one that was read without a fault, if any ever was.
    pub inventory: Option<Arc<Inventory>>,
    /// What was wrong at the last reading; empty when [`Self::inventory`] is what the files say.
    pub faults: Faults,
}

impl InventoryState {
    /// Nothing read yet.
    pub fn unread() -> Self {
        Self::default()
    }

    /// What the inventory in force says of a Node.
    pub fn find(&self, node: &NodeIdentity, shared: &SharedKeys) -> Finding {
        match &self.inventory {
            Some(inventory) => inventory.find(node, shared),
            None => Finding::Unknown(Why::NoInventory),
        }
    }
}
