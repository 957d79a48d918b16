//! What to do for each Service: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use super::allocator::{Answer, Ledger, News, NodeFacts, Now, Standing};
use super::pool_status::ObservedPool;
use super::request::Request;
use crate::config::selector::Labels;
use crate::model::claim::ALLOCATION;
use crate::model::views::{ForeignCondition, IpMode, NodeView, ServiceView};
use crate::model::{NodeName, Note, PoolName, Prefix, Scope, ServiceKey, Term};

/// Upstream's finalizer, for Services without a class.
pub const CLEANUP_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Our own, for Services of our class: a stock cloud-controller-manager would act on upstream's.
pub const CLASS_CLEANUP_FINALIZER: &str = "cairn.dev/load-balancer-cleanup";

/// Everything that plans depend on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// Every Service, or at least every one of type LoadBalancer and every one with a finalizer of ours.
    pub services: BTreeMap<ServiceKey, Arc<ServiceView>>,
    /// Every pool.
    pub pools: BTreeMap<PoolName, Arc<ObservedPool>>,
    /// Every Node.
    pub nodes: BTreeMap<NodeName, Arc<NodeView>>,
    /// The labels of every namespace.
    pub namespaces: BTreeMap<String, Labels>,
    /// The ranges of pods and Services of the cluster as a whole, and what each is.
    pub cidrs: BTreeMap<Prefix, String>,
    /// Which Services are ours.
    #[serde(default)]
    pub scope: Scope,
}

/// What to do for all Services, and what to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// At most one action a Service.
    pub actions: BTreeMap<ServiceKey, Action>,
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
    /// The addresses that its status shows now and will not show any more.
    pub frees: BTreeSet<IpAddr>,
    /// All of `status.conditions`, when ours go: those of others.
    pub conditions: Option<Vec<ForeignCondition>>,
    /// The term of what is given; the one that is there stays when there is none.
    pub term: Option<Term>,
    /// What to say when it is done.
    pub note: Option<Note>,
}

impl Observed {
    /// All of it as news, for a ledger that knows nothing yet.
    pub fn news(&self) -> News {
        News {
            services: self.services.iter().map(|(key, view)| (key.clone(), standing(view, self.scope))).collect(),
            pools: Some(self.pools.clone()),
            nodes: self.nodes.iter().map(|(name, node)| (name.clone(), Some(facts(node)))).collect(),
            namespaces: self.namespaces.iter().map(|(name, labels)| (name.clone(), Some(labels.clone()))).collect(),
            cidrs: Some(self.cidrs.clone()),
        }
    }
}

/// Decides for every Service at once, as a leader does that has just begun.
pub fn plan(observed: &Observed, now: Now) -> (Plan, Ledger) {
    let mut ledger = Ledger::default();
    // Everything is looked at below.
    drop(ledger.apply(observed.news(), now));
    let mut plan = Plan::default();
    for (key, service) in &observed.services {
        let answer = ledger.answer(key);
        plan.actions
            .extend(service_action(service, answer.as_ref(), observed.scope).map(|action| (key.clone(), action)));
        plan.notes.extend(answer.and_then(|answer| answer.note).map(|note| (key.clone(), note)));
    }
    (plan, ledger)
}

/// What a Service is to the ledger; nothing, when it neither has nor wants an address.
pub fn standing(service: &ServiceView, scope: Scope) -> Option<Standing> {
    if is_ours(service, scope) {
        return Some(Standing::Asks(Box::new(Request::of(service))));
    }
    let ips: Vec<_> = ips(service).collect();
    (!ips.is_empty()).then_some(Standing::Holds(ips))
}

/// What a Node is to the ledger.
pub fn facts(node: &NodeView) -> NodeFacts {
    NodeFacts { addresses: node.ips().collect(), pod_cidrs: node.pod_cidrs.iter().copied().collect() }
}

/// What to write to a Service that is to have this; `None` of one that asks for nothing.
pub fn service_action(service: &ServiceView, answer: Option<&Answer>, scope: Scope) -> Option<Action> {
    match answer {
        Some(answer) if is_ours(service, scope) => ensure(service, answer),
        _ if is_ours(service, scope) => None,
        _ => release(service, scope),
    }
}

fn ips(service: &ServiceView) -> impl Iterator<Item = IpAddr> + '_ {
    service.ingress.iter().filter_map(|entry| entry.ip)
}

/// Whether a Service is to have addresses of us.
///
/// One that is being deleted is not: finalizers cannot be added to it any more.
pub fn is_ours(service: &ServiceView, scope: Scope) -> bool {
    scope.includes(service) && !service.is_deleting
}

fn finalizer(service: &ServiceView) -> &'static str {
    if service.class.is_some() { CLASS_CLEANUP_FINALIZER } else { CLEANUP_FINALIZER }
}

