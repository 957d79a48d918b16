use std::time::Duration;

use super::*;
use crate::api::{AddressPoolSpec, CoolingAddress};
use crate::config::selector::Labels;
use crate::model::NodeName;
use crate::model::views::{
    Condition, EndpointCounts, EndpointView, Ingress, IpMode, ServiceCondition, ServiceConditions, TrafficPolicy,
};
use crate::service::announced::Entry;
use crate::service::cases;
use crate::service::pool_status::ObservedPool;

pub(super) fn at(millis: u64) -> Now {
    Now { moment: Moment::since_boot(Duration::from_secs(1000) + Duration::from_millis(millis)), unix_seconds: 0 }
}

pub(super) fn key() -> ServiceKey {
    ServiceKey::new("default", "web")
}

pub(super) fn view(version: u32, ip: Option<&str>) -> ServiceView {
    let ingress = ip.map(|ip| Ingress { ip: ip.parse().ok(), ip_mode: IpMode::Vip });
    let finalizers = ip.map(|_| plan::CLEANUP_FINALIZER.to_owned());
    ServiceView {
        uid: "u".to_owned(),
        resource_version: version.to_string(),
        ports: BTreeSet::new(),
        finalizers: finalizers.into_iter().collect(),
        ingress: ingress.into_iter().collect(),
        ..cases::service("web")
    }
}

pub(super) fn pool(version: u32, status: AddressPoolStatus) -> (PoolName, Arc<ObservedPool>) {
    let spec = AddressPoolSpec {
        addresses: vec!["10.60.0.10-10.60.0.11".to_owned()],
        auto_assign: true,
        reuse_after_seconds: 60,
        ..AddressPoolSpec::default()
    };
    let pool = ObservedPool { resource_version: version.to_string(), status, ..cases::observed_pool("a", &spec) };
    ("a".parse().expect("a name"), Arc::new(pool))
}

pub(super) fn hear(desk: &mut Desk, view: ServiceView, now: Now) {
    desk.hear(BTreeMap::from([(key(), Some(Arc::new(view)))]), None, News::default(), now);
}

fn desk() -> Desk {
    let mut desk = Desk::new(7, Scope::Default, 4);
    let pools = Some(BTreeMap::from([pool(1, AddressPoolStatus::default())]));
    desk.hear(BTreeMap::from([(key(), Some(Arc::new(view(1, None))))]), pools, News::default(), at(0));
    desk
}

/// The writes to Services, by their addresses, and the status of the pool if it is written.
pub(super) fn sent(desk: &mut Desk, now: Now) -> (Vec<Action>, Option<AddressPoolStatus>) {
    let (mut actions, mut status) = (Vec::new(), None);
    for write in desk.writes(now) {
        match write {
            Write::Service(_, action) => actions.push(*action),
            Write::Pool(_, _, written) => status = Some(*written),
            Write::Conditions(..) => panic!("nothing is known of entrances"),
        }
    }
    (actions, status)
}

fn served(desk: &mut Desk, version: u32, ip: Option<&str>, action: Action, now: Now) {
    desk.answered(Answered::Service(key(), Box::new(action), Ok(Box::new(view(version, ip)))), now);
}

fn told(desk: &mut Desk, version: u32, status: AddressPoolStatus, now: Now) {
    let (name, pool) = pool(version, status);
    desk.answered(Answered::Pool(name, Ok(Box::new(ObservedPool::clone(&pool)))), now);
}

#[test]
fn one_write_serves_a_service_and_its_own_echo_leads_to_none() {
    let mut desk = desk();
    let (actions, status) = sent(&mut desk, at(0));
    assert_eq!(actions.len(), 1);
    assert_eq!(status.and_then(|status| status.ipv4).map(|counts| counts.used), Some(1));
    served(&mut desk, 2, Some("10.60.0.10"), actions[0].clone(), at(5));
    hear(&mut desk, view(1, None), at(6));
    hear(&mut desk, view(2, Some("10.60.0.10")), at(7));
    assert_eq!(sent(&mut desk, at(8)).0, [], "a store that lags behind says nothing new");
    assert_eq!(desk.words().len(), 1, "one Event");
}

#[test]
fn what_is_heard_of_a_service_while_it_is_written_is_looked_at_afterwards() {
    let mut desk = desk();
    let (actions, _) = sent(&mut desk, at(0));
    hear(&mut desk, ServiceView { is_load_balancer: false, ..view(3, None) }, at(1));
    assert_eq!(sent(&mut desk, at(2)).0, [], "one write of an object at a time");
    desk.answered(Answered::Service(key(), Box::new(actions[0].clone()), Err(WriteError::Conflict)), at(3));
    assert_eq!(sent(&mut desk, at(4)).0, [], "it is no load balancer any more and has nothing of us");
}

