//! What people and machines see of a running Cairn: the log, and the diagnostics port.
//!
//! Each room keeps its own metrics struct; the wiring registers it here. Nothing here knows a room.

pub mod http;
pub mod log;
