//! Each BgpPeer is told in its status what is wrong with it.

use anyhow::{Context, Result, ensure};
use cairn::api::{BgpPeer, ConditionStatus, ConditionType};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::SOON;
use crate::harness::{Lab, enclosure::inside, wait_for};

/// Makes or changes a `BgpPeer`.
async fn apply(lab: &Lab, name: &str, more: Value) -> Result<()> {
    let mut spec = json!({ "localAsn": 64513, "peerAsn": 64512, "address": "10.90.0.1" });
    spec.as_object_mut().context("a spec")?.extend(more.as_object().context("fields")?.clone());
    let object =
        json!({ "apiVersion": "cairn.dev/v1alpha1", "kind": "BgpPeer", "metadata": { "name": name }, "spec": spec });
    peers(lab).patch(name, &PatchParams::apply("lab").force(), &Patch::Apply(&object)).await?;
    Ok(())
}

fn peers(lab: &Lab) -> Api<BgpPeer> {
    Api::all(lab.kube().clone())
}

/// Waits until a condition of the newest generation has this status, and gives its sentence.
async fn condition(lab: &Lab, name: &str, kind: ConditionType, status: ConditionStatus) -> Result<String> {
    wait_for(&format!("{kind:?} of BgpPeer {name} is {status:?}"), SOON, async || {
        let peer = peers(lab).get(name).await?;
        let conditions = peer.status.unwrap_or_default().conditions;
        let found = conditions.iter().find(|condition| {
            condition.kind == kind
                && condition.status == status
                && condition.observed_generation == peer.metadata.generation
        });
        found.map(|condition| condition.message.clone()).with_context(|| format!("{conditions:?}"))
    })
    .await
}

#[test]
fn a_peer_is_told_its_faults_and_that_no_node_is_meant_and_who_has_its_router() {
    inside(async || {
        let mut lab = Lab::builder().nodes(2).start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller()?;

        // What the API server's own rules let pass: all of it is told.
        apply(&lab, "router", json!({ "nodeSelector": { "rack": "a b", "room": "-" } })).await?;
        let told = condition(&lab, "router", ConditionType::Ready, ConditionStatus::False).await?;
        ensure!(told.contains("spec.nodeSelector.rack") && told.contains("spec.nodeSelector.room"), "{told}");
        condition(&lab, "router", ConditionType::ResolvedRefs, ConditionStatus::Unknown).await?;

        peers(&lab).delete("router", &DeleteParams::default()).await?;
        apply(&lab, "router", json!({ "nodeSelector": { "rack": "r1" } })).await?;
        condition(&lab, "router", ConditionType::Ready, ConditionStatus::True).await?;
        let told = condition(&lab, "router", ConditionType::ResolvedRefs, ConditionStatus::False).await?;
        ensure!(told.contains("spec.nodeSelector takes no Node"), "{told}");
        let nodes: Api<Node> = Api::all(lab.kube().clone());
        let labels = json!({ "metadata": { "labels": { "rack": "r1" } } });
        nodes.patch("n1", &PatchParams::default(), &Patch::Merge(labels)).await?;
        condition(&lab, "router", ConditionType::ResolvedRefs, ConditionStatus::True).await?;

        // The younger one has the other node; of one age, its name comes later.
        apply(&lab, "twin", json!({})).await?;
        let told = condition(&lab, "twin", ConditionType::Conflict, ConditionStatus::True).await?;
        ensure!(told.contains("the router of BgpPeer router") && told.contains("node n1 keeps to router"), "{told}");
        condition(&lab, "twin", ConditionType::Ready, ConditionStatus::True).await?;
        condition(&lab, "router", ConditionType::Conflict, ConditionStatus::False).await?;
        apply(&lab, "twin", json!({ "nodeSelector": { "rack": "r1" } })).await?;
        let told = condition(&lab, "twin", ConditionType::Ready, ConditionStatus::False).await?;
        ensure!(told.contains("no node keeps a session by it"), "{told}");
        Ok(())
    });
}
