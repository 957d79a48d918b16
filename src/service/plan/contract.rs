//! The cases of `k8s.io/cloud-provider`'s own tests of its service controller, by the names that they have
//! there. Where Cairn differs, ARCHITECTURE.md says why.

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::*;
use crate::api::AddressPoolSpec;
use crate::cluster::views;

/// What is written, in short.
#[derive(Debug, PartialEq, Eq)]
enum Written {
    /// The addresses, and whether the finalizer comes along.
    Given(Vec<&'static str>, bool),
    /// Addresses and finalizer are taken away.
    Released,
}

fn given(addresses: &[&'static str]) -> Option<Written> {
    Some(Written::Given(addresses.to_vec(), false))
}

fn given_with_finalizer(addresses: &[&'static str]) -> Option<Written> {
    Some(Written::Given(addresses.to_vec(), true))
}

/// A Service of type LoadBalancer that has nothing yet.
fn new() -> Value {
    json!({
        "metadata": { "namespace": "default", "name": "web", "uid": "u", "resourceVersion": "7" },
        "spec": {
            "type": "LoadBalancer", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "selector": { "app": "web" },
            "ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30080 }],
        },
    })
}

/// One that has what it asked for.
fn served() -> Value {
    changed(
        new(),
        json!({
            "metadata": { "finalizers": [CLEANUP_FINALIZER] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "10.60.0.1", "ipMode": "VIP" }] } },
        }),
    )
}

/// As a merge patch changes it (RFC 7396).
fn changed(mut object: Value, by: Value) -> Value {
    match (&mut object, by) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (name, change) in changes {
                let before = fields.remove(&name).unwrap_or(Value::Null);
                if !change.is_null() {
                    fields.insert(name, changed(before, change));
                }
            }
            object
        }
        (_, Value::Object(changes)) => changed(json!({}), Value::Object(changes)),
        (_, other) => other,
    }
}

fn view(object: Value) -> ServiceView {
    let object: Service = serde_json::from_value(object).expect("a Service");
    views::service(&object).expect("a view")
}

fn pools() -> BTreeMap<PoolName, Arc<ObservedPool>> {
    let addresses = vec!["10.60.0.1-10.60.0.9".to_owned(), "fd60::1-fd60::9".to_owned()];
    let spec = AddressPoolSpec { addresses, auto_assign: true, ..AddressPoolSpec::default() };
    let pool = crate::service::cases::observed_pool("a", &spec);
    BTreeMap::from([("a".parse().expect("a name"), Arc::new(pool))])
}

/// What is written of a Service that was as `before`, and is as `now` when it is heard of again.
fn heard(before: Option<Value>, now: Value) -> Option<Written> {
    let mut ledger = Ledger::default();
    drop(ledger.apply(News { pools: Some(pools()), ..News::default() }, Now::default()));
    let mut last = None;
    for object in before.into_iter().chain([now]) {
        let view = view(object);
        let news = BTreeMap::from([(view.key.clone(), standing(&view, Scope::Default))]);
        drop(ledger.apply(News { services: news, ..News::default() }, Now::default()));
        last = Some(view);
    }
    let view = last?;
    let action = service_action(&view, ledger.answer(&view.key).as_ref(), Scope::Default)?;
    Some(written(&view, &action))
}

fn written(view: &ServiceView, action: &Action) -> Written {
    if action.note == Some(Note::LoadBalancerDeleted) {
        assert_eq!((&action.ingress, action.finalizers.as_deref()), (&Vec::new(), Some(&[][..])), "both, in one write");
        return Written::Released;
    }
    assert_eq!(action.note, Some(Note::LoadBalancerEnsured));
    let addresses = action.ingress.iter().map(|ip| match ip.to_string().as_str() {
        "10.60.0.1" => "10.60.0.1",
        "10.60.0.2" => "10.60.0.2",
        "fd60::1" => "fd60::1",
        other => panic!("{other}, which no case expects"),
    });
    if let Some(finalizers) = &action.finalizers {
        assert!(finalizers.starts_with(&view.finalizers), "those of others stay, in their order: {finalizers:?}");
    }
    Written::Given(addresses.collect(), action.finalizers.is_some())
}

