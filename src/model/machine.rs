//! Machines: where one is in its life.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a machine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MachineState {
    /// Not yet in service: a Node that matches it is left uninitialized.
    Planned,
    /// In service.
    #[default]
    Active,
    /// In service, and nobody may conclude anything from its silence.
    Maintenance,
    /// Gone for good: the one state in which its Node may be deleted.
    Decommissioned,
}

impl fmt::Display for MachineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Planned => "planned",
            Self::Active => "active",
            Self::Maintenance => "maintenance",
            Self::Decommissioned => "decommissioned",
        })
    }
}
