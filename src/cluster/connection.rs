//! Connections to the API server, and how a dead one is noticed.
//!
//! A server that dies without a word closes nothing: its watches would be silent until they end by
//! themselves, after five minutes. So an idle connection is probed, and one whose peer does not
//! acknowledge is given up; both take the kernel half a minute at most.

use std::time::Duration;

use axum::http::header::{HeaderValue, USER_AGENT};
use axum::http::{Request, Response, Uri};
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use thiserror::Error;
use tower::layer::Layer;
use tower::util::{BoxCloneSyncService, option_layer};
use tower::{BoxError, ServiceExt, service_fn};

use super::traffic::{Ruled, Rules};

/// A connection with TLS is there after a few round trips.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
/// How long nothing comes before the peer is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(10);
const NEXT_PROBE: Duration = Duration::from_secs(5);
/// How long what was sent, a probe as well, may go without acknowledgement (TCP_USER_TIMEOUT).
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);
/// One that nobody needs any more, after a burst, is closed after this.
const UNUSED: Duration = Duration::from_secs(30);

/// A request that has no answer.
#[derive(Debug, Error)]
#[error("API server {server}")]
struct Unserved {
    server: String,
    source: hyper_util::client::legacy::Error,
}

/// The server without a path: whom to look for.
fn address(url: &Uri) -> String {
    let (scheme, host) = (url.scheme_str().unwrap_or("https"), url.authority().map_or("", |host| host.as_str()));
    format!("{scheme}://{host}")
}

/// Connections to the API server, made when they are needed and used again by whoever is next. Clones
/// share them.
#[derive(Clone)]
pub struct Connections {
    config: Config,
    /// None where the way leads through a proxy.
    requests: Option<Requests>,
}

type Requests = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

impl Connections {
    /// No connection yet. `config` says where to, and with which certificates.
    ///
    /// # Errors
    /// When the TLS settings do not work.
    pub fn new(config: Config) -> Result<Self, kube::Error> {
        if config.proxy_url.is_some() {
            return Ok(Self { config, requests: None });
        }
        let mut tcp = HttpConnector::new();
        // The scheme is https, which the connector around it sees to.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(SILENCE));
        tcp.set_keepalive_interval(Some(NEXT_PROBE));
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        let tls = config.rustls_https_connector_with_connector(tcp)?;
        let connected = service_fn(move |uri| {
            let connect = tls.clone().oneshot(uri);
            async { tokio::time::timeout(CONNECTED_WITHIN, connect).await? }.boxed()
        });
        let requests = hyper_util::client::legacy::Builder::new(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(UNUSED)
            .build::<_, Body>(connected);
        let server = address(&config.cluster_url);
        let unserved = move |source| BoxError::from(Unserved { server: server.clone(), source });
        Ok(Self { config, requests: Some(BoxCloneSyncService::new(requests.map_err(unserved))) })
    }

    /// A client that uses them under the rules. The API server sees `agent` as its user agent.
    ///
    /// # Errors
    /// When the authentication settings do not work.
    pub fn client(&self, agent: HeaderValue, rules: Rules) -> Result<Client, kube::Error> {
        let mut config = self.config.clone();
        config.headers.push((USER_AGENT, agent));
        let Some(requests) = self.requests.clone() else {
            // There are none of ours to probe: kube connects to the proxy, or says why it cannot.
            let builder = kube::client::ClientBuilder::try_from(config)?;
            return Ok(builder.with_layer(&tower::layer::layer_fn(|inner| Ruled::new(inner, rules.clone()))).build());
        };
        let with_headers = config.extra_headers_layer()?.layer(requests);
        let with_authority = option_layer(config.auth_layer()?).layer(with_headers);
        let requests = config.base_uri_layer().layer(with_authority);
        Ok(Client::new(Ruled::new(requests, rules), config.default_namespace))
    }
}
