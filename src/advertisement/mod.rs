//! Advertisements: each is told what is wrong with it.
//!
//! Three conditions in its status, for the people who wrote it: `Ready` (every field is right),
//! `ResolvedRefs` (the pools, peers and namespaces it names exist, and each selector takes something) and
//! `Conflict` (another one says something else of the same routes). The agents read the objects
//! themselves and wait for none of this.
//!
//! It never changes what is announced, and looks at no Service: what it writes follows from what
//! people wrote of Advertisements, pools, peers and namespaces, and from the labels of Nodes. Start at [`plan`](plan::plan).

mod observe;
pub mod plan;

use kube::{Api, Client};

use crate::api::Advertisement;
use crate::cluster::clock;
use crate::cluster::conditions::{ConditionWriter, NODES_PACE, now_in_words};
use crate::cluster::store::Store;
use crate::config::selector::Labels;
use crate::model::views::NodeView;
use plan::{ObservedAdvertisement, ObservedPool, Plan};

pub use observe::{peer, pool, view};
pub use plan::ObservedPeer;

/// What the room works with.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// Every `Advertisement`; [`view`] makes the view.
    pub advertisements: Store<ObservedAdvertisement>,
    /// Every `AddressPool`; [`pool`] makes the view.
    pub pools: Store<ObservedPool>,
    /// Every `BgpPeer`; [`peer`] makes the view.
    pub peers: Store<ObservedPeer>,
    /// Every Node, for its labels.
    pub nodes: Store<NodeView>,
    /// Every namespace.
    pub namespaces: Store<Labels>,
}

/// Tells the Advertisements' authors until the future is dropped. Each write is complete in itself, so
/// the future may be dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    let mut writer = ConditionWriter::new(seed, |view: &ObservedAdvertisement| &view.resource_version);
    let api: Api<Advertisement> = Api::all(context.client.clone());
    context.advertisements.synced().await;
    context.pools.synced().await;
    context.peers.synced().await;
    context.nodes.synced().await;
    context.namespaces.synced().await;
    loop {
        let Plan { statuses } = plan::plan(&observe::observe(&context, &mut writer), &now_in_words());
        writer.write(&api, statuses, view).await;
        let now = clock::now();
        tokio::select! {
            () = context.advertisements.changed() => {}
            () = context.pools.changed() => {}
            () = context.peers.changed() => {}
            () = context.namespaces.changed() => {}
            () = context.nodes.changed_not_before(now + NODES_PACE) => {}
            () = clock::until(Some(writer.next_look(now))) => {}
        }
    }
}
