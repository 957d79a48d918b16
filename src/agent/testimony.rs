//! What this node says of the others it is a witness for.
//!
//! It vouches for a node when each of its pod CIDRs has a route in the kernel whose next hop
//! answers, or when a router carries the packets. What is not known yet is left unsaid: the leader
//! takes silence for no answer, and asks another.

use std::collections::BTreeSet;

use crate::agent::desired::Desired;
use crate::agent::outcome::Outcome;
use crate::agent::snapshot::NodeRouteView;
use crate::agent::witness::{hops, route_by};
use crate::api::{Reached, RouteExceptionReason, WitnessAnswer, majority};
use crate::model::{NodeName, Prefix};

/// What is known of one pod CIDR.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// Its route is in place.
    Routed,
    /// A router carries its packets, this one.
    Carried(String),
    /// There is none, and why.
    None(Reached, String),
    /// Nothing is known yet.
    Unknown,
}

/// The answers of node `me`, by the names of the nodes they are about.
pub fn answers(me: &NodeName, desired: &Desired, outcome: &Outcome) -> Vec<WitnessAnswer> {
    desired.witnessed.iter().filter_map(|route| answer(me, route, desired, outcome)).collect()
}

fn answer(me: &NodeName, route: &NodeRouteView, desired: &Desired, outcome: &Outcome) -> Option<WitnessAnswer> {
    let malformed = route.malformed.iter().map(|cidr| Way::None(Reached::NoRoute, format!("{cidr} is not a CIDR")));
    let ways = route.pod_cidrs.iter().map(|cidr| way(route, cidr, desired, outcome));
    let ways: Vec<_> = ways.chain(malformed).collect();
    let answer = |answer, message| {
        Some(WitnessAnswer { node: route.node.to_string(), route: route.digest.clone(), answer, message })
    };
    let failed = ways.iter().find_map(|way| match way {
        Way::None(why, message) => Some((*why, message.clone())),
        _ => None,
    });
    if let Some((why, message)) = failed {
        return answer(why, Some(message));
    }
    // The first of the witnesses are asked; the others speak up only when something is wrong.
    let place = route.witnesses.iter().position(|name| name == me.as_str())?;
    let is_asked = place < majority(route.witnesses.len());
    if !is_asked || ways.contains(&Way::Unknown) {
        return None;
    }
    let carriers: BTreeSet<_> = ways
        .iter()
        .filter_map(|way| match way {
            Way::Carried(by) => Some(by.as_str()),
            _ => None,
        })
        .collect();
    let carriers = carriers.into_iter().collect::<Vec<_>>().join("; ");
    answer(Reached::Ok, (!carriers.is_empty()).then_some(carriers))
}

