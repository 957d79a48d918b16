//! Services of type LoadBalancer: each gets addresses from the pools, and keeps them.
//!
//! The Service's status is the hand-over to the agents, which announce what stands there. One write
//! puts finalizer and addresses in place; one takes both away again.
//!
//! It never takes an address from a living Service (but one that is a Node's), never gives one to two,
//! never serves a Service of another class, and decides nothing before it knows every Service, every
//! pool and every Node. Start at
//! [`plan`](plan::plan); [`allocator`] is the heart of it.

pub mod allocator;
mod apply;
mod observe;
pub mod plan;
pub mod request;

use std::time::Duration;

use kube::Client;
use tracing::{debug, info, warn};

use crate::cluster::backoff::Backoff;
use crate::cluster::clock;
use crate::cluster::events::{Events, News, about_service};
use crate::cluster::patch::WriteError;
use crate::cluster::store::Store;
use crate::cluster::told::Told;
use crate::cluster::written::Written;
use crate::model::views::{NodeView, ServiceView};
use crate::model::{Note, PoolName, ServiceKey, Severity};
use plan::{Observed, ObservedPool, Plan};

pub use observe::pool;

/// Source of this room's Events, as upstream's service controller names itself.
pub const REPORTER: &str = "service-controller";
/// How often everything is looked at without a signal.
const PERIOD: Duration = Duration::from_secs(300);

/// What the room works with.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// Every Service.
    pub services: Store<ServiceView>,
    /// Every pool; [`pool`] makes the view.
    pub pools: Store<ObservedPool>,
    /// Every Node: their addresses are no Service's.
    pub nodes: Store<NodeView>,
    /// Where to tell what was done.
    pub events: Events,
}

/// What the room remembers from one round to the next.
struct Memory {
    services: Written<ServiceKey, ServiceView>,
    pools: Written<PoolName, ObservedPool>,
    backoff: Backoff<Object>,
    news: News<ServiceKey>,
}

/// What a write is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Service(ServiceKey),
    Pool(PoolName),
}

/// Sees to the Services until the future is dropped. Each write is complete in itself, so the
/// future may be dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    let mut memory = Memory {
        services: Written::new(|view| &view.resource_version),
        pools: Written::new(|pool| &pool.resource_version),
        backoff: Backoff::new(seed),
        news: News::default(),
    };
    context.services.synced().await;
    context.pools.synced().await;
    context.nodes.synced().await;
    loop {
        let observed = observe::observe(&context, &mut memory);
        let plan = plan::plan(&observed);
        carry_out(&context, &observed, plan, &mut memory).await;
        let period_ends = clock::now() + PERIOD;
        let deadline = memory.backoff.deadline().map_or(period_ends, |retry| retry.min(period_ends));
        tokio::select! {
            () = context.services.changed() => {}
            () = context.pools.changed() => {}
            () = context.nodes.changed() => {}
            () = clock::until(Some(deadline)) => {}
        }
    }
}

async fn carry_out(context: &Context, observed: &Observed, plan: Plan, memory: &mut Memory) {
    let Plan { mut actions, mut pools, notes } = plan;
    let now = clock::now();
    memory.backoff.keep_only(|object| match object {
        Object::Service(key) => actions.contains_key(key),
        Object::Pool(name) => pools.contains_key(name),
    });
    actions.retain(|key, _| memory.backoff.is_due(&Object::Service(key.clone()), now));
    pools.retain(|name, _| memory.backoff.is_due(&Object::Pool(name.clone()), now));
    for (key, result) in apply::services(&context.client, &actions).await {
        if let Ok(view) = settle(memory, Object::Service(key.clone()), result) {
            memory.services.remember(key.clone(), view);
            if let Some(note) = actions.get(&key).and_then(|action| action.note.clone()) {
                tell(context, observed, &key, note);
            }
        }
    }
    for (name, result) in apply::pools(&context.client, observed, &pools).await {
        if let Ok(pool) = settle(memory, Object::Pool(name.clone()), result) {
            memory.pools.remember(name, pool);
        }
    }
    for (key, note) in memory.news.of(&notes) {
        tell(context, observed, &key, note);
    }
}

/// Notes whether a write went well.
fn settle<V>(memory: &mut Memory, object: Object, result: Result<V, WriteError>) -> Result<V, ()> {
    let error = match result {
        Ok(view) => {
            memory.backoff.succeeded(&object);
            return Ok(view);
        }
        Err(error) => error,
    };
    let (cause, is_ordinary) = (Told(&error), matches!(error, WriteError::Conflict | WriteError::Gone));
    match &object {
        _ if is_ordinary => debug!(?object, error = %cause, "not written"),
        Object::Service(key) => warn!(service = %key, error = %cause, "cannot write the status; trying again"),
        Object::Pool(name) => warn!(pool = %name, error = %cause, "cannot write the status; trying again"),
    }
    memory.backoff.failed(object, clock::now());
    Err(())
}

fn tell(context: &Context, observed: &Observed, key: &ServiceKey, note: Note) {
    match note.severity() {
        Severity::Normal => info!(service = %key, reason = note.reason(), "service changed"),
        Severity::Warning => {
            warn!(service = %key, reason = note.reason(), error = %note, "service not served as asked")
        }
    }
    if let Some(service) = observed.services.get(key) {
        context.events.tell(about_service(service), note);
    }
}
