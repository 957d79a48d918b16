//! What to tell of each Advertisement: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use serde::Serialize;

use crate::api::condition::{NewConditions, Verdict};
use crate::api::{Condition, ConditionReason, ConditionStatus, ConditionType};
use crate::config::advertisement::{Advertised, Bgp, Choice, How};
use crate::config::selector::Labels;
use crate::config::{Advertisement, Faults, Selector};
use crate::model::views::NodeView;
use crate::model::{AdvertisementName, Family, PeerName, PoolName};

/// Everything the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// Every Advertisement.
    pub advertisements: BTreeMap<AdvertisementName, Arc<ObservedAdvertisement>>,
    /// Every pool, also one with faults.
    pub pools: BTreeMap<PoolName, Arc<ObservedPool>>,
    /// Every peer, also one with faults.
    pub peers: BTreeMap<PeerName, Arc<ObservedPeer>>,
    /// Every Node.
    pub nodes: Vec<Arc<NodeView>>,
    /// The name of every namespace.
    pub namespaces: BTreeSet<String>,
}

/// An `Advertisement` as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservedAdvertisement {
    /// Its name.
    pub name: AdvertisementName,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// What it says, or everything that is wrong with it.
    pub check: Result<Advertisement, Faults>,
    /// What is right and most likely not meant.
    pub remarks: Faults,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
}

/// What matters here of an `AddressPool`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservedPool {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The families of its addresses; none while it has faults.
    pub families: BTreeSet<Family>,
}

/// What matters here of a `BgpPeer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservedPeer {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// The Advertisements whose conditions have to change.
    pub statuses: BTreeMap<AdvertisementName, NewConditions>,
}

/// Decides for every Advertisement; `now` is RFC 3339.
///
/// The caller asks only once it knows every pool and peer: what it has not heard of yet is no absence.
pub fn plan(observed: &Observed, now: &str) -> Plan {
    let mut plan = Plan::default();
    for (name, view) in &observed.advertisements {
        let (ready, references, conflict) = match &view.check {
            Err(faults) => {
                let unknown = || "what it refers to is not looked at while it has faults".to_owned();
                (
                    Verdict::new(ConditionStatus::False, ConditionReason::Invalid, faults.in_a_condition()),
                    Verdict::new(ConditionStatus::Unknown, ConditionReason::Invalid, unknown()),
                    Verdict::new(ConditionStatus::Unknown, ConditionReason::Invalid, unknown()),
                )
            }
            Ok(checked) => (ready(checked, &view.remarks), references(checked, observed), conflict(checked, observed)),
        };
        let verdicts = [
            (ConditionType::Ready, ready),
            (ConditionType::ResolvedRefs, references),
            (ConditionType::Conflict, conflict),
        ];
        let version = (&*view.resource_version, view.generation);
        let new = NewConditions::unless_said(verdicts, &view.conditions, version, now);
        plan.statuses.extend(new.map(|new| (name.clone(), new)));
    }
    plan
}

fn ready(advertisement: &Advertisement, remarks: &Faults) -> Verdict {
    let message = match advertisement.how {
        How::Bgp(_) | How::Withhold => "the Advertisement is valid and in force",
        How::L2(_) => {
            "the Advertisement is valid; what only it selects is announced to nobody, since agents do not answer ARP and NDP yet"
        }
    };
    Verdict::new(ConditionStatus::True, ConditionReason::Valid, remarks.appended_to(message))
}

/// Names that nothing has, and selectors that take nothing.
fn references(advertisement: &Advertisement, observed: &Observed) -> Verdict {
    let mut missing = Vec::new();
    if let Advertised::Services(choice) = &advertisement.what {
        let known = || observed.pools.iter().map(|(name, pool)| (name, &pool.labels));
        missing.extend(unknown("AddressPool", &choice.pools, known, "spec.services.pool"));
        let unknown = choice.namespaces.iter().filter(|name| !observed.namespaces.contains(*name));
        missing.extend(unknown.map(|name| {
            format!("spec.services.namespaces: there is no Namespace {name}; it counts as soon as there is one")
        }));
    }
    let selects_nodes = advertisement.nodes != Selector::default();
    if selects_nodes && !observed.nodes.iter().any(|node| advertisement.nodes.matches(&node.labels)) {
        missing.push(idle("spec.nodeSelector", "Node"));
    }
    if let How::Bgp(bgp) = &advertisement.how {
        let known = || observed.peers.iter().map(|(name, peer)| (name, &peer.labels));
        missing.extend(unknown("BgpPeer", &bgp.peers, known, "spec.bgp.peer"));
    }
    if missing.is_empty() {
        let message = "everything that it names exists, and each selector takes something";
        return Verdict::new(ConditionStatus::True, ConditionReason::Resolved, message);
    }
    Verdict::new(ConditionStatus::False, ConditionReason::ReferenceNotFound, missing.join("; "))
}

