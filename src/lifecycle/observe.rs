//! What is known of the Nodes that are not Ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan::{self, Observed, ObservedMachine, ObservedNode, Power};
use super::{Context, Memory};
use crate::cluster::changes::Changes;
use crate::cluster::clock;
use crate::inventory::{Finding, InventoryState, MachineState, NodeIdentity, SharedKeys};
use crate::model::NodeName;
use crate::model::views::NodeView;

/// The Nodes that concern the room, with what the inventory in force says of them.
pub(super) fn observe(context: &mut Context, memory: &mut Memory) -> Observed {
    let inventory = Arc::clone(&context.inventory.borrow());
    let mut changes = context.nodes.take_changes();
    if !Arc::ptr_eq(&inventory, &memory.register.inventory) {
        memory.register.inventory = inventory;
        changes = Changes::All;
    }
    let names = match changes {
        Changes::Keys(keys) => keys.iter().filter_map(|key| key.parse().ok()).collect(),
        Changes::All => context.nodes.with(|nodes| {
            let known = memory.register.shared.nodes().cloned();
            known.chain(nodes.values().map(|view| view.name.clone())).collect()
        }),
    };
    let nodes = &context.nodes;
    let find = |name: &NodeName| nodes.get(name.as_str());
    memory.register.follow(names, find);
    memory.register.observed(find, memory.deletions.recent(clock::now()))
}

/// Which Nodes concern the room, and which are machines of the inventory. It follows the Nodes one by
/// one: in a healthy cluster, however large, a look costs nothing.
#[derive(Debug, Default)]
pub(super) struct Register {
    inventory: Arc<InventoryState>,
    shared: SharedKeys,
    concerned: BTreeSet<NodeName>,
    /// Nodes that are machines, and their uid.
    machines: BTreeMap<NodeName, String>,
}

impl Register {
    /// Takes note of Nodes that came, changed or went.
    fn follow(&mut self, names: BTreeSet<NodeName>, find: impl Fn(&NodeName) -> Option<Arc<NodeView>>) {
        let mut touched = names.clone();
        for name in &names {
            touched.extend(match find(name) {
                Some(view) => self.shared.put(&NodeIdentity::from(&*view)),
                None => self.shared.remove(name),
            });
        }
        for name in touched {
            let view = find(&name);
            match view.as_ref().filter(|view| !matches!(self.ask(view), Finding::Unknown(_))) {
                Some(view) => drop(self.machines.insert(name.clone(), view.uid.clone())),
                None => drop(self.machines.remove(&name)),
            }
            match view.filter(|view| plan::concerns(view)) {
                Some(_) => drop(self.concerned.insert(name)),
                None => drop(self.concerned.remove(&name)),
            }
        }
    }

    /// In a healthy cluster no Node concerns the room, and nothing else is asked.
    fn observed(
        &self,
        find: impl Fn(&NodeName) -> Option<Arc<NodeView>>,
        recently_deleted: BTreeSet<String>,
    ) -> Observed {
        if self.concerned.is_empty() {
            return Observed { recently_deleted, ..Observed::default() };
        }
        let node = |name: &NodeName| {
            let view = find(name)?;
            let machine = machine(self.ask(&view));
            Some((name.clone(), ObservedNode { view, machine }))
        };
        let machine_nodes = self.machines.values().filter(|uid| !recently_deleted.contains(*uid)).count();
        Observed { nodes: self.concerned.iter().filter_map(node).collect(), machine_nodes, recently_deleted }
    }

    fn ask(&self, view: &NodeView) -> Finding {
        self.inventory.find(&NodeIdentity::from(view), &self.shared)
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

    /// What is observed of these Nodes, all at once.
    fn observed(
        views: &BTreeMap<NodeName, Arc<NodeView>>,
        inventory: &Arc<InventoryState>,
        recently_deleted: BTreeSet<String>,
    ) -> Observed {
        let mut register = Register { inventory: Arc::clone(inventory), ..Register::default() };
        let find = |name: &NodeName| views.get(name).cloned();
        register.follow(views.keys().cloned().collect(), find);
        register.observed(find, recently_deleted)
    }

    #[test]
    fn nodes_that_come_change_and_go_one_by_one_are_observed_as_all_at_once() {
        let uuid = "4c4c4544-0035-3410-8050-c6c04f314733";
        let with = |name: &str, ready: Truth, uuid: Option<&str>| NodeView {
            ready: Some(ready),
            system_uuid: uuid.map(ToOwned::to_owned),
            ..node(name)
        };
        let inventory = inventory();
        let mut register = Register { inventory: Arc::clone(&inventory), ..Register::default() };
        let mut views = BTreeMap::new();
        for (step, name, view) in [
            ("a Node that is well", "n-here", Some(with("n-here", Truth::True, Some(uuid)))),
            ("one that is not", "n-gone", Some(with("n-gone", Truth::False, None))),
            ("one with the key of another", "n-open", Some(with("n-open", Truth::Unknown, Some(uuid)))),
            ("one that is nobody", "n-next", Some(with("n-next", Truth::False, None))),
            ("one gets well", "n-open", Some(with("n-open", Truth::True, None))),
            ("one goes", "n-gone", None),
            ("another gets ill", "n-here", Some(with("n-here", Truth::False, Some(uuid)))),
        ] {
            let name: NodeName = name.parse().expect("a name");
            match view {
                Some(view) => drop(views.insert(name.clone(), Arc::new(view))),
                None => drop(views.remove(&name)),
            }
            let find = |name: &NodeName| views.get(name).cloned();
            register.follow(BTreeSet::from([name]), find);
            let recent = BTreeSet::from(["uid-n-gone".to_owned()]);
            assert_eq!(register.observed(find, recent.clone()), observed(&views, &inventory, recent), "{step}");
        }
    }

    #[test]
    fn nothing_is_asked_while_every_node_is_ready() {
        let view = NodeView { ready: Some(Truth::True), ..node("n-here") };
        assert_eq!(observed(&nodes(vec![view]), &inventory(), BTreeSet::new()), Observed::default());
    }
}
