#![expect(clippy::disallowed_methods, reason = "shell: a thread of its own, whose clock gives the figure")]
//! What a renewal costs a client that does nothing else: the floor that the leader's is read beside.
//!
//! It renews a Lease of its own as often as the leader does, on a connection and a thread of its own, under an account
//! whose requests the API server puts into the same priority level. What delays both is the API server's doing.

use std::{
    path::{Path, PathBuf},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use axum::{body::Body, http::Request};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::harness::{Lab, Stopwatch, control_plane};

/// In `kube-system`, so that the API server's own flow schema for leader election counts.
const ACCOUNT: &str = "bare-renewer";
const NAMESPACE: &str = "--namespace=kube-system";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// `--leader-elect-retry-period`.
const PERIOD: Duration = Duration::from_secs(2);
/// When the leader gives a renewal up: half of `--leader-elect-renew-deadline`.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(5);
const PRIORITY_LEVEL: &str = "x-kubernetes-pf-prioritylevel-uid";

/// A client that renews; it ends with the value.
pub(crate) struct Floor {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<Vec<Duration>>>,
}

impl Floor {
    pub(crate) async fn begin(lab: &Lab) -> Result<Self> {
        let control_plane = lab.control_plane();
        control_plane.kubectl(["create", "serviceaccount", ACCOUNT, NAMESPACE]).await?;
        let verbs = "--verb=create,get,update";
        control_plane.kubectl(["create", "role", ACCOUNT, NAMESPACE, verbs, "--resource=leases"]).await?;
        let (role, account) = (format!("--role={ACCOUNT}"), format!("--serviceaccount=kube-system:{ACCOUNT}"));
        control_plane.kubectl(["create", "rolebinding", ACCOUNT, NAMESPACE, &role, &account]).await?;
        let token = control_plane.kubectl(["create", "token", ACCOUNT, NAMESPACE]).await?;
        let kubeconfig = control_plane.authority().kubeconfig_with_token(ACCOUNT, token.trim())?;
        let level = ["get", "prioritylevelconfiguration", "leader-election", "-o", "jsonpath={.metadata.uid}"];
        let level = control_plane.kubectl(level).await?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || in_a_runtime_of_its_own(kubeconfig, level, stopped));
        Ok(Self { stop, thread })
    }

    /// How long each renewal took, until the answer or until it was given up.
    pub(crate) fn end(self) -> Result<Vec<Duration>> {
        // Closed, if the thread has failed: it says why.
        let _ = self.stop.send(());
        self.thread.join().ok().context("the bare client panicked")?
    }
}

fn in_a_runtime_of_its_own(kubeconfig: PathBuf, level: String, stop: oneshot::Receiver<()>) -> Result<Vec<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut took = Vec::new();
        tokio::select! {
            ended = renew_for_ever(&kubeconfig, &level, &mut took) => ended?,
            _ = stop => {}
        }
        Ok(took)
    })
}

async fn renew_for_ever(kubeconfig: &Path, level: &str, took: &mut Vec<Duration>) -> Result<()> {
    let client = control_plane::client(kubeconfig).await?;
    let named = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": ACCOUNT } });
    let (mut lease, in_level) = write(&client, Request::post(LEASES), &serde_json::from_value(named)?).await?;
    ensure!(in_level == level, "priority level {in_level:?}, not leader-election's, which is {level}");
    loop {
        tokio::time::sleep(PERIOD).await;
        lease.spec = Some(serde_json::from_value(held())?);
        let began = Stopwatch::start();
        let path = format!("{LEASES}/{ACCOUNT}");
        let renewal = write(&client, Request::put(&path), &lease);
        let answer = tokio::time::timeout(GIVEN_UP_AFTER, renewal).await;
        took.push(began.elapsed());
        lease = match answer {
            Ok(Ok((renewed, _))) => renewed,
            Ok(Err(_)) | Err(_) => read(&client, &path).await,
        };
    }
}

fn held() -> Value {
    json!({ "holderIdentity": ACCOUNT, "leaseDurationSeconds": 15, "renewTime": MicroTime(Timestamp::now()) })
}

/// The Lease as written, and the priority level that this was done in.
async fn write(client: &Client, request: axum::http::request::Builder, lease: &Lease) -> Result<(Lease, String)> {
    let request = request.header("content-type", "application/json").body(serde_json::to_vec(lease)?.into())?;
    let answer = client.send(request).await?;
    let in_level = answer.headers().get(PRIORITY_LEVEL).and_then(|uid| uid.to_str().ok()).unwrap_or_default();
    let in_level = in_level.to_owned();
    let status = answer.status();
    let body = axum::body::to_bytes(Body::new(answer.into_body()), usize::MAX).await?;
    if !status.is_success() {
        bail!("a Lease of {ACCOUNT} was not written: {status} {}", String::from_utf8_lossy(&body));
    }
    let lease: Lease = serde_json::from_slice(&body)?;
    ensure!(lease.resource_version().is_some(), "a written Lease has a version");
    Ok((lease, in_level))
}

/// What it is after a write without a good answer; the time for this is nobody's renewal.
async fn read(client: &Client, path: &str) -> Lease {
    loop {
        let request = Request::get(path).body(Vec::new()).expect("a path");
        match tokio::time::timeout(GIVEN_UP_AFTER, client.request(request)).await {
            Ok(Ok(lease)) => return lease,
            Ok(Err(_)) | Err(_) => tokio::time::sleep(PERIOD).await,
        }
    }
}
