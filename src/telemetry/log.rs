//! The log: one line an event, on standard error, silent in the steady state.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The client logs each failed request as an error of its own; whoever made the request tells of it
/// once, and says what it means.
const DEFAULT_FILTER: &str = "info,kube_client=off,kube_runtime=off";

/// Starts logging. `RUST_LOG` chooses levels (`info` by default, `cairn=debug`, …).
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
}
