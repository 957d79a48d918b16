//! The routers that are configured right, and what is wrong with the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;

use crate::api::{BgpPeer, PeerException};
use crate::config::peer::Peer;
use crate::config::{Fault, FieldPath};

/// A `BgpPeer` as it was checked.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerView {
    /// It has no fault.
    Right {
        /// As it was checked.
        peer: Arc<Peer>,
        /// `metadata.creationTimestamp` in seconds since 1970: of two of one router, the older is in force.
        created_seconds: i64,
    },
    /// Every fault, one sentence each.
    Wrong(String),
}

impl PeerView {
    /// Checks a `BgpPeer`.
    pub fn of(object: &BgpPeer) -> Option<Self> {
        let name = object.metadata.name.as_deref()?;
        Some(match Peer::check(name, &object.spec) {
            Ok(peer) => {
                let created_seconds = object.creation_timestamp().map_or(0, |time| time.0.as_second());
                Self::Right { peer: Arc::new(peer), created_seconds }
            }
            Err(faults) => Self::Wrong(faults.to_string()),
        })
    }
}

/// The routers in force: a `BgpPeer` that was changed for the worse stays as it was.
#[derive(Debug, Clone, Default)]
pub struct Peers {
    last_good: BTreeMap<String, (i64, Arc<Peer>)>,
}

impl Peers {
    /// Takes over what the cluster says now and tells what is wrong with it.
    pub fn take(&mut self, views: &BTreeMap<String, Arc<PeerView>>) -> Vec<PeerException> {
        self.last_good.retain(|name, _| views.contains_key(name));
        let mut exceptions = Vec::new();
        for (name, view) in views {
            match &**view {
                PeerView::Right { peer, created_seconds } => {
                    self.last_good.insert(name.clone(), (*created_seconds, Arc::clone(peer)));
                }
                PeerView::Wrong(message) => {
                    exceptions.push(PeerException { peer: name.clone(), message: message.clone() });
                }
            }
        }
        exceptions
    }

    /// The routers in force, the oldest first.
    pub fn in_force(&self) -> Vec<Arc<Peer>> {
        let mut by_age: Vec<_> = self.last_good.values().collect();
        by_age.sort_by_key(|(created_seconds, peer)| (*created_seconds, &peer.name));
        by_age.into_iter().map(|(_, peer)| Arc::clone(peer)).collect()
    }
}

/// The routers a node with these labels keeps a session with: of several `BgpPeer`s of one router the
/// first, since a router takes one session with a node and would end one for the other. The rest are told.
pub fn sessions(in_force: &[Arc<Peer>], labels: &BTreeMap<String, String>) -> (Vec<Arc<Peer>>, Vec<PeerException>) {
    let (mut sessions, mut doubles) = (Vec::<Arc<Peer>>::new(), Vec::new());
    for peer in in_force.iter().filter(|peer| peer.selects(labels)) {
        match sessions.iter().find(|other| peer.is_same_router(other)) {
            None => sessions.push(Arc::clone(peer)),
            Some(other) => {
                let field = FieldPath::of("spec").field("address");
                let fault = Fault::new(field, peer.doubles(other)).of_object(format!("BgpPeer {}", peer.name));
                doubles.push(PeerException { peer: peer.name.to_string(), message: fault.to_string() });
            }
        }
    }
    (sessions, doubles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::BgpPeerSpec;

    fn view(address: &str) -> Arc<PeerView> {
        let spec = BgpPeerSpec {
            local_asn: 64513,
            peer_asn: 64512,
            address: address.to_owned(),
            port: 179,
            hold_time_seconds: 9,
            node_selector: BTreeMap::new(),
        };
        Arc::new(PeerView::of(&BgpPeer::new("router", spec)).expect("it has a name"))
    }

    #[test]
    fn a_peer_changed_for_the_worse_stays_as_it_was() {
        let mut peers = Peers::default();
        let of = |address: &str| BTreeMap::from([("router".to_owned(), view(address))]);
        assert!(peers.take(&of("10.90.0.1")).is_empty());
        let exceptions = peers.take(&of("10.90.0.300"));
        assert!(exceptions[0].message.contains("10.90.0.300"), "{exceptions:?}");
        let addresses: Vec<_> = peers.in_force().iter().map(|peer| peer.address.to_string()).collect();
        assert_eq!(addresses, ["10.90.0.1"]);
        assert!(peers.take(&BTreeMap::new()).is_empty());
        assert!(peers.in_force().is_empty());
    }
    #[test]
    fn a_node_keeps_one_session_with_a_router() {
        let peer = |name: &str, address: &str, port: u16, rack: Option<&str>| {
            let node_selector = rack.map(|rack| ("rack".to_owned(), rack.to_owned())).into_iter().collect();
            let (address, hold_time_seconds) = (address.to_owned(), 9);
            let spec =
                BgpPeerSpec { local_asn: 64513, peer_asn: 64512, address, port, hold_time_seconds, node_selector };
            Arc::new(Peer::check(name, &spec).expect("a peer"))
        };
        let oldest_first = [
            peer("router", "10.90.0.1", 179, None),
            peer("a-twin", "10.90.0.1", 179, None),
            peer("elsewhere", "10.90.0.1", 179, Some("r2")),
            peer("other-port", "10.90.0.1", 1790, None),
            peer("other", "10.90.0.2", 179, Some("r1")),
        ];
        let labels = BTreeMap::from([("rack".to_owned(), "r1".to_owned())]);
        let (sessions, doubles) = sessions(&oldest_first, &labels);
        let names: Vec<_> = sessions.iter().map(|peer| peer.name.as_str()).collect();
        assert_eq!(names, ["router", "other-port", "other"]);
        let told: Vec<_> = doubles.iter().map(|double| (double.peer.as_str(), double.message.as_str())).collect();
        let message = "BgpPeer a-twin: spec.address: 10.90.0.1 with port 179 is the router of BgpPeer router: \
                       a node keeps one session with a router, so leave one of the two, or select other nodes";
        assert_eq!(told, [("a-twin", message)]);
    }

    #[test]
    fn the_older_of_two_is_first() {
        let right = |name: &str, created_seconds| {
            let PeerView::Right { peer, .. } = PeerView::clone(&view("10.90.0.1")) else { panic!("a right one") };
            let peer = Arc::new(Peer { name: name.parse().expect("a name"), ..Peer::clone(&peer) });
            (name.to_owned(), Arc::new(PeerView::Right { peer, created_seconds }))
        };
        let mut peers = Peers::default();
        assert!(peers.take(&BTreeMap::from([right("a", 20), right("b", 10), right("c", 20)])).is_empty());
        let names: Vec<_> = peers.in_force().iter().map(|peer| peer.name.to_string()).collect();
        assert_eq!(names, ["b", "a", "c"]);
    }
}
