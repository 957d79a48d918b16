//! What the agent tells the cluster.

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::desired::Desired;
use crate::agent::entries::EntryPlan;
use crate::agent::outcome::Outcome;
use crate::agent::routes::{Claim, RoutePlan};
use crate::agent::testimony;
use crate::api::{
    BgpReport, EntryReport, NodeReportStatus, PeerException, RefusedEntries, RouteCarrier, RouteException,
    RouteExceptionReason, RouteReport,
};
use crate::model::{FibWish, NodeName, Prefix};

/// A report lists this many exceptions of a kind, and peers; the counts tell of the rest.
const EXCEPTIONS: usize = 32;
/// And this many networks of the node,
const NETWORKS: usize = 16;
/// and this many routers.
const CARRIERS: usize = 8;

/// The report of node `me` on a wish and what became of it.
pub fn report(me: &NodeName, boot_id: &str, desired: &Desired, outcome: &Outcome) -> NodeReportStatus {
    let mut peer_exceptions = outcome.peer_exceptions.clone();
    peer_exceptions.extend(desired.imports.exceptions.iter().cloned());
    let learned = outcome.failed.iter().filter(|(route, _)| desired.imports.routes.contains(route));
    peer_exceptions.extend(learned.filter_map(|(route, (_, message))| {
        let peer = desired.imports.told_by.get(&route.destination)?.to_string();
        Some(PeerException { peer, message: format!("{} is not in the kernel: {message}", route.destination) })
    }));
    peer_exceptions.truncate(EXCEPTIONS);
    let adverts = desired.announce.exceptions.iter().take(EXCEPTIONS).cloned().collect();
    NodeReportStatus {
        boot_id: boot_id.to_owned(),
        node_uid: None,
        own_route: desired.own_route.clone(),
        default_addresses: Vec::new(),
        networks: desired.networks.iter().take(NETWORKS).map(ToString::to_string).collect(),
        witness: testimony::answers(me, desired, outcome),
        routes: routes(desired, outcome),
        forwarding: outcome.forwarding.clone(),
        guard: outcome.guard,
        entries: entries(&desired.entries),
        bgp: BgpReport {
            peers: count(desired.peers.len()),
            established: count(outcome.heard_by.len()),
            heard_by: outcome.heard_by.iter().take(EXCEPTIONS).map(ToString::to_string).collect(),
            announced: outcome.announced,
            imported: count(installed(&desired.imports.routes, desired, outcome)),
            exceptions: peer_exceptions,
            adverts,
        },
    }
}

/// What became of the routes to other nodes' pods.
fn routes(desired: &Desired, outcome: &Outcome) -> RouteReport {
    let plan = &desired.routes;
    let mut exceptions: Vec<_> =
        plan.exceptions().filter(|exception| !is_carried(exception, outcome)).cloned().collect();
    exceptions.extend(outcome.failed.iter().filter_map(|(route, (reason, message))| {
        let node = plan.owner(route)?.node.to_string();
        Some(RouteException { node, cidr: route.destination.to_string(), reason: *reason, message: message.clone() })
    }));
    exceptions.extend(shared(plan, outcome));
    exceptions.sort();
    let without = exceptions.iter().filter(|exception| exception.reason.is_here());
    let nodes_without = without.map(|exception| &exception.node).collect::<BTreeSet<_>>().len();
    exceptions.truncate(EXCEPTIONS);
    let mut carriers = BTreeMap::<&str, u32>::new();
    let asked = outcome.carried.iter().filter(|(destination, _)| plan.wanted.is_asked(destination));
    asked.for_each(|(_, carrier)| *carriers.entry(carrier).or_default() += 1);
    let carried = carriers.values().sum();
    let mut carriers: Vec<_> =
        carriers.into_iter().map(|(route, cidrs)| RouteCarrier { route: route.to_owned(), cidrs }).collect();
    carriers.sort_by_key(|carrier| std::cmp::Reverse(carrier.cidrs));
    carriers.truncate(CARRIERS);
    RouteReport {
        wanted: count(plan.pod_cidrs),
        installed: count(installed(&plan.wanted, desired, outcome)),
        nodes_without: count(nodes_without),
        carried,
        carriers,
        held: count(outcome.held),
        repaired: outcome.repaired,
        exceptions,
    }
}

/// How many of these routes, which are a part of all of ours, are in the kernel: all but those that failed, and of
/// those that the kernel room has not dealt with yet the ones that it has not got.
fn installed(wanted: &FibWish, desired: &Desired, outcome: &Outcome) -> usize {
    let open: BTreeSet<Prefix> = desired.fib.changed_since(&outcome.settled).into_iter().collect();
    let missing = open.iter().flat_map(|destination| wanted.to(destination));
    let missing = missing.filter(|route| !outcome.is_installed(route)).count();
    let failed = outcome.failed.keys().filter(|route| !open.contains(&route.destination) && wanted.contains(route));
    wanted.count() - missing - failed.count()
}

fn is_carried(exception: &RouteException, outcome: &Outcome) -> bool {
    exception.reason == RouteExceptionReason::NotOnLink
        && exception.cidr.parse().is_ok_and(|cidr| outcome.carrier(&cidr).is_some())
}

/// Whoever has a pod CIDR that others claim as well is told too.
fn shared<'a>(plan: &'a RoutePlan, outcome: &'a Outcome) -> impl Iterator<Item = RouteException> + 'a {
    plan.shared().filter_map(|(cidr, claims)| {
        let has_route = |claim: &&Claim| claim.route(cidr).is_some_and(|route| outcome.is_installed(&route));
        let holder = claims.iter().find(has_route)?;
        let rival = claims.iter().find(|claim| claim.node.node != holder.node.node)?;
        let message = format!("node {} claims it as well; the route stays with this node", rival.node.node);
        let (node, cidr) = (holder.node.node.to_string(), cidr.to_string());
        Some(RouteException { node, cidr, reason: RouteExceptionReason::Overlapped, message })
    })
}

