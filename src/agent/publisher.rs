#![expect(clippy::disallowed_methods, reason = "shell: this node's own random delay")]
//! Writes the node's report to the API server, and again when others remove or change it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::agent::metrics::Metrics;
use crate::agent::pacer::{Pace, Pacer};
use crate::api::{NodeReport, NodeReportSpec, NodeReportStatus};
use crate::cluster::clock;
use crate::cluster::store::Store;
use crate::cluster::told::Told;
use crate::cluster::written::Written;
use crate::model::{Moment, NodeName};

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

/// The node's report as the API server has it.
#[derive(Debug, PartialEq)]
struct Kept {
    resource_version: String,
    status: NodeReportStatus,
}

impl Kept {
    fn of(report: &NodeReport) -> Option<Self> {
        let status = report.status.clone().unwrap_or_default();
        Some(Self { resource_version: report.resource_version()?, status })
    }
}

/// Writes each publication that says something new, and again what others delete or change, until
/// the sender is dropped. While there is nothing to publish, nothing is.
pub async fn run(
    client: Client,
    node: NodeName,
    mut publications: watch::Receiver<Option<Publication>>,
    metrics: Metrics,
) {
    let reports = Api::<NodeReport>::all(client);
    let own = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut store = Store::watch::<NodeReport>(reports.clone(), own.any_semantic(), Kept::of);
    let mut publisher = Publisher {
        reports,
        node,
        metrics,
        pacer: Pacer::default(),
        written: Written::new(|kept: &Kept| &kept.resource_version),
        dice: fastrand::f64(),
        is_away: false,
    };
    loop {
        let current = publications.borrow_and_update().clone();
        let wake = match current {
            Some(current) => publisher.publish(current).await,
            None => None,
        };
        tokio::select! {
            changed = publications.changed() => if changed.is_err() { return },
            () = store.changed() => publisher.saw(store.snapshot()),
            () = clock::until(wake) => {}
        }
    }
}

struct Publisher {
    reports: Api<NodeReport>,
    node: NodeName,
    metrics: Metrics,
    pacer: Pacer,
    written: Written<String, Kept>,
    /// Drawn once, so that a spread-out change stays spread out.
    dice: f64,
    is_away: bool,
}

impl Publisher {
    /// Writes what is due, and says when it has to be asked again.
    async fn publish(&mut self, current: Publication) -> Option<Moment> {
        let spread = Duration::from_secs_f64(self.dice * current.nodes as f64 / WRITES_PER_SECOND);
        match self.pacer.pace(&current.status, spread, clock::now()) {
            Pace::Rest => return None,
            Pace::At(then) => return Some(then),
            Pace::Now => {}
        }
        match write(&self.reports, &self.node, &current).await {
            Ok(report) => {
                if let Some(kept) = Kept::of(&report) {
                    self.written.remember(self.node.to_string(), kept);
                }
                self.metrics.report_writes.inc();
                self.pacer.wrote(current.status, clock::now());
                if std::mem::take(&mut self.is_away) {
                    info!(node = %self.node, "reporting again");
                }
                None
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_away, true) {
                    let error = Told(&error);
                    warn!(node = %self.node, %error, "cannot write the report; trying again");
                }
                Some(clock::now() + RETRY.mul_f64(0.5 + fastrand::f64()))
            }
        }
    }

    fn saw(&mut self, mut seen: BTreeMap<String, Arc<Kept>>) {
        self.written.lay_over(&mut seen);
        self.pacer.saw(seen.get(self.node.as_str()).map(|kept| &kept.status));
    }
}

async fn write(reports: &Api<NodeReport>, node: &NodeName, current: &Publication) -> Result<NodeReport, PublishError> {
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

async fn patch(reports: &Api<NodeReport>, node: &NodeName, status: &NodeReportStatus) -> kube::Result<NodeReport> {
    let patch = Patch::Merge(json!({ "status": status }));
    reports.patch_status(node.as_str(), &PatchParams::default(), &patch).await
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
