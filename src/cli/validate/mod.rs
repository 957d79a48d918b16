//! `cairn validate FILE…`: everything that is wrong with files, before Cairn meets them.
//!
//! It runs the very checks of the controller and the agent, each file by itself and all together:
//! names and addresses that two files give out, locations in another file. Files that a cloud config
//! names are checked as well. It asks no API server.

mod check;
mod kind;
#[cfg(test)]
mod tests;
mod together;

use std::path::PathBuf;
use std::process::ExitCode;

use check::Check;

use super::output;
use crate::config::{CloudConfig, source};
use crate::inventory::Inventory;

/// Check files before Cairn meets them: cloud config, inventory, leader migration, AddressPool, Advertisement,
/// BgpPeer.
///
/// Prints for each file what it holds, or each fault with its line and field. Exits with 0 when all
/// is right and with 1 when not.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files, folders of *.yaml and *.yml, or - for the standard input.
    #[arg(required_unless_present = "schema", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the JSON schema of a format, for editors and other tools, and check nothing.
    #[arg(long, value_name = "FORMAT", conflicts_with = "files")]
    schema: Option<Format>,
}

/// A format whose schema can be printed. Kubernetes has those of its objects: `kubectl explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Which machines there are.
    Inventory,
    /// Where the inventory is.
    CloudConfig,
}

impl Format {
    fn json_schema(self) -> serde_json::Value {
        match self {
            Self::Inventory => Inventory::json_schema(),
            Self::CloudConfig => CloudConfig::json_schema(),
        }
    }
}

impl Args {
    /// Validates and prints.
    ///
    /// # Errors
    /// Only when the standard output cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(format) = self.schema {
            output::print(&format!("{:#}\n", format.json_schema()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let (verdict, told) = validate(&self.files);
        output::print(&told)?;
        Ok(verdict.into())
    }
}

/// Whether everything was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No fault: exit code 0.
    Right,
    /// At least one: exit code 1.
    Faulty,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Right => Self::SUCCESS,
            Verdict::Faulty => Self::FAILURE,
        }
    }
}

/// Checks files, directories of files, and the standard input (`-`), and says for each file what
/// it holds, or each of its faults.
pub fn validate(paths: &[PathBuf]) -> (Verdict, String) {
    let mut check = Check::default();
    for path in paths {
        // One at a time, so that one bad folder does not hide the other files.
        let files = check.faults.take(source::expand(std::slice::from_ref(path)));
        files.into_iter().flatten().for_each(|file| check.file(&file));
    }
    check.all_together();
    check.told()
}
