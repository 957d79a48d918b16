//! Routes that routers told of: what importing them depends on.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::names::PeerName;
use super::net::Prefix;
use super::shared_map::SharedMap;

/// Where a peer sends packets to a prefix, and how good that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LearnedPath {
    /// The router to hand them to.
    pub next_hop: IpAddr,
    /// How good the path is.
    pub merit: Merit,
}

/// How good a path is (RFC 4271 §9.1.2.2): the greater, the better. Equal ones share the packets.
///
/// DEVIATION(RFC 4271 §9.1.2.2 c): MED is compared between all paths, also of different neighbouring
/// ASes, so that the answer depends on no order. The steps after (d) tell equal paths apart only by
/// who told of them, which is what sharing is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Merit {
    /// LOCAL_PREF; 100 on external sessions.
    pub local_preference: u32,
    /// AS numbers in AS_PATH, a set counting as one.
    pub path_length: Reverse<u32>,
    /// ORIGIN: 0 IGP, 1 EGP, 2 incomplete.
    pub origin: Reverse<u8>,
    /// MULTI_EXIT_DISC; 0 where there is none (§9.1.2.2 c).
    pub med: Reverse<u32>,
    /// Whether it is of another AS.
    pub is_external: bool,
    /// Whether its router has told it since it last started.
    ///
    /// DEVIATION(RFC 4724 §4.2: no difference is made in forwarding): a router that died looks like one that restarts, and
    /// an equally good path is as good for the packets. Nobody else's packets pass here, so that no loop can come of it.
    #[serde(default)]
    pub is_current: bool,
}

/// What one peer told of and may tell of, by prefix.
pub type LearnedRoutes = SharedMap<Prefix, LearnedPath>;

/// What each peer told of and may tell of.
pub type Learned = BTreeMap<PeerName, LearnedRoutes>;
