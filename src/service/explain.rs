//! Why a Service has what it has, where it is announced, and who has what of a pool: pure, for people and scripts to read.
//!
//! The same planner as the leader's looks at the same objects, so it says the same; only what the leader
//! knows by having been there (who asked first, what it gave and has not written yet) is missing.

mod letting;
mod nodes;
mod pools;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::allocator::{Answer, Now, Verdict};
use super::announced::Entrances;
use super::conditions::{self, Told, Wanted};
use super::plan::{self, Observed};
use super::request::Request;
use crate::api::{EntryFlag, NodeReportStatus};
use crate::model::claim::ALLOCATION;
use crate::model::scope::IGNORE;
use crate::model::views::ServiceView;
use crate::model::{Family, LOAD_BALANCER_CLASS, NodeName, PoolName, Scope, ServiceKey};
use letting::LetIn;
use nodes::Group;
pub use pools::{PoolsExplained, pools};

/// What there is to say about one Service.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceExplained {
    service: ServiceKey,
    /// Why Cairn does not serve it, if it does not; then what it asks for is nobody's business here.
    not_served: Option<String>,
    has: Has,
    #[serde(flatten)]
    served: Option<Served>,
}

/// The addresses in its status.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Has {
    addresses: Vec<IpAddr>,
    since: Option<String>,
    allocation: Option<String>,
    created: String,
}

/// What there is to say about one that is served.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Served {
    asks_for: String,
    result: Outcome,
    conditions: [Told; 2],
    lets_in: LetIn,
    /// The nodes, those that announce it first; none while it has no address to announce.
    nodes: Vec<Group>,
    pools: Vec<Considered>,
}

/// What becomes of its addresses.
#[derive(Debug, Serialize)]
struct Outcome {
    addresses: Vec<IpAddr>,
    /// Why it has less than it asks for, or something else: one word of a closed set.
    reason: Option<&'static str>,
    message: String,
}

/// What a pool has for it.
#[derive(Debug, Serialize)]
struct Considered {
    family: String,
    pool: PoolName,
    #[serde(flatten)]
    verdict: Verdict,
}

/// What is known beside addresses: where traffic may enter, and what the agents say.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// At least the nodes, and the Service's own endpoints.
    pub entrances: Entrances,
    /// Of each `NodeRoute`, whether its node may be an entry.
    pub flags: BTreeMap<NodeName, EntryFlag>,
    /// The agents' reports.
    pub reports: BTreeMap<NodeName, NodeReportStatus>,
}

/// Explains a Service; `None` when there is no such Service. `time` writes seconds since 1970.
pub fn service(
    observed: &Observed,
    around: &Surroundings,
    key: &ServiceKey,
    now: Now,
    time: fn(i64) -> String,
) -> Option<ServiceExplained> {
    let service = observed.services.get(key)?;
    let request = Request::of(service);
    let has = Has {
        addresses: request.held.clone(),
        since: request.assigned_seconds.map(time),
        allocation: service.annotations.get(ALLOCATION).cloned(),
        created: time(service.created_seconds),
    };
    let not_served = not_served(service, observed.scope);
    let served = not_served.is_none().then(|| served(observed, around, service, &request, now, time));
    Some(ServiceExplained { service: key.clone(), not_served, has, served })
}

fn served(
    observed: &Observed,
    around: &Surroundings,
    service: &ServiceView,
    request: &Request,
    now: Now,
    time: fn(i64) -> String,
) -> Served {
    let key = &service.key;
    let (_, mut ledger) = plan::plan(observed, now);
    let pools_of = |family: &Family| {
        let considered = ledger.considered(key, *family).into_iter();
        considered.map(|(pool, verdict)| Considered { family: family.to_string(), pool, verdict }).collect::<Vec<_>>()
    };
    let pools = request.families.iter().flat_map(pools_of).collect();
    let answer = ledger.answer(key);
    let note = answer.as_ref().and_then(|answer| answer.note.as_ref());
    let wanted = Wanted::of(service, note, around.entrances.announcement(service));
    Served {
        asks_for: asks_for(request),
        result: outcome(request, answer.as_ref()),
        conditions: conditions::told(&service.conditions, &wanted, time),
        lets_in: LetIn::of(service, &observed.nodes, &around.reports),
        nodes: nodes::groups(service, &observed.nodes, around),
        pools,
    }
}

