//! What people change of a Service, and what somebody else writes into its status.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use cairn::api::{EntryFlag, NodeRoute};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::pools::{create_pool, create_service, delete, has, lab, lab_with};
use super::{QUICK_LEASE, SOON};
use crate::harness::{Lab, enclosure::inside, wait::stays, wait_for};

const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";
const CLASS_CLEANUP: &str = "cairn.dev/load-balancer-cleanup";
/// Longer than Cairn needs to answer a change.
const A_WHILE: std::time::Duration = std::time::Duration::from_secs(2);

/// A controller, a pool with both families, and the Service `web` with the first IPv4 address of it.
async fn lab_with_web() -> Result<Lab> {
    with_web(lab().await?).await
}

async fn with_web(lab: Lab) -> Result<Lab> {
    let pool = json!({ "addresses": ["10.60.0.10-10.60.0.19", "fd60::10-fd60::19"] });
    create_pool(lab.kube(), "public", pool).await?;
    create_service(lab.kube(), "web", json!({})).await?;
    has(lab.kube(), "web", &["10.60.0.10"]).await?;
    Ok(lab)
}

fn services(lab: &Lab) -> Api<Service> {
    Api::default_namespaced(lab.kube().clone())
}

async fn change(lab: &Lab, name: &str, change: Value) -> Result<Service, kube::Error> {
    services(lab).patch(name, &PatchParams::default(), &Patch::Merge(change)).await
}

async fn write_status(lab: &Lab, name: &str, ingress: Value) -> Result<()> {
    let by_hand = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
    services(lab).patch_status(name, &PatchParams::default(), &Patch::Merge(by_hand)).await?;
    Ok(())
}

async fn finalizers(lab: &Lab, name: &str, wanted: &[&str]) -> Result<()> {
    wait_for(&format!("Service {name} has the finalizers {wanted:?}"), SOON, async || {
        let finalizers = services(lab).get(name).await?.finalizers().to_vec();
        ensure!(finalizers == wanted, "{finalizers:?}");
        Ok(())
    })
    .await
}

#[test]
fn a_service_that_stops_being_a_load_balancer_gives_its_address_back_and_gets_it_again() {
    inside(async || {
        let lab = lab_with_web().await?;
        finalizers(&lab, "web", &[CLEANUP]).await?;
        change(&lab, "web", json!({ "spec": { "type": "ClusterIP" } })).await?;
        has(lab.kube(), "web", &[]).await?;
        finalizers(&lab, "web", &[]).await?;
        create_service(lab.kube(), "other", json!({})).await?;
        has(lab.kube(), "other", &["10.60.0.11"]).await?;
        change(&lab, "web", json!({ "spec": { "type": "LoadBalancer" } })).await?;
        has(lab.kube(), "web", &["10.60.0.10"]).await?;
        finalizers(&lab, "web", &[CLEANUP]).await
    });
}

#[test]
fn a_class_changes_only_by_way_of_another_type_and_each_has_its_own_finalizer() {
    inside(async || {
        let lab = lab_with_web().await?;
        let class = |class: Value| json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": class } });
        let refused = change(&lab, "web", class(json!("cairn.dev/cairn"))).await;
        let refused = refused.err().context("the API server lets the class change")?.to_string();
        ensure!(refused.contains("spec.loadBalancerClass") && refused.contains("may not change once set"), "{refused}");
        for (set, address, wanted) in [
            (json!("cairn.dev/cairn"), &["10.60.0.10"][..], &[CLASS_CLEANUP][..]),
            (json!("example.net/lb"), &[], &[]),
            (Value::Null, &["10.60.0.10"], &[CLEANUP]),
        ] {
            change(&lab, "web", json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } })).await?;
            has(lab.kube(), "web", &[]).await?;
            finalizers(&lab, "web", &[]).await?;
            change(&lab, "web", class(set)).await?;
            has(lab.kube(), "web", address).await?;
            finalizers(&lab, "web", wanted).await?;
        }
        Ok(())
    });
}

