#![expect(clippy::disallowed_methods, reason = "shell: owns the controllers' tasks, seeds their jitter")]
//! The controllers that run in this process, and what `/state` shows of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::HeaderValue;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::election::Election;
use super::{Identities, Options, lookout};
use crate::api::{AddressPool, Advertisement, BgpPeer, EntryFlag, Machine, NodeReport, NodeReportStatus, NodeRoute};
use crate::cluster::client::{Identity, Server};
use crate::cluster::events::{Events, Reporter, about_lease};
use crate::cluster::lean::Lean;
use crate::cluster::store::Store;
use crate::cluster::traffic::{Fence, IN_FLIGHT};
use crate::cluster::{identity, views};
use crate::config::last_good::Checked;
use crate::config::pool_view::PoolView;
use crate::config::selector::Labels;
use crate::config::{self, AddressBlock, Controller};
use crate::inventory::InventoryState;
use crate::ipam::plan::Outside;
use crate::leader::{self, Leadership, LeaseConfig};
use crate::model::views::{NodeView, ServiceView};
use crate::model::{Note, Prefix};
use crate::route::spec::Responsibility;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::{advertisement, ipam, lifecycle, machine, node, route, service};

/// What the rooms see of the cluster; each kind is watched once, by the process itself, from when
/// the first room that needs it may act. Nodes are watched before that.
#[derive(Clone, Default)]
struct Stores {
    nodes: Option<Store<NodeView>>,
    machines: Option<Store<machine::MachineObject>>,
    services: Option<Store<ServiceView>>,
    pools: Option<Store<service::pool_status::ObservedPool>>,
    namespaces: Option<Store<Labels>>,
    service_cidrs: Option<Store<Vec<Prefix>>>,
    advertisements: Option<Store<advertisement::plan::ObservedAdvertisement>>,
    pool_labels: Option<Store<advertisement::plan::ObservedPool>>,
    peers: Option<Store<advertisement::ObservedPeer>>,
    routes: Option<Store<route::plan::ObservedRoute>>,
    /// The same routes, for whom only their nodes' entry flags count.
    entries: Option<Store<EntryFlag>>,
    endpoints: Option<Store<service::announced::Endpoints>>,
    /// The same Advertisements and pools, for whom only what is announced counts.
    announcing: Option<Store<Checked<config::Advertisement>>>,
    announced_pools: Option<Store<Checked<PoolView>>>,
    reports: Option<Store<NodeReportStatus>>,
    claims: Option<Store<ipam::claim::Claim>>,
    /// The same pools, for whom only their addresses count.
    pool_blocks: Option<Store<Vec<AddressBlock>>>,
}

/// Where the rooms show how they are.
pub struct Shown {
    /// One check for each that runs.
    pub health: Arc<Health>,
    /// Which run.
    pub metrics: Metrics,
    /// The node room's own.
    pub node_metrics: node::metrics::Metrics,
    /// The lifecycle room's own.
    pub lifecycle_metrics: lifecycle::Metrics,
    /// The route room's own.
    pub route_metrics: route::metrics::Metrics,
    /// The IPAM room's own.
    pub ipam_metrics: ipam::Metrics,
    /// The service room's own.
    pub service_metrics: service::metrics::Metrics,
}

/// The rooms of this process, and their tasks.
pub struct Rooms {
    server: Server,
    inventory: watch::Receiver<Arc<InventoryState>>,
    shown: Shown,
    stores: Arc<RwLock<Stores>>,
    tokens: BTreeMap<&'static str, watch::Receiver<Option<HeaderValue>>>,
    // Kept, since a task of the process ends only with it.
    leases: Vec<Events>,
    tasks: JoinSet<()>,
}

impl Rooms {
    /// None runs yet.
    pub fn new(server: Server, inventory: watch::Receiver<Arc<InventoryState>>, shown: Shown) -> Self {
        let (stores, tokens, leases, tasks) = (Arc::default(), BTreeMap::new(), Vec::new(), JoinSet::new());
        Self { server, inventory, shown, stores, tokens, leases, tasks }
    }

    /// What `/state` shows.
    pub fn state(&self, identity: &str, leadership: watch::Receiver<Leadership>, options: &Options) -> State {
        let (inventory, stores) = (self.inventory.clone(), Arc::clone(&self.stores));
        State { identity: identity.to_owned(), leadership, inventory, routes: responsibility(options), stores }
    }

