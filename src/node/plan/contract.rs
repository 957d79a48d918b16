//! What the tests of upstream's node controller assert, on the same Nodes and clouds: `Test_syncNode`,
//! `TestReconcileNodeLabels`, `TestNodeAddressesChangeDetected`, `TestGetInstanceMetadata` and those of
//! its taint helpers in `k8s.io/cloud-provider`. Where Cairn differs, ARCHITECTURE.md says why.

use super::tests::{address, applied, internal, machine, plan_one, present, strings, taint, tainted};
use super::*;
use crate::model::views::NodeAddressKind;

fn external(ip: &str) -> NodeAddress {
    address(NodeAddressKind::ExternalIp, ip)
}

fn hostname(name: &str) -> NodeAddress {
    address(NodeAddressKind::Hostname, name)
}

/// What the tests' cloud gives, unless they say something else.
fn cloud_addresses() -> Vec<NodeAddress> {
    vec![hostname("node0.cloud.internal"), internal("10.0.0.1"), external("132.143.154.163")]
}

fn without_host_name() -> Vec<NodeAddress> {
    cloud_addresses().split_off(1)
}

fn cloud() -> MachineFacts {
    MachineFacts { addresses: cloud_addresses(), ..machine("m1") }
}

fn node() -> NodeView {
    NodeView { addresses: Vec::new(), ..tainted("node0") }
}

fn coverage() -> Taint {
    Taint { value: None, ..taint("ImproveCoverageTaint") }
}

/// What is written under the four names of zone and region.
fn zone_labels() -> Vec<(&'static str, &'static str)> {
    vec![
        ("failure-domain.beta.kubernetes.io/region", "us-west"),
        ("failure-domain.beta.kubernetes.io/zone", "us-west-1a"),
        ("topology.kubernetes.io/region", "us-west"),
        ("topology.kubernetes.io/zone", "us-west-1a"),
    ]
}

fn in_us_west() -> MachineFacts {
    MachineFacts { zone: Some("us-west-1a".to_owned()), region: Some("us-west".to_owned()), ..cloud() }
}

#[test]
fn a_node_with_the_cloud_taint_is_initialized() {
    struct Case {
        name: &'static str,
        node: NodeView,
        machine: MachineFacts,
        addresses: Vec<NodeAddress>,
        labels: Vec<(&'static str, &'static str)>,
        taints: Vec<Taint>,
        provider_id: &'static str,
    }
    let case = |name| Case {
        name,
        node: node(),
        machine: cloud(),
        addresses: cloud_addresses(),
        labels: Vec::new(),
        taints: Vec::new(),
        provider_id: "cairn://m1",
    };
    let kept = |addresses: Vec<NodeAddress>| [addresses, vec![hostname("nodeoverriden")]].concat();
    let own_name = || NodeView { addresses: vec![hostname("nodeoverriden")], ..node() };
    let no_name = || MachineFacts { addresses: without_host_name(), ..cloud() };
    for case in [
        Case { node: own_name(), ..case("the cloud's host name wins over the node's") },
        Case {
            node: own_name(),
            machine: no_name(),
            addresses: kept(without_host_name()),
            ..case("a cloud without a host name: the node's own comes last")
        },
        case("a node without addresses gets the cloud's three"),
        Case { machine: in_us_west(), labels: zone_labels(), ..case("zone and region come under four names") },
        Case {
            node: NodeView { taints: vec![taint(UNINITIALIZED), coverage()], ..node() },
            taints: vec![coverage()],
            ..case("another taint on a node that is not ready stays, the cloud's goes")
        },
        Case {
            node: NodeView { provided_node_ip: Some("10.0.0.1".to_owned()), ..own_name() },
            machine: no_name(),
            addresses: kept(without_host_name()),
            ..case("the kubelet's node IP comes first, and the node's host name last")
        },
        Case {
            node: NodeView {
                provider_id: Some("test-provider-id".to_owned()),
                taints: vec![taint(UNINITIALIZED), coverage()],
                ..node()
            },
            machine: MachineFacts { foreign_id: Some("test-provider-id".to_owned()), ..cloud() },
            taints: vec![coverage()],
            provider_id: "test-provider-id",
            ..case("a provider ID that is set stays, and so does another taint")
        },
        Case {
            machine: MachineFacts {
                labels: strings(&[("topology.k8s.cp/zone-id", "az1"), ("my.custom.label/foo", "bar")]),
                ..in_us_west()
            },
            labels: [vec![("my.custom.label/foo", "bar")], zone_labels(), vec![("topology.k8s.cp/zone-id", "az1")]]
                .concat(),
            ..case("additional labels come beside the four of zone and region")
        },
        Case {
            node: NodeView {
                labels: strings(&[("my.custom.label/foo", "fizz"), ("my.custom.label/bar", "foo")]),
                ..node()
            },
            machine: MachineFacts {
                labels: strings(&[
                    ("topology.kubernetes.io/region", "us-other"),
                    ("topology.k8s.io/region", "us-other"),
                    ("kubernetes.io/region", "us-other"),
                    ("k8s.io/region", "us-other"),
                    ("my.custom.label/foo", "bar"),
                    ("my.custom.label/bar", "foo"),
                    ("app.k8snio/bar", "x"),
                    ("k8snio/bar", "x"),
                ]),
                ..in_us_west()
            },
            labels: [
                vec![
                    ("app.k8snio/bar", "x"),
                    ("k8snio/bar", "x"),
                    ("my.custom.label/bar", "foo"),
                    ("my.custom.label/foo", "fizz"),
                ],
                zone_labels(),
            ]
            .concat(),
            ..case("additional labels with reserved prefixes are dropped, and what the node has stays")
        },
    ] {
        let action = plan_one(case.node.clone(), present(case.machine));
        let action = action.expect(case.name).unwrap_or_else(|| panic!("{}: nothing is done", case.name));
        let after = applied(&case.node, &action);
        assert_eq!(after.addresses, case.addresses, "{}", case.name);
        assert_eq!(after.labels, strings(&case.labels), "{}", case.name);
        assert_eq!(after.taints, case.taints, "{}", case.name);
        assert_eq!(after.provider_id.as_deref(), Some(case.provider_id), "{}", case.name);
        assert_eq!(after.ready, case.node.ready, "{}: conditions are never touched", case.name);
    }
}

