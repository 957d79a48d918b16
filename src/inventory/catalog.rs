//! All machines of the inventory, checked together.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::document::{AddressEntry, AddressKind, Defaults, Location, MachineEntry, MatchEntry, Sourced};
use super::matching::Index;
use super::{Machine, MachineAddress, MatchKeys, SystemUuid};
use crate::config::{Fault, Faults, FieldPath, label};
use crate::model::{MachineId, NodeName};

/// The machines, each with an id, node name, UUID and internal addresses of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    machines: BTreeMap<MachineId, Arc<Machine>>,
    index: Index,
}

impl Inventory {
    /// `apiVersion` of its documents.
    pub const API_VERSION: &str = "inventory.cairn.dev/v1";
    /// `kind` of its documents.
    pub const KIND: &str = "Inventory";

    /// Checks and merges documents.
    ///
    /// # Errors
    /// Every fault, with its place; a value that two machines may not share is told with both.
    pub fn merge(sources: &[Sourced], extent: Extent) -> Result<Self, Faults> {
        let mut faults = Faults::NONE;
        let locations = Locations::of(sources, extent, &mut faults);
        let mut machines = Vec::new();
        for source in sources {
            let Defaults { region } = &source.document.defaults;
            let place = Place { source, field: FieldPath::of("defaults").field("region") };
            region.iter().for_each(|region| place.check_label_value(region, &mut faults));
            for (index, entry) in source.document.machines.iter().enumerate() {
                let place = Place { source, field: FieldPath::of("machines").entry(index) };
                machines.extend(check_machine(entry, &place, &locations, &mut faults));
            }
        }
        refuse_shared(sources, &mut faults);
        let is_empty = sources.iter().all(|source| source.document.machines.is_empty());
        if let (true, Extent::Whole, Some(first)) = (is_empty, extent, sources.first()) {
            let message =
                "has no machine: it takes at least one, as a file that was emptied by mistake has none either";
            Place { source: first, field: FieldPath::of("machines") }.tell(message, &mut faults);
        }
        faults.extend(sources.iter().flat_map(|source| source.faults.iter().cloned()));
        let machines: BTreeMap<_, _> =
            machines.into_iter().map(|machine| (machine.id.clone(), Arc::new(machine))).collect();
        let index = Index::of(machines.values());
        faults.or(Self { machines, index })
    }

    /// Each machine, in the order of ids.
    pub fn machines(&self) -> impl ExactSizeIterator<Item = &Arc<Machine>> {
        self.machines.values()
    }

    /// The machine with this id.
    pub fn machine(&self, id: &MachineId) -> Option<&Arc<Machine>> {
        self.machines.get(id)
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }
}

/// Whether documents are all there are, or others could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All there are.
    Whole,
    /// Some; what is missing in them may be in the others.
    Part,
}

/// A field of a document.
#[derive(Clone)]
struct Place<'a> {
    source: &'a Sourced,
    field: FieldPath,
}

impl<'a> Place<'a> {
    fn field(&self, name: &str) -> Self {
        Self { source: self.source, field: self.field.field(name) }
    }

    fn entry(&self, index: usize) -> Self {
        Self { source: self.source, field: self.field.entry(index) }
    }

    fn fault(&self, message: impl Into<String>) -> Fault {
        let position = self.source.node.position_of(&self.field);
        Fault::new(self.field.clone(), message).in_file(&self.source.file).at(position)
    }

    /// Tells a fault of what the field means, unless its very shape is wrong.
    fn tell(&self, message: impl Into<String>, faults: &mut Faults) {
        if !self.source.faults.cover(&self.field) {
            faults.push(self.fault(message));
        }
    }

    fn check_label_value(&self, value: &str, faults: &mut Faults) {
        let message = match value {
            "" => Some("is empty: leave the field out for none".to_owned()),
            _ => label::value_fault(value),
        };
        message.into_iter().for_each(|message| self.tell(message, faults));
    }

    /// The value that a text stands for, or `None` and a fault.
    fn parse<T: std::str::FromStr<Err: fmt::Display>>(&self, text: &str, faults: &mut Faults) -> Option<T> {
        text.parse().map_err(|error: T::Err| self.tell(error.to_string(), faults)).ok()
    }
}

/// Locations of all documents by name.
struct Locations<'a> {
    by_name: BTreeMap<&'a str, &'a Location>,
    extent: Extent,
}

