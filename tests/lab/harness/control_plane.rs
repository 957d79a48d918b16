//! etcd, API server and controller manager, in a namespace of their own.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace as NamespaceObject;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::process::Command;

use super::{
    address::{API_SERVICE, CLUSTER_CIDRS, CONTROL_PLANE, SERVICE_CIDRS},
    binaries::Binaries,
    enclosure::WORK,
    kubernetes::Kubernetes,
    lab::PodCidrs,
    namespace::{Namespace, Program, output_of},
    pki::{Authority, Identity},
    wait::wait_for,
};

const READY_WITHIN: Duration = Duration::from_secs(60);
/// What ServiceAccounts of Cairn and MetalLB ask for, and who writes the Lease of leader migration; nothing else is logged.
const AUDIT_POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users:
  - system:serviceaccount:kube-system:cairn-controller
  - system:serviceaccount:kube-system:cairn-agent
  - system:serviceaccount:kube-system:node-controller
  - system:serviceaccount:kube-system:service-controller
  - system:serviceaccount:kube-system:route-controller
  - system:serviceaccount:kube-system:reference-ccm
  - system:serviceaccount:metallb-system:controller
- level: Metadata
  users: ["system:kube-controller-manager"]
  resources: [{group: coordination.k8s.io, resources: [leases], resourceNames: [cloud-provider-extraction-migration]}]
- level: None
"#;
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// A control plane that answers.
pub(crate) struct ControlPlane {
    kubernetes: Kubernetes,
    namespace: Namespace,
    authority: Authority,
    binaries: Binaries,
    admin_kubeconfig: PathBuf,
    admin: Client,
    api_server: Option<Program>,
    _others: Vec<Program>,
}

/// One request to the API server, from its audit log.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) user: String,
    /// Which of the user's tokens or certificates it showed.
    pub(crate) credential: String,
    /// The program's word for itself.
    pub(crate) agent: String,
    pub(crate) verb: String,
    /// The path and the query.
    pub(crate) uri: String,
    /// The API group; empty for the core, and for paths that are no resources.
    pub(crate) group: String,
    /// `nodes`, `nodes/status`; empty for paths that are no resources.
    pub(crate) resource: String,
    /// Empty for what has none.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) code: u64,
}

impl ApiRequest {
    pub(crate) fn is_by_cairn(&self) -> bool {
        self.agent.starts_with("cairn/")
    }

    /// Whether it is a write of what a Service's conditions say, which is told apart from its addresses.
    pub(crate) fn is_of_service_conditions(&self) -> bool {
        self.is_by_cairn() && self.agent.ends_with(" service-conditions")
    }

    pub(crate) fn is_write(&self) -> bool {
        WRITES.contains(&self.verb.as_str())
    }

    /// Whether it was done. A write that is not, since somebody else's came first, is tried again.
    pub(crate) fn is_accepted(&self) -> bool {
        self.code < 300
    }
}

impl ControlPlane {
    /// Starts etcd and the API server.
    pub(crate) async fn start(kubernetes: Kubernetes, namespace: Namespace) -> Result<Self> {
        let authority = Authority::make(&Path::new(WORK).join("pki"))?;
        let admin = Identity { user: "admin", group: Some("system:masters") };
        let admin_kubeconfig = authority.kubeconfig("admin", admin)?;
        let address = CONTROL_PLANE.v4().to_string();
        let names = ["127.0.0.1", &address, API_SERVICE, "localhost", "kubernetes.default.svc"];
        authority.certify("apiserver", Identity { user: "kube-apiserver", group: None }, &names)?;
        authority.make_token_keys()?;
        std::fs::write(authority.file("audit.yaml"), AUDIT_POLICY)?;

        let binaries = Binaries::provided()?;
        let etcd = start_etcd(&namespace, &binaries)?;
        let api_server = start_api_server(kubernetes, &namespace, &binaries, &authority)?;
        let admin = client(&admin_kubeconfig).await?;
        let mut control_plane = Self {
            kubernetes,
            namespace,
            authority,
            binaries,
            admin_kubeconfig,
            admin,
            api_server: Some(api_server),
            _others: vec![etcd],
        };
        control_plane.wait_until_ready().await?;
        Ok(control_plane)
    }

    /// Starts Kubernetes' own controllers.
    pub(crate) fn run_controller_manager(&mut self, pod_cidrs: PodCidrs) -> Result<()> {
        let manager = self.start_controller_manager(pod_cidrs)?;
        self._others.push(manager);
        Ok(())
    }

    /// A client that may do everything.
    pub(crate) fn admin(&self) -> &Client {
        &self.admin
    }

