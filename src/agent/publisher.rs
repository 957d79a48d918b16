#![expect(clippy::disallowed_methods, reason = "shell: this node's own random delay")]
//! Writes the node's report to the API server.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::agent::metrics::Metrics;
use crate::agent::report::{Pace, Pacer};
use crate::api::{NodeReport, NodeReportSpec, NodeReportStatus};
use crate::cluster::clock;
use crate::model::NodeName;

const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two tries while the API server is away, ± half.
const RETRY: Duration = Duration::from_secs(4);
/// All agents together write at most this often a second.
const WRITES_PER_SECOND: f64 = 100.0;

/// A report to be written, and what belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Publication {
    /// The report.
    pub status: NodeReportStatus,
    /// `metadata.uid` of the Node: the report goes with it.
    pub node_uid: String,
    /// How many nodes report.
    pub nodes: usize,
}

#[derive(Debug, Error)]
enum PublishError {
    #[error("the API server did not answer in {} s", WRITE_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the API server refused")]
    Refused(#[source] Box<kube::Error>),
}

/// Writes each publication that says something new, until the sender is dropped.
pub async fn run(
    client: Client,
    node: NodeName,
    mut publications: watch::Receiver<Option<Publication>>,
    metrics: Metrics,
) {
    let reports = Api::<NodeReport>::all(client);
    let mut pacer = Pacer::default();
    // Drawn once, so that a spread-out change stays spread out.
    let dice = fastrand::f64();
    let mut is_away = false;
    loop {
        let current = publications.borrow_and_update().clone();
        let wake = match current {
            None => None,
            Some(current) => {
                let spread = Duration::from_secs_f64(dice * current.nodes as f64 / WRITES_PER_SECOND);
                match pacer.pace(&current.status, spread, clock::now()) {
                    Pace::Rest => None,
                    Pace::At(then) => Some(then.since(clock::now())),
                    Pace::Now => match write(&reports, &node, &current).await {
                        Ok(()) => {
                            metrics.report_writes.inc();
                            pacer.wrote(current.status, clock::now());
                            if std::mem::take(&mut is_away) {
                                info!(%node, "reporting again");
                            }
                            continue;
                        }
                        Err(error) => {
                            if !std::mem::replace(&mut is_away, true) {
                                let error = &error as &dyn std::error::Error;
                                warn!(%node, error, "cannot write the report; trying again");
                            }
                            Some(RETRY.mul_f64(0.5 + fastrand::f64()))
                        }
                    },
                }
            }
        };
        tokio::select! {
            changed = publications.changed() => if changed.is_err() { return },
            () = sleep(wake) => {}
        }
    }
}

async fn sleep(wake: Option<Duration>) {
    match wake {
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}

async fn write(reports: &Api<NodeReport>, node: &NodeName, current: &Publication) -> Result<(), PublishError> {
    let refused = |error| PublishError::Refused(Box::new(error));
    let written = timeout(WRITE_TIMEOUT, async {
        match patch(reports, node, &current.status).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                create(reports, node, &current.node_uid).await?;
                patch(reports, node, &current.status).await
            }
            other => other,
        }
    });
    written.await.map_err(|_| PublishError::TimedOut)?.map_err(refused)
}

async fn patch(reports: &Api<NodeReport>, node: &NodeName, status: &NodeReportStatus) -> kube::Result<()> {
    let patch = Patch::Merge(json!({ "status": status }));
    reports.patch_status(node.as_str(), &PatchParams::default(), &patch).await.map(drop)
}

async fn create(reports: &Api<NodeReport>, node: &NodeName, node_uid: &str) -> kube::Result<()> {
    let mut report = NodeReport::new(node.as_str(), NodeReportSpec {});
    report.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_string(),
        uid: node_uid.to_owned(),
        ..OwnerReference::default()
    }]);
    match reports.create(&PostParams::default(), &report).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop),
    }
}
