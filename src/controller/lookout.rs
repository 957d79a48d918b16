//! Looks out for a kube-controller-manager that migrates its controllers under another Lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::{self, MissedTickBehavior};
use tracing::{debug, warn};

use crate::cluster::events::{Events, about_lease};
use crate::cluster::told::Told;
use crate::leader::LeaseConfig;
use crate::leader::others::{Held, other_lease};
use crate::model::Note;

/// Somebody edits files and restarts programs: nothing that happens within seconds.
const PERIOD: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);
const FORBIDDEN: u16 = 403;

/// Tells, for as long as it is polled, of each other Lease once. Cancel-safe: it only reads and tells.
pub async fn keep(client: Client, ours: LeaseConfig, events: Events) {
    let api: Api<Lease> = Api::namespaced(client, &ours.namespace);
    let mut ticks = time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told: Option<Note> = None;
    let mut may_list = true;
    loop {
        ticks.tick().await;
        let leases = match time::timeout(TIMEOUT, leases(&api)).await {
            Ok(Ok(leases)) => leases,
            Ok(Err(kube::Error::Api(status))) if status.code == FORBIDDEN => {
                if std::mem::replace(&mut may_list, false) {
                    let error = &status.message;
                    warn!(error, "cannot see whether kube-controller-manager has another leaderName");
                }
                continue;
            }
            Ok(Err(error)) => {
                debug!(error = %Told(&error), "cannot list leases");
                continue;
            }
            Err(_) => continue,
        };
        let note = other_lease(&leases, &ours.name);
        if let Some(note) = note.as_ref().filter(|note| told.as_ref() != Some(note)) {
            warn!(lease = ours.name, "{note}");
            events.tell(about_lease(&ours.namespace, &ours.name), note.clone());
        }
        told = note;
    }
}

async fn leases(api: &Api<Lease>) -> Result<Vec<Held>, kube::Error> {
    let list = api.list(&ListParams::default()).await?;
    let held = |lease: Lease| Held {
        name: lease.metadata.name.unwrap_or_default(),
        holder: lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty()),
    };
    Ok(list.items.into_iter().map(held).collect())
}
