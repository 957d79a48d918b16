//! Cairn in the lab: installed from the repository's own manifests, run with the rights of its own ServiceAccounts.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cairn::api::{NodeReport, NodeReportSpec};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::process::Command;

use super::{
    control_plane::{self, ControlPlane},
    enclosure::WORK,
    namespace::{Namespace, Program},
    node::Node,
    wait::wait_for,
};

const SOON: Duration = Duration::from_secs(20);

/// The part that [`Cairn::spawn_agent`] starts on a node.
pub(crate) const AGENT: &str = "cairn-agent";
const CONTROLLER: &str = "cairn-controller";
const SERVICE_ACCOUNTS: &str = "kube-system";
const TOKEN_SECONDS: u32 = 3600;
const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/flat-lan");

/// An installed Cairn: its rights and its configuration, nothing running yet.
pub(crate) struct Cairn {
    controller_kubeconfig: PathBuf,
    agent_kubeconfig: PathBuf,
    configuration: PathBuf,
}

impl Cairn {
    /// Applies the manifests and takes a copy of `examples/flat-lan/` that a test may change.
    pub(crate) async fn install(control_plane: &ControlPlane) -> Result<Self> {
        let [crds, rbac, flows] = ["crds", "rbac.yaml", "flow-schemas.yaml"].map(manifest);
        control_plane.kubectl(["apply", "--server-side", "-f", &crds, "-f", &rbac, "-f", &flows]).await?;
        control_plane.kubectl(["wait", "--for=condition=Established", "--timeout=30s", "-f", &crds]).await?;
        // For its first two seconds the API server holds back whoever creates an object of a new kind, so that the
        // other servers of a cluster hear of the kind first. Without this, it would look like Cairn's slowness.
        let trial = PostParams { dry_run: true, ..PostParams::default() };
        let reports: Api<NodeReport> = Api::all(control_plane.admin().clone());
        reports.create(&trial, &NodeReport::new("trial", NodeReportSpec {})).await.context("a trial NodeReport")?;
        Ok(Self {
            controller_kubeconfig: token_kubeconfig(control_plane, SERVICE_ACCOUNTS, CONTROLLER).await?,
            agent_kubeconfig: token_kubeconfig(control_plane, SERVICE_ACCOUNTS, AGENT).await?,
            configuration: copy_example()?,
        })
    }

    /// A client that is to the API server what the controller is: same rights, same share, same logging.
    pub(crate) async fn controller_client(&self) -> Result<Client> {
        control_plane::client(&self.controller_kubeconfig).await
    }

    /// The folder with `cloud-config.yaml`, `inventory.yaml`, `pool.yaml` and `peer.yaml`.
    pub(crate) fn configuration(&self) -> &Path {
        &self.configuration
    }

    /// Replaces words in one of the configuration's files.
    pub(crate) fn edit(&self, file: &str, from: &str, to: &str) -> Result<()> {
        let path = self.configuration.join(file);
        let text = std::fs::read_to_string(&path)?;
        ensure!(text.contains(from), "{file} does not contain {from:?}");
        // Renamed into place, as an editor or a ConfigMap mount does it.
        let new = path.with_extension("new");
        std::fs::write(&new, text.replace(from, to))?;
        Ok(std::fs::rename(new, path)?)
    }

    /// Applies the example's pool and peer.
    pub(crate) async fn apply_pool_and_peer(&self, control_plane: &ControlPlane) -> Result<()> {
        for file in ["pool.yaml", "peer.yaml"] {
            control_plane.apply(&self.configuration.join(file).display().to_string()).await?;
        }
        Ok(())
    }

    /// Lets each controller have an account of its own.
    pub(crate) async fn give_accounts(&self, control_plane: &ControlPlane) -> Result<()> {
        let rbac = manifest("rbac-per-controller.yaml");
        control_plane.kubectl(["apply", "--server-side", "-f", &rbac]).await?;
        Ok(())
    }

    /// Lets the controller give Nodes their pod CIDRs, as one account or as its own.
    pub(crate) async fn allow_node_ipam(&self, control_plane: &ControlPlane) -> Result<()> {
        let rbac = manifest("rbac-node-ipam.yaml");
        control_plane.kubectl(["apply", "--server-side", "-f", &rbac]).await?;
        Ok(())
    }

    /// As [`Self::allow_node_ipam`], for `--use-service-account-credentials`.
    pub(crate) async fn give_node_ipam_an_account(&self, control_plane: &ControlPlane) -> Result<()> {
        self.allow_node_ipam(control_plane).await?;
        let rbac = manifest("rbac-node-ipam-per-controller.yaml");
        control_plane.kubectl(["apply", "--server-side", "--force-conflicts", "-f", &rbac]).await?;
        Ok(())
    }

