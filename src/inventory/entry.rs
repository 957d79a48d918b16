//! Whether what was typed of one machine can be right.

use std::net::IpAddr;

use k8s_openapi::jiff::Timestamp;

use super::bmc::Fencing;
use super::bmc::check::{check_bmc, check_fencing};
use super::bmc::document::BmcDefaults;
use super::document::{AddressEntry, Extent, Location, MachineEntry, MaintenanceEntry, MatchEntry, TaintEntry};
use super::instance_type::InstanceTypes;
use super::label::{check_annotations, check_labels};
use super::location::Locations;
use super::machine::Place;
use super::place::FieldPlace;
use super::{MacAddress, Machine, MachineAddress, MachineState, Maintenance, MatchKeys, SystemUuid};
use crate::config::block::what_is_special;
use crate::config::{Faults, label};
use crate::model::views::NodeAddressKind;
use crate::model::views::Taint;
use crate::model::{MachineId, NodeName, ProviderId};

/// What the machines of a document inherit.
pub(super) struct Inherited<'a> {
    pub(super) locations: &'a Locations<'a>,
    pub(super) types: &'a InstanceTypes,
    pub(super) region: Option<&'a str>,
    pub(super) bmc: BmcDefaults,
    pub(super) fencing: Fencing,
}

/// The machine, unless something of it is wrong.
pub(super) fn check_machine(
    entry: &MachineEntry,
    place: &FieldPlace<'_>,
    inherited: &Inherited<'_>,
    faults: &mut Faults,
) -> Option<Machine> {
    let before = faults.len();
    let id = place.field("id").parse::<MachineId>(&entry.id, faults);
    let match_keys = check_match(&entry.match_keys, &place.field("match"), faults);
    let location = entry.location.as_deref();
    let location = location.and_then(|name| find_location(name, inherited.locations, &place.field("location"), faults));
    entry.region.iter().for_each(|region| place.field("region").check_label_value(region, faults));
    entry.instance_type.iter().for_each(|kind| place.field("instanceType").check_label_value(kind, faults));
    let addresses = entry.addresses.iter().enumerate();
    let addresses: Vec<_> = addresses
        .filter_map(|(index, entry)| check_address(entry, &place.field("addresses").entry(index), faults))
        .collect();
    check_labels(&entry.labels, &place.field("labels"), faults);
    check_annotations(&entry.annotations, &place.field("annotations"), faults);
    let taints = check_taints(&entry.taints, &place.field("taints"), faults);
    let maintenance = check_maintenance(entry.maintenance.as_deref(), entry.state, place, faults);
    let bmc = entry.bmc.as_ref();
    let bmc = bmc.and_then(|bmc| check_bmc(bmc, &inherited.bmc, match_keys.system_uuid, &place.field("bmc"), faults));
    let fencing_entry = entry.fencing.as_deref().cloned().unwrap_or_default();
    let fencing = check_fencing(&fencing_entry, &inherited.fencing, &place.field("fencing"), faults);
    if fencing_entry.enabled == Some(true) && entry.bmc.is_none() {
        place.field("fencing").tell("is enabled, but there is no bmc that could switch the machine off", faults);
    }
    let (instance_type, type_labels) = inherited.types.of_machine(entry);
    let labels = type_labels.into_iter().chain(entry.labels.clone()).collect();
    let region = location.and_then(|location| location.region.as_deref()).or(inherited.region);
    let machine = Machine {
        id: id?,
        state: entry.state,
        maintenance,
        match_keys,
        addresses,
        region: entry.region.as_deref().or(region).map(ToOwned::to_owned),
        zone: location.and_then(|location| location.zone.clone()),
        place: place_of(location, entry.unit),
        instance_type,
        labels,
        annotations: entry.annotations.clone(),
        taints,
        bmc: bmc.map(Box::new),
        fencing,
    };
    (faults.len() == before).then_some(machine)
}

fn place_of(location: Option<&Location>, unit: Option<u8>) -> Place {
    let Location { region: _, zone: _, room, row, rack, power_feeds } = location.cloned().unwrap_or_default();
    Place { room, row, rack, unit, power_feeds }
}

fn find_location<'a>(
    name: &str,
    locations: &Locations<'a>,
    place: &FieldPlace<'_>,
    faults: &mut Faults,
) -> Option<&'a Location> {
    let found = locations.by_name.get(name).copied();
    if found.is_none() && locations.extent == Extent::Whole {
        place.tell(unknown_location(name, locations), faults);
    }
    found
}

fn unknown_location(name: &str, locations: &Locations<'_>) -> String {
    // Thousands of machines may say something wrong, and there may be thousands of locations.
    const MOST_TOLD: usize = 20;
    let known = || locations.by_name.keys().copied();
    if let Some(near) = crate::config::nearest::nearest(name, known()) {
        return format!("{name:?} is not among the locations: did you mean {near}?");
    }
    let first = known().take(MOST_TOLD).collect::<Vec<_>>().join(", ");
    match locations.by_name.len().saturating_sub(MOST_TOLD) {
        _ if first.is_empty() => format!("{name:?} is not among the locations: write it under locations first"),
        0 => format!("{name:?} is not among the locations: they are {first}"),
        more => format!("{name:?} is not among the locations: they are {first} and {more} more"),
    }
}

