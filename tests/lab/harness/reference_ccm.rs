//! A cloud-controller-manager made of Kubernetes' own framework, to be measured beside Cairn.
//!
//! It has an account like Cairn's, which the API server treats alike, and every right.

use std::path::PathBuf;

use anyhow::Result;

use super::{
    cairn::token_kubeconfig,
    control_plane::{ApiRequest, ControlPlane},
    namespace::Program,
};

const NAME: &str = "reference-ccm";
/// As the audit log names its account.
const USER: &str = "system:serviceaccount:kube-system:reference-ccm";

/// Its binary and its account; nothing runs yet.
pub(crate) struct ReferenceCcm {
    binary: PathBuf,
    kubeconfig: PathBuf,
}

impl ReferenceCcm {
    /// `None` where it was not built.
    pub(crate) async fn install(control_plane: &ControlPlane) -> Result<Option<Self>> {
        let Ok(binary) = control_plane.binaries().path(NAME) else { return Ok(None) };
        control_plane.kubectl(["create", "serviceaccount", NAME, "--namespace=kube-system"]).await?;
        let account = format!("--serviceaccount=kube-system:{NAME}");
        let role = "--clusterrole=cluster-admin";
        control_plane.kubectl(["create", "clusterrolebinding", NAME, role, &account]).await?;
        Ok(Some(Self {
            binary: binary.clone(),
            kubeconfig: token_kubeconfig(control_plane, "kube-system", NAME).await?,
        }))
    }

    /// Starts it with upstream's defaults, but for `flags`. It has no routes and no load balancers.
    pub(crate) fn spawn(&self, control_plane: &ControlPlane, flags: &[&str]) -> Result<Program> {
        let namespace = control_plane.namespace();
        let mut command = namespace.command(&self.binary);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(flags);
        command.args(["--cloud-provider=reference", "--secure-port=0", "--webhook-secure-port=0"]);
        command.args(["--configure-cloud-routes=false", "--v=1"]);
        namespace.spawn(NAME, command)
    }

    /// What it has written so far but its Lease, oldest first.
    pub(crate) fn writes(&self, control_plane: &ControlPlane) -> Result<Vec<ApiRequest>> {
        let all = control_plane.requests()?.into_iter();
        let is_ours = |request: &ApiRequest| request.user == USER && request.is_write() && request.resource != "leases";
        Ok(all.filter(is_ours).collect())
    }
}
