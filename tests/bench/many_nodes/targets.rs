//! Figures and what they are held to, for the eye and for machines.

use std::time::Duration;

use serde_json::{Value, json};

/// A figure and the most that it may be.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) at_most: f64,
    pub(crate) figure: f64,
}

/// Prints everything for the eye, a missed target like one that is met, and returns all of it as one JSON object.
pub(crate) fn print(mut figures: Value, targets: &[Target]) -> Value {
    for (name, value) in figures.as_object().into_iter().flatten() {
        println!("{name:<62} {value}");
    }
    for Target { name, at_most, figure } in targets {
        let verdict = if figure <= at_most { "met" } else { "MISSED" };
        println!("{name:<62} {:<10} at most {at_most:<6} {verdict}", rounded(*figure));
    }
    figures["targets"] = targets
        .iter()
        .map(|Target { name, at_most, figure }| {
            json!({ "name": name, "figure": rounded(*figure), "at_most": at_most, "is_met": figure <= at_most })
        })
        .collect();
    figures
}

/// How the program under test was built.
pub(crate) fn build() -> &'static str {
    if cfg!(debug_assertions) { "dev" } else { "release" }
}

pub(crate) fn seconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64())
}

pub(crate) fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}

pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

/// To three decimals: the rest is noise.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
