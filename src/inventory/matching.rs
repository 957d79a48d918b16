//! Which machine a Node is: a decision that prefers silence to a guess.
//!
//! Keys in order of strength: provider ID, system UUID, node name, host name. Every key that speaks
//! has to say the same machine; the host name speaks only where the others are silent, and is not
//! believed where addresses say otherwise. What the first match left on the Node has to agree as well:
//! a Node that would be another machine today is nobody's until someone has looked at it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::shared::{SharedKeys, short_name};
use super::{Finding, Inventory, Machine, MachineState, MatchKey, SystemUuid, Why};
use crate::model::views::{MATCHED_MACHINE, MATCHED_UUID, NodeView};
use crate::model::{MachineId, NodeName, ProviderId};

/// What a Node says of itself that can be matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeIdentity {
    /// `metadata.name`.
    pub name: NodeName,
    /// `spec.providerID`, as written, when not empty.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID`, as written, when not empty.
    pub system_uuid: Option<String>,
    /// Its internal addresses.
    pub internal_ips: Vec<IpAddr>,
    /// The machine it was at its first match.
    pub first_machine: Option<MachineId>,
    /// The system UUID it had at its first match.
    pub first_uuid: Option<SystemUuid>,
}

impl From<&NodeView> for NodeIdentity {
    fn from(view: &NodeView) -> Self {
        Self {
            name: view.name.clone(),
            provider_id: view.provider_id.clone(),
            system_uuid: view.system_uuid.clone(),
            internal_ips: view.internal_ips().collect(),
            first_machine: view.annotations.get(MATCHED_MACHINE).and_then(|text| text.parse().ok()),
            first_uuid: view.annotations.get(MATCHED_UUID).and_then(|text| text.parse().ok()),
        }
    }
}

impl NodeIdentity {
    /// The UUID, unless it says nothing: not one, or a placeholder.
    pub(super) fn uuid(&self) -> Option<SystemUuid> {
        self.system_uuid.as_deref()?.parse::<SystemUuid>().ok().filter(|uuid| !uuid.is_placeholder())
    }
}

/// Machines by each key, made once an inventory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Index {
    by_foreign_id: BTreeMap<String, Arc<Machine>>,
    by_uuid: BTreeMap<SystemUuid, Arc<Machine>>,
    by_node_name: BTreeMap<NodeName, Arc<Machine>>,
    by_short_name: BTreeMap<String, Vec<Arc<Machine>>>,
}

impl Index {
    pub(super) fn of<'a>(machines: impl IntoIterator<Item = &'a Arc<Machine>>) -> Self {
        let mut index = Self::default();
        for machine in machines {
            let keys = &machine.match_keys;
            if let Some(id) = &keys.provider_id {
                index.by_foreign_id.insert(id.clone(), Arc::clone(machine));
            }
            if let Some(uuid) = keys.system_uuid {
                index.by_uuid.insert(uuid.in_either_order(), Arc::clone(machine));
            }
            if let Some(name) = &keys.node_name {
                index.by_node_name.insert(name.clone(), Arc::clone(machine));
            }
            let names = keys.node_name.as_ref().map(NodeName::as_str).into_iter().chain(machine.hostnames());
            for name in names.map(short_name).collect::<BTreeSet<_>>() {
                index.by_short_name.entry(name).or_default().push(Arc::clone(machine));
            }
        }
        index
    }
}

/// A Node's machine, and how it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The machine, whatever its state.
    pub machine: Arc<Machine>,
    /// The strongest key that points at it.
    pub key: MatchKey,
}

impl Inventory {
    /// Which machine a Node is.
    ///
    /// `shared` are the keys that other Nodes have as well; with [`SharedKeys::default`] every key
    /// is taken for unique.
    pub fn find(&self, node: &NodeIdentity, shared: &SharedKeys) -> Finding {
        match self.match_node(node, shared) {
            Err(why) => Finding::Unknown(why),
            Ok(Match { machine, .. }) => match machine.state {
                MachineState::Planned => Finding::Unknown(Why::Planned { machine: machine.id.clone() }),
                MachineState::Active | MachineState::Maintenance => Finding::Present(machine),
                MachineState::Decommissioned => Finding::Absent,
            },
        }
    }

