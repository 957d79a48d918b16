//! All machines of the inventory, checked together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Machine;
use super::bmc::check::{check_defaults, check_fencing_defaults};
use super::digest::digest;
use super::document::{Extent, Sourced};
use super::entry::{Inherited, check_machine};
use super::instance_type::InstanceTypes;
use super::location::Locations;
use super::matching::Index;
use super::place::FieldPlace;
use super::unique::refuse_shared;
use crate::config::{Faults, FieldPath};
use crate::inventory::MachineState;
use crate::model::MachineId;

/// The machines, each with an id, keys and internal addresses of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    machines: BTreeMap<MachineId, Arc<Machine>>,
    /// Machines that went, or go, on purpose.
    acknowledged: BTreeSet<MachineId>,
    digests: BTreeMap<MachineId, String>,
    index: Index,
}

impl Inventory {
    /// `apiVersion` of its documents.
    pub const API_VERSION: &str = "inventory.cairn.dev/v1";
    /// `kind` of its documents.
    pub const KIND: &str = "Inventory";

    /// The JSON schema of its documents.
    pub fn json_schema() -> serde_json::Value {
        crate::config::object::schema_of::<super::document::InventoryDocument>()
    }

    /// Checks and merges documents.
    ///
    /// # Errors
    /// Every fault, with its place; a value that two machines may not share is told with both.
    pub fn merge(sources: &[Sourced], extent: Extent) -> Result<Self, Faults> {
        let mut faults = Faults::NONE;
        let locations = Locations::of(sources, extent, &mut faults);
        let types = InstanceTypes::of(sources, &mut faults);
        let mut machines = Vec::new();
        for source in sources {
            let inherited = inherited(source, &locations, &types, &mut faults);
            for (index, entry) in source.document.machines.iter().enumerate() {
                let place = FieldPlace { source, field: FieldPath::of("machines").entry(index) };
                machines.extend(check_machine(entry, &place, &inherited, &mut faults).map(Arc::new));
            }
        }
        refuse_shared(sources, &mut faults);
        let is_empty = sources.iter().all(|source| source.document.machines.is_empty());
        if let (true, Extent::Whole, Some(first)) = (is_empty, extent, sources.first()) {
            let message =
                "has no machine: it takes at least one, as a file that was emptied by mistake has none either";
            FieldPlace::of(first, "machines").tell(message, &mut faults);
        }
        let machines: BTreeMap<_, _> = machines.into_iter().map(|machine| (machine.id.clone(), machine)).collect();
        let acknowledged = acknowledged(sources, &machines, &mut faults);
        faults.extend(sources.iter().flat_map(|source| source.faults.iter().cloned()));
        let index = Index::of(machines.values());
        let digests = machines.iter().map(|(id, machine)| (id.clone(), digest(machine))).collect();
        faults.or(Self { machines, acknowledged, digests, index })
    }

    /// Each machine, in the order of ids.
    pub fn machines(&self) -> impl ExactSizeIterator<Item = &Arc<Machine>> {
        self.machines.values()
    }

    /// The machine with this id.
    pub fn machine(&self, id: &MachineId) -> Option<&Arc<Machine>> {
        self.machines.get(id)
    }

    /// A word that changes when what is said of a machine of this inventory changes; empty for any other.
    pub fn digest(&self, id: &MachineId) -> &str {
        self.digests.get(id).map_or("", String::as_str)
    }

    /// Whether the machine with this id goes on purpose.
    pub fn acknowledges_removal_of(&self, id: &MachineId) -> bool {
        self.acknowledged.contains(id)
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }
}

/// What the machines of a document inherit.
fn inherited<'a>(
    source: &'a Sourced,
    locations: &'a Locations<'a>,
    types: &'a InstanceTypes,
    faults: &mut Faults,
) -> Inherited<'a> {
    let defaults = &source.document.defaults;
    let place = FieldPlace::of(source, "defaults");
    defaults.region.iter().for_each(|region| place.field("region").check_label_value(region, faults));
    defaults.bmc.iter().for_each(|bmc| check_defaults(bmc, &place.field("bmc"), faults));
    let fencing =
        check_fencing_defaults(&defaults.fencing.clone().unwrap_or_default(), &place.field("fencing"), faults);
    Inherited {
        locations,
        types,
        region: defaults.region.as_deref(),
        bmc: defaults.bmc.clone().unwrap_or_default(),
        fencing,
    }
}

