//! The domain's words: what the rooms say to each other.
//!
//! Everything here is a value. Nothing here reads a clock, a socket, a file or the API server.
//! Start reading at [`names`] (who), [`net`] (where), [`views`] (what is), [`intents`] and [`fib`] (what should be).

#[cfg(test)]
pub(crate) mod cases;
pub mod claim;
pub mod few;
pub mod fib;
pub mod intents;
pub mod leadership;
pub mod learned;
pub mod machine;
pub mod moment;
pub mod names;
pub mod net;
pub mod note;
pub mod path;
pub mod scope;
pub mod shared_map;
pub mod shared_set;
pub mod source_ranges;
pub mod term;
pub mod text_map;
mod truth;
pub mod views;

pub use few::Few;
pub use fib::{FibRoute, FibWish, Hop, Hops, Rank, Target, routes_to};
pub use intents::{Admission, Adverts, Guarded, LocalAddress, Neighbour, NextHops, PortProtocol, ServedPort};
pub use leadership::Leadership;
pub use machine::MachineState;
pub use moment::Moment;
pub use names::{AdvertisementName, MachineId, NodeName, PeerName, PoolName, ProviderId, ServiceKey};
pub use net::{Asn, Family, NetError, Prefix, RouterId};
pub use note::{KeptReason, Note, Severity, ShareRefusal};
pub use path::{Community, PathAttributes};
pub use scope::{LOAD_BALANCER_CLASS, Scope};
pub use shared_map::SharedMap;
pub use shared_set::SharedSet;
pub use source_ranges::SourceRanges;
pub use term::Term;
pub use text_map::TextMap;
pub use truth::truth;