fn ensure(service: &ServiceView, answer: &Answer) -> Option<Action> {
    let is_right = service.ingress.len() == answer.addresses.len()
        && !service.ingress_says_more
        // An API server that does not know ipMode drops it.
        && service.ingress.iter().zip(&answer.addresses).all(|(entry, ip)| entry.ip == Some(*ip) && entry.ip_mode != IpMode::Proxy);
    let has_nothing = answer.addresses.is_empty() && service.ingress.is_empty();
    let finalizer = finalizer(service).to_owned();
    let is_held = service.finalizers.contains(&finalizer);
    if has_nothing || is_right && is_held {
        return None;
    }
    let finalizers = (!is_held).then(|| service.finalizers.iter().cloned().chain([finalizer]).collect());
    let note = (!answer.addresses.is_empty()).then_some(Note::LoadBalancerEnsured);
    let resource_version = service.resource_version.clone();
    let frees = ips(service).filter(|ip| !answer.addresses.contains(ip)).collect();
    let ingress = answer.addresses.clone();
    Some(Action { resource_version, finalizers, ingress, frees, conditions: None, term: None, note })
}

/// Gives back what a Service has of us that is being deleted or no longer a load balancer.
fn release(service: &ServiceView, scope: Scope) -> Option<Action> {
    // Whoever took over what we gave may not know of our finalizer.
    let is_given_by_us = service.is_deleting && service.class.is_none() && service.annotations.contains_key(ALLOCATION);
    // A load balancer of a foreign class is another's, whatever finalizer it carries.
    if service.is_load_balancer && !scope.has_class(service.class.as_deref()) && !is_given_by_us {
        return None;
    }
    // Left alone while it lives.
    if service.is_load_balancer && service.is_ignored() && !service.is_deleting {
        return None;
    }
    let is_ours = |finalizer: &String| [CLEANUP_FINALIZER, CLASS_CLEANUP_FINALIZER].contains(&finalizer.as_str());
    if !service.finalizers.iter().any(is_ours) {
        return None;
    }
    let others = service.finalizers.iter().filter(|finalizer| !is_ours(finalizer)).cloned().collect();
    Some(Action {
        resource_version: service.resource_version.clone(),
        finalizers: Some(others),
        ingress: Vec::new(),
        frees: ips(service).collect(),
        conditions: service.conditions.has_ours().then(|| service.conditions.others.clone()),
        term: None,
        note: Some(Note::LoadBalancerDeleted),
    })
}

