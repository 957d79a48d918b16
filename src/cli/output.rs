//! What a verb says on the standard output, which can close or be full.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use serde::Serialize;

/// For whom it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people; it may be worded otherwise in the next version.
    Text,
    /// For scripts.
    Json,
}

/// How a verb says what it has found.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// How to say it.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    output: Format,
}

impl Output {
    /// Says it on the standard output.
    ///
    /// # Errors
    /// As [`print`].
    pub(super) fn say(&self, what: &(impl Display + Serialize)) -> anyhow::Result<()> {
        match self.output {
            Format::Text => print(&what.to_string()),
            Format::Json => print(&format!("{}\n", serde_json::to_string_pretty(what)?)),
        }
    }
}

/// Writes to the standard output.
///
/// # Errors
/// When it cannot be written; a reader who left early, such as `head`, is none.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    write(io::stdout().lock(), text)
}

fn write(mut out: impl Write, text: &str) -> anyhow::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to the standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::told::Told;

    /// Takes what comes, and fails with this when it is to be written out.
    struct Failing {
        at_once: bool,
        how: ErrorKind,
    }

    impl Write for Failing {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            if self.at_once { Err(self.how.into()) } else { Ok(text.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.how.into())
        }
    }

    #[test]
    fn a_reader_who_left_is_no_error_and_a_full_disk_is() {
        for at_once in [true, false] {
            let told = |how| {
                let written = write(Failing { at_once, how }, "text");
                written.map_err(|error| Told(error.as_ref()).to_string())
            };
            assert_eq!(told(ErrorKind::BrokenPipe), Ok(()), "{at_once}");
            let want = format!("cannot write to the standard output: {}", io::Error::from(ErrorKind::StorageFull));
            assert_eq!(told(ErrorKind::StorageFull), Err(want), "{at_once}");
        }
    }
}
