//! A machine's BMC and fencing as people type them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{AfterFencing, Protocol, Role};

/// A BMC as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BmcEntry {
    /// How it is spoken to.
    pub protocol: Option<Protocol>,
    /// Where it is: `https://10.9.12.20` for Redfish, `10.9.12.20` for IPMI.
    pub address: Option<String>,
    /// Which of its systems the machine is, where it has several (Redfish).
    pub system_id: Option<String>,
    /// What it has to say of itself before its power is touched.
    pub identity: Option<IdentityEntry>,
    /// Where user and password are; never the password itself.
    pub credentials_ref: Option<CredentialsEntry>,
    /// How its certificate is checked (Redfish).
    pub tls: Option<TlsEntry>,
    /// IPMI alone.
    pub ipmi: Option<IpmiEntry>,
    /// How long to wait for it.
    pub timeouts: Option<TimeoutsEntry>,
    /// How often its power is read, such as `60s`.
    pub poll: Option<String>,
}

/// What BMCs have in common, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BmcDefaults {
    /// How they are spoken to.
    pub protocol: Option<Protocol>,
    /// Where user and password are; never the password itself.
    pub credentials_ref: Option<CredentialsEntry>,
    /// How their certificates are checked (Redfish).
    pub tls: Option<TlsEntry>,
    /// IPMI alone.
    pub ipmi: Option<IpmiEntry>,
    /// How long to wait for them.
    pub timeouts: Option<TimeoutsEntry>,
    /// How often their power is read, such as `60s`.
    pub poll: Option<String>,
}

/// What a BMC has to say of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdentityEntry {
    /// A system UUID, or `same` for that of `match`.
    #[serde(rename = "systemUUID")]
    pub system_uuid: Option<String>,
    /// A serial number.
    pub serial: Option<String>,
}

/// Where user and password are: one of a Secret, a file and environment variables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialsEntry {
    /// A Secret with the keys `username` and `password`.
    pub secret: Option<String>,
    /// The Secret's namespace; kube-system without it.
    pub namespace: Option<String>,
    /// A folder with the files `username` and `password`, as a Secret is mounted.
    pub file: Option<PathBuf>,
    /// Environment variables with this prefix, followed by `_USERNAME` and `_PASSWORD`.
    pub env: Option<String>,
}

/// How a certificate is checked, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsEntry {
    /// The way.
    pub mode: TlsMode,
    /// Certificates of authorities, PEM, for `verify`.
    pub ca_file: Option<PathBuf>,
    /// SHA-256 of the certificate, for `pinned`.
    pub sha256: Option<String>,
}

/// How a certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TlsMode {
    /// Against authorities, name included.
    #[default]
    Verify,
    /// It is this very certificate.
    Pinned,
    /// Not at all.
    Insecure,
}

/// IPMI alone, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpmiEntry {
    /// RMCP+ cipher suites in the order they are tried.
    #[schemars(inner(range(min = 1, max = 17)))]
    pub cipher_suites: Option<Vec<u8>>,
    /// The privilege that is asked for.
    pub role: Option<Role>,
    /// Where the BMC key K_G is, if it has one.
    pub kg_ref: Option<CredentialsEntry>,
    /// Its UDP port.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
}

/// How long to wait for a BMC, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeoutsEntry {
    /// For a connection, such as `5s`.
    pub connect: Option<String>,
    /// For an answer, such as `20s`.
    pub request: Option<String>,
}

/// Whether and how a machine may be fenced, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FencingEntry {
    /// Whether it may be.
    pub enabled: Option<bool>,
    /// Machines that are not fenced at the same time.
    pub group: Option<String>,
    /// How many readings in a row have to say off.
    #[schemars(range(min = 2, max = 10))]
    pub confirm_reads: Option<u8>,
    /// How long lies between them, such as `5s`.
    pub confirm_interval: Option<String>,
    /// How long it may take until it is off, such as `90s`.
    pub off_deadline: Option<String>,
    /// What follows.
    pub after: Option<AfterFencing>,
}

/// How machines are fenced, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FencingDefaults {
    /// Whether they may be.
    pub enabled: Option<bool>,
    /// How many readings in a row have to say off.
    #[schemars(range(min = 2, max = 10))]
    pub confirm_reads: Option<u8>,
    /// How long lies between them, such as `5s`.
    pub confirm_interval: Option<String>,
    /// How long it may take until it is off, such as `90s`.
    pub off_deadline: Option<String>,
    /// What follows.
    pub after: Option<AfterFencing>,
}
