//! What a Service's conditions say, and how seldom it is written.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use cairn::api::NodeReport;
use k8s_openapi::{
    api::{
        core::v1::{Node, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    SOON,
    advertisements::{advertise, withdraw},
};
use crate::harness::{Lab, RouterKind, cairn::answers, enclosure::inside, wait::stays, wait_for};

/// An agent keeps back what nobody waits for, and waits between attempts to have a session.
const TOLD_WITHIN: Duration = Duration::from_secs(90);
/// Longer than what is to be said has to stay the same before it is written.
const A_WHILE: Duration = Duration::from_secs(4);
const ASSIGNED: (&str, &str) = ("True", "Assigned");

#[test]
fn a_services_conditions_say_whether_routers_hear_of_it_and_go_with_it() {
    inside(async || {
        let mut lab = Lab::builder().nodes(2).router(RouterKind::Bird).start().await?;
        lab.run_cairn().await?;
        let services: Api<Service> = Api::default_namespaced(lab.kube().clone());
        sessions_of(&lab, &["n1", "n2"]).await?;
        lab.start_pod("n1", "web-1", "web").await?;
        create(lab.kube(), "web", "ClusterIP").await?;
        change_status(&services, json!({ "conditions": [somebody_elses()] })).await?;
        wait_for("the pod is an endpoint", SOON, async || {
            let slices = Api::<EndpointSlice>::default_namespaced(lab.kube().clone()).list(&Default::default()).await?;
            let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
            let mut on_n1 = endpoints.filter(|endpoint| endpoint.node_name.as_deref() == Some("n1"));
            let is_ready = on_n1.any(|endpoint| endpoint.conditions.is_some_and(|is| is.ready == Some(true)));
            ensure!(is_ready, "it is none");
            Ok(())
        })
        .await?;
        change(&services, json!({ "type": "LoadBalancer" })).await?;

        says(&services, [ASSIGNED, ("True", "BGP")]).await?;
        has_written(&lab, "each of the two was written once", |writes| writes.get("web") == Some(&(1, 1))).await?;
        let assigned = ours(&services, "AddressAssigned").await?.last_transition_time;
        let told = [
            "assigned    True, Assigned: it has its addresses, since ",
            "announced   True, BGP: ",
            "2 announce it by BGP: n1, n2",
        ];
        answers(lab.control_plane(), &["explain", "service", "default/web"], &told).await?;

        lab.router()?.close_sessions().await?;
        says(&services, [ASSIGNED, ("False", "NoSession")]).await?;
        lab.router()?.open_sessions().await?;
        says(&services, [ASSIGNED, ("True", "BGP")]).await?;
        lab.pod("web-1")?.set_ready(false).await?;
        says(&services, [ASSIGNED, ("False", "NoReadyEndpoint")]).await?;
        lab.pod("web-1")?.set_ready(true).await?;
        says(&services, [ASSIGNED, ("True", "BGP")]).await?;
        advertise(&lab, "hidden", json!({ "services": { "namespaces": ["default"] }, "withhold": {} })).await?;
        says(&services, [ASSIGNED, ("False", "Withheld")]).await?;
        let told = ["announced   False, Withheld: ", "2 are kept from announcing it by Advertisements"];
        answers(lab.control_plane(), &["explain", "service", "default/web"], &told).await?;
        advertise(&lab, "other", json!({ "services": {}, "nodeSelector": { "rack": "none" }, "bgp": {} })).await?;
        says(&services, [ASSIGNED, ("False", "NoEntry")]).await?;
        label(lab.kube(), "n1", json!({ "rack": "none" })).await?;
        says(&services, [ASSIGNED, ("True", "BGP")]).await?;
        withdraw(&lab, "other").await?;
        says(&services, [ASSIGNED, ("False", "Withheld")]).await?;
        withdraw(&lab, "hidden").await?;
        says(&services, [ASSIGNED, ("True", "BGP")]).await?;
        advertise(&lab, "elsewhere", json!({ "services": {}, "bgp": { "peers": ["elsewhere"] } })).await?;
        says(&services, [ASSIGNED, ("False", "NoSession")]).await?;
        advertise(&lab, "elsewhere", json!({ "services": {}, "bgp": { "peers": ["elsewhere", "router"] } })).await?;
        says(&services, [ASSIGNED, ("True", "BGP")]).await?;
        withdraw(&lab, "elsewhere").await?;
        ensure!(
            ours(&services, "AddressAssigned").await?.last_transition_time == assigned,
            "it was assigned all along"
        );
        let before = settled(&lab).await?;

        lab.add_node(3).await?;
        lab.node("n3")?.wait_until_initialized().await?;
        lab.spawn_agent("n3")?;
        sessions_of(&lab, &["n3"]).await?;
        nothing_is_written(&lab, &before).await.context("a node joined")?;

        change(&services, json!({ "type": "ClusterIP" })).await?;
        wait_for("what is ours goes, what is not stays", SOON, async || {
            let service = services.get("web").await?;
            let finalizers = service.metadata.finalizers.unwrap_or_default();
            let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
            ensure!(finalizers.is_empty() && json!(conditions) == json!([somebody_elses()]), "{conditions:?}");
            Ok(())
        })
        .await?;
        let last = (before["web"].0 + 1, before["web"].1);
        has_written(&lab, "they went with the address, in one write", |writes| writes["web"] == last).await
    });
}

#[test]
fn many_services_see_two_writes_each_and_a_new_leader_writes_none_of_them() {
    const COUNT: usize = 30;
    inside(async || {
        let mut lab = Lab::builder().api_only().start().await?;
        lab.install_cairn().await?;
        lab.apply_pool_and_peer().await?;
        lab.spawn_controller()?;
        let services: Api<Service> = Api::default_namespaced(lab.kube().clone());
        for number in 0..COUNT {
            create(lab.kube(), &format!("web-{number}"), "LoadBalancer").await?;
        }
        let all_say_so = async || {
            for service in services.list(&Default::default()).await?.items {
                let name = service.metadata.name.clone().unwrap_or_default();
                let said = [said(&service, "AddressAssigned"), said(&service, "Announced")];
                let want = [ASSIGNED, ("False", "NoReadyEndpoint")];
                ensure!(
                    name == "kubernetes" || said == want.map(|(status, reason)| Some(owned(status, reason))),
                    "{name}: {said:?}"
                );
            }
            Ok(())
        };
        wait_for("every Service says how it is", TOLD_WITHIN, all_say_so).await?;
        let mut want: BTreeMap<_, _> = (0..COUNT).map(|number| (format!("web-{number}"), (1, 1))).collect();
        has_written(&lab, "each Service was written twice", |writes| *writes == want).await?;
        lab.controller()?.terminate(SOON).await?;
        lab.spawn_controller()?;
        create(lab.kube(), "late", "LoadBalancer").await?;
        wait_for("a new leader serves", TOLD_WITHIN, all_say_so).await?;
        want.insert("late".to_owned(), (1, 1));
        has_written(&lab, "the new leader wrote only what is new", |writes| *writes == want).await
    });
}

async fn create(admin: &Client, name: &str, kind: &str) -> Result<()> {
    let service = json!({
        "metadata": { "name": name },
        "spec": { "type": kind, "ports": [{ "port": 80, "targetPort": 8080 }], "selector": { "app": name } },
    });
    let services: Api<Service> = Api::default_namespaced(admin.clone());
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

async fn label(admin: &Client, node: &str, labels: Value) -> Result<()> {
    let labels = json!({ "metadata": { "labels": labels } });
    Api::<Node>::all(admin.clone()).patch(node, &PatchParams::default(), &Patch::Merge(labels)).await?;
    Ok(())
}

async fn change(services: &Api<Service>, spec: Value) -> Result<()> {
    services.patch("web", &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await?;
    Ok(())
}

async fn change_status(services: &Api<Service>, status: Value) -> Result<()> {
    services.patch_status("web", &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await?;
    Ok(())
}

fn somebody_elses() -> Value {
    json!({
        "type": "example.net/Ready", "status": "True", "reason": "Fine", "message": "by somebody else",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
    })
}

async fn ours(services: &Api<Service>, kind: &str) -> Result<Condition> {
    let conditions = services.get("web").await?.status.and_then(|status| status.conditions).unwrap_or_default();
    let wanted = format!("cairn.dev/{kind}");
    conditions.into_iter().find(|condition| condition.type_ == wanted).with_context(|| format!("no condition {wanted}"))
}

/// Status and reason of one of our conditions.
fn said(service: &Service, kind: &str) -> Option<(String, String)> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_.strip_prefix("cairn.dev/") == Some(kind))?;
    Some((condition.status.clone(), condition.reason.clone()))
}

fn owned(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

/// Waits until Service web says this of its addresses and of their announcement, and beside it what somebody else says.
async fn says(services: &Api<Service>, [assigned, announced]: [(&str, &str); 2]) -> Result<()> {
    wait_for(&format!("Service web says {assigned:?}, {announced:?}"), TOLD_WITHIN, async || {
        let service = services.get("web").await?;
        for (kind, (status, reason)) in [("AddressAssigned", assigned), ("Announced", announced)] {
            let said = said(&service, kind);
            ensure!(said == Some(owned(status, reason)), "{kind}: {said:?}");
        }
        let conditions = json!(service.status.and_then(|status| status.conditions));
        let others = conditions.as_array().into_iter().flatten().filter(|said| said["type"] == "example.net/Ready");
        let others: Vec<_> = others.cloned().collect();
        ensure!(others == [somebody_elses()], "{others:?}");
        Ok(())
    })
    .await
}

/// How often the status of each Service was written: for its addresses, and for its conditions.
type Writes = BTreeMap<String, (usize, usize)>;

/// What Cairn has written. One that was refused is no write: somebody else's came first, and it is tried again.
fn writes(lab: &Lab) -> Result<Writes> {
    let mut counts = Writes::new();
    for write in lab.control_plane().writes_by_cairn()? {
        if write.resource == "services/status" && write.is_accepted() {
            let is_of_conditions = write.is_of_service_conditions();
            let (addresses, conditions) = counts.entry(write.name).or_default();
            *(if is_of_conditions { conditions } else { addresses }) += 1;
        }
    }
    Ok(counts)
}

/// Waits until what Cairn has written is this: a write that can be seen is logged a moment later.
async fn has_written(lab: &Lab, what: &str, is_right: impl Fn(&Writes) -> bool) -> Result<()> {
    wait_for(what, SOON, async || {
        let writes = writes(lab)?;
        ensure!(is_right(&writes), "{writes:?}");
        Ok(())
    })
    .await
}

/// Waits until nothing was written for a while.
async fn settled(lab: &Lab) -> Result<Writes> {
    wait_for("no Service is written any more", TOLD_WITHIN, async || {
        let before = writes(lab)?;
        nothing_is_written(lab, &before).await?;
        Ok(before)
    })
    .await
}

async fn nothing_is_written(lab: &Lab, before: &Writes) -> Result<()> {
    stays("no Service is written", A_WHILE, async || {
        let now = writes(lab)?;
        ensure!(now == *before, "{now:?}, {before:?} before");
        Ok(())
    })
    .await
}

/// Waits until the agents of these nodes report a session.
async fn sessions_of(lab: &Lab, nodes: &[&str]) -> Result<()> {
    let reports: Api<NodeReport> = Api::all(lab.kube().clone());
    for node in nodes {
        wait_for(&format!("{node} reports a session"), TOLD_WITHIN, async || {
            let status = reports.get(node).await?.status.context("no status")?;
            ensure!(status.bgp.established == 1, "{:?}", status.bgp);
            Ok(())
        })
        .await?;
    }
    Ok(())
}