#[test]
fn a_refused_write_is_tried_again_later_and_not_before() {
    let mut desk = desk();
    let (actions, _) = sent(&mut desk, at(0));
    desk.answered(Answered::Service(key(), Box::new(actions[0].clone()), Err(WriteError::TimedOut)), at(1));
    assert_eq!(sent(&mut desk, at(2)).0, []);
    assert!(desk.deadline().is_some_and(|deadline| deadline <= at(21).moment));
    assert_eq!(sent(&mut desk, at(21)).0.len(), 1);
}

#[test]
fn a_pools_status_is_written_once_a_second() {
    let mut desk = desk();
    let (actions, status) = sent(&mut desk, at(0));
    told(&mut desk, 2, status.expect("a status"), at(1));
    served(&mut desk, 2, Some("10.60.0.10"), actions[0].clone(), at(2));
    desk.hear(BTreeMap::from([(key(), None)]), None, News::default(), at(3));
    assert_eq!(sent(&mut desk, at(4)).1, None);
    assert_eq!(desk.deadline(), Some(at(1000).moment));
    assert!(sent(&mut desk, at(1000)).1.is_some());
}

#[test]
fn a_service_gives_back_an_address_once_the_pool_says_so_for_the_next_leader() {
    let mut desk = desk();
    let (actions, status) = sent(&mut desk, at(0));
    told(&mut desk, 2, status.expect("a status"), at(1));
    served(&mut desk, 2, Some("10.60.0.10"), actions[0].clone(), at(2));
    assert_eq!(sent(&mut desk, at(2000)), (vec![], None));
    hear(&mut desk, ServiceView { is_deleting: true, ..view(3, Some("10.60.0.10")) }, at(2000));
    let (actions, status) = sent(&mut desk, at(2000));
    let status = status.expect("a status, at once");
    let cooling = |entry: &CoolingAddress| (entry.address.clone(), entry.service.clone());
    assert_eq!(status.cooling.iter().map(cooling).collect::<Vec<_>>(), [("10.60.0.10".into(), "default/web".into())]);
    assert_eq!(actions, [], "not yet");
    assert_eq!(desk.deadline(), Some(at(7000).moment), "it waits no longer than is reasonable");
    told(&mut desk, 3, status, at(2005));
    let (actions, _) = sent(&mut desk, at(2005));
    assert_eq!(actions.len(), 1);
    assert_eq!(actions[0].note, Some(Note::LoadBalancerDeleted));
}

/// A desk whose Service has its address, a pod, and nodes of which these things are known.
fn served_desk(nodes: &[(&str, Entry)]) -> Desk {
    let mut desk = desk();
    let (actions, status) = sent(&mut desk, at(0));
    told(&mut desk, 2, status.expect("a status"), at(1));
    served(&mut desk, 2, Some("10.60.0.10"), actions[0].clone(), at(2));
    assert_eq!(sent(&mut desk, at(3)), (vec![], None));
    let slice = EndpointView {
        service: key(),
        family: None,
        nodes: BTreeMap::from([(name("n1"), EndpointCounts { ready: 1, serving_terminating: 0 })]),
    };
    desk.hear_entrances(
        |entrances, concerned| {
            entrances.set_slice("default/web-1", Some(Arc::new(slice.into())), concerned);
            nodes.iter().for_each(|(node, entry)| {
                entrances.set_node(name(node), Some((*entry).into()), &Labels::new(), concerned)
            });
        },
        at(10),
    );
    desk
}

fn name(node: &str) -> NodeName {
    node.parse().expect("a node name")
}

fn node_is(desk: &mut Desk, node: &str, entry: Option<Entry>, now: Now) {
    let node = (name(node), entry.map(Into::into));
    desk.hear_entrances(|entrances, concerned| entrances.set_node(node.0, node.1, &Labels::new(), concerned), now);
}

/// The conditions that are written now: of which version, and type, status and reason of each.
fn conditions_sent(desk: &mut Desk, now: Now) -> Vec<(String, Value)> {
    let of = |write| match write {
        Write::Conditions(_, version, list) => Some((version, list)),
        Write::Service(..) | Write::Pool(..) => None,
    };
    desk.writes(now).into_iter().filter_map(of).collect()
}

fn reasons(list: &Value) -> Vec<(&str, &str)> {
    let all = list.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|said| Some((said["status"].as_str()?, said["reason"].as_str()?))).collect()
}

/// Both conditions as such a write leaves them, or none.
pub(super) fn said(list: &Value) -> ServiceConditions {
    let said = |said: &Value| {
        let text = |field: &str| said[field].as_str().expect("a text").to_owned();
        let status = serde_json::from_value(said["status"].clone()).expect("a status");
        let says = Condition { status, reason: text("reason"), message: text("message") };
        ServiceCondition { says, since_seconds: 0 }
    };
    let [address_assigned, announced] = [0, 1].map(|place| list.get(place).map(said));
    ServiceConditions { address_assigned, announced, others: Vec::new() }
}

fn saying(version: u32, list: &Value) -> ServiceView {
    ServiceView { conditions: said(list), ..view(version, Some("10.60.0.10")) }
}

