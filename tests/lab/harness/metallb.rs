//! MetalLB's own controller, for labs that run it beside Cairn or compare the two.

use std::path::PathBuf;

use anyhow::Result;
use kube::Client;
use serde_json::json;

use super::{
    cairn::token_kubeconfig,
    control_plane::{self, ControlPlane},
    enclosure::WORK,
    namespace::{Namespace, Program},
};

pub(crate) const NAMESPACE: &str = "metallb-system";
const ACCOUNT: &str = "controller";
/// Its name in the audit log, where its requests are logged as Cairn's are.
pub(crate) const USER: &str = "system:serviceaccount:metallb-system:controller";
const POD: &str = "controller";

/// An installed MetalLB; nothing of it runs yet.
pub(crate) struct MetalLb {
    kubeconfig: PathBuf,
}

impl MetalLb {
    /// Applies its CRDs, and what its controller looks for: a namespace, an account that may do everything, and the
    /// Pod that it would run in.
    pub(crate) async fn install(control_plane: &ControlPlane) -> Result<Self> {
        let crds = control_plane.binaries().path("metallb-crds")?.display().to_string();
        control_plane.kubectl(["apply", "--server-side", "-f", &crds]).await?;
        control_plane.kubectl(["wait", "--for=condition=Established", "--timeout=10s", "-f", &crds]).await?;
        let subject = json!({ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE });
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" });
        for object in [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT, "namespace": NAMESPACE } }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": { "name": "metallb" },
                "roleRef": role,
                "subjects": [subject],
            }),
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": { "name": POD, "namespace": NAMESPACE },
                "spec": {
                    "serviceAccountName": ACCOUNT,
                    "automountServiceAccountToken": false,
                    "containers": [{ "name": "controller", "image": "metallb" }],
                },
            }),
        ] {
            apply(control_plane, &object).await?;
        }
        Ok(Self { kubeconfig: token_kubeconfig(control_plane, NAMESPACE, ACCOUNT).await? })
    }

    /// A client that is to the API server what the controller is.
    pub(crate) async fn controller_client(&self) -> Result<Client> {
        control_plane::client(&self.kubeconfig).await
    }

    /// Creates or changes an `IPAddressPool`.
    pub(crate) async fn apply_pool(&self, control_plane: &ControlPlane, name: &str, addresses: &str) -> Result<()> {
        let pool = json!({
            "apiVersion": "metallb.io/v1beta1",
            "kind": "IPAddressPool",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": { "addresses": [addresses] },
        });
        apply(control_plane, &pool).await
    }

    /// Starts the controller in `namespace`.
    pub(crate) fn spawn_controller(&self, control_plane: &ControlPlane, namespace: &Namespace) -> Result<Program> {
        let mut command = namespace.command(control_plane.binaries().path("metallb-controller")?);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.args([&format!("--namespace={NAMESPACE}"), &format!("--pod-name={POD}")]);
        command.args(["--webhook-mode=disabled", "--log-level=error", "--port=0", "--health-probe-port=17472"]);
        namespace.spawn("metallb-controller", command)
    }
}

async fn apply(control_plane: &ControlPlane, object: &serde_json::Value) -> Result<()> {
    let file = PathBuf::from(WORK).join("object.json");
    std::fs::write(&file, object.to_string())?;
    control_plane.apply(&file.display().to_string()).await
}
