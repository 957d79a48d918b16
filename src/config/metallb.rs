//! The rows of MetalLB's test of its configuration parser that are about pools and what is announced of them.
//!
//! Rows about peers are in [`peer`](super::peer). Where Cairn differs, the row says so and ARCHITECTURE.md says why.

use serde_json::{Value, json};

use super::{Advertisement, Pool};

struct Row {
    row: &'static str,
    spec: Value,
    /// Words of the refusal; `None` for what is right.
    refusal: Option<&'static str>,
}

fn accept(row: &'static str, spec: Value) -> Row {
    Row { row, spec, refusal: None }
}

fn reject(row: &'static str, spec: Value, refusal: &'static str) -> Row {
    Row { row, spec, refusal: Some(refusal) }
}

fn holds(rows: Vec<Row>, check: impl Fn(&Value) -> Result<(), String>) {
    for Row { row, spec, refusal } in rows {
        match (check(&spec), refusal) {
            (Ok(()), None) => {}
            (Err(told), Some(words)) => assert!(told.contains(words), "{row}: {told}"),
            (got, want) => panic!("{row}: {got:?}, and not {want:?}"),
        }
    }
}

fn with(more: Value) -> Value {
    let mut spec = json!({ "addresses": ["10.20.0.0/16"] });
    let fields = more.as_object().expect("fields of a pool").clone();
    spec.as_object_mut().expect("a spec").extend(fields);
    spec
}

fn serving(serves: Value) -> Value {
    with(json!({ "serves": serves }))
}

#[test]
fn rows_of_metallbs_pools() {
    let select = |expression: Value| serving(json!({ "serviceSelector": { "matchExpressions": [expression] } }));
    let of = |addresses: Value| json!({ "addresses": addresses });
    holds(
        vec![
            accept(
                "all features",
                with(json!({
                    "addresses": ["10.20.0.0/16", "10.50.0.0/24", "30.0.0.1 - 30.0.0.9", "fd20::/64"],
                    "autoAssign": false, "avoidBuggyIPs": true, "priority": 1,
                    "serves": {
                        "namespaces": ["test-ns1", "test-ns2"],
                        "namespaceSelector": { "matchLabels": { "team": "metallb" } },
                        "serviceSelector": { "matchExpressions": [{ "key": "app", "operator": "In", "values": ["web"] }] },
                    },
                })),
            ),
            accept("namespace serviceAllocation", serving(json!({ "namespaces": ["test-ns1"] }))),
            accept("service serviceAllocation", serving(json!({ "serviceSelector": { "matchLabels": { "a": "b" } } }))),
            accept(
                "both",
                serving(json!({ "namespaces": ["test-ns1"], "serviceSelector": { "matchLabels": { "a": "b" } } })),
            ),
            accept("only priority", with(json!({ "priority": 10 }))),
            accept("range 3.3.3.2-3.3.3.254", of(json!(["3.3.3.2-3.3.3.254"]))),
            accept("a range with spaces", of(json!(["3.3.3.2 - 3.3.3.254"]))),
            reject("duplicate namespaces", serving(json!({ "namespaces": ["a", "a"] })), "a is there already"),
            reject("no addresses", of(json!([])), "spec.addresses: is empty"),
            reject("bad CIDR", of(json!(["100.200.300.400/24"])), "is not a block of addresses"),
            reject("/33", of(json!(["10.20.0.0/33"])), "is not a block of addresses"),
            reject("reversed range", of(json!(["1.2.3.10-1.2.3.1"])), "ends before it starts"),
            reject("a range of two families", of(json!(["1.2.3.1-fd20::9"])), "spec.addresses[0]"),
            reject("duplicate CIDR", of(json!(["10.0.0.0/8", "10.0.0.0/8"])), "shares addresses with 10.0.0.0/8"),
            reject("overlapping CIDR", of(json!(["10.0.0.0/8", "10.1.0.0/16"])), "shares addresses with 10.0.0.0/8"),
            reject(
                "selector: missing key",
                select(json!({ "key": "", "operator": "Exists" })),
                "matchExpressions[0].key",
            ),
            reject(
                "selector: no values",
                select(json!({ "key": "a", "operator": "In" })),
                "values: is empty: with the operator In",
            ),
            // Said twice is said once: all have to hold, and each holds as it did.
            accept(
                "selector: duplicate values (differs)",
                select(json!({ "key": "a", "operator": "In", "values": ["b", "b"] })),
            ),
            accept(
                "selector: duplicate expressions (differs)",
                serving(json!({ "serviceSelector": { "matchExpressions": [
                    { "key": "a", "operator": "Exists" }, { "key": "a", "operator": "Exists" },
                ] } })),
            ),
        ],
        |spec| {
            let spec = serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
            Pool::check("pool", &spec).map(drop).map_err(|faults| faults.to_string())
        },
    );
    let spec = serde_json::from_value(with(json!({}))).expect("a spec");
    let nameless = Pool::check("", &spec).expect_err("a fault").to_string();
    assert!(nameless.starts_with("AddressPool without a name: metadata.name: "), "pool without name: {nameless}");
    for (row, expression) in [
        ("selector: missing operator", json!({ "key": "a" })),
        ("selector: bad operator", json!({ "key": "a", "operator": "Surrounds", "values": ["b"] })),
    ] {
        let spec = serde_json::from_value::<crate::api::AddressPoolSpec>(select(expression));
        assert!(spec.is_err(), "{row}: {spec:?}");
    }
}

