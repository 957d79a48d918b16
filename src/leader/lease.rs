#![expect(clippy::disallowed_methods, reason = "shell: seeds the jitter")]
//! The Lease in the API server.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::election::{Election, Input, LeaseRecord, Output, Timing};
use crate::cluster::clock;
use crate::model::Moment;

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

/// What this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// One that waits.
    Candidate,
    /// The one that acts.
    Leader,
    /// One that may not act any more.
    Lost,
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
/// One task, the caller's: it sleeps until the machine's deadline or `stop`, does what the machine
/// says, one request at a time and each with a timeout, and tells `leadership` what came of it.
/// On `stop` the Lease is released, so that a successor need not wait for it to run out.
pub async fn hold(
    client: Client,
    config: LeaseConfig,
    leadership: watch::Sender<Leadership>,
    mut stop: watch::Receiver<bool>,
) -> End {
    let mut election = Election::new(config.identity.clone(), config.timing, fastrand::u64(..), clock::now());
    let mut lock = Lock { api: Api::namespaced(client, &config.namespace), config, lease: None, is_away: false };
    loop {
        let input = tokio::select! {
            // A closed channel is a stop as well.
            _ = stop.wait_for(|stop| *stop) => Input::Stop,
            () = clock::until(election.deadline()) => Input::Tick,
        };
        let mut outputs = election.step(input, clock::now());
        while !outputs.is_empty() {
            let mut answer = None;
            for output in outputs {
                match output {
                    Output::Lead => {
                        info!(lease = lock.config.name, identity = lock.config.identity, "leading");
                        leadership.send_replace(Leadership::Leader);
                    }
                    Output::Lose => {
                        leadership.send_replace(Leadership::Lost);
                        return End::Lost;
                    }
                    Output::End => return End::Stopped,
                    request => answer = Some(lock.perform(request, election.deadline()).await),
                }
            }
            outputs = answer.map(|answer| election.step(answer, clock::now())).unwrap_or_default();
        }
    }
}

/// The Lease as last seen, and the way to it.
struct Lock {
    api: Api<Lease>,
    config: LeaseConfig,
    // Written back with its other fields as they were: coordinated election keeps some there.
    lease: Option<Lease>,
    is_away: bool,
}

impl Lock {
    /// Does one request, and gives up at the deadline at the latest.
    async fn perform(&mut self, request: Output, deadline: Option<Moment>) -> Input {
        // As upstream: half the renew deadline, so that a leader has a second try.
        let longest = match request {
            Output::Release { .. } => Duration::from_secs(1),
            _ => (self.config.timing.renew_deadline / 2).max(Duration::from_secs(1)),
        };
        let limit = deadline.map_or(longest, |deadline| deadline.since(clock::now()).min(longest));
        let is_read = request == Output::Read;
        let answer = match tokio::time::timeout(limit, self.send(request)).await {
            Ok(Ok(lease)) => {
                self.is_away = false;
                lease
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                debug!(lease = self.config.name, "another one wrote the lease first");
                return Input::Failed;
            }
            Ok(Err(error)) => return self.failed(&error),
            Err(elapsed) => return self.failed(&elapsed),
        };
        self.lease = answer;
        match self.lease.as_ref().map(record) {
            record if is_read => Input::Read(record),
            Some(record) => Input::Written(record),
            None => Input::Failed,
        }
    }

