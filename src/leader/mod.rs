//! Who leads: one controller of a cluster acts, the others wait.
//!
//! [`election`] decides, [`lease`] speaks to the API server. The Lease, its name and its times are
//! those of Kubernetes' own cloud-controller-manager, so that the two never act at the same time.
//! A process that has lost its Lease never leads again: it ends, and its successor starts afresh.
//!
//! It never looks at a wall clock, and never deletes a Lease.

pub mod election;
pub mod lease;

pub use election::Timing;
pub use lease::{End, Leadership, LeaseConfig, hold, identity};
