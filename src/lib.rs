//! Cairn: the cloud provider for Kubernetes clusters that have no cloud.
//!
//! The modules in reading order; ARCHITECTURE.md draws how they may know each other.

pub mod model;
pub mod api;
pub mod config;
pub mod inventory;
pub mod cluster;
pub mod leader;
pub mod telemetry;
pub mod node;
pub mod machine;
pub mod lifecycle;
pub mod ipam;
pub mod service;
pub mod advertisement;
pub mod peer;
pub mod route;
pub mod controller;
pub mod bgp;
pub mod kernel;
pub mod agent;
pub mod cli;
