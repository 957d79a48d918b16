#![expect(clippy::disallowed_methods, reason = "shell: many clients at once")]
//! Clients that list all Nodes again and again, under an account that no flow schema of Cairn's knows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, bail};
use axum::{body::Body, http::Request};
use futures_util::StreamExt;
use kube::Client;
use tokio::task::JoinSet;

use super::harness::{Lab, control_plane};

const ACCOUNT: &str = "crowd";
/// As a reflector lists: from the watch cache.
const LIST: &str = "/api/v1/nodes?resourceVersion=0";
/// After a refusal.
const PAUSE: Duration = Duration::from_secs(1);

/// Clients at work; they end with the value.
pub(crate) struct Crowd {
    answered: Arc<AtomicUsize>,
    clients: JoinSet<()>,
}

impl Crowd {
    pub(crate) async fn gather(lab: &Lab, size: usize) -> Result<Self> {
        let control_plane = lab.control_plane();
        control_plane.kubectl(["create", "serviceaccount", ACCOUNT]).await?;
        control_plane.kubectl(["create", "clusterrole", ACCOUNT, "--verb=list", "--resource=nodes"]).await?;
        let (role, account) = (format!("--clusterrole={ACCOUNT}"), format!("--serviceaccount=default:{ACCOUNT}"));
        control_plane.kubectl(["create", "clusterrolebinding", ACCOUNT, &role, &account]).await?;
        let token = control_plane.kubectl(["create", "token", ACCOUNT]).await?;
        let kubeconfig = control_plane.authority().kubeconfig_with_token(ACCOUNT, token.trim())?;
        let client = control_plane::client(&kubeconfig).await?;
        let answered = Arc::<AtomicUsize>::default();
        let mut clients = JoinSet::new();
        for _ in 0..size {
            let (client, answered) = (client.clone(), Arc::clone(&answered));
            clients.spawn(async move {
                loop {
                    match list(&client).await {
                        Ok(()) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                        Err(_) => tokio::time::sleep(PAUSE).await,
                    }
                }
            });
        }
        Ok(Self { answered, clients })
    }

    /// Sends them home, and says how many lists they got.
    pub(crate) async fn disperse(mut self) -> Result<usize> {
        self.clients.shutdown().await;
        Ok(self.answered.load(Ordering::Relaxed))
    }
}

/// One list, read to its end and forgotten: nothing of it is kept in memory.
async fn list(client: &Client) -> Result<()> {
    let answer = client.send(Request::get(LIST).body(Vec::new().into())?).await?;
    if !answer.status().is_success() {
        bail!("{}", answer.status());
    }
    let mut parts = Body::new(answer.into_body()).into_data_stream();
    while let Some(part) = parts.next().await {
        part?;
    }
    Ok(())
}
