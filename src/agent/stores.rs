//! What the agent watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::Config;
use kube::{Api, Client};

use crate::agent::mirror::Mirror;
use crate::agent::nodes::{Nodes, Own};
use crate::agent::peers::{self, PeerView, Peers};
use crate::agent::snapshot::{Here, NodeRouteView, Snapshot};
use crate::api::{self, AddressPool, BgpPeer, NodeRoute, PeerException};
use crate::cluster::changes::Changes;
use crate::cluster::store::Store;
use crate::cluster::views;
use crate::config::Advertisement;
use crate::config::last_good::{Checked, LastGood};
use crate::config::pool_view::PoolView;
use crate::model::views::{EndpointView, NodeView, ServiceView};
use crate::model::{Moment, NodeName, Scope};

/// What people write, as it was last right.
#[derive(Debug, Clone, Default)]
pub struct InForce {
    peers: Peers,
    advertisements: LastGood<Advertisement>,
    pools: LastGood<PoolView>,
}

impl InForce {
    /// Goes on after a run that left this: what was changed for the worse since then stays as it was.
    pub fn after(earlier: &Snapshot) -> Self {
        let advertisements = earlier.advertisements.iter();
        let pools = earlier.pools.iter();
        Self {
            peers: Peers::after(&earlier.peers),
            advertisements: LastGood::after(advertisements.map(|it| (it.name.to_string(), Arc::clone(it)))),
            pools: LastGood::after(pools.map(|it| (it.name.to_string(), Arc::clone(it)))),
        }
    }
}

/// Everything the agent watches: its own Node, and of the rest only what it acts on.
#[derive(Debug)]
pub struct Stores {
    scope: Scope,
    /// Its own Node.
    pub node: Store<NodeView>,
    node_routes: Mirror<NodeRouteView>,
    nodes: Nodes,
    peers: Store<PeerView>,
    advertisements: Store<Checked<Advertisement>>,
    pools: Store<Checked<PoolView>>,
    services: Mirror<ServiceView>,
    endpoints: Mirror<EndpointView>,
    /// What stands in for what the API server has not told yet.
    restored: Option<Snapshot>,
    /// Whether anything changed since the state was last kept.
    has_news: bool,
    labels: BTreeMap<String, String>,
    /// This agent's own, 0 to 1: what all agents ask is spread by it.
    dice: f64,
}

impl Stores {
    /// Starts watching; `scope` says which Services are ours.
    pub fn watch(client: &Client, me: &NodeName, scope: Scope) -> Self {
        let own = Config::default().fields(&format!("metadata.name={me}"));
        let load_balancers = Config::default().fields("spec.type=LoadBalancer");
        let not_headless = Config::default().labels("!service.kubernetes.io/headless");
        // A list from the server's cache: it may be seconds old, and the watch that follows it is not.
        let cached = Config::any_semantic;
        Self {
            scope,
            node: Store::watch_news::<Node>(
                Api::all(client.clone()),
                own.any_semantic(),
                views::node,
                NodeView::says_the_same,
            ),
            node_routes: Mirror::of(Store::watch::<NodeRoute>(
                Api::all(client.clone()),
                cached(Config::default()),
                NodeRouteView::of,
            )),
            nodes: Nodes::default(),
            peers: Store::watch::<BgpPeer>(Api::all(client.clone()), cached(Config::default()), peers::peer),
            advertisements: Store::watch::<api::Advertisement>(
                Api::all(client.clone()),
                cached(Config::default()),
                Advertisement::of,
            ),
            pools: Store::watch::<AddressPool>(Api::all(client.clone()), cached(Config::default()), PoolView::of),
            services: Mirror::of(Store::watch::<Service>(
                Api::all(client.clone()),
                cached(load_balancers),
                views::service,
            )),
            endpoints: Mirror::of(Store::watch::<EndpointSlice>(
                Api::all(client.clone()),
                cached(not_headless),
                views::endpoint_slice,
            )),
            restored: None,
            has_news: false,
            labels: BTreeMap::new(),
            dice: fastrand::f64(),
        }
    }

