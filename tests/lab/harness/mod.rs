//! The bench: a whole cluster with its network in the namespaces of one process.
//!
//! Invariants: everything of a lab hangs on one pid 1 (the test binary itself), which ends when the test that began it
//! ends, however that happens; what a lab writes lies in memory of its own mount namespace, only logs go to the
//! target folder. A lab never talks to the network of the machine.
//!
//! Start reading at [`lab`]; [`enclosure`] says how the namespaces come and go.

#![expect(dead_code, reason = "the scenarios, the demo and the benchmark share the bench, and each uses a part of it")]

pub(crate) mod address;
pub(crate) mod allocation;
pub(crate) mod binaries;
pub(crate) mod cairn;
pub(crate) mod cgroups;
pub(crate) mod client;
pub(crate) mod control_plane;
pub(crate) mod enclosure;
pub(crate) mod full_node;
pub(crate) mod holding_proxy;
pub(crate) mod kubelet;
pub(crate) mod kubernetes;
pub(crate) mod lab;
pub(crate) mod metallb;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod pki;
pub(crate) mod pod;
pub(crate) mod reference_ccm;
pub(crate) mod router;
pub(crate) mod service;
pub(crate) mod uplink;
pub(crate) mod wait;

pub(crate) use lab::{Lab, RouterKind};
pub(crate) use wait::{Stopwatch, wait_for};
