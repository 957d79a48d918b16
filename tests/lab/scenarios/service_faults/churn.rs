//! Services that come, go and change all the time, and writers that are in each other's way.

use anyhow::{Result, ensure};
use cairn::model::Scope;
use kube::{Error, api::PostParams};
use serde_json::json;

use super::{
    BURST, BURST_SERVED_WITHIN, SOON, all_is_sound, all_served, comes_to_have, create, create_burst, create_pool,
    delete, lab, patch, service, services, uid, wait_for,
};
use crate::harness::{
    Lab,
    enclosure::inside,
    holding_proxy::{HoldingProxy, Rule},
};

#[test]
fn every_second_write_that_is_refused_costs_nobody_an_address() {
    inside(async || {
        let mut lab = lab().await?;
        create_pool(&lab, "public", "10.60.0.0/22").await?;
        let proxy = HoldingProxy::start(lab.cairn()?.controller_client().await?).await?;
        proxy.rule(Rule::ConflictEverySecondPatch);
        lab.spawn_controller_with(&[&format!("--master={}", proxy.url())])?;
        create_burst(&lab).await?;
        all_served(&lab, BURST).await?;
        for number in 0..BURST / 2 {
            delete(&lab, &format!("burst-{number:03}")).await?;
        }
        all_served_and_no_more(&lab, BURST - BURST / 2).await?;
        ensure!(proxy.refused() > BURST / 2, "only {} writes were refused", proxy.refused());
        all_is_sound(&lab, Scope::Default).await
    });
}

async fn all_served_and_no_more(lab: &Lab, count: usize) -> Result<()> {
    wait_for(&format!("{count} Services are left, and are served"), BURST_SERVED_WITHIN, async || {
        let (served, there) =
            (super::served(lab).await?, services(lab).list_metadata(&Default::default()).await?.items.len());
        // One is the API server's own.
        ensure!((served, there) == (count, count + 1), "{served} served of {there}");
        Ok(())
    })
    .await
}

#[test]
fn a_service_that_somebody_else_writes_all_the_time_is_served_soon() {
    inside(async || {
        let mut lab = lab().await?;
        create_pool(&lab, "public", "10.60.0.10/32").await?;
        lab.spawn_controller()?;
        create(&lab, "first", json!({})).await?;
        comes_to_have(&lab, "first", &["10.60.0.10"]).await?;
        create(&lab, "busy", json!({})).await?;
        let meddle = async {
            for number in 0_u64.. {
                patch(&lab, "busy", json!({ "metadata": { "annotations": { "number": number.to_string() } } })).await?;
            }
            anyhow::Ok(())
        };
        let serve = async {
            delete(&lab, "first").await?;
            comes_to_have(&lab, "busy", &["10.60.0.10"]).await
        };
        tokio::select! {
            meddled = meddle => meddled?,
            served = serve => served?,
        }
        all_is_sound(&lab, Scope::Default).await
    });
}

#[test]
fn a_service_made_again_and_again_under_its_name_has_its_address_and_nothing_is_left_of_the_others() {
    inside(async || {
        const TIMES: usize = 100;
        let mut lab = lab().await?;
        create_pool(&lab, "public", "10.60.0.10-10.60.0.12").await?;
        lab.spawn_controller()?;
        create(&lab, "neighbour", json!({})).await?;
        comes_to_have(&lab, "neighbour", &["10.60.0.10"]).await?;
        create(&lab, "again", json!({})).await?;
        comes_to_have(&lab, "again", &["10.60.0.11"]).await?;
        let mut before = uid(&lab, "again").await?;
        for round in 0..TIMES {
            delete(&lab, "again").await?;
            if round % 2 == 0 {
                // Gone before the leader looks.
                let gone = patch(&lab, "again", json!({ "metadata": { "finalizers": null } })).await;
                drop(gone);
            }
            create_once_the_name_is_free(&lab, "again").await?;
            let now = uid(&lab, "again").await?;
            ensure!(now != before, "it is the same one");
            before = now;
        }
        comes_to_have(&lab, "again", &["10.60.0.11"]).await?;
        ensure!(uid(&lab, "again").await? == before, "it is another one");
        comes_to_have(&lab, "neighbour", &["10.60.0.10"]).await?;
        all_is_sound(&lab, Scope::Default).await
    });
}

async fn create_once_the_name_is_free(lab: &Lab, name: &str) -> Result<()> {
    wait_for("the name is free", SOON, async || {
        match services(lab).create(&PostParams::default(), &service(name, json!({}), None)?).await {
            Err(Error::Api(refusal)) if refusal.code == 409 => anyhow::bail!("{refusal}"),
            answer => Ok(answer.map(drop)?),
        }
    })
    .await
}
