//! Why a Service has what it has, and who has what of a pool: pure, for people to read.
//!
//! The same planner as the leader's looks at the same objects, so it says the same; only what the leader
//! knows by having been there (who asked first, what it gave and has not written yet) is missing.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::allocator::{Answer, Counts, Ledger, Now, PoolReport, Verdict};
use super::announced::{Entrances, Entry};
use super::conditions::{self, Wanted};
use super::plan::{self, Observed};
use super::request::Request;
use crate::api::{ConditionStatus, ConditionType};
use crate::model::claim::ALLOCATION;
use crate::model::scope::IGNORE;
use crate::model::views::ServiceView;
use crate::model::{Family, LOAD_BALANCER_CLASS, NodeName, PoolName, Scope, ServiceKey};

/// What there is to say about one Service.
#[derive(Debug)]
pub struct ServiceExplained {
    service: Arc<ServiceView>,
    request: Request,
    answer: Option<Answer>,
    /// Why it is given nothing, if it is none to serve.
    unserved: Option<String>,
    considered: Vec<(Family, Vec<(PoolName, Verdict)>)>,
    /// What its conditions say or are to say; `None` of one that is not ours.
    conditions: Option<[String; 2]>,
    /// The nodes that may take its traffic.
    entries: BTreeMap<Entry, Vec<NodeName>>,
    time: fn(i64) -> String,
}

/// What there is to say about pools.
#[derive(Debug)]
pub struct PoolsExplained {
    pools: Vec<PoolExplained>,
    time: fn(i64) -> String,
}

#[derive(Debug)]
struct PoolExplained {
    name: PoolName,
    report: PoolReport,
    /// What is not as it should be, a sentence each.
    told: Vec<String>,
    holders: Vec<(IpAddr, Vec<ServiceKey>)>,
}

/// Explains a Service; `None` when there is no such Service. `entrances` has at least the nodes and its own
/// endpoints; `time` writes seconds since 1970.
pub fn service(
    observed: &Observed,
    entrances: &Entrances,
    key: &ServiceKey,
    now: Now,
    time: fn(i64) -> String,
) -> Option<ServiceExplained> {
    let service = Arc::clone(observed.services.get(key)?);
    let (_, mut ledger) = plan::plan(observed, now);
    let request = Request::of(&service);
    let considered = request.families.iter().map(|family| (*family, ledger.considered(key, *family))).collect();
    let answer = ledger.answer(key);
    let conditions = plan::is_ours(&service, observed.scope).then(|| {
        let note = answer.as_ref().and_then(|answer| answer.note.as_ref());
        let wanted = Wanted::of(&service, note, entrances.announcement(&service));
        conditions::told(&service.conditions, &wanted, time)
    });
    let mut entries = BTreeMap::<_, Vec<_>>::new();
    for (node, entry) in entrances.entries_of(&service) {
        entries.entry(entry).or_default().push(node.clone());
    }
    let unserved = unserved(&service, observed.scope);
    Some(ServiceExplained { answer, unserved, service, request, considered, conditions, entries, time })
}

/// Why a Service is none to serve, if it is none: the first reason that would have to go.
fn unserved(service: &ServiceView, scope: Scope) -> Option<String> {
    if !service.is_load_balancer {
        return Some("its spec.type is not LoadBalancer".to_owned());
    }
    if !scope.has_class(service.class.as_deref()) {
        return Some(match &service.class {
            Some(class) => format!("its spec.loadBalancerClass is {class}, which is not Cairn's {LOAD_BALANCER_CLASS}"),
            None => format!("it has no spec.loadBalancerClass, and only {LOAD_BALANCER_CLASS} is served"),
        });
    }
    if service.is_ignored() {
        return Some(format!("its annotation {IGNORE} is \"true\", so it is left alone"));
    }
    service.is_deleting.then(|| "it is being deleted".to_owned())
}

