//! Which nodes Advertisements have announce a Service's addresses: pure, by the rules of the agents.
//!
//! Whom an Advertisement has told counts as well: a node that is heard by other routers alone is not heard of it.
//! As with them, an Advertisement or a pool that was changed for the worse stays as it was; a leader that has
//! never seen it right does not know what that was.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::announced::{Entry, EntryNode};
use crate::config::Advertisement;
use crate::config::advertisement::Bgp;
use crate::config::last_good::{Checked, LastGood};
use crate::config::pool_view::{PoolIndex, PoolView};
use crate::config::selector::Labels;
use crate::model::PeerName;
use crate::model::views::ServiceView;

/// The Advertisements in force, and the pools that they speak of.
#[derive(Debug, Default)]
pub struct Selection {
    advertisements: LastGood<Advertisement>,
    pools: LastGood<PoolView>,
    in_force: Vec<Arc<Advertisement>>,
    pools_in_force: Vec<Arc<PoolView>>,
    index: PoolIndex,
    /// The labels of each `BgpPeer`.
    peers: BTreeMap<String, Arc<Labels>>,
}

/// Who announces an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Speakers {
    /// Every node that is an entry: no Advertisement selects it.
    Everyone,
    /// Nobody: no Advertisement that selects it has routers told.
    Nobody,
    /// The nodes that one of these Advertisements selects, by their places.
    Those(Vec<usize>),
}

impl Selection {
    /// Takes the Advertisements, the pools and the labels of the peers that there are now; whether that changes
    /// anything. One that was changed for the worse stays as it was.
    pub fn set(
        &mut self,
        advertisements: &BTreeMap<String, Arc<Checked<Advertisement>>>,
        pools: &BTreeMap<String, Arc<Checked<PoolView>>>,
        peers: &BTreeMap<String, Arc<Labels>>,
    ) -> bool {
        // The conditions of both kinds tell their faults.
        self.advertisements.take(advertisements);
        self.pools.take(pools);
        let (in_force, pools) = (self.advertisements.in_force(), self.pools.in_force());
        if in_force == self.in_force && pools == self.pools_in_force && *peers == self.peers {
            return false;
        }
        self.peers.clone_from(peers);
        self.index = PoolIndex::of(&pools);
        (self.in_force, self.pools_in_force) = (in_force, pools);
        true
    }

    /// How many Advertisements there are.
    pub fn count(&self) -> usize {
        self.in_force.len()
    }

    /// The places of the Advertisements that have a node with these labels announce something, and what it is to
    /// the routers that each has told.
    pub fn spoken_by(&self, labels: &Labels, node: &EntryNode) -> Box<[(usize, Entry)]> {
        let places = self.in_force.iter().enumerate();
        places.filter_map(|(place, one)| Some((place, self.to_those(one.bgp_from(labels)?, node)))).collect()
    }

    /// What a node is to the routers that an Advertisement has told.
    fn to_those(&self, bgp: &Bgp, node: &EntryNode) -> Entry {
        static NONE: Labels = Labels::new();
        let EntryNode { entry: Entry::Heard, heard_by: Some(routers) } = node else { return node.entry };
        let labels = |router: &PeerName| self.peers.get(router.as_str()).map_or(&NONE, |labels| &**labels);
        let is_told = routers.iter().any(|router| bgp.peers.takes(router, labels(router)));
        if is_told { Entry::Heard } else { Entry::NoSession }
    }

    /// Who announces an address of a Service.
    pub fn speakers(&self, service: &ServiceView, address: IpAddr) -> Speakers {
        let pool = self.index.find(address).map(|(_, pool)| pool);
        let mut selecting = self.in_force.iter().enumerate().filter(|(_, one)| one.selects(service, pool)).peekable();
        if selecting.peek().is_none() {
            return Speakers::Everyone;
        }
        let places: Vec<_> = selecting.filter(|(_, one)| one.bgp().is_some()).map(|(place, _)| place).collect();
        if places.is_empty() { Speakers::Nobody } else { Speakers::Those(places) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Pool;
    use crate::service::cases;

    #[test]
    fn an_address_is_announced_as_those_say_that_select_it() {
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let advertisement = |name: &str, spec| {
            let spec = serde_json::from_value(spec).expect("a spec");
            (name.to_owned(), Arc::new(Checked::new(Advertisement::check(name, &spec), 0)))
        };
        let pool = |name: &str, block: &str| {
            let spec = serde_json::from_value(json!({ "addresses": [block] })).expect("a spec");
            let view = Pool::check(name, &spec).map(|pool| PoolView::new(pool, &labels(&[("tier", name)])));
            (name.to_owned(), Arc::new(Checked::new(view, 0)))
        };
        let pools = BTreeMap::from([pool("edge", "10.60.0.0/24"), pool("core", "10.61.0.0/24")]);
        // By name: edge, hidden, local, pods, shop, wrong.
        let advertisements = BTreeMap::from([
            advertisement(
                "edge",
                json!({ "services": { "poolSelector": { "matchLabels": { "tier": "edge" } } },
                "nodeSelector": { "rack": "r1" }, "bgp": {} }),
            ),
            advertisement(
                "hidden",
                json!({ "services": { "serviceSelector": { "matchLabels": { "app": "db" } } },
                "withhold": {} }),
            ),
            advertisement("local", json!({ "services": { "namespaces": ["lan"] }, "l2": {} })),
            advertisement("pods", json!({ "podCidrs": {}, "withhold": {} })),
            advertisement("shop", json!({ "services": { "namespaces": ["shop"] }, "bgp": {} })),
            advertisement("wrong", json!({ "services": {}, "bgp": {}, "withhold": {} })),
        ]);
        let mut selection = Selection::default();
        let peers = BTreeMap::new();
        assert!(selection.set(&advertisements, &pools, &peers));
        assert!(!selection.set(&advertisements, &pools, &peers), "nothing new");
        for (case, namespace, app, address, want) in [
            ("of a pool that nobody speaks of", "default", "web", "10.61.0.1", Speakers::Everyone),
            ("of no pool", "default", "web", "10.62.0.1", Speakers::Everyone),
            ("of a pool", "default", "web", "10.60.0.1", Speakers::Those(vec![0])),
            ("withheld", "default", "db", "10.61.0.1", Speakers::Nobody),
            ("withheld by one, announced by another", "default", "db", "10.60.0.1", Speakers::Those(vec![0])),
            ("to neighbours only", "lan", "web", "10.61.0.1", Speakers::Nobody),
            ("by two", "shop", "web", "10.60.0.1", Speakers::Those(vec![0, 4])),
        ] {
            let key = crate::model::ServiceKey::new(namespace, "web");
            let service = ServiceView { key, labels: labels(&[("app", app)]).into(), ..cases::service("web") };
            assert_eq!(selection.speakers(&service, address.parse().expect("an address")), want, "{case}");
        }
        let heard = EntryNode::from(Entry::Heard);
        let spoken_by = |pairs| -> Vec<usize> {
            selection.spoken_by(&labels(pairs), &heard).iter().map(|(place, _)| *place).collect()
        };
        assert_eq!(spoken_by(&[]), [4]);
        assert_eq!(spoken_by(&[("rack", "r1")]), [0, 4]);
        assert!(selection.set(&BTreeMap::new(), &pools, &peers));
    }
}
