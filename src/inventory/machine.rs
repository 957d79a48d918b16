//! A machine as the inventory knows it, checked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SystemUuid;
use crate::model::{MachineId, NodeName, ProviderId};

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its id, which never changes.
    pub id: MachineId,
    /// Where it is in its life.
    pub state: MachineState,
    /// How its Node is found.
    pub match_keys: MatchKeys,
    /// Its addresses in the order they were written; empty leaves them to the kubelet.
    pub addresses: Vec<MachineAddress>,
    /// `topology.kubernetes.io/region`: its own, else its location's, else the file's default.
    pub region: Option<String>,
    /// `topology.kubernetes.io/zone`, from its location.
    pub zone: Option<String>,
    /// `node.kubernetes.io/instance-type`.
    pub instance_type: Option<String>,
    /// Labels its Node gets besides those.
    pub labels: BTreeMap<String, String>,
}

impl Machine {
    /// The provider ID of its Node.
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

/// Where a machine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MachineState {
    /// Not yet in service: a Node that matches it is left uninitialized.
    Planned,
    /// In service.
    #[default]
    Active,
    /// In service, and nobody may conclude anything from its silence.
    Maintenance,
    /// Gone for good: the one state in which its Node may be deleted.
    Decommissioned,
}

impl fmt::Display for MachineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Planned => "planned",
            Self::Active => "active",
            Self::Maintenance => "maintenance",
            Self::Decommissioned => "decommissioned",
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
