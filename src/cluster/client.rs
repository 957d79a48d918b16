//! The way to the API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::Uri;
use axum::http::header::HeaderValue;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;
use tokio::sync::{Semaphore, watch};

use super::connection::Connections;
use super::metrics::Metrics;
use super::traffic::{Fence, IN_FLIGHT, Lane, Rules, Traffic};

/// Writes on their way that are only told: enough that one slow answer does not hold up the others.
pub const TOLD_AT_ONCE: usize = 4;

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The kubeconfig file cannot be read or does not name a cluster and user. Several flags, and the
    /// environment, name such files.
    #[error("kubeconfig {}: cannot use it", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// Neither `--kubeconfig` nor a ServiceAccount.
    #[error("no --kubeconfig was given, and this is not a pod with a ServiceAccount")]
    NotInCluster(#[source] kube::config::InClusterError),
    /// The TLS or authentication settings do not work.
    #[error("the settings for the API server do not work")]
    Settings(#[source] Box<kube::Error>),
}

/// How to reach the API server.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// The file that says how; without it, as the pod's ServiceAccount.
    pub kubeconfig: Option<PathBuf>,
    /// Where the server is, if not where the file says.
    pub url: Option<Uri>,
    /// Requests a second, and how many of them at once; `None` has no limit.
    pub rate: Option<(f64, u32)>,
}

/// The API server, and what holds for all requests to it.
#[derive(Clone)]
pub struct Server {
    /// Of all clients that ask as the process, but the election's.
    connections: Connections,
    /// Of all clients that ask with a token of their own.
    anonymous: Connections,
    config: Config,
    traffic: Arc<Traffic>,
    metrics: Metrics,
}

/// As whom a client asks.
#[derive(Debug, Clone)]
pub enum Identity {
    /// As the process.
    Process,
    /// With a bearer token that is renewed elsewhere.
    Token(watch::Receiver<Option<HeaderValue>>),
}

/// What holds for the writes of one client.
struct Writes {
    most: usize,
    lane: Lane,
    fence: Fence,
}

impl Writes {
    fn unlimited() -> Self {
        Self { most: IN_FLIGHT, lane: Lane::First, fence: Fence::open() }
    }
}

impl Server {
    /// Reads how to reach the server. Nothing is sent yet: an API server that is away is no error.
    ///
    /// # Errors
    /// When the file or the ServiceAccount's files are missing or wrong, or the TLS settings do not work.
    pub async fn find(options: &ServerOptions, metrics: Metrics) -> Result<Self, ClientError> {
        let mut config = configuration(options.kubeconfig.as_deref()).await?;
        if let Some(url) = &options.url {
            config.cluster_url = url.clone();
        }
        let connect = |config| Connections::new(config).map_err(|error| ClientError::Settings(Box::new(error)));
        let mut without_authority = config.clone();
        without_authority.auth_info = AuthInfo::default();
        Ok(Self {
            connections: connect(config.clone())?,
            anonymous: connect(without_authority)?,
            config,
            traffic: Arc::new(Traffic::new(options.rate)),
            metrics,
        })
    }

    /// A client. The API server sees `purpose` in its user agent.
    ///
    /// # Errors
    /// When the authentication settings do not work.
    pub fn client(&self, purpose: &str) -> Result<Client, ClientError> {
        self.build(purpose, Identity::Process, Writes::unlimited())
    }

