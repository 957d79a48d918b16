//! Why an address is not shared, and why one is kept.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::model::intents::PortProtocol;
use crate::model::names::{PoolName, ServiceKey};

/// Why two Services do not share an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "refusal")]
pub enum ShareRefusal {
    /// They do not both say that they share, by the same key.
    NoCommonKey,
    /// Both have a port.
    PortTaken {
        /// Its protocol.
        protocol: PortProtocol,
        /// Its number.
        port: u16,
    },
    /// One wants traffic to stay on the node where it comes in, the other does not.
    PoliciesDiffer,
    /// Both want traffic to stay on the node, and do not select the same pods.
    SelectorsDiffer,
}

/// Why a Service would not be given the address it has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kept")]
pub enum KeptReason {
    /// No pool has it.
    InNoPool,
    /// A pool had it, and no longer gives it.
    NoLongerGiven {
        /// The pool.
        pool: PoolName,
    },
    /// Its pool does not serve the Service any more.
    NotServed {
        /// The pool.
        pool: PoolName,
    },
    /// It is kept for another Service.
    ReservedFor {
        /// The pool.
        pool: PoolName,
        /// That Service.
        service: ServiceKey,
    },
    /// Another address is kept for the Service.
    ReservedOther {
        /// That address.
        other: IpAddr,
    },
    /// The Service asks for another pool, which has none for it.
    OutsidePool {
        /// The pool it asks for.
        pool: PoolName,
    },
}

impl fmt::Display for ShareRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommonKey => {
                f.write_str("services share an address only with the same cairn.dev/allow-shared-ip on both")
            }
            Self::PortTaken { protocol, port } => write!(f, "both have port {port}/{protocol}"),
            Self::PoliciesDiffer => f.write_str("their spec.externalTrafficPolicy differs"),
            Self::SelectorsDiffer => f.write_str(
                "with externalTrafficPolicy Local a node serves an address only with pods of its own, and these services do not select the same pods",
            ),
        }
    }
}

impl fmt::Display for KeptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InNoPool => f.write_str("no AddressPool has it"),
            Self::NoLongerGiven { pool } => write!(f, "AddressPool {pool} no longer gives it"),
            Self::NotServed { pool } => write!(f, "AddressPool {pool} does not serve this service any more"),
            Self::ReservedFor { pool, service } => write!(f, "AddressPool {pool} reserves it for service {service}"),
            Self::ReservedOther { other } => write!(f, "{other} is reserved for this service"),
            Self::OutsidePool { pool } => write!(f, "the service asks for AddressPool {pool}"),
        }
    }
}
