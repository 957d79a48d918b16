//! Who leads: one controller of a cluster acts, the others wait.
//!
//! [`election`] decides and [`lease`] speaks to the API server; [`timing`] holds the times and
//! [`record`] what is written. The Lease, its name and its times are those of Kubernetes' own
//! cloud-controller-manager, so that the two never act at the same time. A process that has lost its
//! Lease never leads again: it ends, and its successor starts afresh.
//!
//! With leader migration ([`migration`]) some controllers run under a second Lease, which is stood
//! for only while the first is held.
//!
//! It never looks at a wall clock to decide, and never deletes a Lease.
//!
//! Invariant: at no time may two holders of one Lease begin a write ([`Leadership::permits`]).

pub mod election;
pub mod lease;
pub mod metrics;
pub mod migration;
pub mod others;
pub mod record;
mod sight;
#[cfg(test)]
mod simulation;
pub mod timing;

/// Source of the Events about Leases: what runs for one.
pub const REPORTER: &str = "cloud-controller-manager";

pub use crate::model::Leadership;
pub use lease::{End, LeaseConfig, hold, identity};
pub use metrics::Metrics;
pub use migration::{Migration, Placement};
pub use timing::{Timing, TimingFault};
