//! The room's metrics: upstream's, and how full the pools are.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::api::{AddressCounts, AddressPoolStatus};
use crate::model::{self, PoolName};

/// What was written to Services, and how full the pools are. Clones show the same numbers.
#[derive(Debug, Clone)]
pub struct Metrics {
    synced: Counter,
    total: Family<Label, Gauge>,
    in_use: Family<Label, Gauge>,
    free: Family<Label, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct Label {
    pool: String,
    family: String,
}

impl Metrics {
    /// Metrics that the registry shows: `service_controller_…` as upstream, and `cairn_pool_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            synced: Counter::default(),
            total: Family::default(),
            in_use: Family::default(),
            free: Family::default(),
        };
        let upstream = registry.sub_registry_with_prefix("service_controller");
        let help = "Times that a Service was given addresses, had them put right or gave them back";
        upstream.register("loadbalancer_sync", help, metrics.synced.clone());
        // There for who asks for them: no Service is written because of a Node.
        let help = "Services that could not be told of other Nodes: always 0, none is told";
        upstream.register("nodesync_error", help, Counter::<u64>::default());
        for (name, help) in [
            ("nodesync_latency_seconds", "Time to tell all Services of other Nodes: never, none is told"),
            (
                "update_loadbalancer_host_latency_seconds",
                "Time to tell one Service of other Nodes: never, none is told",
            ),
        ] {
            // Upstream's buckets.
            upstream.register(name, help, Histogram::new(exponential_buckets(1.0, 2.0, 15)));
        }
        let pool = registry.sub_registry_with_prefix("cairn_pool");
        pool.register("addresses", "Addresses that an AddressPool gives out", metrics.total.clone());
        let help = "Those that Services have, each once however many share it";
        pool.register("addresses_in_use", help, metrics.in_use.clone());
        pool.register("addresses_free", "Those that the next Service may get", metrics.free.clone());
        metrics
    }

    /// Counts a write to a Service that was accepted.
    pub(super) fn synced(&self) {
        self.synced.inc();
    }

    fn set(&self, label: &Label, counts: &AddressCounts) {
        self.total.get_or_create(label).set(counts.total);
        self.in_use.get_or_create(label).set(counts.used);
        self.free.get_or_create(label).set(counts.free);
    }

    fn remove(&self, label: &Label) {
        for family in [&self.total, &self.in_use, &self.free] {
            family.remove(label);
        }
    }
}

/// What is shown of the pools. A pool that is gone is shown no more, and neither is any when this is dropped.
#[derive(Debug)]
pub(super) struct Shown {
    metrics: Metrics,
    counts: BTreeMap<Label, AddressCounts>,
}

impl Shown {
    /// Nothing yet.
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, counts: BTreeMap::new() }
    }

    /// Shows these pools, as their statuses have it, and no others.
    pub(super) fn show<'a>(&mut self, pools: impl IntoIterator<Item = (&'a PoolName, &'a AddressPoolStatus)>) {
        let mut counts = BTreeMap::new();
        for (name, status) in pools {
            for (family, of_family) in [(model::Family::V4, status.ipv4), (model::Family::V6, status.ipv6)] {
                let label = Label { pool: name.to_string(), family: family.to_string() };
                counts.extend(of_family.map(|of_family| (label, of_family)));
            }
        }
        self.counts.keys().filter(|label| !counts.contains_key(label)).for_each(|label| self.metrics.remove(label));
        counts.iter().for_each(|(label, counts)| self.metrics.set(label, counts));
        self.counts = counts;
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.show([]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).expect("a String takes all text");
        text
    }

    #[test]
    fn the_names_are_upstreams_and_there_from_the_start() {
        let mut registry = Registry::default();
        Metrics::register(&mut registry).synced();
        let text = text(&registry);
        for line in [
            "service_controller_loadbalancer_sync_total 1",
            "service_controller_nodesync_error_total 0",
            "service_controller_nodesync_latency_seconds_count 0",
            "service_controller_nodesync_latency_seconds_bucket{le=\"16384.0\"} 0",
            "service_controller_update_loadbalancer_host_latency_seconds_count 0",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_pool_is_shown_by_family_from_its_first_status_until_it_is_gone() {
        let mut registry = Registry::default();
        let mut shown = Shown::new(Metrics::register(&mut registry));
        let lines = |registry: &Registry| -> Vec<String> {
            text(registry).lines().filter(|line| line.starts_with("cairn_pool")).map(str::to_owned).collect()
        };
        let (a, b): (PoolName, PoolName) = ("a".parse().expect("a name"), "b".parse().expect("a name"));
        let status = |v4: Option<(i64, i64)>, v6: Option<(i64, i64)>| {
            let counts = |(total, used)| AddressCounts { total, used, free: total - used };
            AddressPoolStatus { ipv4: v4.map(counts), ipv6: v6.map(counts), ..AddressPoolStatus::default() }
        };
        shown.show([(&a, &status(Some((5, 0)), Some((i64::MAX, 2)))), (&b, &status(None, None))]);
        let mut all = lines(&registry);
        all.sort();
        assert_eq!(
            all,
            [
                "cairn_pool_addresses_free{pool=\"a\",family=\"IPv4\"} 5",
                "cairn_pool_addresses_free{pool=\"a\",family=\"IPv6\"} 9223372036854775805",
                "cairn_pool_addresses_in_use{pool=\"a\",family=\"IPv4\"} 0",
                "cairn_pool_addresses_in_use{pool=\"a\",family=\"IPv6\"} 2",
                "cairn_pool_addresses{pool=\"a\",family=\"IPv4\"} 5",
                "cairn_pool_addresses{pool=\"a\",family=\"IPv6\"} 9223372036854775807",
            ]
        );
        shown.show([(&a, &status(Some((5, 1)), None)), (&b, &status(Some((1, 1)), None))]);
        let shown_now = lines(&registry);
        assert_eq!(shown_now.len(), 6, "a has no IPv6 any more: {shown_now:?}");
        assert!(shown_now.contains(&"cairn_pool_addresses_in_use{pool=\"a\",family=\"IPv4\"} 1".to_owned()));
        shown.show([(&b, &status(Some((1, 1)), None))]);
        assert_eq!(lines(&registry).len(), 3, "a is gone");
        drop(shown);
        assert_eq!(lines(&registry), Vec::<String>::new(), "who does not lead knows nothing of pools");
    }
}
