//! What to do for each Service and each pool: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::allocator::{self, Answer, Pools};
use super::request::Request;
use crate::api::{Condition, ConditionReason, ConditionStatus, ConditionType, LOAD_BALANCER_CLASS};
use crate::config::{AddressBlock, Faults, Pool};
use crate::model::views::{IpMode, ServiceView};
use crate::model::{Family, NodeName, Note, PoolName, ServiceKey};

/// Upstream's finalizer, for Services without a class.
pub const CLEANUP_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Our own, for Services of our class: a stock cloud-controller-manager would act on upstream's.
pub const CLASS_CLEANUP_FINALIZER: &str = "cairn.dev/load-balancer-cleanup";

/// Everything the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// Every Service, or at least every one of type LoadBalancer and every one with a finalizer of ours.
    pub services: BTreeMap<ServiceKey, Arc<ServiceView>>,
    /// Every pool.
    pub pools: BTreeMap<PoolName, Arc<ObservedPool>>,
    /// Every address of a Node, and whose it is.
    pub of_nodes: BTreeMap<IpAddr, NodeName>,
}

/// An `AddressPool` as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedPool {
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.creationTimestamp` in seconds since 1970: of two that overlap, the older is valid.
    pub created_seconds: i64,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// What it says, or everything that is wrong with it.
    pub check: Result<Pool, Faults>,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
}

/// What to do, and what to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// At most one action a Service.
    pub actions: BTreeMap<ServiceKey, Action>,
    /// The pools whose condition has to change.
    pub pools: BTreeMap<PoolName, PoolCondition>,
    /// What stands in the way, by Service.
    pub notes: BTreeMap<ServiceKey, Note>,
}

/// What to write to one Service, in one write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Action {
    /// `metadata.resourceVersion` that was decided on: a Service that changed since is decided anew.
    pub resource_version: String,
    /// All of `metadata.finalizers`, when they change.
    pub finalizers: Option<Vec<String>>,
    /// All of `status.loadBalancer.ingress`, each with `ipMode: VIP`.
    pub ingress: Vec<IpAddr>,
    /// What to say when it is done.
    pub note: Option<Note>,
}

/// The condition `Ready` of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolCondition {
    /// Whether it is ready.
    pub status: ConditionStatus,
    /// Why, in one word.
    pub reason: ConditionReason,
    /// Why, for people.
    pub message: String,
    /// The generation this speaks of.
    pub observed_generation: Option<i64>,
    /// When the status became what it is, if it was so before.
    pub since: Option<String>,
}

/// Decides for every Service and every pool.
///
/// The caller asks only once it knows every Service, every pool and every Node: what it has not heard of yet is
/// no absence.
pub fn plan(observed: &Observed) -> Plan {
    let (mut pools, conditions) = check_pools(&observed.pools);
    pools.of_nodes.clone_from(&observed.of_nodes);
    let (ours, others): (Vec<_>, Vec<_>) = observed.services.values().partition(|service| is_ours(service));
    let requests: Vec<_> = ours.iter().map(|service| Request::of(service)).collect();
    let blocked = others.iter().flat_map(|service| ips(service).map(|ip| (ip, service.key.clone()))).collect();
    let answers = allocator::allocate(&pools, &requests, &blocked);
    let mut plan = Plan { pools: conditions, ..Plan::default() };
    for service in ours {
        let answer = answers.get(&service.key).cloned().unwrap_or_default();
        plan.actions.extend(ensure(service, &answer).map(|action| (service.key.clone(), action)));
        plan.notes.extend(answer.note.map(|note| (service.key.clone(), note)));
    }
    for service in others {
        plan.actions.extend(release(service).map(|action| (service.key.clone(), action)));
    }
    plan
}

fn ips(service: &ServiceView) -> impl Iterator<Item = IpAddr> + '_ {
    service.ingress.iter().filter_map(|entry| entry.ip)
}

/// Whether a Service is to have addresses of us.
///
/// One that is being deleted is not: finalizers cannot be added to it any more.
fn is_ours(service: &ServiceView) -> bool {
    service.is_load_balancer && !service.is_deleting && has_our_class(service)
}

fn has_our_class(service: &ServiceView) -> bool {
    service.class.as_deref().is_none_or(|class| class == LOAD_BALANCER_CLASS)
}

fn finalizer(service: &ServiceView) -> &'static str {
    if service.class.is_some() { CLASS_CLEANUP_FINALIZER } else { CLEANUP_FINALIZER }
}

fn ensure(service: &ServiceView, answer: &Answer) -> Option<Action> {
    let is_right = service.ingress.len() == answer.addresses.len()
        // An API server that does not know ipMode drops it.
        && service.ingress.iter().zip(&answer.addresses).all(|(entry, ip)| entry.ip == Some(*ip) && entry.ip_mode != IpMode::Proxy);
    let has_nothing = answer.addresses.is_empty() && ips(service).next().is_none();
    let finalizer = finalizer(service).to_owned();
    let is_held = service.finalizers.contains(&finalizer);
    if has_nothing || is_right && is_held {
        return None;
    }
    let finalizers = (!is_held).then(|| service.finalizers.iter().cloned().chain([finalizer]).collect());
    let note = (!answer.addresses.is_empty()).then_some(Note::LoadBalancerEnsured);
    let resource_version = service.resource_version.clone();
    Some(Action { resource_version, finalizers, ingress: answer.addresses.clone(), note })
}

/// Gives back what a Service has of us that is being deleted or no longer a load balancer.
fn release(service: &ServiceView) -> Option<Action> {
    // A load balancer of a foreign class is another's, whatever finalizer it carries.
    if service.is_load_balancer && !has_our_class(service) {
        return None;
    }
    let is_ours = |finalizer: &String| [CLEANUP_FINALIZER, CLASS_CLEANUP_FINALIZER].contains(&finalizer.as_str());
    if !service.finalizers.iter().any(is_ours) {
        return None;
    }
    let others = service.finalizers.iter().filter(|finalizer| !is_ours(finalizer)).cloned().collect();
    let resource_version = service.resource_version.clone();
    Some(Action {
        resource_version,
        finalizers: Some(others),
        ingress: Vec::new(),
        note: Some(Note::LoadBalancerDeleted),
    })
}

/// Which pools can be used, and the conditions that have to change.
fn check_pools(observed: &BTreeMap<PoolName, Arc<ObservedPool>>) -> (Pools, BTreeMap<PoolName, PoolCondition>) {
    let mut by_age: Vec<_> = observed.iter().collect();
    by_age.sort_by_key(|(name, pool)| (pool.created_seconds, *name));
    let (mut pools, mut conditions, mut blocks) = (Pools::default(), BTreeMap::new(), BlocksInUse::default());
    for (name, pool) in by_age {
        let usable = match &pool.check {
            Ok(valid) => blocks.add(valid).map(|()| valid.clone()),
            Err(faults) => Err(faults.in_one_line()),
        };
        conditions.extend(condition(pool, usable.as_ref().err()).map(|condition| (name.clone(), condition)));
        match usable {
            Ok(valid) => drop(pools.valid.insert(name.clone(), valid)),
            Err(_) => drop(pools.invalid.insert(name.clone())),
        }
    }
    (pools, conditions)
}

/// The blocks of the pools so far, none of which overlap.
#[derive(Default)]
struct BlocksInUse<'a>(BTreeMap<(Family, u128), (AddressBlock, &'a PoolName)>);

impl<'a> BlocksInUse<'a> {
    fn add(&mut self, pool: &'a Pool) -> Result<(), String> {
        let shared: BTreeSet<_> = pool.blocks.iter().filter_map(|block| self.sharing(block)).collect();
        if shared.is_empty() {
            let entry = |block: &AddressBlock| ((block.family(), block.first_number()), (*block, &pool.name));
            self.0.extend(pool.blocks.iter().map(entry));
            return Ok(());
        }
        Err(shared.into_iter().collect::<Vec<_>>().join("; "))
    }

    fn sharing(&self, block: &AddressBlock) -> Option<String> {
        let up_to_its_last = (block.family(), block.last_number());
        let (_, (other, pool)) =
            self.0.range(..=up_to_its_last).next_back().filter(|(_, (other, _))| other.overlaps(block))?;
        Some(format!(
            "{block} shares addresses with {other} of AddressPool {pool}, which is older: each address takes one pool"
        ))
    }
}

/// The condition to write, when it is not there already.
fn condition(pool: &ObservedPool, fault: Option<&String>) -> Option<PoolCondition> {
    let (status, reason) = match fault {
        None => (ConditionStatus::True, ConditionReason::Valid),
        Some(_) => (ConditionStatus::False, ConditionReason::Invalid),
    };
    let message = fault.cloned().unwrap_or_else(|| "the pool is valid and in use".to_owned());
    let observed_generation = pool.generation;
    let known = pool.conditions.iter().find(|condition| condition.kind == ConditionType::Ready);
    let is_right = known.is_some_and(|known| {
        (known.status, known.reason, &known.message, known.observed_generation)
            == (status, reason, &message, observed_generation)
    });
    let since = known.filter(|known| known.status == status).map(|known| known.last_transition_time.clone());
    (!is_right).then_some(PoolCondition { status, reason, message, observed_generation, since })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::AddressPoolSpec;
    use crate::model::views::{Ingress, IpFamilyPolicy, TrafficPolicy};

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("default", name)
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    fn service(name: &str) -> ServiceView {
        ServiceView {
            key: key(name),
            uid: format!("uid-{name}"),
            resource_version: "7".to_owned(),
            created_seconds: 0,
            is_deleting: false,
            is_load_balancer: true,
            class: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            load_balancer_ip: None,
            ip_families: vec![Family::V4],
            ip_family_policy: IpFamilyPolicy::SingleStack,
            external_traffic_policy: TrafficPolicy::Cluster,
            local_selector: BTreeMap::new(),
            ports: BTreeSet::new(),
            finalizers: Vec::new(),
            ingress: Vec::new(),
            assigned_seconds: None,
            has_foreign_proxy: false,
        }
    }

    fn ingress(ips: &[&str]) -> Vec<Ingress> {
        ips.iter().map(|ip| Ingress { ip: Some(ip.parse().expect("an address")), ip_mode: IpMode::Vip }).collect()
    }

    /// A Service that has what it asked for.
    fn served(name: &str, ip: &str) -> ServiceView {
        ServiceView { finalizers: strings(&[CLEANUP_FINALIZER]), ingress: ingress(&[ip]), ..service(name) }
    }

    fn pool(name: &str, addresses: &[&str]) -> ObservedPool {
        let spec = AddressPoolSpec { addresses: strings(addresses), auto_assign: true, ..AddressPoolSpec::default() };
        ObservedPool {
            resource_version: "3".to_owned(),
            created_seconds: 0,
            generation: Some(1),
            check: Pool::check(name, &spec),
            conditions: Vec::new(),
        }
    }

    fn observed(services: Vec<ServiceView>, pools: Vec<(&str, ObservedPool)>) -> Observed {
        Observed {
            services: services.into_iter().map(|view| (view.key.clone(), Arc::new(view))).collect(),
            pools: pools.into_iter().map(|(name, pool)| (name.parse().expect("a name"), Arc::new(pool))).collect(),
            of_nodes: BTreeMap::new(),
        }
    }

    fn action(finalizers: Option<&[&str]>, ips: &[&str]) -> Action {
        let ingress: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
        let note = if ingress.is_empty() { None } else { Some(Note::LoadBalancerEnsured) };
        Action { resource_version: "7".to_owned(), finalizers: finalizers.map(strings), ingress, note }
    }

    fn released(finalizers: &[&str]) -> Action {
        Action { note: Some(Note::LoadBalancerDeleted), ..action(Some(finalizers), &[]) }
    }

    /// What the cluster is once the plan was carried out.
    fn applied(observed: &Observed, plan: &Plan) -> Observed {
        let mut after = observed.clone();
        for (key, action) in &plan.actions {
            let mut view = ServiceView::clone(&after.services[key]);
            view.finalizers = action.finalizers.clone().unwrap_or(view.finalizers);
            view.ingress = action.ingress.iter().map(|ip| Ingress { ip: Some(*ip), ip_mode: IpMode::Vip }).collect();
            after.services.insert(key.clone(), Arc::new(view));
        }
        for (name, condition) in &plan.pools {
            let mut pool = ObservedPool::clone(&after.pools[name]);
            pool.conditions = vec![Condition {
                kind: ConditionType::Ready,
                status: condition.status,
                reason: condition.reason,
                message: condition.message.clone(),
                last_transition_time: condition.since.clone().unwrap_or_else(|| "2027-01-01T00:00:00Z".to_owned()),
                observed_generation: condition.observed_generation,
            }];
            after.pools.insert(name.clone(), Arc::new(pool));
        }
        after
    }

    #[test]
    fn every_service_gets_one_write_or_none() {
        struct Case {
            name: &'static str,
            service: ServiceView,
            want: Option<Action>,
        }
        let ours = || Some(LOAD_BALANCER_CLASS.to_owned());
        let new = || service("web");
        let ready = || served("web", "10.60.0.1");
        for case in [
            Case { name: "new", service: new(), want: Some(action(Some(&[CLEANUP_FINALIZER]), &["10.60.0.1"])) },
            Case {
                name: "new, of our class",
                service: ServiceView { class: ours(), ..new() },
                want: Some(action(Some(&[CLASS_CLEANUP_FINALIZER]), &["10.60.0.1"])),
            },
            Case {
                name: "new, of another's class",
                service: ServiceView { class: Some("example.net/lb".to_owned()), ..new() },
                want: None,
            },
            Case { name: "no load balancer", service: ServiceView { is_load_balancer: false, ..new() }, want: None },
            Case {
                name: "other finalizers stay",
                service: ServiceView { finalizers: strings(&["a"]), ..new() },
                want: Some(action(Some(&["a", CLEANUP_FINALIZER]), &["10.60.0.1"])),
            },
            Case { name: "ready", service: ready(), want: None },
            Case {
                name: "ready, on a server that does not know ipMode",
                service: ServiceView {
                    ingress: vec![Ingress { ip_mode: IpMode::Unset, ..ingress(&["10.60.0.1"])[0].clone() }],
                    ..ready()
                },
                want: None,
            },
            Case {
                name: "someone took its status away",
                service: ServiceView { ingress: Vec::new(), ..ready() },
                want: Some(action(None, &["10.60.0.1"])),
            },
            Case {
                name: "someone took its finalizer away",
                service: ServiceView { finalizers: Vec::new(), ..ready() },
                want: Some(action(Some(&[CLEANUP_FINALIZER]), &["10.60.0.1"])),
            },
            Case {
                name: "an address from elsewhere is kept",
                service: ServiceView { ingress: ingress(&["10.99.0.1"]), ..new() },
                want: Some(action(Some(&[CLEANUP_FINALIZER]), &["10.99.0.1"])),
            },
            Case {
                name: "being deleted",
                service: ServiceView { is_deleting: true, finalizers: strings(&["a", CLEANUP_FINALIZER]), ..ready() },
                want: Some(released(&["a"])),
            },
            Case {
                name: "being deleted before it had anything",
                service: ServiceView { is_deleting: true, finalizers: strings(&["a"]), ..new() },
                want: None,
            },
            Case {
                name: "no longer a load balancer",
                service: ServiceView { is_load_balancer: false, ..ready() },
                want: Some(released(&[])),
            },
            Case {
                name: "no longer a load balancer of our class",
                service: ServiceView {
                    is_load_balancer: false,
                    finalizers: strings(&[CLASS_CLEANUP_FINALIZER]),
                    ..ready()
                },
                want: Some(released(&[])),
            },
            Case {
                name: "another's class with upstream's finalizer, being deleted",
                service: ServiceView { is_deleting: true, class: Some("example.net/lb".to_owned()), ..ready() },
                want: None,
            },
        ] {
            let before = observed(vec![case.service], vec![("a", pool("a", &["10.60.0.1-10.60.0.9"]))]);
            let plan_now = plan(&before);
            assert_eq!(plan_now.actions.get(&key("web")), case.want.as_ref(), "{}", case.name);
            let again = plan(&applied(&before, &plan_now));
            assert_eq!(again, Plan { notes: again.notes.clone(), ..Plan::default() }, "{}: once more", case.name);
        }
    }

    #[test]
    fn what_a_deleted_service_has_is_free_only_after_the_write() {
        let leaving = ServiceView { is_deleting: true, ..served("leaving", "10.60.0.1") };
        let before = observed(vec![leaving, service("web")], vec![("a", pool("a", &["10.60.0.1/32"]))]);
        let first = plan(&before);
        assert_eq!(first.actions.keys().collect::<Vec<_>>(), [&key("leaving")]);
        assert_eq!(first.notes[&key("web")].reason(), "PoolExhausted");
        let second = plan(&applied(&before, &first));
        assert_eq!(second.actions[&key("web")], action(Some(&[CLEANUP_FINALIZER]), &["10.60.0.1"]));
    }

    #[test]
    fn a_service_that_lost_its_address_to_an_older_one_and_finds_none_says_so_in_its_status() {
        let younger = ServiceView { created_seconds: 5, ..served("a", "10.60.0.1") };
        let plan = plan(&observed(vec![younger, served("b", "10.60.0.1")], vec![("a", pool("a", &["10.60.0.1/32"]))]));
        assert_eq!(plan.actions, BTreeMap::from([(key("a"), action(None, &[]))]));
    }

    #[test]
    fn an_address_of_another_class_is_not_given_out() {
        let foreign = ServiceView { class: Some("metallb".to_owned()), ..served("m", "10.60.0.1") };
        let plan = plan(&observed(vec![foreign, service("web")], vec![("a", pool("a", &["10.60.0.1-10.60.0.2"]))]));
        assert_eq!(plan.actions[&key("web")].ingress, ["10.60.0.2".parse::<IpAddr>().expect("an address")]);
    }

    #[test]
    fn a_pool_says_whether_it_can_be_used() {
        let wrong = pool("wrong", &["10.60.0.0/24", "nonsense", "10.60.0.7/24"]);
        let younger = ObservedPool { created_seconds: 9, ..pool("a", &["10.70.0.0/24", "10.60.1.128-10.60.2.5"]) };
        let before = observed(Vec::new(), vec![("wrong", wrong), ("a", younger), ("b", pool("b", &["10.60.1.0/24"]))]);
        let first = plan(&before);
        let told = |name: &str| {
            let condition = &first.pools[&name.parse().expect("a name")];
            (condition.status, condition.message.as_str())
        };
        assert_eq!(told("b"), (ConditionStatus::True, "the pool is valid and in use"));
        assert_eq!(
            told("a"),
            (
                ConditionStatus::False,
                "10.60.1.128-10.60.2.5 shares addresses with 10.60.1.0/24 of AddressPool b, which is older: each address takes one pool"
            )
        );
        let (status, message) = told("wrong");
        assert_eq!(status, ConditionStatus::False);
        assert!(message.contains("spec.addresses[1]") && message.contains("spec.addresses[2]"), "{message}");

        let after = applied(&before, &first);
        assert_eq!(plan(&after).pools, BTreeMap::new(), "written on change only");
        let mut newer = after;
        let name: PoolName = "b".parse().expect("a name");
        let changed = ObservedPool { generation: Some(2), ..ObservedPool::clone(&newer.pools[&name]) };
        newer.pools.insert(name.clone(), Arc::new(changed));
        let since = plan(&newer).pools[&name].since.clone();
        assert_eq!(since.as_deref(), Some("2027-01-01T00:00:00Z"), "the status did not change, only the generation");
    }
}
