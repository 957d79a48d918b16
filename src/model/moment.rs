//! Time as a value.

use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on CLOCK_BOOTTIME: time since the machine booted, suspend included.
///
/// Rust's `Instant` stands still in suspend and the wall clock jumps; timers of protocols may do
/// neither. Only shells read the clock (`cluster::clock`); pure code takes a `Moment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after boot.
    pub const fn since_boot(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, later: Duration) -> Moment {
        Moment(self.0.saturating_add(later))
    }
}
