//! A node of either kind. A light one is a Node object with a heartbeat, a real kube-proxy, and pods that are
//! namespaces; a full one ([`super::full_node`]) has a kubelet and a container runtime.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    address::{CLUSTER_CIDRS, LanHost},
    control_plane::ControlPlane,
    enclosure::WORK,
    full_node::{self, NodeIp},
    kubelet::{self, Kubelet, UNINITIALIZED},
    namespace::{Namespace, Program, ip_batch, run},
    pki::Identity,
    wait::wait_for,
};

const SOON: Duration = Duration::from_secs(20);
const PROXY_PORT: u16 = 10256;

/// One machine of the lab.
pub(crate) struct Node {
    name: String,
    host: LanHost,
    namespace: Namespace,
    admin: Client,
    kubelet: Option<Kubelet>,
    programs: BTreeMap<String, Program>,
}

/// How a node's death shows to those who talk to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// Its cable is cut first: nobody hears anything.
    Silent,
    /// Its kernel still closes the connections of the processes that die.
    WithReset,
}

impl Node {
    /// Makes the machine and registers its Node, tainted as uninitialized.
    pub(crate) async fn register(
        control_plane: &ControlPlane,
        namespace: Namespace,
        name: &str,
        host: LanHost,
    ) -> Result<Self> {
        let admin = control_plane.admin().clone();
        kubelet::register(&admin, name).await?;
        kubelet::create_lease(&admin, name).await?;
        let mut node = Self { name: name.to_owned(), host, namespace, admin, kubelet: None, programs: BTreeMap::new() };
        node.start_kubelet(control_plane)?;
        Ok(node)
    }

    /// Makes a machine that runs a real kubelet, and waits until that has registered its Node.
    pub(crate) async fn boot(
        control_plane: &ControlPlane,
        namespace: Namespace,
        name: &str,
        host: LanHost,
        node_ip: NodeIp,
    ) -> Result<Self> {
        let kubeconfig = kubelet_kubeconfig(control_plane, name)?;
        let command = full_node::prepare(control_plane.binaries(), name, host, node_ip, &kubeconfig).await?;
        let admin = control_plane.admin().clone();
        let mut node = Self { name: name.to_owned(), host, namespace, admin, kubelet: None, programs: BTreeMap::new() };
        node.spawn("machine", command)?;
        wait_for(&format!("the kubelet of {name} registers it"), SOON, async || {
            node.program("machine")?.ensure_running()?;
            node.object().await
        })
        .await?;
        Ok(node)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn host(&self) -> LanHost {
        self.host
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The Node object as it is now.
    pub(crate) async fn object(&self) -> Result<NodeObject> {
        Ok(Api::all(self.admin.clone()).get(&self.name).await?)
    }

    /// Runs a program on the node to its end.
    pub(crate) async fn exec<const N: usize>(&self, words: [&str; N]) -> Result<String> {
        self.namespace.exec(words).await
    }

    /// Starts a program on the node; it dies with the node.
    pub(crate) fn spawn(&mut self, part: &str, command: tokio::process::Command) -> Result<()> {
        let program = self.namespace.spawn(&format!("{}-{part}", self.name), command)?;
        self.programs.insert(part.to_owned(), program);
        Ok(())
    }

    /// A program that [`Node::spawn`] started.
    pub(crate) fn program(&mut self, part: &str) -> Result<&mut Program> {
        self.programs.get_mut(part).with_context(|| format!("no {part} was started on {}", self.name))
    }

    /// The node's pod CIDRs, IPv4 first, once the controller manager has given them.
    pub(crate) async fn pod_cidrs(&self) -> Result<[String; 2]> {
        let what = format!("Node {} has pod CIDRs of both families", self.name);
        wait_for(&what, SOON, async || {
            let cidrs = self.object().await?.spec.and_then(|spec| spec.pod_cidrs).unwrap_or_default();
            <[String; 2]>::try_from(cidrs).map_err(|cidrs| anyhow::anyhow!("pod CIDRs {cidrs:?}"))
        })
        .await
    }

    /// Kills the kubelet of a full node, whose machine starts it again.
    pub(crate) async fn restart_kubelet(&self) -> Result<()> {
        let pids = run("ip", ["netns", "pids", self.namespace.name()]).await?;
        let is_kubelet = |pid: &&str| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "kubelet")
        };
        let kubelet = pids.split_whitespace().find(is_kubelet).context("no kubelet runs there")?;
        run("kill", ["-KILL", kubelet]).await?;
        Ok(())
    }

    /// Waits until the Node has an InternalIP, then starts kube-proxy and waits until it serves.
    pub(crate) async fn start_proxy(&mut self, control_plane: &ControlPlane) -> Result<()> {
        self.wait_for_internal_ip().await?;
        let config = Path::new(WORK).join(format!("{}-kube-proxy.yaml", self.name));
        std::fs::write(&config, proxy_config(&self.name, &control_plane.authority().file("kube-proxy.kubeconfig")))?;
        let mut command = self.namespace.command(control_plane.binaries().path("kube-proxy")?);
        command.arg("--config").arg(config).arg("--v=2");
        self.spawn("kube-proxy", command)
    }

