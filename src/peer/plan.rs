//! What to tell of each BgpPeer: pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::api::condition::{NewConditions, Verdict};
use crate::api::{Condition, ConditionReason, ConditionStatus, ConditionType};
use crate::config::{Faults, Peer};
use crate::model::views::NodeView;
use crate::model::{NodeName, PeerName};

/// Everything the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// Every peer.
    pub peers: BTreeMap<PeerName, Arc<ObservedPeer>>,
    /// Every Node, by name.
    pub nodes: Vec<Arc<NodeView>>,
}

/// A `BgpPeer` as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservedPeer {
    /// Its name.
    pub name: PeerName,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.creationTimestamp` in seconds since 1970: of two of one router, the older is in force.
    pub created_seconds: i64,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// What it says, or everything that is wrong with it.
    pub check: Result<Peer, Faults>,
    /// What is right and most likely not meant.
    pub remarks: Faults,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
}

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// The peers whose conditions have to change.
    pub statuses: BTreeMap<PeerName, NewConditions>,
}

/// Decides for every peer; `now` is RFC 3339.
///
/// The caller asks only once it knows every peer and Node: what it has not heard of yet is no absence.
pub fn plan(observed: &Observed, now: &str) -> Plan {
    let mut plan = Plan::default();
    for (name, view) in &observed.peers {
        let (ready, references, conflict) = match &view.check {
            Err(faults) => of_a_wrong_one(faults),
            Ok(peer) => {
                let standing = Standing::of(peer, view, observed);
                (standing.ready(&view.remarks), standing.references(), standing.conflict(peer))
            }
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

fn of_a_wrong_one(faults: &Faults) -> (Verdict, Verdict, Verdict) {
    let unknown = || {
        let message = "this is not looked at while it has faults";
        Verdict::new(ConditionStatus::Unknown, ConditionReason::Invalid, message)
    };
    (Verdict::new(ConditionStatus::False, ConditionReason::Invalid, faults.in_a_condition()), unknown(), unknown())
}

/// What of its nodes a peer has.
struct Standing<'a> {
    /// Whether its selector takes a Node.
    takes_a_node: bool,
    /// Whether a Node keeps a session by it.
    is_in_use: bool,
    /// An older peer of the same router, and the first Node that keeps its session by that one.
    taken: Option<(&'a Peer, &'a NodeName)>,
}

impl<'a> Standing<'a> {
    fn of(peer: &Peer, view: &ObservedPeer, observed: &'a Observed) -> Self {
        let others = observed
            .peers
            .values()
            .filter(|other| (other.created_seconds, &other.name) < (view.created_seconds, &view.name));
        let mut older: Vec<_> = others
            .filter_map(|other| Some((other.created_seconds, other.check.as_ref().ok()?)))
            .filter(|(_, other)| other.is_same_router(peer))
            .collect();
        older.sort_by_key(|(created_seconds, other)| (*created_seconds, &other.name));
        let mut standing = Self { takes_a_node: false, is_in_use: false, taken: None };
        for node in observed.nodes.iter().filter(|node| peer.selects(&node.labels)) {
            standing.takes_a_node = true;
            match older.iter().find(|(_, other)| other.selects(&node.labels)) {
                None => standing.is_in_use = true,
                Some((_, other)) => _ = standing.taken.get_or_insert((other, &node.name)),
            }
            // A count of nodes would be written again with each that joins.
            if standing.is_in_use && (standing.taken.is_some() || older.is_empty()) {
                break;
            }
        }
        standing
    }

    fn ready(&self, remarks: &Faults) -> Verdict {
        if self.taken.is_some() && !self.is_in_use {
            let message = "no node keeps a session by it: see the condition Conflict";
            return Verdict::new(ConditionStatus::False, ConditionReason::RouterTaken, message);
        }
        let message = "the BgpPeer is valid and in force; the report of each node says whether its session stands";
        Verdict::new(ConditionStatus::True, ConditionReason::Valid, remarks.appended_to(message))
    }

    fn references(&self) -> Verdict {
        if self.takes_a_node {
            let message = "its nodes are there";
            return Verdict::new(ConditionStatus::True, ConditionReason::Resolved, message);
        }
        let message = "spec.nodeSelector takes no Node; one counts as soon as it has the labels";
        Verdict::new(ConditionStatus::False, ConditionReason::ReferenceNotFound, message)
    }

    fn conflict(&self, peer: &Peer) -> Verdict {
        let Some((other, node)) = self.taken else {
            let message = "no older BgpPeer names its router for one of its nodes";
            return Verdict::new(ConditionStatus::False, ConditionReason::NoConflict, message);
        };
        let message = format!("spec.address: {}; node {node} keeps to {}, the older", peer.doubles(other), other.name);
        Verdict::new(ConditionStatus::True, ConditionReason::RouterTaken, message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::cases;

    const NOW: &str = "2027-01-01T00:00:00Z";
    const LATER: &str = "2027-01-01T01:00:00Z";

    /// Peers of these ages and fields, and nodes `n1` and `n2` in racks `r1` and `r2`.
    fn observed(peers: &[(&str, i64, Value)]) -> Observed {
        let peer = |(name, created_seconds, more): &(&str, i64, Value)| {
            let mut spec = json!({ "localAsn": 64513, "peerAsn": 64512, "address": "10.90.0.1" });
            spec.as_object_mut().expect("a spec").extend(more.as_object().expect("fields").clone());
            let name: PeerName = name.parse().expect("a name");
            let check = Peer::check(name.as_str(), &serde_json::from_value(spec).expect("a spec"));
            let (resource_version, generation, conditions) = ("7".to_owned(), Some(3), Vec::new());
            let remarks = Faults::NONE;
            let created_seconds = *created_seconds;
            let view = ObservedPeer {
                name: name.clone(),
                resource_version,
                created_seconds,
                generation,
                check,
                remarks,
                conditions,
            };
            (name, Arc::new(view))
        };
        Observed { peers: peers.iter().map(peer).collect(), nodes: vec![node("n1", "r1"), node("n2", "r2")] }
    }

    fn node(name: &str, rack: &str) -> Arc<NodeView> {
        let labels = BTreeMap::from([("rack".to_owned(), rack.to_owned())]);
        Arc::new(NodeView { labels, ..cases::node(name) })
    }

    fn told(plan: &Plan, name: &str) -> Vec<(ConditionType, ConditionStatus, ConditionReason, String)> {
        let written = &plan.statuses[&name.parse().expect("a name")];
        written.conditions.iter().map(|c| (c.kind, c.status, c.reason, c.message.clone())).collect()
    }

    #[test]
    fn each_is_told_how_it_stands() {
        use ConditionStatus::{False, True, Unknown};
        let rack = |rack: &str| json!({ "nodeSelector": { "rack": rack } });
        struct Case {
            name: &'static str,
            peers: Vec<(&'static str, i64, Value)>,
            /// Of the peer `x`: Ready, ResolvedRefs, Conflict.
            want: [ConditionStatus; 3],
            words: &'static str,
        }
        for case in [
            Case { name: "right", peers: vec![("x", 5, json!({}))], want: [True, True, False], words: "" },
            Case {
                name: "two faults, both told",
                peers: vec![("x", 5, json!({ "address": "224.0.0.5", "nodeSelector": { "rack": "a b" } }))],
                want: [False, Unknown, Unknown],
                words: "BgpPeer x: spec.address: 224.0.0.5 is a multicast address: it takes an address of the router itself, \
                        such as 10.90.0.1 or fd90::1; BgpPeer x: spec.nodeSelector.rack: \"a b\" is not the value of a label",
            },
            Case {
                name: "no node has its labels",
                peers: vec![("x", 5, rack("r9"))],
                want: [True, False, False],
                words: "spec.nodeSelector takes no Node",
            },
            Case {
                name: "an older one has its router",
                peers: vec![("x", 5, json!({})), ("older", 4, json!({}))],
                want: [False, True, True],
                words: "spec.address: 10.90.0.1 with port 179 is the router of BgpPeer older: a node keeps one session with a \
                        router, so leave one of the two, or select other nodes; node n1 keeps to older, the older",
            },
            Case {
                name: "an older one has it on one node",
                peers: vec![("x", 5, json!({})), ("older", 4, rack("r2"))],
                want: [True, True, True],
                words: "node n2 keeps to older",
            },
            Case {
                name: "a younger one names the same",
                peers: vec![("x", 5, json!({})), ("younger", 6, json!({}))],
                want: [True, True, False],
                words: "",
            },
            Case {
                name: "of one age, the first name counts",
                peers: vec![("x", 5, json!({})), ("a", 5, json!({}))],
                want: [False, True, True],
                words: "router of BgpPeer a",
            },
            Case {
                name: "on other nodes, at another port, wrong",
                peers: vec![
                    ("x", 5, rack("r1")),
                    ("elsewhere", 4, rack("r2")),
                    ("port", 4, json!({ "port": 1179 })),
                    ("wrong", 4, json!({ "holdTimeSeconds": 1 })),
                ],
                want: [True, True, False],
                words: "",
            },
        ] {
            let told = told(&plan(&observed(&case.peers), NOW), "x");
            assert_eq!(told.iter().map(|(_, status, ..)| *status).collect::<Vec<_>>(), case.want, "{}", case.name);
            assert!(told.iter().any(|(.., message)| message.contains(case.words)), "{}: {told:#?}", case.name);
        }
    }

    #[test]
    fn what_stands_there_is_not_written_again_and_a_node_that_joins_is_no_news() {
        let mut observed = observed(&[("x", 5, json!({})), ("older", 4, json!({}))]);
        let first = plan(&observed, NOW);
        for (name, written) in &first.statuses {
            assert!(written.conditions.iter().all(|condition| condition.observed_generation == Some(3)));
            let view = ObservedPeer::clone(&observed.peers[name]);
            let conditions = written.conditions.clone();
            observed.peers.insert(name.clone(), Arc::new(ObservedPeer { conditions, ..view }));
        }
        observed.nodes.push(node("n3", "r3"));
        assert_eq!(plan(&observed, LATER), Plan::default());
        observed.peers.remove(&"older".parse().expect("a name"));
        let later = plan(&observed, LATER);
        let times: Vec<_> =
            later.statuses.values().flat_map(|w| &w.conditions).map(|c| c.last_transition_time.as_str()).collect();
        assert_eq!(times, [LATER, NOW, LATER], "Ready and Conflict change");
    }
}
