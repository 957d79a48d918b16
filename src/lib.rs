//! Cairn: the cloud provider for Kubernetes clusters that have no cloud.
//!
//! The modules in reading order; ARCHITECTURE.md draws how they may know each other.

pub mod api;
pub mod cli;
pub mod config;
pub mod inventory;
pub mod model;
