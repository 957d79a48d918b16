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
    let mut taken: BTreeMap<Unique, FieldPlace<'_>> = BTreeMap::new();
    for source in sources {
        for (index, entry) in source.document.machines.iter().enumerate() {
            let place = FieldPlace { source, field: FieldPath::of("machines").entry(index) };
            for (value, place) in unique_values(entry, &place) {
                match taken.get(&value) {
                    Some(first) => place.tell_shared(&value, first, faults),
                    None => drop(taken.insert(value, place)),
                }
            }
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
fn unique_values<'a>(entry: &MachineEntry, place: &FieldPlace<'a>) -> Vec<(Unique, FieldPlace<'a>)> {
    let MatchEntry { node_name, system_uuid, serials, macs, provider_id } = &entry.match_keys;
    let keys = place.field("match");
    let mut values = Vec::new();
    values.extend(entry.id.parse().ok().map(|id| (Unique::Id(id), place.field("id"))));
    let name = node_name.as_deref().and_then(|name| name.parse().ok());
    values.extend(name.map(|name| (Unique::NodeName(name), keys.field("nodeName"))));
    let uuid = system_uuid.as_deref().and_then(|uuid| uuid.parse::<SystemUuid>().ok());
    values.extend(uuid.map(|uuid| (Unique::Uuid(uuid.in_either_order()), keys.field("systemUUID"))));
    values.extend(serials.iter().enumerate().map(|(index, serial)| {
        let place = keys.field("serials").entry(index);
        (Unique::Serial(serial.clone()), place)
    }));
    values.extend(macs.iter().enumerate().filter_map(|(index, mac)| {
        let place = keys.field("macs").entry(index);
        Some((Unique::Mac(mac.parse().ok()?), place))
    }));
    values.extend(provider_id.iter().map(|id| (Unique::ProviderId(id.clone()), keys.field("providerID"))));
    values.extend(entry.addresses.iter().enumerate().filter_map(|(index, entry)| {
        let AddressEntry { kind, address } = entry;
        let ip = address.parse().ok().filter(|_| *kind == NodeAddressKind::InternalIp)?;
        Some((Unique::InternalIp(ip), place.field("addresses").entry(index).field("address")))
    }));
    values.extend(entry.bmc.iter().filter_map(|bmc| {
        let address = bmc.address.as_deref()?.trim_end_matches('/').to_ascii_lowercase();
        Some((Unique::Bmc(address, bmc.system_id.clone()), place.field("bmc").field("address")))
    }));
    values
}
