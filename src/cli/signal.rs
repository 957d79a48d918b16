//! When to stop.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// A future that is ready at the first SIGTERM or SIGINT. The handlers are in place when this returns.
pub fn stop() -> anyhow::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
