//! What people and machines see of a running Cairn: the log, and its ports.
//!
//! [`http`] is the agent's port, on loopback and open. [`secure`] is the controller's: TLS, with
//! [`certificate`]s that may change, [`access`] for those whom the API server knows and lets,
//! [`health`] for probes. Each room keeps its own metrics struct; the wiring registers it. Nothing
//! here knows a room.

pub mod access;
pub mod build;
pub mod certificate;
pub mod health;
pub mod http;
pub mod log;
pub mod metrics;
pub mod secure;
pub mod tls;
