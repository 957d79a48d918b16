//! What is known of the Nodes that are not Ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::plan::{self, Observed, ObservedMachine, ObservedNode, Power};
use super::{Context, Memory};
use crate::cluster::clock;
use crate::inventory::{Finding, InventoryState, MachineState, NodeIdentity, SharedKeys};
use crate::model::NodeName;
use crate::model::views::NodeView;

/// The Nodes that concern the room, with what the inventory in force says of them.
///
/// In a healthy cluster there are none, and the inventory is not asked.
pub(super) fn observe(context: &Context, memory: &mut Memory) -> Observed {
    let views: BTreeMap<_, _> = context.nodes.snapshot().into_values().map(|view| (view.name.clone(), view)).collect();
    let recently_deleted = memory.deletions.recent(clock::now());
    if !views.values().any(|view| plan::concerns(view)) {
        return Observed { recently_deleted, ..Observed::default() };
    }
    let register = Register::of(&context.inventory.borrow(), &views);
    let concerned = views.iter().filter(|(_, view)| plan::concerns(view));
    let nodes = concerned.map(|(name, view)| {
        let machine = machine(register.find(name));
        (name.clone(), ObservedNode { view: Arc::clone(view), machine })
    });
    let is_counted = |(name, view): &(&NodeName, &Arc<NodeView>)| {
        !recently_deleted.contains(&view.uid) && !matches!(register.find(name), Finding::Unknown(_))
    };
    Observed { nodes: nodes.collect(), machine_nodes: views.iter().filter(is_counted).count(), recently_deleted }
}

/// The inventory, asked about the Nodes of this cluster.
struct Register {
    inventory: Arc<InventoryState>,
    identities: BTreeMap<NodeName, NodeIdentity>,
    shared: SharedKeys,
}

impl Register {
    fn of(inventory: &Arc<InventoryState>, views: &BTreeMap<NodeName, Arc<NodeView>>) -> Self {
        let identities: BTreeMap<_, _> =
            views.iter().map(|(name, view)| (name.clone(), NodeIdentity::from(&**view))).collect();
        let shared = SharedKeys::of(identities.values());
        Self { inventory: Arc::clone(inventory), identities, shared }
    }

    fn find(&self, name: &NodeName) -> Finding {
        self.inventory.find(&self.identities[name], &self.shared)
    }
}

fn machine(finding: Finding) -> ObservedMachine {
    match finding {
        Finding::Present(machine) if machine.state == MachineState::Maintenance => ObservedMachine::Maintenance,
        // An inventory of files knows which machines there are, and nothing of their power.
        Finding::Present(_) => ObservedMachine::Active(Power::Unknown),
        Finding::Absent => ObservedMachine::Decommissioned,
        Finding::Unknown(why) => ObservedMachine::Unknown(why.to_string()),
    }
}
