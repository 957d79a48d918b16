//! Services of type LoadBalancer, seen through their API object.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service as ServiceObject;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{pod, wait::wait_for};

/// A Service in the default namespace, dual stack, with port 80.
pub(crate) struct Service {
    name: String,
    services: Api<ServiceObject>,
}

/// Which nodes may take a Service's traffic.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExternalTrafficPolicy {
    Cluster,
    Local,
}

pub(crate) const PORT: u16 = 80;

impl Service {
    /// Creates a Service for the pods with the label `app: NAME`.
    pub(crate) async fn create(admin: &Client, name: &str, policy: ExternalTrafficPolicy) -> Result<Self> {
        Self::create_for_app(admin, name, name, policy).await
    }

    /// Creates a Service for the pods with the label `app`.
    pub(crate) async fn create_for_app(
        admin: &Client,
        name: &str,
        app: &str,
        policy: ExternalTrafficPolicy,
    ) -> Result<Self> {
        let services: Api<ServiceObject> = Api::default_namespaced(admin.clone());
        let object = json!({
            "metadata": { "name": name },
            "spec": {
                "type": "LoadBalancer",
                "ipFamilyPolicy": "RequireDualStack",
                "externalTrafficPolicy": format!("{policy:?}"),
                "selector": { "app": app },
                "ports": [{ "port": PORT, "targetPort": pod::PORT }],
            },
        });
        services.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(Self { name: name.to_owned(), services })
    }

    /// Writes the status as a service controller does, for labs without one.
    pub(crate) async fn give_addresses_by_hand(&self, addresses: [IpAddr; 2]) -> Result<()> {
        let ingress = addresses.map(|ip| json!({ "ip": ip, "ipMode": "VIP" }));
        let patch = Patch::Merge(json!({ "status": { "loadBalancer": { "ingress": ingress } } }));
        self.services.patch_status(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The addresses in its status, as they stand there.
    pub(crate) async fn addresses(&self) -> Result<Vec<IpAddr>> {
        let status = self.services.get(&self.name).await?.status.and_then(|status| status.load_balancer);
        let ingress = status.and_then(|balancer| balancer.ingress).unwrap_or_default();
        let addresses = ingress.into_iter().filter_map(|ingress| ingress.ip);
        addresses.map(|ip| ip.parse().with_context(|| format!("address {ip}"))).collect()
    }

    /// Waits for one address of each family, IPv4 first.
    pub(crate) async fn wait_for_addresses(&self, deadline: Duration) -> Result<[IpAddr; 2]> {
        wait_for(&format!("Service {} has an address of each family", self.name), deadline, async || {
            let mut addresses = self.addresses().await?;
            addresses.sort();
            ensure!(matches!(addresses[..], [IpAddr::V4(_), IpAddr::V6(_)]), "addresses {addresses:?}");
            Ok([addresses[0], addresses[1]])
        })
        .await
    }

    pub(crate) async fn delete(self) -> Result<()> {
        self.services.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// `10.60.0.1/32` or `fd60::1/128`.
pub(crate) fn host_prefix(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}
