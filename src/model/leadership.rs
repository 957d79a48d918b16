//! What a process is among those that stand for one lock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Moment;

/// What this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "role")]
pub enum Leadership {
    /// One that waits.
    Candidate,
    /// The one that acts.
    Leader {
        /// When the last accepted renewal was sent; others count from no earlier time.
        renewed: Moment,
        /// Until when it may begin a write, unless it renews before.
        until: Moment,
    },
    /// One that does not act any more, and never will again.
    Over,
}

impl Leadership {
    /// Where nobody else stands for anything.
    pub const ALONE: Self =
        Self::Leader { renewed: Moment::since_boot(Duration::ZERO), until: Moment::since_boot(Duration::MAX) };

    /// Whether a write may begin now.
    pub fn permits(self, now: Moment) -> bool {
        matches!(self, Self::Leader { until, .. } if now < until)
    }
}
