//! The room's metrics, by upstream's names.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::plan::Usage;
use crate::config::ClusterCidr;
use crate::model::Prefix;

/// How full the cluster CIDRs are, and what was given. Clones show the same numbers.
#[derive(Debug, Clone)]
pub struct Metrics {
    allocations: Family<Label, Counter>,
    releases: Family<Label, Counter>,
    most: Family<Label, Gauge<f64, AtomicU64>>,
    usage: Family<Label, Gauge<f64, AtomicU64>>,
    tries: Family<Label, Histogram>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(non_snake_case, reason = "upstream's label")]
struct Label {
    clusterCIDR: String,
}

impl Label {
    fn of(cluster: &ClusterCidr) -> Self {
        Self { clusterCIDR: cluster.prefix().to_string() }
    }
}

impl Metrics {
    /// Metrics that the registry shows, as `node_ipam_controller_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            allocations: Family::default(),
            releases: Family::default(),
            most: Family::default(),
            usage: Family::default(),
            // Upstream's buckets.
            tries: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1.0, 5.0, 5))),
        };
        let ipam = registry.sub_registry_with_prefix("node_ipam_controller");
        ipam.register("cidrset_cidrs_allocations", "Pod CIDRs given out", metrics.allocations.clone());
        ipam.register("cidrset_cidrs_releases", "Pod CIDRs that became free", metrics.releases.clone());
        // Upstream's spelling.
        ipam.register("cirdset_max_cidrs", "Pod CIDRs there are", metrics.most.clone());
        ipam.register("cidrset_usage_cidrs", "Part of them that is in use or left out, 0 to 1", metrics.usage.clone());
        let help = "Blocks that were tried until one was nobody else's";
        ipam.register("cidrset_allocation_tries_per_request", help, metrics.tries.clone());
        metrics
    }

    /// Counts what a Node got, after so many tries.
    pub(super) fn allocated(&self, cluster: &[ClusterCidr], tries: u32) {
        for cluster in cluster {
            self.allocations.get_or_create(&Label::of(cluster)).inc();
            self.tries.get_or_create(&Label::of(cluster)).observe(f64::from(tries));
        }
    }

    /// Counts blocks that Nodes had.
    pub(super) fn released(&self, cluster: &[ClusterCidr], blocks: &[Prefix]) {
        for cluster in cluster {
            let count = blocks.iter().filter(|block| cluster.prefix().overlaps(block)).count();
            self.releases.get_or_create(&Label::of(cluster)).inc_by(count as u64);
        }
    }

    /// Shows how full the cluster CIDRs are.
    pub(super) fn show(&self, cluster: &[ClusterCidr], usage: &[Usage]) {
        for (cluster, Usage { taken, size }) in cluster.iter().zip(usage) {
            let (taken, size) = (*taken as f64, *size as f64);
            self.most.get_or_create(&Label::of(cluster)).set(size);
            self.usage.get_or_create(&Label::of(cluster)).set(taken / size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_label_are_upstreams() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let prefix = |text: &str| text.parse::<Prefix>().expect("a prefix");
        let cluster = [ClusterCidr::new(prefix("10.244.0.0/16"), 24).expect("a cluster CIDR")];
        metrics.allocated(&cluster, 2);
        metrics.released(&cluster, &[prefix("10.244.3.0/24"), prefix("fd00::/64")]);
        metrics.show(&cluster, &[Usage { taken: 64, size: 256 }]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes all text");
        for line in [
            "node_ipam_controller_cidrset_cidrs_allocations_total{clusterCIDR=\"10.244.0.0/16\"} 1",
            "node_ipam_controller_cidrset_cidrs_releases_total{clusterCIDR=\"10.244.0.0/16\"} 1",
            "node_ipam_controller_cirdset_max_cidrs{clusterCIDR=\"10.244.0.0/16\"} 256.0",
            "node_ipam_controller_cidrset_usage_cidrs{clusterCIDR=\"10.244.0.0/16\"} 0.25",
            "node_ipam_controller_cidrset_allocation_tries_per_request_bucket{le=\"1.0\",clusterCIDR=\"10.244.0.0/16\"} 0",
            "node_ipam_controller_cidrset_allocation_tries_per_request_bucket{le=\"5.0\",clusterCIDR=\"10.244.0.0/16\"} 1",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
        }
    }
}
