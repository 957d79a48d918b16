//! Leaders that die, and that wake up after others took over.

use anyhow::{Context, Result, ensure};
use cairn::model::Scope;
use serde_json::{Value, json};

use super::{
    BURST, QUICK_LEASE, SOON, all_is_sound, all_served, comes_to_have, create, create_burst, create_pool, delete, gone,
    has, in_the_middle_of_it, lab, patch_status, served, stays, wait_for,
};
use crate::{
    harness::{
        Lab,
        control_plane::ApiRequest,
        enclosure::inside,
        holding_proxy::{HoldingProxy, Rule},
    },
    scenarios::shutdown::{follower, start_one_more},
};

#[test]
fn a_leader_that_is_killed_in_a_burst_leaves_nothing_half_done_and_its_follower_lists_anew() {
    inside(async || {
        let mut lab = lab().await?;
        let mut leader = start_one_more(&lab, &QUICK_LEASE).await?;
        let first = follower(&lab, "", SOON).await?;
        lab.renew_controller_token().await?;
        let _standby = start_one_more(&lab, &QUICK_LEASE).await?;
        // They wait for a pool, all of them.
        create_burst(&lab).await?;
        create_pool(&lab, "public", "10.60.0.0/22").await?;
        in_the_middle_of_it(&lab).await?;
        leader.kill().await?;
        let left = BURST - served(&lab).await?;
        println!("{left} of {BURST} were not served when the leader died");
        ensure!(left > 0, "all were served when the leader died");
        follower(&lab, &first, SOON).await?;
        all_served(&lab, BURST).await?;
        the_ledger_is_made_of_a_new_list(&lab)?;
        all_is_sound(&lab, Scope::Default).await
    });
}

/// After it took the Lease and before its first write, the new leader lists all Services as they are now:
/// from no version on, which the API server answers from what is stored and not from what it remembers.
fn the_ledger_is_made_of_a_new_list(lab: &Lab) -> Result<()> {
    let mut requests = lab.control_plane().requests_by_cairn()?;
    // What the dead leader had asked for may be logged after its death. Whose a request is, its token tells.
    let of_the_dead = requests.first().context("a first request")?.credential.clone();
    requests.retain(|request| request.credential != of_the_dead);
    let first = |what: &str, is_it: &dyn Fn(&ApiRequest) -> bool| {
        requests.iter().position(is_it).with_context(|| format!("no {what} in {requests:#?}"))
    };
    let is_taken = |request: &ApiRequest| request.resource == "leases" && request.is_write() && request.is_accepted();
    let elected = first("Lease taken", &is_taken)?;
    let is_new_list = |request: &ApiRequest| {
        let is_whole = request.namespace.is_empty() && !request.uri.contains("resourceVersion=");
        request.resource == "services" && request.verb == "list" && is_whole && request.code == 200
    };
    let listed = requests.iter().skip(elected).position(is_new_list).map(|after| elected + after);
    let listed = listed.with_context(|| format!("no list of Services after {elected} in {requests:#?}"))?;
    let wrote = first("write", &|request| request.resource == "services/status" && request.is_write())?;
    ensure!(elected < listed && listed < wrote, "Lease at {elected}, list at {listed}, write at {wrote}");
    Ok(())
}