    /// Looks out for another component that holds another Lease than this one of leader migration.
    ///
    /// # Errors
    /// When the settings for the API server do not work.
    pub fn look_out(&mut self, lease: LeaseConfig) -> anyhow::Result<()> {
        let client = self.server.client("leader-election")?;
        let events = self.events(&client, leader::REPORTER, &lease.identity);
        self.tasks.spawn(lookout::keep(client, lease, events));
        Ok(())
    }

    /// The checks of this process.
    pub fn health(&self) -> &Health {
        &self.shown.health
    }

    /// Begins to watch the Nodes, so that this process knows them when it is elected.
    ///
    /// # Errors
    /// When the settings for the API server do not work.
    pub fn get_ready(&self) -> anyhow::Result<()> {
        self.watch(&BTreeSet::new()).map(drop)
    }

    /// Starts controllers, which act while the election's Lease is held.
    ///
    /// # Errors
    /// When the settings for the API server do not work.
    pub fn start(
        &mut self,
        options: &Options,
        controllers: &BTreeSet<Controller>,
        election: &Election,
    ) -> anyhow::Result<()> {
        if !options.configures_routes && controllers.contains(&Controller::Route) {
            warn!("routes between pods are left alone: --configure-cloud-routes=false");
        }
        let mut controllers = controllers.clone();
        if options.node_cidrs.is_none() {
            controllers.remove(&Controller::NodeIpam);
        }
        if let Some(lease) = election.lease() {
            let client = self.server.client("leader-election")?;
            let note = Note::BecameLeader { identity: lease.identity.clone() };
            let events = self.events(&client, leader::REPORTER, &lease.identity);
            events.tell(about_lease(&lease.namespace, &lease.name), note);
            self.leases.push(events);
        }
        let stores = self.watch(&controllers)?;
        for (place, controller) in (0..).zip(controllers) {
            // As upstream, up to twice as long.
            let delay = options.start_interval.mul_f64(f64::from(place) * (1.0 + fastrand::f64()));
            self.start_one(controller, options, &stores, election, delay)?;
        }
        Ok(())
    }

    /// Waits until a room has ended, which none does by itself.
    ///
    /// # Errors
    /// Always.
    pub async fn ended(&mut self) -> anyhow::Result<()> {
        match self.tasks.join_next().await {
            Some(ended) => {
                ended.context("a room of the controller failed")?;
                bail!("a room of the controller ended by itself")
            }
            // No controller is enabled.
            None => std::future::pending().await,
        }
    }