    pub(crate) fn admin_kubeconfig(&self) -> &Path {
        &self.admin_kubeconfig
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Runs `kubectl` as the administrator.
    pub(crate) async fn kubectl<const N: usize>(&self, arguments: [&str; N]) -> Result<String> {
        let mut command = Command::new(self.binaries.path("kubectl")?);
        // Without a home of its own, kubectl would leave its discovery cache behind.
        command.env("HOME", WORK).arg("--kubeconfig").arg(&self.admin_kubeconfig).args(arguments);
        output_of(command, &format!("kubectl {}", arguments.join(" "))).await
    }

    /// Applies a file whose kinds may have come a moment ago: the API server's list of kinds follows them.
    pub(crate) async fn apply(&self, file: &str) -> Result<()> {
        wait_for(&format!("the API server knows the kinds of {file}"), READY_WITHIN, async || {
            match self.kubectl(["apply", "--server-side", "-f", file]).await {
                Err(error) if format!("{error:#}").contains("no matches for kind") => Err(error),
                answer => Ok(answer),
            }
        })
        .await?
        .map(drop)
    }

    /// Kills the API server; clients see their connections end.
    pub(crate) async fn kill_api_server(&mut self) -> Result<()> {
        self.api_server.take().context("the API server is down already")?.kill().await
    }

    /// Starts the API server again, with the state it had.
    pub(crate) async fn restart_api_server(&mut self) -> Result<()> {
        let api_server = start_api_server(self.kubernetes, &self.namespace, &self.binaries, &self.authority)?;
        self.api_server = Some(api_server);
        self.wait_until_ready().await
    }

    /// What Cairn has written so far, oldest first: also what was refused, and what is in force may not be here yet.
    pub(crate) fn writes_by_cairn(&self) -> Result<Vec<ApiRequest>> {
        Ok(self.requests_by_cairn()?.into_iter().filter(ApiRequest::is_write).collect())
    }

    /// What Cairn has asked for so far, oldest first.
    pub(crate) fn requests_by_cairn(&self) -> Result<Vec<ApiRequest>> {
        // Kubernetes' own controllers use some of the same accounts.
        Ok(self.requests()?.into_iter().filter(ApiRequest::is_by_cairn).collect())
    }

    /// All that is logged, oldest first. A request is logged when it is answered: what it wrote can be seen before.
    /// A watch is when it has begun.
    pub(crate) fn requests(&self) -> Result<Vec<ApiRequest>> {
        let text = std::fs::read(Path::new(WORK).join("audit.log"))?;
        // The last line may be in the middle of being written.
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let all = std::str::from_utf8(&text[..end])?.lines().map(parse_audit_line);
        all.filter_map(Result::transpose).collect()
    }

    /// Starts a kube-controller-manager of a Kubernetes that still ran a cloud's loops, with these of its controllers.
    pub(crate) fn spawn_migration_partner(&self, controllers: &str, flags: &[&str]) -> Result<Program> {
        let mut command = self.namespace.command(self.binaries.path("migration-partner")?);
        for (name, file) in [
            ("kubeconfig", "kcm.kubeconfig"),
            ("service-account-private-key-file", "sa.key"),
            ("root-ca-file", "ca.crt"),
        ] {
            command.arg(flag(name, &self.authority.file(file)));
        }
        command.args([
            "--cloud-provider=lab",
            // It stands for the second Lease once the first of these runs.
            &format!("--controllers=serviceaccount-token-controller,{controllers}"),
            "--use-service-account-credentials",
            "--bind-address=127.0.0.1",
            "--secure-port=10267",
            "--v=2",
        ]);
        command.args(flags);
        self.namespace.spawn("migration-partner", command)
    }

    /// Starts kube-scheduler, which only pods need that a real kubelet runs.
    pub(crate) fn start_scheduler(&mut self) -> Result<()> {
        let identity = Identity { user: "system:kube-scheduler", group: None };
        let kubeconfig = self.authority.kubeconfig("scheduler", identity)?;
        let mut command = self.namespace.command(self.binaries.path("kube-scheduler")?);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.args(["--leader-elect=false", "--bind-address=127.0.0.1", "--v=1"]);
        self._others.push(self.namespace.spawn("kube-scheduler", command)?);
        Ok(())
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let admin = self.admin.clone();
        let api_server = self.api_server.as_mut().context("the API server has been started")?;
        wait_for("the API server is ready", READY_WITHIN, async || {
            api_server.ensure_running()?;
            let request = axum::http::Request::get("/readyz").body(Vec::new())?;
            Ok(admin.request_text(request).await?)
        })
        .await?;
        // It makes them in the background.
        let namespaces: Api<NamespaceObject> = Api::all(admin);
        wait_for("the API server has its own namespaces", READY_WITHIN, async || {
            for name in ["default", "kube-system", "kube-node-lease"] {
                namespaces.get(name).await?;
            }
            Ok(())
        })
        .await
    }

    fn start_controller_manager(&self, pod_cidrs: PodCidrs) -> Result<Program> {
        let identity = Identity { user: "system:kube-controller-manager", group: None };
        let kubeconfig = self.authority.kubeconfig("kcm", identity)?;
        let mut command =
            self.namespace.command(self.binaries.path(&self.kubernetes.binary("kube-controller-manager"))?);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.arg(flag("service-account-private-key-file", &self.authority.file("sa.key")));
        command.arg(flag("root-ca-file", &self.authority.file("ca.crt")));
        command.args([
            "--cloud-provider=external",
            "--leader-elect=false",
            "--use-service-account-credentials",
            "--bind-address=127.0.0.1",
            &format!("--allocate-node-cidrs={}", pod_cidrs == PodCidrs::KubeControllerManager),
            &format!("--cluster-cidr={CLUSTER_CIDRS}"),
            "--node-cidr-mask-size-ipv4=24",
            "--node-cidr-mask-size-ipv6=64",
            &format!("--service-cluster-ip-range={SERVICE_CIDRS}"),
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=4s",
            "--node-startup-grace-period=10s",
            "--endpointslice-updates-batch-period=0s",
            "--controllers=*,-ttl-after-finished-controller",
            // It makes this folder, and would make its default on the machine itself.
            &format!("--flex-volume-plugin-dir={WORK}/flexvolumes"),
            // Its own brake would cost seconds at the start, when every controller asks for a token.
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
            "--v=1",
        ]);
        self.namespace.spawn("kube-controller-manager", command)
    }
}

/// A client from a kubeconfig file.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn start_etcd(namespace: &Namespace, binaries: &Binaries) -> Result<Program> {
    let mut command = namespace.command(binaries.path("etcd")?);
    command.arg(flag("data-dir", &Path::new(WORK).join("etcd")));
    command.args([
        "--unsafe-no-fsync",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--log-level=error",
    ]);
    namespace.spawn("etcd", command)
}

