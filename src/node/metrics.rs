//! How long Nodes wait for this room, under upstream's names, and how many it holds.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds in seconds: 1 to 1024, fourfold each.
const BUCKETS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// Delays since a Node was created, and the Nodes that something stands in the way of.
#[derive(Debug, Clone)]
pub struct Metrics {
    taint_removal_delay: Histogram,
    initial_sync_delay: Histogram,
    held_nodes: Family<Held, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Held {
    reason: &'static str,
}

impl Metrics {
    /// Metrics that the registry shows, as `node_controller_…`, and `cairn_node_held_nodes`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            taint_removal_delay: Histogram::new(BUCKETS),
            initial_sync_delay: Histogram::new(BUCKETS),
            held_nodes: Family::default(),
        };
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
        let help = "Nodes that are held as they are, by the reason that their Events tell";
        registry.register("cairn_node_held_nodes", help, metrics.held_nodes.clone());
        metrics
    }

    /// A Node was held for one reason before, and is for another now, or for none.
    pub(super) fn held(&self, before: Option<&'static str>, now: Option<&'static str>) {
        if let Some(reason) = before {
            self.held_nodes.get_or_create(&Held { reason }).dec();
        }
        if let Some(reason) = now {
            self.held_nodes.get_or_create(&Held { reason }).inc();
        }
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
    fn a_node_is_counted_under_the_reason_it_is_held_for_and_no_longer() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        for (before, now) in [
            (None, Some("MachineUnknown")),
            (None, Some("MachineUnknown")),
            (Some("MachineUnknown"), Some("MachineUnknown")),
            (Some("MachineUnknown"), Some("MachineMismatch")),
            (Some("MachineUnknown"), None),
        ] {
            metrics.held(before, now);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes all text");
        for (reason, count) in [("MachineUnknown", 0), ("MachineMismatch", 1)] {
            let line = format!("cairn_node_held_nodes{{reason=\"{reason}\"}} {count}");
            assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
        }
    }

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
