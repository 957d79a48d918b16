//! What Nodes are to Services, and what becomes of writes: the cases of `k8s.io/cloud-provider`'s own tests of
//! its service controller that are about more than one look at one Service.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::tests::{at, hear, key, pool, sent, view};
use super::*;
use crate::cluster::traffic::Fenced;
use crate::cluster::views;
use crate::model::NodeName;
use crate::model::views::NodeView;

/// A desk with this many Services that have what they ask for, and nothing left to do.
fn at_rest(services: u8) -> Desk {
    let mut desk = Desk::new(7, Scope::Default, 4);
    let all = (0..services).map(|number| {
        let key = ServiceKey::new("default", format!("s{number}"));
        let given = view(1, Some(&format!("10.60.0.{}", 10 + number)));
        (key.clone(), Some(Arc::new(ServiceView { key, ..given })))
    });
    let pools = Some(BTreeMap::from([pool(1, AddressPoolStatus::default())]));
    desk.hear(all.collect(), pools, News::default(), at(0));
    for write in desk.writes(at(0)) {
        let Write::Pool(name, _, status) = write else { panic!("a Service is written: {write:?}") };
        let (_, told) = pool(2, *status);
        desk.answered(Answered::Pool(name, Ok(Box::new(ObservedPool::clone(&told)))), at(1));
    }
    assert_eq!((desk.writes(at(2000)), desk.queue.len()), (vec![], 0));
    drop(desk.words());
    desk
}