fn conditions_written(desk: &mut Desk, version: u32, list: &Value, now: Now) {
    desk.answered(Answered::Conditions(key(), Ok(Box::new(saying(version, list)))), now);
}

#[test]
fn conditions_are_written_once_they_have_settled_and_no_more_for_nodes_that_join() {
    let mut desk = served_desk(&[("n1", Entry::Heard)]);
    assert_eq!(conditions_sent(&mut desk, at(2009)), [], "not settled");
    assert_eq!(desk.deadline(), Some(at(2010).moment));
    let written = conditions_sent(&mut desk, at(2010));
    let [(version, list)] = &written[..] else { panic!("{written:?}") };
    assert_eq!((version.as_str(), reasons(list)), ("2", vec![("True", "Assigned"), ("True", "BGP")]));
    conditions_written(&mut desk, 3, list, at(2020));
    hear(&mut desk, saying(3, list), at(2021));
    for (node, entry, milliseconds) in
        [("n2", Entry::Silent, 3000), ("n2", Entry::Heard, 4000), ("n3", Entry::NoSession, 5000)]
    {
        node_is(&mut desk, node, Some(entry), at(milliseconds));
    }
    assert_eq!(conditions_sent(&mut desk, at(60_000)), [], "nothing is new");
    node_is(&mut desk, "n1", Some(Entry::NoSession), at(61_000));
    node_is(&mut desk, "n2", Some(Entry::NoSession), at(61_000));
    node_is(&mut desk, "n2", Some(Entry::Heard), at(61_500));
    assert_eq!(conditions_sent(&mut desk, at(70_000)), [], "it was over before it had settled");
    node_is(&mut desk, "n2", Some(Entry::NoSession), at(71_000));
    let lost = conditions_sent(&mut desk, at(73_000));
    assert_eq!(
        lost.iter().map(|(_, list)| reasons(list)).collect::<Vec<_>>(),
        [[("True", "Assigned"), ("False", "NoSession")]]
    );
}

#[test]
fn conditions_of_a_service_that_is_not_ours_any_more_go() {
    let mut desk = served_desk(&[("n1", Entry::Heard)]);
    let written = conditions_sent(&mut desk, at(2010));
    conditions_written(&mut desk, 3, &written[0].1, at(2020));
    // It has no finalizer of ours, so that nothing else has to be written.
    let ended = ServiceView {
        is_load_balancer: false,
        finalizers: Vec::new(),
        ingress: Vec::new(),
        ..saying(4, &written[0].1)
    };
    hear(&mut desk, ended, at(3000));
    assert_eq!(conditions_sent(&mut desk, at(3000)), [], "not settled");
    assert_eq!(conditions_sent(&mut desk, at(5000)), [("4".to_owned(), Value::Null)]);
}

#[test]
fn conditions_that_were_not_written_are_tried_again_as_they_are_then() {
    let mut desk = served_desk(&[("n1", Entry::Heard)]);
    assert_eq!(conditions_sent(&mut desk, at(2010)).len(), 1);
    node_is(&mut desk, "n1", Some(Entry::NoSession), at(2011));
    assert_eq!(conditions_sent(&mut desk, at(2012)), [], "one write of an object at a time");
    desk.answered(Answered::Conditions(key(), Err(WriteError::TimedOut)), at(2013));
    assert!(desk.deadline().is_some_and(|deadline| deadline <= at(2033).moment));
    assert_eq!(conditions_sent(&mut desk, at(2033)), [], "what it says has to settle");
    let again = conditions_sent(&mut desk, at(4033));
    assert_eq!(
        again.iter().map(|(_, list)| reasons(list)).collect::<Vec<_>>(),
        [[("True", "Assigned"), ("False", "NoSession")]]
    );
}

#[test]
fn a_service_that_loses_the_node_of_its_only_pod_hears_of_it_within_a_second() {
    let mut desk = served_desk(&[("n1", Entry::Heard), ("n2", Entry::Heard)]);
    let local = ServiceView { external_traffic_policy: TrafficPolicy::Local, ..view(3, Some("10.60.0.10")) };
    hear(&mut desk, local.clone(), at(20));
    let written = conditions_sent(&mut desk, at(2020));
    let conditions = saying(4, &written[0].1).conditions;
    let local = ServiceView { conditions, resource_version: "4".to_owned(), ..local };
    desk.answered(Answered::Conditions(key(), Ok(Box::new(local))), at(2030));
    node_is(&mut desk, "n3", Some(Entry::Silent), at(2500));
    node_is(&mut desk, "n1", Some(Entry::NoSession), at(2600));
    assert_eq!(conditions_sent(&mut desk, at(2600)), []);
    assert_eq!(desk.deadline(), Some(at(3500).moment), "nodes are looked at once a second");
    desk.hear_entrances(|_, _| {}, at(3500));
    let lost = conditions_sent(&mut desk, at(5500));
    assert_eq!(
        lost.iter().map(|(_, list)| reasons(list)).collect::<Vec<_>>(),
        [[("True", "Assigned"), ("False", "NoSession")]]
    );
}
