//! What is known of the Nodes that are not Ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan::{self, Observed, ObservedMachine, ObservedNode, Power};
use super::{Context, Memory};
use crate::cluster::clock;
use crate::inventory::{Finding, InventoryState, MachineState, NodeIdentity, SharedKeys};
use crate::model::NodeName;
use crate::model::views::NodeView;

/// The Nodes that concern the room, with what the inventory in force says of them.
pub(super) fn observe(context: &Context, memory: &mut Memory) -> Observed {
    let views = context.nodes.snapshot().into_values().map(|view| (view.name.clone(), view)).collect();
    let inventory = Arc::clone(&context.inventory.borrow());
    observed(&views, &inventory, memory.deletions.recent(clock::now()))
}

/// In a healthy cluster no Node concerns the room, and the inventory is not asked.
fn observed(
    views: &BTreeMap<NodeName, Arc<NodeView>>,
    inventory: &Arc<InventoryState>,
    recently_deleted: BTreeSet<String>,
) -> Observed {
    if !views.values().any(|view| plan::concerns(view)) {
        return Observed { recently_deleted, ..Observed::default() };
    }
    let register = Register::of(inventory, views);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::file;
    use crate::lifecycle::plan::tests::node;
    use crate::model::views::Truth;

    const INVENTORY: &str = "
apiVersion: inventory.cairn.dev/v1
kind: Inventory
machines:
- {id: here, match: {nodeName: n-here}}
- {id: open, match: {nodeName: n-open}, state: maintenance}
- {id: gone, match: {nodeName: n-gone}, state: decommissioned}
- {id: next, match: {nodeName: n-next}, state: planned}
";

    fn inventory() -> Arc<InventoryState> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("inventory.yaml");
        std::fs::write(&path, INVENTORY).expect("a file");
        let inventory = file::load(&[path]).expect("an inventory");
        Arc::new(InventoryState { inventory: Some(Arc::new(inventory)), ..InventoryState::unread() })
    }

    fn nodes(views: Vec<NodeView>) -> BTreeMap<NodeName, Arc<NodeView>> {
        views.into_iter().map(|view| (view.name.clone(), Arc::new(view))).collect()
    }

    #[test]
    fn only_an_explicit_decommissioning_is_an_absence() {
        let active = ObservedMachine::Active(Power::Unknown);
        for (name, provider_id, want) in [
            ("n-here", None, Some(active.clone())),
            ("anything", Some("cairn://here"), None),
            ("n-open", Some("cairn://open"), Some(ObservedMachine::Maintenance)),
            ("n-gone", Some("cairn://gone"), Some(ObservedMachine::Decommissioned)),
            ("n-gone", None, Some(ObservedMachine::Decommissioned)),
            ("n-gone", Some("aws:///i-1"), None),
            ("n-gone", Some("cairn://here"), None),
            ("n-next", None, None),
            ("nobody", None, None),
            ("n-lost", Some("cairn://lost"), None),
        ] {
            let view = NodeView { provider_id: provider_id.map(str::to_owned), ..node(name) };
            let views = nodes(vec![view]);
            let found = observed(&views, &inventory(), BTreeSet::new()).nodes.pop_first().expect("a node").1.machine;
            match want {
                Some(want) => assert_eq!(found, want, "{name} {provider_id:?}"),
                None => assert!(matches!(found, ObservedMachine::Unknown(_)), "{name} {provider_id:?}: {found:?}"),
            }
            let unread = observed(&views, &Arc::new(InventoryState::unread()), BTreeSet::new());
            let all_unknown = unread.nodes.values().all(|node| matches!(node.machine, ObservedMachine::Unknown(_)));
            assert!(all_unknown && unread.machine_nodes == 0, "{name} {provider_id:?}: no inventory");
        }
    }

    #[test]
    fn the_limit_counts_nodes_that_are_machines_and_were_not_just_deleted() {
        let view = |name: &str, ready| NodeView { ready: Some(ready), provider_id: None, ..node(name) };
        let views = vec![
            view("n-here", Truth::True),
            view("n-open", Truth::True),
            view("n-gone", Truth::False),
            view("nobody", Truth::True),
        ];
        let observed = observed(&nodes(views), &inventory(), BTreeSet::from(["uid-n-gone".to_owned()]));
        assert_eq!(observed.machine_nodes, 2);
        assert_eq!(observed.nodes.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["n-gone"]);
    }

    #[test]
    fn nothing_is_asked_while_every_node_is_ready() {
        let view = NodeView { ready: Some(Truth::True), ..node("n-here") };
        assert_eq!(observed(&nodes(vec![view]), &inventory(), BTreeSet::new()), Observed::default());
    }
}
