//! What the agent tells the cluster, and how often.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::desired::Desired;
use crate::agent::entries::EntryPlan;
use crate::agent::routes::{Claim, RoutePlan};
use crate::agent::witness;
use crate::api::{
    BgpReport, EntryReport, ForwardingFault, GuardReport, NoEntry, NodeReportStatus, PeerException, RefusedEntries,
    RouteCarrier, RouteException, RouteExceptionReason, RouteReport, WitnessAnswer,
};
use crate::model::{FibRoute, FibWish, Moment, NodeName, Prefix};

/// A report lists this many exceptions of a kind; the counts tell of the rest.
const EXCEPTIONS: usize = 32;
/// And this many routers.
const CARRIERS: usize = 8;
/// Counts may be this old.
const ORDINARY: Duration = Duration::from_secs(10);
/// Counts of what is well may be so old: a node that joins changes them on every other one, and a report
/// of each would be worth less than what it costs.
const COUNTS_OF_WHAT_IS_WELL: Duration = Duration::from_secs(600);
/// Urgent reports follow each other this fast, so that one tells of all the nodes that join together …
const URGENT: Duration = Duration::from_millis(100);
/// … for the first few, and then one in this time.
const URGENT_SUSTAINED: Duration = Duration::from_secs(1);
const URGENT_BURST: u32 = 10;
/// An agent that has just learned of its own node sets up the guard next: one report tells of both,
/// unless the guard takes longer than this.
const GUARD_IS_SET_UP: Duration = Duration::from_millis(500);

/// What the kernel and BGP rooms say of themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The routes that the kernel room was asked for and has dealt with.
    pub settled: Arc<FibWish>,
    /// Whether that is all that it was asked for.
    pub is_settled: bool,
    /// Routes the kernel has not got, and why.
    pub failed: BTreeMap<FibRoute, (RouteExceptionReason, String)>,
    /// Whether the next hops that were asked answer (ARP, NDP).
    pub neighbours: BTreeMap<IpAddr, bool>,
    /// Who carries pod CIDRs of nodes that are on no network of this one, in words.
    pub carried: BTreeMap<Prefix, String>,
    /// Routes put back since the start.
    pub repaired: u64,
    /// Nodes that stay only because nobody has confirmed that they are gone.
    pub held: usize,
    /// What keeps pods' packets from being forwarded.
    pub forwarding: Vec<ForwardingFault>,
    /// Whether the guard table stands.
    pub guard: GuardReport,
    /// Peers whose session is Established.
    pub established: u32,
    /// Prefixes announced in each of them.
    pub announced: u32,
    /// Peers without a session, and why.
    pub peer_exceptions: Vec<PeerException>,
}

impl Outcome {
    /// Whether the kernel has the route, and it carries packets.
    pub fn is_installed(&self, route: &FibRoute) -> bool {
        self.settled.contains(route) && !self.failed.contains_key(route)
    }

    /// Which router carries packets to a pod CIDR that gets no route of ours.
    pub fn carrier(&self, cidr: &Prefix) -> Option<&str> {
        self.carried.get(cidr).map(String::as_str)
    }
}

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
        witness: witness::answers(me, desired, outcome),
        routes: routes(desired, outcome),
        forwarding: outcome.forwarding.clone(),
        guard: outcome.guard,
        entries: entries(&desired.entries),
        bgp: BgpReport {
            peers: count(desired.peers.len()),
            established: outcome.established,
            announced: outcome.announced,
            imported: count(desired.imports.routes.iter().filter(|route| outcome.is_installed(route)).count()),
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
        installed: count(installed(plan, outcome)),
        nodes_without: count(nodes_without),
        carried,
        carriers,
        held: count(outcome.held),
        repaired: outcome.repaired,
        exceptions,
    }
}

/// How many pod CIDRs have their route in the kernel.
fn installed(plan: &RoutePlan, outcome: &Outcome) -> usize {
    let routes = plan.wanted.routes();
    // Then what failed is all that is missing, and there is no need to look for each.
    if outcome.is_settled {
        let failed = outcome.failed.keys().filter(|route| plan.wanted.contains(route)).count();
        return routes.count() - failed;
    }
    routes.filter(|route| outcome.is_installed(route)).count()
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
    let mut refused = BTreeMap::<NoEntry, RefusedEntries>::new();
    for (service, &reason) in &plan.refused {
        let first = || RefusedEntries { reason, services: 0, first: service.to_string() };
        refused.entry(reason).or_insert_with(first).services += 1;
    }
    EntryReport { services: count(plan.entries.len()), refused: refused.into_values().collect() }
}

fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}

/// Decides when a report is written: never unchanged, at once when someone waits for it.
#[derive(Debug, Clone, Default)]
pub struct Pacer {
    published: Option<NodeReportStatus>,
    last_write: Option<Moment>,
    /// Since when there is something to write.
    changed: Option<Moment>,
    urgent_credit: u32,
    credit_at: Option<Moment>,
}

/// What to do about a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It has been written as it is.
    Rest,
    /// Write it now.
    Now,
    /// Write it then, if nothing else comes.
    At(Moment),
}

impl Pacer {
    /// When to write `current`. `spread` is a delay of this node's own, so that a change that every
    /// node reports does not reach the API server from all of them at once.
    pub fn pace(&mut self, current: &NodeReportStatus, spread: Duration, now: Moment) -> Pace {
        let Some(last_write) = self.last_write else { return Pace::Now };
        let Some(published) = &self.published else { return at(last_write + URGENT_SUSTAINED, now) };
        if says_the_same(published, current) {
            self.changed = None;
            return Pace::Rest;
        }
        let changed = *self.changed.get_or_insert(now);
        let due = if is_urgent(published, current) {
            self.refill(now);
            let due = last_write + if self.urgent_credit > 0 { URGENT } else { URGENT_SUSTAINED };
            let guard_is_next = current.guard == GuardReport::Waiting && current.own_route.is_some();
            if guard_is_next { due.max(changed + GUARD_IS_SET_UP) } else { due }
        } else if differs_in_counts_only(published, current) {
            changed + COUNTS_OF_WHAT_IS_WELL + spread
        } else {
            changed + ORDINARY + spread
        };
        at(due, now)
    }

    /// Notes that `written` is what the API server has.
    pub fn wrote(&mut self, written: NodeReportStatus, now: Moment) {
        self.urgent_credit = self.urgent_credit.saturating_sub(1);
        self.published = Some(written);
        self.changed = None;
        self.last_write = Some(now);
    }

    /// Looks at what the API server has: when it is gone, or says something else than was written, it
    /// is to be written anew.
    pub fn saw(&mut self, kept: Option<&NodeReportStatus>) {
        self.published.take_if(|published| kept != Some(published));
    }

    fn refill(&mut self, now: Moment) {
        let earned = self.credit_at.map_or(URGENT_BURST, |at| {
            u32::try_from(now.since(at).as_secs() / URGENT_SUSTAINED.as_secs()).unwrap_or(URGENT_BURST)
        });
        if earned > 0 {
            self.urgent_credit = self.urgent_credit.saturating_add(earned).min(URGENT_BURST);
            self.credit_at = Some(now);
        }
    }
}

fn at(due: Moment, now: Moment) -> Pace {
    if due <= now { Pace::Now } else { Pace::At(due) }
}

/// What nobody waits for any more is no news, and goes with the next report: a proposal of addresses,
/// an answer as a witness that is not asked for.
fn says_the_same(published: &NodeReportStatus, current: &NodeReportStatus) -> bool {
    let mut published = published.clone();
    if current.default_addresses.is_empty() {
        published.default_addresses.clear();
    }
    published.witness.retain(|answer| current.witness.iter().any(|new| new.node == answer.node));
    published == *current
}

/// Whether nothing is new but how many routes there are, and as many are missing as before.
fn differs_in_counts_only(published: &NodeReportStatus, current: &NodeReportStatus) -> bool {
    let missing = |RouteReport { wanted, installed, carried, .. }: &RouteReport| {
        wanted.saturating_sub(installed.saturating_add(*carried))
    };
    let RouteReport { wanted, installed, carried, .. } = current.routes;
    let carriers = current.routes.carriers.clone();
    let routers =
        |report: &RouteReport| report.carriers.iter().map(|carrier| carrier.route.clone()).collect::<Vec<_>>();
    let has_same_routers = routers(&published.routes) == routers(&current.routes);
    let counted = RouteReport { wanted, installed, carried, carriers, ..published.routes.clone() };
    has_same_routers
        && missing(&published.routes) == missing(&current.routes)
        && says_the_same(&NodeReportStatus { routes: counted, ..published.clone() }, current)
}