    /// Ends all of them.
    pub async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }

    /// The stores, with those that these controllers need.
    fn watch(&self, controllers: &BTreeSet<Controller>) -> anyhow::Result<Stores> {
        fn open<T>(store: &mut Option<Store<T>>, is_needed: bool, watch: impl FnOnce() -> Store<T>) {
            if is_needed {
                store.get_or_insert_with(watch);
            }
        }
        let client = &self.server.client("shared-informers")?;
        let [initializes, serves, routes, allocates] =
            [Controller::Node, Controller::Service, Controller::Route, Controller::NodeIpam]
                .map(|name| controllers.contains(&name));
        let reports = initializes || routes || serves || allocates;
        let all = Config::default;
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        open(&mut stores.nodes, true, || {
            let view = |node: &Lean<Node>| views::node(&node.0);
            // Item by item, so that the server sends while we read.
            let config = Config::default().streaming_lists();
            Store::watch_news(Api::all(client.clone()), config, view, NodeView::says_the_same)
        });
        // Nodes that wait are waited for; what is not needed to see to them is asked for after them.
        let Some(nodes) = stores.nodes.clone() else { return Ok(stores.clone()) };
        open(&mut stores.machines, initializes, || {
            Store::watch_after(&nodes, Api::all(client.clone()), all(), |object: &Lean<Machine>| {
                machine::object(&object.0)
            })
        });
        // All of them: one that stops being a load balancer has to be cleaned up.
        open(&mut stores.services, serves, || Store::watch::<Service>(Api::all(client.clone()), all(), views::service));
        open(&mut stores.pools, serves, || Store::watch::<AddressPool>(Api::all(client.clone()), all(), service::pool));
        open(&mut stores.namespaces, serves, || {
            Store::watch::<Namespace>(Api::all(client.clone()), all(), views::namespace)
        });
        open(&mut stores.service_cidrs, serves, || {
            Store::watch::<ServiceCIDR>(Api::all(client.clone()), all(), views::service_cidr)
        });
        open(&mut stores.advertisements, serves, || {
            Store::watch::<Advertisement>(Api::all(client.clone()), all(), advertisement::view)
        });
        // A view of its own: rooms do not know each other's.
        open(&mut stores.pool_labels, serves, || {
            Store::watch::<AddressPool>(Api::all(client.clone()), all(), advertisement::pool)
        });
        open(&mut stores.peers, serves, || {
            Store::watch::<BgpPeer>(Api::all(client.clone()), all(), advertisement::peer)
        });
        // A view of its own, as above.
        open(&mut stores.entries, serves, || {
            Store::watch_after(&nodes, Api::all(client.clone()), all(), |object: &Lean<NodeRoute>| {
                service::entry(&object.0)
            })
        });
        open(&mut stores.endpoints, serves, || {
            let not_headless = all().labels("!service.kubernetes.io/headless");
            Store::watch_after::<EndpointSlice, _>(&nodes, Api::all(client.clone()), not_headless, service::endpoints)
        });
        open(&mut stores.announcing, serves, || {
            Store::watch_after(&nodes, Api::all(client.clone()), all(), config::Advertisement::of)
        });
        open(&mut stores.announced_pools, serves, || {
            Store::watch_after(&nodes, Api::all(client.clone()), all(), PoolView::of)
        });
        open(&mut stores.routes, routes, || {
            Store::watch_after(&nodes, Api::all(client.clone()), all(), |object: &Lean<NodeRoute>| {
                route::route(&object.0)
            })
        });
        open(&mut stores.reports, reports, || {
            Store::watch_after(&nodes, Api::all(client.clone()), all(), |object: &Lean<NodeReport>| {
                route::report(&object.0)
            })
        });
        open(&mut stores.claims, allocates, || {
            let leases: Api<Lease> = Api::namespaced(client.clone(), ipam::claim::NAMESPACE);
            Store::watch(leases, all(), ipam::claim_of)
        });
        open(&mut stores.pool_blocks, allocates, || {
            Store::watch::<AddressPool>(Api::all(client.clone()), all(), ipam::pool)
        });
        Ok(stores.clone())
    }

    fn start_one(
        &mut self,
        controller: Controller,
        options: &Options,
        stores: &Stores,
        election: &Election,
        delay: Duration,
    ) -> anyhow::Result<()> {
        let seed = fastrand::u64(..);
        let (limits, periods) = (options.limits, options.periods);
        let Some(nodes) = stores.nodes.clone() else { return Ok(()) };
        match controller {
            Controller::Node => {
                let clients = (
                    self.client(controller, options.identities, limits.node_writes, election.fence())?,
                    self.teller(controller, options.identities, election.fence())?,
                );
                self.start_node_rooms(clients, nodes, stores, election.identity(), (periods.node_status_update, delay));
            }
            Controller::NodeLifecycle => {
                let client = self.client(controller, options.identities, limits.node_writes, election.fence())?;
                let teller = self.teller(controller, options.identities, election.fence())?;
                let context = lifecycle::Context {
                    events: self.events(&teller, lifecycle::REPORTER, election.identity()),
                    client,
                    nodes,
                    inventory: self.inventory.clone(),
                    metrics: self.shown.lifecycle_metrics.clone(),
                    period: periods.node_monitor,
                };
                self.spawn(controller, delay, lifecycle::run(context));
            }
            Controller::Service => {
                let client = self.client(controller, options.identities, limits.service_writes, election.fence())?;
                let teller = self.teller(controller, options.identities, election.fence())?;
                let events = self.events(&teller, service::REPORTER, election.identity());
                let Stores { services: Some(services), pools: Some(pools), .. } = stores.clone() else { return Ok(()) };
                let Stores { namespaces: Some(namespaces), service_cidrs: Some(service_cidrs), .. } = stores.clone()
                else {
                    return Ok(());
                };
                let Some(entrances) = entrance_stores(stores, &nodes) else { return Ok(()) };
                // Apart from Events, so that a Service's conditions do not wait for those of all.
                let identity = self.identity(controller, options.identities)?;
                let teller = self.server.teller("service-conditions", identity, election.fence())?;
                let advertisements = advertisements_context(stores, client.clone());
                let cluster_cidrs = options.cluster_cidrs.clone();
                let context = service::Context {
                    client,
                    teller,
                    services,
                    pools,
                    nodes,
                    namespaces,
                    service_cidrs,
                    entrances,
                    cluster_cidrs,
                    events,
                    metrics: self.shown.service_metrics.clone(),
                    scope: options.scope,
                    lease_term: election.term(),
                };
                let other_seed = fastrand::u64(..);
                self.spawn(controller, delay, async move {
                    let told = async {
                        if let Some(context) = advertisements {
                            advertisement::run(context, other_seed).await;
                        }
                    };
                    tokio::join!(service::run(context, seed), told);
                });
            }
            Controller::Route => {
                let client = self.client(controller, options.identities, IN_FLIGHT, election.fence())?;
                let teller = self.teller(controller, options.identities, election.fence())?;
                let (Some(routes), Some(reports)) = (stores.routes.clone(), stores.reports.clone()) else {
                    return Ok(());
                };
                let identity = self.identity(controller, options.identities)?;
                let context = route::Context {
                    events: self.events(&teller, route::REPORTER, election.identity()),
                    client,
                    patient: self.server.patient(controller.account(), identity, election.fence())?,
                    nodes,
                    routes,
                    reports,
                    responsibility: responsibility(options),
                    metrics: self.shown.route_metrics.clone(),
                    period: periods.route_reconciliation,
                };
                self.spawn(controller, delay, async move { route::run(context, seed).await });
            }
            Controller::NodeIpam => {
                let client = self.client(controller, options.identities, IN_FLIGHT, election.fence())?;
                let teller = self.teller(controller, options.identities, election.fence())?;
                let Stores { claims: Some(claims), pool_blocks: Some(pools), reports: Some(reports), .. } =
                    stores.clone()
                else {
                    return Ok(());
                };
                let Some(cidrs) = options.node_cidrs.clone() else { return Ok(()) };
                let context = ipam::Context {
                    events: self.events(&teller, ipam::REPORTER, election.identity()),
                    reader: self.server.client("shared-informers")?,
                    client,
                    nodes,
                    claims,
                    pools,
                    reports,
                    outside: outside(options),
                    cidrs,
                    metrics: self.shown.ipam_metrics.clone(),
                };
                self.spawn(controller, delay, async move { ipam::run(context, seed).await });
            }
        }
        Ok(())
    }

    /// Machines are shown by whoever sees to Nodes, under the same name.
    fn start_node_rooms(
        &mut self,
        (client, teller): (Client, Client),
        nodes: Store<NodeView>,
        stores: &Stores,
        instance: &str,
        (period, delay): (Duration, Duration),
    ) {
        let seeds = (fastrand::u64(..), fastrand::u64(..));
        let Some(objects) = stores.machines.clone() else { return };
        let machine = machine::Context {
            events: self.events(&teller, machine::REPORTER, instance),
            client: teller.clone(),
            nodes: nodes.clone(),
            objects,
            inventory: self.inventory.clone(),
        };
        let node = node::Context {
            events: self.events(&teller, node::REPORTER, instance),
            client,
            nodes,
            inventory: self.inventory.clone(),
            reports: stores.reports.clone(),
            metrics: self.shown.node_metrics.clone(),
            period,
        };
        self.spawn(Controller::Node, delay, async move {
            tokio::join!(node::run(node, seeds.0), machine::run(machine, seeds.1));
        });
    }

    fn spawn(&mut self, controller: Controller, delay: Duration, room: impl Future<Output = ()> + Send + 'static) {
        let token = self.tokens.get(controller.account()).cloned();
        let (health, metrics) = (Arc::clone(&self.shown.health), self.shown.metrics.clone());
        self.tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            if let Some(mut token) = token {
                // A closed channel is a shutdown.
                let _ = token.wait_for(Option::is_some).await;
            }
            health.add(controller.name(), || true);
            metrics.started(controller.alias());
            info!(%controller, "controller runs");
            room.await;
        });
    }

    /// A client that writes as the controller.
    fn client(
        &mut self,
        controller: Controller,
        identities: Identities,
        writes: usize,
        fence: Fence,
    ) -> anyhow::Result<Client> {
        let identity = self.identity(controller, identities)?;
        Ok(self.server.writer(controller.account(), identity, writes, fence)?)
    }

    /// A client that tells as the controller, when nobody has anything to do.
    fn teller(&mut self, controller: Controller, identities: Identities, fence: Fence) -> anyhow::Result<Client> {
        let identity = self.identity(controller, identities)?;
        Ok(self.server.teller(controller.account(), identity, fence)?)
    }

    fn identity(&mut self, controller: Controller, identities: Identities) -> anyhow::Result<Identity> {
        let account = controller.account();
        Ok(match identities {
            Identities::One => Identity::Process,
            Identities::PerController => {
                let root = self.server.client("service-accounts")?;
                let tasks = &mut self.tasks;
                let token = self.tokens.entry(account).or_insert_with(|| identity::keep(root, account, tasks));
                Identity::Token(token.clone())
            }
        })
    }

    fn events(&mut self, client: &Client, controller: &'static str, instance: &str) -> Events {
        let reporter = Reporter { controller, instance: instance.to_owned() };
        Events::start(client.clone(), reporter, &mut self.tasks)
    }
}

