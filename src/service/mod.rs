//! Services of type LoadBalancer: each gets addresses from the pools, and keeps them.
//!
//! The Service's status is the hand-over to the agents, which announce what stands there. One write
//! puts finalizer and addresses in place; one takes both away again. What its [`conditions`] say is told
//! apart, when nobody waits for an address.
//!
//! It never takes an address from a living Service (but one that is a Node's), never gives one to two
//! that cannot share it, never serves a Service of another class, and decides nothing before it knows
//! every Service, every pool, every namespace and every Node. One Service's change costs a look at that
//! Service and at those that it makes room for. Start at [`plan`] (what to write to one Service) and
//! [`allocator`] (which address it has); `desk` has what is to be written and what is on its way.

pub mod allocator;
pub mod announced;
mod apply;
#[cfg(test)]
mod cases;
pub mod conditions;
mod desk;
pub mod explain;
mod leaving;
#[cfg(test)]
mod metallb;
pub mod metrics;
mod misspelt;
mod observe;
pub mod pace;
pub mod plan;
mod pool_desk;
pub mod pool_status;
pub mod request;
pub mod selection;
#[cfg(test)]
mod simulation;
pub mod term;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tracing::{info, warn};

use crate::cluster::changes::Changes;
use crate::cluster::clock;
use crate::cluster::events::{Events, about_service};
use crate::cluster::store::Store;
use crate::config::selector::Labels;
use crate::model::views::{NodeView, ServiceView};
use crate::model::{NodeName, Note, PoolName, Prefix, Scope, ServiceKey, Severity};
use allocator::{News, Now};
use desk::{Answered, Desk, Write};
use pool_status::ObservedPool;

pub use observe::{EntranceStores, endpoints, entry, peer, pool};

/// Source of this room's Events, as upstream's service controller names itself.
pub const REPORTER: &str = "service-controller";
/// How often the time is looked at without a reason.
const PERIOD: Duration = Duration::from_secs(300);

/// What the room works with.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// The way for what is only told of Services: their conditions.
    pub teller: Client,
    /// Every Service.
    pub services: Store<ServiceView>,
    /// Every pool; [`pool`] makes the view.
    pub pools: Store<ObservedPool>,
    /// Every Node: their addresses and their pods' are no Service's.
    pub nodes: Store<NodeView>,
    /// The labels of every namespace, by which pools select.
    pub namespaces: Store<Labels>,
    /// The ranges of cluster IPs; a server that has no such kind never lists them.
    pub service_cidrs: Store<Vec<Prefix>>,
    /// What announcements follow from.
    pub entrances: EntranceStores,
    /// The ranges of all pods (`--cluster-cidr`).
    pub cluster_cidrs: Vec<Prefix>,
    /// Where to tell what was done.
    pub events: Events,
    /// Where to count it.
    pub metrics: metrics::Metrics,
    /// Which Services are ours.
    pub scope: Scope,
    /// `spec.leaseTransitions` of the Lease under which this process leads.
    pub lease_term: u64,
}

/// Sees to the Services until the future is dropped. Each write is complete in itself, so the
/// future may be dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    let mut desk = Desk::new(seed, context.scope, context.lease_term);
    let mut on_their_way = FuturesUnordered::<BoxFuture<'static, Answered>>::new();
    let mut shown = metrics::Shown::new(context.metrics.clone());
    context.services.synced().await;
    context.pools.synced().await;
    context.nodes.synced().await;
    context.namespaces.synced().await;
    let mut is_first = true;
    loop {
        hear(&mut context, &mut desk, &mut shown, is_first);
        is_first = false;
        for write in desk.writes(now()) {
            let client = if matches!(write, Write::Conditions(..)) { &context.teller } else { &context.client };
            on_their_way.push(Box::pin(send(client.clone(), write)));
        }
        for (service, note) in desk.words() {
            tell(&context.events, &service, note);
        }
        let period_ends = clock::now() + PERIOD;
        let deadline = desk.deadline().map_or(period_ends, |due| due.min(period_ends));
        tokio::select! {
            Some(answered) = on_their_way.next() => {
                if matches!(answered, Answered::Service(_, _, Ok(_))) {
                    context.metrics.synced();
                }
                desk.answered(answered, now());
            }
            () = context.services.changed() => {}
            () = context.pools.changed() => {}
            () = context.nodes.changed() => {}
            () = context.namespaces.changed() => {}
            () = context.service_cidrs.changed() => {}
            () = context.entrances.changed() => {}
            () = clock::until(Some(deadline)) => {}
        }
    }
}

