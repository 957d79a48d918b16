#![expect(clippy::disallowed_methods, reason = "shell: owns the controllers' tasks, seeds their jitter")]
//! The controllers that run in this process, and what `/state` shows of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::HeaderValue;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::election::Election;
use super::state::State;
use super::stores::Stores;
use super::{Identities, Options, lookout};
use crate::cluster::client::{Identity, Server};
use crate::cluster::events::{Events, Reporter, about_lease};
use crate::cluster::identity;
use crate::cluster::store::Store;
use crate::cluster::traffic::IN_FLIGHT;
use crate::config::Controller;
use crate::inventory::InventoryState;
use crate::ipam::survey::Outside;
use crate::leader::{self, Leadership, LeaseConfig};
use crate::model::Note;
use crate::model::views::NodeView;
use crate::route::spec::Responsibility;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::{advertisement, ipam, lifecycle, machine, node, peer, route, service};

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

/// What a controller starts with.
struct Start<'a> {
    options: &'a Options,
    stores: &'a Stores,
    election: &'a Election,
    delay: Duration,
}

/// The rooms of this process, and their tasks.
pub struct Rooms {
    server: Server,
    inventory: watch::Receiver<Arc<InventoryState>>,
    shown: Shown,
    stores: Arc<RwLock<Stores>>,
    tokens: BTreeMap<&'static str, watch::Receiver<Option<HeaderValue>>>,
    /// Whether the Nodes are seen to that wait for this process.
    seen_to: watch::Sender<bool>,
    // Kept, since a task of the process ends only with it.
    leases: Vec<Events>,
    tasks: JoinSet<()>,
}

impl Rooms {
    /// None runs yet.
    pub fn new(server: Server, inventory: watch::Receiver<Arc<InventoryState>>, shown: Shown) -> Self {
        let (stores, tokens, leases, tasks) = (Arc::default(), BTreeMap::new(), Vec::new(), JoinSet::new());
        Self { server, inventory, shown, stores, tokens, seen_to: watch::Sender::new(false), leases, tasks }
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
        if !controllers.contains(&Controller::Node) {
            // Whoever waits, it is not for us.
            self.seen_to.send_replace(true);
        }
        let stores = self.watch(&controllers)?;
        for (place, controller) in (0..).zip(controllers) {
            // As upstream, up to twice as long.
            let delay = options.start_interval.mul_f64(f64::from(place) * (1.0 + fastrand::f64()));
            self.start_one(controller, &Start { options, stores: &stores, election, delay })?;
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
        let client = self.server.client("shared-informers")?;
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        stores.open_for(&client, controllers, &self.seen_to.subscribe());
        Ok(stores.clone())
    }

    fn start_one(&mut self, controller: Controller, start: &Start<'_>) -> anyhow::Result<()> {
        let Some(nodes) = start.stores.nodes.clone() else { return Ok(()) };
        match controller {
            Controller::Node => self.start_nodes(start, nodes),
            Controller::NodeLifecycle => self.start_lifecycle(start, nodes),
            Controller::Service => self.start_services(start, nodes),
            Controller::Route => self.start_routes(start, nodes),
            Controller::NodeIpam => self.start_pod_cidrs(start, nodes),
        }
    }

    /// Machines are shown by whoever sees to Nodes, under the same name.
    fn start_nodes(&mut self, start: &Start<'_>, nodes: Store<NodeView>) -> anyhow::Result<()> {
        let controller = Controller::Node;
        let client = self.client(controller, start, start.options.limits.node_writes)?;
        let teller = self.teller(controller, start)?;
        let seeds = (fastrand::u64(..), fastrand::u64(..));
        let Some(objects) = start.stores.machines.clone() else { return Ok(()) };
        let machine = machine::Context {
            events: self.events(&teller, machine::REPORTER, start.election.identity()),
            client: teller.clone(),
            nodes: nodes.clone(),
            objects,
            inventory: self.inventory.clone(),
        };
        let node = node::Context {
            events: self.events(&teller, node::REPORTER, start.election.identity()),
            client,
            nodes,
            inventory: self.inventory.clone(),
            reports: start.stores.reports.clone(),
            metrics: self.shown.node_metrics.clone(),
            period: start.options.periods.node_status_update,
            seen_to: self.seen_to.clone(),
        };
        self.spawn(controller, start.delay, async move {
            tokio::join!(node::run(node, seeds.0), machine::run(machine, seeds.1));
        });
        Ok(())
    }

    fn start_lifecycle(&mut self, start: &Start<'_>, nodes: Store<NodeView>) -> anyhow::Result<()> {
        let controller = Controller::NodeLifecycle;
        let client = self.client(controller, start, start.options.limits.node_writes)?;
        let teller = self.teller(controller, start)?;
        let context = lifecycle::Context {
            events: self.events(&teller, lifecycle::REPORTER, start.election.identity()),
            client,
            nodes,
            inventory: self.inventory.clone(),
            metrics: self.shown.lifecycle_metrics.clone(),
            period: start.options.periods.node_monitor,
        };
        self.spawn(controller, start.delay, lifecycle::run(context, fastrand::u64(..)));
        Ok(())
    }

    fn start_services(&mut self, start: &Start<'_>, nodes: Store<NodeView>) -> anyhow::Result<()> {
        let controller = Controller::Service;
        let client = self.client(controller, start, start.options.limits.service_writes)?;
        let teller = self.teller(controller, start)?;
        let events = self.events(&teller, service::REPORTER, start.election.identity());
        let Stores { services: Some(services), pools: Some(pools), .. } = start.stores.clone() else { return Ok(()) };
        let Stores { namespaces: Some(namespaces), service_cidrs: Some(service_cidrs), .. } = start.stores.clone()
        else {
            return Ok(());
        };
        let Some(entrances) = entrance_stores(start.stores, &nodes) else { return Ok(()) };
        // Apart from Events, so that a Service's conditions do not wait for those of all.
        let identity = self.identity(controller, start.options.identities)?;
        let teller = self.server.teller("service-conditions", identity, start.election.fence())?;
        let advertisements = advertisements_context(start.stores, &nodes, client.clone());
        let peers = peers_context(start.stores, &nodes, client.clone());
        let cluster_cidrs = start.options.cluster_cidrs.clone();
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
            scope: start.options.scope,
            lease_term: start.election.term(),
        };
        let seeds = (fastrand::u64(..), fastrand::u64(..));
        self.spawn(controller, start.delay, async move {
            let advertisements = async {
                if let Some(context) = advertisements {
                    advertisement::run(context, seeds.0).await;
                }
            };
            let peers = async {
                if let Some(context) = peers {
                    peer::run(context, seeds.1).await;
                }
            };
            tokio::join!(service::run(context, fastrand::u64(..)), advertisements, peers);
        });
        Ok(())
    }

