//! Pools as people meet them: who gets what, what a pool says of itself, and what a new leader knows.

use anyhow::{Context, Result, bail, ensure};
use cairn::api::{AddressPool, AddressPoolStatus, ConditionReason, ConditionStatus, ConditionType};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{QUICK_LEASE, SOON};
use crate::harness::{Lab, cairn::answers, enclosure::inside, wait_for};

/// A control plane and a controller, no nodes.
pub(super) async fn lab() -> Result<Lab> {
    lab_with(&[]).await
}

/// The same with more flags for the controller.
pub(super) async fn lab_with(flags: &[&str]) -> Result<Lab> {
    let mut lab = Lab::builder().api_only().start().await?;
    lab.install_cairn().await?;
    lab.spawn_controller_with(flags)?;
    Ok(lab)
}

pub(super) async fn create_pool(admin: &Client, name: &str, spec: Value) -> Result<()> {
    let pool = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
    Api::<AddressPool>::all(admin.clone()).create(&PostParams::default(), &pool).await?;
    Ok(())
}

async fn change_pool(admin: &Client, name: &str, spec: Value) -> Result<()> {
    let pools: Api<AddressPool> = Api::all(admin.clone());
    pools.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await?;
    Ok(())
}

async fn status(admin: &Client, name: &str) -> Result<AddressPoolStatus> {
    Api::<AddressPool>::all(admin.clone()).get_status(name).await?.status.context("no status yet")
}

fn condition(status: &AddressPoolStatus, kind: ConditionType) -> Result<(ConditionStatus, ConditionReason, String)> {
    let condition = status.conditions.iter().find(|condition| condition.kind == kind);
    let condition = condition.with_context(|| format!("no condition {kind:?}"))?;
    Ok((condition.status, condition.reason, condition.message.clone()))
}

/// A Service with one IPv4 address and port 80.
pub(super) async fn create_service(admin: &Client, name: &str, annotations: Value) -> Result<()> {
    let service = json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }], "selector": { "app": name } },
    });
    let services: Api<Service> = Api::default_namespaced(admin.clone());
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

