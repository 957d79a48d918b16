//! What a wrong command line is answered, where clap by itself does not say what would be right.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// The same error, with what was most likely meant: `line` is what stands after the program's name.
pub(super) fn explained(mut error: Error, command: &Command, line: &[String]) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(written)) = error.get(ContextKind::InvalidArg).cloned() else { return error };
    let verb = line.first().map(String::as_str);
    if let Some(tip) = after_equals(&written, line).or_else(|| of_another_verb(&written, command, verb)) {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

/// As Kubernetes' own flags have it: `--leader-elect false` is `--leader-elect`, and a word.
fn after_equals(written: &str, line: &[String]) -> Option<String> {
    let is_truth = matches!(written, "true" | "false");
    let place = line.iter().position(|word| word == written).filter(|_| is_truth)?;
    let before = place.checked_sub(1).and_then(|place| line.get(place)).filter(|word| word.starts_with("--"));
    let flag = before.map_or("--FLAG", String::as_str);
    Some(format!("a flag that is true or false takes its value after '=': {flag}={written}"))
}

fn of_another_verb(written: &str, command: &Command, verb: Option<&str>) -> Option<String> {
    let name = written.strip_prefix("--")?;
    let has_it =
        |other: &&Command| other.get_arguments().any(|flag| flag.get_long() == Some(name) && !flag.is_hide_set());
    let mut others = command.get_subcommands().filter(|other| verb != Some(other.get_name()));
    let other = others.find(has_it)?;
    Some(format!("'{written}' is a flag of 'cairn {}'", other.get_name()))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_flag_in_the_wrong_place_is_told_where_it_belongs() {
        for (line, want) in [
            (&["controller", "--manage-sysctls"][..], "tip: '--manage-sysctls' is a flag of 'cairn agent'"),
            (&["agent", "--cloud-config=x"], "tip: '--cloud-config' is a flag of 'cairn controller'"),
            (&["agent", "--manage-sysctls", "false"], "takes its value after '=': --manage-sysctls=false"),
            (&["agent", "--blackhole-own-cidr", "false"], "takes its value after '=': --blackhole-own-cidr=false"),
            (&["agent", "false"], "takes its value after '=': --FLAG=false"),
            (&["controller", "--leader-elct"], "tip: a similar argument exists: '--leader-elect'"),
            (&["agent", "--route-table=x"], "it takes a whole number, 0 to 4294967295"),
            (&["controller", "--bind-address=x"], "it takes an IP address such as 0.0.0.0"),
            (&["controller", "--node-monitor-period=5"], "write it as 30s, 5m or 1h30m"),
            (&["controller", "--leader-elect=yes"], "it takes true or false"),
        ] {
            let error = Cli::try_parse_from([&["cairn"], line].concat()).expect_err("a mistake");
            let words: Vec<_> = line.iter().map(ToString::to_string).collect();
            let told = explained(error, &Cli::command(), &words).to_string();
            assert!(told.contains(want), "{line:?}: {told}");
            assert_eq!(
                told.matches("tip:").count(),
                usize::from(want.contains("tip:") || want.contains("'='")),
                "{told}"
            );
        }
    }

    #[test]
    fn each_flag_that_is_true_or_false_takes_both_forms() {
        let command = Cli::command();
        let mut found = 0;
        for verb in command.get_subcommands() {
            for flag in verb.get_arguments().filter_map(|flag| flag.get_long()) {
                let written = [format!("--{flag}"), format!("--{flag}=true"), format!("--{flag}=false")];
                let is_taken = |text: &String| {
                    // What else a verb needs does not matter here.
                    match Cli::try_parse_from(["cairn", verb.get_name(), text.as_str()]) {
                        Ok(_) => true,
                        Err(error) => error.kind() == ErrorKind::MissingRequiredArgument,
                    }
                };
                if flag != "help" && flag != "version" && is_taken(&written[0]) {
                    found += 1;
                    assert!(written.iter().all(is_taken), "cairn {} --{flag}", verb.get_name());
                }
            }
        }
        assert!(found >= 10, "only {found} such flags were found");
    }
}
