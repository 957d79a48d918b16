#![expect(clippy::disallowed_methods, reason = "shell: owns the port's tasks")]
//! The secure port and what stands behind it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use kube::Client;
use tokio::task::JoinSet;

use crate::cluster::client::{Server, ServerOptions};
use crate::cluster::metrics::Metrics;
use crate::telemetry::access::Access;
use crate::telemetry::certificate::Certificates;
use crate::telemetry::secure::{self, Pages, ServingOptions};

const FAILED: &str = "the secure port failed";

/// Listens, and starts the tasks of the port.
///
/// # Errors
/// When the port is taken, or its certificate or a kubeconfig cannot be used.
pub async fn open(
    options: &ServingOptions,
    server: &Server,
    pages: Pages,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let certificates = Certificates::open(&options.certificate, options.tls.clone(), options.address.ip())
        .context("--tls-cert-file, --tls-private-key-file, --cert-dir")?;
    let listener = secure::listen(options)?;
    let (authentication, authorization) =
        (&options.access.authentication_kubeconfig, &options.access.authorization_kubeconfig);
    let authentication =
        client(server, authentication, "authentication").await.context("--authentication-kubeconfig")?;
    let authorization = client(server, authorization, "authorization").await.context("--authorization-kubeconfig")?;
    let (access, follow) = Access::new(options.access.clone(), authentication, authorization);
    let served = secure::serve(listener, certificates.server(), Arc::new(access), Arc::new(pages));
    tasks.spawn(async move {
        served.await;
        Ok(())
    });
    tasks.spawn(async move { follow.await.context(FAILED) });
    tasks.spawn(async move {
        certificates.follow().await;
        Ok(())
    });
    Ok(())
}

async fn client(server: &Server, kubeconfig: &Option<PathBuf>, purpose: &str) -> anyhow::Result<Client> {
    let server = match kubeconfig {
        None => server.clone(),
        Some(_) => {
            let options = ServerOptions { kubeconfig: kubeconfig.clone(), ..ServerOptions::default() };
            Server::find(&options, Metrics::default()).await?
        }
    };
    Ok(server.client(purpose)?)
}
