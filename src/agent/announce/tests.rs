//! What each router is told.

use serde_json::{Value, json};

use super::*;
use crate::agent::cases::{local, node_route, peer, snapshot, web};
use crate::agent::entries::{self, Memory};
use crate::config::Pool;
use crate::model::views::TrafficPolicy;
use crate::model::{Moment, ServiceKey};

fn advertisement(name: &str, spec: Value) -> Arc<Advertisement> {
    let spec = serde_json::from_value(spec).expect("a spec");
    Arc::new(Advertisement::check(name, &spec).expect("an Advertisement"))
}

fn pool(name: &str, addresses: &[&str], tier: &str) -> Arc<PoolView> {
    let spec = serde_json::from_value(json!({ "addresses": addresses })).expect("a spec");
    let pool = Pool::check(name, &spec).expect("a pool");
    Arc::new(PoolView::new(pool, &BTreeMap::from([("tier".to_owned(), tier.to_owned())])))
}

/// Node n1 of rack r1 with two pod CIDRs, two routers `a` and `b`, two pools, and Services `default/web`
/// (10.60.0.10, fd60::10, label app=web) and `shop/web` (10.60.0.200, 10.61.0.1).
fn scene(advertisements: &[Arc<Advertisement>]) -> Snapshot {
    let service = |namespace: &str, addresses: &[&str]| {
        let mut service = web(TrafficPolicy::Cluster);
        service.key = ServiceKey::new(namespace, "web");
        service.labels = BTreeMap::from([("app".to_owned(), namespace.to_owned())]).into();
        let entry = service.ingress[0].clone();
        let of = |address: &&str| crate::model::views::Ingress {
            ip: Some(address.parse().expect("an address")),
            ..entry.clone()
        };
        service.ingress = addresses.iter().map(of).collect();
        service
    };
    let mut snapshot = snapshot()
        .node(node_route("n1", &["10.90.0.11"], &["10.244.0.0/24", "fd00:244::/64"]))
        .node(node_route("n2", &["10.90.0.12"], &["10.244.1.0/24"]))
        .local([local("eth0", "10.90.0.11/24")])
        .service(service("default", &["10.60.0.10", "fd60::10"]))
        .service(service("shop", &["10.60.0.200", "10.61.0.1"]))
        .endpoints_of("default", "n2", 1, 0)
        .endpoints_of("shop", "n2", 1, 0)
        .build();
    snapshot.labels.insert("rack".to_owned(), "r1".to_owned());
    snapshot.pools =
        vec![pool("public", &["10.60.0.0/24", "fd60::/112"], "edge"), pool("office", &["10.61.0.0-10.61.0.9"], "core")];
    snapshot.peers = vec![peer("a", "10.90.0.1"), peer("b", "10.90.0.2")];
    snapshot.advertisements = advertisements.to_vec();
    snapshot
}

fn planned_of(snapshot: &Snapshot) -> AnnouncePlan {
    let of_nodes = NodeAddresses::of(&snapshot.node_routes);
    let entries = entries::plan(snapshot, &of_nodes, &mut Memory::default(), Moment::default());
    Announcer::default().plan(snapshot, &of_nodes, &entries, &snapshot.peers)
}

fn planned(advertisements: &[Arc<Advertisement>]) -> AnnouncePlan {
    let snapshot = scene(advertisements);
    planned_of(&snapshot)
}

/// What a peer is told, a word a prefix, with what is said of it behind it.
fn story(plan: &AnnouncePlan, peer: &str) -> String {
    let word = |(prefix, path): (&Prefix, &Arc<PathAttributes>)| {
        let PathAttributes { communities, local_preference, med, prepend } = &**path;
        let communities = communities.iter().map(|community| format!("[{community}]")).collect::<String>();
        let number = |name: &str, number: Option<u32>| number.map(|n| format!("({name} {n})")).unwrap_or_default();
        let prepend = number("prepend", (*prepend > 0).then_some((*prepend).into()));
        format!("{prefix}{communities}{}{}{prepend}", number("pref", *local_preference), number("med", *med))
    };
    plan.by_peer[&peer.parse().expect("a name")].iter().map(word).collect::<Vec<_>>().join(" ")
}

const PODS: &str = "10.244.0.0/24 fd00:244::/64";

#[test]
fn without_an_advertisement_everything_goes_to_everyone_as_it_is() {
    let plan = planned(&[]);
    for peer in ["a", "b"] {
        let want = "10.60.0.10/32 10.60.0.200/32 10.61.0.1/32 10.244.0.0/24 fd00:244::/64 fd60::10/128";
        assert_eq!(story(&plan, peer), want);
    }
    assert_eq!((plan.pod_aggregates.len(), plan.exceptions.len()), (0, 0));
}