fn now() -> Now {
    Now { moment: clock::now(), unix_seconds: Timestamp::now().as_second() }
}

/// Puts on the desk what changed in the stores.
fn hear(context: &mut Context, desk: &mut Desk, shown: &mut metrics::Shown, is_first: bool) {
    let services: BTreeSet<ServiceKey> = match context.services.take_changes() {
        Changes::Keys(names) => names.iter().filter_map(|name| name.parse().ok()).collect(),
        Changes::All => {
            let all = context.services.with(|all| all.values().map(|view| view.key.clone()).collect::<Vec<_>>());
            desk.known().cloned().chain(all).collect()
        }
    };
    let services = context.services.with(|all| {
        let view = |key: &ServiceKey| all.get(&key.to_string()).cloned();
        services.into_iter().map(|key| (key.clone(), view(&key))).collect()
    });
    let pools = (!context.pools.take_changes().is_empty()).then(|| pools(context));
    if let Some(pools) = &pools {
        shown.show(pools.iter().map(|(name, pool)| (name, &pool.status)));
    }
    let cidrs = (!context.service_cidrs.take_changes().is_empty() || is_first).then(|| cidrs(context));
    let nodes: BTreeSet<NodeName> = match context.nodes.take_changes() {
        Changes::Keys(names) => names.iter().filter_map(|name| name.parse().ok()).collect(),
        Changes::All => {
            let all = context.nodes.with(|all| all.values().map(|node| node.name.clone()).collect::<Vec<_>>());
            desk.ledger().nodes().cloned().chain(all).collect()
        }
    };
    let nodes = nodes.into_iter().map(|name| {
        let facts = context.nodes.get(name.as_str()).map(|node| plan::facts(&node));
        (name, facts)
    });
    let namespaces = match context.namespaces.take_changes() {
        Changes::Keys(names) => names,
        Changes::All => {
            let all = context.namespaces.with(|all| all.keys().cloned().collect::<Vec<_>>());
            desk.ledger().namespaces().cloned().chain(all).collect()
        }
    };
    let namespaces = namespaces.into_iter().map(|name| {
        let labels = context.namespaces.get(&name).map(|labels| Labels::clone(&labels));
        (name, labels)
    });
    let news = News { nodes: nodes.collect(), namespaces: namespaces.collect(), cidrs, ..News::default() };
    desk.hear(services, pools, news, now());
    if context.entrances.is_synced() {
        desk.hear_entrances(|entrances, concerned| context.entrances.look(entrances, concerned), now());
    }
}

fn pools(context: &Context) -> BTreeMap<PoolName, Arc<ObservedPool>> {
    context
        .pools
        .with(|all| all.iter().filter_map(|(name, pool)| Some((name.parse().ok()?, Arc::clone(pool)))).collect())
}

/// The ranges that the cluster has as a whole, and what each is.
fn cidrs(context: &Context) -> BTreeMap<Prefix, String> {
    let of_pods = context.cluster_cidrs.iter().map(|cidr| (*cidr, "the pods (--cluster-cidr)".to_owned()));
    let of_services = context.service_cidrs.snapshot().into_iter().flat_map(|(name, cidrs)| {
        let what = of_service_cidr(&name);
        cidrs.iter().map(|cidr| (*cidr, what.clone())).collect::<Vec<_>>()
    });
    of_pods.chain(of_services).collect()
}

/// What the ranges of a ServiceCIDR are.
pub fn of_service_cidr(name: &str) -> String {
    format!("the cluster IPs of Services (ServiceCIDR {name})")
}

async fn send(client: Client, write: Write) -> Answered {
    match write {
        Write::Service(key, action) => {
            let result = apply::service(&client, &key, &action).await.map(Box::new);
            Answered::Service(key, action, result)
        }
        Write::Pool(name, version, status) => {
            let result = apply::pool(&client, &name, &version, &status).await.map(Box::new);
            Answered::Pool(name, result)
        }
        Write::Conditions(key, version, list) => {
            let result = apply::conditions(&client, &key, &version, &list).await.map(Box::new);
            Answered::Conditions(key, result)
        }
    }
}

fn tell(events: &Events, service: &ServiceView, note: Note) {
    let key = &service.key;
    match note.severity() {
        Severity::Normal => info!(service = %key, reason = note.reason(), "service changed"),
        // The desk logs each try.
        Severity::Warning if matches!(note, Note::ServiceNotWritten { .. }) => {}
        Severity::Warning => {
            warn!(service = %key, reason = note.reason(), error = %note, "service not served as asked")
        }
    }
    events.tell(about_service(service), note);
}
