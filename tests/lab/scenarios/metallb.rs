//! MetalLB's controller beside Cairn's (`--load-balancer-class-only`): each serves its own, and neither touches the other's.

use anyhow::{Result, ensure};
use cairn::{api::LOAD_BALANCER_CLASS, model::Scope};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::SOON;
use crate::harness::{
    Lab,
    allocation::ensure_sound,
    control_plane::ApiRequest,
    enclosure::inside,
    metallb::{self, MetalLb},
    wait_for,
};

const OURS: [&str; 3] = ["ours-1", "ours-2", "ours-3"];
const THEIRS: [&str; 3] = ["theirs-1", "theirs-2", "theirs-3"];

#[test]
fn metallb_and_cairn_serve_each_its_own_class() {
    inside(async || {
        let mut lab = Lab::builder().api_only().start().await?;
        if lab.control_plane().binaries().path("metallb-controller").is_err() {
            println!("skipped: there is no MetalLB here; `make lab-metallb` builds its controller");
            return Ok(());
        }
        lab.install_cairn().await?;
        let metallb = MetalLb::install(lab.control_plane()).await?;
        lab.control_plane().kubectl(["create", "-f", &pool_of_ours()?]).await?;
        metallb.apply_pool(lab.control_plane(), "theirs", "10.70.0.0/24").await?;
        lab.spawn_controller_with(&["--load-balancer-class-only"])?;
        let mut theirs = metallb.spawn_controller(lab.control_plane(), lab.control_plane().namespace())?;
        for name in OURS.iter().chain(&THEIRS) {
            create(&lab, name).await?;
        }
        each_has_one_of_its_own(&lab).await?;

        // Both find everything as they left it.
        lab.controller()?.terminate(SOON).await?;
        theirs.kill().await?;
        lab.spawn_controller_with(&["--load-balancer-class-only"])?;
        theirs = metallb.spawn_controller(lab.control_plane(), lab.control_plane().namespace())?;
        for name in OURS.iter().chain(&THEIRS) {
            let body = json!({ "spec": { "ports": [{ "port": 80, "name": "one" }, { "port": 81, "name": "more" }] } });
            services(&lab).patch(name, &PatchParams::default(), &Patch::Merge(body)).await?;
        }
        for name in [OURS[0], THEIRS[0]] {
            services(&lab).delete(name, &DeleteParams::default()).await?;
            wait_for(&format!("Service {name} is gone"), SOON, async || {
                let service = services(&lab).get_opt(name).await?;
                ensure!(service.is_none(), "{service:?}");
                Ok(())
            })
            .await?;
            create(&lab, name).await?;
        }
        each_has_one_of_its_own(&lab).await?;
        theirs.ensure_running()?;
        lab.controller()?.ensure_running()?;

        wait_for("Cairn's own are in order", SOON, async || ensure_sound(&lab, Scope::OwnClassOnly).await).await?;
        let requests = lab.control_plane().requests()?;
        let touched = |is_by: &dyn Fn(&ApiRequest) -> bool, names: [&str; 3]| -> Vec<String> {
            // An Event's name begins with that of what it is about.
            let is_about = |request: &&ApiRequest| names.iter().any(|name| request.name.starts_with(name));
            let writes = requests.iter().filter(|request| request.is_write() && is_by(request));
            writes.filter(is_about).map(|request| format!("{} {}", request.verb, request.uri)).collect()
        };
        let (by_cairn, by_metallb) = (ApiRequest::is_by_cairn, |request: &ApiRequest| request.user == metallb::USER);
        ensure!(!touched(&by_cairn, OURS).is_empty() && !touched(&by_metallb, THEIRS).is_empty(), "nobody wrote");
        let (wrong, foreign) = (touched(&by_cairn, THEIRS), touched(&by_metallb, OURS));
        ensure!(wrong.is_empty() && foreign.is_empty(), "Cairn: {wrong:?}; MetalLB: {foreign:?}");
        Ok(())
    });
}

fn pool_of_ours() -> Result<String> {
    let pool = json!({
        "apiVersion": "cairn.dev/v1alpha1", "kind": "AddressPool",
        "metadata": { "name": "ours" }, "spec": { "addresses": ["10.60.0.0/24"] },
    });
    let file = format!("{}/pool-of-ours.json", crate::harness::enclosure::WORK);
    std::fs::write(&file, pool.to_string())?;
    Ok(file)
}

fn services(lab: &Lab) -> Api<Service> {
    Api::default_namespaced(lab.kube().clone())
}

/// A Service of Cairn's class, or of none when its name says that it is MetalLB's.
async fn create(lab: &Lab, name: &str) -> Result<()> {
    let class = OURS.contains(&name).then_some(LOAD_BALANCER_CLASS);
    let service = json!({
        "metadata": { "name": name },
        "spec": { "type": "LoadBalancer", "loadBalancerClass": class, "ports": [{ "port": 80 }] },
    });
    services(lab).create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

async fn each_has_one_of_its_own(lab: &Lab) -> Result<()> {
    wait_for("each Service has an address of its own controller", SOON, async || {
        for (names, prefix) in [(OURS, "10.60.0."), (THEIRS, "10.70.0.")] {
            for name in names {
                let service = services(lab).get(name).await?;
                let ingress = service.status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
                let addresses: Vec<_> = ingress.into_iter().filter_map(|entry| entry.ip).collect();
                let is_right = matches!(&addresses[..], [address] if address.starts_with(prefix));
                ensure!(is_right, "Service {name} has {addresses:?}");
            }
        }
        Ok(())
    })
    .await
}