impl<'a> Locations<'a> {
    fn of(sources: &'a [Sourced], extent: Extent, faults: &mut Faults) -> Self {
        let mut places: BTreeMap<&str, (Place<'_>, &Location)> = BTreeMap::new();
        for source in sources {
            for (name, location) in &source.document.locations {
                let place = Place { source, field: FieldPath::of("locations").field(name) };
                let Location { region, zone } = location;
                region.iter().for_each(|region| place.field("region").check_label_value(region, faults));
                zone.iter().for_each(|zone| place.field("zone").check_label_value(zone, faults));
                match places.get(name.as_str()) {
                    Some((first, _)) => place.tell(shared(&place, &format!("location {name}"), first), faults),
                    None => drop(places.insert(name, (place, location))),
                }
            }
        }
        let by_name = places.into_iter().map(|(name, (_, location))| (name, location)).collect();
        Self { by_name, extent }
    }
}

fn check_machine(
    entry: &MachineEntry,
    place: &Place<'_>,
    locations: &Locations<'_>,
    faults: &mut Faults,
) -> Option<Machine> {
    let MachineEntry { id, state, match_keys, location, region, instance_type, addresses, labels } = entry;
    let id = place.field("id").parse::<MachineId>(id, faults);
    let match_keys = check_match(match_keys, &place.field("match"), faults);
    let location = location.as_deref().and_then(|name| {
        let found = locations.by_name.get(name).copied();
        if found.is_none() && locations.extent == Extent::Whole {
            place.field("location").tell(unknown_location(name, locations), faults);
        }
        found
    });
    region.iter().for_each(|region| place.field("region").check_label_value(region, faults));
    instance_type.iter().for_each(|kind| place.field("instanceType").check_label_value(kind, faults));
    let written = addresses.len();
    let addresses: Vec<_> = addresses
        .iter()
        .enumerate()
        .filter_map(|(index, entry)| check_address(entry, &place.field("addresses").entry(index), faults))
        .collect();
    check_labels(labels, &place.field("labels"), faults);
    let inherited = location.and_then(|location| location.region.clone());
    Some(Machine {
        id: id?,
        state: *state,
        match_keys: match_keys?,
        addresses: (addresses.len() == written).then_some(addresses)?,
        region: region.clone().or(inherited).or_else(|| place.source.document.defaults.region.clone()),
        zone: location.and_then(|location| location.zone.clone()),
        instance_type: instance_type.clone(),
        labels: labels.clone(),
    })
}

fn check_match(entry: &MatchEntry, place: &Place<'_>, faults: &mut Faults) -> Option<MatchKeys> {
    let MatchEntry { node_name, system_uuid } = entry;
    let before = faults.len();
    let node_name = node_name.as_deref().and_then(|name| place.field("nodeName").parse::<NodeName>(name, faults));
    let place = place.field("systemUUID");
    let system_uuid = system_uuid.as_deref().and_then(|uuid| place.parse::<SystemUuid>(uuid, faults));
    if let Some(uuid) = system_uuid
        && uuid.is_placeholder()
    {
        place.tell(format!("{uuid} is a placeholder that many boards share: leave the field out"), faults);
    }
    (faults.len() == before).then_some(MatchKeys { node_name, system_uuid })
}

fn unknown_location(name: &str, locations: &Locations<'_>) -> String {
    let known: Vec<_> = locations.by_name.keys().copied().collect();
    match crate::config::nearest::nearest(name, known.iter().copied()) {
        Some(near) => format!("{name:?} is not among the locations: did you mean {near}?"),
        None if known.is_empty() => format!("{name:?} is not among the locations: write it under locations first"),
        None => format!("{name:?} is not among the locations: they are {}", known.join(", ")),
    }
}

fn check_address(entry: &AddressEntry, place: &Place<'_>, faults: &mut Faults) -> Option<MachineAddress> {
    let AddressEntry { kind, address } = entry;
    let place = place.field("address");
    let mut ip = || check_ip(address, &place, faults);
    match kind {
        AddressKind::InternalIp => ip().map(MachineAddress::InternalIp),
        AddressKind::ExternalIp => ip().map(MachineAddress::ExternalIp),
        AddressKind::Hostname => check_host(address, &place, faults).map(MachineAddress::Hostname),
        AddressKind::InternalDns => check_host(address, &place, faults).map(MachineAddress::InternalDns),
        AddressKind::ExternalDns => check_host(address, &place, faults).map(MachineAddress::ExternalDns),
    }
}

fn check_ip(text: &str, place: &Place<'_>, faults: &mut Faults) -> Option<IpAddr> {
    let Ok(ip) = text.parse::<IpAddr>() else {
        let hint = match text.split_once('/') {
            Some((bare, _)) if bare.parse::<IpAddr>().is_ok() => format!("{bare}, without a length"),
            _ => "an IP address such as 10.0.12.20 or fd00:12::20".to_owned(),
        };
        place.tell(format!("{text:?} is not an IP address: it takes {hint}"), faults);
        return None;
    };
    let what = match ip {
        _ if ip.is_unspecified() => "the unspecified address",
        _ if ip.is_loopback() => "a loopback address",
        _ if ip.is_multicast() => "a multicast address",
        IpAddr::V6(v6) if v6.is_unicast_link_local() => "a link-local address",
        _ => return Some(ip),
    };
    place.tell(format!("{ip} is {what}: it takes one that other machines can reach"), faults);
    None
}

/// A host or domain name: the same form as a Node's name (RFC 1123).
fn check_host(text: &str, place: &Place<'_>, faults: &mut Faults) -> Option<String> {
    place.parse::<NodeName>(text, faults).map(|_| text.to_owned())
}

fn check_labels(labels: &BTreeMap<String, String>, place: &Place<'_>, faults: &mut Faults) {
    for (key, value) in labels {
        let message = label::key_fault(key).or_else(|| label::value_fault(value)).or_else(|| {
            label::is_reserved(key)
                .then(|| format!("{key} is for Kubernetes to set: it takes keys outside kubernetes.io and k8s.io"))
        });
        message.into_iter().for_each(|message| place.field(key).tell(message, faults));
    }
}

/// Tells each value that two machines share and may not.
fn refuse_shared(sources: &[Sourced], faults: &mut Faults) {
    let mut taken: BTreeMap<Unique, Place<'_>> = BTreeMap::new();
    for source in sources {
        for (index, entry) in source.document.machines.iter().enumerate() {
            let place = Place { source, field: FieldPath::of("machines").entry(index) };
            for (value, place) in unique_values(entry, &place) {
                match taken.get(&value) {
                    Some(first) => place.tell(shared(&place, &value.to_string(), first), faults),
                    None => drop(taken.insert(value, place)),
                }
            }
        }
    }
}

fn shared(second: &Place<'_>, value: &str, first: &Place<'_>) -> String {
    let first = first.fault("");
    let place = match first.position {
        Some(position) if first.file.as_ref() == Some(&second.source.file) => {
            format!("{} in line {}", first.field, position.line)
        }
        _ => first.place(),
    };
    format!("{value} is already at {place}: each takes its own")
}

/// A value that only one machine may have.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Unique {
    Id(MachineId),
    NodeName(NodeName),
    /// In the lesser of its byte orders.
    Uuid(SystemUuid),
    InternalIp(IpAddr),
}