    /// Goes on with the state that was kept, for all that the API server has not told yet.
    pub fn restore(&mut self, kept: Snapshot) {
        if !self.node_routes.is_synced() {
            self.nodes = Nodes::restored(kept.node_routes.clone());
        }
        self.node_routes.seed(&kept.node_routes);
        self.services.seed(&kept.services);
        self.endpoints.seed(&kept.endpoints);
        self.restored = Some(kept);
    }

    /// Whether it is known how every node is reached, be it from before.
    pub fn knows_routes(&self) -> bool {
        self.node_routes.is_known()
    }

    /// Whether everything that announcements follow from is known, be it from before.
    pub fn knows_all(&self) -> bool {
        self.is_synced() || (self.restored.is_some() && self.services.is_known() && self.endpoints.is_known())
    }

    /// Whether all is known and something of it has changed since it was last kept.
    pub fn has_news(&self) -> bool {
        self.has_news && self.is_synced()
    }

    /// It was kept as it is.
    pub fn kept(&mut self) {
        self.has_news = false;
    }

    /// The nodes whose routes are in force, and those that have to be asked about.
    pub fn nodes(&mut self) -> &mut Nodes {
        &mut self.nodes
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
    pub fn snapshot(&mut self, here: Here, written: &mut InForce, now: Moment) -> (Snapshot, Vec<PeerException>) {
        let Here { me, local, learned, stale, own_cidr } = here;
        self.take_routes(&me, now);
        let exceptions = self.take_written(written);
        let restored = self.restored.as_ref();
        let in_force = match restored.filter(|_| !self.peers.is_synced()) {
            Some(kept) => kept.peers.clone(),
            None => written.peers.in_force(),
        };
        let advertisements = match restored.filter(|_| !self.advertisements.is_synced()) {
            Some(kept) => kept.advertisements.clone(),
            None => written.advertisements.in_force(),
        };
        let pools = match restored.filter(|_| !self.pools.is_synced()) {
            Some(kept) => kept.pools.clone(),
            None => written.pools.in_force(),
        };
        let labels = match restored.filter(|_| !self.node.is_synced()) {
            Some(kept) => kept.labels.clone(),
            None => self.node.get(me.as_str()).map(|node| node.labels.clone()).unwrap_or_default(),
        };
        let (services, new_services) = self.services.look();
        let (endpoints, new_endpoints) = self.endpoints.look();
        let has_new_objects = !new_services.is_empty() || !new_endpoints.is_empty();
        self.has_news |= has_new_objects || labels != self.labels;
        self.labels.clone_from(&labels);
        let node_routes = self.nodes.in_force().clone();
        let peers = in_force;
        let snapshot = Snapshot {
            me,
            labels,
            local,
            node_routes,
            peers,
            advertisements,
            pools,
            learned,
            stale,
            own_cidr,
            services,
            endpoints,
            scope: self.scope,
        };
        if self.is_synced() {
            self.restored = None;
        }
        (snapshot, exceptions)
    }

    /// Takes in what people wrote, and tells what is wrong with the routers; of the rest the leader does.
    fn take_written(&mut self, written: &mut InForce) -> Vec<PeerException> {
        // Before they are read: what comes in between is told again.
        let changes = [self.peers.take_changes(), self.advertisements.take_changes(), self.pools.take_changes()];
        self.has_news |= changes.iter().any(|changes| !changes.is_empty());
        // A list that has not come says of no object that it is gone.
        if self.advertisements.is_synced() {
            written.advertisements.take(&self.advertisements.snapshot());
        }
        if self.pools.is_synced() {
            written.pools.take(&self.pools.snapshot());
        }
        if self.peers.is_synced() { written.peers.take(&self.peers.snapshot()) } else { Vec::new() }
    }

    /// Takes in which `NodeRoute`s came and went, and whether the own Node is there.
    fn take_routes(&mut self, me: &NodeName, now: Moment) {
        let (routes, changes) = self.node_routes.look();
        self.has_news |= !changes.is_empty();
        match changes {
            Changes::All => self.nodes.saw_all(&routes, self.dice, now),
            Changes::Keys(names) => {
                for name in names {
                    self.nodes.saw(&name, routes.get(&name).cloned(), self.dice, now);
                }
            }
        }
        let is_gone = self.node.is_synced() && self.node.get(me.as_str()).is_none();
        self.nodes.own(me.as_str(), if is_gone { Own::Gone } else { Own::MayExist });
    }
}
