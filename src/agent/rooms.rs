#![expect(clippy::disallowed_methods, reason = "shell: starts the rooms' tasks")]
//! The rooms the agent hands its wishes to, and what they answer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::warn;

use crate::agent::Options;
use crate::agent::answers::outcome;
use crate::agent::desired::Desired;
use crate::agent::metrics::Metrics;
use crate::agent::outcome::Outcome;
use crate::agent::publisher::{self, Publication};
use crate::agent::stale::Telling;
use crate::api::{ForwardingFault, PeerException};
use crate::bgp::{self, HoldTime, PeerConfig, PeerStatus, SpeakerStatus};
use crate::config::peer::Peer;
use crate::kernel::guard::GuardStatus;
use crate::kernel::{self, Place, PodNetwork, RouteStatus};
use crate::model::learned::Learned;
use crate::model::{FibWish, Guarded, LocalAddress, Neighbour, NextHops, PeerName, RouterId};

/// Wishes on their way to the rooms, answers on their way back. Latest wins in both directions.
///
/// Dropping it ends the rooms.
pub struct Rooms {
    place: Place,
    routes: watch::Sender<Option<Arc<FibWish>>>,
    guarded: watch::Sender<Option<Arc<Guarded>>>,
    neighbours: watch::Sender<Arc<BTreeSet<Neighbour>>>,
    speaker: watch::Sender<Arc<bgp::Desired>>,
    pod_network: watch::Sender<Option<Arc<PodNetwork>>>,
    report: watch::Sender<Option<Publication>>,
    local: watch::Receiver<Option<Arc<Vec<LocalAddress>>>>,
    route_status: watch::Receiver<RouteStatus>,
    forwarding: watch::Receiver<Vec<ForwardingFault>>,
    guard_status: watch::Receiver<GuardStatus>,
    neighbour_status: watch::Receiver<BTreeMap<IpAddr, bool>>,
    speaker_status: watch::Receiver<SpeakerStatus>,
}

impl Rooms {
    /// Starts every room. The speaker's task ends in its own time once the wishes are dropped; the
    /// others are aborted with `tasks`.
    pub fn start(
        options: &Options,
        metrics: &Metrics,
        tasks: &mut JoinSet<anyhow::Result<()>>,
    ) -> (Self, JoinHandle<()>) {
        let (routes, wanted_routes) = watch::channel(None);
        let (guarded, wanted_guard) = watch::channel(None);
        let (neighbours, wanted_neighbours) = watch::channel(Arc::default());
        let (speaker, wanted_speech) = watch::channel(Arc::new(silence()));
        let (report, publications) = watch::channel(None);
        let (local_sender, local) = watch::channel(None);
        let (pod_network, wanted_network) = watch::channel(None);
        let (fault_sender, forwarding) = watch::channel(Vec::new());
        let (route_sender, route_status) = watch::channel(RouteStatus::default());
        let (guard_sender, guard_status) = watch::channel(GuardStatus::default());
        let (neighbour_sender, neighbour_status) = watch::channel(BTreeMap::new());
        let (speaker_sender, speaker_status) = watch::channel(SpeakerStatus::default());
        let (place, sysctls) = (options.place, options.sysctls);
        tasks.spawn(async move { Ok(kernel::netlink::run(place, wanted_routes, route_sender).await?) });
        tasks.spawn(async move { Ok(kernel::host::run(wanted_network, sysctls, fault_sender).await?) });
        tasks.spawn(async move { Ok(kernel::addresses::watch_addresses(local_sender).await?) });
        tasks.spawn(async move { Ok(kernel::guard::run(wanted_guard, guard_sender).await?) });
        tasks.spawn(async move { Ok(kernel::neighbours::run(wanted_neighbours, neighbour_sender).await?) });
        let (client, node, metrics) = (options.client.clone(), options.node.clone(), metrics.clone());
        tasks.spawn(async move {
            publisher::run(client, node, publications, metrics).await;
            Ok(())
        });
        let speaking = tokio::spawn(bgp::run(wanted_speech, speaker_sender));
        let rooms = Self {
            place,
            routes,
            guarded,
            neighbours,
            speaker,
            pod_network,
            report,
            local,
            route_status,
            forwarding,
            guard_status,
            neighbour_status,
            speaker_status,
        };
        (rooms, speaking)
    }

