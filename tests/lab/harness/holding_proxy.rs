#![expect(clippy::disallowed_methods, reason = "shell: a server of the bench's own")]
//! A proxy before the API server that keeps answers back.
//!
//! It speaks plain HTTP, so a controller is sent there by `--master`; to the API server it is the controller itself.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anyhow::{Result, ensure};
use axum::{
    Router,
    body::{self, Body},
    extract::State,
    http::{Method, Request, StatusCode},
    response::{IntoResponse, Response},
};
use kube::Client;
use tokio::{net::TcpListener, task::JoinHandle};

use super::address::BENCH;

const LARGEST_BODY: usize = 1 << 20;

/// A running proxy; it ends with the value.
pub(crate) struct HoldingProxy {
    address: SocketAddr,
    door: Arc<Door>,
    server: JoinHandle<()>,
}

/// What the proxy lets through.
struct Door {
    api_server: Client,
    holds: AtomicBool,
    held: AtomicUsize,
}

impl HoldingProxy {
    /// Passes everything on as `api_server` does, until told otherwise.
    pub(crate) async fn start(api_server: Client) -> Result<Self> {
        let listener = TcpListener::bind((BENCH.v4(), 0)).await?;
        let address = listener.local_addr()?;
        let door = Arc::new(Door { api_server, holds: AtomicBool::new(false), held: AtomicUsize::new(0) });
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

    /// From now on patches of Nodes are done and never answered.
    pub(crate) fn hold_patches_of_nodes(&self) {
        self.door.holds.store(true, Ordering::SeqCst);
    }

    /// An error until an answer is kept back.
    pub(crate) fn ensure_holding(&self) -> Result<()> {
        ensure!(self.door.held.load(Ordering::SeqCst) > 0, "no answer is kept back");
        Ok(())
    }
}

impl Drop for HoldingProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn pass(State(door): State<Arc<Door>>, request: Request<Body>) -> Response {
    let is_patch = request.method() == Method::PATCH && request.uri().path().starts_with("/api/v1/nodes/");
    let (head, body) = request.into_parts();
    let Ok(body) = body::to_bytes(body, LARGEST_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let answer = door.api_server.send(Request::from_parts(head, body.to_vec().into())).await;
    if is_patch && door.holds.load(Ordering::SeqCst) {
        door.held.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
    }
    match answer {
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}
