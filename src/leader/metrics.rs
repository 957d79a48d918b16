//! How renewing a Lease goes.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Bounds in seconds: a renewal takes milliseconds, is late from one second on, and given up after five by default.
const BOUNDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 5.5, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lease {
    name: String,
}

/// Counts and times of renewals, by Lease.
#[derive(Debug, Clone)]
pub struct Metrics {
    slow_paths: Family<Lease, Counter>,
    renewals: Family<Lease, Histogram, fn() -> Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { slow_paths: Family::default(), renewals: Family::new_with_constructor(|| Histogram::new(BOUNDS)) }
    }
}

impl Metrics {
    /// Metrics that the registry shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // client-go's.
        let help = "Times a leader had to read the Lease before it could renew it";
        registry.register("leader_election_slowpath", help, metrics.slow_paths.clone());
        let help = "Time until the API server answered a renewal of the Lease, or none came";
        registry.register_with_unit("cairn_lease_renewal_duration", help, Unit::Seconds, metrics.renewals.clone());
        metrics
    }

    /// A leader reads before it renews.
    pub fn slow_path(&self, lease: &str) {
        self.slow_paths.get_or_create(&Lease { name: lease.to_owned() }).inc();
    }

    /// A renewal was answered, or given up.
    pub fn renewed(&self, lease: &str, took: Duration) {
        self.renewals.get_or_create(&Lease { name: lease.to_owned() }).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_is_timed_and_a_slow_path_counted_by_lease() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.slow_path("l");
        metrics.renewed("l", Duration::from_millis(20));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes all text");
        for line in [
            "leader_election_slowpath_total{name=\"l\"} 1",
            "cairn_lease_renewal_duration_seconds_bucket{le=\"0.01\",name=\"l\"} 0",
            "cairn_lease_renewal_duration_seconds_bucket{le=\"0.025\",name=\"l\"} 1",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
        }
    }
}
