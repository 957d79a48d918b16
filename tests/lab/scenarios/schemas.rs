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
    let with = |name, more: Value, refusal| {
        let mut spec = json!({ "addresses": ["10.60.0.0/24"] });
        let fields = more.as_object().expect("fields of a pool").clone();
        spec.as_object_mut().expect("a spec").extend(fields);
        Case { name, kind: "AddressPool", spec, refusal }
    };
    let one = |address: &str| json!({ "reservations": [{ "address": address, "namespace": "shop", "name": "web" }] });
    let expression = |operator: &str, values: Value| {
        let expression = json!({ "key": "tier", "operator": operator, "values": values });
        json!({ "serves": { "namespaceSelector": { "matchExpressions": [expression] } } })
    };
    vec![
        pool("a CIDR", "10.60.0.0/24", None),
        pool("a range", "fd60::10-fd60::ff", None),
        pool("one address", "10.60.0.1", block),
        pool("a prefix too long", "10.60.0.0/33", block),
        pool("words", "everything", block),
        with(
            "a pool with everything",
            json!({
                "exclude": ["10.60.0.1/32", "10.60.0.100-10.60.0.199"],
                "autoAssign": false,
                "priority": 10,
                "serves": {
                    "namespaces": ["a", "b"],
                    "namespaceSelector": { "matchLabels": { "tier": "edge" } },
                    "serviceSelector": { "matchExpressions": [{ "key": "app", "operator": "Exists" }] },
                },
                "avoidFirstLast": true,
                "avoidBuggyIPs": true,
                "namespaceQuota": 5,
                "reuseAfterSeconds": 0,
                "reservations": [{ "address": "10.60.0.10", "namespace": "shop", "name": "web" }],
            }),
            None,
        ),
        with("an exclusion of words", json!({ "exclude": ["gateway"] }), Some("each of exclude is a CIDR")),
        with("priority zero", json!({ "priority": 0 }), Some("spec.priority")),
        with("a quota of zero", json!({ "namespaceQuota": 0 }), Some("spec.namespaceQuota")),
        with("a cool-down of a week", json!({ "reuseAfterSeconds": 604_800 }), Some("spec.reuseAfterSeconds")),
        with("serving by nothing", json!({ "serves": {} }), Some("serves says at least one of")),
        with("a namespace twice", json!({ "serves": { "namespaces": ["a", "a"] } }), Some("takes one entry")),
        with("a namespace in capitals", json!({ "serves": { "namespaces": ["A"] } }), Some("spec.serves.namespaces")),
        with("values for Exists", expression("Exists", json!(["a"])), Some("values has at least one entry")),
        with("In without values", expression("In", json!([])), Some("values has at least one entry")),
        with("a reservation of a name", one("web"), Some("address is an IP address")),
        with("a reservation", one("10.60.0.10"), None),
        peer("a peer", "10.90.0.1", 64513, 3, None),
        peer("a peer whose session never expires", "fd90::1", 64513, 0, None),
        peer("a name for an address", "router", 64513, 3, Some("address is an IP address")),
        peer("a reserved AS number", "10.90.0.1", 23456, 3, Some("localAsn is not one of the reserved numbers")),
        peer("AS number zero", "10.90.0.1", 0, 3, Some("localAsn")),
        peer("a hold time too short", "10.90.0.1", 64513, 2, Some("holdTimeSeconds is 0 (never expires) or 3")),
    ]
}