#[test]
fn a_node_that_upstream_leaves_or_tries_again_is_left_as_it_is() {
    let is_m1 = || present(cloud());
    let unknown = || ObservedMachine::Unknown("why".to_owned());
    let told = |note: Note| Err(note);
    let ip = |text: &str| NodeView { provided_node_ip: Some(text.to_owned()), ..node() };
    for (row, node, machine, want) in [
        (
            "no taint and no provider ID: not initialized",
            NodeView { taints: Vec::new(), ..node() },
            is_m1(),
            told(Note::KubeletNotExternal { machine: "m1".parse().expect("an id") }),
        ),
        (
            "no metadata, none with an ID, or an error: the taint stays",
            node(),
            unknown(),
            told(Note::MachineUnknown { why: "why".to_owned() }),
        ),
        (
            "a node IP that is none",
            ip("invalid-ip"),
            is_m1(),
            told(Note::NodeIpMalformed { text: "invalid-ip".to_owned() }),
        ),
        (
            "a node IP that the cloud does not offer",
            ip("10.0.0.2"),
            is_m1(),
            told(Note::NodeIpNotOffered { address: "10.0.0.2".parse().expect("an address") }),
        ),
    ] {
        // A note comes with no action: nothing is written, the taint stays.
        let plan = plan(&super::tests::observed(vec![(node.clone(), machine.clone())]));
        assert_eq!(plan.actions, BTreeMap::new(), "{row}");
        assert_eq!(plan_one(node, machine), want, "{row}");
    }
}

#[test]
fn what_an_instance_has_is_written_and_the_nodes_own_id_stays() {
    let with_id = |id: &str| NodeView { provider_id: Some(id.to_owned()), ..node() };
    let small = |foreign_id: Option<&str>| MachineFacts {
        instance_type: Some("t1.micro".to_owned()),
        foreign_id: foreign_id.map(str::to_owned),
        ..cloud()
    };
    for (row, node, machine, provider_id) in [
        ("an ID, addresses and type", node(), small(None), "cairn://m1"),
        (
            "the node's own ID, which the cloud does not have: it stays, and the type is found all the same",
            with_id("fake://12345"),
            small(Some("fake://12345")),
            "fake://12345",
        ),
    ] {
        let action = plan_one(node.clone(), present(machine)).expect(row).expect(row);
        let after = applied(&node, &action);
        assert_eq!(after.provider_id.as_deref(), Some(provider_id), "{row}");
        assert_eq!(after.addresses, cloud_addresses(), "{row}");
        assert_eq!(after.labels["node.kubernetes.io/instance-type"], "t1.micro", "{row}");
    }
}

