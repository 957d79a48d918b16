//! What to do for each Node: pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::addresses;
use super::labels;
use crate::model::views::{MATCHED_MACHINE, MATCHED_UUID, NodeAddress, NodeView, Taint, UNINITIALIZED};
use crate::model::{MachineId, NodeName, Note, ProviderId};

/// Everything the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// Every Node and what the inventory says of it, by name.
    pub nodes: BTreeMap<NodeName, ObservedNode>,
}

/// A Node and its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservedNode {
    /// The Node.
    pub view: std::sync::Arc<NodeView>,
    /// Its system UUID in one spelling, unless that says nothing.
    pub uuid: Option<String>,
    /// What the inventory says.
    pub machine: ObservedMachine,
}

/// What the inventory says of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObservedMachine {
    /// The Node is this machine.
    Present(MachineFacts),
    /// Its machine was decommissioned.
    Absent,
    /// Nobody can tell, and why.
    Unknown(String),
    /// Its keys contradict each other, and how.
    Mismatch(String),
}

/// What a Node gets from its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Its id.
    pub id: MachineId,
    /// Another provider's ID that its Node may have.
    pub foreign_id: Option<String>,
    /// Its addresses in order; empty leaves them to the kubelet.
    pub addresses: Vec<NodeAddress>,
    /// `node.kubernetes.io/instance-type`.
    pub instance_type: Option<String>,
    /// `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// Labels of our own prefix; those without a value are taken off.
    pub own_labels: BTreeMap<String, Option<String>>,
    /// Other labels; those the Node has already stay as they are.
    pub labels: BTreeMap<String, String>,
    /// Annotations for a new Node.
    pub annotations: BTreeMap<String, String>,
    /// Taints for a new Node.
    pub taints: Vec<Taint>,
}

/// What to do, and what to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// At most one action a Node.
    pub actions: BTreeMap<NodeName, Action>,
    /// What stands in the way, by Node.
    pub notes: BTreeMap<NodeName, Note>,
}

/// What to write to one Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    /// First the addresses, where they differ, then all else in one write.
    Initialize(Initialization),
    /// What differs of a Node that was initialized before.
    Reconcile(Differences),
}

/// What makes a Node initialized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Initialization {
    /// `spec.providerID`, when it is not set.
    pub provider_id: Option<ProviderId>,
    /// `spec.taints` without the uninitialized one, and with the inventory's.
    pub taints: Vec<Taint>,
    /// What else differs.
    pub differences: Differences,
}

/// What differs of what follows the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Differences {
    /// `status.addresses`.
    pub addresses: Option<Vec<NodeAddress>>,
    /// Labels to set, or to take off.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set.
    pub annotations: BTreeMap<String, String>,
}

/// Decides for every Node.
///
/// A Node whose machine is not known for certain, or whose addresses do not fit, keeps its taint and
/// everything else as it is; the note says why.
pub fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    let mut owners = owners(observed);
    for (name, node) in observed.nodes.iter().filter(|(_, node)| !node.view.is_deleting) {
        let (action, note) = if node.view.is_uninitialized() { plan_new(node, &mut owners) } else { plan_known(node) };
        plan.actions.extend(action.map(|action| (name.clone(), action)));
        plan.notes.extend(note.map(|note| (name.clone(), note)));
    }
    plan
}

/// Which Node is which machine already.
fn owners(observed: &Observed) -> BTreeMap<MachineId, NodeName> {
    let owner = |(name, node): (&NodeName, &ObservedNode)| {
        let named = match &node.machine {
            ObservedMachine::Present(machine) if node.view.provider_id.is_some() => Some(machine.id.clone()),
            _ => node.view.own_provider_id().map(|id| id.machine().clone()),
        };
        Some((named?, name.clone()))
    };
    observed.nodes.iter().rev().filter_map(owner).collect()
}

