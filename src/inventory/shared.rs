//! Keys that several Nodes have, and which therefore say nothing: pure.
//!
//! Virtual machines and containers show their host's UUID; boards share one by mistake; clusters that
//! grew together have hosts of one name in several domains.

use std::collections::{BTreeMap, BTreeSet};

use super::{NodeIdentity, SystemUuid};
use crate::model::NodeName;

/// Which Nodes have which key. It follows the Nodes one by one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharedKeys {
    /// Every Node, and its UUID if that says something.
    nodes: BTreeMap<NodeName, Option<SystemUuid>>,
    uuids: BTreeMap<SystemUuid, Bearers>,
    short_names: BTreeMap<String, Bearers>,
}

/// The Nodes that have one key. There is nearly always one, which takes no memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Bearers {
    One(NodeName),
    Several(BTreeSet<NodeName>),
}

impl SharedKeys {
    /// Those of all Nodes of the cluster.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a NodeIdentity>) -> Self {
        let mut shared = Self::default();
        nodes.into_iter().for_each(|node| drop(shared.put(node)));
        shared
    }

    /// Takes note of a Node as it is now; answers with other Nodes whose machine may be another by that.
    pub fn put(&mut self, node: &NodeIdentity) -> BTreeSet<NodeName> {
        let uuid = node.uuid().map(SystemUuid::in_either_order);
        match self.nodes.insert(node.name.clone(), uuid) {
            None => {
                let by_name = add(&mut self.short_names, short_name(node.name.as_str()), &node.name);
                let by_uuid = uuid.and_then(|uuid| add(&mut self.uuids, uuid, &node.name));
                by_name.into_iter().chain(by_uuid).collect()
            }
            Some(before) if before == uuid => BTreeSet::new(),
            Some(before) => {
                let no_longer = before.and_then(|uuid| take(&mut self.uuids, uuid, &node.name));
                let from_now_on = uuid.and_then(|uuid| add(&mut self.uuids, uuid, &node.name));
                no_longer.into_iter().chain(from_now_on).collect()
            }
        }
    }

    /// Forgets a Node; answers as [`Self::put`].
    pub fn remove(&mut self, name: &NodeName) -> BTreeSet<NodeName> {
        let Some(uuid) = self.nodes.remove(name) else { return BTreeSet::new() };
        let by_name = take(&mut self.short_names, short_name(name.as_str()), name);
        let by_uuid = uuid.and_then(|uuid| take(&mut self.uuids, uuid, name));
        by_name.into_iter().chain(by_uuid).collect()
    }

    /// The Nodes that are taken note of.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// The system UUID of a Node, unless it says nothing: none, a placeholder, or another Node's as well.
    pub fn uuid_of(&self, node: &NodeIdentity) -> Option<SystemUuid> {
        node.uuid().filter(|uuid| is_alone(self.uuids.get(&uuid.in_either_order()), &node.name))
    }

    /// The first label of a Node's name, unless it is another Node's as well.
    pub(super) fn short_name_of(&self, node: &NodeIdentity) -> Option<String> {
        Some(short_name(node.name.as_str())).filter(|short| is_alone(self.short_names.get(short), &node.name))
    }
}

/// The first label of a name, in lower case.
pub(super) fn short_name(name: &str) -> String {
    name.split('.').next().unwrap_or(name).to_ascii_lowercase()
}

fn is_alone(bearers: Option<&Bearers>, name: &NodeName) -> bool {
    match bearers {
        None => true,
        Some(Bearers::One(only)) => only == name,
        Some(Bearers::Several(_)) => false,
    }
}

/// Adds a Node to those that have the key; answers with the one that is no longer alone.
fn add<K: Ord>(bearers: &mut BTreeMap<K, Bearers>, key: K, name: &NodeName) -> Option<NodeName> {
    let (now, touched) = match bearers.remove(&key) {
        None => (Bearers::One(name.clone()), None),
        Some(Bearers::One(other)) => (Bearers::Several(BTreeSet::from([other.clone(), name.clone()])), Some(other)),
        Some(Bearers::Several(mut names)) => {
            names.insert(name.clone());
            (Bearers::Several(names), None)
        }
    };
    bearers.insert(key, now);
    touched
}

