#![expect(clippy::disallowed_methods, reason = "shell: owns the election's thread")]
//! This process's part in the election for one Lease, or that there is none.
//!
//! It has a thread and connections of its own: whatever rooms plan, and however long, no renewal waits for it.

use std::time::Duration;

use anyhow::{Context, bail};
use kube::Client;
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tracing::warn;

use crate::cluster::client::Server;
use crate::cluster::clock;
use crate::cluster::events::{self, Reporter, about_lease};
use crate::cluster::traffic::Fence;
use crate::leader::{self, End, Leadership, LeaseConfig};
use crate::model::Note;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

/// How long giving the Lease back may take; after that it runs out by itself.
const RELEASE: Duration = Duration::from_millis(1200);
/// How long the last Event may take; the process ends without it.
const FAREWELL: Duration = Duration::from_millis(500);

/// A stand for one Lease; dropping it ends it without giving anything back.
pub struct Election {
    leadership: watch::Receiver<Leadership>,
    identity: String,
    held: Option<Held>,
    // Without a Lease nothing else keeps the channel open.
    _leader: Option<watch::Sender<Leadership>>,
}

struct Held {
    lease: LeaseConfig,
    client: Client,
    release: watch::Sender<bool>,
    ended: oneshot::Receiver<End>,
    has_led: bool,
    /// The thread goes when this does.
    _thread: oneshot::Sender<()>,
}

impl Election {
    /// Stands for the Lease; without one, this process leads at once.
    ///
    /// # Errors
    /// When the settings for the API server do not work, or the system has no room for a thread.
    pub fn stand(server: &Server, lease: Option<&LeaseConfig>, metrics: &leader::Metrics) -> anyhow::Result<Self> {
        let Some(config) = lease else {
            let (leader, leadership) = watch::channel(Leadership::ALONE);
            return Ok(Self { leadership, identity: leader::identity(), held: None, _leader: Some(leader) });
        };
        let (elected, leadership) = watch::channel(Leadership::Candidate);
        let (release, released) = watch::channel(false);
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        // What the client does in the background belongs to that thread as well.
        let client = {
            let _entered = runtime.enter();
            server.election_client()?
        };
        let hold = leader::hold(client.clone(), config.clone(), elected, released, metrics.clone());
        let (end, ended) = oneshot::channel();
        let (thread, gone) = oneshot::channel();
        let name = format!("election-{}", config.name);
        std::thread::Builder::new().name(name).spawn(move || runtime.block_on(until_gone(hold, end, gone)))?;
        let held = Held { lease: config.clone(), client, release, ended, has_led: false, _thread: thread };
        Ok(Self { leadership, identity: config.identity.clone(), held: Some(held), _leader: None })
    }

    /// What this process is.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// How long a write may take that begins now: as long as nobody else can lead.
    pub fn fence(&self) -> Fence {
        let leadership = self.leadership();
        Fence::new(move || leadership.borrow().time_left(clock::now()))
    }

    /// The term in which this process leads; zero before it does, and without a Lease.
    pub fn term(&self) -> u64 {
        self.leadership.borrow().term().unwrap_or_default()
    }

    /// Who it is, in the Lease and in Events.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The Lease, if there is one.
    pub fn lease(&self) -> Option<&LeaseConfig> {
        self.held.as_ref().map(|held| &held.lease)
    }

    /// The Lease's name; empty where there is none.
    pub fn lease_name(&self) -> &str {
        self.lease().map_or("", |lease| lease.name.as_str())
    }

    /// Adds a check: well for whoever waits, or leads and has renewed not too long ago.
    pub fn watch_over(&self, health: &Health, check: &str) {
        if let Some(held) = &self.held {
            let (leadership, timing) = (self.leadership(), held.lease.timing);
            health.add(check, move || match *leadership.borrow() {
                Leadership::Candidate => true,
                Leadership::Leader { renewed, .. } => !timing.is_overdue(renewed, clock::now()),
                Leadership::Over => false,
            });
        }
    }

    /// Waits until this process leads.
    ///
    /// # Errors
    /// When it never will.
    pub async fn won(&mut self, metrics: &Metrics) -> anyhow::Result<()> {
        if let Some(lease) = self.lease() {
            metrics.leads(&lease.name, false);
        }
        let mut leadership = self.leadership();
        let role = *leadership.wait_for(|role| *role != Leadership::Candidate).await.context("the election ended")?;
        if role == Leadership::Over {
            bail!("leaderelection lost before it was won: lease {}", self.lease_name());
        }
        if let Some(held) = &mut self.held {
            held.has_led = true;
            metrics.leads(&held.lease.name, true);
        }
        Ok(())
    }

    /// Waits until this process does not lead any more.
    pub async fn lost(&self) {
        // An election that has ended without a word is as good as lost.
        let _ = self.leadership().wait_for(|role| *role == Leadership::Over).await;
    }

    /// Gives the Lease back, if it is held.
    pub async fn release(&mut self) {
        let Some(held) = &mut self.held else { return };
        held.release.send_replace(true);
        if tokio::time::timeout(RELEASE, &mut held.ended).await.is_err() {
            warn!(lease = held.lease.name, "the lease could not be given back in time; it runs out by itself");
        }
    }

    /// Says in an Event that this process does not lead any more, if it ever did: after the release,
    /// which others wait for, and by the election's connection, as no other sends anything any more.
    pub async fn say_goodbye(&self) {
        let Some(held) = self.held.as_ref().filter(|held| held.has_led) else { return };
        let identity = held.lease.identity.clone();
        let reporter = Reporter { controller: leader::REPORTER, instance: identity.clone() };
        let lease = about_lease(&held.lease.namespace, &held.lease.name);
        let note = Note::StoppedLeading { identity };
        let event = events::send(&held.client, &reporter, lease, &note);
        // Without it nobody misses anything but a line in `kubectl describe`.
        let _ = tokio::time::timeout(FAREWELL, event).await;
    }
}

/// Takes part until it ends, and then sees to the client's connections for as long as someone may use it.
async fn until_gone(hold: impl Future<Output = End>, end: oneshot::Sender<End>, gone: oneshot::Receiver<()>) {
    let held = async {
        // Nobody has to wait for it.
        let _ = end.send(hold.await);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = held => {}
        _ = gone => {}
    }
}