fn idle(selector: &str, kind: &str) -> String {
    format!("{selector} takes no {kind}; one counts as soon as it has the labels")
}

/// `field` is what the names of both fields begin with, that of names and that of the selector.
fn unknown<'a, N: Ord + Display + 'a, I: Iterator<Item = (&'a N, &'a Labels)>>(
    kind: &str,
    choice: &Choice<N>,
    known: impl Fn() -> I,
    field: &str,
) -> Vec<String> {
    let Choice::Of { names, selector } = choice else { return Vec::new() };
    let there: BTreeSet<&N> = known().map(|(name, _)| name).collect();
    let missing = names.iter().filter(|name| !there.contains(name));
    let missing = missing.map(|name| format!("{field}s: there is no {kind} {name}; it counts as soon as there is one"));
    let is_idle = |selector: &&Selector| !known().any(|(_, labels)| selector.matches(labels));
    let idle_selector = selector.iter().filter(is_idle).map(|_| idle(&format!("{field}Selector"), kind));
    missing.chain(idle_selector).collect()
}

/// What others say otherwise of the same routes to the same peers.
fn conflict(advertisement: &Advertisement, observed: &Observed) -> Verdict {
    let others = observed.advertisements.values().filter_map(|view| view.check.as_ref().ok());
    let others = others.filter(|other| other.name != advertisement.name && may_meet(advertisement, other, observed));
    let differences: Vec<String> = others.filter_map(|other| difference(advertisement, other)).collect();
    if differences.is_empty() {
        let message = "no other Advertisement says something else of the same routes".to_owned();
        return Verdict::new(ConditionStatus::False, ConditionReason::NoConflict, message);
    }
    Verdict::new(ConditionStatus::True, ConditionReason::AttributesDiffer, differences.join("; "))
}

