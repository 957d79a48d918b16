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
        /// By when a write has to be over, unless it renews before.
        until: Moment,
        /// `spec.leaseTransitions` of its Lease: each leader's is higher than that of those before.
        term: u64,
    },
    /// One that does not act any more, and never will again.
    Over,
}

impl Leadership {
    /// Where nobody else stands for anything.
    pub const ALONE: Self =
        Self::Leader { renewed: Moment::since_boot(Duration::ZERO), until: Moment::since_boot(Duration::MAX), term: 0 };

    /// How long a write may take that begins now; `None` when none may begin.
    pub fn time_left(self, now: Moment) -> Option<Duration> {
        match self {
            Self::Leader { until, .. } if now < until => Some(until.since(now)),
            _ => None,
        }
    }

    /// Whether a write may begin now.
    pub fn permits(self, now: Moment) -> bool {
        self.time_left(now).is_some()
    }

    /// The term in which this process acts.
    pub fn term(self) -> Option<u64> {
        match self {
            Self::Leader { term, .. } => Some(term),
            Self::Candidate | Self::Over => None,
        }
    }
}
