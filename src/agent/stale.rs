//! Routes that an earlier run left in the kernel and that nobody has confirmed yet: they stay for a while.
//!
//! As a restarting speaker does (RFC 4724 §4.1): what routers had told goes on carrying packets until they have had the
//! time to tell it again, and what they did not tell again goes then. Each next hop goes with its own router.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::peer::Peer;
use crate::model::{FibRoute, Hop, Moment, PeerName, Prefix, Rank, Target};

/// A router that never says that it has told everything (End-of-RIB) has told it this long after the session was
/// Established: as long as RFC 4271 §10 suggests to wait for a connection.
const TELLING: Duration = Duration::from_secs(120);

/// No router is waited for longer than this once it is known which there are (the Selection_Deferral_Timer of RFC 4724
/// §4.1, which leaves the time open): twice the usual hold time, after which a router has given up the session it had with the
/// earlier run.
const DEFERRAL: Duration = Duration::from_secs(180);

/// What is there of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaleRoutes {
    /// Next hops that routers told of.
    pub learned: BTreeMap<Prefix, BTreeSet<Hop>>,
    /// Networks whose packets go nowhere.
    pub last_resorts: BTreeSet<Prefix>,
}

impl StaleRoutes {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.learned.is_empty() && self.last_resorts.is_empty()
    }
}

/// How far a router is with telling its routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// The session is Established since then.
    Since(Moment),
    /// It has said that this is all.
    Done,
}

/// The routes of an earlier run, as long as they are held.
#[derive(Debug, Clone, Default)]
pub struct Stale {
    routes: Arc<StaleRoutes>,
    /// Since when it is known which routers there are.
    since: Option<Moment>,
    /// Routers that have told everything once.
    done: BTreeSet<PeerName>,
    deadline: Option<Moment>,
}

impl Stale {
    /// Holds those of `left` that do not follow from what the leader writes.
    pub fn new(left: impl IntoIterator<Item = FibRoute>) -> Self {
        let mut routes = StaleRoutes::default();
        for FibRoute { destination, rank, target } in left {
            match (rank, target) {
                (Rank::Learned, Target::Via(hops)) => {
                    routes.learned.insert(destination, hops.iter().copied().collect());
                }
                (Rank::LastResort, _) => drop(routes.last_resorts.insert(destination)),
                (Rank::Direct, _) | (Rank::Learned, Target::Blackhole) => {}
            }
        }
        Self { routes: Arc::new(routes), ..Self::default() }
    }

    /// What is still held.
    pub fn routes(&self) -> &Arc<StaleRoutes> {
        &self.routes
    }

    /// When something more is let go of, although nothing is told.
    pub fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// Lets go of what has been told again, or will not be. Everything is known that was written, and `peers` are
    /// the routers that this node has sessions with. Says whether less is held now.
    pub fn settle(&mut self, peers: &[Arc<Peer>], sessions: &BTreeMap<PeerName, Telling>, now: Moment) -> bool {
        if self.routes.is_empty() {
            return false;
        }
        let end = *self.since.get_or_insert(now) + DEFERRAL;
        let importing: Vec<&Peer> = peers.iter().map(|peer| &**peer).filter(|peer| !peer.import.is_nothing()).collect();
        let mut deadline = end;
        for peer in &importing {
            match sessions.get(&peer.name) {
                Some(Telling::Done) => drop(self.done.insert(peer.name.clone())),
                Some(Telling::Since(established)) if *established + TELLING <= now => {
                    self.done.insert(peer.name.clone());
                }
                Some(Telling::Since(established)) => deadline = deadline.min(*established + TELLING),
                None => {}
            }
        }
        let is_awaited = |peer: &&&Peer| now < end && !self.done.contains(&peer.name);
        let awaited: Vec<&Peer> = importing.iter().filter(is_awaited).copied().collect();
        let before = Arc::clone(&self.routes);
        let routes = Arc::make_mut(&mut self.routes);
        routes.last_resorts.clear();
        routes.learned.retain(|prefix, hops| {
            hops.retain(|hop| is_open(hop.gateway, &importing, &awaited));
            !hops.is_empty() && awaited.iter().any(|peer| peer.import.takes(prefix))
        });
        self.deadline = (!self.routes.is_empty()).then_some(deadline);
        self.routes != before
    }
}