fn plan_new(node: &ObservedNode, owners: &mut BTreeMap<MachineId, NodeName>) -> (Option<Action>, Option<Note>) {
    let note = match &node.machine {
        ObservedMachine::Present(machine) => match initialize(node, machine, owners) {
            Ok(initialization) => return (Some(Action::Initialize(initialization)), None),
            Err(note) => note,
        },
        ObservedMachine::Absent => Note::MachineDecommissioned,
        ObservedMachine::Mismatch(why) => Note::MachineMismatch { why: why.clone() },
        ObservedMachine::Unknown(why) => match &node.view.provider_id {
            Some(id) if node.view.own_provider_id().is_none() => Note::ForeignProviderId { provider_id: id.clone() },
            _ => Note::MachineUnknown { why: why.clone() },
        },
    };
    (None, Some(note))
}

/// A Node without the taint: initialized before, by us or by another, or never meant to be.
fn plan_known(node: &ObservedNode) -> (Option<Action>, Option<Note>) {
    let view = &*node.view;
    let is_ours = view.own_provider_id().is_some() || view.annotations.contains_key(MATCHED_MACHINE);
    match &node.machine {
        // Without a provider ID nobody initialized it, and without the taint its kubelet waits for nobody.
        ObservedMachine::Present(machine) if view.provider_id.is_none() => {
            (None, Some(Note::KubeletNotExternal { machine: machine.id.clone() }))
        }
        ObservedMachine::Present(machine) => reconcile(node, machine),
        ObservedMachine::Mismatch(why) if is_ours => (None, Some(Note::MachineMismatch { why: why.clone() })),
        ObservedMachine::Absent | ObservedMachine::Unknown(_) | ObservedMachine::Mismatch(_) => (None, None),
    }
}

fn initialize(
    node: &ObservedNode,
    machine: &MachineFacts,
    owners: &mut BTreeMap<MachineId, NodeName>,
) -> Result<Initialization, Note> {
    let view = &*node.view;
    let is_foreign = view.own_provider_id().is_none() && view.provider_id != machine.foreign_id;
    if let Some(provider_id) = view.provider_id.clone().filter(|_| is_foreign) {
        return Err(Note::ForeignProviderId { provider_id });
    }
    let owner = owners.entry(machine.id.clone()).or_insert_with(|| view.name.clone());
    if *owner != view.name {
        return Err(Note::MachineTaken { machine: machine.id.clone(), by: owner.clone() });
    }
    let addresses = addresses_of(view, machine)?;
    let mut annotations = machine.annotations.clone();
    annotations.extend(first_match(node, machine));
    Ok(Initialization {
        provider_id: view.provider_id.is_none().then(|| ProviderId::from(machine.id.clone())),
        taints: initial_taints(&view.taints, &machine.taints),
        differences: Differences {
            addresses: (addresses != view.addresses).then_some(addresses),
            labels: labels::differences(&view.labels, machine),
            annotations,
        },
    })
}

fn reconcile(node: &ObservedNode, machine: &MachineFacts) -> (Option<Action>, Option<Note>) {
    let view = &*node.view;
    let (addresses, note) = match addresses_of(view, machine) {
        // In order: the first address of a family is the preferred one.
        Ok(addresses) => ((addresses != view.addresses).then_some(addresses), None),
        // A kubelet that lost its addresses will find them again.
        Err(_) if machine.addresses.is_empty() => (None, None),
        Err(note) => (None, Some(note)),
    };
    let labels = labels::differences(&view.labels, machine);
    let differences = Differences { addresses, labels, annotations: first_match(node, machine) };
    ((differences != Differences::default()).then_some(Action::Reconcile(differences)), note)
}

fn addresses_of(view: &NodeView, machine: &MachineFacts) -> Result<Vec<NodeAddress>, Note> {
    if machine.addresses.is_empty() {
        let has_ip = view.addresses.iter().any(is_ip);
        return has_ip.then(|| view.addresses.clone()).ok_or_else(|| Note::NoAddresses { machine: machine.id.clone() });
    }
    if !machine.addresses.iter().any(is_ip) {
        return Err(Note::NoAddresses { machine: machine.id.clone() });
    }
    addresses::choose(&machine.addresses, &view.addresses, view.provided_node_ip.as_deref())
}

