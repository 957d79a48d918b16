//! How long Nodes wait for this room, under upstream's names.

use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds in seconds: 1 to 1024, fourfold each.
const BUCKETS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// Delays since a Node was created.
#[derive(Debug, Clone)]
pub struct Metrics {
    taint_removal_delay: Histogram,
    initial_sync_delay: Histogram,
}

impl Metrics {
    /// Metrics that the registry shows, as `node_controller_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics =
            Self { taint_removal_delay: Histogram::new(BUCKETS), initial_sync_delay: Histogram::new(BUCKETS) };
        registry.register(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Seconds from the creation of a Node to the removal of its uninitialized taint",
            metrics.taint_removal_delay.clone(),
        );
        registry.register(
            "node_controller_initial_node_sync_delay_seconds",
            "Seconds from the creation of a Node to the end of its initialization",
            metrics.initial_sync_delay.clone(),
        );
        metrics
    }

    /// Counts a Node that was initialized this many seconds after its creation.
    ///
    /// Both delays end with one write: what upstream does after it took the taint off is done before.
    pub(super) fn initialized(&self, seconds: f64) {
        self.taint_removal_delay.observe(seconds);
        self.initial_sync_delay.observe(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_and_buckets_are_upstreams() {
        let mut registry = Registry::default();
        Metrics::register(&mut registry).initialized(3.0);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes all text");
        for name in [
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "node_controller_initial_node_sync_delay_seconds",
        ] {
            for line in [
                format!("{name}_bucket{{le=\"1.0\"}} 0"),
                format!("{name}_bucket{{le=\"4.0\"}} 1"),
                format!("{name}_bucket{{le=\"1024.0\"}} 1"),
                format!("{name}_count 1"),
            ] {
                assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
            }
        }
    }
}