/// Advertisements are told by whoever serves Services, under the same name.
fn advertisements_context(stores: &Stores, client: Client) -> Option<advertisement::Context> {
    Some(advertisement::Context {
        client,
        advertisements: stores.advertisements.clone()?,
        pools: stores.pool_labels.clone()?,
        peers: stores.peers.clone()?,
    })
}

/// What announcements follow from, with news of its own.
fn entrance_stores(stores: &Stores, nodes: &Store<NodeView>) -> Option<service::EntranceStores> {
    Some(service::EntranceStores {
        nodes: nodes.clone(),
        entries: stores.entries.clone()?,
        reports: stores.reports.clone()?,
        endpoints: stores.endpoints.clone()?,
        advertisements: stores.announcing.clone()?,
        pools: stores.announced_pools.clone()?,
    })
}

/// Which routes the flags leave to us.
fn responsibility(options: &Options) -> Responsibility {
    match options.configures_routes {
        true if options.cluster_cidrs.is_empty() => Responsibility::Everything,
        true => Responsibility::Within(options.cluster_cidrs.clone()),
        false => Responsibility::Nothing,
    }
}

/// Who tells of a pod CIDR outside the cluster CIDRs.
fn outside(options: &Options) -> Outside {
    match responsibility(options) {
        Responsibility::Within(_) if options.controllers.contains(&Controller::Route) => Outside::ToldByRoutes,
        _ => Outside::Told,
    }
}

