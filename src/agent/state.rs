//! What an agent shows of itself at `/state`: enough to plan its routes again elsewhere.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::snapshot::Snapshot;
use crate::kernel::look::Sight;

/// What an agent knows, and what its kernel holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The routing table of its routes.
    pub table: u32,
    /// The metric of those that lead straight to a node.
    pub metric: u32,
    /// What it knows.
    pub snapshot: Arc<Snapshot>,
    /// What its kernel holds.
    pub kernel: Sight,
}