    /// Which machine a Node is, whatever the machine's state, and how it was found.
    ///
    /// # Errors
    /// Why it cannot be told.
    pub fn match_node(&self, node: &NodeIdentity, shared: &SharedKeys) -> Result<Match, Why> {
        let uuid = shared.uuid_of(node);
        let by_uuid = uuid.and_then(|uuid| self.index().by_uuid.get(&uuid.in_either_order()));
        let is_as_written = by_uuid.and_then(|machine| machine.match_keys.system_uuid) == uuid;
        let uuid_key = if is_as_written { MatchKey::SystemUuid } else { MatchKey::SwappedUuid };
        let pointed_at = [
            (MatchKey::ProviderId, self.by_provider_id(node)?),
            (uuid_key, by_uuid),
            (MatchKey::NodeName, self.index().by_node_name.get(&node.name)),
        ];
        let mut speaking = pointed_at.into_iter().filter_map(|(key, machine)| Some((key, machine?)));
        let (key, machine) = match speaking.next() {
            Some(first) => first,
            None => (MatchKey::ShortName, self.by_short_name(node, shared)?),
        };
        if let Some((other_key, other)) = speaking.find(|(_, other)| other.id != machine.id) {
            let (one, other) = (machine.id.clone(), other.id.clone());
            return Err(Why::KeysDisagree { one_key: key, one, other_key, other });
        }
        keys_agree(machine, key, node, uuid)?;
        first_match_agrees(machine, key, node, uuid)?;
        Ok(Match { machine: Arc::clone(machine), key })
    }

    fn by_provider_id(&self, node: &NodeIdentity) -> Result<Option<&Arc<Machine>>, Why> {
        let Some(text) = &node.provider_id else { return Ok(None) };
        if let Some(named) = self.index().by_foreign_id.get(text) {
            return Ok(Some(named));
        }
        let foreign = |_| Why::ForeignProviderId { provider_id: text.clone() };
        let provider_id = text.parse::<ProviderId>().map_err(foreign)?;
        let machine = provider_id.machine();
        self.machine(machine).map(Some).ok_or_else(|| Why::MachineMissing { machine: machine.clone() })
    }

    fn by_short_name(&self, node: &NodeIdentity, shared: &SharedKeys) -> Result<&Arc<Machine>, Why> {
        let Some(name) = shared.short_name_of(node) else { return Err(Why::NoMachine) };
        match self.index().by_short_name.get(&name).map(Vec::as_slice) {
            None | Some([]) => Err(Why::NoMachine),
            Some([only]) => Ok(only),
            Some([one, other, ..]) => {
                Err(Why::KeyAmbiguous { key: MatchKey::ShortName, one: one.id.clone(), other: other.id.clone() })
            }
        }
    }
}

/// Every key the machine has agrees with the Node, as far as the Node says something.
fn keys_agree(machine: &Machine, found_by: MatchKey, node: &NodeIdentity, uuid: Option<SystemUuid>) -> Result<(), Why> {
    let differs = |key, expected: String, actual: String| {
        Err(Why::KeyDiffers { machine: machine.id.clone(), found_by, key, expected, actual })
    };
    if let (Some(expected), Some(actual)) = (machine.match_keys.system_uuid, uuid)
        && expected.in_either_order() != actual.in_either_order()
    {
        return differs(MatchKey::SystemUuid, expected.to_string(), actual.to_string());
    }
    if let Some(expected) = &machine.match_keys.node_name
        && !is_same_host(expected.as_str(), node.name.as_str())
    {
        return differs(MatchKey::NodeName, expected.to_string(), node.name.to_string());
    }
    // A host name alone is weak: where both sides have addresses, one has to be common to them.
    let mut expected = machine.internal_ips().peekable();
    if let (MatchKey::ShortName, Some(first), Some(actual)) =
        (found_by, expected.peek().copied(), node.internal_ips.first())
        && !expected.any(|ip| node.internal_ips.contains(&ip))
    {
        return differs(MatchKey::InternalIp, first.to_string(), actual.to_string());
    }
    Ok(())
}

