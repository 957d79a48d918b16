//! The log: one line an event, on standard error, silent in the steady state.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

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

/// How much is told, and a way to change it while the process runs.
#[derive(Debug, Clone)]
pub struct Verbosity {
    levels: reload::Handle<EnvFilter, Registry>,
}

impl Verbosity {
    /// Tells as much as with `-v` at this level from now on, whatever `RUST_LOG` said at the start.
    ///
    /// # Errors
    /// When it is no level, in klog's words.
    pub fn set(&self, level: &str) -> Result<String, String> {
        let refused = |why: String| format!("failed set klog.logging.verbosity {level}: {why}");
        let verbosity = level.parse().map_err(|error| refused(format!("a level is a number from 0 on: {error}")))?;
        self.levels.reload(EnvFilter::new(filter(verbosity))).map_err(|error| refused(error.to_string()))?;
        Ok(format!("successfully set klog.logging.verbosity to {level}"))
    }
}

/// Starts logging. `RUST_LOG` chooses levels (`cairn=debug`, …) and goes before the verbosity.
pub fn init(options: LogOptions) -> Verbosity {
    let (levels, verbosity) = levels(options.verbosity);
    let colours = std::io::stderr().is_terminal();
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(colours).with_target(false);
    let lines = match options.format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(levels).with(lines).init();
    verbosity
}

fn levels(verbosity: u8) -> (reload::Layer<EnvFilter, Registry>, Verbosity) {
    let levels = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter(verbosity)));
    let (layer, levels) = reload::Layer::new(levels);
    (layer, Verbosity { levels })
}

fn filter(verbosity: u8) -> String {
    match verbosity {
        0..=3 => format!("info,{WITHOUT_CLIENT}"),
        4..=5 => format!("info,cairn=debug,{WITHOUT_CLIENT}"),
        6.. => "info,cairn=trace,kube_client=debug,kube_runtime=debug".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::level_filters::LevelFilter;

    #[test]
    fn the_level_changes_while_the_process_runs() {
        let (layer, verbosity) = levels(0);
        let subscriber = tracing_subscriber::registry().with(layer);
        let most =
            |verbosity: &Verbosity| verbosity.levels.with_current(|levels| levels.max_level_hint()).ok().flatten();
        tracing::subscriber::with_default(subscriber, || {
            for (level, want) in [("4", LevelFilter::DEBUG), ("9", LevelFilter::TRACE), ("2", LevelFilter::INFO)] {
                let said = verbosity.set(level).expect("a level");
                assert_eq!(said, format!("successfully set klog.logging.verbosity to {level}"));
                assert_eq!(most(&verbosity), Some(want), "{level}");
            }
            for level in ["", "much", "-1", "256"] {
                let told = verbosity.set(level).expect_err("no level");
                assert!(told.starts_with(&format!("failed set klog.logging.verbosity {level}: ")), "{told}");
                assert_eq!(most(&verbosity), Some(LevelFilter::INFO), "{level:?} changes nothing");
            }
        });
    }
}