/// What the process sees now.
pub struct State {
    identity: String,
    leadership: watch::Receiver<Leadership>,
    inventory: watch::Receiver<Arc<InventoryState>>,
    routes: Responsibility,
    stores: Arc<RwLock<Stores>>,
}

impl State {
    /// The page, made anew each time somebody asks for it.
    pub fn into_page(self) -> Box<dyn Fn() -> Value + Send + Sync> {
        Box::new(move || self.show())
    }

    /// All of it. Stores but that of the Nodes are there on a leader only.
    fn show(&self) -> Value {
        let inventory = self.inventory.borrow().clone();
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner).clone();
        json!({
            "identity": self.identity,
            "leadership": *self.leadership.borrow(),
            "inventory": {
                "machines": inventory.inventory.as_ref().map(|inventory| inventory.machines().collect::<Vec<_>>()),
                "faults": inventory.faults.to_string(),
                "heldRemovals": inventory.removals,
            },
            "routes": self.routes,
            "observed": {
                "nodes": stores.nodes.as_ref().map(Store::snapshot),
                "services": stores.services.as_ref().map(Store::snapshot),
                "pools": stores.pools.as_ref().map(Store::snapshot),
                "advertisements": stores.advertisements.as_ref().map(Store::snapshot),
                "peers": stores.peers.as_ref().map(Store::snapshot),
                "nodeRoutes": stores.routes.as_ref().map(Store::snapshot),
                "nodeReports": stores.reports.as_ref().map(Store::snapshot),
            },
        })
    }
}
