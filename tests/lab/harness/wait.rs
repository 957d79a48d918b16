#![expect(clippy::disallowed_methods, reason = "shell: the one place where the bench reads a clock")]
//! Waiting for a condition, and measuring how long it took.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Waits until `look` succeeds; what it returned last as an error is in the message when the deadline passes.
pub(crate) async fn wait_for<T>(what: &str, deadline: Duration, look: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    wait_every(LOOK_EVERY, what, deadline, look).await
}

/// Like [`wait_for`], looking once in `period`: for measuring short times.
pub(crate) async fn wait_every<T>(
    period: Duration,
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let end = tokio::time::Instant::now() + deadline;
    let mut last_seen = anyhow!("nothing: the first look did not end");
    loop {
        match tokio::time::timeout_at(end, look()).await {
            Ok(Ok(seen)) => return Ok(seen),
            Ok(Err(seen)) => last_seen = seen,
            Err(_) => {}
        }
        if tokio::time::Instant::now() >= end {
            return Err(last_seen).with_context(|| format!("{what}: not within {deadline:?}; last seen"));
        }
        tokio::time::sleep_until((tokio::time::Instant::now() + period).min(end)).await;
    }
}

/// Watches that `look` succeeds throughout `period`.
pub(crate) async fn stays(what: &str, period: Duration, mut look: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    let end = tokio::time::Instant::now() + period;
    while tokio::time::Instant::now() < end {
        look().await.with_context(|| format!("{what}: not throughout {period:?}"))?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Measures time for the reader of a narration or a benchmark.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
