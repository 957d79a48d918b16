//! The way to the API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The file given by `--kubeconfig` cannot be read or does not name a cluster and user.
    #[error("--kubeconfig {}: cannot use it", path.display())]
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

/// Connects with a kubeconfig file or, without one, as the pod's ServiceAccount.
///
/// Nothing is sent yet: an API server that is away is no error here.
///
/// # Errors
/// When the file or the ServiceAccount's files are missing or wrong.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    let mut config = match kubeconfig {
        Some(path) => from_file(path).await?,
        None => Config::incluster().map_err(ClientError::NotInCluster)?,
    };
    // A dead server must be noticed: watches are kept alive by bookmarks and end by themselves
    // below this (the watcher asks for 290 s), all else answers in seconds.
    config.connect_timeout = Some(Duration::from_secs(5));
    Client::try_from(config).map_err(|e| ClientError::Settings(Box::new(e)))
}

async fn from_file(path: &Path) -> Result<Config, ClientError> {
    let refused = |source| ClientError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let file = Kubeconfig::read_from(path).map_err(refused)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(refused)
}
