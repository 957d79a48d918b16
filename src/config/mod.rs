//! What people wrote, checked: raw (the file's shape) becomes validated, or every fault is told.
//!
//! A file goes through four steps, each of which reports all it finds: [`document`] (is it YAML?),
//! [`schema`] (are these the fields?), serde (`typed`: the raw Rust type), and the semantic check of the
//! thing itself ([`cloud`], [`pool`], [`advertisement`], [`peer`], and the inventory's own). Objects that come from the
//! API server enter at the last step. [`remark`] tells what is right and most likely not meant.
//!
//! Nothing here watches, waits or talks to a network; only [`source`] reads files.
//!
//! Invariants: a validated value needs no second look; a [`Fault`] is one sentence that names the
//! object, the field and what would be right; parsing never panics, whatever the text.

pub mod advertisement;
pub mod block;
pub mod cloud;
pub mod cluster_cidrs;
pub mod controllers;
pub mod document;
pub mod fault;
pub mod label;
pub mod last_good;
pub mod nearest;
pub mod node_cidrs;
pub mod object;
pub mod peer;
pub mod pool;
pub mod pool_view;
pub mod remark;
pub mod schema;
pub mod selector;
pub mod source;
#[cfg(test)]
mod metallb;
mod typed;

pub use advertisement::Advertisement;
pub use block::AddressBlock;
pub use cloud::CloudConfig;
pub use cluster_cidrs::cluster_cidrs;
pub use controllers::{Controller, Selection};
pub use fault::{Fault, Faults, FieldPath, Fields, Position};
pub use node_cidrs::{ClusterCidr, NodeCidrFlags, NodeCidrs};
pub use peer::Peer;
pub use pool::Pool;
pub use selector::Selector;