#[test]
fn a_second_family_is_added_and_taken_away_and_the_first_one_stays() {
    inside(async || {
        let lab = lab_with_web().await?;
        let single = || json!({ "spec": { "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"] } });
        change(&lab, "web", json!({ "spec": { "ipFamilyPolicy": "PreferDualStack" } })).await?;
        has(lab.kube(), "web", &["10.60.0.10", "fd60::10"]).await?;
        change(&lab, "web", single()).await?;
        has(lab.kube(), "web", &["10.60.0.10"]).await?;
        change(&lab, "web", json!({ "spec": { "ipFamilyPolicy": "RequireDualStack" } })).await?;
        has(lab.kube(), "web", &["10.60.0.10", "fd60::10"]).await?;
        change(&lab, "web", single()).await?;
        has(lab.kube(), "web", &["10.60.0.10"]).await
    });
}

#[test]
fn what_changes_nothing_about_the_address_costs_no_write() {
    inside(async || {
        let lab = lab_with_web().await?;
        conditions_are_written(&lab, &["web".to_owned()]).await?;
        for by in [
            json!({ "spec": { "externalTrafficPolicy": "Local" } }),
            json!({ "spec": { "loadBalancerSourceRanges": ["10.0.0.0/8"] } }),
            json!({ "spec": { "ports": [{ "name": "more", "port": 81 }] } }),
            json!({ "spec": { "selector": { "app": "other" } } }),
            json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "a": "b" } } }),
            json!({ "spec": { "externalTrafficPolicy": "Cluster" } }),
        ] {
            let after = change(&lab, "web", by).await?.resource_version();
            stays("nobody writes the Service", A_WHILE, async || {
                let now = services(&lab).get("web").await?;
                ensure!(now.resource_version() == after, "{now:?}");
                Ok(())
            })
            .await?;
        }
        has(lab.kube(), "web", &["10.60.0.10"]).await
    });
}

#[test]
fn a_service_deleted_while_the_controller_is_away_goes_when_it_is_back_and_its_address_with_it() {
    inside(async || {
        let mut lab = with_web(lab_with(&QUICK_LEASE).await?).await?;
        lab.controller()?.kill().await?;
        services(&lab).delete("web", &DeleteParams::default()).await?;
        create_service(lab.kube(), "other", json!({})).await?;
        ensure!(services(&lab).get("web").await?.metadata.deletion_timestamp.is_some(), "its finalizer holds it");
        lab.spawn_controller_with(&QUICK_LEASE)?;
        // The killed leader's Lease has to run out first.
        wait_for("it is gone", 2 * SOON, async || {
            ensure!(services(&lab).get_opt("web").await?.is_none(), "it is still there");
            Ok(())
        })
        .await?;
        has(lab.kube(), "other", &["10.60.0.11"]).await?;
        // What was given back rests, but not for a Service of the same name.
        create_service(lab.kube(), "web", json!({})).await?;
        has(lab.kube(), "web", &["10.60.0.10"]).await
    });
}

