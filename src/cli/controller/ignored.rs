//! Flags of a cloud-controller-manager that have nothing to set here.
//!
//! Manifests that were written for another one go on working; a flag that is given is told once.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Error};

const RESYNC: &str = "everything is looked at again every five minutes";
const JSON: &str = "requests are JSON";
const ONE_CLUSTER: &str = "an inventory is one cluster's";
const DEPRECATED: &str = "it has no meaning any more";
const GATES: &str = "no feature is behind a gate";
const PROFILING: &str = "profiles are not served";
const HTTP1: &str = "the secure port speaks HTTP/1.1";
const ONE_CERTIFICATE: &str = "the secure port has one certificate";
const WEBHOOKS: &str = "there are no webhooks";
const LOG: &str = "the log is written line by line to standard error";
const STATUS_WRITES: &str = "writes to a Node's status count among --concurrent-node-syncs";

/// Name and why it has no effect.
pub(super) const FLAGS: &[(&str, &str)] = &[
    ("min-resync-period", RESYNC),
    ("kube-api-content-type", JSON),
    ("feature-gates", GATES),
    ("contention-profiling", PROFILING),
    ("external-cloud-volume-plugin", DEPRECATED),
    ("allow-untagged-cloud", ONE_CLUSTER),
    ("cluster-name", ONE_CLUSTER),
    ("node-sync-period", DEPRECATED),
    ("disable-http2-serving", HTTP1),
    ("http2-max-streams-per-connection", HTTP1),
    ("tls-sni-cert-key", ONE_CERTIFICATE),
    ("webhooks", WEBHOOKS),
    ("webhook-bind-address", WEBHOOKS),
    ("webhook-secure-port", WEBHOOKS),
    ("webhook-cert-dir", WEBHOOKS),
    ("webhook-tls-cert-file", WEBHOOKS),
    ("webhook-tls-private-key-file", WEBHOOKS),
    ("webhook-tls-cipher-suites", WEBHOOKS),
    ("webhook-tls-min-version", WEBHOOKS),
    ("webhook-tls-curve-preferences", WEBHOOKS),
    ("webhook-tls-sni-cert-key", WEBHOOKS),
    ("webhook-disable-http2-serving", WEBHOOKS),
    ("log-flush-frequency", LOG),
    ("log-text-split-stream", LOG),
    ("log-text-info-buffer-size", LOG),
    ("log-json-split-stream", LOG),
    ("log-json-info-buffer-size", LOG),
    ("vmodule", LOG),
];
/// Those that Go reads as truth values: they take a value only after `=`.
const BOOLEAN: &[&str] = &[
    "contention-profiling",
    "allow-untagged-cloud",
    "disable-http2-serving",
    "webhook-disable-http2-serving",
    "log-text-split-stream",
    "log-json-split-stream",
];
/// As upstream checks it, although it sets nothing here.
const STATUS_UPDATES: &str = "concurrent-node-status-updates";

/// The flags that were given in vain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Each flag, and why it has no effect.
    pub given: Vec<(&'static str, &'static str)>,
    /// `--concurrent-node-status-updates`, which is checked all the same.
    pub concurrent_node_status_updates: i64,
}

impl clap::FromArgMatches for Ignored {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        let mut given: Vec<_> = FLAGS.iter().copied().filter(|(name, _)| is_given(name)).collect();
        if is_given(STATUS_UPDATES) {
            given.push((STATUS_UPDATES, STATUS_WRITES));
        }
        let updates = matches.get_one::<i64>(STATUS_UPDATES).copied().unwrap_or_default();
        Ok(Self { given, concurrent_node_status_updates: updates })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Ignored {
    fn augment_args(command: Command) -> Command {
        let flags = FLAGS.iter().map(|(name, why)| {
            let flag = Arg::new(*name).long(*name).action(ArgAction::Append).hide(true).help(*why);
            if BOOLEAN.contains(name) {
                flag.num_args(0..=1).require_equals(true).default_missing_value("true")
            } else {
                flag.num_args(1)
            }
        });
        let updates = Arg::new(STATUS_UPDATES).long(STATUS_UPDATES).hide(true).help(STATUS_WRITES);
        command.args(flags).arg(updates.value_parser(clap::value_parser!(i64)).allow_negative_numbers(true))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
