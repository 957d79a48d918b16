#![expect(clippy::disallowed_methods, reason = "shell: questions of the API server are tasks")]
//! Asks the API server whether Nodes exist whose `NodeRoute` is gone.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use crate::agent::nodes::Answer;
use crate::cluster::told::Told;

const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Questions on their way. Dropping it ends them.
pub struct Inquiry {
    client: Client,
    open: BTreeSet<String>,
    tasks: JoinSet<(String, Answer)>,
}

impl Inquiry {
    /// Asks by this client.
    pub fn new(client: Client) -> Self {
        Self { client, open: BTreeSet::new(), tasks: JoinSet::new() }
    }

    /// Asks about these nodes, each once at a time.
    pub fn ask(&mut self, names: Vec<String>) {
        for name in names {
            if self.open.insert(name.clone()) {
                let nodes = Api::<Node>::all(self.client.clone());
                self.tasks.spawn(async move {
                    let answer = ask(&nodes, &name).await;
                    (name, answer)
                });
            }
        }
    }

    /// Waits for the next answer; for ever when nothing was asked. Cancel-safe.
    pub async fn answered(&mut self) -> (String, Answer) {
        match self.tasks.join_next().await {
            Some(Ok((name, answer))) => {
                self.open.remove(&name);
                (name, answer)
            }
            // A question that failed is asked again in its time.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}

/// A list of one, not a `get`: the agent may list Nodes and no more. Not from the server's cache, which
/// may be behind.
async fn ask(nodes: &Api<Node>, name: &str) -> Answer {
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    match timeout(ANSWER_WITHIN, nodes.list_metadata(&only)).await {
        Ok(Ok(list)) if list.items.is_empty() => Answer::Gone,
        Ok(Ok(_)) => Answer::Exists,
        Ok(Err(error)) => {
            debug!(node = name, error = %Told(&error), "cannot ask whether a Node exists");
            Answer::Unknown
        }
        Err(_) => Answer::Unknown,
    }
}
