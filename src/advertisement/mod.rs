//! Advertisements: each is told what is wrong with it.
//!
//! Three conditions in its status, for the people who wrote it: `Ready` (every field is right),
//! `ResolvedRefs` (the pools and peers it names exist, and each selector of them takes one) and
//! `Conflict` (another one says something else of the same routes). The agents read the objects
//! themselves and wait for none of this.
//!
//! It never changes what is announced, and looks at no Service: what it writes follows from what
//! people wrote of Advertisements, pools and peers. Start at [`plan`](plan::plan).

mod observe;
pub mod plan;

use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use serde_json::json;
use tracing::{debug, warn};

use crate::api::{Advertisement, AdvertisementStatus};
use crate::cluster::backoff::Backoff;
use crate::cluster::clock;
use crate::cluster::patch::{WriteError, merge_status, side_by_side};
use crate::cluster::store::Store;
use crate::cluster::told::Told;
use crate::cluster::written::Written;
use crate::model::AdvertisementName;
use plan::{ObservedAdvertisement, ObservedPool, Plan};

pub use observe::{peer, pool, view};
pub use plan::ObservedPeer;

/// How often everything is looked at without a signal.
const PERIOD: Duration = Duration::from_secs(300);

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
}

/// What the room remembers from one round to the next.
struct Memory {
    written: Written<AdvertisementName, ObservedAdvertisement>,
    backoff: Backoff<AdvertisementName>,
}

/// Tells the Advertisements' authors until the future is dropped. Each write is complete in itself, so
/// the future may be dropped at any time.
pub async fn run(mut context: Context, seed: u64) {
    let mut memory = Memory { written: Written::new(|view| &view.resource_version), backoff: Backoff::new(seed) };
    context.advertisements.synced().await;
    context.pools.synced().await;
    context.peers.synced().await;
    loop {
        let observed = observe::observe(&context, &mut memory.written);
        carry_out(&context, plan::plan(&observed, &now_in_words()), &mut memory).await;
        let period_ends = clock::now() + PERIOD;
        let deadline = memory.backoff.deadline().map_or(period_ends, |retry| retry.min(period_ends));
        tokio::select! {
            () = context.advertisements.changed() => {}
            () = context.pools.changed() => {}
            () = context.peers.changed() => {}
            () = clock::until(Some(deadline)) => {}
        }
    }
}

/// RFC 3339, in whole seconds as conditions have it.
fn now_in_words() -> String {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string()
}

async fn carry_out(context: &Context, plan: Plan, memory: &mut Memory) {
    let Plan { mut statuses } = plan;
    let now = clock::now();
    memory.backoff.keep_only(|name| statuses.contains_key(name));
    statuses.retain(|name, _| memory.backoff.is_due(name, now));
    let api: Api<Advertisement> = Api::all(context.client.clone());
    let api = &api;
    let writes =
        statuses.iter().map(|(name, status)| async move { (name.clone(), write(api, name, status).await) }.boxed());
    for (name, result) in side_by_side(writes.collect()).await {
        match result {
            Ok(view) => {
                memory.backoff.succeeded(&name);
                memory.written.remember(name, view);
            }
            Err(error) => {
                let cause = Told(&error);
                match &error {
                    WriteError::Conflict | WriteError::Gone => {
                        debug!(advertisement = %name, error = %cause, "not written")
                    }
                    _ => warn!(advertisement = %name, error = %cause, "cannot write the status; trying again"),
                }
                memory.backoff.not_written(name, &error, clock::now());
            }
        }
    }
}

async fn write(
    api: &Api<Advertisement>,
    name: &AdvertisementName,
    status: &plan::Written,
) -> Result<ObservedAdvertisement, WriteError> {
    let conditions = AdvertisementStatus { conditions: status.conditions.clone() };
    // Of an object that changed meanwhile, something else may be true.
    let body = json!({ "metadata": { "resourceVersion": status.resource_version }, "status": conditions });
    let written = merge_status(api, name.as_str(), &body).await?;
    view(&written).ok_or(WriteError::Gone)
}
