//! This node's kernel: routes to the other nodes' pods, and the guard table that refuses what no
//! Service serves.
//!
//! Start reading at [`plan`] (what to change, pure), then [`netlink`] (makes it true and keeps it
//! so); [`guard`] is the same pair for nftables, [`addresses`] tells which networks this node is on.
//!
//! What holds here:
//! - Only routes with [`PROTOCOL`] in the main table and only the table `inet cairn` are ours.
//!   Everything else is read and never written.
//! - Nothing is removed before the whole wish is known: an unknown is never an absence.
//! - What we made stays when the agent ends; the next run takes it over.
//! - The kernel tells us of changes, we do not poll. A lost message leads to a full re-read.

pub mod addresses;
pub mod guard;
mod messages;
pub mod netlink;
mod pace;
pub mod plan;
mod socket;
mod wire;

pub use plan::{KernelRoute, RouteChange, RouteFailure, RoutePlan, RouteStatus, plan};
pub use socket::NetlinkError;

/// The routing protocol number (`rtm_protocol`) of every route that is ours: 0xCA.
pub const PROTOCOL: u8 = 202;

/// The metric of our routes: what IPv6 gives to a route that names none.
///
/// A CNI or an operator who adds a route to the same prefix without a metric gets 0 for IPv4 and
/// 1024 for IPv6, so theirs decides in both families and ours never takes packets from it.
pub const METRIC: u32 = 1024;

/// The routing table our routes live in (`RT_TABLE_MAIN`).
pub const TABLE: u32 = 254;