    fn failed(&mut self, error: &(dyn std::error::Error + 'static)) -> Input {
        if !std::mem::replace(&mut self.is_away, true) {
            warn!(lease = self.config.name, error, "cannot reach the lease; trying again");
        }
        Input::Failed
    }

    async fn send(&self, request: Output) -> Result<Option<Lease>, kube::Error> {
        let (config, known, now) = (&self.config, self.lease.as_ref(), Timestamp::now());
        let lease = match request {
            Output::Read => return self.api.get_opt(&config.name).await,
            Output::Create => config.taken(None, None, now),
            Output::TakeOver { version } => config.taken(known, Some(version), now),
            Output::Renew { version } => config.renewed(known, version, now),
            Output::Release { version } => config.released(known, version, now),
            Output::Lead | Output::Lose | Output::End => return Ok(self.lease.clone()),
        };
        let parameters = PostParams::default();
        if lease.metadata.resource_version.is_some() {
            self.api.replace(&config.name, &parameters, &lease).await.map(Some)
        } else {
            self.api.create(&parameters, &lease).await.map(Some)
        }
    }
}

/// The Leases to write.
impl LeaseConfig {
    fn taken(&self, known: Option<&Lease>, version: Option<String>, now: Timestamp) -> Lease {
        self.edited(known, version, |spec| {
            let transitions = spec.lease_transitions.map_or(0, |count| count.saturating_add(1));
            spec.holder_identity = Some(self.identity.clone());
            spec.lease_duration_seconds = Some(seconds(self.timing.lease_duration));
            spec.acquire_time = Some(MicroTime(now));
            spec.renew_time = Some(MicroTime(now));
            spec.lease_transitions = Some(transitions);
        })
    }

    fn renewed(&self, known: Option<&Lease>, version: String, now: Timestamp) -> Lease {
        self.edited(known, Some(version), |spec| {
            spec.lease_duration_seconds = Some(seconds(self.timing.lease_duration));
            spec.renew_time = Some(MicroTime(now));
        })
    }

    /// As client-go's `release`: no holder, one second, both times now.
    fn released(&self, known: Option<&Lease>, version: String, now: Timestamp) -> Lease {
        self.edited(known, Some(version), |spec| {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.acquire_time = Some(MicroTime(now));
            spec.renew_time = Some(MicroTime(now));
        })
    }

    fn edited(&self, known: Option<&Lease>, version: Option<String>, edit: impl FnOnce(&mut LeaseSpec)) -> Lease {
        let mut lease = known.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        lease.metadata.resource_version = version;
        lease.metadata.managed_fields = None;
        edit(lease.spec.get_or_insert_default());
        lease
    }
}

fn record(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
    LeaseRecord {
        version: lease.resource_version().unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        lease_duration: Duration::from_secs(seconds),
    }
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> LeaseConfig {
        LeaseConfig {
            namespace: "kube-system".to_owned(),
            name: "cloud-controller-manager".to_owned(),
            identity: "n1_1".to_owned(),
            timing: Timing::default(),
        }
    }

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    #[test]
    fn a_new_lease_has_no_transitions_and_a_taken_one_counts_up() {
        let created = config().taken(None, None, time(0));
        let spec = created.spec.clone().expect("a spec");
        assert_eq!(created.metadata.resource_version, None);
        assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(0), Some(15)));

        let mut other = created;
        other.spec.get_or_insert_default().holder_identity = Some("n2_2".to_owned());
        other.spec.get_or_insert_default().strategy = Some("OldestEmulationVersion".to_owned());
        let taken = config().taken(Some(&other), Some("7".to_owned()), time(30));
        let spec = taken.spec.expect("a spec");
        assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(spec.holder_identity.as_deref(), Some("n1_1"));
        assert_eq!(spec.lease_transitions, Some(1));
        assert_eq!(spec.acquire_time, Some(MicroTime(time(30))));
        assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"), "other fields stay as they are");
    }

    #[test]
    fn a_renewal_moves_only_the_renew_time() {
        let held = config().taken(None, None, time(0));
        let spec = config().renewed(Some(&held), "8".to_owned(), time(2)).spec.expect("a spec");
        assert_eq!((spec.acquire_time, spec.renew_time), (Some(MicroTime(time(0))), Some(MicroTime(time(2)))));
        assert_eq!(spec.lease_transitions, Some(0));
    }

    #[test]
    fn a_released_lease_is_free_for_every_candidate() {
        let held = config().taken(None, None, time(0));
        let released = config().released(Some(&held), "9".to_owned(), time(5));
        assert_eq!(record(&released).holder, None);
        assert_eq!(record(&released).lease_duration, Duration::from_secs(1));
        assert_eq!(released.spec.expect("a spec").lease_transitions, Some(0), "client-go keeps the count");
    }

    #[test]
    fn an_identity_is_the_host_and_a_uuid() {
        let (one, two) = (identity(), identity());
        assert_ne!(one, two);
        let uuid = one.rsplit_once('_').expect("an underscore").1;
        assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    }
}