/// What the first match left on the Node still holds.
fn first_match_agrees(
    machine: &Machine,
    key: MatchKey,
    node: &NodeIdentity,
    uuid: Option<SystemUuid>,
) -> Result<(), Why> {
    if let Some(was) = node.first_machine.clone().filter(|was| *was != machine.id) {
        return Err(Why::MachineChanged { was, now: machine.id.clone(), key });
    }
    // An inventory that has the UUID of today knows of the new board.
    if let (Some(was), Some(now), None) = (node.first_uuid, uuid, machine.match_keys.system_uuid)
        && was.in_either_order() != now.in_either_order()
    {
        return Err(Why::UuidChanged { machine: machine.id.clone(), was, now });
    }
    Ok(())
}

/// Whether two names are one host's: equal, or one is the other without its domain.
fn is_same_host(one: &str, other: &str) -> bool {
    one == other || (short_name(one) == short_name(other) && (!one.contains('.') || !other.contains('.')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::cases::node;
    use crate::inventory::catalog::tests::inventory;
    use proptest::prelude::*;

    const UUID_A: &str = "4c4c4544-0035-3410-8050-c6c04f314733";
    const UUID_A_SWAPPED: &str = "44454c4c-3500-1034-8050-c6c04f314733";
    const UUID_B: &str = "11111111-2222-3333-4444-555555555555";

    /// Machine a by UUID and name, b by name, c by host name, the others by their states.
    fn machines() -> Inventory {
        inventory(&format!(
            "machines:
             - {{id: a, match: {{systemUUID: {UUID_A}, nodeName: na.example.net}}}}
             - {{id: b, match: {{nodeName: nb}}}}
             - {{id: c, addresses: [{{type: Hostname, address: nc}}]}}
             - {{id: u, match: {{systemUUID: {UUID_B}}}}}
             - {{id: p, state: planned, match: {{nodeName: np}}}}
             - {{id: m, state: maintenance, match: {{nodeName: nm}}}}
             - {{id: d, state: decommissioned, match: {{nodeName: nd}}}}
             - {{id: t1, addresses: [{{type: Hostname, address: nt}}]}}
             - {{id: t2, addresses: [{{type: Hostname, address: nt.example.net}}]}}
             - {{id: f, match: {{providerID: lab://f}}}}
             - {{id: i, addresses: [{{type: Hostname, address: ni}}, {{type: InternalIP, address: 10.0.0.1}}]}}
            "
        ))
    }

    /// The machine's id, `absent`, or why it is unknown.
    fn found(node: &NodeIdentity, shared: &SharedKeys) -> String {
        match machines().find(node, shared) {
            Finding::Present(machine) => machine.id.to_string(),
            Finding::Absent => "absent".to_owned(),
            Finding::Unknown(why) => why.to_string(),
        }
    }

    #[test]
    fn every_key_that_speaks_has_to_say_the_same_machine() {
        let junk = "00000000-0000-0000-0000-000000000000";
        let nobody = "no machine of the inventory matches this node by provider ID, system UUID or name";
        for (node, want) in [
            (node("nb", None, None), "b"),
            (node("nb", Some("cairn://b"), None), "b"),
            (node("nb", Some("cairn://b"), Some("an unreadable UUID")), "b"),
            (node("anything", Some("cairn://c"), None), "c"),
            (node("anything", Some("lab://f"), None), "f"),
            (node("nb", Some("lab://f"), None), "the provider ID points at machine f, the node name at machine b"),
            (node("nb", Some("aws:///eu-1/i-1"), None), "its provider ID aws:///eu-1/i-1 is another provider's"),
            (
                node("nb", Some("cairn://gone"), None),
                "its provider ID names machine gone, which the inventory does not have",
            ),
            (node("nb", Some("cairn://a"), None), "the provider ID points at machine a, the node name at machine b"),
            (node("na.example.net", None, Some(UUID_A)), "a"),
            (node("na", None, Some(UUID_A)), "a"),
            (node("na", None, Some(&UUID_A.to_uppercase())), "a"),
            (node("na", None, Some(UUID_A_SWAPPED)), "a"),
            (node("na", None, Some(junk)), "a"),
            (node("na", None, None), "a"),
            (node("anything", None, Some(UUID_B)), "u"),
            (
                node("na", Some("cairn://a"), Some("99999999-0000-0000-0000-000000000001")),
                "the provider ID points at machine a, but the system UUID is 4c4c4544-0035-3410-8050-c6c04f314733 in the inventory and 99999999-0000-0000-0000-000000000001 on the node",
            ),
            (
                node("other", None, Some(UUID_A)),
                "the system UUID points at machine a, but the node name is na.example.net in the inventory and other on the node",
            ),
            (
                node("na.example.org", None, Some(UUID_A)),
                "the system UUID points at machine a, but the node name is na.example.net in the inventory and na.example.org on the node",
            ),
            (node("nb", None, Some(UUID_A)), "the system UUID points at machine a, the node name at machine b"),
            (node("nc.example.net", None, None), "c"),
            (node("nt", None, None), "the host name points at machine t1 as well as at machine t2"),
            (node("stranger", None, None), nobody),
            (node("stranger", None, Some(junk)), nobody),
        ] {
            assert_eq!(found(&node, &SharedKeys::default()), want, "{node:?}");
        }
    }

    #[test]
    fn the_state_of_the_machine_decides_what_is_said() {
        for (name, want) in [
            ("nb", "b"),
            ("nm", "m"),
            ("nd", "absent"),
            ("np", "machine p is planned: set its state to active to take it into service"),
        ] {
            assert_eq!(found(&node(name, None, None), &SharedKeys::default()), want, "{name}");
        }
    }

    #[test]
    fn what_the_first_match_left_on_the_node_has_to_agree() {
        let first = |machine: &str, uuid: Option<&str>, node: NodeIdentity| NodeIdentity {
            first_machine: Some(machine.parse().expect("an id")),
            first_uuid: uuid.map(|uuid| uuid.parse().expect("a UUID")),
            ..node
        };
        let other = "99999999-0000-0000-0000-000000000001";
        for (name, node, want) in [
            ("as before", first("b", Some(&other.to_uppercase()), node("nb", Some("cairn://b"), Some(other))), "b"),
            (
                "another machine",
                first("c", None, node("nb", None, None)),
                "this node was machine c when it was first matched, but the node name points at machine b today",
            ),
            (
                "another board, of which the inventory knows nothing",
                first("b", Some(other), node("nb", Some("cairn://b"), Some("11111111-0000-0000-0000-000000000001"))),
                "this node had system UUID 99999999-0000-0000-0000-000000000001 when it was first matched as machine b, \
              and has 11111111-0000-0000-0000-000000000001 today: if its board was replaced, write the new one into \
              match.systemUUID, or take the annotation cairn.dev/system-uuid off the node",
            ),
            (
                "another board, which the inventory has",
                first("a", Some(other), node("na", Some("cairn://a"), Some(UUID_A))),
                "a",
            ),
            (
                "the other byte order",
                first("b", Some(UUID_A_SWAPPED), node("nb", Some("cairn://b"), Some(UUID_A_SWAPPED))),
                "the provider ID points at machine b, the system UUID in the other byte order at machine a",
            ),
        ] {
            assert_eq!(found(&node, &SharedKeys::default()), want, "{name}");
        }
    }

    #[test]
    fn a_host_name_is_not_believed_against_addresses() {
        let at = |name: &str, ips: &[&str]| NodeIdentity {
            internal_ips: ips.iter().map(|ip| ip.parse().expect("an address")).collect(),
            ..node(name, None, None)
        };
        for (node, want) in [
            (at("ni", &[]), "i"),
            (at("ni", &["fd00::1", "10.0.0.1"]), "i"),
            (
                at("ni", &["10.0.0.2"]),
                "the host name points at machine i, but the internal address is 10.0.0.1 in the inventory and 10.0.0.2 on the node",
            ),
            (at("nc", &["10.0.0.2"]), "c"),
        ] {
            assert_eq!(found(&node, &SharedKeys::default()), want, "{node:?}");
        }
    }

    #[test]
    fn a_key_that_several_nodes_have_says_nothing() {
        let nodes = [
            node("one", None, Some(UUID_B)),
            node("two", None, Some(UUID_B)),
            node("nc.x.net", None, None),
            node("nc.y.net", None, None),
            node("na", None, Some(UUID_A)),
            node("nb", None, Some(UUID_A_SWAPPED)),
        ];
        let shared = SharedKeys::of(&nodes);
        let nobody = "no machine of the inventory matches this node by provider ID, system UUID or name";
        let wants = [nobody, nobody, nobody, nobody, "a", "b"];
        for (node, want) in nodes.iter().zip(wants) {
            assert_eq!(found(node, &shared), want, "{node:?}");
        }
    }

    proptest! {
        #[test]
        fn the_order_of_nodes_does_not_matter_and_no_machine_is_found_by_a_key_it_does_not_have(
            picks in proptest::collection::vec((0..6_usize, 0..5_usize, 0..4_usize), 1..8),
            seed: u64,
        ) {
            let names = ["na.example.net", "na", "nb", "nc.x.net", "nc.y.net", "stranger"];
            let ids = [None, Some("cairn://a"), Some("cairn://gone"), Some("lab://f"), Some("aws:///i-1")];
            let uuids = [None, Some(UUID_A), Some(UUID_A_SWAPPED), Some("not a UUID")];
            let mut nodes: Vec<_> =
                picks.iter().map(|(name, id, uuid)| node(names[*name], ids[*id], uuids[*uuid])).collect();
            let mut known = BTreeSet::new();
            nodes.retain(|node| known.insert(node.name.clone()));
            let machines = machines();
            let finding = |shared: &SharedKeys, node: &NodeIdentity| machines.find(node, shared);
            let before: Vec<_> = nodes.iter().map(|node| finding(&SharedKeys::of(&nodes), node)).collect();
            let shift = usize::try_from(seed % 8).expect("small") % nodes.len();
            nodes.rotate_left(shift);
            let after: Vec<_> = nodes.iter().map(|node| finding(&SharedKeys::of(&nodes), node)).collect();
            let rotated: Vec<_> = before.iter().cycle().skip(shift).take(nodes.len()).cloned().collect();
            prop_assert_eq!(&after, &rotated);
            for (node, finding) in nodes.iter().zip(&after) {
                if let Finding::Present(machine) = finding {
                    let has_key = node.provider_id.as_deref() == Some(machine.provider_id().to_string().as_str())
                        || (node.provider_id.is_some() && node.provider_id == machine.match_keys.provider_id)
                        || node.uuid().map(SystemUuid::in_either_order)
                            == machine.match_keys.system_uuid.map(SystemUuid::in_either_order)
                        || machine.match_keys.node_name.as_ref().is_some_and(|name| is_same_host(name.as_str(), node.name.as_str()))
                        || machine.hostnames().any(|name| is_same_host(name, node.name.as_str()));
                    prop_assert!(has_key, "{node:?} is {machine:?}");
                }
            }
        }
    }
}