/// A Node as upstream's tests have it.
fn node(name: &str, change: &Value) -> (NodeName, NodeView) {
    let mut object = json!({
        "metadata": { "name": name, "labels": {} },
        "spec": { "providerID": format!("lab://{name}"), "taints": [], "podCIDRs": ["10.244.0.0/24"] },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "10.90.0.11" }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    for (path, value) in change.as_object().into_iter().flatten() {
        object.pointer_mut(path).map(|field| *field = value.clone()).expect("a field of the Node");
    }
    let object: Node = serde_json::from_value(object).expect("a Node");
    let view = views::node(&object).expect("a view");
    (view.name.clone(), view)
}

/// Lets the desk hear of Nodes; the Services that are looked at for it, and what is written.
fn hear_of(desk: &mut Desk, nodes: impl IntoIterator<Item = (NodeName, Option<NodeView>)>) -> (usize, Vec<Write>) {
    let nodes = nodes.into_iter().map(|(name, view)| (name, view.as_ref().map(plan::facts)));
    let news = News { nodes: nodes.collect(), ..News::default() };
    desk.hear(BTreeMap::new(), None, news, at(3000));
    (desk.queue.len(), desk.writes(at(3000)))
}

/// Upstream tells every load balancer of every Node; here no Service is even looked at.
#[test]
fn upstreams_update_load_balancer_hosts_and_node_changes() {
    for services in [0, 1, 2, 3, 4] {
        for nodes in [1, 2, 4] {
            let mut desk = at_rest(services);
            let names: Vec<_> = (0..nodes).map(|number| format!("node{number}")).collect();
            let come = names.iter().map(|name| node(name, &Value::Null)).map(|(name, view)| (name, Some(view)));
            let row = format!("{services} Services, {nodes} Nodes");
            assert_eq!(hear_of(&mut desk, come.collect::<Vec<_>>()), (0, vec![]), "{row} come");
            let go = names.iter().map(|name| (name.parse().expect("a name"), None));
            assert_eq!(hear_of(&mut desk, go.collect::<Vec<_>>()), (0, vec![]), "{row} go");
            assert_eq!(desk.words(), [], "{row}");
        }
    }
}

#[test]
fn upstreams_nodes_sufficiently_equal_and_should_sync_updated_node() {
    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    let excluded = json!({ "/metadata/labels": { label: "" } });
    let ready = |status: &str| json!({ "/status/conditions": [{ "type": "Ready", "status": status }] });
    let tainted = json!({ "/spec/taints": [{ "key": "a", "effect": "NoSchedule" }] });
    let to_be_deleted =
        json!({ "/spec/taints": [{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }] });
    let as_it_is = Value::Null;
    let mut desk = at_rest(2);
    for (row, before, after) in [
        ("a provider ID appears", json!({ "/spec/providerID": null }), as_it_is.clone()),
        ("a provider ID goes", as_it_is.clone(), json!({ "/spec/providerID": null })),
        ("another provider ID", as_it_is.clone(), json!({ "/spec/providerID": "lab://other" })),
        ("nothing", as_it_is.clone(), as_it_is.clone()),
        ("excluded", as_it_is.clone(), excluded.clone()),
        ("no longer excluded", excluded.clone(), as_it_is.clone()),
        ("excluded as before", excluded.clone(), excluded),
        ("a taint", as_it_is.clone(), tainted),
        ("the cluster autoscaler's taint", as_it_is.clone(), to_be_deleted),
        ("no longer Ready", ready("True"), ready("False")),
        ("Ready again", ready("False"), ready("True")),
        ("no conditions any more", ready("True"), json!({ "/status/conditions": [] })),
    ] {
        for change in [&before, &after] {
            let (name, view) = node("node1", change);
            assert_eq!(hear_of(&mut desk, [(name, Some(view))]), (0, vec![]), "{row}");
        }
    }
    let (replaced, by) = (node("node2", &Value::Null), node("node3", &Value::Null));
    let one_for_another = [(replaced.0, None), (by.0, Some(by.1))];
    assert_eq!(hear_of(&mut desk, one_for_another), (0, vec![]), "one Node in place of another");
}

/// The one thing about Nodes that concerns a Service: its address is a Node's.
#[test]
fn a_node_with_a_services_address_concerns_that_service_alone() {
    let mut desk = at_rest(2);
    let taken = json!({ "/status/addresses": [{ "type": "InternalIP", "address": "10.60.0.11" }] });
    let (name, view) = node("node1", &taken);
    let (looked_at, _) = hear_of(&mut desk, [(name, Some(view))]);
    let concerned: Vec<_> = desk.gated.iter().map(ToString::to_string).collect();
    assert_eq!((looked_at, concerned), (1, vec!["default/s1".to_owned()]), "it waits for the pool to say so");
}

#[test]
fn upstreams_status_patch_errors_and_the_queue() {
    let mut desk = Desk::new(7, Scope::Default, 4);
    let pools = Some(BTreeMap::from([pool(1, AddressPoolStatus::default())]));
    desk.hear(BTreeMap::from([(key(), Some(Arc::new(view(1, None))))]), pools, News::default(), at(0));
    let (actions, _) = sent(&mut desk, at(0));
    let failed = |desk: &mut Desk, error, now| {
        desk.answered(Answered::Service(key(), Box::new(actions[0].clone()), Err(error)), now);
    };
    failed(&mut desk, WriteError::Conflict, at(1));
    assert_eq!(desk.words(), [], "a conflict is nobody's fault");
    let again = desk.backoff.until(&Object::Service(key())).expect("tried again");
    let later = Now { moment: again, ..at(0) };
    assert_eq!(sent(&mut desk, later).0.len(), 1, "one more try");
    failed(&mut desk, WriteError::Gone, later);
    desk.hear(BTreeMap::from([(key(), None)]), None, News::default(), later);
    assert_eq!((sent(&mut desk, at(60_000)).0, desk.words()), (vec![], vec![]), "a Service that is gone is no error");
    assert_eq!(desk.backoff.until(&Object::Service(key())), None, "and is not tried again");
}

/// The words told since the last call, as their Events have them.
fn told_now(desk: &mut Desk) -> Vec<(&'static str, String)> {
    desk.words().into_iter().map(|(_, note)| (note.event_reason(), note.to_string())).collect()
}

#[test]
fn a_write_that_fails_is_told_once_for_each_reason_and_tried_again_with_longer_and_longer_waits() {
    fn api(message: &str, code: u16) -> WriteError {
        let status = kube::core::Status::failure(message, "Refused").with_code(code);
        WriteError::Refused(Box::new(kube::Error::Api(Box::new(status))))
    }
    let fenced = || WriteError::Refused(Box::new(kube::Error::Service(Box::new(Fenced))));
    let quota = "Error syncing load balancer: failed to update load balancer status: \
        the API server did not take the write: no room in the quota (403)";
    let wrong = "Error syncing load balancer: failed to update load balancer status: \
        the API server did not take the write: that is no Service (422)";
    let broken = "Error syncing load balancer: failed to update load balancer status: \
        the API server did not take the write: etcd has no leader (500)";
    let late = "Error syncing load balancer: failed to update load balancer status: \
        the API server did not answer in time";
    let mut desk = Desk::new(7, Scope::Default, 4);
    let pools = Some(BTreeMap::from([pool(1, AddressPoolStatus::default())]));
    desk.hear(BTreeMap::from([(key(), Some(Arc::new(view(1, None))))]), pools, News::default(), at(0));
    let mut now = at(0);
    let mut waits = Vec::new();
    for (case, error, told) in [
        ("somebody else was first", WriteError::Conflict, None),
        ("refused", api("no room in the quota", 403), Some(quota)),
        ("again", api("no room in the quota", 403), None),
        ("nobody's fault, and no end of it", WriteError::Conflict, None),
        ("as before", api("no room in the quota", 403), None),
        ("another reason", api("that is no Service", 422), Some(wrong)),
        ("the server's fault", api("etcd has no leader", 500), Some(broken)),
        ("no answer", WriteError::TimedOut, Some(late)),
        ("another process leads", fenced(), None),
        ("the first reason, anew", api("no room in the quota", 403), Some(quota)),
    ] {
        let (actions, _) = sent(&mut desk, now);
        let [action] = &actions[..] else { panic!("{case}: not tried: {actions:?}") };
        desk.answered(Answered::Service(key(), Box::new(action.clone()), Err(error)), now);
        let want: Vec<_> = told.iter().map(|text| ("SyncLoadBalancerFailed", (*text).to_owned())).collect();
        assert_eq!(told_now(&mut desk), want, "{case}");
        let next = desk.backoff.until(&Object::Service(key())).expect("a next try");
        assert_eq!(sent(&mut desk, now).0, [], "{case}: not before its time");
        waits.push(next.since(now.moment));
        now = Now { moment: next, ..now };
    }
    let longest = Duration::from_secs(60);
    assert!(waits.last().is_some_and(|wait| *wait >= longest / 2 && *wait <= longest), "{waits:?}");

    let (actions, _) = sent(&mut desk, now);
    let given = view(2, Some("10.60.0.10"));
    desk.answered(Answered::Service(key(), Box::new(actions[0].clone()), Ok(Box::new(given))), now);
    assert_eq!(told_now(&mut desk), [("EnsuredLoadBalancer", "Ensured load balancer".to_owned())]);
    assert_eq!(desk.backoff.until(&Object::Service(key())), None);
    hear(&mut desk, view(3, None), now);
    let (actions, _) = sent(&mut desk, now);
    let error = Err(api("no room in the quota", 403));
    desk.answered(Answered::Service(key(), Box::new(actions[0].clone()), error), now);
    assert_eq!(told_now(&mut desk).len(), 1, "it went well in between");
}

#[test]
fn upstreams_sync_service_and_process_service_deletion() {
    let mut desk = at_rest(0);
    let unknown = ServiceKey::new("default", "unknown");
    desk.hear(BTreeMap::from([(unknown, None)]), None, News::default(), at(3000));
    assert_eq!((desk.writes(at(3000)), desk.known().count()), (vec![], 0), "one that nobody knew is gone");
    assert!("invalid/key/string".parse::<ServiceKey>().is_err(), "a key has one slash");

    hear(&mut desk, view(2, Some("10.60.0.10")), at(4000));
    assert_eq!(desk.ledger().holders(&"a".parse().expect("a name")).len(), 1);
    desk.hear(BTreeMap::from([(key(), None)]), None, News::default(), at(5000));
    assert_eq!(sent(&mut desk, at(5000)).0, [], "nothing is left to write to");
    assert_eq!((desk.known().count(), desk.ledger().holders(&"a".parse().expect("a name")).len()), (0, 0), "forgotten");
}