#[test]
fn what_is_selected_is_announced_as_the_advertisement_says_and_the_rest_as_ever() {
    struct Case {
        name: &'static str,
        spec: Value,
        /// To peers a and b, without pod CIDRs.
        want: [&'static str; 2],
    }
    let all = "10.60.0.10/32 10.60.0.200/32 10.61.0.1/32 fd60::10/128";
    for case in [
        Case {
            name: "one peer by name, one pool",
            spec: json!({ "services": { "pools": ["public"] }, "bgp": { "peers": ["a"] } }),
            want: [all, "10.61.0.1/32"],
        },
        Case {
            name: "a peer and a pool by label",
            spec: json!({
                "services": { "poolSelector": { "matchLabels": { "tier": "core" } } },
                "bgp": { "peerSelector": { "matchLabels": { "side": "b" } }, "communities": ["64512:1"] },
            }),
            want: [
                "10.60.0.10/32 10.60.0.200/32 fd60::10/128",
                "10.60.0.10/32 10.60.0.200/32 10.61.0.1/32[64512:1] fd60::10/128",
            ],
        },
        Case {
            name: "a namespace, with everything said",
            spec: json!({
                "services": { "namespaces": ["shop"] },
                "bgp": { "communities": ["no-export", "64512:1:2"], "localPreference": 200, "med": 5, "asPathPrepend": 2 },
            }),
            want: ["10.60.0.10/32 10.60.0.200/32[no-export][64512:1:2](pref 200)(med 5)(prepend 2) \
                    10.61.0.1/32[no-export][64512:1:2](pref 200)(med 5)(prepend 2) fd60::10/128"; 2],
        },
        Case {
            name: "Services by label",
            spec: json!({ "services": { "serviceSelector": { "matchLabels": { "app": "default" } } }, "withhold": {} }),
            want: ["10.60.0.200/32 10.61.0.1/32"; 2],
        },
        Case {
            name: "other nodes",
            spec: json!({ "services": {}, "nodeSelector": { "rack": "r2" }, "bgp": {} }),
            want: ["", ""],
        },
        Case {
            name: "this node",
            spec: json!({ "services": {}, "nodeSelector": { "rack": "r1" }, "bgp": { "med": 1 } }),
            want: ["10.60.0.10/32(med 1) 10.60.0.200/32(med 1) 10.61.0.1/32(med 1) fd60::10/128(med 1)"; 2],
        },
        Case {
            name: "layer 2",
            spec: json!({ "services": { "pools": ["public"] }, "l2": {} }),
            want: ["10.61.0.1/32", "10.61.0.1/32"],
        },
        Case {
            name: "a pool and a peer that are not there",
            spec: json!({ "services": { "pools": ["none"] }, "bgp": { "peers": ["none"] } }),
            want: [all, all],
        },
        Case {
            name: "aggregates, no wider than a block of the pool",
            spec: json!({ "services": {}, "bgp": { "aggregationLength": 25, "aggregationLengthV6": 64 } }),
            want: ["10.60.0.0/25 10.60.0.128/25 10.61.0.0/29 fd60::/112"; 2],
        },
    ] {
        let plan = planned(&[advertisement("x", case.spec)]);
        for (peer, want) in ["a", "b"].into_iter().zip(case.want) {
            let told: Vec<_> = story(&plan, peer).split(' ').map(ToOwned::to_owned).collect();
            let services: Vec<_> = told.iter().filter(|word| !PODS.split(' ').any(|pods| pods == *word)).collect();
            let is_of_path = |word: &&String| !word.is_empty();
            let services: Vec<_> = services.into_iter().filter(is_of_path).cloned().collect();
            assert_eq!(services.join(" "), want, "{}: to {peer}", case.name);
        }
        assert!(plan.exceptions.is_empty(), "{}: {:?}", case.name, plan.exceptions);
    }
}

#[test]
fn an_aggregate_is_there_as_long_as_an_address_in_it_is() {
    let wide =
        advertisement("wide", json!({ "services": { "pools": ["public"] }, "bgp": { "aggregationLength": 24 } }));
    let told = |services: &[&str]| {
        let mut snapshot = scene(std::slice::from_ref(&wide));
        let others = snapshot.services.clone();
        let others = others.keys().filter(|key| !services.contains(&key.as_str()));
        others.for_each(|key| drop(snapshot.services.remove(key)));
        let plan = planned_of(&snapshot);
        plan.by_peer[&"a".parse().expect("a name")].contains_key(&"10.60.0.0/24".parse().expect("a prefix"))
    };
    assert_eq!([&["default/web", "shop/web"][..], &["shop/web"], &[]].map(told), [true, true, false]);
}

#[test]
fn what_several_say_of_one_prefix_is_merged_whatever_their_order() {
    let spec = |pref: u32, med: u32, prepend: u8, community: &str| {
        let bgp = json!({ "localPreference": pref, "med": med, "asPathPrepend": prepend, "communities": [community] });
        json!({ "services": { "namespaces": ["default"] }, "bgp": bgp })
    };
    let silent = json!({ "services": { "namespaces": ["default"] }, "bgp": {} });
    let mut all = [
        advertisement("one", spec(100, 30, 3, "64512:1")),
        advertisement("two", spec(200, 20, 1, "64512:2")),
        advertisement("three", silent),
    ];
    let want = "10.60.0.10/32[64512:1][64512:2](pref 200)(med 20)(prepend 1)";
    assert!(story(&planned(&all), "a").starts_with(want), "{}", story(&planned(&all), "a"));
    all.reverse();
    assert!(story(&planned(&all), "a").starts_with(want));
    // Different lengths are different prefixes.
    let narrow = advertisement("narrow", json!({ "services": { "namespaces": ["default"] }, "bgp": {} }));
    let wide = json!({ "services": { "namespaces": ["default"] }, "bgp": { "aggregationLength": 24, "med": 9 } });
    let plan = planned(&[narrow, advertisement("wide", wide)]);
    assert!(story(&plan, "a").starts_with("10.60.0.0/24(med 9) 10.60.0.10/32 "), "{}", story(&plan, "a"));
}

#[test]
fn pod_cidrs_have_advertisements_of_their_own() {
    for (spec, want) in [
        (json!({ "podCidrs": {}, "withhold": {} }), ""),
        (json!({ "podCidrs": {}, "bgp": { "peers": ["b"] } }), ""),
        (
            json!({ "podCidrs": {}, "bgp": { "communities": ["64512:7"] } }),
            "10.244.0.0/24[64512:7] fd00:244::/64[64512:7]",
        ),
        (
            json!({ "podCidrs": {}, "bgp": { "aggregationLength": 16, "aggregationLengthV6": 65 } }),
            "10.244.0.0/16 fd00:244::/64",
        ),
        (json!({ "services": {}, "withhold": {} }), PODS),
    ] {
        let plan = planned(&[advertisement("x", spec.clone())]);
        let told: Vec<_> =
            story(&plan, "a").split(' ').filter(|word| word.contains("244")).map(ToOwned::to_owned).collect();
        assert_eq!(told.join(" "), want, "{spec}");
    }
    let wide = planned(&[advertisement("x", json!({ "podCidrs": {}, "bgp": { "aggregationLength": 16 } }))]);
    assert_eq!(wide.pod_aggregates, BTreeSet::from(["10.244.0.0/16".parse().expect("a prefix")]));
}

#[test]
fn a_network_around_pods_with_others_in_it_is_not_announced() {
    let plan = planned(&[advertisement("x", json!({ "podCidrs": {}, "bgp": { "aggregationLength": 8 } }))]);
    assert!(story(&plan, "a").contains("10.244.0.0/24 "), "{}", story(&plan, "a"));
    let told: Vec<_> = plan.exceptions.iter().map(|e| (e.advertisement.as_str(), e.message.as_str())).collect();
    let message = "10.244.0.0/24 is announced as it is: 10.0.0.0/8 holds 10.90.0.11, an address of node n1";
    assert_eq!((told.as_slice(), plan.pod_aggregates.len()), ([("x", message)].as_slice(), 0));
}

#[test]
fn communities_beyond_what_a_message_holds_are_left_out_and_told() {
    let of = |n: u32| {
        let communities: Vec<_> = (0..32).map(|i| format!("64512:{n}:{i}")).collect();
        advertisement(
            &format!("a{n}"),
            json!({ "services": { "namespaces": ["default"] }, "bgp": { "communities": communities } }),
        )
    };
    let plan = planned(&[of(1), of(2), of(3), of(4), of(5)]);
    let told = &plan.by_peer[&"a".parse().expect("a name")];
    let path = told.get(&"10.60.0.10/32".parse().expect("a prefix")).expect("it is told");
    assert_eq!(path.communities.len(), 128);
    assert_eq!(plan.exceptions.len(), 1);
    assert!(plan.exceptions[0].message.starts_with("gives routes 160 communities together with a2, a3, a4, a5"));
}
