//! The routers that are configured right, and what is wrong with the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{BgpPeer, PeerException};
use crate::config::peer::Peer;

/// A `BgpPeer` as it was checked.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerView {
    /// It has no fault.
    Right(Arc<Peer>),
    /// Every fault, one sentence each.
    Wrong(String),
}

impl PeerView {
    /// Checks a `BgpPeer`.
    pub fn of(peer: &BgpPeer) -> Option<Self> {
        let name = peer.metadata.name.as_deref()?;
        Some(match Peer::check(name, &peer.spec) {
            Ok(peer) => Self::Right(Arc::new(peer)),
            Err(faults) => Self::Wrong(faults.to_string()),
        })
    }
}

/// The routers in force: a `BgpPeer` that was changed for the worse stays as it was.
#[derive(Debug, Clone, Default)]
pub struct Peers {
    last_good: BTreeMap<String, Arc<Peer>>,
}

impl Peers {
    /// Takes over what the cluster says now and tells what is wrong with it.
    pub fn take(&mut self, views: &BTreeMap<String, Arc<PeerView>>) -> Vec<PeerException> {
        self.last_good.retain(|name, _| views.contains_key(name));
        let mut exceptions = Vec::new();
        for (name, view) in views {
            match &**view {
                PeerView::Right(peer) => {
                    self.last_good.insert(name.clone(), Arc::clone(peer));
                }
                PeerView::Wrong(message) => {
                    exceptions.push(PeerException { peer: name.clone(), message: message.clone() });
                }
            }
        }
        exceptions
    }

    /// The routers in force.
    pub fn in_force(&self) -> Vec<Arc<Peer>> {
        self.last_good.values().cloned().collect()
    }
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
}
