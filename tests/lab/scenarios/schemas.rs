//! What the API server itself refuses, by the schemas and rules of the kinds that Cairn brings along.

use anyhow::{Context, Result, ensure};
use cairn::api::{AddressPool, Advertisement, BgpPeer};
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
    let advertisements: Api<Advertisement> = Api::all(lab.kube().clone());
    let peers: Api<BgpPeer> = Api::all(lab.kube().clone());
    for case in cases().into_iter().chain(advertisements_to_try()).chain(imports_to_try()) {
        let object = json!({ "metadata": { "name": "trial" }, "spec": case.spec });
        let answer = match case.kind {
            "Advertisement" => {
                let advertisement = serde_json::from_value(object)?;
                advertisements.create(&trial, &advertisement).await.map(drop)
            }
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

fn imports_to_try() -> Vec<Case> {
    let case = |name, import: Value, refusal| {
        let spec = json!({ "localAsn": 64513, "peerAsn": 64512, "address": "10.90.0.1", "import": import });
        Case { name, kind: "BgpPeer", spec, refusal }
    };
    let prefix = |name, prefix: Value, refusal| case(name, json!({ "prefixes": [prefix] }), refusal);
    let cidr = Some("prefix is a CIDR without host bits");
    vec![
        prefix("the default route", json!({ "prefix": "::/0" }), None),
        prefix("networks by length", json!({ "prefix": "10.0.0.0/8", "ge": 16, "le": 24 }), None),
        prefix("host bits", json!({ "prefix": "10.0.0.1/8" }), cidr),
        prefix("an address for a prefix", json!({ "prefix": "10.0.0.1" }), cidr),
        prefix("ge below the length", json!({ "prefix": "10.0.0.0/8", "ge": 7 }), Some("ge is at least the length")),
        prefix("le below ge", json!({ "prefix": "10.0.0.0/8", "ge": 24, "le": 16 }), Some("le is at least ge")),
        case("no prefixes", json!({ "prefixes": [] }), Some("prefixes")),
        case("no limit", json!({ "prefixes": [{ "prefix": "::/0" }], "maxPrefixes": 0 }), Some("maxPrefixes")),
        case("our own AS", json!({ "prefixes": [{ "prefix": "::/0" }], "allowOwnAs": 10 }), None),
        case(
            "our own AS too often",
            json!({ "prefixes": [{ "prefix": "::/0" }], "allowOwnAs": 11 }),
            Some("allowOwnAs"),
        ),
    ]
}

fn advertisements_to_try() -> Vec<Case> {
    let case = |name, spec: Value, refusal| Case { name, kind: "Advertisement", spec, refusal };
    let bgp = |name, bgp: Value, refusal| case(name, json!({ "services": {}, "bgp": bgp }), refusal);
    let community = Some("each of communities is two numbers up to 65535");
    let tier = |operator: &str, values: Value| {
        let expression = json!({ "key": "tier", "operator": operator, "values": values });
        json!({ "services": { "poolSelector": { "matchExpressions": [expression] } }, "bgp": {} })
    };
    vec![
        bgp("an Advertisement of everything by BGP", json!({}), None),
        case("one that keeps pod CIDRs back", json!({ "podCidrs": {}, "withhold": {} }), None),
        case("one by layer 2", json!({ "services": { "pools": ["a"] }, "l2": { "interfaces": ["eth0"] } }), None),
        bgp(
            "every attribute there is",
            json!({
                "peers": ["a", "b"], "peerSelector": {}, "aggregationLength": 24, "aggregationLengthV6": 64,
                "communities": ["0:0", "65535:65535", "4294967295:0:4294967295", "no-export", "graceful-shutdown"],
                "localPreference": 4_294_967_295_u32, "med": 0, "asPathPrepend": 16,
            }),
            None,
        ),
        case("neither Services nor pods", json!({ "bgp": {} }), Some("is of services or of podCidrs")),
        case("both", json!({ "services": {}, "podCidrs": {}, "bgp": {} }), Some("is of services or of podCidrs")),
        case("no way to announce", json!({ "services": {} }), Some("exactly one of bgp, l2 and withhold")),
        case("two ways", json!({ "services": {}, "bgp": {}, "withhold": {} }), Some("exactly one of bgp, l2")),
        case("pods by layer 2", json!({ "podCidrs": {}, "l2": {} }), Some("podCidrs are announced by bgp")),
        case("In with values", tier("In", json!(["edge"])), None),
        case("In without values", tier("In", json!([])), Some("values has at least one entry")),
        case("Exists with values", tier("Exists", json!(["edge"])), Some("values has at least one entry")),
        bgp("a community too large", json!({ "communities": ["65536:1"] }), community),
        bgp("a large community too large", json!({ "communities": ["1:2:4294967296"] }), community),
        bgp("one number for a community", json!({ "communities": ["64512"] }), community),
        bgp("an unknown name for a community", json!({ "communities": ["internet"] }), community),
        bgp("a length of 33 bits", json!({ "aggregationLength": 33 }), Some("aggregationLength")),
        bgp("a length of 0 bits", json!({ "aggregationLengthV6": 0 }), Some("aggregationLengthV6")),
        bgp("too often prepended", json!({ "asPathPrepend": 17 }), Some("asPathPrepend")),
    ]
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
    let host = Some("address is one of the router itself");
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
        peer("an address of the node itself", "127.0.0.1", 64513, 3, host),
        peer("the node itself in IPv6", "::1", 64513, 3, host),
        peer("a multicast address", "224.0.0.5", 64513, 3, host),
        peer("the unspecified address", "::", 64513, 3, host),
        peer("a network that no host has", "0.1.2.3", 64513, 3, host),
        peer("the broadcast address", "255.255.255.255", 64513, 3, host),
        peer("a link-local address", "fe80::1", 64513, 3, host),
        peer("a link-local address of IPv4", "169.254.0.1", 64513, 3, None),
        peer("a reserved AS number", "10.90.0.1", 23456, 3, Some("localAsn is not one of the reserved numbers")),
        peer("AS number zero", "10.90.0.1", 0, 3, Some("localAsn")),
        peer("a hold time too short", "10.90.0.1", 64513, 2, Some("holdTimeSeconds is 0 (never expires) or 3")),
    ]
}