#[test]
fn a_leader_that_was_frozen_writes_nothing_after_another_gave_its_addresses() {
    inside(async || {
        let lab = lab().await?;
        create_pool(&lab, "public", "10.60.0.10/31").await?;
        let proxy = HoldingProxy::start(lab.cairn()?.controller_client().await?).await?;
        let master = format!("--master={}", proxy.url());
        let mut frozen = start_one_more(&lab, &[&QUICK_LEASE[..], &[&master]].concat()).await?;
        let first = follower(&lab, "", SOON).await?;
        create(&lab, "gone", json!({})).await?;
        comes_to_have(&lab, "gone", &["10.60.0.10"]).await?;
        create(&lab, "stays", json!({})).await?;
        comes_to_have(&lab, "stays", &["10.60.0.11"]).await?;
        create(&lab, "waits", json!({})).await?;
        let mut successor = start_one_more(&lab, &QUICK_LEASE).await?;

        frozen.freeze().await?;
        follower(&lab, &first, SOON).await?;
        // What was on its way has been answered by now.
        let written = proxy.patches_of_services();
        delete(&lab, "gone").await?;
        comes_to_have(&lab, "waits", &["10.60.0.10"]).await?;
        gone(&lab, "gone").await?;
        // Something that the frozen one would put right, while nobody else can.
        successor.freeze().await?;
        patch_status(&lab, "stays", json!({ "status": { "loadBalancer": { "ingress": null } } })).await?;
        frozen.thaw()?;
        let status = frozen.wait(SOON).await?;
        ensure!(status.code() == Some(1), "the frozen one ended with {status}");
        let late = proxy.patches_of_services() - written;
        ensure!(late == 0, "the frozen one wrote {late} times after it woke up");
        has(&lab, "stays", &[]).await?;

        successor.thaw()?;
        wait_for("a leader puts it right", 2 * SOON, async || {
            // It ends if it stood still for longer than its Lease lasts.
            if successor.ensure_running().is_err() {
                successor = start_one_more(&lab, &QUICK_LEASE).await?;
            }
            has(&lab, "stays", &["10.60.0.11"]).await
        })
        .await?;
        has(&lab, "waits", &["10.60.0.10"]).await?;
        all_is_sound(&lab, Scope::Default).await
    });
}

#[test]
fn a_write_that_arrives_after_another_leader_gave_its_address_away_loses() {
    inside(async || {
        let lab = lab().await?;
        create_pool(&lab, "public", "10.60.0.10/32").await?;
        let proxy = HoldingProxy::start(lab.cairn()?.controller_client().await?).await?;
        let master = format!("--master={}", proxy.url());
        let mut frozen = start_one_more(&lab, &[&QUICK_LEASE[..], &[&master]].concat()).await?;
        let first = follower(&lab, "", SOON).await?;
        proxy.rule(Rule::KeepPatchesOfServices);
        create(&lab, "late", json!({})).await?;
        wait_for("a write is on its way", SOON, async || proxy.ensure_holding()).await?;
        frozen.freeze().await?;
        let _successor = start_one_more(&lab, &QUICK_LEASE).await?;
        // Whoever asks for it by name has it before the older one that takes any.
        create(&lab, "rightful", json!({ "cairn.dev/load-balancer-ips": "10.60.0.10" })).await?;
        follower(&lab, &first, SOON).await?;
        comes_to_have(&lab, "rightful", &["10.60.0.10"]).await?;

        proxy.rule(Rule::PassAll);
        wait_for("the write has arrived", SOON, async || {
            ensure!(proxy.patches_of_services() > 0, "not yet");
            Ok(())
        })
        .await?;
        only_the_rightful_has_it(&lab).await?;
        // The same where nothing about the Service had changed, so that the API server took it.
        patch_status(&lab, "late", served_by("0.1")).await?;
        only_the_rightful_has_it(&lab).await?;
        frozen.thaw()?;
        let status = frozen.wait(SOON).await?;
        ensure!(status.code() == Some(1), "the frozen one ended with {status}");
        all_is_sound(&lab, Scope::Default).await
    });
}

/// What a leader writes, in a term.
fn served_by(term: &str) -> Value {
    json!({
        "metadata": {
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
            "annotations": { "cairn.dev/allocation": term },
        },
        "status": { "loadBalancer": { "ingress": [{ "ip": "10.60.0.10", "ipMode": "VIP" }] } },
    })
}

async fn only_the_rightful_has_it(lab: &Lab) -> Result<()> {
    comes_to_have(lab, "late", &[]).await?;
    stays("the one with the right has the address", std::time::Duration::from_secs(1), async || {
        has(lab, "rightful", &["10.60.0.10"]).await?;
        has(lab, "late", &[]).await
    })
    .await
}
