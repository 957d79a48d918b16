//! Which Node is which machine, and who would be it as well: pure. It follows the Nodes one by one.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{MachineId, NodeName};

/// The Nodes that are machines, those that are just becoming one, and those that wait for a taken one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owners {
    machine_of: BTreeMap<NodeName, MachineId>,
    /// In order of names; nearly always one.
    nodes_of: BTreeMap<MachineId, Vec<NodeName>>,
    becoming: BTreeMap<MachineId, NodeName>,
    waiting_for: BTreeMap<MachineId, BTreeSet<NodeName>>,
}

impl Owners {
    /// The Node that is this machine, of several the first by name, or else the one that is becoming it.
    pub fn of(&self, machine: &MachineId) -> Option<&NodeName> {
        let is = self.nodes_of.get(machine).and_then(|nodes| nodes.first());
        is.or_else(|| self.becoming.get(machine))
    }

    /// Takes note of which machine a Node is, if any; answers with the Nodes that waited for it, or for
    /// the one that it was.
    pub fn put(&mut self, node: &NodeName, machine: Option<&MachineId>) -> BTreeSet<NodeName> {
        if self.machine_of.get(node) == machine {
            return BTreeSet::new();
        }
        let before = self.machine_of.remove(node);
        if let Some(before) = &before
            && let Some(mut nodes) = self.nodes_of.remove(before)
        {
            nodes.retain(|other| other != node);
            if !nodes.is_empty() {
                self.nodes_of.insert(before.clone(), nodes);
            }
        }
        if let Some(machine) = machine {
            self.machine_of.insert(node.clone(), machine.clone());
            let nodes = self.nodes_of.entry(machine.clone()).or_default();
            nodes.insert(nodes.partition_point(|other| other < node), node.clone());
        }
        before.iter().chain(machine).flat_map(|machine| self.waiting_for.remove(machine).unwrap_or_default()).collect()
    }

    /// A write is on its way that makes a Node this machine.
    pub fn becomes(&mut self, node: NodeName, machine: MachineId) {
        self.becoming.insert(machine, node);
    }

    /// That write has been answered, well or not; answers with the Nodes that waited for the machine.
    pub fn became(&mut self, machine: &MachineId) -> BTreeSet<NodeName> {
        self.becoming.remove(machine);
        self.waiting_for.remove(machine).unwrap_or_default()
    }

    /// A Node has to wait until the machine is nobody's.
    pub fn waits(&mut self, node: NodeName, machine: MachineId) {
        self.waiting_for.entry(machine).or_default().insert(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a node name")
    }

    fn machine(id: &str) -> MachineId {
        id.parse().expect("an id")
    }

    fn nodes(names: &[&str]) -> BTreeSet<NodeName> {
        names.iter().map(|name| node(name)).collect()
    }

    #[test]
    fn of_several_nodes_the_first_by_name_is_the_machine() {
        let mut owners = Owners::default();
        let m = machine("m");
        for (step, name, is, want) in [
            ("one", "b", true, Some("b")),
            ("a second", "c", true, Some("b")),
            ("a third before them", "a", true, Some("a")),
            ("the first goes", "a", false, Some("b")),
            ("the second goes", "b", false, Some("c")),
            ("the last goes", "c", false, None),
        ] {
            let _ = owners.put(&node(name), is.then_some(&m));
            assert_eq!(owners.of(&m), want.map(node).as_ref(), "{step}");
        }
        assert_eq!(owners, Owners::default(), "nothing is left");
    }

    #[test]
    fn whoever_waits_for_a_machine_hears_of_each_change_once() {
        let mut owners = Owners::default();
        let (m, other) = (machine("m"), machine("other"));
        owners.becomes(node("a"), m.clone());
        assert_eq!(owners.of(&m), Some(&node("a")), "two Nodes never become one machine");
        owners.waits(node("b"), m.clone());
        owners.waits(node("c"), other.clone());
        assert_eq!((owners.became(&m), owners.of(&m)), (nodes(&["b"]), None));
        owners.waits(node("b"), m.clone());
        assert_eq!(owners.put(&node("a"), Some(&m)), nodes(&["b"]));
        owners.waits(node("b"), m.clone());
        assert_eq!(owners.put(&node("a"), Some(&m)), nodes(&[]), "nothing changed");
        assert_eq!(owners.put(&node("a"), Some(&other)), nodes(&["b", "c"]));
        assert_eq!(owners.put(&node("a"), None), nodes(&[]), "nobody waits any more");
    }
}
