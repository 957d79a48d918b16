//! Machines: what the inventory says, shown in the API for people and for tools.
//!
//! One `Machine` for each machine of the inventory in force: its state, which Node it is, or why
//! none. A mismatch of keys and a removal that waits to be acknowledged are told in Events as well.
//!
//! It never reads a `Machine` to decide about a Node, and deletes one only when its machine left an
//! inventory that was taken. It is in no hurry: Nodes are seen to first. Start at [`plan`](plan::plan).

mod apply;
mod observe;
pub mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::cluster::backoff::Backoff;
use crate::cluster::clock;
use crate::cluster::events::{Events, News, about_machine};
use crate::cluster::patch::WriteError;
use crate::cluster::store::Store;
use crate::cluster::told::Told;
use crate::cluster::written::Written;
use crate::inventory::InventoryState;
use crate::model::views::NodeView;
use crate::model::{MachineId, Moment};
use plan::Plan;

pub use observe::{MachineObject, object};

/// Source of this room's Events.
pub const REPORTER: &str = "cairn-machine-controller";
/// How often everything is looked at without a signal.
const PERIOD: Duration = Duration::from_secs(300);
/// How long nothing may change before it is written: a Node that joins changes several times, and when
/// thousands join, what they wait for comes first.
const QUIET: Duration = Duration::from_secs(2);
/// How long a change waits at most where there never is quiet.
const LONGEST: Duration = Duration::from_secs(30);

/// What the room works with.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// Every Node.
    pub nodes: Store<NodeView>,
    /// Every `Machine`; [`object`] makes the view.
    pub objects: Store<MachineObject>,
    /// The inventory in force.
    pub inventory: watch::Receiver<Arc<InventoryState>>,
    /// Where to tell what has to be seen to.
    pub events: Events,
}

/// What the room remembers from one round to the next.
struct Memory {
    written: Written<MachineId, MachineObject>,
    backoff: Backoff<MachineId>,
    news: News<MachineId>,
    trust: Trust,
}

/// Against what an inventory is held that lost many machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// Against the objects: this process has taken no inventory from another yet.
    Objects,
    /// Against the files before it, which its reader has done.
    Files,
}

/// Keeps the machines' objects until the future is dropped. Each write is complete in itself, so the
/// future may be dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    let mut memory = Memory {
        written: Written::new(|object| &object.resource_version),
        backoff: Backoff::new(seed),
        news: News::default(),
        trust: Trust::Objects,
    };
    context.nodes.synced().await;
    context.objects.synced().await;
    loop {
        settle(&mut context).await;
        let objects = observe::objects(&context, &mut memory);
        let observed = observe::observe(&mut context, &objects, memory.trust);
        if observed.machines.is_some() && observed.held.is_empty() {
            memory.trust = Trust::Files;
        }
        let plan = plan::plan(&observed, &now_in_words());
        tell(&context, &objects, &plan, &mut memory);
        carry_out(&context, plan, &mut memory).await;
        let period_ends = clock::now() + PERIOD;
        let deadline = memory.backoff.deadline().map_or(period_ends, |retry| retry.min(period_ends));
        signal(&mut context, deadline).await;
    }
}

/// RFC 3339, in whole seconds as conditions have it.
fn now_in_words() -> String {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string()
}

/// Waits until nothing has changed for a while.
async fn settle(context: &mut Context) {
    let latest = clock::now() + LONGEST;
    while let Signal::Changed = signal(context, latest.min(clock::now() + QUIET)).await {
        if clock::now() >= latest {
            return;
        }
    }
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    Changed,
    Due,
}

/// Waits for a change, or for a moment.
async fn signal(context: &mut Context, deadline: Moment) -> Signal {
    let inventory_changed = async {
        if context.inventory.changed().await.is_err() {
            // The process is ending.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = context.nodes.changed() => Signal::Changed,
        () = context.objects.changed() => Signal::Changed,
        () = inventory_changed => Signal::Changed,
        () = clock::until(Some(deadline)) => Signal::Due,
    }
}

fn tell(context: &Context, objects: &BTreeMap<MachineId, Arc<MachineObject>>, plan: &Plan, memory: &mut Memory) {
    for (id, note) in memory.news.of(&plan.notes) {
        warn!(machine = %id, reason = note.reason(), error = %note, "someone has to see to this machine");
        let uid = objects.get(&id).map(|object| object.uid.clone());
        context.events.tell(about_machine(&id, uid), note);
    }
}

async fn carry_out(context: &Context, plan: Plan, memory: &mut Memory) {
    let Plan { mut actions, notes: _ } = plan;
    let now = clock::now();
    memory.backoff.keep_only(|id| actions.contains_key(id));
    actions.retain(|id, _| memory.backoff.is_due(id, now));
    for (id, result) in apply::apply(&context.client, &actions).await {
        match result {
            Ok(object) => {
                memory.backoff.succeeded(&id);
                object.into_iter().for_each(|object| memory.written.remember(id.clone(), object));
            }
            Err(error) => {
                let cause = Told(&error);
                match &error {
                    WriteError::Conflict | WriteError::Gone => debug!(machine = %id, error = %cause, "not written"),
                    _ => warn!(machine = %id, error = %cause, "cannot write the machine; trying again"),
                }
                memory.backoff.failed(id, clock::now());
            }
        }
    }
}
