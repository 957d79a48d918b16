//! What is planned for Nodes, case by case.

use std::sync::Arc;

use super::*;
use crate::model::views::NodeAddressKind;
use crate::model::{TextMap, cases};

pub(super) fn address(kind: NodeAddressKind, address: &str) -> NodeAddress {
    NodeAddress { kind, address: address.to_owned() }
}

pub(super) fn internal(ip: &str) -> NodeAddress {
    address(NodeAddressKind::InternalIp, ip)
}

pub(super) fn taint(key: &str) -> Taint {
    Taint { key: key.to_owned(), value: Some("true".to_owned()), effect: "NoSchedule".to_owned(), time_added: None }
}

pub(super) fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// A Node as the kubelet registers it for a cloud provider.
pub(super) fn tainted(name: &str) -> NodeView {
    NodeView {
        taints: vec![taint(UNINITIALIZED)],
        addresses: vec![address(NodeAddressKind::Hostname, name)],
        ..cases::node(name)
    }
}

pub(super) fn machine(id: &str) -> MachineFacts {
    MachineFacts {
        id: id.parse().expect("an id"),
        foreign_id: None,
        addresses: vec![internal("10.0.0.1"), internal("fd00::1")],
        instance_type: None,
        zone: None,
        region: None,
        own_labels: BTreeMap::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: Vec::new(),
    }
}

/// The Node is this machine.
pub(super) fn present(machine: MachineFacts) -> ObservedMachine {
    ObservedMachine::Present(Box::new(machine))
}

pub(super) fn observed(nodes: Vec<(NodeView, ObservedMachine)>) -> Observed {
    let node = |(view, machine): (NodeView, ObservedMachine)| {
        (
            view.name.clone(),
            ObservedNode { uuid: view.system_uuid.clone(), reported: Vec::new(), view: Arc::new(view), machine },
        )
    };
    let nodes: BTreeMap<_, _> = nodes.into_iter().map(node).collect();
    let owner = |(name, node): (&NodeName, &ObservedNode)| {
        let found = match &node.machine {
            ObservedMachine::Present(machine) => Some(&machine.id),
            _ => None,
        };
        Some((is_already(&node.view, found)?, name.clone()))
    };
    let owners = nodes.iter().rev().filter_map(owner).collect();
    Observed { nodes, owners }
}

pub(super) fn plan_one(view: NodeView, machine: ObservedMachine) -> Result<Option<Action>, Note> {
    let name = view.name.clone();
    let mut plan = plan(&observed(vec![(view, machine)]));
    plan.notes.remove(&name).map_or(Ok(plan.actions.remove(&name)), Err)
}

/// What the Node is once the action was done.
pub(super) fn applied(view: &NodeView, action: &Action) -> NodeView {
    let mut view = view.clone();
    let differences = match action.clone() {
        Action::Reconcile(differences) => differences,
        Action::Initialize(Initialization { machine: _, provider_id, taints, differences }) => {
            view.provider_id = provider_id.map(|id| id.to_string()).or(view.provider_id);
            view.taints = taints;
            differences
        }
    };
    let Differences { addresses, labels, annotations } = differences;
    view.addresses = addresses.unwrap_or(view.addresses);
    for (key, value) in labels {
        match value {
            Some(value) => drop(view.labels.insert(key, value)),
            None => drop(view.labels.remove(&key)),
        }
    }
    view.annotations = view.annotations.to_map().into_iter().chain(annotations).collect::<BTreeMap<_, _>>().into();
    view
}

fn initialization() -> Initialization {
    let addresses = vec![internal("10.0.0.1"), internal("fd00::1"), address(NodeAddressKind::Hostname, "n1")];
    Initialization {
        machine: "m1".parse().expect("an id"),
        provider_id: Some("cairn://m1".parse().expect("a provider ID")),
        taints: Vec::new(),
        differences: Differences {
            addresses: Some(addresses),
            labels: BTreeMap::new(),
            annotations: strings(&[("cairn.dev/machine", "m1")]),
        },
    }
}

/// As [`initialization`], with other differences.
fn with(change: impl FnOnce(&mut Differences)) -> Initialization {
    let mut initialization = initialization();
    change(&mut initialization.differences);
    initialization
}

fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
    pairs.iter().map(|(key, value)| (key.to_string(), Some(value.to_string()))).collect()
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
            want: with(|differences| {
                differences.labels = set(&[
                    ("beta.kubernetes.io/instance-type", "r650"),
                    ("failure-domain.beta.kubernetes.io/region", "dc-1"),
                    ("failure-domain.beta.kubernetes.io/zone", "row-a"),
                    ("node.kubernetes.io/instance-type", "r650"),
                    ("topology.kubernetes.io/region", "dc-1"),
                    ("topology.kubernetes.io/zone", "row-a"),
                ]);
            }),
        },
        Case {
            name: "other labels do not overwrite the node's",
            view: NodeView { labels: strings(&[("example.net/foo", "fizz")]), ..node() },
            machine: MachineFacts {
                labels: strings(&[("example.net/foo", "bar"), ("example.net/rack", "12")]),
                ..machine("m1")
            },
            want: with(|differences| differences.labels = set(&[("example.net/rack", "12")])),
        },
        Case {
            name: "our own labels are right and no more than those",
            view: NodeView { labels: strings(&[("cairn.dev/rack", "r1"), ("cairn.dev/row", "3")]), ..node() },
            machine: MachineFacts {
                own_labels: BTreeMap::from([
                    ("cairn.dev/rack".to_owned(), Some("r2".to_owned())),
                    ("cairn.dev/row".to_owned(), None),
                    ("cairn.dev/unit".to_owned(), None),
                ]),
                ..machine("m1")
            },
            want: with(|differences| {
                differences.labels = set(&[("cairn.dev/rack", "r2")]);
                differences.labels.insert("cairn.dev/row".to_owned(), None);
            }),
        },
        Case {
            name: "annotations and taints of the inventory, each once",
            view: NodeView { taints: vec![taint(UNINITIALIZED), taint("a")], ..node() },
            machine: MachineFacts {
                annotations: strings(&[("example.net/asset", "17")]),
                taints: vec![Taint { value: None, ..taint("a") }, taint("b")],
                ..machine("m1")
            },
            want: Initialization {
                taints: vec![taint("a"), taint("b")],
                ..with(|differences| {
                    drop(differences.annotations.insert("example.net/asset".to_owned(), "17".to_owned()))
                })
            },
        },
        Case {
            name: "the system UUID is remembered",
            view: NodeView { system_uuid: Some("u1".to_owned()), ..node() },
            machine: machine("m1"),
            want: with(|differences| {
                differences.annotations = strings(&[("cairn.dev/machine", "m1"), ("cairn.dev/system-uuid", "u1")]);
            }),
        },
        Case {
            name: "another provider's ID that the machine names stays",
            view: NodeView { provider_id: Some("lab://n1".to_owned()), ..node() },
            machine: MachineFacts { foreign_id: Some("lab://n1".to_owned()), ..machine("m1") },
            want: Initialization { provider_id: None, ..initialization() },
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
            want: with(|differences| differences.addresses = None),
        },
        Case {
            name: "the kubelet's node IP filters and orders",
            view: NodeView { provided_node_ip: Some("fd00::1".to_owned()), ..node() },
            machine: machine("m1"),
            want: with(|differences| {
                differences.addresses = Some(vec![internal("fd00::1"), address(NodeAddressKind::Hostname, "n1")]);
            }),
        },
        Case {
            name: "without any in the inventory, the kubelet's addresses stay",
            view: NodeView { addresses: vec![internal("10.0.0.9")], ..node() },
            machine: MachineFacts { addresses: Vec::new(), ..machine("m1") },
            want: with(|differences| differences.addresses = None),
        },
    ] {
        let action = plan_one(case.view.clone(), present(case.machine.clone()))
            .unwrap_or_else(|note| panic!("{}: {note}", case.name))
            .unwrap_or_else(|| panic!("{}: no action", case.name));
        assert_eq!(action, Action::Initialize(case.want), "{}", case.name);
        let after = applied(&case.view, &action);
        let again = plan_one(after, present(case.machine));
        assert_eq!(again, Ok(None), "{}: planning after applying", case.name);
    }
}

