//! What the inventory in force and its files look like, for whoever scrapes metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch::Receiver;

use super::{InventoryState, MachineState};

const STATES: [MachineState; 4] =
    [MachineState::Planned, MachineState::Active, MachineState::Maintenance, MachineState::Decommissioned];

/// Registers `cairn_inventory_…`, read off the state at each scrape.
pub fn register(registry: &mut Registry, inventory: Receiver<Arc<InventoryState>>) {
    registry.register_collector(Box::new(Metrics { inventory }));
}

#[derive(Debug)]
struct Metrics {
    inventory: Receiver<Arc<InventoryState>>,
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = Arc::clone(&self.inventory.borrow());
        let mut counts: BTreeMap<MachineState, i64> = STATES.map(|state| (state, 0)).into();
        for machine in state.inventory.iter().flat_map(|inventory| inventory.machines()) {
            *counts.entry(machine.state).or_default() += 1;
        }
        let gauge = ConstGauge::new(0_i64);
        let mut family = encoder.encode_descriptor(
            "cairn_inventory_machines",
            "Machines of the inventory in force by state",
            None,
            gauge.metric_type(),
        )?;
        for (state, count) in counts {
            let labels = [("state", state.to_string())];
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        let removals = state.removals.as_ref().map_or(0, |removals| removals.machines.len());
        for (name, help, value) in [
            ("cairn_inventory_faults", "What is wrong with the inventory's files now", state.faults.len()),
            (
                "cairn_inventory_removals_held",
                "Machines that the files would take out of service, and that wait to be acknowledged",
                removals,
            ),
        ] {
            let encoder = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::catalog::tests::inventory;
    use crate::inventory::{Removals, brake};
    use tokio::sync::watch;

    #[test]
    fn a_scrape_shows_the_state_of_the_moment() {
        let before = inventory("machines: [{id: a}, {id: b}, {id: c, state: maintenance}]\n");
        let removals: Option<Removals> =
            brake::decide(&brake::states(&before), &inventory("machines: [{id: a}]\n")).err();
        let (out, state) = watch::channel(Arc::new(InventoryState::unread()));
        let mut registry = Registry::default();
        register(&mut registry, state);
        out.send_replace(Arc::new(InventoryState {
            inventory: Some(Arc::new(before)),
            removals,
            ..InventoryState::unread()
        }));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes all text");
        for line in [
            "cairn_inventory_machines{state=\"active\"} 2",
            "cairn_inventory_machines{state=\"maintenance\"} 1",
            "cairn_inventory_machines{state=\"planned\"} 0",
            "cairn_inventory_faults 0",
            "cairn_inventory_removals_held 2",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
        }
    }
}
