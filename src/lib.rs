//! Cairn: the cloud provider for Kubernetes clusters that have no cloud.
//!
//! The modules in reading order; ARCHITECTURE.md draws how they may know each other.

pub mod api;
pub mod cluster;
pub mod kernel;
pub mod model;
