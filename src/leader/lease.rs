#![expect(clippy::disallowed_methods, reason = "shell: seeds the jitter")]
//! Holding a Lease of the API server.

use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::election::{Election, Input, Output};
use super::metrics::Metrics;
use super::record::{self, Writer, record};
use super::sight::Sight;
use super::timing::Timing;
use crate::cluster::clock;
use crate::cluster::told::Told;
use crate::model::{Leadership, Moment};

/// Which Lease to hold, and as whom.
#[derive(Debug, Clone)]
pub struct LeaseConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who holds it; see [`identity`].
    pub identity: String,
    /// The times.
    pub timing: Timing,
}

/// How holding a Lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As asked; nothing is held.
    Stopped,
    /// The Lease was lost: the process must end.
    Lost,
}

/// `<host>_<random>`, as client-go names holders; every process is a holder of its own.
pub fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (high, low) = (fastrand::u64(..), fastrand::u64(..));
    // The form of a random UUID (RFC 9562 §5.4).
    format!(
        "{host}_{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 48) & 0x3fff,
        low & 0xffff_ffff_ffff
    )
}

/// Takes part in the election until `stop` turns true or the Lease is lost.
///
/// One task, the caller's: it sleeps until the machine's deadline, a change of the Lease or `stop`,
/// does what the machine says, one request at a time and each with a timeout, and tells `leadership`
/// what came of it, each renewal included. On `stop` nobody may write any more, and the Lease is
/// released, so that a successor need not wait for it to run out. When `stop` is closed it is not:
/// nobody is left who could say that every write has been answered.
pub async fn hold(
    client: Client,
    config: LeaseConfig,
    leadership: watch::Sender<Leadership>,
    mut stop: watch::Receiver<bool>,
    metrics: Metrics,
) -> End {
    let mut election = Election::new(config.identity.clone(), config.timing, fastrand::u64(..), clock::now());
    let mut lock = Lock::new(client, config, metrics);
    let mut sight = Sight::new(lock.api.clone(), lock.config.name.clone(), lock.config.timing.retry_period);
    loop {
        let input = tokio::select! {
            stopped = async { stop.wait_for(|stop| *stop).await.is_ok() } => {
                if !stopped {
                    return End::Stopped;
                }
                Input::Stop
            }
            () = clock::until(election.deadline()) => Input::Tick,
            seen = sight.next() => lock.seen(seen),
        };
        let mut outputs = election.step(input, clock::now());
        while !outputs.is_empty() {
            let mut answer = None;
            for output in outputs {
                // Told before a release is sent: whoever leads next may act at once.
                leadership.send_if_modified(|known| std::mem::replace(known, election.leadership()) != *known);
                match output {
                    Output::Lead => info!(lease = lock.config.name, identity = lock.config.identity, "leading"),
                    Output::Lose => return End::Lost,
                    Output::End => return End::Stopped,
                    request => {
                        let leads = matches!(election.leadership(), Leadership::Leader { .. });
                        if leads && request == Output::Read {
                            lock.metrics.slow_path(&lock.config.name);
                        }
                        answer = Some(lock.perform(request, election.deadline()).await);
                    }
                }
            }
            outputs = answer.map(|answer| election.step(answer, clock::now())).unwrap_or_default();
        }
        leadership.send_if_modified(|known| std::mem::replace(known, election.leadership()) != *known);
    }
}

/// The Lease as last seen, and the way to it.
struct Lock {
    api: Api<DynamicObject>,
    writer: Writer,
    config: LeaseConfig,
    lease: Option<DynamicObject>,
    is_away: bool,
    metrics: Metrics,
}

impl Lock {
    fn new(client: Client, config: LeaseConfig, metrics: Metrics) -> Self {
        let writer = Writer {
            name: config.name.clone(),
            identity: config.identity.clone(),
            lease_duration: config.timing.lease_duration,
        };
        let api = Api::namespaced_with(client, &config.namespace, &record::resource());
        Self { api, writer, config, lease: None, is_away: false, metrics }
    }

    /// Keeps what the watch shows.
    fn seen(&mut self, lease: Option<DynamicObject>) -> Input {
        self.lease = lease;
        Input::Seen(self.lease.as_ref().map(record))
    }

    /// Does one request, and gives up at the deadline at the latest.
    async fn perform(&mut self, request: Output, deadline: Option<Moment>) -> Input {
        let longest = self.config.timing.request_timeout();
        let limit = deadline.map_or(longest, |deadline| deadline.since(clock::now()).min(longest));
        let is_read = request == Output::Read;
        let renewal = matches!(request, Output::Renew { .. }).then(clock::now);
        let answer = tokio::time::timeout(limit, self.send(request)).await;
        if let Some(sent) = renewal {
            self.metrics.renewed(&self.config.name, clock::now().since(sent));
        }
        let answer = match answer {
            Ok(Ok(lease)) => lease,
            Ok(Err(kube::Error::Api(status))) if status.code == 409 || (status.code == 404 && !is_read) => {
                debug!(lease = self.config.name, "another one wrote the lease first");
                return Input::Conflict;
            }
            Ok(Err(error)) => return self.failed(&error),
            Err(elapsed) => return self.failed(&elapsed),
        };
        self.is_away = false;
        self.lease = answer;
        match self.lease.as_ref().map(record) {
            record if is_read => Input::Read(record),
            Some(record) => Input::Written(record),
            None => Input::Conflict,
        }
    }

    fn failed(&mut self, error: &(dyn std::error::Error + 'static)) -> Input {
        if !std::mem::replace(&mut self.is_away, true) {
            let error = Told(error);
            warn!(lease = self.config.name, %error, "cannot reach the lease; trying again");
        }
        Input::Failed
    }

    /// The Lease as it is afterwards; none where it is gone, or is no longer the one to replace.
    async fn send(&self, request: Output) -> Result<Option<DynamicObject>, kube::Error> {
        let (writer, now, parameters) = (&self.writer, Timestamp::now(), PostParams::default());
        let known =
            |version: &String| self.lease.as_ref().filter(|known| known.resource_version().as_ref() == Some(version));
        let lease = match &request {
            Output::Read => return self.api.get_opt(&self.config.name).await,
            Output::Create => return self.api.create(&parameters, &writer.taken(None, now)).await.map(Some),
            Output::TakeOver { version } => known(version).map(|known| writer.taken(Some(known), now)),
            Output::Renew { version } => known(version).map(|known| writer.renewed(known, now)),
            Output::Release { version } => known(version).map(|known| writer.released(known, now)),
            Output::Lead | Output::Lose | Output::End => None,
        };
        match lease {
            Some(lease) => self.api.replace(&self.config.name, &parameters, &lease).await.map(Some),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_the_host_and_a_uuid() {
        let (one, two) = (identity(), identity());
        assert_ne!(one, two);
        let uuid = one.rsplit_once('_').expect("an underscore").1;
        assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    }
}
