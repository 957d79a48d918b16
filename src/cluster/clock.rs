#![expect(clippy::disallowed_methods, reason = "shell: the clock")]
//! The only clock: CLOCK_BOOTTIME.
//!
//! `Instant` stands still in suspend and the wall clock jumps; see [`Moment`].

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::model::Moment;

/// The time since boot, suspend included.
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    // The kernel counts up from zero at boot: neither part is ever negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
    Moment::since_boot(Duration::new(seconds, nanoseconds))
}

/// Waits until a moment; for ever without one. Cancel-safe.
pub async fn until(moment: Option<Moment>) {
    match moment {
        Some(moment) => tokio::time::sleep(moment.since(now())).await,
        None => std::future::pending().await,
    }
}