#[test]
fn upstreams_sync_load_balancer_if_needed() {
    let port = |protocol: &str| json!({ "spec": { "ports": [{ "port": 80, "protocol": protocol }] } });
    let cluster_ip = || json!({ "spec": { "type": "ClusterIP" } });
    let deleting = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    for (row, object, want) in [
        ("ClusterIP without finalizer: nothing is written", changed(new(), cluster_ip()), None),
        ("UDP: one write", changed(new(), port("UDP")), given_with_finalizer(&["10.60.0.1"])),
        ("TCP: one write", changed(new(), port("TCP")), given_with_finalizer(&["10.60.0.1"])),
        ("SCTP: one write", changed(new(), port("SCTP")), given_with_finalizer(&["10.60.0.1"])),
        (
            "a class of others: nothing is written",
            changed(new(), json!({ "spec": { "loadBalancerClass": "example.net/lb" } })),
            None,
        ),
        ("ClusterIP with finalizer and address: one write", changed(served(), cluster_ip()), Some(Written::Released)),
        ("being deleted with finalizer: one write", changed(served(), deleting), Some(Written::Released)),
        (
            "with the finalizer already: one write of the status",
            changed(new(), json!({ "metadata": { "finalizers": [CLEANUP_FINALIZER] } })),
            given(&["10.60.0.1"]),
        ),
    ] {
        assert_eq!(heard(None, object), want, "{row}");
    }
}

#[test]
fn upstreams_needs_cleanup() {
    let finalizer = json!({ "metadata": { "finalizers": [CLEANUP_FINALIZER] } });
    let node_port = json!({ "spec": { "type": "NodePort" } });
    let deleting = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    for (row, object, want) in [
        ("no finalizer: no", changed(new(), deleting.clone()), false),
        ("finalizer and NodePort: yes", changed(changed(new(), finalizer.clone()), node_port), true),
        ("finalizer and LoadBalancer: no", changed(new(), finalizer.clone()), false),
        ("finalizer and deletion timestamp: yes", changed(changed(new(), finalizer), deleting), true),
    ] {
        assert_eq!(heard(None, object) == Some(Written::Released), want, "{row}");
    }
}