/// Explains pools: all of them, or the one of this name.
pub fn pools(observed: &Observed, only: Option<&PoolName>, now: Now, time: fn(i64) -> String) -> PoolsExplained {
    // What was given is in the statuses; who waits is given nothing here.
    let (_, ledger) = plan::plan(observed, now);
    let wanted = observed.pools.keys().filter(|name| only.is_none_or(|only| only == *name));
    let of = |name: &PoolName| explained(observed, &ledger, name);
    PoolsExplained { pools: wanted.filter_map(of).collect(), time }
}

fn explained(observed: &Observed, ledger: &Ledger, name: &PoolName) -> Option<PoolExplained> {
    let conditions = &observed.pools.get(name)?.status.conditions;
    let told = conditions.iter().filter(|condition| {
        let is_good =
            if condition.kind == ConditionType::Ready { ConditionStatus::True } else { ConditionStatus::False };
        condition.status != is_good
    });
    let told: Vec<_> = told.map(|condition| format!("{:?}: {}", condition.kind, condition.message)).collect();
    let held = |key: &&ServiceKey, address: &IpAddr| {
        observed.services.get(*key).is_some_and(|view| view.ingress.iter().any(|entry| entry.ip == Some(*address)))
    };
    let holders = ledger.holders(name).into_iter().filter_map(|(address, keys)| {
        let keys: Vec<_> = keys.iter().filter(|key| held(key, &address)).cloned().collect();
        (!keys.is_empty()).then_some((address, keys))
    });
    Some(PoolExplained { name: name.clone(), report: ledger.report(name)?, told, holders: holders.collect() })
}

impl ServiceExplained {
    fn asks(&self) -> String {
        let families: Vec<_> = self.request.families.iter().map(ToString::to_string).collect();
        let how = match (families.len(), self.request.needs_every_family) {
            (0 | 1, _) => "",
            (_, true) => ", both or nothing",
            (_, false) => ", or one of them",
        };
        let wish = match &self.request.wish {
            Err(note) => return note.to_string(),
            Ok(wish) => wish,
        };
        let addresses: Vec<_> = wish.addresses.iter().map(ToString::to_string).collect();
        let what = match (addresses.is_empty(), &wish.pool) {
            (true, None) => "any address".to_owned(),
            (true, Some(pool)) => format!("any address of AddressPool {pool}"),
            (false, None) => addresses.join(" and "),
            (false, Some(pool)) => format!("{} of AddressPool {pool}", addresses.join(" and ")),
        };
        let sharing =
            self.request.sharing.key.as_ref().map(|key| format!(", shared by key {key:?}")).unwrap_or_default();
        format!("{what} ({}{how}){sharing}", families.join(" and "))
    }

    fn has(&self) -> String {
        let held: Vec<_> = self.request.held.iter().map(ToString::to_string).collect();
        if held.is_empty() {
            return format!("nothing, since it was created at {}", (self.time)(self.service.created_seconds));
        }
        let since = self.request.assigned_seconds.map(|seconds| format!(", since {}", (self.time)(seconds)));
        let term = self.service.annotations.get(ALLOCATION).map(|term| format!(" (allocation {term})"));
        format!("{}{}{}", held.join(" and "), since.unwrap_or_default(), term.unwrap_or_default())
    }

    fn result(&self) -> String {
        let Some(answer) = &self.answer else {
            let why = self.unserved.as_deref().unwrap_or("its request has no answer yet");
            return format!("Cairn gives it nothing: {why}");
        };
        let note = answer.note.as_ref().map(|note| format!("{}: {note}", note.reason()));
        let addresses: Vec<_> = answer.addresses.iter().map(ToString::to_string).collect();
        let what = if answer.addresses == self.request.held {
            if addresses.is_empty() { "it waits".to_owned() } else { "it keeps what it has".to_owned() }
        } else if addresses.is_empty() {
            "it loses what it has".to_owned()
        } else {
            format!("it gets {} once the leader writes it", addresses.join(" and "))
        };
        note.map_or(what.clone(), |note| format!("{what}. {note}"))
    }
}

/// So many nodes are named.
const NAMED: usize = 5;

