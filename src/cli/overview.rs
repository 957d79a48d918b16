//! `cairn status`: how the whole of it is, in a line a part, and what is missing: pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::api::{GuardReport, NodeReportStatus};
use crate::model::views::{NodeView, ServiceCondition, ServiceConditions, ServiceView, Truth};
use crate::model::{NodeName, Scope};
use crate::service::conditions::ASSIGNED;

/// What is seen of the cluster.
#[derive(Debug, Default)]
pub struct Seen {
    /// Who leads by the Lease, if one does.
    pub leader: Option<String>,
    /// Every Node.
    pub nodes: Vec<NodeView>,
    /// What the agents say, by node.
    pub reports: BTreeMap<NodeName, NodeReportStatus>,
    /// Every Service.
    pub services: Vec<ServiceView>,
    /// Which of them are Cairn's.
    pub scope: Scope,
    /// Each pool, advertisement and machine by kind and name, and what is not as it should be, if anything.
    pub objects: BTreeMap<&'static str, Vec<(String, Option<String>)>>,
}

/// How the whole of it is.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Overview {
    parts: Vec<Part>,
}

/// How one part of it is.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Part {
    part: &'static str,
    says: String,
    /// What is missing of it, a line each.
    missing: Vec<String>,
}

/// Looks at all of it.
pub fn overview(seen: &Seen) -> Overview {
    let mut parts = vec![controller(seen), nodes(seen), agents(seen), routes(seen), sessions(seen)];
    parts.push(services(seen));
    parts.extend(seen.objects.iter().map(|(kind, objects)| Part {
        part: kind,
        says: format!("{} in all", objects.len()),
        missing: objects.iter().filter_map(|(name, fault)| Some(format!("{name}: {}", fault.as_ref()?))).collect(),
    }));
    Overview { parts }
}

fn controller(seen: &Seen) -> Part {
    match &seen.leader {
        Some(leader) => part("controller", format!("{leader} leads"), Vec::new()),
        None => part(
            "controller",
            "nobody leads".to_owned(),
            vec!["no holder renews the Lease kube-system/cloud-controller-manager: does Deployment cairn-controller run?".to_owned()],
        ),
    }
}

fn nodes(seen: &Seen) -> Part {
    let waiting = seen.nodes.iter().filter(|node| node.is_uninitialized());
    let unreached = seen.nodes.iter().filter_map(|node| {
        let condition = node.network_unavailable.as_ref().filter(|condition| condition.status == Truth::True)?;
        Some(format!("{}: NetworkUnavailable, {}: {}", node.name, condition.reason, condition.message))
    });
    let silent = seen.nodes.iter().filter(|node| node.ready == Some(Truth::Unknown));
    let missing = waiting.map(|node| format!("{}: waits for its initialization, see its Events", node.name));
    let missing = missing.chain(unreached).chain(silent.map(|node| format!("{}: its kubelet is silent", node.name)));
    part("nodes", format!("{} in all", seen.nodes.len()), missing.collect())
}

/// The nodes whose agents have reported since they started and that live, and what they say.
fn heard(seen: &Seen) -> impl Iterator<Item = (&NodeView, &NodeReportStatus)> {
    seen.nodes.iter().filter_map(|node| {
        // Nobody takes back the report of a machine that died.
        let report = seen.reports.get(&node.name).filter(|_| node.ready != Some(Truth::Unknown))?;
        report.is_current(node).then_some((node, report))
    })
}

fn agents(seen: &Seen) -> Part {
    let is_heard = |node: &&NodeView| seen.reports.get(&node.name).is_some_and(|report| report.is_current(node));
    let silent = seen.nodes.iter().filter(|node| !is_heard(node));
    let silent = silent.map(|node| format!("{}: its agent has not reported since the node started", node.name));
    let guards = heard(seen).filter(|(_, report)| report.guard != GuardReport::Standing);
    let guards = guards.map(|(node, report)| format!("{}: its guard is {:?}", node.name, report.guard));
    let says = format!("{} of {} are heard of", heard(seen).count(), seen.nodes.len());
    part("agents", says, silent.chain(guards).collect())
}

fn routes(seen: &Seen) -> Part {
    let sum = |of: fn(&NodeReportStatus) -> u32| heard(seen).map(|(_, report)| u64::from(of(report))).sum::<u64>();
    let (wanted, installed) = (sum(|report| report.routes.wanted), sum(|report| report.routes.installed));
    let carried = sum(|report| report.routes.carried);
    let by_routers = if carried > 0 { format!(", {carried} are carried by routers") } else { String::new() };
    let lacking = heard(seen).filter_map(|(node, report)| {
        let told = &report.routes.exceptions.first()?.message;
        Some(format!("{}: {} pod CIDRs are told of, the first: {told}", node.name, report.routes.exceptions.len()))
    });
    let forwarding =
        heard(seen).filter_map(|(node, report)| Some(format!("{}: {}", node.name, report.forwarding.first()?.message)));
    let says = format!("{installed} of {wanted} to pods of other nodes are in the kernels{by_routers}");
    part("routes", says, lacking.chain(forwarding).collect())
}