fn check_match(entry: &MatchEntry, place: &FieldPlace<'_>, faults: &mut Faults) -> MatchKeys {
    let MatchEntry { node_name, system_uuid, serials, macs, provider_id } = entry;
    let node_name = node_name.as_deref().and_then(|name| place.field("nodeName").parse::<NodeName>(name, faults));
    for (index, serial) in serials.iter().enumerate() {
        if serial.trim().is_empty() || serial.trim() != serial {
            place
                .field("serials")
                .entry(index)
                .tell("is empty or has spaces around it: it takes the number alone", faults);
        }
    }
    let macs = macs.iter().enumerate();
    let macs = macs.filter_map(|(index, mac)| place.field("macs").entry(index).parse::<MacAddress>(mac, faults));
    let macs = macs.collect();
    if let Some(text) = provider_id {
        check_foreign(text, &place.field("providerID"), faults);
    }
    let uuid_place = place.field("systemUUID");
    let system_uuid = system_uuid.as_deref().and_then(|uuid| uuid_place.parse::<SystemUuid>(uuid, faults));
    if let Some(uuid) = system_uuid.filter(|uuid| uuid.is_placeholder()) {
        uuid_place.tell(format!("{uuid} is a placeholder that many boards share: leave the field out"), faults);
    }
    MatchKeys { node_name, system_uuid, serials: serials.clone(), macs, provider_id: provider_id.clone() }
}

/// Another provider's ID, such as `lab://n1`.
fn check_foreign(text: &str, place: &FieldPlace<'_>, faults: &mut Faults) {
    if text.starts_with(ProviderId::SCHEME) {
        place.tell(format!("{text:?} is an ID of this provider, which follows from id: leave the field out"), faults);
    } else if text.is_empty() || text.chars().any(char::is_whitespace) {
        place.tell(
            format!("{text:?} is not a provider ID: it takes spec.providerID of the Node, such as other://n1"),
            faults,
        );
    }
}

fn check_address(entry: &AddressEntry, place: &FieldPlace<'_>, faults: &mut Faults) -> Option<MachineAddress> {
    let AddressEntry { kind, address } = entry;
    let place = place.field("address");
    let mut ip = || check_ip(address, &place, faults);
    match kind {
        NodeAddressKind::InternalIp => ip().map(MachineAddress::InternalIp),
        NodeAddressKind::ExternalIp => ip().map(MachineAddress::ExternalIp),
        NodeAddressKind::Hostname => check_host(address, &place, faults).map(MachineAddress::Hostname),
        NodeAddressKind::InternalDns => check_host(address, &place, faults).map(MachineAddress::InternalDns),
        NodeAddressKind::ExternalDns => check_host(address, &place, faults).map(MachineAddress::ExternalDns),
    }
}

fn check_ip(text: &str, place: &FieldPlace<'_>, faults: &mut Faults) -> Option<IpAddr> {
    let Ok(ip) = text.parse::<IpAddr>() else {
        let hint = match text.split_once('/') {
            Some((bare, _)) if bare.parse::<IpAddr>().is_ok() => format!("{bare}, without a length"),
            _ => "an IP address such as 10.0.12.20 or fd00:12::20".to_owned(),
        };
        place.tell(format!("{text:?} is not an IP address: it takes {hint}"), faults);
        return None;
    };
    let Some(what) = what_is_special(ip) else { return Some(ip) };
    let takes = match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map(|v4| format!("the IPv4 address itself, {v4}")),
        IpAddr::V4(_) => None,
    };
    let takes = takes.unwrap_or_else(|| "one that other machines can reach".to_owned());
    place.tell(format!("{ip} is {what}, which routers do not carry: it takes {takes}"), faults);
    None
}

/// A host or domain name: the same form as a Node's name (RFC 1123).
fn check_host(text: &str, place: &FieldPlace<'_>, faults: &mut Faults) -> Option<String> {
    place.parse::<NodeName>(text, faults).map(|_| text.to_owned())
}

/// Prefixes of taints that come and go with what controllers see.
const TAINTS_OF_CONTROLLERS: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

fn check_taints(entries: &[TaintEntry], place: &FieldPlace<'_>, faults: &mut Faults) -> Vec<Taint> {
    let mut taints: Vec<Taint> = Vec::new();
    for (index, TaintEntry { key, value, effect }) in entries.iter().enumerate() {
        let place = place.entry(index);
        let is_of_controller = TAINTS_OF_CONTROLLERS.iter().any(|prefix| key.starts_with(prefix));
        let is_there = taints.iter().any(|taint| taint.key == *key && taint.effect == effect.as_str());
        if let Some(message) = label::key_fault(key) {
            place.field("key").tell(message.replace("a label", "a taint"), faults);
        } else if is_of_controller {
            place
                .field("key")
                .tell(format!("{key} comes and goes with what controllers see: it takes another key"), faults);
        } else if is_there {
            place.field("key").tell(format!("{key} with effect {} is there twice: leave one", effect.as_str()), faults);
        }
        if let Some(message) = value.as_deref().and_then(label::value_fault) {
            place.field("value").tell(message.replace("a label", "a taint"), faults);
        }
        let value = value.clone().filter(|value| !value.is_empty());
        taints.push(Taint { key: key.clone(), value, effect: effect.as_str().to_owned(), time_added: None });
    }
    taints
}

fn check_maintenance(
    entry: Option<&MaintenanceEntry>,
    state: MachineState,
    place: &FieldPlace<'_>,
    faults: &mut Faults,
) -> Maintenance {
    let MaintenanceEntry { reason, until, allow_fencing } = entry.cloned().unwrap_or_default();
    let is_state_known = place.field("state").is_readable();
    let place = place.field("maintenance");
    let reason = reason.filter(|reason| !reason.is_empty());
    if let Some(text) = until.as_deref()
        && text.parse::<Timestamp>().is_err()
    {
        place.field("until").tell(format!("{text:?} is not a time: it takes the form 2027-01-31T18:00:00Z"), faults);
    }
    if is_state_known && state != MachineState::Maintenance && (reason.is_some() || until.is_some()) {
        place.tell(format!("says something, but state is {state}: set it to maintenance, or leave this out"), faults);
    }
    Maintenance { reason, until, allows_fencing: allow_fencing }
}