/// Why a Service is none to serve, if it is none: the first reason that would have to go.
fn not_served(service: &ServiceView, scope: Scope) -> Option<String> {
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
        let text = service.annotations.get(IGNORE).map(String::as_str).unwrap_or_default();
        return Some(format!("its annotation {IGNORE} is {text:?}, so it is left alone"));
    }
    service.is_deleting.then(|| "it is being deleted".to_owned())
}

fn asks_for(request: &Request) -> String {
    let families: Vec<_> = request.families.iter().map(ToString::to_string).collect();
    let how = match (families.len(), request.needs_every_family) {
        (0 | 1, _) => "",
        (_, true) => ", both or nothing",
        (_, false) => ", or one of them",
    };
    let wish = match &request.wish {
        Err(note) => return note.to_string(),
        Ok(wish) => wish,
    };
    let what = match (wish.addresses.is_empty(), &wish.pool) {
        (true, None) => "any address".to_owned(),
        (true, Some(pool)) => format!("any address of AddressPool {pool}"),
        (false, None) => and(&wish.addresses),
        (false, Some(pool)) => format!("{} of AddressPool {pool}", and(&wish.addresses)),
    };
    let sharing = request.sharing.key.as_ref().map(|key| format!(", shared by key {key:?}")).unwrap_or_default();
    format!("{what} ({}{how}){sharing}", families.join(" and "))
}

fn outcome(request: &Request, answer: Option<&Answer>) -> Outcome {
    let Some(Answer { addresses, note }) = answer else {
        return Outcome { addresses: Vec::new(), reason: None, message: "its request has no answer yet".to_owned() };
    };
    let what = match (*addresses == request.held, addresses.is_empty()) {
        (true, true) => "it waits".to_owned(),
        (true, false) => "it keeps what it has".to_owned(),
        (false, true) => "it loses what it has".to_owned(),
        (false, false) => format!("it gets {} once the leader writes it", and(addresses)),
    };
    let message = match note {
        Some(note) => format!("{what}. {}: {note}", note.reason()),
        None => what,
    };
    Outcome { addresses: addresses.clone(), reason: note.as_ref().map(|note| note.reason()), message }
}

fn and<T: fmt::Display>(all: &[T]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

impl fmt::Display for ServiceExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Service {}", self.service)?;
        if let Some(why) = &self.not_served {
            writeln!(f, "  not served  {why}")?;
        }
        if let Some(served) = &self.served {
            writeln!(f, "  asks for    {}", served.asks_for)?;
        }
        writeln!(f, "  has         {}", self.has)?;
        match &self.served {
            Some(served) => served.fmt(f),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Has {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.addresses.is_empty() {
            return write!(f, "no address, since it was created at {}", self.created);
        }
        f.write_str(&and(&self.addresses))?;
        if let Some(since) = &self.since {
            write!(f, ", since {since}")?;
        }
        self.allocation.as_ref().map_or(Ok(()), |term| write!(f, " (allocation {term})"))
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  result      {}", self.result.message)?;
        let [assigned, announced] = &self.conditions;
        writeln!(f, "  assigned    {assigned}")?;
        writeln!(f, "  announced   {announced}")?;
        writeln!(f, "  lets in     {}", self.lets_in)?;
        if !self.nodes.is_empty() {
            let all: usize = self.nodes.iter().map(Group::count).sum();
            writeln!(f, "Nodes, {all} in all")?;
        }
        let width = self.nodes.iter().map(|group| group.count().to_string().len()).max().unwrap_or_default();
        for group in &self.nodes {
            writeln!(f, "  {:>width$} {group}", group.count())?;
        }
        let width = self.pools.iter().map(|one| one.pool.as_str().len()).max().unwrap_or_default();
        for of_family in self.pools.chunk_by(|one, next| one.family == next.family) {
            writeln!(f, "Pools for {}, in the order in which they are asked", of_family[0].family)?;
            for Considered { pool, verdict, .. } in of_family {
                writeln!(f, "  {:width$}  {verdict}", pool.as_str())?;
            }
        }
        Ok(())
    }
}
