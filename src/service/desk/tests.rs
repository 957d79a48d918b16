use std::time::Duration;

use super::*;
use crate::api::{AddressPoolSpec, CoolingAddress};
use crate::config::Pool;
use crate::model::views::{Ingress, IpMode};
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
    let pool = ObservedPool {
        resource_version: version.to_string(),
        created_seconds: 0,
        generation: Some(1),
        is_deleting: false,
        check: Pool::check("a", &spec),
        blocks: Vec::new(),
        draining: Vec::new(),
        cooling: Vec::new(),
        status,
    };
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