/// Which nodes may take the traffic, the best first, and some of their names.
fn nodes(entries: &BTreeMap<Entry, Vec<NodeName>>) -> String {
    let some = |(entry, nodes): (&Entry, &Vec<NodeName>)| {
        let names: Vec<_> = nodes.iter().take(NAMED).map(NodeName::as_str).collect();
        let rest = if nodes.len() > NAMED { ", …" } else { "" };
        let what = match entry {
            Entry::Heard => "with a session",
            Entry::Silent => "without a report of today",
            Entry::NoSession => "without a session",
        };
        format!("{} {what} ({}{rest})", nodes.len(), names.join(", "))
    };
    let all: Vec<_> = entries.iter().rev().map(some).collect();
    if all.is_empty() { "no node may take its traffic and announce it".to_owned() } else { all.join(", ") }
}

impl fmt::Display for ServiceExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Service {}", self.service.key)?;
        writeln!(f, "  asks for  {}", self.asks())?;
        writeln!(f, "  has       {}", self.has())?;
        writeln!(f, "  result    {}", self.result())?;
        if let Some([assigned, announced]) = &self.conditions {
            writeln!(f, "  assigned  {assigned}")?;
            writeln!(f, "  announced {announced}")?;
            writeln!(f, "  entries   {}", nodes(&self.entries))?;
        }
        for (family, pools) in &self.considered {
            if pools.is_empty() {
                continue;
            }
            writeln!(f, "Pools for {family}, in the order in which they are asked")?;
            let width = pools.iter().map(|(name, _)| name.as_str().len()).max().unwrap_or_default();
            for (name, verdict) in pools {
                writeln!(f, "  {:width$}  {verdict}", name.as_str())?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for PoolsExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pools.is_empty() {
            return writeln!(f, "There is no AddressPool.");
        }
        for PoolExplained { name, report, told, holders } in &self.pools {
            writeln!(f, "AddressPool {name}")?;
            for (family, counts) in [(Family::V4, report.v4), (Family::V6, report.v6)] {
                if let Some((total, used, free)) = counts as Option<Counts> {
                    writeln!(f, "  {family}  {total} in all, {used} in use, {free} free")?;
                }
            }
            for line in told {
                writeln!(f, "  {line}")?;
            }
            for (address, keys) in holders {
                let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
                writeln!(f, "  {address}  {}", keys.join(", "))?;
            }
            for (address, by, freed) in &report.cooling {
                writeln!(f, "  {address}  given back by {by} at {}", (self.time)(*freed))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::{AddressPoolSpec, AddressPoolStatus};
    use crate::config::Pool;
    use crate::model::views::{Ingress, IpFamilyPolicy, IpMode, ServiceConditions, TrafficPolicy};
    use crate::service::pool_status::ObservedPool;

    fn service_of(name: &str, ip: Option<&str>) -> ServiceView {
        let ingress = ip.map(|ip| Ingress { ip: ip.parse().ok(), ip_mode: IpMode::Vip });
        ServiceView {
            key: ServiceKey::new("default", name),
            uid: name.to_owned(),
            resource_version: "7".to_owned(),
            created_seconds: 1_800_000_000,
            is_deleting: false,
            is_load_balancer: true,
            class: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::from([(ALLOCATION.to_owned(), "4.17".to_owned())]),
            load_balancer_ip: None,
            ip_families: vec![Family::V4],
            ip_family_policy: IpFamilyPolicy::SingleStack,
            external_traffic_policy: TrafficPolicy::Cluster,
            local_selector: BTreeMap::new(),
            ports: BTreeSet::new(),
            source_ranges: None,
            health_check_node_port: None,
            ingress_says_more: false,
            finalizers: Vec::new(),
            ingress: ingress.into_iter().collect(),
            assigned_seconds: ip.map(|_| 1_800_000_001),
            conditions: ServiceConditions::default(),
            has_foreign_proxy: false,
        }
    }

    fn observed() -> Observed {
        let spec = |addresses: &str, auto_assign| AddressPoolSpec {
            addresses: vec![addresses.to_owned()],
            auto_assign,
            ..AddressPoolSpec::default()
        };
        let pool = |name: &str, addresses, auto_assign| {
            let pool = ObservedPool {
                resource_version: "3".to_owned(),
                created_seconds: 0,
                generation: Some(1),
                is_deleting: false,
                check: Pool::check(name, &spec(addresses, auto_assign)),
                blocks: Vec::new(),
                draining: Vec::new(),
                cooling: Vec::new(),
                status: AddressPoolStatus::default(),
            };
            (name.parse().expect("a name"), Arc::new(pool))
        };
        let services = [service_of("web", Some("10.60.0.10")), service_of("late", None)];
        Observed {
            services: services.into_iter().map(|view| (view.key.clone(), Arc::new(view))).collect(),
            pools: BTreeMap::from([pool("public", "10.60.0.10/32", true), pool("spare", "10.61.0.0/24", false)]),
            ..Observed::default()
        }
    }

    fn time(seconds: i64) -> String {
        format!("@{seconds}")
    }

    fn told(name: &str) -> String {
        let key = ServiceKey::new("default", name);
        service(&observed(), &Entrances::default(), &key, Now::default(), time).expect("a Service").to_string()
    }

    #[test]
    fn a_service_hears_what_it_asks_what_it_has_and_what_each_pool_says() {
        assert_eq!(
            told("late"),
            "Service default/late\n  asks for  any address (IPv4)\n  has       nothing, since it was created at @1800000000\n  \
             result    it waits. PoolExhausted: every IPv4 address of AddressPool public is in use\n  \
             assigned  False, PoolExhausted: every IPv4 address of AddressPool public is in use (it has no such condition yet)\n  \
             announced False, NoAddress: it has no address (it has no such condition yet)\n  \
             entries   no node may take its traffic and announce it\n\
             Pools for IPv4, in the order in which they are asked\n  public  has no free address\n  \
             spare   gives out addresses only when asked for (spec.autoAssign)\n"
        );
        assert!(told("web").contains(
            "  has       10.60.0.10, since @1800000001 (allocation 4.17)\n  result    it keeps what it has\n"
        ));
    }

    #[test]
    fn a_service_that_is_not_served_hears_the_one_reason() {
        let ignored = || BTreeMap::from([(IGNORE.to_owned(), "true".to_owned())]);
        let of = |class: &str| Some(class.to_owned());
        let new = || service_of("web", None);
        for (name, scope, view, want) in [
            (
                "ClusterIP",
                Scope::Default,
                ServiceView { is_load_balancer: false, ..new() },
                "its spec.type is not LoadBalancer",
            ),
            (
                "ClusterIP, left alone",
                Scope::Default,
                ServiceView { is_load_balancer: false, annotations: ignored(), ..new() },
                "its spec.type is not LoadBalancer",
            ),
            (
                "another's class",
                Scope::Default,
                ServiceView { class: of("other.io/x"), ..new() },
                "its spec.loadBalancerClass is other.io/x, which is not Cairn's cairn.dev/cairn",
            ),
            (
                "no class where one is needed",
                Scope::OwnClassOnly,
                new(),
                "it has no spec.loadBalancerClass, and only cairn.dev/cairn is served",
            ),
            (
                "left alone",
                Scope::Default,
                ServiceView { annotations: ignored(), ..new() },
                "its annotation cairn.dev/ignore is \"true\", so it is left alone",
            ),
            ("being deleted", Scope::Default, ServiceView { is_deleting: true, ..new() }, "it is being deleted"),
        ] {
            let key = view.key.clone();
            let mut observed = Observed { scope, ..observed() };
            observed.services.insert(key.clone(), Arc::new(view));
            let told = service(&observed, &Entrances::default(), &key, Now::default(), time).expect("a Service");
            let want = format!("  result    Cairn gives it nothing: {want}\n");
            assert!(told.to_string().contains(&want), "{name}: {told}");
        }
    }

    #[test]
    fn a_pool_says_who_has_what() {
        let told = pools(&observed(), "public".parse().ok().as_ref(), Now::default(), time).to_string();
        assert_eq!(told, "AddressPool public\n  IPv4  1 in all, 1 in use, 0 free\n  10.60.0.10  default/web\n");
    }
}
