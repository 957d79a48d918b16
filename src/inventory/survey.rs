//! Which Nodes are each machine, and which may be: pure. It follows the Nodes one by one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Inventory, Match, MatchKey, NodeIdentity, SharedKeys, Why};
use crate::model::{MachineId, NodeName};

/// Which Nodes point at each machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    shared: SharedKeys,
    /// The Nodes that are each machine, and the key that says so.
    nodes: BTreeMap<MachineId, BTreeMap<NodeName, MatchKey>>,
    /// The Nodes that may be each machine, and why it is not certain.
    doubts: BTreeMap<MachineId, BTreeMap<NodeName, Why>>,
    /// At which machines each Node points; nothing of one that points at none.
    points_at: BTreeMap<NodeName, Vec<MachineId>>,
}

impl Survey {
    /// The Nodes that are a machine, and the key that says so.
    pub fn nodes_of(&self, machine: &MachineId) -> impl Iterator<Item = (&NodeName, MatchKey)> {
        self.nodes.get(machine).into_iter().flatten().map(|(name, key)| (name, *key))
    }

    /// The Nodes that may be a machine, and why it is not certain.
    pub fn doubts_of(&self, machine: &MachineId) -> impl Iterator<Item = (&NodeName, &Why)> {
        self.doubts.get(machine).into_iter().flatten()
    }

    /// The Nodes that are followed.
    pub fn followed(&self) -> impl Iterator<Item = &NodeName> {
        self.shared.nodes()
    }

    /// Takes note of Nodes that came, changed or went; answers with the machines that they point at, or
    /// pointed at before. `find` knows every Node as it is now.
    pub fn follow(
        &mut self,
        inventory: &Inventory,
        names: BTreeSet<NodeName>,
        find: impl Fn(&NodeName) -> Option<NodeIdentity>,
    ) -> BTreeSet<MachineId> {
        let mut touched = names.clone();
        for name in &names {
            touched.extend(match find(name) {
                Some(identity) => self.shared.put(&identity),
                None => self.shared.remove(name),
            });
        }
        let mut machines = BTreeSet::new();
        for name in touched {
            machines.extend(self.forget(&name));
            if let Some(identity) = find(&name) {
                machines.extend(self.match_again(inventory, &identity));
            }
        }
        machines
    }

    fn forget(&mut self, name: &NodeName) -> Vec<MachineId> {
        let machines = self.points_at.remove(name).unwrap_or_default();
        for machine in &machines {
            take(&mut self.nodes, machine, name);
            take(&mut self.doubts, machine, name);
        }
        machines
    }

    fn match_again(&mut self, inventory: &Inventory, node: &NodeIdentity) -> Vec<MachineId> {
        let machines = match inventory.match_node(node, &self.shared) {
            Ok(Match { machine, key }) => {
                self.nodes.entry(machine.id.clone()).or_default().insert(node.name.clone(), key);
                vec![machine.id.clone()]
            }
            Err(why) => {
                let machines: Vec<_> = why.machines().into_iter().cloned().collect();
                for machine in &machines {
                    self.doubts.entry(machine.clone()).or_default().insert(node.name.clone(), why.clone());
                }
                machines
            }
        };
        if !machines.is_empty() {
            self.points_at.insert(node.name.clone(), machines.clone());
        }
        machines
    }
}

fn take<V>(all: &mut BTreeMap<MachineId, BTreeMap<NodeName, V>>, machine: &MachineId, name: &NodeName) {
    let Some(nodes) = all.get_mut(machine) else { return };
    nodes.remove(name);
    if nodes.is_empty() {
        all.remove(machine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::cases::node;
    use crate::inventory::catalog::tests::inventory;
    use proptest::prelude::*;

    const UUID: &str = "4c4c4544-0035-3410-8050-c6c04f314733";
    const SWAPPED: &str = "44454c4c-3500-1034-8050-c6c04f314733";

    fn machines() -> Inventory {
        inventory(&format!(
            "machines:
             - {{id: a, match: {{systemUUID: {UUID}}}}}
             - {{id: b, match: {{nodeName: nb}}}}
             - {{id: c, addresses: [{{type: Hostname, address: nc}}]}}
             - {{id: d, state: decommissioned, match: {{nodeName: nd}}}}
            "
        ))
    }

    fn of(nodes: &BTreeMap<NodeName, NodeIdentity>) -> Survey {
        let mut survey = Survey::default();
        survey.follow(&machines(), nodes.keys().cloned().collect(), |name| nodes.get(name).cloned());
        survey
    }

    #[test]
    fn a_survey_says_who_is_and_who_may_be_each_machine() {
        let nodes =
            [node("na", None, Some(SWAPPED)), node("nd", None, None), node("nb", Some("cairn://c"), Some("junk"))];
        let survey = of(&nodes.into_iter().map(|node| (node.name.clone(), node)).collect());
        let id = |id: &str| id.parse::<MachineId>().expect("an id");
        let found = |machine: &str| {
            survey.nodes_of(&id(machine)).map(|(name, key)| format!("{name} by {key}")).collect::<Vec<_>>()
        };
        let doubted = |machine: &str| survey.doubts_of(&id(machine)).map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        assert_eq!(found("a"), ["na by the system UUID in the other byte order"]);
        assert_eq!(found("d"), ["nd by the node name"]);
        assert_eq!((found("b"), found("c")), (vec![], vec![]));
        assert_eq!((doubted("b"), doubted("c")), (vec!["nb"], vec!["nb"]));
    }

    proptest! {
        #[test]
        fn one_by_one_is_as_all_at_once_and_every_machine_of_which_something_changes_is_told(
            steps in proptest::collection::vec((0..5_usize, 0..3_usize, 0..3_usize, any::<bool>()), 1..30),
        ) {
            let names = ["na", "nb", "nc.x", "nc.y", "nd"];
            let (ids, uuids) = ([None, Some("cairn://a"), Some("cairn://c")], [None, Some(UUID), Some(SWAPPED)]);
            let mut nodes = BTreeMap::new();
            let mut survey = Survey::default();
            for (name, id, uuid, is_there) in steps {
                let node = node(names[name], ids[id], uuids[uuid]);
                let name = node.name.clone();
                let before = survey.clone();
                match is_there {
                    true => drop(nodes.insert(name.clone(), node)),
                    false => drop(nodes.remove(&name)),
                }
                let told = survey.follow(&machines(), BTreeSet::from([name]), |name| nodes.get(name).cloned());
                prop_assert_eq!(&survey, &of(&nodes));
                for id in machines().machines().map(|machine| &machine.id) {
                    let has_changed = before.nodes.get(id) != survey.nodes.get(id)
                        || before.doubts.get(id) != survey.doubts.get(id);
                    prop_assert!(!has_changed || told.contains(id), "{} was not told", id);
                }
            }
        }
    }
}
