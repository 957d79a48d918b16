//! Our own BGP speaker: tells the routers which prefixes lead to this node (RFC 4271).
//!
//! It dials each router and announces; it has no listening socket, so a router has to accept
//! connections from this node. It takes no route that a peer's policy does not ask for (RFC 8212), never
//! touches the kernel's routing table and never decides what is announced: the agent says that,
//! whole, in a [`Desired`], and reads a [`SpeakerStatus`].
//!
//! Invariants:
//! - A session whose peer is unchanged is never reset, whatever else changes.
//! - Nothing is withdrawn and no End-of-RIB is sent while the wish is not complete.
//! - Every octet from a peer is checked; none can make this program panic or its memory grow.
//! - When the wish's sender is gone, every session says Cease and ends within a second.
//!
//! Pure: [`codec`] (octets), `fsm` (one session's state machine), `rib` (what a peer has and should
//! have), `rib_in` (what it told), `retained` (what it told before it restarts). Shell: `speaker` (a task a peer) → `session` (drives one machine) → `link` → `connection` (TCP).
//! Start reading at [`run`].

pub mod codec;
mod connection;
mod desired;
mod exchange;
mod fsm;
mod link;
mod retained;
mod rib;
mod rib_in;
mod session;
mod speaker;
mod status;

pub use desired::{Desired, HoldTime, HoldTimeError, PeerConfig, Peering};
pub use speaker::run;
pub use status::{ConnectError, PeerError, PeerStatus, SessionState, SpeakerStatus, Withheld};