fn way(node: &NodeRouteView, cidr: &Prefix, desired: &Desired, outcome: &Outcome) -> Way {
    let plan = &desired.routes;
    let shown = cidr.to_string();
    if let Some(exception) = plan.obstacle(node, cidr) {
        return match (exception.reason, outcome.carrier(cidr)) {
            (RouteExceptionReason::NotOnLink, Some(carrier)) => Way::Carried(format!("{shown}: {carrier}")),
            (RouteExceptionReason::NotOnLink, None) => {
                Way::None(Reached::NoRouter, format!("{shown}: {}", exception.message))
            }
            _ => Way::None(Reached::NoRoute, format!("{shown}: {}", exception.message)),
        };
    }
    let Some(route) = route_by(node, cidr, plan) else { return Way::Unknown };
    if let Some((_, message)) = outcome.failed.get(route) {
        return Way::None(Reached::NoRoute, format!("{shown}: {message}"));
    }
    if !outcome.is_installed(route) {
        return Way::Unknown;
    }
    let mut standing = hops(route).map(|hop| (hop.gateway, outcome.neighbours.get(&hop.gateway)));
    match standing.find(|(_, answers)| *answers != Some(&true)) {
        None => Way::Routed,
        Some((gateway, Some(_))) => {
            Way::None(Reached::NextHopSilent, format!("{shown}: next hop {gateway} does not answer"))
        }
        Some((_, None)) => Way::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::agent::cases::{local, node_route, snapshot};
    use crate::agent::desired;
    use crate::agent::desired::Memory;
    use crate::model::Moment;

    struct Case {
        name: &'static str,
        addresses: &'static [&'static str],
        edit: fn(&mut Outcome),
        witnesses: &'static [&'static str],
        want: Option<(Reached, Option<&'static str>)>,
    }

    const ASKED: &[&str] = &["n1", "n3", "n4"];
    const SPARE: &[&str] = &["n3", "n4", "n1"];
    const ON_LINK: &[&str] = &["10.90.0.12"];
    const BEHIND: &[&str] = &["192.0.2.12"];

    #[test]
    fn a_witness_says_what_it_knows_and_nothing_else() {
        let silent = "10.244.1.0/24: next hop 10.90.0.12 does not answer";
        let refused = "10.244.1.0/24: refused";
        let off_link = "10.244.1.0/24: 192.0.2.12 is on no network of this node; a router has to carry these packets";
        for case in [
            Case {
                name: "in place",
                addresses: ON_LINK,
                edit: |_| {},
                witnesses: ASKED,
                want: Some((Reached::Ok, None)),
            },
            Case {
                name: "not in the kernel yet",
                addresses: ON_LINK,
                edit: |outcome| outcome.settled = Arc::default(),
                witnesses: ASKED,
                want: None,
            },
            Case {
                name: "the next hop was not asked yet",
                addresses: ON_LINK,
                edit: |outcome| outcome.neighbours.clear(),
                witnesses: ASKED,
                want: None,
            },
            Case {
                name: "the next hop is silent",
                addresses: ON_LINK,
                edit: |outcome| outcome.neighbours.values_mut().for_each(|answers| *answers = false),
                witnesses: ASKED,
                want: Some((Reached::NextHopSilent, Some(silent))),
            },
            Case {
                name: "the kernel refused it",
                addresses: ON_LINK,
                edit: refuse,
                witnesses: ASKED,
                want: Some((Reached::NoRoute, Some(refused))),
            },
            Case {
                name: "a router carries it",
                addresses: BEHIND,
                edit: |outcome| outcome.carried = carried(),
                witnesses: ASKED,
                want: Some((Reached::Ok, Some("10.244.1.0/24: the default route by 10.90.0.1"))),
            },
            Case {
                name: "no router does",
                addresses: BEHIND,
                edit: |_| {},
                witnesses: ASKED,
                want: Some((Reached::NoRouter, Some(off_link))),
            },
            Case { name: "a spare has nothing to say", addresses: ON_LINK, edit: |_| {}, witnesses: SPARE, want: None },
            Case {
                name: "a spare speaks up",
                addresses: ON_LINK,
                edit: refuse,
                witnesses: SPARE,
                want: Some((Reached::NoRoute, Some(refused))),
            },
        ] {
            let mut n2 = node_route("n2", case.addresses, &["10.244.1.0/24"]);
            n2.witnesses = case.witnesses.iter().map(ToString::to_string).collect();
            let snapshot = snapshot()
                .node(node_route("n1", &["10.90.0.11"], &["10.244.0.0/24"]))
                .node(n2)
                .local([local("eth0", "10.90.0.11/24")])
                .build();
            let desired = desired::plan(&snapshot, &mut Memory::default(), Moment::default());
            let mut outcome = Outcome {
                settled: Arc::clone(&desired.routes.wanted),
                neighbours: BTreeMap::from([("10.90.0.12".parse().expect("an address"), true)]),
                ..Outcome::default()
            };
            (case.edit)(&mut outcome);
            let answers = answers(&snapshot.me, &desired, &outcome);
            let got = answers.first().map(|answer| (answer.answer, answer.message.as_deref()));
            assert_eq!(got, case.want, "{}", case.name);
        }
    }

    fn refuse(outcome: &mut Outcome) {
        let refused = (RouteExceptionReason::Refused, "refused".to_owned());
        outcome.failed = outcome.settled.routes().map(|route| (route.clone(), refused.clone())).collect();
    }

    fn carried() -> BTreeMap<Prefix, String> {
        BTreeMap::from([("10.244.1.0/24".parse().expect("a prefix"), "the default route by 10.90.0.1".to_owned())])
    }
}