/// An initialized Node with these labels, and what it has after the plan.
fn labels_after(current: &[(&str, &str)]) -> BTreeMap<String, String> {
    let view = NodeView {
        provider_id: Some("cairn://m1".to_owned()),
        taints: Vec::new(),
        addresses: cloud_addresses(),
        annotations: strings(&[("cairn.dev/machine", "m1")]).into(),
        labels: strings(current),
        ..node()
    };
    match plan_one(view.clone(), present(cloud())).expect("no note") {
        Some(action) => applied(&view, &action).labels,
        None => view.labels,
    }
}

#[test]
fn older_labels_decide_over_newer_ones() {
    let older = [
        ("beta.kubernetes.io/instance-type", "the-best-type"),
        ("failure-domain.beta.kubernetes.io/region", "region1"),
        ("failure-domain.beta.kubernetes.io/zone", "zone1"),
    ];
    let newer = [
        ("node.kubernetes.io/instance-type", "the-best-type"),
        ("topology.kubernetes.io/region", "region1"),
        ("topology.kubernetes.io/zone", "zone1"),
    ];
    let wrong = newer.map(|(key, _)| (key, "wrong"));
    let both = strings(&[older, newer].concat());
    for (row, current, want) in [
        ("only older ones: newer ones are added, equal", older.to_vec(), both.clone()),
        ("all are equal: unchanged", [older, newer].concat(), both.clone()),
        ("newer ones are wrong: all three become as the older ones", [older, wrong].concat(), both),
        ("only newer ones", newer.to_vec(), strings(&newer)),
    ] {
        assert_eq!(labels_after(&current), want, "{row}");
    }
}

#[test]
fn a_change_of_addresses_is_seen_in_values_number_kind_and_order() {
    let v4 = || internal("10.0.0.1");
    let v6 = || internal("fd00::1");
    for (row, current, offered, has_changed) in [
        ("the same", vec![v4(), external("1.1.1.1")], vec![v4(), external("1.1.1.1")], false),
        ("one value differs", vec![internal("10.0.0.2"), external("1.1.1.1")], vec![v4(), external("1.1.1.1")], true),
        ("an external one is gone", vec![v4(), external("1.1.1.1")], vec![v4()], true),
        ("one is new", vec![v4()], vec![v4(), external("1.1.1.1")], true),
        ("a host name is new", vec![v4()], vec![v4(), hostname("n1")], true),
        ("a host name is gone, but it is the node's own and stays", vec![v4(), hostname("n1")], vec![v4()], false),
        ("kinds are swapped", vec![internal("1.1.1.1"), external("10.0.0.1")], vec![v4(), external("1.1.1.1")], true),
        ("two of one kind, the same", vec![v4(), v6()], vec![v4(), v6()], false),
        ("two of one kind in another order", vec![v6(), v4()], vec![v4(), v6()], true),
    ] {
        let view = NodeView {
            provider_id: Some("cairn://m1".to_owned()),
            taints: Vec::new(),
            addresses: current,
            annotations: strings(&[("cairn.dev/machine", "m1")]).into(),
            ..node()
        };
        let machine = MachineFacts { addresses: offered, ..machine("m1") };
        let action = plan_one(view, present(machine)).expect("no note");
        assert_eq!(action.is_some(), has_changed, "{row}");
    }
}

#[test]
fn taints_are_the_same_by_key_and_effect() {
    let no_execute = |key: &str| Taint { effect: "NoExecute".to_owned(), ..taint(key) };
    assert!(is_same_taint(&taint("a"), &Taint { value: None, ..taint("a") }), "the value does not count");
    for (row, current, of_inventory, want) in [
        ("exists: same key and effect", vec![taint("a")], vec![taint("a")], vec![taint("a")]),
        ("exists: another key", vec![taint("a")], vec![taint("b")], vec![taint("a"), taint("b")]),
        ("exists: another effect", vec![taint("a")], vec![no_execute("a")], vec![taint("a"), no_execute("a")]),
        ("remove: another key stays", vec![taint("a")], vec![], vec![taint("a")]),
        ("remove and delete: the one that waits goes", vec![taint(UNINITIALIZED)], vec![], vec![]),
        ("remove and delete: whatever its effect", vec![no_execute(UNINITIALIZED)], vec![], vec![]),
        ("remove and delete: from nothing", vec![], vec![], vec![]),
    ] {
        assert_eq!(initial_taints(&current, &of_inventory), want, "{row}");
    }
}