/// The machines that go on purpose. One that is in service has no business among them: it would be
/// a leave for accidents to come.
fn acknowledged(
    sources: &[Sourced],
    machines: &BTreeMap<MachineId, Arc<Machine>>,
    faults: &mut Faults,
) -> BTreeSet<MachineId> {
    let mut acknowledged = BTreeSet::new();
    for source in sources {
        for (index, text) in source.document.acknowledged_removals.iter().enumerate() {
            let place = FieldPlace { source, field: FieldPath::of("acknowledgedRemovals").entry(index) };
            let Some(id) = place.parse::<MachineId>(text, faults) else { continue };
            match machines.get(&id).map(|machine| machine.state) {
                None | Some(MachineState::Decommissioned) => drop(acknowledged.insert(id)),
                Some(state) => {
                    place.tell(format!("{id} is {state} here: name it when it is decommissioned or taken out"), faults);
                }
            }
        }
    }
    acknowledged
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::document::parse;
    use crate::inventory::bmc::Fencing;
    use crate::inventory::file::read;
    use crate::inventory::machine::Place;
    use crate::inventory::{MachineAddress, Maintenance, MatchKeys};
    use proptest::prelude::*;
    use std::path::Path;

    const HEAD: &str = "apiVersion: inventory.cairn.dev/v1\nkind: Inventory\n";

    fn merged(files: &[(&str, &str)]) -> Result<Inventory, String> {
        let mut faults = Faults::NONE;
        let mut sources = Vec::new();
        for (file, text) in files {
            let file = Path::new(file);
            let parsed = parse(file, &format!("{HEAD}{text}"));
            faults.extend(parsed.faults);
            sources.extend(parsed.documents.into_iter().filter_map(|node| faults.take(read(file, node))));
        }
        let inventory = faults.take(Inventory::merge(&sources, Extent::Whole));
        match inventory {
            Some(inventory) => faults.or(inventory).map_err(|faults| faults.to_string()),
            None => Err(faults.to_string()),
        }
    }

    /// The inventory that one right document makes; indentation of twelve is taken off.
    pub(crate) fn inventory(text: &str) -> Inventory {
        merged(&[("i.yaml", &text.replace("\n            ", "\n"))]).expect("an inventory")
    }

    #[test]
    fn a_machine_inherits_what_it_does_not_say() {
        let inventory = inventory(
            "defaults: {region: lab}
            locations: {r1: {zone: hall-a, rack: R12}, r2: {zone: hall-b, region: edge}}
            machines:
            - id: a
              location: r1
              unit: 20
              match: {nodeName: n1, systemUUID: 4C4C4544-0035-3410-8050-C6C04F314733}
              instanceType: m.small
              addresses: [{type: InternalIP, address: 10.0.0.1}, {type: Hostname, address: n1}]
              labels: {example.net/owner: team-a}
            - {id: b, location: r2, state: maintenance}
            - {id: c, location: r2, region: own}
            - {id: d}
            ",
        );
        let machine = |id: &str| inventory.machine(&id.parse().expect("an id")).expect("a machine").as_ref().clone();
        assert_eq!(
            machine("a"),
            Machine {
                id: "a".parse().expect("an id"),
                state: MachineState::Active,
                match_keys: MatchKeys {
                    node_name: Some("n1".parse().expect("a name")),
                    system_uuid: Some("4c4c4544-0035-3410-8050-c6c04f314733".parse().expect("a UUID")),
                    ..MatchKeys::default()
                },
                maintenance: Maintenance::default(),
                addresses: vec![
                    MachineAddress::InternalIp("10.0.0.1".parse().expect("an address")),
                    MachineAddress::Hostname("n1".to_owned()),
                ],
                region: Some("lab".to_owned()),
                zone: Some("hall-a".to_owned()),
                instance_type: Some("m.small".to_owned()),
                place: Place { rack: Some("R12".to_owned()), unit: Some(20), ..Place::default() },
                labels: BTreeMap::from([("example.net/owner".to_owned(), "team-a".to_owned())]),
                annotations: BTreeMap::new(),
                taints: Vec::new(),
                bmc: None,
                fencing: Fencing::default(),
            }
        );
        let place = |id: &str| (machine(id).region, machine(id).zone);
        assert_eq!(place("b"), (Some("edge".to_owned()), Some("hall-b".to_owned())));
        assert_eq!(place("c"), (Some("own".to_owned()), Some("hall-b".to_owned())));
        assert_eq!(place("d"), (Some("lab".to_owned()), None));
        assert_eq!(machine("b").state, MachineState::Maintenance);
    }

    #[test]
    fn an_address_that_routers_do_not_carry_is_no_machines() {
        for (address, what, takes) in [
            ("0.0.0.0", "an unspecified address (0.0.0.0/8)", "one that other machines can reach"),
            ("0.1.2.3", "an unspecified address (0.0.0.0/8)", "one that other machines can reach"),
            ("127.1.2.3", "a loopback address (127.0.0.0/8)", "one that other machines can reach"),
            ("169.254.0.9", "a link-local address (169.254.0.0/16)", "one that other machines can reach"),
            ("224.0.0.5", "a multicast address (224.0.0.0/4)", "one that other machines can reach"),
            ("255.255.255.255", "a broadcast address (255.255.255.255/32)", "one that other machines can reach"),
            ("::", "an unspecified address (::/128)", "one that other machines can reach"),
            ("::1", "a loopback address (::1/128)", "one that other machines can reach"),
            ("fe80::1", "a link-local address (fe80::/10)", "one that other machines can reach"),
            ("ff02::5", "a multicast address (ff00::/8)", "one that other machines can reach"),
            ("::ffff:10.0.0.5", "an IPv4-mapped address (::ffff:0.0.0.0/96)", "the IPv4 address itself, 10.0.0.5"),
        ] {
            for kind in ["InternalIP", "ExternalIP"] {
                let text = format!("machines: [{{id: a, addresses: [{{type: {kind}, address: '{address}'}}]}}]");
                let want = format!(
                    "i:3:60: machines[0].addresses[0].address: {address} is {what}, which routers do not carry: it takes \
                     {takes}"
                );
                assert_eq!(merged(&[("i", &text)]).map(|_| ()), Err(want), "{address}");
            }
        }
    }

    #[test]
    fn every_fault_of_a_large_file_is_told_once() {
        let machine = |index: usize| {
            format!("- {{id: m{index}, owner: x, unit: 0, addresses: [{{type: InternalIP, address: 10.0.0.1}}]}}\n")
        };
        let machines: String = (0..300).map(machine).collect();
        let locations: String = (0..300).map(|index| format!("  r{index}: {{rack: '-', colour: x}}\n")).collect();
        let told = merged(&[("i", &format!("machines:\n{machines}locations:\n{locations}"))]).expect_err("faults");
        for (what, want) in [
            (".owner: is not a field", 300),
            (".unit: 0 is out of range", 300),
            ("internal address 10.0.0.1 is already at machines[0].addresses[0].address in line 4", 299),
            (".rack: \"-\" is not the value of a label", 300),
            (".colour: is not a field", 300),
        ] {
            assert_eq!(told.lines().filter(|line| line.contains(what)).count(), want, "{what}");
        }
        assert_eq!(told.lines().count(), 1499);
        assert!(told.contains("i:604:16: locations.r299.rack: "), "{}", told.lines().last().unwrap_or_default());
    }

    #[test]
    fn each_fault_is_one_sentence_with_its_place() {
        for (text, want) in [
            (
                "machines: [{id: R1}]",
                "i:3:17: machines[0].id: \"R1\" is not a name: it takes 1 to 253 lower-case letters, digits, '-' and '.', and starts and ends with a letter or digit",
            ),
            (
                "machines: [{id: 17}]",
                "i:3:17: machines[0].id: 17 is a number: it takes text, so put it in quotes: \"17\"",
            ),
            ("machines: [{state: active}]", "i:3:12: machines[0].id: is missing: it takes text"),
            ("machines: [{id: a, sate: x}]", "i:3:20: machines[0].sate: is not a field: did you mean state?"),
            (
                "machines: [{id: a, adresses: [{type: Hostname, adress: 1}]}]",
                "i:3:20: machines[0].adresses: is not a field: did you mean addresses?\n\
                 i:3:48: machines[0].adresses[0].adress: is not a field: did you mean address?",
            ),
            ("machines: [{di: 5}]", "i:3:13: machines[0].di: is not a field: did you mean id?"),
            (
                "machines: [{id: a, state: acitve}]",
                "i:3:27: machines[0].state: \"acitve\" is not a state: it takes planned, active, maintenance or decommissioned; did you mean active?",
            ),
            (
                "machines: [{id: a, state: maintenence, maintenance: {reason: disks}}]",
                "i:3:27: machines[0].state: \"maintenence\" is not a state: it takes planned, active, maintenance or decommissioned; did you mean maintenance?",
            ),
            (
                "machines: [{id: a, location: r2}]\nlocations: {r1: {}}",
                "i:3:30: machines[0].location: \"r2\" is not among the locations: did you mean r1?",
            ),
            (
                "machines: [{id: a, location: hall}]\nlocations: {r1: {}, r2: {}}",
                "i:3:30: machines[0].location: \"hall\" is not among the locations: they are r1, r2",
            ),
            (
                "machines: [{id: a, location: r1}]",
                "i:3:30: machines[0].location: \"r1\" is not among the locations: write it under locations first",
            ),
            ("machines: [{id: a, region: ''}]", "i:3:28: machines[0].region: is empty: leave the field out for none"),
            (
                "machines: [{id: a, instanceType: a b}]",
                "i:3:34: machines[0].instanceType: \"a b\" is not the value of a label: it takes up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
            ),
            (
                "machines: [{id: a, labels: {kubernetes.io/os: linux}}]",
                "i:3:47: machines[0].labels[\"kubernetes.io/os\"]: kubernetes.io/os is for Kubernetes to set: it takes keys outside kubernetes.io and k8s.io",
            ),
            (
                "machines: [{id: a, match: {systemUUID: 123-4}}]",
                "i:3:40: machines[0].match.systemUUID: \"123-4\" is not a UUID: it takes the form 4c4c4544-0035-3410-8050-c6c04f314733",
            ),
            (
                "machines: [{id: a, match: {systemUUID: 03000200-0400-0500-0006-000700080009}}]",
                "i:3:40: machines[0].match.systemUUID: 03000200-0400-0500-0006-000700080009 is a placeholder that many boards share: leave the field out",
            ),
            (
                "machines: [{id: a, addresses: [{type: InternalIP, address: 10.0.0.1/24}]}]",
                "i:3:60: machines[0].addresses[0].address: \"10.0.0.1/24\" is not an IP address: it takes 10.0.0.1, without a length",
            ),
            (
                "machines: [{id: a, addresses: [{type: InternalIP, address: n1}]}]",
                "i:3:60: machines[0].addresses[0].address: \"n1\" is not an IP address: it takes an IP address such as 10.0.12.20 or fd00:12::20",
            ),
            (
                "machines: [{id: a, addresses: [{type: ExternalIP, address: 127.0.0.1}]}]",
                "i:3:60: machines[0].addresses[0].address: 127.0.0.1 is a loopback address (127.0.0.0/8), which routers do not carry: it takes one that other machines can reach",
            ),
            (
                "machines: [{id: a, addresses: [{type: InternalIp, address: 10.0.0.1}]}]",
                "i:3:39: machines[0].addresses[0].type: \"InternalIp\" is not a type: it takes InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS; did you mean InternalIP?",
            ),
            (
                "machines: []",
                "i:3:11: machines: has no machine: it takes at least one, as a file that was emptied by mistake has none either",
            ),
            (
                "machines: [{id: a, owner: me}]",
                "i:3:20: machines[0].owner: is not a field: the fields here are addresses, annotations, bmc, fencing, hardware, id, instanceType, labels, location, maintenance, match, region, state, taints, unit",
            ),
        ] {
            assert_eq!(merged(&[("i", text)]).map(|_| ()), Err(want.to_owned()), "{text}");
        }
    }

    const WHOLE: &str = r#"
defaults:
  region: eu-lab
  bmc: {protocol: redfish, tls: {mode: verify, caFile: /etc/bmc/ca.pem}, timeouts: {connect: 5s, request: 20s}, poll: 60s, credentialsRef: {secret: bmc-creds}}
  fencing: {enabled: false, confirmReads: 2, confirmInterval: 5s, offDeadline: 90s, after: stay-off}
locations:
  r12: {zone: hall-a, room: A, row: "3", rack: R12, powerFeeds: [pdu-a, pdu-b]}
instanceTypes:
- name: gpu.h100x8
  match: {manufacturer: "(?i)supermicro", model: "SYS-821GE.*"}
  labels: {accelerator: h100}
acknowledgedRemovals: [r12-u19]
machines:
- id: r12-u20
  state: active
  maintenance: {reason: "", until: null, allowFencing: false}
  match:
    nodeName: worker-20.example.net
    systemUUID: 4c4c4544-0035-3410-8050-c6c04f314733
    serials: [F54P1G3, CNIVC0014M0388]
    macs: ["70:b5:e8:f0:52:dc"]
    providerID: lab://worker-20
  location: r12
  unit: 20
  instanceType: m.r750-2x18c-512g
  hardware: {manufacturer: Dell Inc., model: PowerEdge R750, cpuModel: Xeon, cpus: 2, coresPerCpu: 18, memoryGiB: 512}
  addresses: [{type: InternalIP, address: 10.0.12.20}, {type: ExternalIP, address: 192.0.2.20}, {type: Hostname, address: worker-20}]
  labels: {example.net/owner: team-a}
  annotations: {example.net/asset: "17"}
  taints: [{key: example.net/dedicated, value: db, effect: NoSchedule}]
  bmc:
    protocol: redfish
    address: https://10.9.12.20
    systemId: System.Embedded.1
    identity: {systemUUID: same, serial: F54P1G3}
    credentialsRef: {secret: bmc-creds, namespace: kube-system}
    tls: {mode: pinned, sha256: "0f:1e:2d:3c:4b:5a:69:78:87:96:a5:b4:c3:d2:e1:f0:0f:1e:2d:3c:4b:5a:69:78:87:96:a5:b4:c3:d2:e1:f0"}
    ipmi: {cipherSuites: [17, 3], role: operator, kgRef: null, port: 623}
  fencing: {enabled: true, group: rack}
- id: r12-u21
  state: maintenance
  maintenance: {reason: new disks, until: "2027-01-31T18:00:00Z"}
  bmc: {protocol: ipmi, address: 10.9.12.21, ipmi: {port: 6230}}
- {id: r12-u22, bmc: {address: "https://bmc.example.net:8443/"}}
"#;

    #[test]
    fn the_whole_format_is_read_and_inherited() {
        use crate::inventory::bmc::{CredentialsRef, Protocol, Tls};
        let inventory = inventory(WHOLE);
        let machine = |id: &str| inventory.machine(&id.parse().expect("an id")).expect("a machine").as_ref().clone();
        let one = machine("r12-u20");
        let label = |key: &str, value: &str| (key.to_owned(), Some(value.to_owned()));
        let own = [
            label("cairn.dev/rack", "R12"),
            label("cairn.dev/room", "A"),
            label("cairn.dev/row", "3"),
            label("cairn.dev/serial", "F54P1G3"),
            label("cairn.dev/unit", "20"),
        ];
        assert_eq!(one.own_labels(), BTreeMap::from(own));
        assert_eq!(one.place.power_feeds, ["pdu-a", "pdu-b"]);
        assert_eq!(one.taints[0].effect, "NoSchedule");
        assert_eq!(one.match_keys.macs[0].to_string(), "70:b5:e8:f0:52:dc");
        assert!(one.fencing.is_enabled && !machine("r12-u21").fencing.is_enabled);
        let bmc = one.bmc.expect("a BMC");
        assert_eq!(bmc.expected_uuid, one.match_keys.system_uuid);
        assert!(matches!(&bmc.tls, Tls::Pinned { sha256 } if sha256.len() == 64));
        let (two, three) = (machine("r12-u21"), machine("r12-u22").bmc.expect("a BMC"));
        assert_eq!(two.maintenance.reason.as_deref(), Some("new disks"));
        let two = two.bmc.expect("a BMC");
        assert_eq!((two.protocol, two.ipmi.port, two.ipmi.cipher_suites), (Protocol::Ipmi, 6230, vec![17, 3]));
        assert_eq!((three.protocol, three.address.as_str()), (Protocol::Redfish, "https://bmc.example.net:8443"));
        let secret = CredentialsRef::Secret { name: "bmc-creds".to_owned(), namespace: "kube-system".to_owned() };
        assert_eq!(three.credentials, secret);
        assert_eq!(three.tls, Tls::Verify { ca_file: Some("/etc/bmc/ca.pem".into()) });
        assert!(inventory.acknowledges_removal_of(&"r12-u19".parse().expect("an id")));
    }

    #[test]
    fn what_machines_say_of_more_than_their_nodes_is_checked_as_strictly() {
        let a = |rest: &str| format!("machines: [{{id: a, {rest}}}]");
        let bmc = |rest: &str| a(&format!("bmc: {{credentialsRef: {{env: BMC}}, {rest}}}"));
        for (text, want) in [
            (
                a("match: {macs: [1:2]}"),
                "machines[0].match.macs[0]: \"1:2\" is not a MAC address: it takes the form 70:b5:e8:f0:52:dc",
            ),
            (
                a("match: {providerID: cairn://a}"),
                "machines[0].match.providerID: \"cairn://a\" is an ID of this provider, which follows from id: leave the field out",
            ),
            (
                a("match: {serials: ['']}"),
                "machines[0].match.serials[0]: is empty or has spaces around it: it takes the number alone",
            ),
            (a("unit: 0"), "machines[0].unit: 0 is out of range: it takes 1 to 100"),
            (
                a("labels: {cairn.dev/rack: r1}"),
                "machines[0].labels[\"cairn.dev/rack\"]: cairn.dev/rack is for Cairn to set: it takes keys outside cairn.dev",
            ),
            (
                a("annotations: {kubernetes.io/x: y}"),
                "machines[0].annotations[\"kubernetes.io/x\"]: kubernetes.io/x is for Kubernetes to set: it takes keys outside kubernetes.io and k8s.io",
            ),
            (
                a("taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]"),
                "machines[0].taints[0].key: node.kubernetes.io/not-ready comes and goes with what controllers see: it takes another key",
            ),
            (
                a("taints: [{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]"),
                "machines[0].taints[1].key: a with effect NoSchedule is there twice: leave one",
            ),
            (
                a("taints: [{key: a, effect: Evict}]"),
                "machines[0].taints[0].effect: \"Evict\" is not an effect: it takes NoSchedule, PreferNoSchedule or NoExecute",
            ),
            (
                a("maintenance: {reason: disks}"),
                "machines[0].maintenance: says something, but state is active: set it to maintenance, or leave this out",
            ),
            (
                a("state: maintenance, maintenance: {until: tomorrow}"),
                "machines[0].maintenance.until: \"tomorrow\" is not a time: it takes the form 2027-01-31T18:00:00Z",
            ),
            (
                a("fencing: {enabled: true}"),
                "machines[0].fencing: is enabled, but there is no bmc that could switch the machine off",
            ),
            (a("fencing: {confirmReads: 1}"), "machines[0].fencing.confirmReads: 1 is out of range: it takes 2 to 10"),
            (
                a("fencing: {offDeadline: 90}"),
                "machines[0].fencing.offDeadline: 90 is a number: it takes text, so put it in quotes: \"90\"",
            ),
            (
                bmc("protocol: redfish, address: 'https://root:calvin@10.0.0.1'"),
                "machines[0].bmc.address: holds a user or password, which never stand in this file: see credentialsRef",
            ),
            (
                bmc("protocol: redfish, address: 10.0.0.1"),
                "machines[0].bmc.address: \"10.0.0.1\" is not where a Redfish BMC is: it takes the form https://10.9.12.20 or https://bmc.example.net:8443",
            ),
            (
                bmc("protocol: ipmi"),
                "machines[0].bmc.address: is missing: it takes where the BMC is, or protocol: none",
            ),
            (
                a("bmc: {protocol: ipmi, address: 10.0.0.1}"),
                "machines[0].bmc.credentialsRef: is missing: it takes where user and password are, here or in defaults",
            ),
            (
                a("bmc: {protocol: ipmi, address: 10.0.0.1, credentialsRef: {secret: a, file: b}}"),
                "machines[0].bmc.credentialsRef: takes exactly one of secret, file and env",
            ),
            (
                a("bmc: {password: calvin}"),
                "machines[0].bmc.password: is not a field: the fields here are address, credentialsRef, identity, ipmi, poll, protocol, systemId, timeouts, tls",
            ),
            (
                bmc("protocol: redfish, address: 'https://10.0.0.1', tls: {mode: pinned}"),
                "machines[0].bmc.tls: is pinned without sha256: it takes the certificate's SHA-256",
            ),
            (
                bmc("protocol: redfish, address: 'https://10.0.0.1', poll: 1 minute"),
                "machines[0].bmc.poll: \"1 minute\" is not a span of time: it takes 1s to 24h, such as 5s or 1m30s",
            ),
            (
                bmc("protocol: redfish, address: 'https://10.0.0.1', identity: {systemUUID: same}"),
                "machines[0].bmc.identity.systemUUID: is same, but match has no systemUUID: write the UUID in one of the two",
            ),
            (
                "instanceTypes: [{name: a, match: {}}]\nmachines: [{id: a}]".to_owned(),
                "instanceTypes[0].match: is empty and would fit every machine: it takes manufacturer, model or cpuModel",
            ),
            (
                "acknowledgedRemovals: [a]\nmachines: [{id: a}]".to_owned(),
                "acknowledgedRemovals[0]: a is active here: name it when it is decommissioned or taken out",
            ),
        ] {
            let told = merged(&[("i", &text)]).map(|_| ()).expect_err(&text);
            let without_place = told.split_once(": ").map(|(_, told)| told);
            assert_eq!(without_place, Some(want), "{text}");
        }
    }

    #[test]
    fn what_two_machines_share_is_told_with_both_places() {
        let told = merged(&[
            (
                "a.yaml",
                "machines:\n- {id: a, match: {nodeName: n1, systemUUID: 4c4c4544-0035-3410-8050-c6c04f314733}}\n- {id: a}\nlocations: {r1: {}}\n",
            ),
            (
                "b.yaml",
                "machines:\n- {id: b, match: {nodeName: n1, systemUUID: 44454c4c-3500-1034-8050-c6c04f314733}}\n- id: c\n  addresses: [{type: InternalIP, address: 10.0.0.1}]\n- id: d\n  addresses: [{type: InternalIP, address: 10.0.0.1}]\nlocations: {r1: {}}\n",
            ),
        ]);
        assert_eq!(
            told.expect_err("faults"),
            "a.yaml:5:8: machines[1].id: machine id a is already at machines[0].id in line 4: each takes its own\n\
             b.yaml:4:29: machines[0].match.nodeName: node name n1 is already at a.yaml:4:29: machines[0].match.nodeName: each takes its own\n\
             b.yaml:4:45: machines[0].match.systemUUID: system UUID 44454c4c-3500-1034-8050-c6c04f314733, in one byte order or the other, is already at a.yaml:4:45: machines[0].match.systemUUID: each takes its own\n\
             b.yaml:8:43: machines[2].addresses[0].address: internal address 10.0.0.1 is already at machines[1].addresses[0].address in line 6: each takes its own\n\
             b.yaml:9:17: locations.r1: location r1 is already at a.yaml:6:17: locations.r1: each takes its own"
        );
    }

    #[test]
    fn all_faults_of_a_document_are_told_at_once() {
        let text = "machines: [{id: A, location: x, instanceType: a b, addresses: [{type: Hostname, address: _}]}, {id: b}, {id: b}]";
        assert_eq!(merged(&[("i", text)]).expect_err("faults").lines().count(), 5);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((machines|id|state|match|addresses|locations|defaults)(: | )?[-\\[\\]{}:, \na1'\"]{0,4}){0,20}") {
            let _ = merged(&[("i", &text)]);
        }
    }
}
