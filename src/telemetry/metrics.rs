//! Metrics of the process, under the names of Kubernetes' controller managers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

const MANAGER: &str = "cloud-controller-manager";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Running {
    name: String,
    manager: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lease {
    name: String,
}

/// What runs, and under which Leases.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    running: Family<Running, Gauge>,
    leading: Family<Lease, Gauge>,
}

impl Metrics {
    /// Metrics that the registry shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "1 for each controller that runs in this process";
        registry.register("running_managed_controllers", help, metrics.running.clone());
        let help = "1 while this process holds the Lease";
        registry.register("leader_election_master_status", help, metrics.leading.clone());
        metrics
    }

    /// A controller has been started.
    pub fn started(&self, controller: &str) {
        let running = Running { name: controller.to_owned(), manager: MANAGER.to_owned() };
        self.running.get_or_create(&running).set(1);
    }

    /// Whether this process holds a Lease.
    pub fn leads(&self, lease: &str, is_holder: bool) {
        self.leading.get_or_create(&Lease { name: lease.to_owned() }).set(is_holder.into());
    }
}
