//! A machine's BMC and fencing as the inventory has them, checked.
//!
//! Nothing here speaks to a BMC. Secrets are only ever referred to.

pub(super) mod check;
pub mod document;

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SystemUuid;

/// How a BMC is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bmc {
    /// How it is spoken to; never [`Protocol::None`].
    pub protocol: Protocol,
    /// Where it is: an `https` address for Redfish, an address or host name for IPMI.
    pub address: String,
    /// Which of its systems the machine is, where it has several.
    pub system_id: Option<String>,
    /// The system UUID it has to show before its power is touched.
    pub expected_uuid: Option<SystemUuid>,
    /// The serial number it has to show before its power is touched.
    pub expected_serial: Option<String>,
    /// Where user and password are.
    pub credentials: CredentialsRef,
    /// How its certificate is checked.
    pub tls: Tls,
    /// IPMI alone.
    pub ipmi: Ipmi,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long an answer may take.
    pub request_timeout: Duration,
    /// How often its power is read.
    pub poll: Duration,
}

/// How a BMC is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Protocol {
    /// Redfish, over HTTPS.
    Redfish,
    /// IPMI 2.0, RMCP+.
    Ipmi,
    /// Not at all.
    None,
}

/// Where user and password are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum CredentialsRef {
    /// In a Secret.
    Secret {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// In a folder.
    File(PathBuf),
    /// In environment variables with this prefix.
    Environment(String),
}

/// How a certificate is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Tls {
    /// Against authorities: those of the file, else the system's.
    Verify {
        /// Certificates of authorities, PEM.
        ca_file: Option<PathBuf>,
    },
    /// It is this very certificate, by its SHA-256 in lower-case hexadecimal digits.
    Pinned {
        /// The digest.
        sha256: String,
    },
    /// Not at all.
    Insecure,
}

/// How IPMI is spoken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ipmi {
    /// RMCP+ cipher suites in the order they are tried.
    pub cipher_suites: Vec<u8>,
    /// The privilege that is asked for.
    pub role: Role,
    /// Where the key K_G is, if it has one.
    pub kg: Option<CredentialsRef>,
    /// Its UDP port.
    pub port: u16,
}

/// A privilege level of IPMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// May read.
    User,
    /// May switch the power.
    #[default]
    Operator,
    /// May do everything.
    Administrator,
}

/// Whether and how a machine may be fenced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fencing {
    /// Whether it may be.
    pub is_enabled: bool,
    /// Machines of one group are not fenced at the same time.
    pub group: Option<String>,
    /// How many readings in a row have to say off.
    pub confirm_reads: u8,
    /// How long lies between them.
    pub confirm_interval: Duration,
    /// How long it may take until it is off.
    pub off_deadline: Duration,
    /// What follows.
    pub after: AfterFencing,
}

impl Default for Fencing {
    fn default() -> Self {
        Self {
            is_enabled: false,
            group: None,
            confirm_reads: 2,
            confirm_interval: Duration::from_secs(5),
            off_deadline: Duration::from_secs(90),
            after: AfterFencing::StayOff,
        }
    }
}

/// What follows when a machine was fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AfterFencing {
    /// It stays off.
    #[default]
    StayOff,
    /// It is switched on when its workloads have moved.
    PowerOn,
}
