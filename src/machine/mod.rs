//! Machines: what the inventory says, shown in the API for people and for tools.
//!
//! One `Machine` for each machine of the inventory in force: its state, which Node it is, or why
//! none. A mismatch of keys and a removal that waits to be acknowledged are told in Events as well.
//!
//! It never reads a `Machine` to decide about a Node, and deletes one only when its machine left an
//! inventory that was taken. It is in no hurry: Nodes are seen to first, and a machine about which
//! something changes all the time waits. Start at [`plan`](plan::plan).

mod apply;
mod observe;
pub mod plan;
mod quiet;
mod work;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;

use crate::cluster::clock;
use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::inventory::InventoryState;
use crate::model::views::NodeView;
use work::Work;

pub use observe::{MachineObject, object};

/// Source of this room's Events.
pub const REPORTER: &str = "cairn-machine-controller";
/// How often everything is looked at without a signal.
const PERIOD: Duration = Duration::from_secs(300);
/// How often it is looked what changed, where something changes all the time.
const PACE: Duration = Duration::from_millis(250);

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

/// Keeps the machines' objects until the future is dropped. Each write is complete in itself, so the
/// future may be dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    context.nodes.synced().await;
    context.objects.synced().await;
    let mut work = Work::new(seed);
    let (mut has_changed, mut next_look) = (true, clock::now());
    loop {
        if has_changed && clock::now() >= next_look || clock::now() >= work.next_full() {
            work.look(&mut context);
            (has_changed, next_look) = (false, clock::now() + PACE);
        }
        work.begin(&context);
        let deadline = if has_changed { work.deadline().min(next_look) } else { work.deadline() };
        tokio::select! {
            answered = work.answered() => work.finish(answered),
            () = changed(&mut context), if !has_changed => has_changed = true,
            () = clock::until(Some(deadline)) => {}
        }
    }
}

/// Waits for a change.
async fn changed(context: &mut Context) {
    let inventory_changed = async {
        if context.inventory.changed().await.is_err() {
            // The process is ending.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = context.nodes.changed() => {}
        () = context.objects.changed() => {}
        () = inventory_changed => {}
    }
}
