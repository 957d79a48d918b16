//! What the API server itself refuses, by the schemas and rules of the kinds that Cairn brings along.

use anyhow::{Context, Result, ensure};
use cairn::api::{AddressPool, BgpPeer};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::harness::{Lab, enclosure::inside, kubernetes::Kubernetes};

#[test]
fn a_wrong_pool_or_peer_is_refused_by_the_api_server() {
    inside(async || wrong_objects_are_refused(Kubernetes::default()).await);
}

struct Case {
    name: &'static str,
    kind: &'static str,
    spec: Value,
    /// Words of the refusal; `None` for what is right.
    refusal: Option<&'static str>,
}

pub(super) async fn wrong_objects_are_refused(kubernetes: Kubernetes) -> Result<()> {
    let mut lab = Lab::builder().kubernetes(kubernetes).start().await?;
    lab.install_cairn().await?;
    let trial = PostParams { dry_run: true, ..PostParams::default() };
    let pools: Api<AddressPool> = Api::all(lab.kube().clone());
    let peers: Api<BgpPeer> = Api::all(lab.kube().clone());
    for case in cases() {
        let object = json!({ "metadata": { "name": "trial" }, "spec": case.spec });
        let answer = match case.kind {
            "AddressPool" => pools.create(&trial, &serde_json::from_value(object)?).await.map(drop),
            _ => peers.create(&trial, &serde_json::from_value(object)?).await.map(drop),
        };
        let Some(words) = case.refusal else {
            answer.with_context(|| case.name)?;
            continue;
        };
        let refusal = answer.err().with_context(|| format!("{}: accepted", case.name))?.to_string();
        ensure!(refusal.contains(words), "{}: {refusal}", case.name);
    }
    Ok(())
}

fn cases() -> Vec<Case> {
    let pool =
        |name, block: &str, refusal| Case { name, kind: "AddressPool", spec: json!({ "addresses": [block] }), refusal };
    let peer = |name, address: &str, local_asn: u32, hold_time_seconds: u32, refusal| Case {
        name,
        kind: "BgpPeer",
        spec: json!({
            "address": address,
            "localAsn": local_asn,
            "peerAsn": 64512,
            "holdTimeSeconds": hold_time_seconds,
        }),
        refusal,
    };
    let block = Some("each of addresses is a CIDR");
    vec![
        pool("a CIDR", "10.60.0.0/24", None),
        pool("a range", "fd60::10-fd60::ff", None),
        pool("one address", "10.60.0.1", block),
        pool("a prefix too long", "10.60.0.0/33", block),
        pool("words", "everything", block),
        peer("a peer", "10.90.0.1", 64513, 3, None),
        peer("a peer whose session never expires", "fd90::1", 64513, 0, None),
        peer("a name for an address", "router", 64513, 3, Some("address is an IP address")),
        peer("a reserved AS number", "10.90.0.1", 23456, 3, Some("localAsn is not one of the reserved numbers")),
        peer("AS number zero", "10.90.0.1", 0, 3, Some("localAsn")),
        peer("a hold time too short", "10.90.0.1", 64513, 2, Some("holdTimeSeconds is 0 (never expires) or 3")),
    ]
}