fn start_api_server(
    kubernetes: Kubernetes,
    namespace: &Namespace,
    binaries: &Binaries,
    authority: &Authority,
) -> Result<Program> {
    let mut command = namespace.command(binaries.path(&kubernetes.binary("kube-apiserver"))?);
    for (name, file) in [
        ("tls-cert-file", "apiserver.crt"),
        ("tls-private-key-file", "apiserver.key"),
        ("client-ca-file", "ca.crt"),
        ("service-account-key-file", "sa.pub"),
        ("service-account-signing-key-file", "sa.key"),
        ("audit-policy-file", "audit.yaml"),
    ] {
        command.arg(flag(name, &authority.file(file)));
    }
    command.arg(flag("audit-log-path", &Path::new(WORK).join("audit.log")));
    command.args([
        "--etcd-servers=http://127.0.0.1:2379",
        "--bind-address=0.0.0.0",
        "--secure-port=6443",
        &format!("--advertise-address={}", CONTROL_PLANE.v4()),
        &format!("--service-cluster-ip-range={SERVICE_CIDRS}"),
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        "--profiling=false",
        "--v=1",
    ]);
    namespace.spawn("kube-apiserver", command)
}

/// `None` for the end of a watch.
fn parse_audit_line(line: &str) -> Result<Option<ApiRequest>> {
    let event: serde_json::Value = serde_json::from_str(line).with_context(|| format!("audit log: {line}"))?;
    let text = |pointer: &str| event.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    if text("/verb") == "watch" && text("/stage") == "ResponseComplete" {
        return Ok(None);
    }
    let resource = [text("/objectRef/resource"), text("/objectRef/subresource")];
    Ok(Some(ApiRequest {
        user: text("/user/username"),
        credential: text("/user/extra/authentication.kubernetes.io~1credential-id/0"),
        agent: text("/userAgent"),
        verb: text("/verb"),
        uri: text("/requestURI"),
        group: text("/objectRef/apiGroup"),
        resource: resource.join("/").trim_end_matches('/').to_owned(),
        namespace: text("/objectRef/namespace"),
        name: text("/objectRef/name"),
        code: event.pointer("/responseStatus/code").and_then(serde_json::Value::as_u64).unwrap_or_default(),
    }))
}
