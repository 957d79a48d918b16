#![expect(clippy::disallowed_methods, reason = "shell: owns the sessions' tasks")]
//! Owns the sessions: one task for each wished peer, ended by itself when it no longer is.
//!
//! ```text
//! agent ── watch<Arc<Desired>> ──► speaker ── starts, joins ──► session (one a peer)
//!   ▲                      └────────────────────────────────────►   │
//!   └─────────────────────── watch<SpeakerStatus> ◄─────────────────┘
//! ```
//! Every session reads the wish itself and takes its own part of it. The speaker starts what is
//! missing; both its waits, a change of the wish and the end of a task, are cancel-safe.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;
use tracing::error;

use crate::model::PeerName;

use super::desired::Desired;
use super::session::{self, Start};
use super::status::SpeakerStatus;

/// How long all sessions together may take to say goodbye.
const FAREWELL_LIMIT: Duration = Duration::from_millis(950);

/// Speaks with every wished peer until the wish's sender is dropped.
///
/// Then each session says Cease / Administrative Shutdown (RFC 4486) and closes; it returns when
/// all have, within a second. Dropping the future aborts the sessions without a word.
pub async fn run(mut desired: watch::Receiver<Arc<Desired>>, status: watch::Sender<SpeakerStatus>) {
    let mut speaker = Speaker { desired: desired.clone(), status, tasks: JoinSet::new(), names: BTreeMap::new() };
    desired.mark_changed();
    loop {
        tokio::select! {
            // First, so that no session is started anew while all of them end.
            biased;
            changed = desired.changed() => match changed {
                Ok(()) => {
                    let wish = desired.borrow_and_update().clone();
                    speaker.start_missing(&wish);
                }
                Err(_) => break,
            },
            Some(ended) = speaker.tasks.join_next_with_id() => speaker.ended(ended),
        }
    }
    // What has not said goodbye by then is aborted with the set.
    let _ = timeout(FAREWELL_LIMIT, async { while speaker.tasks.join_next().await.is_some() {} }).await;
}

struct Speaker {
    desired: watch::Receiver<Arc<Desired>>,
    status: watch::Sender<SpeakerStatus>,
    tasks: JoinSet<()>,
    names: BTreeMap<Id, PeerName>,
}

impl Speaker {
    fn start_missing(&mut self, wish: &Desired) {
        for name in wish.peers.keys() {
            if !self.names.values().any(|running| running == name) {
                self.start(name.clone(), Start::AtOnce);
            }
        }
    }

    fn start(&mut self, name: PeerName, start: Start) {
        let session = session::run(name.clone(), start, self.desired.clone(), self.status.clone());
        let id = self.tasks.spawn(session).id();
        self.names.insert(id, name);
    }

    /// Forgets a session that ended, or starts it anew where it is wished (again).
    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let (id, start) = match &ended {
            Ok((id, ())) => (*id, Start::AtOnce),
            Err(crash) => (crash.id(), Start::AfterCrash),
        };
        let Some(name) = self.names.remove(&id) else { return };
        if let Err(crash) = ended {
            error!(peer = %name, error = %crash, "BGP session crashed");
        }
        let is_wished = self.desired.borrow().peers.contains_key(&name);
        if is_wished {
            self.start(name, start);
        } else {
            self.status.send_if_modified(|status| status.peers.remove(&name).is_some());
        }
    }
}

#[cfg(test)]
mod tests;
