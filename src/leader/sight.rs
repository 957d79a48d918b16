//! A watch on one Lease, which opens itself again.

use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryFutureExt};
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use kube::core::DynamicObject;
use tracing::{debug, warn};

use crate::cluster::clock;
use crate::cluster::told::Told;
use crate::model::Moment;

/// How long the API server keeps a watch open, in seconds.
const OPEN_SECONDS: u32 = 240;
/// A watch that the API server has not ended by then has lost its connection.
const LONGEST: Duration = Duration::from_secs(250);

/// What is to be seen of a Lease. It may lag behind what a read shows.
pub(super) struct Sight {
    api: Api<DynamicObject>,
    name: String,
    pause: Duration,
    stream: Option<(BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>, Moment)>,
    opens: Moment,
    is_dark: bool,
}

impl Sight {
    /// A watch that opens when it is first asked, and again a pause after it ended.
    pub(super) fn new(api: Api<DynamicObject>, name: String, pause: Duration) -> Self {
        Self { api, name, pause, stream: None, opens: clock::now(), is_dark: false }
    }

    /// The next change: the Lease, or `None` when it was deleted. Cancel-safe: what was not taken
    /// stays in the stream.
    pub(super) async fn next(&mut self) -> Option<DynamicObject> {
        loop {
            clock::until(Some(self.opens)).await;
            let (api, name) = (&self.api, &self.name);
            let (stream, opened) = self.stream.get_or_insert_with(|| (open(api.clone(), name), clock::now()));
            let event = tokio::select! {
                event = stream.next() => event,
                () = clock::until(Some(*opened + LONGEST)) => None,
            };
            match event {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    self.is_dark = false;
                    return Some(lease);
                }
                Some(Ok(WatchEvent::Deleted(_))) => return None,
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(status))) => {
                    debug!(lease = self.name, code = status.code, "the watch of the lease was ended");
                    self.close();
                }
                Some(Err(error)) => {
                    // Until then the periodic look goes on as if there were no watch.
                    if !std::mem::replace(&mut self.is_dark, true) {
                        let error = Told(&error);
                        warn!(lease = self.name, %error, "cannot watch the lease; its release is seen later");
                    }
                    self.close();
                }
                None => self.close(),
            }
        }
    }

    fn close(&mut self) {
        self.stream = None;
        self.opens = clock::now() + self.pause;
    }
}

/// Starts with what there is (resource version 0), so that nothing is missed in between.
fn open(api: Api<DynamicObject>, name: &str) -> BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>> {
    let only = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(OPEN_SECONDS);
    async move { api.watch(&only, "0").await.map(StreamExt::boxed) }.boxed().try_flatten_stream().boxed()
}