#[test]
fn a_node_that_cannot_be_initialized_is_left_alone_and_the_note_says_why() {
    let node = || tainted("n1");
    let is_m1 = || present(machine("m1"));
    for (name, view, machine, want) in [
        (
            "machine unknown",
            node(),
            ObservedMachine::Unknown("no machine matches".to_owned()),
            Note::MachineUnknown { why: "no machine matches".to_owned() },
        ),
        ("decommissioned", node(), ObservedMachine::Absent, Note::MachineDecommissioned),
        (
            "keys disagree",
            node(),
            ObservedMachine::Mismatch("keys disagree".to_owned()),
            Note::MachineMismatch { why: "keys disagree".to_owned() },
        ),
        (
            "another provider's ID, and another that the machine names",
            NodeView { provider_id: Some("aws:///i-1".to_owned()), ..node() },
            present(MachineFacts { foreign_id: Some("lab://n1".to_owned()), ..machine("m1") }),
            Note::ForeignProviderId { provider_id: "aws:///i-1".to_owned() },
        ),
        (
            "foreign provider ID",
            NodeView { provider_id: Some("aws:///i-1".to_owned()), ..node() },
            is_m1(),
            Note::ForeignProviderId { provider_id: "aws:///i-1".to_owned() },
        ),
        (
            "node IP malformed",
            NodeView { provided_node_ip: Some("invalid-ip".to_owned()), ..node() },
            is_m1(),
            Note::NodeIpMalformed { text: "invalid-ip".to_owned() },
        ),
        (
            "node IP not the machine's",
            NodeView { provided_node_ip: Some("10.0.0.2".to_owned()), ..node() },
            is_m1(),
            Note::NodeIpNotOffered { address: "10.0.0.2".parse().expect("an address") },
        ),
        (
            "no address anywhere",
            node(),
            present(MachineFacts { addresses: Vec::new(), ..machine("m1") }),
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
        ObservedMachine::Absent,
        ObservedMachine::Unknown("why".to_owned()),
        ObservedMachine::Mismatch("why".to_owned()),
    ] {
        assert_eq!(plan_one(bare.clone(), machine), Ok(None));
    }
    let plan = plan(&observed(vec![(bare, present(machine("m1")))]));
    assert_eq!(plan.actions, BTreeMap::new());
    let want = Note::KubeletNotExternal { machine: "m1".parse().expect("an id") };
    assert_eq!(plan.notes.into_values().collect::<Vec<_>>(), [want]);
}

#[test]
fn a_node_that_was_ours_and_contradicts_itself_is_an_alarm_and_left_alone() {
    let known = NodeView { taints: Vec::new(), addresses: vec![internal("10.0.0.7")], ..tainted("n1") };
    let mismatch = || ObservedMachine::Mismatch("why".to_owned());
    let alarm = Err(Note::MachineMismatch { why: "why".to_owned() });
    for (name, view, want) in [
        ("by its provider ID", NodeView { provider_id: Some("cairn://m1".to_owned()), ..known.clone() }, alarm.clone()),
        (
            "by its annotation",
            NodeView {
                provider_id: Some("lab://n1".to_owned()),
                annotations: strings(&[("cairn.dev/machine", "m1")]).into(),
                ..known.clone()
            },
            alarm,
        ),
        ("it never was", NodeView { provider_id: Some("lab://n1".to_owned()), ..known }, Ok(None)),
    ] {
        assert_eq!(plan_one(view, mismatch()), want, "{name}");
    }
}

#[test]
fn a_deleting_node_is_left_alone() {
    let view = NodeView { is_deleting: true, ..tainted("n1") };
    assert_eq!(plan_one(view, present(machine("m1"))), Ok(None));
}

/// A Node of machine m1 that was initialized.
fn initialized() -> NodeView {
    NodeView {
        provider_id: Some("cairn://m1".to_owned()),
        taints: Vec::new(),
        addresses: vec![internal("10.0.0.1"), internal("fd00::1")],
        annotations: strings(&[("cairn.dev/machine", "m1")]).into(),
        ..tainted("n1")
    }
}

#[test]
fn addresses_of_an_initialized_node_follow_the_inventory_in_order() {
    let node =
        |addresses: &[&str]| NodeView { addresses: addresses.iter().map(|ip| internal(ip)).collect(), ..initialized() };
    let addresses = Some(vec![internal("10.0.0.1"), internal("fd00::1")]);
    let want = Action::Reconcile(Differences { addresses, ..Differences::default() });
    let is_m1 = || present(machine("m1"));
    for (addresses, want) in [
        (vec!["10.0.0.1", "fd00::1"], None),
        (vec!["fd00::1", "10.0.0.1"], Some(want.clone())),
        (vec!["10.0.0.7"], Some(want.clone())),
        (vec![], Some(want)),
    ] {
        assert_eq!(plan_one(node(&addresses), is_m1()), Ok(want), "{addresses:?}");
    }
    let unknown = ObservedMachine::Unknown("inventory unread".to_owned());
    assert_eq!(plan_one(node(&["10.0.0.7"]), unknown), Ok(None), "what is unknown changes nothing");
}

#[test]
fn labels_of_an_initialized_node_follow_the_inventory_and_what_it_remembers_is_kept() {
    let moved = MachineFacts {
        zone: Some("row-b".to_owned()),
        labels: strings(&[("example.net/owner", "team-a")]),
        annotations: strings(&[("example.net/asset", "17")]),
        taints: vec![taint("b")],
        ..machine("m1")
    };
    let view = NodeView {
        labels: strings(&[
            ("topology.kubernetes.io/zone", "row-a"),
            ("failure-domain.beta.kubernetes.io/zone", "row-a"),
        ]),
        annotations: TextMap::default(),
        system_uuid: Some("u1".to_owned()),
        ..initialized()
    };
    let action = plan_one(view.clone(), present(moved.clone())).expect("no note").expect("an action");
    assert_eq!(
        action,
        Action::Reconcile(Differences {
            addresses: None,
            labels: set(&[
                ("example.net/owner", "team-a"),
                ("failure-domain.beta.kubernetes.io/zone", "row-b"),
                ("topology.kubernetes.io/zone", "row-b"),
            ]),
            annotations: strings(&[("cairn.dev/machine", "m1"), ("cairn.dev/system-uuid", "u1")]),
        }),
        "annotations and taints of the inventory are for new nodes alone"
    );
    let after = applied(&view, &action);
    assert_eq!(plan_one(after, present(moved)), Ok(None));
}

#[test]
fn addresses_are_the_inventorys_else_the_kubelets_else_the_agents() {
    let own = vec![hostname("n1")];
    let with_ip = [vec![internal("10.0.0.9")], own.clone()].concat();
    let reported = || vec![internal("10.0.0.7"), internal("fd00::7")];
    let nothing = Err(Note::NoAddresses { machine: "m1".parse().expect("an id") });
    for (name, of_machine, current, reported, want) in [
        (
            "the inventory's",
            vec![internal("10.0.0.1")],
            with_ip.clone(),
            reported(),
            Ok(vec![internal("10.0.0.1"), hostname("n1")]),
        ),
        ("the kubelet's", vec![], with_ip.clone(), reported(), Ok(with_ip)),
        ("the agent's", vec![], own.clone(), reported(), Ok([reported(), own.clone()].concat())),
        ("nobody's", vec![], own, vec![], nothing),
    ] {
        let machine = MachineFacts { addresses: of_machine, ..machine("m1") };
        let view = Arc::new(NodeView { addresses: current, ..tainted("n1") });
        let node = ObservedNode { view, uuid: None, reported, machine: present(machine.clone()) };
        assert_eq!(addresses_of(&node, &machine), want, "{name}");
    }
}

fn hostname(name: &str) -> NodeAddress {
    address(NodeAddressKind::Hostname, name)
}

#[test]
fn an_address_that_does_not_fit_does_not_keep_labels_back() {
    let view = NodeView { provided_node_ip: Some("10.9.9.9".to_owned()), ..initialized() };
    let moved = MachineFacts { zone: Some("row-b".to_owned()), ..machine("m1") };
    let plan = plan(&observed(vec![(view, present(moved))]));
    assert_eq!((plan.actions.len(), plan.notes.len()), (1, 1));
}

#[test]
fn two_nodes_are_never_one_machine() {
    let is_m1 = || present(machine("m1"));
    let plan_of = |nodes| plan(&observed(nodes));
    let taken =
        |by: &str| Note::MachineTaken { machine: "m1".parse().expect("an id"), by: by.parse().expect("a name") };

    let both_new = plan_of(vec![(tainted("n1"), is_m1()), (tainted("n2"), is_m1())]);
    assert_eq!(both_new.actions.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["n1"]);
    assert_eq!(both_new.notes.values().collect::<Vec<_>>(), [&taken("n1")]);

    let older = NodeView { provider_id: Some("cairn://m1".to_owned()), taints: Vec::new(), ..tainted("n2") };
    let one_new = plan_of(vec![(tainted("n1"), is_m1()), (older, is_m1())]);
    assert_eq!(one_new.notes.values().collect::<Vec<_>>(), [&taken("n2")]);
    assert!(!one_new.actions.contains_key(&"n1".parse().expect("a name")));
}