/// Whether a router may yet tell of a route by this next hop: that router itself, or any of those that are awaited where the
/// next hop is no router of ours.
fn is_open(gateway: IpAddr, all: &[&Peer], awaited: &[&Peer]) -> bool {
    let is_of = |peers: &[&Peer]| peers.iter().any(|peer| peer.address == gateway);
    is_of(awaited) || (!awaited.is_empty() && !is_of(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::peer::{Import, ImportRule};
    use crate::model::Hops;

    const TAKES: &str = "192.0.0.0/8";

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    fn hop(gateway: &str) -> Hop {
        Hop { gateway: gateway.parse().expect("an address"), interface: Some(2) }
    }

    fn peer(name: &str, address: &str, takes: Option<&str>) -> Arc<Peer> {
        let rules = takes.iter().map(|text| ImportRule::new(prefix(text), Some(8), None).expect("a rule")).collect();
        let peer = crate::agent::cases::peer(name, address);
        Arc::new(Peer { import: Import { rules, max_prefixes: 10, allow_own_as: 0 }, ..Peer::clone(&peer) })
    }

    /// Routers a and b, each told of; the second route is by a third host that is no router of ours.
    fn stale() -> Stale {
        let learned = |text: &str, hops: &[&str]| {
            FibRoute::learned(prefix(text), Hops::new(hops.iter().map(|gateway| hop(gateway))).expect("some"))
        };
        Stale::new([
            learned("192.0.2.0/24", &["10.90.0.1", "10.90.0.2"]),
            learned("192.0.3.0/24", &["10.90.0.99"]),
            learned("198.51.100.0/24", &["10.90.0.1"]),
            FibRoute::last_resort(prefix("10.244.0.0/16")),
            FibRoute::direct(prefix("10.244.1.0/24"), hop("10.90.0.12")),
        ])
    }

    fn at(seconds: u64) -> Moment {
        Moment::since_boot(Duration::from_secs(seconds))
    }

    fn story(stale: &Stale) -> String {
        let StaleRoutes { learned, last_resorts } = &**stale.routes();
        let word = |(prefix, hops): (&Prefix, &BTreeSet<Hop>)| {
            format!("{prefix}:{}", hops.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
        };
        learned.iter().map(word).chain(last_resorts.iter().map(ToString::to_string)).collect::<Vec<_>>().join(" ")
    }

    const BOTH: &str = "192.0.2.0/24:10.90.0.1,10.90.0.2 192.0.3.0/24:10.90.0.99";
    const OF_B: &str = "192.0.2.0/24:10.90.0.2 192.0.3.0/24:10.90.0.99";

    #[test]
    fn a_next_hop_is_held_until_its_router_has_told_everything() {
        use Telling::{Done, Since};
        let all = [peer("a", "10.90.0.1", Some(TAKES)), peer("b", "10.90.0.2", Some(TAKES))];
        for (name, sessions, when, want) in [
            ("no session yet", &[][..], 110, BOTH),
            ("they are telling", &[("a", Since(at(101))), ("b", Since(at(102)))], 110, BOTH),
            ("one is done", &[("a", Done), ("b", Since(at(102)))], 110, OF_B),
            ("both are", &[("a", Done), ("b", Done)], 110, ""),
            ("one never says so", &[("a", Since(at(101)))], 221, OF_B),
            ("just before", &[("a", Since(at(101)))], 220, BOTH),
            ("one never comes", &[("a", Done)], 279, OF_B),
            ("for three minutes", &[("a", Done)], 280, ""),
            ("none does", &[], 280, ""),
        ] {
            let mut stale = stale();
            assert!(
                stale.settle(&all, &BTreeMap::new(), at(100)),
                "what no policy takes, and what follows from what is known"
            );
            assert_eq!(story(&stale), BOTH);
            let sessions = sessions.iter().map(|(name, telling)| (name.parse().expect("a name"), *telling)).collect();
            stale.settle(&all, &sessions, at(when));
            assert_eq!(story(&stale), want, "{name}");
        }
    }

    #[test]
    fn a_router_that_is_done_stays_so_when_its_session_ends() {
        let all = [peer("a", "10.90.0.1", Some(TAKES)), peer("b", "10.90.0.2", Some(TAKES))];
        let mut stale = stale();
        stale.settle(&all, &[("a".parse().expect("a name"), Telling::Done)].into(), at(100));
        assert_eq!(story(&stale), OF_B);
        assert!(!stale.settle(&all, &BTreeMap::new(), at(101)));
        assert_eq!(story(&stale), OF_B);
    }

    #[test]
    fn nothing_is_held_before_it_is_known_for_whom_and_then_for_those_only() {
        let (a, silent) = (peer("a", "10.90.0.1", Some("198.0.0.0/8")), peer("b", "10.90.0.2", None));
        let stale_routes = stale();
        assert!(story(&stale_routes).ends_with("10.244.0.0/16"), "everything is, before anything is known");
        for (name, peers, want) in [
            ("no router", &[][..], ""),
            ("one that tells nothing", std::slice::from_ref(&silent), ""),
            ("one with another policy", &[a, silent.clone()], "198.51.100.0/24:10.90.0.1"),
        ] {
            let mut stale = stale_routes.clone();
            stale.settle(peers, &BTreeMap::new(), at(100));
            assert_eq!(story(&stale), want, "{name}");
        }
    }

    #[test]
    fn it_is_looked_at_again_when_something_is_due() {
        let all = [peer("a", "10.90.0.1", Some(TAKES)), peer("b", "10.90.0.2", Some(TAKES))];
        let mut stale = stale();
        assert_eq!(stale.deadline(), None);
        stale.settle(&all, &BTreeMap::new(), at(100));
        assert_eq!(stale.deadline(), Some(at(280)));
        let since = |name: &str, seconds| (name.parse().expect("a name"), Telling::Since(at(seconds)));
        stale.settle(&all, &[since("a", 110), since("b", 105)].into(), at(111));
        assert_eq!(stale.deadline(), Some(at(225)));
        stale.settle(&all, &[since("a", 110), since("b", 105)].into(), at(280));
        assert_eq!((stale.deadline(), story(&stale).as_str()), (None, ""));
    }
}
