//! A machine as the inventory knows it, checked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::bmc::{Bmc, Fencing};
use super::{MacAddress, SystemUuid};
use crate::config::label;
use crate::model::views::Taint;
use crate::model::{MachineId, MachineState, NodeName, ProviderId};

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its id, which never changes.
    pub id: MachineId,
    /// Where it is in its life.
    pub state: MachineState,
    /// Why it is in maintenance, as far as the inventory says.
    pub maintenance: Maintenance,
    /// How its Node is found.
    pub match_keys: MatchKeys,
    /// Its addresses in the order they were written; empty leaves them to the kubelet.
    pub addresses: Vec<MachineAddress>,
    /// `topology.kubernetes.io/region`: its own, else its location's, else the file's default.
    pub region: Option<String>,
    /// `topology.kubernetes.io/zone`, from its location.
    pub zone: Option<String>,
    /// Where it stands.
    pub place: Place,
    /// `node.kubernetes.io/instance-type`: its own, else the first that fits, else made of its hardware.
    pub instance_type: Option<String>,
    /// Labels its Node gets besides those; none is reserved.
    pub labels: BTreeMap<String, String>,
    /// Annotations its Node gets when it is initialized.
    pub annotations: BTreeMap<String, String>,
    /// Taints its Node gets when it is initialized.
    pub taints: Vec<Taint>,
    /// Its BMC, if it has one that may be spoken to.
    pub bmc: Option<Box<Bmc>>,
    /// Whether and how it may be switched off when its Node is silent.
    pub fencing: Fencing,
}

/// Why a machine is in maintenance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Maintenance {
    /// Why, for people.
    pub reason: Option<String>,
    /// Until when it is planned, RFC 3339. It ends when the state says so, not by the clock.
    pub until: Option<String>,
    /// Whether it may be fenced all the same.
    pub allows_fencing: bool,
}

/// Where a machine stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Place {
    /// The room.
    pub room: Option<String>,
    /// The row of racks.
    pub row: Option<String>,
    /// The rack.
    pub rack: Option<String>,
    /// The lowest rack unit it takes.
    pub unit: Option<u8>,
    /// What it gets its power from.
    pub power_feeds: Vec<String>,
}

impl Machine {
    /// The provider ID of its Node, unless the Node has another provider's that the machine names.
    pub fn provider_id(&self) -> ProviderId {
        ProviderId::from(self.id.clone())
    }

    /// All its IP addresses in order.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().filter_map(|address| match address {
            MachineAddress::InternalIp(ip) | MachineAddress::ExternalIp(ip) => Some(*ip),
            _ => None,
        })
    }

    /// The labels of our own prefix; `None` for those that its Node should not have.
    pub fn own_labels(&self) -> BTreeMap<String, Option<String>> {
        let Place { room, row, rack, unit, power_feeds: _ } = &self.place;
        // Some serial numbers are no values of labels.
        let serial = self.match_keys.serials.first().filter(|serial| label::value_fault(serial).is_none());
        [
            ("cairn.dev/rack", rack.clone()),
            ("cairn.dev/room", room.clone()),
            ("cairn.dev/row", row.clone()),
            ("cairn.dev/serial", serial.cloned()),
            ("cairn.dev/unit", unit.map(|unit| unit.to_string())),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    /// Its internal IP addresses in order.
    pub fn internal_ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().filter_map(|address| match address {
            MachineAddress::InternalIp(ip) => Some(*ip),
            _ => None,
        })
    }

    /// Its host names in order.
    pub fn hostnames(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().filter_map(|address| match address {
            MachineAddress::Hostname(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

/// The keys by which a machine's Node is found; every key given has to agree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct MatchKeys {
    /// The name of its Node.
    pub node_name: Option<NodeName>,
    /// What its firmware says it is.
    pub system_uuid: Option<SystemUuid>,
    /// Serial numbers, for those who read a BMC.
    pub serials: Vec<String>,
    /// MAC addresses, for those who read a BMC.
    pub macs: Vec<MacAddress>,
    /// Another provider's ID that its Node has.
    pub provider_id: Option<String>,
}

/// An address of a machine, as `status.addresses` of its Node has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum MachineAddress {
    /// Its host name.
    Hostname(String),
    /// An address within the cluster's network.
    InternalIp(IpAddr),
    /// An address the world can reach.
    ExternalIp(IpAddr),
    /// A name within the cluster's network.
    InternalDns(String),
    /// A name the world can resolve.
    ExternalDns(String),
}

impl MachineAddress {
    /// `type` of the address in a Node's status, such as `InternalIP`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hostname(_) => "Hostname",
            Self::InternalIp(_) => "InternalIP",
            Self::ExternalIp(_) => "ExternalIP",
            Self::InternalDns(_) => "InternalDNS",
            Self::ExternalDns(_) => "ExternalDNS",
        }
    }
}

/// The address alone, as a Node's status has it.
impl fmt::Display for MachineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InternalIp(ip) | Self::ExternalIp(ip) => ip.fmt(f),
            Self::Hostname(name) | Self::InternalDns(name) | Self::ExternalDns(name) => f.write_str(name),
        }
    }
}
