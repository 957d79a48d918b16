//! The log: one line an event, on standard error, silent in the steady state.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging. `RUST_LOG` chooses levels (`info` by default, `cairn=debug`, …).
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
}