    /// Waits until a room has something new to say. Cancel-safe.
    pub async fn changed(&mut self) {
        // A room that ended is noticed by its owner: here its silence is just silence.
        let has_news = tokio::select! {
            news = self.local.changed() => news,
            news = self.route_status.changed() => news,
            news = self.forwarding.changed() => news,
            news = self.guard_status.changed() => news,
            news = self.neighbour_status.changed() => news,
            news = self.speaker_status.changed() => news,
        };
        if has_news.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The addresses of this node's interfaces, once they have been read.
    pub fn local_addresses(&self) -> Option<Vec<LocalAddress>> {
        self.local.borrow().as_deref().cloned()
    }

    /// What each router told of and may tell of.
    pub fn learned(&self) -> Learned {
        let status = self.speaker_status.borrow();
        status.peers.iter().map(|(name, peer)| (name.clone(), peer.learned.clone())).collect()
    }

    /// How far each router with a session is with telling its routes.
    pub fn telling(&self) -> BTreeMap<PeerName, Telling> {
        let status = self.speaker_status.borrow();
        let telling = |(name, peer): (&PeerName, &PeerStatus)| {
            let established = peer.established_at?;
            Some((name.clone(), if peer.has_told_all { Telling::Done } else { Telling::Since(established) }))
        };
        status.peers.iter().filter_map(telling).collect()
    }

    /// Hands the kernel its routes, the next hops to ask for, and what pods need of the host.
    pub fn wish_routes(&self, desired: &Desired) {
        let own = desired.own_pod_cidrs.clone();
        let interfaces = desired.routes.wanted.interfaces().collect();
        set(&self.pod_network, Some(Arc::new(PodNetwork { own, interfaces, place: self.place })));
        set(&self.routes, Some(Arc::clone(&desired.fib)));
        set(&self.neighbours, Arc::new(desired.neighbours.clone()));
    }

    /// Hands the speaker and the guard what is announced, and in whose name.
    pub fn wish_announcements(&self, desired: &Desired, router_id: RouterId) {
        set(&self.guarded, Some(Arc::clone(&desired.guarded)));
        set(
            &self.speaker,
            Arc::new(bgp::Desired {
                router_id,
                next_hops: desired.next_hops,
                peers: desired.peers.iter().map(|peer| (peer.name.clone(), peer_config(peer))).collect(),
                adverts: desired.announce.by_peer.clone(),
                complete: true,
            }),
        );
    }

    /// What became of the wish so far.
    pub fn outcome(&self, wrong_peers: Vec<PeerException>) -> Outcome {
        let neighbours = self.neighbour_status.borrow().clone();
        let outcome = outcome(
            &self.route_status.borrow(),
            &self.guard_status.borrow(),
            &self.speaker_status.borrow(),
            wrong_peers,
        );
        Outcome { neighbours, forwarding: self.forwarding.borrow().clone(), ..outcome }
    }

    /// Hands over the report; without one, nothing is written any more.
    pub fn publish(&self, publication: Option<Publication>) {
        set(&self.report, publication);
    }
}

/// Sends only what is new, so that nobody wakes for nothing.
fn set<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|current| {
        let is_new = *current != value;
        // What is the same stays the same: who has it already compares no more than the pointer.
        if is_new {
            *current = value;
        }
        is_new
    });
}

/// The wish before anything is known: no peer, so nobody is told anything.
fn silence() -> bgp::Desired {
    bgp::Desired {
        router_id: RouterId::try_from(std::net::Ipv4Addr::LOCALHOST).expect("127.0.0.1 is not zero"),
        next_hops: NextHops::default(),
        peers: BTreeMap::<PeerName, PeerConfig>::new(),
        adverts: BTreeMap::new(),
        complete: false,
    }
}

fn peer_config(peer: &Peer) -> PeerConfig {
    PeerConfig {
        name: peer.name.clone(),
        local_asn: peer.local_asn,
        peer_asn: peer.peer_asn,
        address: peer.address,
        port: peer.port,
        import: peer.import.clone(),
        hold_time: HoldTime::try_from(peer.hold_time.unwrap_or_default()).unwrap_or_else(|error| {
            // `Peer` holds the same rule; a difference between the two must not end a session.
            warn!(peer = %peer.name, %error, "using the default hold time");
            HoldTime::DEFAULT
        }),
    }
}