    fn start_routes(&mut self, start: &Start<'_>, nodes: Store<NodeView>) -> anyhow::Result<()> {
        let controller = Controller::Route;
        let client = self.client(controller, start, IN_FLIGHT)?;
        let teller = self.teller(controller, start)?;
        let (Some(routes), Some(reports)) = (start.stores.routes.clone(), start.stores.reports.clone()) else {
            return Ok(());
        };
        let identity = self.identity(controller, start.options.identities)?;
        let context = route::Context {
            events: self.events(&teller, route::REPORTER, start.election.identity()),
            client,
            patient: self.server.patient(controller.account(), identity, start.election.fence())?,
            nodes,
            routes,
            reports,
            responsibility: responsibility(start.options),
            metrics: self.shown.route_metrics.clone(),
            period: start.options.periods.route_reconciliation,
        };
        self.spawn(controller, start.delay, async move { route::run(context, fastrand::u64(..)).await });
        Ok(())
    }

    fn start_pod_cidrs(&mut self, start: &Start<'_>, nodes: Store<NodeView>) -> anyhow::Result<()> {
        let controller = Controller::NodeIpam;
        let client = self.client(controller, start, IN_FLIGHT)?;
        let teller = self.teller(controller, start)?;
        let Stores { claims: Some(claims), pool_blocks: Some(pools), reports: Some(reports), .. } =
            start.stores.clone()
        else {
            return Ok(());
        };
        let Some(cidrs) = start.options.node_cidrs.clone() else { return Ok(()) };
        let context = ipam::Context {
            events: self.events(&teller, ipam::REPORTER, start.election.identity()),
            reader: self.server.client("shared-informers")?,
            client,
            nodes,
            claims,
            pools,
            reports,
            outside: outside(start.options),
            cidrs,
            metrics: self.shown.ipam_metrics.clone(),
        };
        self.spawn(controller, start.delay, async move { ipam::run(context, fastrand::u64(..)).await });
        Ok(())
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
    fn client(&mut self, controller: Controller, start: &Start<'_>, writes: usize) -> anyhow::Result<Client> {
        let identity = self.identity(controller, start.options.identities)?;
        Ok(self.server.writer(controller.account(), identity, writes, start.election.fence())?)
    }

    /// A client that tells as the controller, when nobody has anything to do.
    fn teller(&mut self, controller: Controller, start: &Start<'_>) -> anyhow::Result<Client> {
        let identity = self.identity(controller, start.options.identities)?;
        Ok(self.server.teller(controller.account(), identity, start.election.fence())?)
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
fn advertisements_context(stores: &Stores, nodes: &Store<NodeView>, client: Client) -> Option<advertisement::Context> {
    Some(advertisement::Context {
        client,
        advertisements: stores.advertisements.clone()?,
        pools: stores.pool_labels.clone()?,
        peers: stores.peer_labels.clone()?,
        nodes: nodes.clone(),
        namespaces: stores.namespaces.clone()?,
    })
}

/// BgpPeers as well: what they are for is mostly Services.
fn peers_context(stores: &Stores, nodes: &Store<NodeView>, client: Client) -> Option<peer::Context> {
    Some(peer::Context { client, peers: stores.peers.clone()?, nodes: nodes.clone() })
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
        peers: stores.told_peers.clone()?,
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
