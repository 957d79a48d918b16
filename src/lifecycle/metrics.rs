//! The room's metrics.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::plan::Plan;
use crate::model::Note;

/// How many Nodes are held, and how many were deleted. Clones show the same numbers.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    held_nodes: Family<Held, Gauge>,
    /// Nodes this process has deleted.
    pub deleted_nodes: Counter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Held {
    reason: Reason,
}

/// Why a Node that is not Ready is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Reason {
    MachineUnknown,
    MachineInMaintenance,
    DeletionsHeld,
}

impl Reason {
    const ALL: [Self; 3] = [Self::MachineUnknown, Self::MachineInMaintenance, Self::DeletionsHeld];

    fn of(note: &Note) -> Option<Self> {
        match note {
            Note::MachineUnknown { .. } => Some(Self::MachineUnknown),
            Note::MachineInMaintenance => Some(Self::MachineInMaintenance),
            Note::DeletionsHeld { .. } => Some(Self::DeletionsHeld),
            _ => None,
        }
    }
}

impl Metrics {
    /// Metrics that the registry shows, as `cairn_lifecycle_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let lifecycle = registry.sub_registry_with_prefix("cairn_lifecycle");
        let held = metrics.held_nodes.clone();
        lifecycle.register("held_nodes", "Nodes that are not Ready and are left as they are, and why", held);
        lifecycle.register("deleted_nodes", "Nodes deleted since the start", metrics.deleted_nodes.clone());
        metrics
    }

    /// Shows how many Nodes the plan holds.
    pub fn show(&self, plan: &Plan) {
        for reason in Reason::ALL {
            let held = plan.notes.values().filter(|note| Reason::of(note) == Some(reason)).count();
            self.held_nodes.get_or_create(&Held { reason }).set(i64::try_from(held).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_nodes_are_counted_by_reason() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let node = |name: &str| name.parse().expect("a name");
        let notes = [
            (node("n1"), Note::DeletionsHeld { limit: 1 }),
            (node("n2"), Note::DeletionsHeld { limit: 1 }),
            (node("n3"), Note::MachineInMaintenance),
            (node("n4"), Note::NodeDeleting { node: node("n4") }),
        ];
        metrics.show(&Plan { notes: notes.into(), ..Plan::default() });
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for line in [
            "cairn_lifecycle_held_nodes{reason=\"DeletionsHeld\"} 2",
            "cairn_lifecycle_held_nodes{reason=\"MachineInMaintenance\"} 1",
            "cairn_lifecycle_held_nodes{reason=\"MachineUnknown\"} 0",
            "cairn_lifecycle_deleted_nodes_total 0",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in {text}");
        }
    }
}
