//! How long renewals of the Lease took, as the leader's own metric has it.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::harness::{Lab, namespace::output_of};

const METRIC: &str = "cairn_lease_renewal_duration_seconds_bucket{";
const URL: &str = "https://127.0.0.1:10258/metrics";

/// A histogram: upper bounds in seconds, and how many renewals took no longer.
#[derive(Clone)]
pub(crate) struct Renewals(Vec<(f64, u64)>);

impl Renewals {
    /// What the leader shows now, as an administrator sees it.
    pub(crate) async fn scrape(lab: &Lab) -> Result<Self> {
        let pki = lab.control_plane().authority();
        let mut command = lab.control_plane().namespace().command("curl");
        command.args(["--silent", "--show-error", "--fail", "--insecure", "--max-time", "15"]);
        command.arg("--cert").arg(pki.file("admin.crt")).arg("--key").arg(pki.file("admin.key")).arg(URL);
        let text = output_of(command, "curl /metrics").await?;
        let buckets: Option<Vec<_>> = text.lines().filter(|line| line.starts_with(METRIC)).map(bucket).collect();
        let buckets = buckets.context("buckets have a bound and a count")?;
        ensure!(!buckets.is_empty(), "the leader has not renewed its Lease yet");
        Ok(Self(buckets))
    }

    /// Those after an earlier look.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self(self.0.iter().zip(&earlier.0).map(|((bound, now), (_, then))| (*bound, now - then)).collect())
    }

    /// Both together.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|((bound, one), (_, other))| (*bound, one + other)).collect())
    }

    /// Others, counted within the same bounds: so that both figures are as coarse.
    pub(crate) fn of(&self, renewals: &[Duration]) -> Self {
        let within = |bound: f64| renewals.iter().filter(|took| took.as_secs_f64() <= bound).count() as u64;
        Self(self.0.iter().map(|(bound, _)| (*bound, within(*bound))).collect())
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.last().map_or(0, |(_, count)| *count)
    }

    /// Within a bucket as if evenly spread, as Prometheus' `histogram_quantile` has it.
    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        let rank = quantile * self.count() as f64;
        let mut below = (0.0, 0);
        for &(bound, count) in &self.0 {
            if count as f64 >= rank && count > 0 {
                let (lower, before) = below;
                let share = (rank - before as f64) / (count - before).max(1) as f64;
                return if bound.is_finite() { lower + (bound - lower) * share } else { f64::INFINITY };
            }
            below = (bound, count);
        }
        f64::NAN
    }

    /// How many took no longer than each bound.
    pub(crate) fn by_bound(&self) -> Value {
        let named: BTreeMap<String, u64> = self.0.iter().map(|(bound, count)| (bound.to_string(), *count)).collect();
        json!(named)
    }
}

fn bucket(line: &str) -> Option<(f64, u64)> {
    let (_, rest) = line.split_once("le=\"")?;
    let (bound, _) = rest.split_once('"')?;
    let (_, count) = line.rsplit_once(' ')?;
    Some((bound.replace("+Inf", "inf").parse().ok()?, count.parse().ok()?))
}