/// Upstream ensures again where its row says so; Cairn looks at whatever changed, and writes only where
/// addresses have to change.
#[test]
fn upstreams_needs_update() {
    let port = |change: Value| {
        let port = json!({ "name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30080 });
        json!({ "spec": { "ports": [changed(port, change)] } })
    };
    let families =
        |families: Value, policy: &str| json!({ "spec": { "ipFamilies": families, "ipFamilyPolicy": policy } });
    let dual = || {
        let ingress = ["10.60.0.1", "fd60::1"].map(|ip| json!({ "ip": ip, "ipMode": "VIP" }));
        let held = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        changed(changed(served(), families(json!(["IPv4", "IPv6"]), "RequireDualStack")), held)
    };
    let foreign = || changed(new(), json!({ "spec": { "loadBalancerClass": "example.net/lb" } }));
    let spec = |change: Value| json!({ "spec": change });
    for (row, before, change, want) in [
        ("from load balancer to ClusterIP", served(), spec(json!({ "type": "ClusterIP" })), Some(Written::Released)),
        ("ports", served(), port(json!({ "port": 81 })), None),
        ("source ranges", served(), spec(json!({ "loadBalancerSourceRanges": ["10.0.0.0/8"] })), None),
        ("session affinity", served(), spec(json!({ "sessionAffinity": "ClientIP" })), None),
        ("another loadBalancerIP", served(), spec(json!({ "loadBalancerIP": "10.60.0.2" })), given(&["10.60.0.2"])),
        ("more externalIPs", served(), spec(json!({ "externalIPs": ["192.0.2.1"] })), None),
        ("an annotation", served(), json!({ "metadata": { "annotations": { "a": "b" } } }), None),
        (
            "an annotation that asks for an address",
            served(),
            json!({ "metadata": { "annotations": { "cairn.dev/load-balancer-ips": "10.60.0.2" } } }),
            given(&["10.60.0.2"]),
        ),
        (
            "another UID: deleted and made again, it has its address back",
            served(),
            json!({ "metadata": { "uid": "v", "finalizers": null }, "status": null }),
            given_with_finalizer(&["10.60.0.1"]),
        ),
        ("externalTrafficPolicy", served(), spec(json!({ "externalTrafficPolicy": "Local" })), None),
        ("healthCheckNodePort", served(), spec(json!({ "healthCheckNodePort": 30123 })), None),
        ("the number of a targetPort", served(), port(json!({ "targetPort": 8081 })), None),
        ("a targetPort by name", served(), port(json!({ "targetPort": "http" })), None),
        ("nothing", served(), json!({}), None),
        (
            "a second family",
            served(),
            families(json!(["IPv4", "IPv6"]), "PreferDualStack"),
            given(&["10.60.0.1", "fd60::1"]),
        ),
        ("one family less", dual(), families(json!(["IPv4"]), "SingleStack"), given(&["10.60.0.1"])),
        ("the same families", dual(), json!({}), None),
        ("an appProtocol", served(), port(json!({ "appProtocol": "http" })), None),
        ("another appProtocol", changed(served(), port(json!({ "appProtocol": "http" }))), port(json!({})), None),
        ("a label", served(), json!({ "metadata": { "labels": { "a": "b" } } }), None),
        ("the selector", served(), spec(json!({ "selector": { "app": "other" } })), None),
        ("a class of others before and after", foreign(), spec(json!({ "sessionAffinity": "ClientIP" })), None),
        ("the status, by hand: cleared", served(), json!({ "status": null }), given(&["10.60.0.1"])),
    ] {
        let now = changed(before.clone(), change);
        assert_eq!(heard(Some(before), now), want, "{row}");
    }
}

#[test]
fn upstreams_finalizer_and_patch_status() {
    let finalizers = |all: &[&str]| json!({ "metadata": { "finalizers": all } });
    let ingress = |all: Value| json!({ "status": { "loadBalancer": { "ingress": all } } });
    let cluster_ip = |object: Value| changed(object, json!({ "spec": { "type": "ClusterIP" } }));
    for (row, object, want) in [
        ("add a finalizer that is there, a status that is the same: no patch", served(), None),
        (
            "add a finalizer that is not there: patch",
            changed(served(), finalizers(&["foo"])),
            given_with_finalizer(&["10.60.0.1"]),
        ),
        ("remove a finalizer that is not there, from empty to empty: no patch", cluster_ip(new()), None),
        (
            "remove a finalizer that is there: patch",
            cluster_ip(changed(new(), finalizers(&[CLEANUP_FINALIZER]))),
            Some(Written::Released),
        ),
        ("add to a status: patch", changed(served(), ingress(Value::Null)), given(&["10.60.0.1"])),
        ("clear a status: patch", cluster_ip(served()), Some(Written::Released)),
        (
            "errors of ports, which are none of ours: patch",
            changed(
                served(),
                ingress(json!([{ "ip": "10.60.0.1", "ipMode": "VIP", "ports": [
                    { "port": 80, "protocol": "TCP", "error": "MixedProtocolNotSupported" },
                ] }])),
            ),
            given(&["10.60.0.1"]),
        ),
        (
            "a host name beside the address: patch",
            changed(served(), ingress(json!([{ "ip": "10.60.0.1", "ipMode": "VIP", "hostname": "lb.example.net" }]))),
            given(&["10.60.0.1"]),
        ),
        (
            "no ipMode, from a server that does not know it: no patch",
            changed(served(), ingress(json!([{ "ip": "10.60.0.1" }]))),
            None,
        ),
    ] {
        assert_eq!(heard(None, object), want, "{row}");
    }
}

#[test]
fn upstreams_valid_services_and_another_load_balancer_ip() {
    assert_eq!(heard(None, new()), given_with_finalizer(&["10.60.0.1"]), "a valid Service");
    let asks = |address: &str| json!({ "spec": { "loadBalancerIP": address } });
    let before = changed(new(), asks("10.60.0.1"));
    let now = changed(before.clone(), asks("10.60.0.2"));
    assert_eq!(
        heard(Some(before), now),
        given_with_finalizer(&["10.60.0.2"]),
        "what counts is the Service as it is now"
    );
}
