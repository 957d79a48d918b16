//! Values as Go's flags write them.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::model;

/// Units of a Go duration, longest first, so that `ms` is not read as `m`.
const UNITS: &[(&str, f64)] =
    &[("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Reads a duration as `time.ParseDuration` does: `1m30s`, `1.5h`, `100ms`, `0`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let fault = || format!("time: invalid duration {text:?}: write it as 30s, 5m or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    if rest.is_empty() {
        return Err(fault());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fault)?;
        let number: f64 = rest[..digits].parse().map_err(|_| fault())?;
        rest = &rest[digits..];
        let length = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[..length]).ok_or_else(fault)?;
        seconds += number * unit;
        rest = &rest[length..];
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| fault())
}

/// Writes a duration as Go does: `1h30m0s`, `500ms`.
pub fn show(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    if seconds == 0 {
        return if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    let fraction = if millis == 0 { String::new() } else { format!(".{millis:03}").trim_end_matches('0').to_owned() };
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}{fraction}s"),
        (0, m, s) => format!("{m}m{s}{fraction}s"),
        (h, m, s) => format!("{h}h{m}m{s}{fraction}s"),
    }
}

/// Reads a truth value as `strconv.ParseBool` does.
pub fn truth(text: &str) -> Result<bool, String> {
    model::truth(text).ok_or_else(|| "it takes true or false".to_owned())
}

/// A whole number of a fixed width.
pub trait Whole: FromStr {
    /// What is right, for the end of a sentence.
    const TAKES: &'static str;
}

impl Whole for u8 {
    const TAKES: &'static str = "a whole number, 0 to 255";
}

impl Whole for u16 {
    const TAKES: &'static str = "a whole number, 0 to 65535";
}

impl Whole for u32 {
    const TAKES: &'static str = "a whole number, 0 to 4294967295";
}

impl Whole for i64 {
    const TAKES: &'static str = "a whole number such as 50";
}

/// Reads a whole number.
pub fn number<N: Whole>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("it takes {}", N::TAKES))
}

/// Reads a number of requests a second.
pub fn rate(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "it takes a number such as 20 or 0.5".to_owned())
}

/// Reads an address to listen on.
pub fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "it takes an IP address such as 0.0.0.0, :: or 10.0.0.1".to_owned())
}

/// Reads an address and a port to listen on.
pub fn endpoint(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it takes an IP address and a port such as 127.0.0.1:10262 or [::1]:10262".to_owned())
}

/// Reads a path; the empty one says "none".
pub fn path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for (text, millis, shown) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("15s", 15_000, "15s"),
            ("1m30s", 90_000, "1m30s"),
            ("90s", 90_000, "1m30s"),
            ("1.5h", 5_400_000, "1h30m0s"),
            ("12h", 43_200_000, "12h0m0s"),
            ("5m0s", 300_000, "5m0s"),
            ("100ms", 100, "100ms"),
            ("2.5s", 2500, "2.5s"),
        ] {
            let read = duration(text).expect(text);
            assert_eq!((read, show(read).as_str()), (Duration::from_millis(millis), shown), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1d", "1 s", "1..2s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_value_is_told_with_what_would_be_one() {
        assert_eq!(number::<u16>("70000"), Err("it takes a whole number, 0 to 65535".to_owned()));
        assert_eq!((number::<i64>("-1"), number::<u8>("7")), (Ok(-1), Ok(7)));
        assert!(rate("x").is_err() && rate("-1").is_ok());
        assert!(address("localhost").is_err() && address("::").is_ok());
        assert!(endpoint("10262").is_err() && endpoint("[::1]:1").is_ok());
    }

    #[test]
    fn truth_is_spelt_as_go_spells_it() {
        assert_eq!((truth("true"), truth("F")), (Ok(true), Ok(false)));
        assert!(truth("yes").is_err());
    }
}