fn sessions(seen: &Seen) -> Part {
    let sum = |of: fn(&NodeReportStatus) -> u32| heard(seen).map(|(_, report)| u64::from(of(report))).sum::<u64>();
    let (peers, established) = (sum(|report| report.bgp.peers), sum(|report| report.bgp.established));
    let told = heard(seen).filter_map(|(node, report)| {
        let told = report.bgp.exceptions.first()?;
        Some(format!("{}: BgpPeer {}: {}", node.name, told.peer, told.message))
    });
    part("sessions", format!("{established} of {peers} with routers are established"), told.collect())
}

fn services(seen: &Seen) -> Part {
    let ours: Vec<_> = seen.services.iter().filter(|service| seen.scope.includes(service)).collect();
    let has_address = |service: &&&ServiceView| service.ingress.iter().any(|entry| entry.ip.is_some());
    let is_true = |condition: &Option<ServiceCondition>| {
        condition.as_ref().is_some_and(|condition| condition.says.status == Truth::True)
    };
    let announced = ours.iter().filter(|service| is_true(&service.conditions.announced)).count();
    let missing = ours.iter().filter_map(|service| Some(format!("{}: {}", service.key, missing_of(service)?)));
    let says = format!(
        "{} of type LoadBalancer are Cairn's, {} have addresses, {announced} are announced",
        ours.len(),
        ours.iter().filter(has_address).count()
    );
    part("services", says, missing.collect())
}

/// What a Service of ours lacks, by its own conditions: the first.
fn missing_of(service: &ServiceView) -> Option<String> {
    let ServiceConditions { address_assigned, announced, .. } = &service.conditions;
    let Some(assigned) = address_assigned else {
        return Some("its status does not say yet how it stands: a controller that leads writes that".to_owned());
    };
    let is_well = |condition: &ServiceCondition| condition.says.status == Truth::True;
    let has_what_it_asks_for = is_well(assigned) && assigned.says.reason == ASSIGNED;
    let told =
        if has_what_it_asks_for { announced.as_ref().filter(|condition| !is_well(condition))? } else { assigned };
    Some(format!("{}: {}", told.says.reason, told.says.message))
}

fn part(part: &'static str, says: String, missing: Vec<String>) -> Part {
    Part { part, says, missing }
}

/// So much of what is missing of one part is told to people.
const TOLD: usize = 5;

