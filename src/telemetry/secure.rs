#![expect(clippy::disallowed_methods, reason = "shell: owns the connections' tasks")]
//! The secure port: health, metrics, configuration and state over TLS.
//!
//! One task a connection, all owned by [`serve`]; dropping that drops them, and no page is left half
//! done that anything depends on.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{self, Body};
use axum::http::header::{ALLOW, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use super::access::{Access, AccessError, AccessOptions};
use super::certificate::CertificateSource;
use super::health::Health;
use super::log::Verbosity;
use super::tls::TlsPolicy;

/// Connections at a time: probes, a few collectors, a few people. Others wait.
const CONNECTIONS: usize = 256;
const BACKLOG: u32 = 128;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// From the end of one request to the whole head of the next.
const HEAD: Duration = Duration::from_secs(90);
/// How long to wait after the system has no room for a connection.
const PAUSE: Duration = Duration::from_millis(200);
/// Where the level of the log is set, as in every component of Kubernetes.
const LEVEL: &str = "/debug/flags/v";
/// Bytes of such a request; a level is a number.
const LONGEST_LEVEL: usize = 64;
const CONFIGZ: &str = "cloudcontrollermanager.config.k8s.io";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The secure port, from flags.
#[derive(Debug, Clone)]
pub struct ServingOptions {
    /// Where to listen.
    pub address: SocketAddr,
    /// Whether other processes may listen there as well.
    pub shares_port: bool,
    /// Whether to listen although old connections wait for their end.
    pub shares_address: bool,
    /// Where the certificate is from.
    pub certificate: CertificateSource,
    /// How TLS is spoken.
    pub tls: TlsPolicy,
    /// Who may ask.
    pub access: AccessOptions,
}

/// The port cannot be listened on.
#[derive(Debug, Error)]
#[error("--bind-address and --secure-port: cannot listen on {address}")]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

/// What the port shows.
pub struct Pages {
    /// Every metric.
    pub metrics: Registry,
    /// The outcomes of health checks.
    pub slis: Registry,
    /// The health checks.
    pub health: Arc<Health>,
    /// The configuration in force.
    pub configuration: Value,
    /// The level of the log, if it may be changed here.
    pub verbosity: Option<Verbosity>,
    /// What the process sees and thinks now.
    pub state: Box<dyn Fn() -> Value + Send + Sync>,
}

/// Listens.
///
/// # Errors
/// When the address is taken or is not this host's.
pub fn listen(options: &ServingOptions) -> Result<TcpListener, ListenError> {
    let address = options.address;
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseport(options.shares_port)?;
        socket.set_reuseaddr(options.shares_address)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| ListenError { address, source })
}

/// Answers until the future is dropped.
pub async fn serve(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    access: Arc<Access>,
    pages: Arc<Pages>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((socket, _)) => {
                    let (tls, access, pages) = (Arc::clone(&tls.borrow()), Arc::clone(&access), Arc::clone(&pages));
                    connections.spawn(converse(socket, tls, access, pages));
                }
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "the secure port cannot take a connection");
                    sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(socket: TcpStream, tls: Arc<ServerConfig>, access: Arc<Access>, pages: Arc<Pages>) {
    let Ok(Ok(stream)) = timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(socket)).await else {
        debug!("a connection to the secure port ended before it was encrypted");
        return;
    };
    let certificate = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate: Arc<[_]> = certificate.iter().map(|one| one.clone().into_owned()).collect();
    let service = service_fn(|request| {
        let (certificate, access, pages) = (Arc::clone(&certificate), Arc::clone(&access), Arc::clone(&pages));
        async move { Ok::<_, Infallible>(answer(request, &certificate, &access, &pages).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        debug!(error = &error as &dyn std::error::Error, "a connection to the secure port broke");
    }
}

async fn answer(
    request: Request<Incoming>,
    certificate: &[CertificateDer<'static>],
    access: &Access,
    pages: &Pages,
) -> Response<Body> {
    let (method, path) = (request.method(), request.uri().path());
    match access.check(certificate, request.headers(), method, path).await {
        Ok(()) => {}
        Err(error @ AccessError::Unauthorized) => return text(StatusCode::UNAUTHORIZED, TEXT, error.to_string()),
        Err(error @ AccessError::Forbidden { .. }) => return text(StatusCode::FORBIDDEN, TEXT, error.to_string()),
        Err(error @ AccessError::Review(_)) => {
            let cause = &error as &dyn std::error::Error;
            warn!(error = cause, path, "a page of the secure port was not shown");
            return text(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string());
        }
    }
    if let (LEVEL, Some(verbosity)) = (path, &pages.verbosity) {
        return match *method {
            Method::PUT => set_level(verbosity, Body::new(request.into_body())).await,
            _ => text(StatusCode::NOT_ACCEPTABLE, TEXT, "unsupported http method: PUT sets the level\n".to_owned()),
        };
    }
    if method != Method::GET && method != Method::HEAD {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET is answered\n".to_owned());
        refused.headers_mut().insert(ALLOW, axum::http::HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    page(path, request.uri().query().unwrap_or_default(), pages)
}

async fn set_level(verbosity: &Verbosity, level: Body) -> Response<Body> {
    let Ok(level) = body::to_bytes(level, LONGEST_LEVEL).await else {
        return text(StatusCode::BAD_REQUEST, TEXT, "error reading request body: it takes a level\n".to_owned());
    };
    let set = verbosity.set(&String::from_utf8_lossy(&level));
    match set {
        Ok(said) => {
            info!(said, "the log's level was changed on the secure port");
            text(StatusCode::OK, TEXT, said)
        }
        Err(why) => text(StatusCode::BAD_REQUEST, TEXT, why),
    }
}

fn page(path: &str, query: &str, pages: &Pages) -> Response<Body> {
    match path {
        "/healthz" | "/readyz" | "/livez" => {
            let (status, report) = pages.health.answer(&path[1..], query);
            text(status, TEXT, report)
        }
        "/metrics" => exposition(&pages.metrics),
        "/metrics/slis" => exposition(&pages.slis),
        "/configz" => text(StatusCode::OK, JSON, json!({ CONFIGZ: pages.configuration }).to_string()),
        "/state" => text(StatusCode::OK, JSON, (pages.state)().to_string()),
        _ => text(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".to_owned()),
    }
}

fn exposition(registry: &Registry) -> Response<Body> {
    let mut body = String::new();
    match encode(&mut body, registry) {
        Ok(()) => text(StatusCode::OK, OPEN_METRICS, body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<Body> {
    let response = Response::builder().status(status).header(CONTENT_TYPE, kind);
    let response = response.header(X_CONTENT_TYPE_OPTIONS, "nosniff").body(Body::from(body));
    response.expect("a status and two fixed headers")
}
