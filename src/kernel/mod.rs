//! This node's kernel: routes to the other nodes' pods, and the guard table that refuses what no
//! Service serves.
//!
//! Start reading at [`plan`] (what to change, pure), then [`netlink`] (makes it true and keeps it
//! so); [`guard`] is the same pair for nftables, [`addresses`] tells which networks this node is on.
//!
//! What holds here:
//! - Only routes with [`PROTOCOL`], in whatever routing table, and only the table `inet cairn` are
//!   ours. Everything else is read and never written.
//! - Nothing is removed before the whole wish is known: an unknown is never an absence.
//! - What we made stays when the agent ends; the next run takes it over.
//! - The kernel tells us of changes, we do not poll. A lost message leads to a full re-read.

pub mod addresses;
pub mod change;
mod firewall;
pub mod forwarding;
pub mod guard;
mod heard;
pub mod host;
mod journal;
mod known;
pub mod look;
mod messages;
mod neighbour;
pub mod neighbours;
pub mod netlink;
mod pace;
pub mod place;
pub mod plan;
pub mod present;
pub mod route;
mod route_codec;
mod rules;
mod socket;
pub mod standing;
mod wire;

pub use forwarding::PodNetwork;
pub use host::Sysctls;
pub use place::Place;
pub use socket::NetlinkError;
pub use standing::{RouteFailure, RouteStatus};

/// The routing protocol number (`rtm_protocol`) of every route that is ours: 0xCA.
pub const PROTOCOL: u8 = 202;