#[cfg(test)]
mod contract;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::AddressPoolSpec;
    use crate::api::LOAD_BALANCER_CLASS;
    use crate::model::Few;
    use crate::model::views::{Condition, Ingress, ServiceCondition, ServiceConditions, Truth};
    use crate::service::cases;

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("default", name)
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    fn service(name: &str) -> ServiceView {
        ServiceView { ports: BTreeSet::new(), ..cases::service(name) }
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
        cases::observed_pool(name, &spec)
    }

    fn observed(services: Vec<ServiceView>, pools: Vec<(&str, ObservedPool)>) -> Observed {
        Observed {
            services: services.into_iter().map(|view| (view.key.clone(), Arc::new(view))).collect(),
            pools: pools.into_iter().map(|(name, pool)| (name.parse().expect("a name"), Arc::new(pool))).collect(),
            ..Observed::default()
        }
    }

    fn action(finalizers: Option<&[&str]>, ips: &[&str]) -> Action {
        let ingress: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
        let note = if ingress.is_empty() { None } else { Some(Note::LoadBalancerEnsured) };
        let frees = BTreeSet::new();
        Action {
            resource_version: "7".to_owned(),
            finalizers: finalizers.map(strings),
            ingress,
            frees,
            conditions: None,
            term: None,
            note,
        }
    }

    fn released(finalizers: &[&str]) -> Action {
        Action { note: Some(Note::LoadBalancerDeleted), ..action(Some(finalizers), &[]) }
    }

    fn said() -> Option<ServiceCondition> {
        let says = Condition { status: Truth::True, reason: "BGP".to_owned(), message: String::new() };
        Some(ServiceCondition { says, since_seconds: 7 })
    }

    fn foreign() -> ForeignCondition {
        ForeignCondition {
            kind: "example.net/Ready".to_owned(),
            status: "True".to_owned(),
            reason: "Fine".to_owned(),
            message: String::new(),
            last_transition_time: "2026-01-01T00:00:00Z".to_owned(),
            observed_generation: None,
        }
    }

    /// What the cluster is once the plan was carried out.
    fn applied(observed: &Observed, plan: &Plan) -> Observed {
        let mut after = observed.clone();
        for (key, action) in &plan.actions {
            let mut view = ServiceView::clone(&after.services[key]);
            view.finalizers = action.finalizers.clone().unwrap_or(view.finalizers);
            view.ingress = action.ingress.iter().map(|ip| Ingress { ip: Some(*ip), ip_mode: IpMode::Vip }).collect();
            view.ingress_says_more = false;
            if let Some(others) = action.conditions.clone() {
                view.conditions = ServiceConditions { others, ..ServiceConditions::default() };
            }
            after.services.insert(key.clone(), Arc::new(view));
        }
        after
    }

    fn plan(observed: &Observed) -> Plan {
        super::plan(observed, Now::default()).0
    }

    fn freeing(ips: &[&str], action: Action) -> Action {
        Action { frees: ips.iter().map(|ip| ip.parse().expect("an address")).collect(), ..action }
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
                name: "errors of ports or a host name, left by another provider",
                service: ServiceView { ingress_says_more: true, ..ready() },
                want: Some(action(None, &["10.60.0.1"])),
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
                want: Some(freeing(&["10.60.0.1"], released(&["a"]))),
            },
            Case {
                name: "being deleted before it had anything",
                service: ServiceView { is_deleting: true, finalizers: strings(&["a"]), ..new() },
                want: None,
            },
            Case {
                name: "no longer a load balancer",
                service: ServiceView { is_load_balancer: false, ..ready() },
                want: Some(freeing(&["10.60.0.1"], released(&[]))),
            },
            Case {
                name: "no longer a load balancer, with conditions",
                service: ServiceView {
                    is_load_balancer: false,
                    conditions: ServiceConditions { announced: said(), others: vec![foreign()], ..Default::default() },
                    ..ready()
                },
                want: Some(Action { conditions: Some(vec![foreign()]), ..freeing(&["10.60.0.1"], released(&[])) }),
            },
            Case {
                name: "no longer a load balancer of our class",
                service: ServiceView {
                    is_load_balancer: false,
                    finalizers: strings(&[CLASS_CLEANUP_FINALIZER]),
                    ..ready()
                },
                want: Some(freeing(&["10.60.0.1"], released(&[]))),
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
    fn services_that_others_serve_are_left_alone_and_what_we_gave_can_be_deleted() {
        use Scope::{Default, OwnClassOnly};
        let said = |name: &str| Few::from([(name.to_owned(), "true".to_owned())]);
        let ignored = || said("cairn.dev/ignore");
        let given = || Few::from([(ALLOCATION.to_owned(), "4.1".to_owned())]);
        let has = || served("web", "10.60.0.1");
        let release = Some(freeing(&["10.60.0.1"], released(&[])));
        for (name, scope, service, want) in [
            ("left alone, new", Default, ServiceView { annotations: ignored(), ..service("web") }, None),
            ("left alone, with an address", Default, ServiceView { annotations: ignored(), ..has() }, None),
            (
                "left alone, whose status somebody wrote by hand",
                Default,
                ServiceView { annotations: ignored(), ingress: ingress(&["192.0.2.1"]), ..service("web") },
                None,
            ),
            (
                "left alone, being deleted",
                Default,
                ServiceView { annotations: ignored(), is_deleting: true, ..has() },
                release.clone(),
            ),
            (
                "left alone, no longer a load balancer",
                Default,
                ServiceView { annotations: ignored(), is_load_balancer: false, ..has() },
                release.clone(),
            ),
            ("another controller's class, new", OwnClassOnly, service("web"), None),
            ("another controller's class, with an address", OwnClassOnly, has(), None),
            (
                "another controller's class, being deleted",
                OwnClassOnly,
                ServiceView { is_deleting: true, ..has() },
                None,
            ),
            (
                "another controller's class, with an address that we gave, being deleted",
                OwnClassOnly,
                ServiceView { is_deleting: true, annotations: given(), ..has() },
                release,
            ),
        ] {
            let pools = vec![("a", pool("a", &["10.60.0.1-10.60.0.9"]))];
            let before = Observed { scope, ..observed(vec![service], pools) };
            assert_eq!(plan(&before).actions.get(&key("web")), want.as_ref(), "{name}");
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
    fn a_service_that_lost_its_address_to_another_one_and_finds_none_says_so_in_its_status() {
        let with = |name: &str, term: &str| ServiceView {
            annotations: [("cairn.dev/allocation".to_owned(), term.to_owned())].into(),
            ..served(name, "10.60.0.1")
        };
        let pools = vec![("a", pool("a", &["10.60.0.1/32"]))];
        let plan = plan(&observed(vec![with("a", "4.9"), with("b", "5.1")], pools));
        assert_eq!(plan.actions, BTreeMap::from([(key("a"), freeing(&["10.60.0.1"], action(None, &[])))]));
        assert_eq!(plan.notes[&key("a")].reason(), "AddressLost");
    }

    #[test]
    fn a_host_name_of_another_provider_is_replaced() {
        let entry = Ingress { ip: None, ip_mode: IpMode::Unset };
        let foreign = ServiceView { ingress: vec![entry], ..service("web") };
        let plan = plan(&observed(vec![foreign], vec![("a", pool("a", &["10.60.0.1/32"]))]));
        assert_eq!(plan.actions[&key("web")], action(Some(&[CLEANUP_FINALIZER]), &["10.60.0.1"]));
    }

    #[test]
    fn an_address_of_another_class_is_not_given_out() {
        let foreign = ServiceView { class: Some("metallb".to_owned()), ..served("m", "10.60.0.1") };
        let plan = plan(&observed(vec![foreign, service("web")], vec![("a", pool("a", &["10.60.0.1-10.60.0.2"]))]));
        assert_eq!(plan.actions[&key("web")].ingress, ["10.60.0.2".parse::<IpAddr>().expect("an address")]);
    }
}