fn is_ip(address: &NodeAddress) -> bool {
    address.address.parse::<std::net::IpAddr>().is_ok()
}

/// What the Node has to remember of its machine and does not yet.
fn first_match(node: &ObservedNode, machine: &MachineFacts) -> BTreeMap<String, String> {
    let known = &node.view.annotations;
    let machine = (MATCHED_MACHINE.to_owned(), machine.id.to_string());
    let uuid = node.uuid.clone().map(|uuid| (MATCHED_UUID.to_owned(), uuid));
    [Some(machine), uuid].into_iter().flatten().filter(|(key, value)| known.get(key) != Some(value)).collect()
}

/// The taints of an initialized Node: all but the one it waited with, and those of the inventory that
/// it does not have.
fn initial_taints(current: &[Taint], of_inventory: &[Taint]) -> Vec<Taint> {
    let mut taints: Vec<_> = current.iter().filter(|taint| taint.key != UNINITIALIZED).cloned().collect();
    for taint in of_inventory {
        if !taints.iter().any(|there| is_same_taint(there, taint)) {
            taints.push(taint.clone());
        }
    }
    taints
}

/// `MatchTaint`: the value does not count.
fn is_same_taint(one: &Taint, other: &Taint) -> bool {
    one.key == other.key && one.effect == other.effect
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::views::NodeAddressKind;

    fn address(kind: NodeAddressKind, address: &str) -> NodeAddress {
        NodeAddress { kind, address: address.to_owned() }
    }

    fn internal(ip: &str) -> NodeAddress {
        address(NodeAddressKind::InternalIp, ip)
    }

    fn taint(key: &str) -> Taint {
        Taint { key: key.to_owned(), value: Some("true".to_owned()), effect: "NoSchedule".to_owned(), time_added: None }
    }

    fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    /// A Node as the kubelet registers it for a cloud provider.
    fn tainted(name: &str) -> NodeView {
        NodeView {
            name: name.parse().expect("a name"),
            uid: format!("uid-{name}"),
            resource_version: "1".to_owned(),
            is_deleting: false,
            labels: BTreeMap::new(),
            provided_node_ip: None,
            provider_id: None,
            pod_cidrs: Vec::new(),
            taints: vec![taint(UNINITIALIZED)],
            addresses: vec![address(NodeAddressKind::Hostname, name)],
            ready: None,
            network_unavailable: None,
            system_uuid: None,
            boot_id: None,
        }
    }

    fn machine(id: &str) -> MachineFacts {
        MachineFacts {
            id: id.parse().expect("an id"),
            addresses: vec![internal("10.0.0.1"), internal("fd00::1")],
            instance_type: None,
            zone: None,
            region: None,
            labels: BTreeMap::new(),
        }
    }

    fn observed(nodes: Vec<(NodeView, ObservedMachine)>) -> Observed {
        let node = |(view, machine): (NodeView, ObservedMachine)| {
            (view.name.clone(), ObservedNode { view: Arc::new(view), machine })
        };
        Observed { nodes: nodes.into_iter().map(node).collect() }
    }

    fn plan_one(view: NodeView, machine: ObservedMachine) -> Result<Option<Action>, Note> {
        let name = view.name.clone();
        let mut plan = plan(&observed(vec![(view, machine)]));
        plan.notes.remove(&name).map_or(Ok(plan.actions.remove(&name)), Err)
    }

    /// What the Node is once the action was done.
    fn applied(view: &NodeView, action: &Action) -> NodeView {
        let mut view = view.clone();
        match action.clone() {
            Action::RefreshAddresses(addresses) => view.addresses = addresses,
            Action::Initialize(Initialization { addresses, provider_id, labels, taints }) => {
                view.addresses = addresses.unwrap_or(view.addresses);
                view.provider_id = provider_id.map(|id| id.to_string()).or(view.provider_id);
                view.labels.extend(labels);
                view.taints = taints;
            }
        }
        view
    }

    fn initialization() -> Initialization {
        Initialization {
            addresses: Some(vec![internal("10.0.0.1"), internal("fd00::1"), address(NodeAddressKind::Hostname, "n1")]),
            provider_id: Some("cairn://m1".parse().expect("a provider ID")),
            labels: BTreeMap::new(),
            taints: Vec::new(),
        }
    }

    #[test]
    fn a_tainted_node_gets_what_the_inventory_knows() {
        struct Case {
            name: &'static str,
            view: NodeView,
            machine: MachineFacts,
            want: Initialization,
        }
        let node = || tainted("n1");
        for case in [
            Case { name: "addresses and provider ID", view: node(), machine: machine("m1"), want: initialization() },
            Case {
                name: "type, zone and region under their old names as well",
                view: NodeView { labels: strings(&[("topology.kubernetes.io/zone", "wrong")]), ..node() },
                machine: MachineFacts {
                    instance_type: Some("r650".to_owned()),
                    zone: Some("row-a".to_owned()),
                    region: Some("dc-1".to_owned()),
                    ..machine("m1")
                },
                want: Initialization {
                    labels: strings(&[
                        ("beta.kubernetes.io/instance-type", "r650"),
                        ("failure-domain.beta.kubernetes.io/region", "dc-1"),
                        ("failure-domain.beta.kubernetes.io/zone", "row-a"),
                        ("node.kubernetes.io/instance-type", "r650"),
                        ("topology.kubernetes.io/region", "dc-1"),
                        ("topology.kubernetes.io/zone", "row-a"),
                    ]),
                    ..initialization()
                },
            },
            Case {
                name: "other labels do not overwrite the node's",
                view: NodeView { labels: strings(&[("example.net/foo", "fizz")]), ..node() },
                machine: MachineFacts {
                    labels: strings(&[("example.net/foo", "bar"), ("example.net/rack", "12")]),
                    ..machine("m1")
                },
                want: Initialization { labels: strings(&[("example.net/rack", "12")]), ..initialization() },
            },
            Case {
                name: "other taints stay",
                view: NodeView { taints: vec![taint("a"), taint(UNINITIALIZED), taint("b")], ..node() },
                machine: machine("m1"),
                want: Initialization { taints: vec![taint("a"), taint("b")], ..initialization() },
            },
            Case {
                name: "a provider ID that is set stays",
                view: NodeView { provider_id: Some("cairn://m1".to_owned()), ..node() },
                machine: machine("m1"),
                want: Initialization { provider_id: None, ..initialization() },
            },
            Case {
                name: "addresses that are right are not written",
                view: NodeView { addresses: vec![internal("10.0.0.1"), internal("fd00::1")], ..node() },
                machine: machine("m1"),
                want: Initialization { addresses: None, ..initialization() },
            },
            Case {
                name: "the kubelet's node IP filters and orders",
                view: NodeView { provided_node_ip: Some("fd00::1".to_owned()), ..node() },
                machine: machine("m1"),
                want: Initialization {
                    addresses: Some(vec![internal("fd00::1"), address(NodeAddressKind::Hostname, "n1")]),
                    ..initialization()
                },
            },
            Case {
                name: "without any in the inventory, the kubelet's addresses stay",
                view: NodeView { addresses: vec![internal("10.0.0.9")], ..node() },
                machine: MachineFacts { addresses: Vec::new(), ..machine("m1") },
                want: Initialization { addresses: None, ..initialization() },
            },
        ] {
            let action = plan_one(case.view.clone(), ObservedMachine::Present(case.machine.clone()))
                .unwrap_or_else(|note| panic!("{}: {note}", case.name))
                .unwrap_or_else(|| panic!("{}: no action", case.name));
            assert_eq!(action, Action::Initialize(case.want), "{}", case.name);
            let after = applied(&case.view, &action);
            let again = plan_one(after, ObservedMachine::Present(case.machine));
            assert_eq!(again, Ok(None), "{}: planning after applying", case.name);
        }
    }

    #[test]
    fn a_node_that_cannot_be_initialized_is_left_alone_and_the_note_says_why() {
        let node = || tainted("n1");
        let present = || ObservedMachine::Present(machine("m1"));
        for (name, view, machine, want) in [
            (
                "machine unknown",
                node(),
                ObservedMachine::Unknown("no machine matches".to_owned()),
                Note::MachineUnknown { why: "no machine matches".to_owned() },
            ),
            ("decommissioned", node(), ObservedMachine::Absent, Note::MachineDecommissioned),
            (
                "foreign provider ID",
                NodeView { provider_id: Some("aws:///i-1".to_owned()), ..node() },
                present(),
                Note::ForeignProviderId { provider_id: "aws:///i-1".to_owned() },
            ),
            (
                "node IP malformed",
                NodeView { provided_node_ip: Some("invalid-ip".to_owned()), ..node() },
                present(),
                Note::NodeIpMalformed { text: "invalid-ip".to_owned() },
            ),
            (
                "node IP not the machine's",
                NodeView { provided_node_ip: Some("10.0.0.2".to_owned()), ..node() },
                present(),
                Note::NodeIpNotOffered { address: "10.0.0.2".parse().expect("an address") },
            ),
            (
                "no address anywhere",
                node(),
                ObservedMachine::Present(MachineFacts { addresses: Vec::new(), ..super::tests::machine("m1") }),
                Note::NoAddresses { machine: "m1".parse().expect("an id") },
            ),
        ] {
            assert_eq!(plan_one(view, machine), Err(want), "{name}");
        }
    }

    #[test]
    fn a_node_without_the_taint_is_not_initialized() {
        let bare = NodeView { taints: vec![taint("other")], ..tainted("n1") };
        for machine in [
            ObservedMachine::Present(machine("m1")),
            ObservedMachine::Absent,
            ObservedMachine::Unknown("why".to_owned()),
        ] {
            assert_eq!(plan_one(bare.clone(), machine), Ok(None));
        }
    }

    #[test]
    fn a_deleting_node_is_left_alone() {
        let view = NodeView { is_deleting: true, ..tainted("n1") };
        assert_eq!(plan_one(view, ObservedMachine::Present(machine("m1"))), Ok(None));
    }

    #[test]
    fn addresses_of_an_initialized_node_follow_the_inventory_in_order() {
        let node = |addresses: &[&str]| NodeView {
            provider_id: Some("cairn://m1".to_owned()),
            taints: Vec::new(),
            addresses: addresses.iter().map(|ip| internal(ip)).collect(),
            ..tainted("n1")
        };
        let want = Action::RefreshAddresses(vec![internal("10.0.0.1"), internal("fd00::1")]);
        let present = || ObservedMachine::Present(machine("m1"));
        for (addresses, want) in [
            (vec!["10.0.0.1", "fd00::1"], None),
            (vec!["fd00::1", "10.0.0.1"], Some(want.clone())),
            (vec!["10.0.0.7"], Some(want.clone())),
            (vec![], Some(want)),
        ] {
            assert_eq!(plan_one(node(&addresses), present()), Ok(want), "{addresses:?}");
        }
        let unknown = ObservedMachine::Unknown("inventory unread".to_owned());
        assert_eq!(plan_one(node(&["10.0.0.7"]), unknown), Ok(None), "what is unknown changes nothing");
    }

    #[test]
    fn two_nodes_are_never_one_machine() {
        let present = || ObservedMachine::Present(machine("m1"));
        let plan_of = |nodes| plan(&observed(nodes));
        let taken =
            |by: &str| Note::MachineTaken { machine: "m1".parse().expect("an id"), by: by.parse().expect("a name") };

        let both_new = plan_of(vec![(tainted("n1"), present()), (tainted("n2"), present())]);
        assert_eq!(both_new.actions.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["n1"]);
        assert_eq!(both_new.notes.values().collect::<Vec<_>>(), [&taken("n1")]);

        let older = NodeView { provider_id: Some("cairn://m1".to_owned()), taints: Vec::new(), ..tainted("n2") };
        let one_new = plan_of(vec![(tainted("n1"), present()), (older, present())]);
        assert_eq!(one_new.notes.values().collect::<Vec<_>>(), [&taken("n2")]);
        assert!(!one_new.actions.contains_key(&"n1".parse().expect("a name")));
    }
}