/// Takes a Node from those that have the key; answers with the one that is alone now.
fn take<K: Ord>(bearers: &mut BTreeMap<K, Bearers>, key: K, name: &NodeName) -> Option<NodeName> {
    let Some(Bearers::Several(mut names)) = bearers.remove(&key) else { return None };
    names.remove(name);
    let alone = if names.len() == 1 { names.pop_first() } else { None };
    bearers.insert(key, alone.clone().map_or(Bearers::Several(names), Bearers::One));
    alone
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUIDS: [&str; 3] = [
        "4c4c4544-0035-3410-8050-c6c04f314733",
        // The same in the other byte order.
        "44454c4c-3500-1034-8050-c6c04f314733",
        "11111111-2222-3333-4444-555555555555",
    ];

    fn node(name: &str, uuid: Option<&str>) -> NodeIdentity {
        NodeIdentity {
            name: name.parse().expect("a node name"),
            provider_id: None,
            system_uuid: uuid.map(ToOwned::to_owned),
            internal_ips: Vec::new(),
            first_machine: None,
            first_uuid: None,
        }
    }

    fn names(names: &[&str]) -> BTreeSet<NodeName> {
        names.iter().map(|name| name.parse().expect("a node name")).collect()
    }

    #[test]
    fn whoever_shares_a_key_from_now_on_or_no_longer_is_told() {
        let mut shared = SharedKeys::default();
        for (step, node, want) in [
            ("the first", node("a.x", Some(UUIDS[0])), vec![]),
            ("nothing in common", node("b", Some(UUIDS[2])), vec![]),
            ("a host name", node("a.y", None), vec!["a.x"]),
            ("a UUID", node("c", Some(UUIDS[1])), vec!["a.x"]),
            ("another UUID, which is somebody's as well", node("c", Some(UUIDS[2])), vec!["a.x", "b"]),
            ("as before", node("c", Some(UUIDS[2])), vec![]),
            ("no UUID", node("c", None), vec!["b"]),
        ] {
            assert_eq!(shared.put(&node), names(&want), "{step}");
        }
        assert_eq!(shared.remove(&"a.x".parse().expect("a name")), names(&["a.y"]));
        assert_eq!(shared.remove(&"a.x".parse().expect("a name")), names(&[]));
    }

    proptest! {
        #[test]
        fn one_by_one_is_as_all_at_once_and_whoever_is_touched_is_told(
            steps in proptest::collection::vec((0..5_usize, 0..5_usize), 1..30),
        ) {
            let all_names = ["a", "a.x", "a.y", "b", "b.x"];
            let mut nodes: BTreeMap<NodeName, NodeIdentity> = BTreeMap::new();
            let mut shared = SharedKeys::default();
            for (name, uuid) in steps {
                let node = node(all_names[name], UUIDS.get(uuid).copied());
                let keys = |shared: &SharedKeys, node: &NodeIdentity| (shared.uuid_of(node), shared.short_name_of(node));
                let before: BTreeMap<_, _> =
                    nodes.values().map(|node| (node.name.clone(), keys(&shared, node))).collect();
                // The last of the picks takes the Node away.
                let touched = if uuid == 4 {
                    nodes.remove(&node.name);
                    shared.remove(&node.name)
                } else {
                    nodes.insert(node.name.clone(), node.clone());
                    shared.put(&node)
                };
                prop_assert_eq!(&shared, &SharedKeys::of(nodes.values()));
                for other in nodes.values().filter(|other| other.name != node.name) {
                    let is_touched = before[&other.name] != keys(&shared, other);
                    prop_assert!(!is_touched || touched.contains(&other.name), "{} was not told", other.name);
                }
            }
        }
    }
}