/// What two that speak of one route say differently, and which of it is told.
fn difference(mine: &Advertisement, other: &Advertisement) -> Option<String> {
    let (How::Bgp(a), How::Bgp(b)) = (&mine.how, &other.how) else { return None };
    let differs = |field: &str, mine: Option<u32>, theirs: Option<u32>, which: fn(u32, u32) -> u32| {
        let (mine, theirs) = mine.zip(theirs).filter(|(mine, theirs)| mine != theirs)?;
        let told = which(mine, theirs);
        Some(format!(
            "spec.bgp.{field}: {mine} here and {theirs} in Advertisement {}: routes of both have {told}",
            other.name
        ))
    };
    let all = [
        differs("localPreference", a.local_preference, b.local_preference, u32::max),
        differs("med", a.med, b.med, u32::min),
        differs("asPathPrepend", a.prepend.map(u32::from), b.prepend.map(u32::from), u32::min),
    ];
    let told: Vec<String> = all.into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Whether two may give one prefix to one peer from one node, as far as what people wrote shows. Which
/// Services there are does not matter: they come and go.
fn may_meet(one: &Advertisement, other: &Advertisement, observed: &Observed) -> bool {
    let (How::Bgp(a), How::Bgp(b)) = (&one.how, &other.how) else { return false };
    one.nodes.may_meet(&other.nodes) && peers_meet(a, b, observed) && routes_meet((one, a), (other, b), observed)
}

fn peers_meet(a: &Bgp, b: &Bgp, observed: &Observed) -> bool {
    let told = |(name, peer): (&PeerName, &Arc<ObservedPeer>)| {
        a.peers.takes(name, &peer.labels) && b.peers.takes(name, &peer.labels)
    };
    observed.peers.iter().any(told)
}

fn routes_meet((one, a): (&Advertisement, &Bgp), (other, b): (&Advertisement, &Bgp), observed: &Observed) -> bool {
    let (one, other) = match (&one.what, &other.what) {
        (Advertised::PodCidrs, Advertised::PodCidrs) => {
            return same_length(a, b, Family::V4) || same_length(a, b, Family::V6);
        }
        (Advertised::Services(one), Advertised::Services(other)) => (one, other),
        (Advertised::PodCidrs, Advertised::Services(_)) | (Advertised::Services(_), Advertised::PodCidrs) => {
            return false;
        }
    };
    let namespaces_meet =
        one.namespaces.is_empty() || other.namespaces.is_empty() || !one.namespaces.is_disjoint(&other.namespaces);
    let same_service = namespaces_meet && one.services.may_meet(&other.services);
    [Family::V4, Family::V6].into_iter().filter(|family| same_length(a, b, *family)).any(|family| {
        let length = a.length(family).unwrap_or(family.bits());
        // Of addresses by themselves one Service is meant; a network has room for many.
        if length == family.bits() && !same_service {
            return false;
        }
        // A route reaches no further than a block of one pool, so only a pool of both can give the same one.
        let is_of_both = |(name, pool): (&PoolName, &Arc<ObservedPool>)| {
            let taken_by = |choice: &Choice<PoolName>| choice.takes(name, &pool.labels);
            pool.families.contains(&family) && taken_by(&one.pools) && taken_by(&other.pools)
        };
        one.pools.is_any() && other.pools.is_any() || observed.pools.iter().any(is_of_both)
    })
}

fn same_length(a: &Bgp, b: &Bgp, family: Family) -> bool {
    let full = family.bits();
    a.length(family).unwrap_or(full) == b.length(family).unwrap_or(full)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::remark;
    use crate::model::cases;

    const NOW: &str = "2027-01-01T00:00:00Z";

    fn view(name: &str, spec: Value) -> (AdvertisementName, Arc<ObservedAdvertisement>) {
        let name: AdvertisementName = name.parse().expect("a name");
        let spec = serde_json::from_value(spec).expect("a spec");
        let (check, remarks) = (Advertisement::check(name.as_str(), &spec), remark::of_advertisement(&spec));
        let (resource_version, generation, conditions) = ("7".to_owned(), Some(1), Vec::new());
        (
            name.clone(),
            Arc::new(ObservedAdvertisement { name, resource_version, generation, check, remarks, conditions }),
        )
    }

    fn node(name: &str, labels: &[(&str, &str)]) -> Arc<NodeView> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Arc::new(NodeView { labels, ..cases::node(name) })
    }

    /// Nodes `n1` and `n2` in racks `r1` and `r2`, namespaces `x` and `y`, pools `public` (both families) and `office` (IPv4), each labelled `tier: NAME`, and peers `a` and `b`.
    fn observed(advertisements: &[(&str, Value)]) -> Observed {
        let pool = |name: &str, families: &[Family]| {
            let labels = BTreeMap::from([("tier".to_owned(), name.to_owned())]);
            let families = families.iter().copied().collect();
            (name.parse().expect("a name"), Arc::new(ObservedPool { labels, families }))
        };
        let peer = |name: &str| (name.parse().expect("a name"), Arc::new(ObservedPeer { labels: BTreeMap::new() }));
        Observed {
            advertisements: advertisements.iter().map(|(name, spec)| view(name, spec.clone())).collect(),
            pools: [pool("public", &[Family::V4, Family::V6]), pool("office", &[Family::V4])].into(),
            peers: [peer("a"), peer("b")].into(),
            nodes: vec![node("n1", &[("rack", "r1")]), node("n2", &[("rack", "r2")])],
            namespaces: ["x", "y"].map(ToOwned::to_owned).into(),
        }
    }

    fn told(plan: &Plan, name: &str, kind: ConditionType) -> (ConditionStatus, String) {
        let written = &plan.statuses[&name.parse().expect("a name")];
        let condition = written.conditions.iter().find(|condition| condition.kind == kind).expect("a condition");
        (condition.status, condition.message.clone())
    }

    #[test]
    fn names_that_nothing_has_are_told_and_no_fault() {
        let spec = json!({ "services": { "pools": ["public", "none"] }, "bgp": { "peers": ["nobody", "a"] } });
        let mut observed = observed(&[("x", spec)]);
        let plan_of = |observed: &Observed| plan(observed, NOW);
        assert_eq!(told(&plan_of(&observed), "x", ConditionType::Ready).0, ConditionStatus::True);
        let want = "spec.services.pools: there is no AddressPool none; it counts as soon as there is one; \
                    spec.bgp.peers: there is no BgpPeer nobody; it counts as soon as there is one";
        assert_eq!(
            told(&plan_of(&observed), "x", ConditionType::ResolvedRefs),
            (ConditionStatus::False, want.to_owned())
        );
        let pool = Arc::clone(&observed.pools[&"public".parse().expect("a name")]);
        observed.pools.insert("none".parse().expect("a name"), pool);
        let peer = Arc::clone(&observed.peers[&"a".parse().expect("a name")]);
        observed.peers.insert("nobody".parse().expect("a name"), peer);
        assert_eq!(told(&plan_of(&observed), "x", ConditionType::ResolvedRefs).0, ConditionStatus::True);
    }

    #[test]
    fn selectors_that_take_nothing_are_told_until_they_take_something() {
        let selector = json!({ "matchLabels": { "tier": "edge" } });
        let spec = json!({ "services": { "poolSelector": selector }, "bgp": { "peerSelector": selector } });
        let mut observed = observed(&[("x", spec)]);
        let refs_of = |observed: &Observed| told(&plan(observed, NOW), "x", ConditionType::ResolvedRefs);
        let no_pool = "spec.services.poolSelector takes no AddressPool; one counts as soon as it has the labels";
        let no_peer = "spec.bgp.peerSelector takes no BgpPeer; one counts as soon as it has the labels";
        assert_eq!(refs_of(&observed), (ConditionStatus::False, format!("{no_pool}; {no_peer}")));
        let labels = BTreeMap::from([("tier".to_owned(), "edge".to_owned())]);
        let pool = ObservedPool { labels: labels.clone(), families: BTreeSet::new() };
        observed.pools.insert("public".parse().expect("a name"), Arc::new(pool));
        assert_eq!(refs_of(&observed), (ConditionStatus::False, no_peer.to_owned()));
        observed.peers.insert("a".parse().expect("a name"), Arc::new(ObservedPeer { labels }));
        assert_eq!(refs_of(&observed).0, ConditionStatus::True);
        observed.peers.clear();
        assert_eq!(refs_of(&observed), (ConditionStatus::False, no_peer.to_owned()));
    }

    #[test]
    fn nodes_and_namespaces_that_are_not_there_are_told_until_they_are() {
        let spec = json!({ "services": { "namespaces": ["x", "shop"] }, "nodeSelector": { "rack": "r9" }, "bgp": {} });
        let mut observed = observed(&[("x", spec)]);
        let refs_of = |observed: &Observed| told(&plan(observed, NOW), "x", ConditionType::ResolvedRefs);
        let no_namespace = "spec.services.namespaces: there is no Namespace shop; it counts as soon as there is one";
        let no_node = "spec.nodeSelector takes no Node; one counts as soon as it has the labels";
        assert_eq!(refs_of(&observed), (ConditionStatus::False, format!("{no_namespace}; {no_node}")));
        observed.namespaces.insert("shop".to_owned());
        assert_eq!(refs_of(&observed), (ConditionStatus::False, no_node.to_owned()));
        observed.nodes.push(node("n9", &[("rack", "r9")]));
        assert_eq!(refs_of(&observed).0, ConditionStatus::True);
    }

    #[test]
    fn every_fault_is_in_the_condition() {
        let spec = json!({ "services": {}, "bgp": { "communities": ["x"], "asPathPrepend": 99 } });
        let (status, message) = told(&plan(&observed(&[("x", spec)]), NOW), "x", ConditionType::Ready);
        assert_eq!(status, ConditionStatus::False);
        assert!(message.contains("spec.bgp.communities[0]") && message.contains("spec.bgp.asPathPrepend"), "{message}");
    }

    #[test]
    fn what_is_said_twice_is_told_and_no_fault() {
        let spec = json!({ "services": {}, "bgp": { "communities": ["no-export", "no-export"] } });
        let told = told(&plan(&observed(&[("x", spec)]), NOW), "x", ConditionType::Ready);
        let want = "the Advertisement is valid and in force; spec.bgp.communities[1]: says what spec.bgp.communities[0] \
                    says already: leave one of the two";
        assert_eq!(told, (ConditionStatus::True, want.to_owned()));
    }

    #[test]
    fn two_that_say_something_else_of_the_same_routes_are_told() {
        let of = |services: Value, bgp: Value| json!({ "services": services, "bgp": bgp });
        let any = |bgp: Value| of(json!({}), bgp);
        struct Case {
            name: &'static str,
            one: Value,
            other: Value,
            conflict: bool,
        }
        for case in [
            Case { name: "the same", one: any(json!({ "med": 1 })), other: any(json!({ "med": 1 })), conflict: false },
            Case { name: "a MED", one: any(json!({ "med": 1 })), other: any(json!({ "med": 2 })), conflict: true },
            Case {
                name: "one is silent",
                one: any(json!({ "med": 1 })),
                other: any(json!({ "localPreference": 2 })),
                conflict: false,
            },
            Case {
                name: "communities add up",
                one: any(json!({ "communities": ["64512:1"] })),
                other: any(json!({ "communities": ["64512:2"] })),
                conflict: false,
            },
            Case {
                name: "different peers",
                one: any(json!({ "med": 1, "peers": ["a"] })),
                other: any(json!({ "med": 2, "peers": ["b"] })),
                conflict: false,
            },
            Case {
                name: "different pools",
                one: of(json!({ "pools": ["public"] }), json!({ "med": 1 })),
                other: of(json!({ "poolSelector": { "matchLabels": { "tier": "office" } } }), json!({ "med": 2 })),
                conflict: false,
            },
            Case {
                name: "one pool, by name and by label",
                one: of(json!({ "pools": ["office"] }), json!({ "med": 1 })),
                other: of(json!({ "poolSelector": { "matchLabels": { "tier": "office" } } }), json!({ "med": 2 })),
                conflict: true,
            },
            Case {
                name: "different lengths",
                one: any(json!({ "med": 1, "aggregationLength": 24, "aggregationLengthV6": 64 })),
                other: any(json!({ "med": 2 })),
                conflict: false,
            },
            Case {
                name: "the same length of a family that the pool has not",
                one: of(json!({ "pools": ["office"] }), json!({ "med": 1, "aggregationLength": 24 })),
                other: of(json!({ "pools": ["office"] }), json!({ "med": 2 })),
                conflict: false,
            },
            Case {
                name: "different namespaces",
                one: of(json!({ "namespaces": ["x"] }), json!({ "med": 1 })),
                other: of(json!({ "namespaces": ["y"] }), json!({ "med": 2 })),
                conflict: false,
            },
            Case {
                name: "different namespaces in one network",
                one: of(json!({ "namespaces": ["x"] }), json!({ "med": 1, "aggregationLength": 24 })),
                other: of(json!({ "namespaces": ["y"] }), json!({ "med": 2, "aggregationLength": 24 })),
                conflict: true,
            },
            Case {
                name: "different nodes",
                one: json!({ "podCidrs": {}, "nodeSelector": { "rack": "r1" }, "bgp": { "med": 1 } }),
                other: json!({ "podCidrs": {}, "nodeSelector": { "rack": "r2" }, "bgp": { "med": 2 } }),
                conflict: false,
            },
            Case {
                name: "pods",
                one: json!({ "podCidrs": {}, "bgp": { "asPathPrepend": 1 } }),
                other: json!({ "podCidrs": {}, "bgp": { "asPathPrepend": 2 } }),
                conflict: true,
            },
            Case {
                name: "pods and Services",
                one: any(json!({ "med": 1 })),
                other: json!({ "podCidrs": {}, "bgp": { "med": 2 } }),
                conflict: false,
            },
        ] {
            let plan = plan(&observed(&[("one", case.one), ("other", case.other)]), NOW);
            let want = if case.conflict { ConditionStatus::True } else { ConditionStatus::False };
            for name in ["one", "other"] {
                assert_eq!(told(&plan, name, ConditionType::Conflict).0, want, "{}: {name}", case.name);
            }
        }
        let two = observed(&[("one", any(json!({ "med": 1 }))), ("other", any(json!({ "med": 2 })))]);
        let (_, message) = told(&plan(&two, NOW), "one", ConditionType::Conflict);
        assert_eq!(message, "spec.bgp.med: 1 here and 2 in Advertisement other: routes of both have 1");
    }

    #[test]
    fn what_stands_there_is_not_written_again_and_times_stay_while_the_status_does() {
        let mut observed = observed(&[("x", json!({ "services": {}, "bgp": { "peers": ["nobody"] } }))]);
        let first = plan(&observed, NOW);
        let apply = |observed: &mut Observed, plan: &Plan| {
            for (name, written) in &plan.statuses {
                let view = ObservedAdvertisement::clone(&observed.advertisements[name]);
                let conditions = written.conditions.clone();
                observed.advertisements.insert(name.clone(), Arc::new(ObservedAdvertisement { conditions, ..view }));
            }
        };
        apply(&mut observed, &first);
        assert_eq!(plan(&observed, "2027-01-01T01:00:00Z"), Plan::default());
        let peer = Arc::clone(&observed.peers[&"a".parse().expect("a name")]);
        observed.peers.insert("nobody".parse().expect("a name"), peer);
        let later = plan(&observed, "2027-01-01T01:00:00Z");
        let times: Vec<_> =
            later.statuses.values().flat_map(|w| &w.conditions).map(|c| c.last_transition_time.as_str()).collect();
        assert_eq!(times, [NOW, "2027-01-01T01:00:00Z", NOW]);
    }
}