/// The leader waits for these: they decide the condition NetworkUnavailable, and where a node is that
/// nobody knows an address of.
fn is_urgent(published: &NodeReportStatus, current: &NodeReportStatus) -> bool {
    let proposes = !current.default_addresses.is_empty() && published.default_addresses != current.default_addresses;
    let is_new = |answer: &WitnessAnswer| !published.witness.contains(answer);
    let own = |report: &NodeReportStatus| {
        (report.boot_id.clone(), report.node_uid.clone(), report.own_route.clone(), report.routes.nodes_without > 0)
    };
    proposes || own(published) != own(current) || current.witness.iter().any(is_new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::cases::{local, node_route, snapshot};
    use crate::agent::desired;
    use crate::agent::desired::Memory;
    use crate::api::Reached;
    use crate::model::Hop;

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
        desired.imports.routes.insert(route.clone());
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
        let refused = refused.map(|(key, reason)| (key.parse().expect("a service key"), reason)).into();
        let report = entries(&EntryPlan { entries: served(7), refused, ..EntryPlan::default() });
        let of = |reason, services, first: &str| RefusedEntries { reason, services, first: first.to_owned() };
        let want = [of(NoEntry::NoReadyEndpoint, 1, "a/y"), of(NoEntry::NoLocalEndpoint, 2, "a/x")];
        assert_eq!((report.services, report.refused.as_slice()), (7, want.as_slice()));
    }

    #[test]
    fn a_report_is_written_when_it_changed_and_at_once_when_someone_waits_for_it() {
        let at = |seconds: f64| Moment::since_boot(Duration::from_secs_f64(seconds));
        let spread = Duration::from_secs(2);
        let first = NodeReportStatus::default();
        let mut counts = first.clone();
        counts.bgp.announced = 7;
        let guard = GuardReport::Standing;
        let urgent = |n: u64| NodeReportStatus { own_route: Some(n.to_string()), guard, ..first.clone() };

        let mut pacer = Pacer::default();
        assert_eq!(pacer.pace(&first, spread, at(100.0)), Pace::Now);
        pacer.wrote(first.clone(), at(100.0));
        assert_eq!(pacer.pace(&first, spread, at(101.0)), Pace::Rest);
        assert_eq!(pacer.pace(&counts, spread, at(101.0)), Pace::At(at(113.0)));
        assert_eq!(pacer.pace(&counts, spread, at(113.0)), Pace::Now);
        // A burst, a tenth of a second apart.
        for n in 0..10 {
            let moment = at(101.0 + 0.125 * n as f64);
            assert_eq!(pacer.pace(&urgent(n), spread, moment), Pace::Now, "{n}");
            pacer.wrote(urgent(n), moment);
            assert!(matches!(pacer.pace(&urgent(n + 1), spread, moment), Pace::At(_)), "{n}");
        }
        // One credit was earned in that second; then it is one a second.
        assert_eq!(pacer.pace(&urgent(98), spread, at(102.25)), Pace::Now);
        pacer.wrote(urgent(98), at(102.25));
        assert_eq!(pacer.pace(&urgent(99), spread, at(102.5)), Pace::At(at(103.25)));
    }

    #[test]
    fn the_first_word_on_the_own_routes_waits_half_a_second_for_the_guard() {
        let at = |seconds: f64| Moment::since_boot(Duration::from_secs_f64(seconds));
        let routed = |guard| NodeReportStatus { own_route: Some("1".to_owned()), guard, ..NodeReportStatus::default() };
        let mut pacer = Pacer::default();
        pacer.wrote(NodeReportStatus::default(), at(100.0));
        assert_eq!(pacer.pace(&routed(GuardReport::Waiting), Duration::ZERO, at(101.0)), Pace::At(at(101.5)));
        for (name, guard, moment) in [
            ("it stands", GuardReport::Standing, 101.25),
            ("it cannot stand", GuardReport::Denied, 101.25),
            ("it takes longer", GuardReport::Waiting, 101.5),
        ] {
            assert_eq!(pacer.pace(&routed(guard), Duration::ZERO, at(moment)), Pace::Now, "{name}");
        }
    }

    #[test]
    fn a_report_that_is_gone_or_changed_by_others_is_written_anew_once_a_second() {
        let at = |seconds: f64| Moment::since_boot(Duration::from_secs_f64(seconds));
        let written = NodeReportStatus::default();
        let foreign = NodeReportStatus { own_route: Some("by hand".to_owned()), ..written.clone() };
        for (name, kept, is_lost) in
            [("as written", Some(&written), false), ("changed", Some(&foreign), true), ("gone", None, true)]
        {
            let mut pacer = Pacer::default();
            pacer.saw(kept);
            assert_eq!(pacer.pace(&written, Duration::ZERO, at(10.0)), Pace::Now, "{name}, before the first");
            pacer.wrote(written.clone(), at(10.0));
            pacer.saw(kept);
            let (soon, later) = if is_lost { (Pace::At(at(11.0)), Pace::Now) } else { (Pace::Rest, Pace::Rest) };
            assert_eq!(pacer.pace(&written, Duration::ZERO, at(10.5)), soon, "{name}");
            assert_eq!(pacer.pace(&written, Duration::ZERO, at(11.0)), later, "{name}");
        }
    }

    #[test]
    fn more_routes_that_are_all_well_are_no_hurry() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let of = |wanted, installed| NodeReportStatus {
            routes: RouteReport { wanted, installed, ..RouteReport::default() },
            ..NodeReportStatus::default()
        };
        for (name, from, to, want) in [
            ("one more", of(4, 4), of(6, 6), 701),
            ("as many are missing", of(4, 3), of(6, 5), 701),
            ("some are missing", of(4, 4), of(6, 5), 111),
            ("none is missing any more", of(6, 5), of(6, 6), 111),
        ] {
            let mut pacer = Pacer::default();
            pacer.wrote(from, at(100));
            assert_eq!(pacer.pace(&to, Duration::ZERO, at(101)), Pace::At(at(want)), "{name}");
        }
    }

    #[test]
    fn an_answer_is_urgent_and_one_that_is_not_asked_for_any_more_is_no_news() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let answer =
            |node: &str, answer| WitnessAnswer { node: node.to_owned(), route: "0".repeat(16), answer, message: None };
        let of = |answers: Vec<WitnessAnswer>| NodeReportStatus { witness: answers, ..Default::default() };
        let (n2, n3) = (answer("n2", Reached::Ok), answer("n3", Reached::Ok));
        for (name, from, to, want) in [
            ("asked for", of(vec![n2.clone()]), of(vec![n2.clone(), n3.clone()]), Pace::Now),
            ("another answer", of(vec![n2.clone()]), of(vec![answer("n2", Reached::NoRoute)]), Pace::Now),
            ("no longer asked for", of(vec![n2.clone(), n3.clone()]), of(vec![n3.clone()]), Pace::Rest),
            ("another is asked for", of(vec![n2.clone()]), of(vec![n3]), Pace::Now),
        ] {
            let mut pacer = Pacer::default();
            pacer.wrote(from, at(100));
            assert_eq!(pacer.pace(&to, Duration::ZERO, at(101)), want, "{name}");
        }
    }

    #[test]
    fn addresses_that_the_leader_waits_for_are_urgent_and_no_news_once_it_has_them() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let waiting = NodeReportStatus { default_addresses: vec!["10.0.0.9".to_owned()], ..Default::default() };
        let known = NodeReportStatus::default();
        let mut pacer = Pacer::default();
        pacer.wrote(known.clone(), at(100));
        assert_eq!(pacer.pace(&waiting, Duration::ZERO, at(101)), Pace::Now);
        pacer.wrote(waiting, at(101));
        assert_eq!(pacer.pace(&known, Duration::ZERO, at(200)), Pace::Rest);
        let changed = NodeReportStatus { boot_id: "other".to_owned(), ..known };
        assert_eq!(pacer.pace(&changed, Duration::ZERO, at(200)), Pace::Now);
    }
}
