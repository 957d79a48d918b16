//! What the agent watches.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::Config;
use kube::{Api, Client};

use crate::agent::announce;
use crate::agent::last_good::{Checked, LastGood};
use crate::agent::peers::{self, PeerView, Peers};
use crate::agent::snapshot::{Here, NodeRouteView, PoolView, Snapshot};
use crate::api::{self, AddressPool, BgpPeer, NodeRoute, PeerException};
use crate::cluster::store::Store;
use crate::cluster::views;
use crate::config::Advertisement;
use crate::model::NodeName;
use crate::model::views::{EndpointView, NodeView, ServiceView};

/// What people write, as it was last right.
#[derive(Debug, Clone, Default)]
pub struct InForce {
    peers: Peers,
    advertisements: LastGood<Advertisement>,
    pools: LastGood<PoolView>,
}

/// Everything the agent watches: its own Node, and of the rest only what it acts on.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Its own Node.
    pub node: Store<NodeView>,
    /// How every node's pods are reached.
    pub node_routes: Store<NodeRouteView>,
    peers: Store<PeerView>,
    advertisements: Store<Checked<Advertisement>>,
    pools: Store<Checked<PoolView>>,
    services: Store<ServiceView>,
    endpoints: Store<EndpointView>,
}

impl Stores {
    /// Starts watching.
    pub fn watch(client: &Client, me: &NodeName) -> Self {
        let own = Config::default().fields(&format!("metadata.name={me}"));
        let load_balancers = Config::default().fields("spec.type=LoadBalancer");
        let not_headless = Config::default().labels("!service.kubernetes.io/headless");
        // A list from the server's cache: it may be seconds old, and the watch that follows it is not.
        let cached = Config::any_semantic;
        Self {
            node: Store::watch_news::<Node>(
                Api::all(client.clone()),
                own.any_semantic(),
                views::node,
                NodeView::says_the_same,
            ),
            node_routes: Store::watch::<NodeRoute>(
                Api::all(client.clone()),
                cached(Config::default()),
                NodeRouteView::of,
            ),
            peers: Store::watch::<BgpPeer>(Api::all(client.clone()), cached(Config::default()), peers::peer),
            advertisements: Store::watch::<api::Advertisement>(
                Api::all(client.clone()),
                cached(Config::default()),
                announce::advertisement,
            ),
            pools: Store::watch::<AddressPool>(Api::all(client.clone()), cached(Config::default()), PoolView::of),
            services: Store::watch::<Service>(Api::all(client.clone()), cached(load_balancers), views::service),
            endpoints: Store::watch::<EndpointSlice>(
                Api::all(client.clone()),
                cached(not_headless),
                views::endpoint_slice,
            ),
        }
    }

    /// Whether everything that announcements follow from is known.
    pub fn is_synced(&self) -> bool {
        self.node.is_synced()
            && self.node_routes.is_synced()
            && self.peers.is_synced()
            && self.advertisements.is_synced()
            && self.pools.is_synced()
            && self.services.is_synced()
            && self.endpoints.is_synced()
    }

    /// Waits until any of it changed. Cancel-safe.
    pub async fn changed(&mut self) {
        tokio::select! {
            () = self.node.changed() => {}
            () = self.node_routes.changed() => {}
            () = self.peers.changed() => {}
            () = self.advertisements.changed() => {}
            () = self.pools.changed() => {}
            () = self.services.changed() => {}
            () = self.endpoints.changed() => {}
        }
    }

    /// What is known now, and what is wrong with the configured routers.
    pub fn snapshot(&self, here: Here, written: &mut InForce) -> (Snapshot, Vec<PeerException>) {
        let Here { me, local, learned, own_cidr } = here;
        let exceptions = written.peers.take(&self.peers.snapshot());
        // The leader tells what is wrong with these.
        written.advertisements.take(&self.advertisements.snapshot());
        written.pools.take(&self.pools.snapshot());
        let node: Option<Arc<NodeView>> = self.node.get(me.as_str());
        let snapshot = Snapshot {
            labels: node.map(|node| node.labels.clone()).unwrap_or_default(),
            me,
            local,
            learned,
            own_cidr,
            node_routes: self.node_routes.snapshot(),
            peers: written.peers.in_force(),
            advertisements: written.advertisements.in_force(),
            pools: written.pools.in_force(),
            services: self.services.snapshot(),
            endpoints: self.endpoints.snapshot(),
        };
        (snapshot, exceptions)
    }
}