pub(super) async fn annotate(admin: &Client, name: &str, annotations: Value) -> Result<()> {
    let services: Api<Service> = Api::default_namespaced(admin.clone());
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    services.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

pub(super) async fn has(admin: &Client, name: &str, wanted: &[&str]) -> Result<()> {
    wait_for(&format!("Service {name} has {wanted:?}"), SOON, async || {
        let service = Api::<Service>::default_namespaced(admin.clone()).get(name).await?;
        let ingress = service.status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
        let addresses: Vec<_> = ingress.into_iter().filter_map(|entry| entry.ip).collect();
        ensure!(addresses == wanted, "it has {addresses:?}");
        Ok(())
    })
    .await
}

pub(super) async fn delete(admin: &Client, name: &str) -> Result<()> {
    let services: Api<Service> = Api::default_namespaced(admin.clone());
    services.delete(name, &DeleteParams::default()).await?;
    wait_for(&format!("Service {name} is gone"), SOON, async || match services.get_opt(name).await? {
        None => Ok(()),
        Some(service) => bail!("{:?}", service.metadata),
    })
    .await
}

async fn told(admin: &Client, service: &str, action: &str) -> Result<String> {
    wait_for(&format!("an Event tells {service} {action}"), SOON, async || {
        let events = Api::<Event>::default_namespaced(admin.clone()).list(&Default::default()).await?;
        let mut about = events.items.into_iter().filter(|event| {
            let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            regarding == Some(service) && event.action.as_deref() == Some(action)
        });
        about.next().and_then(|event| event.note).context("no such Event")
    })
    .await
}

#[test]
fn an_address_that_was_given_back_rests_though_the_leader_is_killed_right_after() {
    inside(async || {
        let mut lab = lab_with(&QUICK_LEASE).await?;
        let admin = lab.kube().clone();
        create_pool(&admin, "public", json!({ "addresses": ["10.60.0.10-10.60.0.19"] })).await?;
        create_service(&admin, "first", json!({})).await?;
        has(&admin, "first", &["10.60.0.10"]).await?;
        delete(&admin, "first").await?;
        lab.controller()?.kill().await?;
        let status = status(&admin, "public").await?;
        let cooling: Vec<_> =
            status.cooling.iter().map(|entry| (entry.address.as_str(), entry.service.as_str())).collect();
        ensure!(cooling == [("10.60.0.10", "default/first")], "the Service went before its pool knew: {status:?}");
        lab.spawn_controller_with(&QUICK_LEASE)?;
        create_service(&admin, "second", json!({})).await?;
        // The killed leader's Lease has to run out first.
        wait_for("the next leader serves it", 2 * SOON, async || has(&admin, "second", &["10.60.0.11"]).await).await?;
        create_service(&admin, "first", json!({})).await?;
        has(&admin, "first", &["10.60.0.10"]).await
    });
}

#[test]
fn of_two_pools_with_the_same_addresses_the_first_keeps_them_and_both_say_so() {
    inside(async || {
        let lab = lab().await?;
        let admin = lab.kube().clone();
        create_pool(&admin, "first", json!({ "addresses": ["10.60.0.0/24"] })).await?;
        wait_for("the first pool is in use", SOON, async || {
            let status = status(&admin, "first").await?;
            ensure!(condition(&status, ConditionType::Ready)?.0 == ConditionStatus::True, "{status:?}");
            ensure!(status.blocks == ["10.60.0.0/24"], "{status:?}");
            Ok(())
        })
        .await?;
        create_pool(&admin, "a-second", json!({ "addresses": ["10.60.0.128-10.60.1.9", "10.61.0.0/24"] })).await?;
        wait_for("the second pool is in conflict", SOON, async || {
            let status = status(&admin, "a-second").await?;
            let (is, reason, message) = condition(&status, ConditionType::Conflict)?;
            ensure!((is, reason) == (ConditionStatus::True, ConditionReason::AddressesTaken), "{status:?}");
            ensure!(message.contains("of AddressPool first, which had them first"), "{message}");
            ensure!(condition(&status, ConditionType::Ready)?.0 == ConditionStatus::False, "{status:?}");
            ensure!(status.blocks.is_empty(), "{status:?}");
            Ok(())
        })
        .await?;
        create_service(&admin, "web", json!({ "cairn.dev/address-pool": "a-second" })).await?;
        let refused = told(&admin, "web", "PoolInvalid").await?;
        ensure!(refused.contains("AddressPool a-second is not in use"), "{refused}");
        change_pool(&admin, "a-second", json!({ "addresses": ["10.61.0.0/24"] })).await?;
        has(&admin, "web", &["10.61.0.0"]).await?;
        let shown = lab.control_plane().kubectl(["get", "addresspools", "-o", "wide"]).await?;
        ensure!(
            shown.lines().next().is_some_and(|header| header.contains("IPV4-USED") && header.contains("DRAINING")),
            "{shown}"
        );
        create_pool(&admin, "cluster-ips", json!({ "addresses": ["10.96.0.128/25"] })).await?;
        wait_for("cluster IPs are no pool's", SOON, async || {
            let status = status(&admin, "cluster-ips").await?;
            let (is, _, message) = condition(&status, ConditionType::Conflict)?;
            ensure!(
                is == ConditionStatus::True && message.contains("the cluster IPs of Services (ServiceCIDR"),
                "{message}"
            );
            Ok(())
        })
        .await
    });
}

#[test]
fn a_pool_that_shrinks_drains_and_says_who_keeps_what() {
    inside(async || {
        let lab = lab().await?;
        let admin = lab.kube().clone();
        create_pool(&admin, "public", json!({ "addresses": ["10.60.0.10-10.60.0.11"], "namespaceQuota": 2 })).await?;
        create_service(&admin, "web", json!({})).await?;
        has(&admin, "web", &["10.60.0.10"]).await?;
        change_pool(&admin, "public", json!({ "addresses": ["10.60.0.11/32"] })).await?;
        wait_for("the pool drains", SOON, async || {
            let status = status(&admin, "public").await?;
            let (is, _, message) = condition(&status, ConditionType::Draining)?;
            ensure!(
                is == ConditionStatus::True && message.contains("Service default/web keeps 10.60.0.10"),
                "{status:?}"
            );
            ensure!(status.draining == ["10.60.0.10/32"], "{status:?}");
            Ok(())
        })
        .await?;
        has(&admin, "web", &["10.60.0.10"]).await?;
        create_service(&admin, "late", json!({})).await?;
        has(&admin, "late", &["10.60.0.11"]).await?;
        create_service(&admin, "later", json!({})).await?;
        told(&admin, "later", "PoolExhausted").await?;
        let told = [
            "any address (IPv4)",
            "PoolExhausted",
            "public  has no free address",
            "no address, since it was created at",
        ];
        answers(lab.control_plane(), &["explain", "service", "default/later"], &told).await?;
        let told = ["AddressKept: 10.60.0.10 is kept although AddressPool public no longer gives it"];
        answers(lab.control_plane(), &["explain", "service", "default/web"], &told).await?;
        let told = ["1 in all, 1 in use, 0 free", "10.60.0.11  default/late", "10.60.0.10  default/web", "Draining: "];
        answers(lab.control_plane(), &["status", "pool", "public"], &told).await?;
        let pools: Api<AddressPool> = Api::all(admin.clone());
        let lie = Patch::Merge(json!({ "status": { "ipv4": { "total": 99, "used": 99, "free": 99 } } }));
        pools.patch_status("public", &PatchParams::default(), &lie).await?;
        wait_for("what someone wrote into its status is put right", SOON, async || {
            let status = status(&admin, "public").await?;
            ensure!(
                status.ipv4.is_some_and(|counts| (counts.total, counts.used, counts.free) == (1, 1, 0)),
                "{status:?}"
            );
            Ok(())
        })
        .await?;
        // Room elsewhere, and its owner's word, move it.
        create_pool(&admin, "more", json!({ "addresses": ["10.61.0.10/32"] })).await?;
        has(&admin, "later", &["10.61.0.10"]).await?;
        change_pool(&admin, "more", json!({ "addresses": ["10.61.0.10/31"] })).await?;
        annotate(&admin, "web", json!({ "cairn.dev/readdress": "true" })).await?;
        has(&admin, "web", &["10.61.0.11"]).await?;
        wait_for("the pool has drained", SOON, async || {
            let status = status(&admin, "public").await?;
            ensure!(condition(&status, ConditionType::Draining)?.0 == ConditionStatus::False, "{status:?}");
            ensure!(status.draining.is_empty(), "{status:?}");
            Ok(())
        })
        .await
    });
}