    /// Waits until kube-proxy has programmed its rules once.
    pub(crate) async fn wait_for_proxy(&mut self) -> Result<()> {
        let what = format!("kube-proxy serves on {}", self.name);
        let (namespace, url) = (self.namespace.clone(), format!("http://127.0.0.1:{PROXY_PORT}/healthz"));
        let program = self.program("kube-proxy")?;
        wait_for(&what, SOON, async || {
            program.ensure_running()?;
            namespace.exec(["curl", "--silent", "--show-error", "--fail", &url]).await
        })
        .await?;
        Ok(())
    }

    /// Does what a cloud provider does, for labs without one: addresses, providerID, taint off.
    pub(crate) async fn initialize_by_hand(&self) -> Result<()> {
        let nodes: Api<NodeObject> = Api::all(self.admin.clone());
        let mut addresses = vec![json!({ "type": "Hostname", "address": self.name })];
        addresses.extend(self.host.both().map(|address| json!({ "type": "InternalIP", "address": address })));
        let params = PatchParams::default();
        let status = json!({ "status": { "addresses": addresses } });
        nodes.patch_status(&self.name, &params, &Patch::Merge(status)).await?;
        let spec = json!({ "spec": { "providerID": format!("lab://{}", self.name), "taints": null } });
        nodes.patch(&self.name, &params, &Patch::Merge(spec)).await?;
        Ok(())
    }

    /// Ends everything that runs on the node and takes it off the network.
    pub(crate) async fn kill(&mut self, death: Death) -> Result<()> {
        if death == Death::Silent {
            self.cut_cable().await?;
        }
        self.kubelet = None;
        self.namespace.kill_all().await?;
        for (_, mut program) in std::mem::take(&mut self.programs) {
            program.kill().await?;
        }
        self.cut_cable().await
    }

    /// Takes the node's port on the switch down; what runs on the node goes on.
    pub(crate) async fn cut_cable(&self) -> Result<()> {
        ip_batch(&[], &format!("link set p-{} down", self.name)).await
    }

    /// Takes the node's port up again.
    pub(crate) async fn plug_cable(&self) -> Result<()> {
        ip_batch(&[], &format!("link set p-{} up", self.name)).await
    }

    fn start_kubelet(&mut self, control_plane: &ControlPlane) -> Result<()> {
        let kubeconfig = kubelet_kubeconfig(control_plane, &self.name)?;
        self.kubelet = Some(Kubelet::start(&self.namespace, &self.name, kubeconfig)?);
        Ok(())
    }

    /// Waits until the cloud provider is done with it: the taint goes last.
    pub(crate) async fn wait_until_initialized(&self) -> Result<()> {
        wait_for(&format!("Node {} is initialized", self.name), SOON, async || {
            let taints = self.object().await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
            ensure!(taints.iter().all(|taint| taint.key != UNINITIALIZED), "it has the taint {UNINITIALIZED}");
            Ok(())
        })
        .await
    }

    /// Waits until somebody has given the Node its addresses.
    pub(crate) async fn wait_for_internal_ip(&self) -> Result<()> {
        wait_for(&format!("Node {} has an InternalIP", self.name), SOON, async || {
            let addresses = self.object().await?.status.and_then(|status| status.addresses).unwrap_or_default();
            let types: Vec<_> = addresses.iter().map(|address| &address.type_).collect();
            ensure!(addresses.iter().any(|address| address.type_ == "InternalIP"), "addresses of types {types:?}");
            Ok(())
        })
        .await
    }
}

fn kubelet_kubeconfig(control_plane: &ControlPlane, node: &str) -> Result<PathBuf> {
    let user = format!("system:node:{node}");
    let identity = Identity { user: &user, group: Some("system:nodes") };
    control_plane.authority().kubeconfig(&format!("node-{node}"), identity)
}

/// `conntrack` keeps kube-proxy from writing sysctls that a namespace does not have.
fn proxy_config(node: &str, kubeconfig: &Path) -> String {
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n\
         kind: KubeProxyConfiguration\n\
         mode: nftables\n\
         hostnameOverride: {node}\n\
         clientConnection: {{kubeconfig: {}}}\n\
         bindAddress: 0.0.0.0\n\
         healthzBindAddress: 0.0.0.0:{PROXY_PORT}\n\
         metricsBindAddress: 127.0.0.1:10249\n\
         clusterCIDR: {CLUSTER_CIDRS}\n\
         detectLocalMode: ClusterCIDR\n\
         conntrack: {{maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, \
         udpTimeout: 0s, udpStreamTimeout: 0s}}\n\
         nftables: {{syncPeriod: 30s, minSyncPeriod: 100ms}}\n",
        kubeconfig.display()
    )
}
