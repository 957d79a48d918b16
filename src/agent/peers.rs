//! The routers that are configured right, and what is wrong with the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;

use crate::api::{BgpPeer, PeerException};
use crate::config::last_good::{Checked, LastGood, created_seconds};
use crate::config::peer::Peer;
use crate::config::{Fault, FieldPath};

/// A `BgpPeer` as it was checked.
pub type PeerView = Checked<Peer>;

/// Checks a `BgpPeer`.
pub fn peer(object: &BgpPeer) -> Option<PeerView> {
    let check = Peer::check(object.metadata.name.as_deref()?, &object.spec);
    Some(Checked::new(check.map(|peer| peer.with_labels(object.labels())), created_seconds(object)))
}

/// The routers in force: a `BgpPeer` that was changed for the worse stays as it was.
#[derive(Debug, Clone, Default)]
pub struct Peers(LastGood<Peer>);

impl Peers {
    /// Goes on after a run that had these in force.
    pub fn after(earlier: &[Arc<Peer>]) -> Self {
        Self(LastGood::after(earlier.iter().map(|peer| (peer.name.to_string(), Arc::clone(peer)))))
    }

    /// Takes over what the cluster says now and tells what is wrong with it.
    pub fn take(&mut self, views: &BTreeMap<String, Arc<PeerView>>) -> Vec<PeerException> {
        let wrong = self.0.take(views).into_iter();
        wrong.map(|(peer, message)| PeerException { peer, message }).collect()
    }

    /// The routers in force, the oldest first: of two of one router, the older is in force.
    pub fn in_force(&self) -> Vec<Arc<Peer>> {
        self.0.in_force()
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

    #[test]
    fn a_node_keeps_one_session_with_a_router() {
        let peer = |name: &str, address: &str, port: u16, rack: Option<&str>| {
            let node_selector = rack.map(|rack| ("rack".to_owned(), rack.to_owned())).into_iter().collect();
            let (address, hold_time_seconds) = (address.to_owned(), 9);
            let spec = BgpPeerSpec {
                local_asn: 64513,
                peer_asn: 64512,
                address,
                port,
                hold_time_seconds,
                import: None,
                node_selector,
            };
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
}
