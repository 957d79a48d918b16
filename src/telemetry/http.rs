//! The diagnostics port: `/healthz`, `/readyz`, `/metrics`, `/state`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::Value;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Why the diagnostics port does not answer.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The address cannot be listened on.
    #[error("--diagnostics-address {address}: cannot listen there")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The server ended.
    #[error("the diagnostics server failed")]
    Serve(#[source] std::io::Error),
}

/// What the port shows.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    /// Every metric.
    pub registry: Arc<Registry>,
    /// Whether the process does its work: `/readyz` answers 200 then, 503 before.
    pub is_ready: watch::Receiver<bool>,
    /// What `/state` shows.
    pub state: StatePage,
}

/// Makes the answer to `/state`.
#[derive(Clone)]
pub struct StatePage(Arc<dyn Fn() -> BoxFuture<'static, anyhow::Result<Value>> + Send + Sync>);

impl StatePage {
    /// Asks `make` each time; an error is answered as 503, in its words.
    pub fn new<F>(make: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = anyhow::Result<Value>> + Send + 'static,
    {
        Self(Arc::new(move || make().boxed()))
    }
}

impl std::fmt::Debug for StatePage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StatePage")
    }
}

/// Listens on `address`.
///
/// # Errors
/// When the address is taken or is not this host's.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, HttpError> {
    TcpListener::bind(address).await.map_err(|source| HttpError::Listen { address, source })
}

/// Answers until the future is dropped.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, diagnostics: Diagnostics) -> Result<(), HttpError> {
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/state", get(state))
        .with_state(diagnostics);
    axum::serve(listener, router).await.map_err(HttpError::Serve)
}

async fn ready(State(diagnostics): State<Diagnostics>) -> Response {
    if *diagnostics.is_ready.borrow() {
        "ok".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready").into_response()
    }
}

async fn state(State(diagnostics): State<Diagnostics>) -> Response {
    match diagnostics.state.0().await {
        Ok(state) => ([(header::CONTENT_TYPE, "application/json")], state.to_string()).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}")).into_response(),
    }
}

async fn metrics(State(diagnostics): State<Diagnostics>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &diagnostics.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