    /// A client for a controller's writes: at most `writes` of them are on their way at a time, and
    /// none begins while the fence is closed.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub fn writer(&self, name: &str, identity: Identity, writes: usize, fence: Fence) -> Result<Client, ClientError> {
        let writes = Writes { most: writes, lane: Lane::First, fence };
        self.build(name, identity, writes)
    }

    /// A client for what is of use only once something else was written: its writes let others go first
    /// for a while.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub fn patient(&self, name: &str, identity: Identity, fence: Fence) -> Result<Client, ClientError> {
        let writes = Writes { most: IN_FLIGHT, lane: Lane::Next, fence };
        self.build(name, identity, writes)
    }

    /// A client for what a controller only tells: a few writes at a time, which let others go first.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub fn teller(&self, name: &str, identity: Identity, fence: Fence) -> Result<Client, ClientError> {
        let writes = Writes { most: TOLD_AT_ONCE, lane: Lane::Later, fence };
        self.build(name, identity, writes)
    }

    /// The election's client, with connections of its own: it waits neither for other requests nor for a
    /// server that wants to be left alone, because a Lease that is renewed late is lost.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub fn election_client(&self) -> Result<Client, ClientError> {
        let settings = |error| ClientError::Settings(Box::new(error));
        let rules = Rules { traffic: None, ..self.rules(Writes::unlimited(), None) };
        let connections = Connections::new(self.config.clone()).map_err(settings)?;
        connections.client(agent("leader-election"), rules).map_err(settings)
    }

    /// Waits until every write has been answered; none is sent any more.
    pub async fn settled(&self) {
        self.traffic.settled().await;
    }

    fn build(&self, purpose: &str, identity: Identity, writes: Writes) -> Result<Client, ClientError> {
        let (connections, token) = match identity {
            Identity::Process => (&self.connections, None),
            Identity::Token(token) => (&self.anonymous, Some(token)),
        };
        let client = connections.client(agent(purpose), self.rules(writes, token));
        client.map_err(|error| ClientError::Settings(Box::new(error)))
    }

    fn rules(&self, writes: Writes, token: Option<watch::Receiver<Option<HeaderValue>>>) -> Rules {
        Rules {
            traffic: Some(Arc::clone(&self.traffic)),
            writes: Arc::new(Semaphore::new(writes.most)),
            lane: writes.lane,
            fence: writes.fence,
            token,
            metrics: self.metrics.clone(),
            host: self.config.cluster_url.authority().map(ToString::to_string).unwrap_or_default(),
        }
    }
}

fn agent(purpose: &str) -> HeaderValue {
    let agent = format!("cairn/{} ({}/{}) {purpose}", env!("CARGO_PKG_VERSION"), std::env::consts::OS, ARCH);
    HeaderValue::from_str(&agent).expect("it is ASCII without control codes")
}

const ARCH: &str = std::env::consts::ARCH;

/// Connects with a kubeconfig file or, without one, as the pod's ServiceAccount.
///
/// # Errors
/// When the file or the ServiceAccount's files are missing or wrong.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    let options = ServerOptions { kubeconfig: kubeconfig.map(Path::to_owned), ..ServerOptions::default() };
    Server::find(&options, Metrics::default()).await?.client("agent")
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, ClientError> {
    let mut config = match kubeconfig {
        Some(path) => from_file(path).await?,
        None => Config::incluster().map_err(ClientError::NotInCluster)?,
    };
    // Whoever asked knows whether it is still worth asking, and when.
    config.default_retry = false;
    Ok(config)
}

async fn from_file(path: &Path) -> Result<Config, ClientError> {
    let refused = |source| ClientError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let file = Kubeconfig::read_from(path).map_err(refused)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::told::Told;
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use kube::api::ListParams;
    use tokio::net::TcpSocket;

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named_without_a_flag() {
        let error = connect(Some(Path::new("/none/nope"))).await.err().expect("there is no file");
        let told = Told(&error).to_string();
        assert!(told.starts_with("kubeconfig /none/nope: cannot use it: "), "{told}");
    }

    #[tokio::test]
    async fn a_server_that_takes_no_connection_is_named() {
        // It has a port, and does not listen.
        let silent = TcpSocket::new_v4().expect("a socket");
        silent.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let server = format!("http://{}", silent.local_addr().expect("an address"));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("kubeconfig");
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
        );
        std::fs::write(&file, text).expect("a file");
        let client = connect(Some(&file)).await.expect("a client");
        let error = Api::<Node>::all(client).list(&ListParams::default()).await.expect_err("nobody listens");
        let told = Told(&error).to_string();
        assert!(told.starts_with(&format!("API server {server}: ")) && told.contains("refused"), "{told}");
    }
}