#[test]
fn rows_of_metallbs_advertisements() {
    let bgp = |bgp: Value| json!({ "services": {}, "bgp": bgp });
    let of = |services: Value| json!({ "services": services, "bgp": {} });
    let expression = json!({ "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["b"] }] });
    holds(
        vec![
            accept("default settings", bgp(json!({}))),
            accept("pool selectors", of(json!({ "poolSelector": expression }))),
            accept("node selectors", json!({ "services": {}, "nodeSelector": { "rack": "r1" }, "bgp": {} })),
            accept("an empty node selector", json!({ "services": {}, "nodeSelector": {}, "bgp": {} })),
            accept("peer selector", bgp(json!({ "peers": ["a", "b"] }))),
            accept("interfaces", json!({ "services": {}, "l2": { "interfaces": ["eth0", "eth1"] } })),
            accept("serviceSelectors", of(json!({ "serviceSelector": { "matchLabels": { "a": "b" } } }))),
            accept("aggregation 26", bgp(json!({ "aggregationLength": 26 }))),
            reject(
                "aggregation too long",
                bgp(json!({ "aggregationLength": 34 })),
                "aggregationLength: 34 is not a length",
            ),
            reject(
                "v6 too long",
                bgp(json!({ "aggregationLengthV6": 129 })),
                "aggregationLengthV6: 129 is not a length",
            ),
            reject("community: bad format", bgp(json!({ "communities": ["flarb"] })), "\"flarb\" is not a community"),
            reject("community: ASN part too big", bgp(json!({ "communities": ["99999999:1"] })), "is not a community"),
            reject(
                "community: value part too big",
                bgp(json!({ "communities": ["1:99999999"] })),
                "is not a community",
            ),
            accept("community: the same twice (differs)", bgp(json!({ "communities": ["1:2", "1:2"] }))),
            accept("the same pool twice (differs)", of(json!({ "pools": ["a", "a"] }))),
            accept("the same peer twice (differs)", bgp(json!({ "peers": ["a", "a"] }))),
            accept(
                "serviceSelectors with an aggregation (differs)",
                json!({
                    "services": { "serviceSelector": { "matchLabels": { "a": "b" } } },
                    "bgp": { "aggregationLength": 24 },
                }),
            ),
        ],
        |spec| {
            let spec = serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
            Advertisement::check("advertisement", &spec).map(drop).map_err(|faults| faults.to_string())
        },
    );
}