impl fmt::Display for Unique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "machine id {id}"),
            Self::NodeName(name) => write!(f, "node name {name}"),
            Self::Uuid(uuid) => write!(f, "system UUID {uuid}, in one byte order or the other,"),
            Self::InternalIp(ip) => write!(f, "internal address {ip}"),
        }
    }
}

/// The unique values of a machine; what does not parse is told elsewhere.
fn unique_values<'a>(entry: &MachineEntry, place: &Place<'a>) -> Vec<(Unique, Place<'a>)> {
    let MatchEntry { node_name, system_uuid } = &entry.match_keys;
    let keys = place.field("match");
    let id = entry.id.parse().ok().map(|id| (Unique::Id(id), place.field("id")));
    let name = node_name.as_deref().and_then(|name| name.parse().ok());
    let name = name.map(|name| (Unique::NodeName(name), keys.field("nodeName")));
    let uuid = system_uuid.as_deref().and_then(|uuid| uuid.parse::<SystemUuid>().ok());
    let uuid = uuid.map(|uuid| (Unique::Uuid(uuid.in_either_order()), keys.field("systemUUID")));
    let internal = |(index, entry): (usize, &AddressEntry)| {
        let ip = entry.address.parse().ok().filter(|_| entry.kind == AddressKind::InternalIp)?;
        Some((Unique::InternalIp(ip), place.field("addresses").entry(index).field("address")))
    };
    let addresses = entry.addresses.iter().enumerate().filter_map(internal);
    id.into_iter().chain(name).chain(uuid).chain(addresses).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::document::parse;
    use crate::inventory::MachineState;
    use crate::inventory::file::read;
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
            locations: {r1: {zone: hall-a}, r2: {zone: hall-b, region: edge}}
            machines:
            - id: a
              location: r1
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
                },
                addresses: vec![
                    MachineAddress::InternalIp("10.0.0.1".parse().expect("an address")),
                    MachineAddress::Hostname("n1".to_owned()),
                ],
                region: Some("lab".to_owned()),
                zone: Some("hall-a".to_owned()),
                instance_type: Some("m.small".to_owned()),
                labels: BTreeMap::from([("example.net/owner".to_owned(), "team-a".to_owned())]),
            }
        );
        let place = |id: &str| (machine(id).region, machine(id).zone);
        assert_eq!(place("b"), (Some("edge".to_owned()), Some("hall-b".to_owned())));
        assert_eq!(place("c"), (Some("own".to_owned()), Some("hall-b".to_owned())));
        assert_eq!(place("d"), (Some("lab".to_owned()), None));
        assert_eq!(machine("b").state, MachineState::Maintenance);
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
            (
                "machines: [{id: a, state: acitve}]",
                "i:3:27: machines[0].state: \"acitve\" is not a state: it takes planned, active, maintenance or decommissioned; did you mean active?",
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
                "i:3:60: machines[0].addresses[0].address: 127.0.0.1 is a loopback address: it takes one that other machines can reach",
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
                "machines: [{id: a, bmc: {}}]",
                "i:3:20: machines[0].bmc: is not a field: the fields here are addresses, id, instanceType, labels, location, match, region, state",
            ),
        ] {
            assert_eq!(merged(&[("i", text)]).map(|_| ()), Err(want.to_owned()), "{text}");
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
