//! The log: one line an event, on standard error, silent in the steady state.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The client library also logs each failed request, which those who made it say better.
const DEFAULT: &str = "info,kube_client=off";

/// Starts logging. `RUST_LOG` chooses levels (`info` by default, `cairn=debug`, …).
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
}
