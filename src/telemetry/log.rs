//! The log: one line an event, on standard error, silent in the steady state.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The client logs each failed request as an error of its own; whoever made the request tells of it
/// once, and says what it means.
const WITHOUT_CLIENT: &str = "kube_client=off,kube_runtime=off";

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogOptions {
    /// How lines are written.
    pub format: Format,
    /// Kubernetes' levels: from 4 on debugging, from 6 on everything.
    pub verbosity: u8,
}

/// Starts logging. `RUST_LOG` chooses levels (`cairn=debug`, …) and goes before the verbosity.
pub fn init(options: LogOptions) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter(options.verbosity)));
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false);
    match options.format {
        Format::Text => log.init(),
        Format::Json => log.json().init(),
    }
}

fn filter(verbosity: u8) -> String {
    match verbosity {
        0..=3 => format!("info,{WITHOUT_CLIENT}"),
        4..=5 => format!("info,cairn=debug,{WITHOUT_CLIENT}"),
        6.. => "info,cairn=trace,kube_client=debug,kube_runtime=debug".to_owned(),
    }
}
