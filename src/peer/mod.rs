//! BgpPeers: each is told what is wrong with it.
//!
//! Three conditions in its status, for the people who wrote it: `Ready` (every field is right, and nodes use it),
//! `ResolvedRefs` (its node selector takes a Node) and `Conflict` (an older one names the same router for the same
//! nodes). The agents read the objects themselves and wait for none of this.
//!
//! It says nothing of sessions: those come and go, and each node's report tells of its own. Start at
//! [`plan`](plan::plan).

mod observe;
pub mod plan;

use kube::{Api, Client};

use crate::api::BgpPeer;
use crate::cluster::clock;
use crate::cluster::conditions::{ConditionWriter, NODES_PACE, now_in_words};
use crate::cluster::store::Store;
use crate::model::views::NodeView;
use plan::{ObservedPeer, Plan};

pub use observe::view;

/// What the room works with.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// Every `BgpPeer`; [`view`] makes the view.
    pub peers: Store<ObservedPeer>,
    /// Every Node, for its labels.
    pub nodes: Store<NodeView>,
}

/// Tells the BgpPeers' authors until the future is dropped. Each write is complete in itself, so the future may be
/// dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    let mut writer = ConditionWriter::new(seed, |view: &ObservedPeer| &view.resource_version);
    let api: Api<BgpPeer> = Api::all(context.client.clone());
    context.peers.synced().await;
    context.nodes.synced().await;
    loop {
        let Plan { statuses } = plan::plan(&observe::observe(&context, &mut writer), &now_in_words());
        writer.write(&api, statuses, view).await;
        let now = clock::now();
        tokio::select! {
            () = context.peers.changed() => {}
            () = context.nodes.changed_not_before(now + NODES_PACE) => {}
            () = clock::until(Some(writer.next_look(now))) => {}
        }
    }
}