#[test]
fn what_somebody_writes_into_a_status_is_put_right() {
    inside(async || {
        let lab = lab_with_web().await?;
        let port = json!({ "port": 80, "protocol": "TCP", "error": "MixedProtocolNotSupported" });
        for (what, ingress) in [
            ("nothing", Value::Null),
            ("an address of no pool", json!([{ "ip": "192.0.2.1" }])),
            ("another address of the pool", json!([{ "ip": "10.60.0.15" }])),
            ("one more", json!([{ "ip": "10.60.0.10" }, { "ip": "10.60.0.15" }])),
            ("a host name", json!([{ "hostname": "lb.example.net" }])),
            ("errors of ports", json!([{ "ip": "10.60.0.10", "ipMode": "VIP", "ports": [port] }])),
            ("another mode", json!([{ "ip": "10.60.0.10", "ipMode": "Proxy" }])),
        ] {
            write_status(&lab, "web", ingress).await?;
            wait_for(&format!("its status said {what} and is put right"), SOON, async || {
                let status = services(&lab).get("web").await?.status.and_then(|status| status.load_balancer);
                let ingress = serde_json::to_value(status.and_then(|balancer| balancer.ingress))?;
                ensure!(ingress == json!([{ "ip": "10.60.0.10", "ipMode": "VIP" }]), "{ingress}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    });
}

#[test]
fn the_status_of_another_class_is_left_alone_and_its_address_is_nobody_elses() {
    inside(async || {
        let lab = lab_with_web().await?;
        let foreign = json!({
            "metadata": { "name": "foreign", "finalizers": [CLEANUP] },
            "spec": { "type": "LoadBalancer", "loadBalancerClass": "example.net/lb", "ports": [{ "port": 80 }] },
        });
        services(&lab).create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
        write_status(&lab, "foreign", json!([{ "ip": "10.60.0.11" }, { "hostname": "lb.example.net" }])).await?;
        let before = services(&lab).get("foreign").await?;
        create_service(lab.kube(), "next", json!({})).await?;
        has(lab.kube(), "next", &["10.60.0.12"]).await?;
        ensure!(services(&lab).get("foreign").await? == before, "somebody wrote it");
        services(&lab).delete("foreign", &DeleteParams::default()).await?;
        // Whatever happens to this one happens after that.
        delete(lab.kube(), "next").await?;
        let after = services(&lab).get("foreign").await?;
        ensure!(after.finalizers() == [CLEANUP], "its finalizer is its controller's to take away: {after:?}");
        Ok(())
    });
}

#[test]
fn nodes_that_come_change_and_go_cost_fifty_services_no_write() {
    inside(async || {
        let lab = lab().await?;
        create_pool(lab.kube(), "public", json!({ "addresses": ["10.60.0.0/24"] })).await?;
        let names: Vec<_> = (0..50).map(|number| format!("s{number}")).collect();
        for name in &names {
            create_service(lab.kube(), name, json!({})).await?;
        }
        let versions = async || -> Result<BTreeMap<String, Option<String>>> {
            let all = services(&lab).list(&ListParams::default()).await?;
            let ours = all.into_iter().filter(|service| names.contains(&service.name_any()));
            Ok(ours.map(|service| (service.name_any(), service.resource_version())).collect())
        };
        conditions_are_written(&lab, &names).await?;
        let settled = versions().await?;
        node_comes_and_goes(&lab).await?;
        // A Service that comes after all that is served after it was heard of.
        create_service(lab.kube(), "last", json!({})).await?;
        has(lab.kube(), "last", &["10.60.0.50"]).await?;
        let now = versions().await?;
        ensure!(now == settled, "before {settled:?}, after {now:?}");
        Ok(())
    });
}

/// Waits until these have addresses and say so: what nobody changes is written no more from then on.
async fn conditions_are_written(lab: &Lab, names: &[String]) -> Result<()> {
    wait_for("all say what they have", 2 * SOON, async || {
        for service in
            services(lab).list(&ListParams::default()).await?.iter().filter(|it| names.contains(&it.name_any()))
        {
            let conditions = service.status.as_ref().and_then(|status| status.conditions.as_ref());
            let said = conditions.into_iter().flatten().filter(|condition| condition.type_.starts_with("cairn.dev/"));
            let said: Vec<_> = said.map(|condition| (condition.reason.as_str(), condition.status.as_str())).collect();
            let is_said = said.len() == 2 && said.contains(&("Assigned", "True"));
            ensure!(service.finalizers() == [CLEANUP] && is_said, "{service:?}");
        }
        Ok(())
    })
    .await
}

/// A Node joins, is excluded from load balancers, is tainted, and goes.
async fn node_comes_and_goes(lab: &Lab) -> Result<()> {
    let nodes: Api<Node> = Api::all(lab.kube().clone());
    let routes: Api<NodeRoute> = Api::all(lab.kube().clone());
    let node =
        json!({ "metadata": { "name": "n9" }, "spec": { "podCIDRs": ["10.244.9.0/24"], "podCIDR": "10.244.9.0/24" } });
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let address = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.90.0.19" }] } });
    nodes.patch_status("n9", &PatchParams::default(), &Patch::Merge(address)).await?;
    let entry = async |wanted: Option<EntryFlag>| {
        wait_for(&format!("the controller knows of n9: {wanted:?}"), SOON, async || {
            let entry = routes.get_opt("n9").await?.map(|route| route.spec.entry);
            ensure!(entry == wanted, "{entry:?}");
            Ok(())
        })
        .await
    };
    entry(Some(EntryFlag::Eligible)).await?;
    let taint = json!([{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }]);
    let excluded = json!({
        "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } },
        "spec": { "providerID": "lab://n9", "taints": taint },
    });
    nodes.patch("n9", &PatchParams::default(), &Patch::Merge(excluded)).await?;
    entry(Some(EntryFlag::ExcludedByLabel)).await?;
    nodes.delete("n9", &DeleteParams::default()).await?;
    entry(None).await
}
