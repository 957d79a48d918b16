//! The inventory: which machines there are, and which machine a Node is.
//!
//! It answers [`Finding::Present`], [`Finding::Absent`] or [`Finding::Unknown`]. Only an explicit
//! decommissioning is an absence; a missing file, a broken reload, a machine nobody wrote down and
//! keys that disagree are all unknown, and the answer says why.
//!
//! It never talks to the API server and never changes anything. Start at [`machine`] (what is known
//! of one), [`matching`] (pure: whose Node is it?) and [`file`] (the shell that reads and watches).
//!
//! Invariants: ids, keys, internal addresses and BMCs are unique in an [`Inventory`]; a reload with
//! any fault, or one that would take many machines out of service at once ([`brake`]), leaves the
//! last good inventory in force.

pub mod bmc;
pub mod brake;
#[cfg(test)]
mod cases;
pub mod catalog;
mod digest;
pub mod document;
mod entry;
mod faultless;
pub mod file;
mod instance_type;
mod label;
mod location;
pub mod mac;
pub mod machine;
pub mod matching;
pub mod metrics;
mod place;
pub mod shared;
pub mod survey;
mod unique;
pub mod uuid;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;

use crate::config::Faults;
use crate::model::MachineId;

pub use crate::model::MachineState;
pub use brake::Removals;
pub use catalog::Inventory;
pub use document::Extent;
pub use mac::MacAddress;
pub use machine::{Machine, MachineAddress, Maintenance, MatchKeys};
pub use matching::{Match, NodeIdentity};
pub use shared::SharedKeys;
pub use survey::Survey;
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
    /// The Node was another machine when it was first matched.
    #[error("this node was machine {was} when it was first matched, but {key} points at machine {now} today")]
    MachineChanged {
        /// The machine in the annotation `cairn.dev/machine`.
        was: MachineId,
        /// The machine it would be now.
        now: MachineId,
        /// The key that says so.
        key: MatchKey,
    },
    /// The Node had another system UUID when it was first matched.
    #[error(
        "this node had system UUID {was} when it was first matched as machine {machine}, and has {now} today: if its \
         board was replaced, write the new one into match.systemUUID, or take the annotation cairn.dev/system-uuid \
         off the node"
    )]
    UuidChanged {
        /// The machine.
        machine: MachineId,
        /// The UUID in the annotation `cairn.dev/system-uuid`.
        was: SystemUuid,
        /// The UUID now.
        now: SystemUuid,
    },
    /// The machine is `planned`: not yet in service.
    #[error("machine {machine} is planned: set its state to active to take it into service")]
    Planned {
        /// The machine.
        machine: MachineId,
    },
}

impl Why {
    /// Whether keys contradict each other: one of them is wrong, and someone has to see to it.
    pub fn is_mismatch(&self) -> bool {
        match self {
            Self::KeysDisagree { .. }
            | Self::KeyDiffers { .. }
            | Self::MachineChanged { .. }
            | Self::UuidChanged { .. } => true,
            Self::NoInventory
            | Self::NoMachine
            | Self::ForeignProviderId { .. }
            | Self::MachineMissing { .. }
            | Self::KeyAmbiguous { .. }
            | Self::Planned { .. } => false,
        }
    }

    /// The machines of the inventory that the Node may be or was.
    pub fn machines(&self) -> Vec<&MachineId> {
        match self {
            Self::NoInventory | Self::NoMachine | Self::ForeignProviderId { .. } | Self::MachineMissing { .. } => {
                Vec::new()
            }
            Self::KeysDisagree { one, other, .. } | Self::KeyAmbiguous { one, other, .. } => vec![one, other],
            Self::MachineChanged { was, now, .. } => vec![was, now],
            Self::KeyDiffers { machine, .. } | Self::UuidChanged { machine, .. } | Self::Planned { machine } => {
                vec![machine]
            }
        }
    }
}

/// A key by which Nodes are matched, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum MatchKey {
    /// `spec.providerID`, written at the first match.
    ProviderId,
    /// `status.nodeInfo.systemUUID`.
    SystemUuid,
    /// The same with the bytes of its first three fields reversed.
    SwappedUuid,
    /// The Node's whole name.
    NodeName,
    /// The first label of the Node's name.
    ShortName,
    /// An internal address; it confirms a host name and finds nothing.
    InternalIp,
}

impl fmt::Display for MatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProviderId => "the provider ID",
            Self::SystemUuid => "the system UUID",
            Self::SwappedUuid => "the system UUID in the other byte order",
            Self::NodeName => "the node name",
            Self::ShortName => "the host name",
            Self::InternalIp => "the internal address",
        })
    }
}

/// The inventory in force and what is wrong with the files now; travels by `watch`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InventoryState {
    /// The last one that was read without a fault, if any ever was.
    pub inventory: Option<Arc<Inventory>>,
    /// What was wrong at the last reading.
    pub faults: Faults,
    /// What the last reading would have taken out of service, when that was too much to be taken.
    ///
    /// Without it and without faults [`Self::inventory`] is what the files say.
    pub removals: Option<Removals>,
}

impl InventoryState {
    /// Nothing read yet.
    pub fn unread() -> Self {
        Self::default()
    }

    /// Whether the files have been looked at, right or wrong: before that there is nothing to say.
    pub fn is_read(&self) -> bool {
        self.inventory.is_some() || !self.faults.is_empty()
    }

    /// What the inventory in force says of a Node.
    pub fn find(&self, node: &NodeIdentity, shared: &SharedKeys) -> Finding {
        match &self.inventory {
            Some(inventory) => inventory.find(node, shared),
            None => Finding::Unknown(Why::NoInventory),
        }
    }

    /// What follows on a reading of the files.
    fn then(&self, reading: Result<Inventory, Faults>) -> Self {
        let last_good = self.inventory.clone();
        match reading {
            Err(faults) => Self { inventory: last_good, faults, removals: None },
            Ok(inventory) => {
                let before = last_good.as_deref().map(brake::states).unwrap_or_default();
                match brake::decide(&before, &inventory) {
                    Ok(()) => Self { inventory: Some(Arc::new(inventory)), ..Self::default() },
                    Err(removals) => Self { inventory: last_good, removals: Some(removals), ..Self::default() },
                }
            }
        }
    }
}
