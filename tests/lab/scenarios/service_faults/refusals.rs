//! Writes that the API server does not let through.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use cairn::model::Scope;
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    events::v1::Event,
};
use kube::{
    Api, Error,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{SOON, all_is_sound, comes_to_have, create, create_pool, has, lab, services, wait_for};
use crate::harness::{Lab, enclosure::inside};

const POLICY: &str = "no-status";
const WHY: &str = "the change board has not met";
/// The tries come ever later: the fifth after five seconds, and the next up to twenty after that.
const TRIED_AGAIN_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn a_write_that_a_policy_refuses_is_told_once_and_done_when_the_policy_is_gone() {
    inside(async || {
        let mut lab = lab().await?;
        create_pool(&lab, "public", "10.60.0.10-10.60.0.19").await?;
        lab.spawn_controller()?;
        for (reason, code, address) in [("Invalid", 422, "10.60.0.10"), ("Forbidden", 403, "10.60.0.11")] {
            let name = reason.to_lowercase();
            refuse(&lab, reason, code).await?;
            create(&lab, &name, json!({})).await?;
            wait_for("it was tried again and again", SOON, async || {
                let writes = lab.control_plane().writes_by_cairn()?;
                let refused = writes.iter().filter(|write| write.name == name && write.code == code).count();
                ensure!(refused >= 3, "{refused} tries");
                Ok(())
            })
            .await?;
            wait_for("an Event says who refuses", SOON, async || is_told_once(&lab, &name).await).await?;
            has(&lab, &name, &[]).await?;
            let_through(&lab).await?;
            wait_for("it is served", TRIED_AGAIN_WITHIN, async || has(&lab, &name, &[address]).await).await?;
            is_told_once(&lab, &name).await?;
        }
        create(&lab, "next", json!({})).await?;
        comes_to_have(&lab, "next", &["10.60.0.12"]).await?;
        all_is_sound(&lab, Scope::Default).await
    });
}

/// Has the API server refuse every write of a Service's status, and waits until it does.
async fn refuse(lab: &Lab, reason: &str, code: u64) -> Result<()> {
    let rules = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["services/status"] }]);
    let policy = json!({
        "metadata": { "name": POLICY },
        "spec": {
            "matchConstraints": { "resourceRules": rules },
            "validations": [{ "expression": "false", "message": WHY, "reason": reason }],
        },
    });
    let binding =
        json!({ "metadata": { "name": POLICY }, "spec": { "policyName": POLICY, "validationActions": ["Deny"] } });
    let params = PostParams::default();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(lab.kube().clone());
    policies.create(&params, &serde_json::from_value(policy)?).await?;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(lab.kube().clone());
    bindings.create(&params, &serde_json::from_value(binding)?).await?;
    wait_for(&format!("writes are refused as {reason}"), SOON, async || match try_to_write(lab).await {
        Err(Error::Api(status)) if u64::from(status.code) == code => Ok(()),
        other => bail!("{other:?}"),
    })
    .await
}

async fn let_through(lab: &Lab) -> Result<()> {
    let params = DeleteParams::default();
    Api::<ValidatingAdmissionPolicyBinding>::all(lab.kube().clone()).delete(POLICY, &params).await?;
    Api::<ValidatingAdmissionPolicy>::all(lab.kube().clone()).delete(POLICY, &params).await?;
    wait_for("writes are let through", SOON, async || Ok(try_to_write(lab).await?)).await
}

/// What comes of a write of a status, which is not kept.
async fn try_to_write(lab: &Lab) -> Result<(), Error> {
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let body = Patch::Merge(json!({ "status": { "conditions": [] } }));
    services(lab).patch_status("kubernetes", &params, &body).await.map(drop)
}

/// An error unless exactly one Event says that a Service could not be written, and why.
async fn is_told_once(lab: &Lab, service: &str) -> Result<()> {
    let events = Api::<Event>::default_namespaced(lab.kube().clone()).list(&Default::default()).await?;
    let about = events.items.into_iter().filter(|event| {
        let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
        regarding == Some(service) && event.action.as_deref() == Some("ServiceNotWritten")
    });
    let notes: Vec<_> = about.map(|event| event.note.unwrap_or_default()).collect();
    ensure!(notes.len() == 1 && notes[0].contains(WHY), "Events about Service {service}: {notes:?}");
    Ok(())
}