impl fmt::Display for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.parts.iter().map(|part| part.part.len()).max().unwrap_or_default();
        for Part { part, says, missing } in &self.parts {
            writeln!(f, "{part:width$}  {says}")?;
            for line in missing.iter().take(TOLD) {
                writeln!(f, "  ! {line}")?;
            }
            if missing.len() > TOLD {
                writeln!(f, "  ! and {} more", missing.len() - TOLD)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{BgpReport, PeerException, RouteReport};
    use crate::model::cases;
    use crate::model::views::{Condition, Ingress, IpMode, UNINITIALIZED};

    fn condition(status: Truth, reason: &str) -> Option<ServiceCondition> {
        let says = Condition { status, reason: reason.to_owned(), message: format!("because of {reason}") };
        Some(ServiceCondition { says, since_seconds: 0 })
    }

    fn report(node: &NodeView) -> (NodeName, NodeReportStatus) {
        let report = NodeReportStatus {
            boot_id: node.boot_id.clone().unwrap_or_default(),
            guard: GuardReport::Standing,
            routes: RouteReport { wanted: 2, installed: 2, ..RouteReport::default() },
            bgp: BgpReport { peers: 1, established: 1, ..BgpReport::default() },
            ..NodeReportStatus::default()
        };
        (node.name.clone(), report)
    }

    fn web() -> ServiceView {
        ServiceView {
            ingress: vec![Ingress { ip: "10.60.0.10".parse().ok(), ip_mode: IpMode::Vip }],
            conditions: ServiceConditions {
                address_assigned: condition(Truth::True, "Assigned"),
                announced: condition(Truth::True, "BGP"),
                others: Vec::new(),
            },
            ..cases::service("web")
        }
    }

    fn well() -> Seen {
        let nodes = vec![cases::node("n1"), cases::node("n2")];
        Seen {
            leader: Some("cp-1".to_owned()),
            reports: nodes.iter().map(report).collect(),
            nodes,
            services: vec![web()],
            scope: Scope::Default,
            objects: BTreeMap::from([("pools", vec![("public".to_owned(), None)])]),
        }
    }

    #[test]
    fn what_is_well_is_a_line_a_part() {
        assert_eq!(
            overview(&well()).to_string(),
            "controller  cp-1 leads\n\
             nodes       2 in all\n\
             agents      2 of 2 are heard of\n\
             routes      4 of 4 to pods of other nodes are in the kernels\n\
             sessions    2 of 2 with routers are established\n\
             services    1 of type LoadBalancer are Cairn's, 1 have addresses, 1 are announced\n\
             pools       1 in all\n"
        );
    }

    #[test]
    fn what_is_missing_is_told_below_its_part() {
        let name = |text: &str| -> NodeName { text.parse().expect("a name") };
        type Change = fn(&mut Seen, &dyn Fn(&str) -> NodeName);
        let cases: &[(&str, Change, &str)] = &[
            ("no leader", |seen, _| seen.leader = None, "controller  nobody leads\n  ! no holder renews"),
            (
                "a taint",
                |seen, _| {
                    let taint = serde_json::json!({ "key": UNINITIALIZED, "effect": "NoSchedule" });
                    seen.nodes[1].taints.push(serde_json::from_value(taint).expect("a taint"));
                },
                "  ! n2: waits for its initialization",
            ),
            (
                "no route",
                |seen, _| {
                    let reason = "NoRouteCreated".to_owned();
                    let condition = Condition { status: Truth::True, reason, message: "no agent".to_owned() };
                    seen.nodes[0].network_unavailable = Some(condition);
                },
                "  ! n1: NetworkUnavailable, NoRouteCreated: no agent\n",
            ),
            (
                "no report",
                |seen, name| drop(seen.reports.remove(&name("n2"))),
                "agents      1 of 2 are heard of\n  ! n2: its agent",
            ),
            (
                "of an earlier boot",
                |seen, _| seen.nodes[1].boot_id = Some("another".to_owned()),
                "agents      1 of 2 are heard of\n  ! n2: its agent",
            ),
            (
                "a machine that died",
                |seen, _| seen.nodes[1].ready = Some(Truth::Unknown),
                "  ! n2: its kubelet is silent\nagents      1 of 2 are heard of\nroutes      2 of 2",
            ),
            (
                "no guard",
                |seen, name| seen.reports.get_mut(&name("n1")).expect("a report").guard = GuardReport::Denied,
                "  ! n1: its guard is Denied\n",
            ),
            (
                "no session",
                |seen, name| {
                    let told = PeerException { peer: "tor".to_owned(), message: "refused".to_owned() };
                    let bgp = BgpReport { peers: 1, exceptions: vec![told], ..BgpReport::default() };
                    seen.reports.get_mut(&name("n1")).expect("a report").bgp = bgp;
                },
                "sessions    1 of 2 with routers are established\n  ! n1: BgpPeer tor: refused\n",
            ),
            (
                "not announced",
                |seen, _| seen.services[0].conditions.announced = condition(Truth::False, "NoSession"),
                "1 have addresses, 0 are announced\n  ! default/web: NoSession: because of NoSession\n",
            ),
            (
                "an address, and not as asked",
                |seen, _| seen.services[0].conditions.address_assigned = condition(Truth::True, "TruthMalformed"),
                "1 are announced\n  ! default/web: TruthMalformed: because of TruthMalformed\n",
            ),
            (
                "nobody has looked at it",
                |seen, _| seen.services[0] = cases::service("web"),
                "0 have addresses, 0 are announced\n  ! default/web: its status does not say yet how it stands",
            ),
            (
                "another's class",
                |seen, _| seen.services[0].class = Some("other.io/x".to_owned()),
                "services    0 of type LoadBalancer are Cairn's, 0 have addresses, 0 are announced\n",
            ),
            (
                "a pool",
                |seen, _| drop(seen.objects.insert("pools", vec![("p".to_owned(), Some("Conflict".to_owned()))])),
                "pools       1 in all\n  ! p: Conflict\n",
            ),
        ];
        for (case, change, want) in cases {
            let mut seen = well();
            change(&mut seen, &name);
            let told = overview(&seen).to_string();
            assert!(told.contains(want), "{case}: {told}");
        }
    }

    #[test]
    fn people_are_told_of_five_and_scripts_of_all() {
        let mut seen = well();
        seen.reports.clear();
        seen.nodes = (1..=7).map(|number| cases::node(&format!("n{number}"))).collect();
        let overview = overview(&seen);
        assert!(
            overview
                .to_string()
                .contains("  ! n5: its agent has not reported since the node started\n  ! and 2 more\n")
        );
        assert_eq!(
            serde_json::to_value(&overview).expect("JSON")["parts"][2]["missing"].as_array().map(Vec::len),
            Some(7)
        );
    }
}
