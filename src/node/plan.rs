//! What to do for each Node: pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::addresses;
use crate::model::views::{NodeAddress, NodeView, Taint};
use crate::model::{MachineId, NodeName, Note, ProviderId};

/// The taint of a Node nobody has initialized yet; only its key counts.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

const INSTANCE_TYPE: [&str; 2] = ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];
const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
const REGION: [&str; 2] = ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];

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
}

/// What a Node gets from its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Its id.
    pub id: MachineId,
    /// Its addresses in order; empty leaves them to the kubelet.
    pub addresses: Vec<NodeAddress>,
    /// `node.kubernetes.io/instance-type`.
    pub instance_type: Option<String>,
    /// `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// Other labels; those the Node has already stay as they are.
    pub labels: BTreeMap<String, String>,
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
    /// The addresses of a Node that was initialized before.
    RefreshAddresses(Vec<NodeAddress>),
}

/// What makes a Node initialized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Initialization {
    /// `status.addresses`, when they differ.
    pub addresses: Option<Vec<NodeAddress>>,
    /// `spec.providerID`, when it is not set.
    pub provider_id: Option<ProviderId>,
    /// The labels that differ.
    pub labels: BTreeMap<String, String>,
    /// `spec.taints` without the uninitialized one.
    pub taints: Vec<Taint>,
}

/// Decides for every Node.
///
/// A Node whose machine is not known for certain, or whose addresses do not fit, keeps its taint and
/// everything else as it is; the note says why.
pub fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    let mut owners = owners(observed);
    for (name, node) in observed.nodes.iter().filter(|(_, node)| !node.view.is_deleting) {
        match plan_node(node, &mut owners) {
            Ok(Some(action)) => {
                plan.actions.insert(name.clone(), action);
            }
            Ok(None) => {}
            Err(note) => {
                plan.notes.insert(name.clone(), note);
            }
        }
    }
    plan
}

/// Which Node is which machine, as their provider IDs say.
fn owners(observed: &Observed) -> BTreeMap<MachineId, NodeName> {
    let owner = |(name, node): (&NodeName, &ObservedNode)| {
        let id = node.view.own_provider_id()?;
        Some((id.machine().clone(), name.clone()))
    };
    observed.nodes.iter().rev().filter_map(owner).collect()
}

fn plan_node(node: &ObservedNode, owners: &mut BTreeMap<MachineId, NodeName>) -> Result<Option<Action>, Note> {
    let view = &*node.view;
    let is_new = view.taints.iter().any(|taint| taint.key == UNINITIALIZED);
    // A Node that is initialized, or whose kubelet does not wait for a cloud provider, is not ours to change.
    if !is_new && view.own_provider_id().is_none() {
        return Ok(None);
    }
    match &node.machine {
        ObservedMachine::Present(machine) if is_new => initialize(view, machine, owners).map(Some),
        ObservedMachine::Present(machine) => refresh(view, machine),
        ObservedMachine::Absent if is_new => Err(Note::MachineDecommissioned),
        ObservedMachine::Unknown(why) if is_new => Err(match &view.provider_id {
            Some(id) if view.own_provider_id().is_none() => Note::ForeignProviderId { provider_id: id.clone() },
            _ => Note::MachineUnknown { why: why.clone() },
        }),
        ObservedMachine::Absent | ObservedMachine::Unknown(_) => Ok(None),
    }
}

fn initialize(
    view: &NodeView,
    machine: &MachineFacts,
    owners: &mut BTreeMap<MachineId, NodeName>,
) -> Result<Action, Note> {
    if let Some(provider_id) = view.provider_id.clone().filter(|_| view.own_provider_id().is_none()) {
        return Err(Note::ForeignProviderId { provider_id });
    }
    let owner = owners.entry(machine.id.clone()).or_insert_with(|| view.name.clone());
    if *owner != view.name {
        return Err(Note::MachineTaken { machine: machine.id.clone(), by: owner.clone() });
    }
    let addresses = addresses_of(view, machine)?;
    Ok(Action::Initialize(Initialization {
        addresses: (addresses != view.addresses).then_some(addresses),
        provider_id: view.provider_id.is_none().then(|| ProviderId::from(machine.id.clone())),
        labels: labels(view, machine),
        taints: view.taints.iter().filter(|taint| taint.key != UNINITIALIZED).cloned().collect(),
    }))
}

fn refresh(view: &NodeView, machine: &MachineFacts) -> Result<Option<Action>, Note> {
    if machine.addresses.is_empty() {
        return Ok(None);
    }
    let addresses = addresses_of(view, machine)?;
    // In order: the first address of a family is the preferred one.
    Ok((addresses != view.addresses).then_some(Action::RefreshAddresses(addresses)))
}

fn addresses_of(view: &NodeView, machine: &MachineFacts) -> Result<Vec<NodeAddress>, Note> {
    let offered = if machine.addresses.is_empty() { &view.addresses } else { &machine.addresses };
    if !offered.iter().any(|address| address.address.parse::<std::net::IpAddr>().is_ok()) {
        return Err(Note::NoAddresses { machine: machine.id.clone() });
    }
    addresses::choose(offered, &view.addresses, view.provided_node_ip.as_deref())
}

/// The labels to change: the well-known ones are the machine's, others only where the Node has none.
fn labels(view: &NodeView, machine: &MachineFacts) -> BTreeMap<String, String> {
    let well_known = [(INSTANCE_TYPE, &machine.instance_type), (ZONE, &machine.zone), (REGION, &machine.region)]
        .into_iter()
        .flat_map(|(keys, value)| keys.map(|key| (key.to_owned(), value.clone())))
        .filter_map(|(key, value)| Some((key, value?)));
    let others = machine.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
    let mut labels: BTreeMap<_, _> = others.filter(|(key, _)| !view.labels.contains_key(key)).collect();
    labels.extend(well_known);
    labels.retain(|key, value| view.labels.get(key) != Some(value));
    labels
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
