//! The room's metrics.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::plan::{Planner, State};

/// What the rounds came to, and where the Nodes stand. Clones show the same numbers.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    rounds: Family<Round, Counter>,
    nodes: Family<Standing, Gauge>,
    is_held: Gauge,
}

/// A round, as upstream labels it since Kubernetes 1.37.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Round {
    /// What it was for.
    pub trigger: Trigger,
    /// What it came to.
    pub outcome: Outcome,
}

/// What a round was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// Something changed.
    NodeChange,
    /// `--route-reconciliation-period`.
    Periodic,
}

/// What a round came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Something was written.
    Changed,
    /// There was nothing to do.
    Noop,
    /// Something could not be written.
    Error,
}

impl EncodeLabelValue for Trigger {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder) -> Result<(), std::fmt::Error> {
        let text = match self {
            Self::NodeChange => "node_change",
            Self::Periodic => "periodic",
        };
        EncodeLabelValue::encode(&text, encoder)
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder) -> Result<(), std::fmt::Error> {
        let text = match self {
            Self::Changed => "changed",
            Self::Noop => "noop",
            Self::Error => "error",
        };
        EncodeLabelValue::encode(&text, encoder)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Standing {
    network: Network,
}

/// Where a Node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Network {
    Routed,
    NotRouted,
    Open,
}

impl Metrics {
    /// Metrics that the registry shows: `route_controller_route_sync_total` as upstream, and `cairn_route_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Rounds of the route controller, by what they were for and came to";
        registry.register("route_controller_route_sync", help, metrics.rounds.clone());
        let route = registry.sub_registry_with_prefix("cairn_route");
        let help = "Nodes whose pods can be reached, cannot, and of which nobody can tell";
        route.register("nodes", help, metrics.nodes.clone());
        let help = "1 while so many Nodes would lose their network that NetworkUnavailable stays as it is";
        route.register("storm_held", help, metrics.is_held.clone());
        metrics
    }

    /// A round has ended.
    pub fn ended(&self, round: Round, planner: &Planner) {
        self.rounds.get_or_create(&round).inc();
        for (state, count) in planner.states() {
            let network = match state {
                State::Routed => Network::Routed,
                State::NotRouted => Network::NotRouted,
                State::Open => Network::Open,
            };
            self.nodes.get_or_create(&Standing { network }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.is_held.set(planner.is_held().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_counted_under_upstreams_name_and_labels() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.ended(Round { trigger: Trigger::NodeChange, outcome: Outcome::Changed }, &Planner::default());
        metrics.ended(Round { trigger: Trigger::Periodic, outcome: Outcome::Noop }, &Planner::default());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for line in [
            "route_controller_route_sync_total{trigger=\"node_change\",outcome=\"changed\"} 1",
            "route_controller_route_sync_total{trigger=\"periodic\",outcome=\"noop\"} 1",
            "cairn_route_nodes{network=\"Open\"} 0",
            "cairn_route_storm_held 0",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in {text}");
        }
    }
}