/// Counts by reason: what is refused grows with the Services, the reasons do not.
fn entries(plan: &EntryPlan) -> EntryReport {
    let refused = plan.refused.by_reason().filter_map(|(reason, services)| {
        let first = services.first()?.to_string();
        Some(RefusedEntries { reason, services: count(services.len()), first })
    });
    EntryReport { services: count(plan.entries.len()), refused: refused.collect() }
}

fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::cases::{local, node_route, snapshot};
    use crate::agent::desired;
    use crate::agent::desired::Memory;
    use crate::api::NoEntry;
    use crate::model::{FibRoute, Hop, Moment};

    fn me() -> NodeName {
        "n1".parse().expect("a name")
    }

    fn desired() -> Desired {
        let mut n2 = node_route("n2", &["10.90.0.12"], &["10.244.1.0/24"]);
        n2.witnesses = vec!["n1".to_owned()];
        let mut n3 = node_route("n3", &["192.0.2.13"], &["10.244.2.0/24"]);
        n3.witnesses = vec!["n1".to_owned()];
        let snapshot = snapshot()
            .node(node_route("n1", &["10.90.0.11"], &["10.244.0.0/24"]))
            .node(n2)
            .node(n3)
            .local([local("eth0", "10.90.0.11/24")])
            .build();
        desired::plan(&snapshot, &mut Memory::default(), Moment::default())
    }

    #[test]
    fn what_no_router_carries_either_is_an_exception() {
        let desired = desired();
        let outcome = Outcome { settled: Arc::clone(&desired.routes.wanted), ..Outcome::default() };
        let alone = report(&me(), "b", &desired, &outcome);
        let exceptions: Vec<_> = alone.routes.exceptions.iter().map(|e| (e.node.as_str(), e.reason)).collect();
        assert_eq!(exceptions, [("n3", RouteExceptionReason::NotOnLink)]);
        let RouteReport { wanted, installed, nodes_without, .. } = alone.routes;
        assert_eq!((wanted, installed, nodes_without), (2, 1, 1));

        let cidr: Prefix = "10.244.2.0/24".parse().expect("a prefix");
        let outcome = Outcome { carried: [(cidr, "the default route".to_owned())].into(), ..outcome };
        let carried = report(&me(), "b", &desired, &outcome).routes;
        assert_eq!((carried.exceptions, carried.nodes_without), (vec![], 0));
        assert_eq!(outcome.carrier(&cidr), Some("the default route"));
    }

    #[test]
    fn a_route_the_kernel_refused_is_an_exception_of_its_node() {
        let desired = desired();
        let refused = (RouteExceptionReason::Unreachable, "network is unreachable".to_owned());
        let outcome = Outcome {
            failed: desired.routes.wanted.routes().map(|route| (route.clone(), refused.clone())).collect(),
            ..Outcome::default()
        };
        let exceptions = report(&me(), "b", &desired, &outcome).routes.exceptions;
        let of_n2: Vec<_> = exceptions.iter().filter(|e| e.node == "n2").map(|e| e.reason).collect();
        assert_eq!(of_n2, [RouteExceptionReason::Unreachable]);
    }

    fn served(services: u8) -> BTreeMap<crate::model::ServiceKey, Vec<std::net::IpAddr>> {
        (0..services).map(|n| (crate::model::ServiceKey::new("c", n.to_string()), Vec::new())).collect()
    }

    #[test]
    fn a_learned_route_that_the_kernel_does_not_have_is_told_with_its_peer() {
        let mut desired = desired();
        let prefix: Prefix = "192.0.2.0/24".parse().expect("a prefix");
        let hop = Hop { gateway: "10.90.0.1".parse().expect("an address"), interface: None };
        let route = FibRoute::learned(prefix, hop.into());
        desired.imports.routes.set(prefix, [route.clone()]);
        Arc::make_mut(&mut desired.fib).set(prefix, [route.clone()]);
        desired.imports.told_by.insert(prefix, "tor".parse().expect("a name"));
        let owned = (RouteExceptionReason::OwnedByOther, "a route of dhcp to the same destination decides".to_owned());
        let report = report(&me(), "b", &desired, &Outcome { failed: [(route, owned)].into(), ..Outcome::default() });
        let message = "192.0.2.0/24 is not in the kernel: a route of dhcp to the same destination decides".to_owned();
        assert_eq!(
            (report.bgp.imported, report.bgp.exceptions),
            (0, vec![PeerException { peer: "tor".to_owned(), message }])
        );
    }

    #[test]
    fn services_that_are_not_announced_are_counted_by_reason() {
        let refused =
            [("a/x", NoEntry::NoLocalEndpoint), ("a/y", NoEntry::NoReadyEndpoint), ("b/z", NoEntry::NoLocalEndpoint)];
        let mut plan = EntryPlan { entries: served(7).into_iter().collect(), ..EntryPlan::default() };
        for (key, reason) in refused {
            plan.refused.insert(key.parse().expect("a service key"), reason);
        }
        let report = entries(&plan);
        let of = |reason, services, first: &str| RefusedEntries { reason, services, first: first.to_owned() };
        let want = [of(NoEntry::NoReadyEndpoint, 1, "a/y"), of(NoEntry::NoLocalEndpoint, 2, "a/x")];
        assert_eq!((report.services, report.refused.as_slice()), (7, want.as_slice()));
    }
}
