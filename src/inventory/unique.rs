//! Values that only one machine may have.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::document::{AddressEntry, MachineEntry, MatchEntry, Sourced};
use super::place::FieldPlace;
use super::{MacAddress, SystemUuid};
use crate::config::{Faults, FieldPath};
use crate::model::views::NodeAddressKind;
use crate::model::{MachineId, NodeName};

/// Tells each value that two machines share and may not.
pub(super) fn refuse_shared(sources: &[Sourced], faults: &mut Faults) {
    // Which machine has it, and where in its entry: ways of fields are made of what is told only.
    let mut taken: BTreeMap<Unique, (Entry<'_>, Spot)> = BTreeMap::new();
    for source in sources {
        for (index, machine) in source.document.machines.iter().enumerate() {
            let entry = Entry { source, index };
            for (value, spot) in unique_values(machine) {
                match taken.get(&value) {
                    Some((first, first_spot)) => {
                        entry.place(spot).tell_shared(&value, &first.place(*first_spot), faults);
                    }
                    None => drop(taken.insert(value, (entry, spot))),
                }
            }
        }
    }
}

/// A machine's entry in a document.
#[derive(Clone, Copy)]
struct Entry<'a> {
    source: &'a Sourced,
    index: usize,
}

/// Where in a machine's entry a value stands.
#[derive(Clone, Copy)]
enum Spot {
    Id,
    Key(&'static str),
    KeyEntry(&'static str, usize),
    Address(usize),
    Bmc,
}

impl<'a> Entry<'a> {
    fn place(self, spot: Spot) -> FieldPlace<'a> {
        let place = FieldPlace { source: self.source, field: FieldPath::of("machines").entry(self.index) };
        match spot {
            Spot::Id => place.field("id"),
            Spot::Key(name) => place.field("match").field(name),
            Spot::KeyEntry(name, index) => place.field("match").field(name).entry(index),
            Spot::Address(index) => place.field("addresses").entry(index).field("address"),
            Spot::Bmc => place.field("bmc").field("address"),
        }
    }
}

/// A value that only one machine may have.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Unique {
    Id(MachineId),
    NodeName(NodeName),
    /// In the lesser of its byte orders.
    Uuid(SystemUuid),
    Serial(String),
    Mac(MacAddress),
    ProviderId(String),
    InternalIp(IpAddr),
    /// A BMC, and which of its systems.
    Bmc(String, Option<String>),
}

impl fmt::Display for Unique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "machine id {id}"),
            Self::NodeName(name) => write!(f, "node name {name}"),
            Self::Uuid(uuid) => write!(f, "system UUID {uuid}, in one byte order or the other,"),
            Self::Serial(serial) => write!(f, "serial number {serial}"),
            Self::Mac(mac) => write!(f, "MAC address {mac}"),
            Self::ProviderId(id) => write!(f, "provider ID {id}"),
            Self::InternalIp(ip) => write!(f, "internal address {ip}"),
            Self::Bmc(address, None) => write!(f, "BMC {address}"),
            Self::Bmc(address, Some(system)) => write!(f, "system {system} of BMC {address}"),
        }
    }
}

/// The unique values of a machine; what does not parse is told elsewhere.
fn unique_values(entry: &MachineEntry) -> Vec<(Unique, Spot)> {
    let MatchEntry { node_name, system_uuid, serials, macs, provider_id } = &entry.match_keys;
    let mut values = Vec::new();
    values.extend(entry.id.parse().ok().map(|id| (Unique::Id(id), Spot::Id)));
    let name = node_name.as_deref().and_then(|name| name.parse().ok());
    values.extend(name.map(|name| (Unique::NodeName(name), Spot::Key("nodeName"))));
    let uuid = system_uuid.as_deref().and_then(|uuid| uuid.parse::<SystemUuid>().ok());
    values.extend(uuid.map(|uuid| (Unique::Uuid(uuid.in_either_order()), Spot::Key("systemUUID"))));
    let serials = serials.iter().enumerate();
    values.extend(serials.map(|(index, serial)| (Unique::Serial(serial.clone()), Spot::KeyEntry("serials", index))));
    let macs = macs.iter().enumerate();
    values
        .extend(macs.filter_map(|(index, mac)| Some((Unique::Mac(mac.parse().ok()?), Spot::KeyEntry("macs", index)))));
    values.extend(provider_id.iter().map(|id| (Unique::ProviderId(id.clone()), Spot::Key("providerID"))));
    values.extend(entry.addresses.iter().enumerate().filter_map(|(index, entry)| {
        let AddressEntry { kind, address } = entry;
        let ip = address.parse().ok().filter(|_| *kind == NodeAddressKind::InternalIp)?;
        Some((Unique::InternalIp(ip), Spot::Address(index)))
    }));
    values.extend(entry.bmc.iter().filter_map(|bmc| {
        let address = bmc.address.as_deref()?.trim_end_matches('/').to_ascii_lowercase();
        Some((Unique::Bmc(address, bmc.system_id.clone()), Spot::Bmc))
    }));
    values
}
