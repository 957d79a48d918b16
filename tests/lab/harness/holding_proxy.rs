#![expect(clippy::disallowed_methods, reason = "shell: a server of the bench's own")]
//! A proxy before the API server that keeps requests or answers back, or refuses what is written.
//!
//! It speaks plain HTTP, so a controller is sent there by `--master`; to the API server it is the controller itself.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Result, ensure};
use axum::{
    Router,
    body::{self, Body},
    extract::State,
    http::{Method, Request, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use kube::Client;
use serde_json::json;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::address::BENCH;

const LARGEST_BODY: usize = 1 << 20;

/// A running proxy; it ends with the value.
pub(crate) struct HoldingProxy {
    address: SocketAddr,
    door: Arc<Door>,
    server: JoinHandle<()>,
}

/// What becomes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    PassAll,
    /// Patches of Nodes are done and never answered.
    KeepAnswersAboutNodes,
    /// Patches of Services wait here until there is another rule.
    KeepPatchesOfServices,
    /// Every second patch is refused as one of a version that is none any more, and not passed on.
    ConflictEverySecondPatch,
}

/// What the proxy lets through.
struct Door {
    api_server: Client,
    rule: watch::Sender<Rule>,
    /// Requests or answers that were kept back so far.
    kept: AtomicUsize,
    /// Patches that came so far, and those of Services among them that the API server has answered.
    patches: AtomicUsize,
    of_services: AtomicUsize,
    refused: AtomicUsize,
}

impl HoldingProxy {
    /// Passes everything on as `api_server` does, until told otherwise.
    pub(crate) async fn start(api_server: Client) -> Result<Self> {
        let listener = TcpListener::bind((BENCH.v4(), 0)).await?;
        let address = listener.local_addr()?;
        let zero = AtomicUsize::default;
        let door = Arc::new(Door {
            api_server,
            rule: watch::channel(Rule::PassAll).0,
            kept: zero(),
            patches: zero(),
            of_services: zero(),
            refused: zero(),
        });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&door));
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("the lab's listener works");
        });
        Ok(Self { address, door, server })
    }

    /// For `--master`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What becomes of requests from now on.
    pub(crate) fn rule(&self, rule: Rule) {
        self.door.rule.send_replace(rule);
    }

    /// An error until something is kept back.
    pub(crate) fn ensure_holding(&self) -> Result<()> {
        ensure!(self.door.kept.load(Ordering::SeqCst) > 0, "nothing is kept back");
        Ok(())
    }

    /// How many patches of Services the API server has answered so far.
    pub(crate) fn patches_of_services(&self) -> usize {
        self.door.of_services.load(Ordering::SeqCst)
    }

    /// How many patches were refused so far.
    pub(crate) fn refused(&self) -> usize {
        self.door.refused.load(Ordering::SeqCst)
    }
}

impl Drop for HoldingProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Door {
    /// Whether a patch may go on, once it may.
    async fn lets_through(&self, is_of_service: bool) -> bool {
        let number = self.patches.fetch_add(1, Ordering::SeqCst);
        let mut rule = self.rule.subscribe();
        let now = *rule.borrow_and_update();
        if is_of_service && now == Rule::KeepPatchesOfServices {
            self.kept.fetch_add(1, Ordering::SeqCst);
            // The sender is the door's own.
            let _ = rule.wait_for(|rule| *rule != Rule::KeepPatchesOfServices).await;
        }
        if now == Rule::ConflictEverySecondPatch && number % 2 == 1 {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return false;
        }
        true
    }
}

async fn pass(State(door): State<Arc<Door>>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = body::to_bytes(body, LARGEST_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let (is_patch, path) = (head.method == Method::PATCH, head.uri.path());
    let is_of_service = path.starts_with("/api/v1/namespaces/") && path.contains("/services/");
    let is_of_node = path.starts_with("/api/v1/nodes/");
    if is_patch && !door.lets_through(is_of_service).await {
        return conflict();
    }
    let answer = door.api_server.send(Request::from_parts(head, body.to_vec().into())).await;
    if is_patch && is_of_service {
        door.of_services.fetch_add(1, Ordering::SeqCst);
    }
    if is_patch && is_of_node && *door.rule.borrow() == Rule::KeepAnswersAboutNodes {
        door.kept.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
    }
    match answer {
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

/// As the API server says it.
fn conflict() -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Conflict", "code": 409,
        "message": "the object has been modified; please apply your changes to the latest version and try again",
    });
    (StatusCode::CONFLICT, [(CONTENT_TYPE, "application/json")], status.to_string()).into_response()
}