    /// Lets the controller hold the second Lease of leader migration.
    pub(crate) async fn allow_leader_migration(&self, control_plane: &ControlPlane) -> Result<()> {
        let rbac = manifest("rbac-leader-migration.yaml");
        control_plane.kubectl(["apply", "--server-side", "-f", &rbac]).await?;
        Ok(())
    }

    /// See [`Lab::renew_controller_token`](super::Lab::renew_controller_token).
    pub(super) async fn renew_controller_token(&mut self, control_plane: &ControlPlane) -> Result<()> {
        self.controller_kubeconfig = token_kubeconfig(control_plane, SERVICE_ACCOUNTS, CONTROLLER).await?;
        Ok(())
    }

    /// Starts a controller in `namespace`.
    pub(crate) fn spawn_controller(&self, namespace: &Namespace, flags: &[&str]) -> Result<Program> {
        let mut command = cairn(namespace, "controller", &self.controller_kubeconfig);
        command.arg("--cloud-config").arg(self.configuration.join("cloud-config.yaml"));
        // As the manifest sets it.
        command.args(flags).current_dir(&self.configuration).env("MALLOC_ARENA_MAX", "1");
        namespace.spawn(CONTROLLER, command)
    }

    /// Starts the agent of `node`, with a `/run/cairn` that no other node sees.
    pub(crate) fn spawn_agent(&self, node: &mut Node) -> Result<()> {
        let private = Path::new(WORK).join(node.name());
        for folder in [Path::new("/run/cairn"), &private] {
            std::fs::create_dir_all(folder)?;
        }
        // `ip netns exec` gives each command a mount namespace of its own.
        let mut command = node.namespace().command("sh");
        command.args(["-c", "mount --bind \"$0\" /run/cairn && exec \"$@\""]).arg(private);
        command.args([env!("CARGO_BIN_EXE_cairn"), "agent", "--node-name", node.name(), "--kubeconfig"]);
        command.arg(&self.agent_kubeconfig).env("RUST_BACKTRACE", "1");
        node.spawn(AGENT, command)
    }
}

/// The path of a file in `manifests/`.
pub(crate) fn manifest(name: &str) -> String {
    format!("{REPOSITORY}/manifests/{name}")
}

/// Runs one of the verbs that look at a cluster and end, as the administrator; what it says.
pub(crate) async fn ask(control_plane: &ControlPlane, words: &[&str]) -> Result<String> {
    let mut command = control_plane.namespace().command(env!("CARGO_BIN_EXE_cairn"));
    command.args(words).arg("--kubeconfig").arg(control_plane.admin_kubeconfig());
    let output = command.output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cairn {words:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Waits until what such a verb says has all of these words: it tells what is, which others follow to.
pub(crate) async fn answers(control_plane: &ControlPlane, words: &[&str], told: &[&str]) -> Result<()> {
    wait_for(&format!("cairn {}", words.join(" ")), SOON, async || {
        let answer = ask(control_plane, words).await?;
        let lacking: Vec<_> = told.iter().filter(|words| !answer.contains(**words)).collect();
        ensure!(lacking.is_empty(), "{lacking:?} is not in\n{answer}");
        Ok(())
    })
    .await
}

fn cairn(namespace: &Namespace, verb: &str, kubeconfig: &Path) -> Command {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_cairn"));
    command.arg(verb).arg("--kubeconfig").arg(kubeconfig).env("RUST_BACKTRACE", "1");
    command
}

/// A kubeconfig with a token of a ServiceAccount.
pub(super) async fn token_kubeconfig(control_plane: &ControlPlane, namespace: &str, account: &str) -> Result<PathBuf> {
    let accounts: Api<ServiceAccount> = Api::namespaced(control_plane.admin().clone(), namespace);
    let request: TokenRequest = serde_json::from_value(
        json!({ "metadata": {}, "spec": { "audiences": [], "expirationSeconds": TOKEN_SECONDS } }),
    )?;
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let answer = answer.with_context(|| format!("a token for ServiceAccount {namespace}/{account}"))?;
    let token = answer.status.context("the API server answers a TokenRequest with a status")?.token;
    let token = token.context("a TokenRequest's status has a token")?;
    control_plane.authority().kubeconfig_with_token(account, &token)
}

fn copy_example() -> Result<PathBuf> {
    let folder = Path::new(WORK).join("cairn");
    std::fs::create_dir_all(&folder)?;
    for file in ["cloud-config.yaml", "inventory.yaml", "pool.yaml", "peer.yaml"] {
        std::fs::copy(Path::new(EXAMPLE).join(file), folder.join(file)).with_context(|| format!("{EXAMPLE}/{file}"))?;
    }
    Ok(folder)
}
