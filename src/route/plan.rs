//! What to write for each Node's routes: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::witnesses;
use crate::api::{EntryFlag, NodeReportStatus, NodeRouteSpec};
use crate::model::NodeName;
use crate::model::views::{NodeView, Truth};

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Everything the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// Every Node.
    pub nodes: BTreeMap<NodeName, Arc<NodeView>>,
    /// Every `NodeRoute`.
    pub routes: BTreeMap<NodeName, Arc<ObservedRoute>>,
    /// Every `NodeReport`.
    pub reports: BTreeMap<NodeName, Arc<NodeReportStatus>>,
}

/// A `NodeRoute` as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedRoute {
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// The uid of the Node it belongs to, by its owner reference.
    pub owner_uid: Option<String>,
    /// What it says.
    pub spec: NodeRouteSpec,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// At most one action a `NodeRoute`.
    pub routes: BTreeMap<NodeName, RouteAction>,
    /// The Nodes whose condition `NetworkUnavailable` has to change.
    pub conditions: BTreeMap<NodeName, Network>,
}

/// What to do with one `NodeRoute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum RouteAction {
    /// Create it, or make it say this.
    Write {
        /// The uid of the Node that owns it.
        owner_uid: String,
        /// What it is to say.
        spec: NodeRouteSpec,
    },
    /// Delete it: its Node is gone.
    Delete,
}

/// Whether pods of a Node can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Every witness has its routes.
    Routed,
    /// Someone lacks one of its routes.
    NotRouted,
}

impl Network {
    /// Status of the condition `NetworkUnavailable`.
    pub fn unavailable(self) -> Truth {
        match self {
            Self::Routed => Truth::False,
            Self::NotRouted => Truth::True,
        }
    }

    /// Reason of the condition, as upstream's route controller gives it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Routed => "RouteCreated",
            Self::NotRouted => "NoRouteCreated",
        }
    }

    /// Message of the condition, as upstream's route controller gives it.
    pub fn message(self) -> &'static str {
        match self {
            Self::Routed => "RouteController created a route",
            Self::NotRouted => "RouteController failed to create a route",
        }
    }
}

/// Decides for every Node.
///
/// The caller asks only once it knows every Node and every `NodeRoute`: a `NodeRoute` whose Node
/// is not in `observed` is deleted.
pub fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    let ready: BTreeSet<_> = observed.nodes.values().filter(|node| can_witness(node)).map(|node| &node.name).collect();
    for (name, node) in observed.nodes.iter().filter(|(_, node)| !node.pod_cidrs.is_empty()) {
        let known = observed.routes.get(name);
        let known_addresses = known.map(|route| route.spec.addresses.as_slice()).unwrap_or_default();
        let addresses = addresses(node, known_addresses);
        // Before its Node is initialized there is no way to it, and nothing to tell.
        if known.is_none() && addresses.is_empty() {
            continue;
        }
        let known_witnesses = known.map(|route| route.spec.witnesses.as_slice()).unwrap_or_default();
        let spec = spec(node, addresses, witnesses::choose(name, known_witnesses, &ready));
        let is_right = known.is_some_and(|route| route.spec == spec && route.owner_uid.as_ref() == Some(&node.uid));
        let network = network(node, &spec, observed);
        if !is_right {
            plan.routes.insert(name.clone(), RouteAction::Write { owner_uid: node.uid.clone(), spec });
        }
        plan.conditions.extend(network.filter(|network| !says(node, *network)).map(|network| (name.clone(), network)));
    }
    let gone = observed.routes.keys().filter(|name| !observed.nodes.contains_key(name));
    plan.routes.extend(gone.map(|name| (name.clone(), RouteAction::Delete)));
    plan
}

fn can_witness(node: &NodeView) -> bool {
    node.ready == Some(Truth::True) && !node.is_deleting && !node.pod_cidrs.is_empty()
}

/// A Node that shows no address (any more, or yet again) did not lose its network: those it had stand
/// until it has others.
fn addresses(node: &NodeView, known: &[String]) -> Vec<String> {
    let shown: Vec<_> = node.internal_ips().take(16).map(|ip| ip.to_string()).collect();
    if shown.is_empty() { known.to_vec() } else { shown }
}

fn spec(node: &NodeView, addresses: Vec<String>, witnesses: Vec<String>) -> NodeRouteSpec {
    // The flag is read as a boolean since Kubernetes 1.34: only a plain false includes the Node.
    let entry = match node.labels.get(EXCLUDED).map(|value| is_false(value)) {
        None | Some(true) => EntryFlag::Eligible,
        Some(false) => EntryFlag::ExcludedByLabel,
    };
    NodeRouteSpec {
        addresses,
        pod_cidrs: node.pod_cidrs.iter().map(ToString::to_string).collect(),
        zone: node.labels.get(ZONE).filter(|zone| !zone.is_empty()).cloned(),
        entry,
        witnesses,
    }
}

/// The spellings that Go's `strconv.ParseBool` takes for false.
fn is_false(value: &str) -> bool {
    ["0", "f", "F", "false", "False", "FALSE"].contains(&value)
}

/// What the reports say of a Node's routes; `None` while someone who is asked has not answered.
fn network(node: &NodeView, spec: &NodeRouteSpec, observed: &Observed) -> Option<Network> {
    let digest = spec.digest();
    let name = node.name.as_str();
    let own = current_report(node, observed)?;
    let own_answer = answer(own.own_route.as_ref() == Some(&digest), own, name);
    let witness_answers = spec.witnesses.iter().map(|witness| {
        let witness = observed.nodes.get(&witness.parse::<NodeName>().ok()?)?;
        let report = current_report(witness, observed)?;
        let has_routes = report.witnessed.iter().any(|seen| seen.node == name && seen.route == digest);
        answer(has_routes, report, name)
    });
    let answers: Vec<_> = std::iter::once(own_answer).chain(witness_answers).collect();
    if answers.contains(&Some(Network::NotRouted)) {
        Some(Network::NotRouted)
    } else if answers.contains(&None) {
        None
    } else {
        Some(Network::Routed)
    }
}

fn answer(has_routes: bool, report: &NodeReportStatus, node: &str) -> Option<Network> {
    if has_routes {
        Some(Network::Routed)
    } else if report.routes.exceptions.iter().any(|exception| exception.node == node) {
        Some(Network::NotRouted)
    } else {
        None
    }
}

/// A report of an earlier boot says nothing of today's routes.
fn current_report<'a>(node: &NodeView, observed: &'a Observed) -> Option<&'a NodeReportStatus> {
    let report = observed.reports.get(&node.name)?;
    node.boot_id.as_ref().is_none_or(|boot_id| *boot_id == report.boot_id).then_some(&**report)
}

fn says(node: &NodeView, network: Network) -> bool {
    node.network_unavailable
        .as_ref()
        .is_some_and(|(status, reason)| *status == network.unavailable() && reason == network.reason())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{RouteException, RouteExceptionReason, Witnessed};
    use crate::model::views::{NodeAddress, NodeAddressKind};

    fn name(text: &str) -> NodeName {
        text.parse().expect("a name")
    }

    fn node(text: &str, number: u8) -> NodeView {
        NodeView {
            name: name(text),
            uid: format!("uid-{text}"),
            resource_version: "1".to_owned(),
            created_seconds: 0,
            is_deleting: false,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            provided_node_ip: None,
            provider_id: None,
            pod_cidrs: vec![format!("10.244.{number}.0/24").parse().expect("a prefix")],
            unread_pod_cidrs: Vec::new(),
            pod_cidr_unavailable: None,
            taints: Vec::new(),
            addresses: vec![NodeAddress { kind: NodeAddressKind::InternalIp, address: format!("10.90.0.{number}") }],
            ready: Some(Truth::True),
            network_unavailable: None,
            system_uuid: None,
            boot_id: None,
        }
    }

    fn labelled(labels: &[(&str, &str)]) -> NodeView {
        let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        NodeView { labels, ..node("n1", 1) }
    }

    fn observed(nodes: Vec<NodeView>) -> Observed {
        let nodes = nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node))).collect();
        Observed { nodes, ..Observed::default() }
    }

    /// What the cluster is once the plan was carried out.
    fn applied(mut observed: Observed, plan: &Plan) -> Observed {
        for (name, action) in &plan.routes {
            match action.clone() {
                RouteAction::Delete => drop(observed.routes.remove(name)),
                RouteAction::Write { owner_uid, spec } => {
                    let route = ObservedRoute { resource_version: "2".to_owned(), owner_uid: Some(owner_uid), spec };
                    observed.routes.insert(name.clone(), Arc::new(route));
                }
            }
        }
        for (name, network) in &plan.conditions {
            let mut node = NodeView::clone(&observed.nodes[name]);
            node.network_unavailable = Some((network.unavailable(), network.reason().to_owned()));
            observed.nodes.insert(name.clone(), Arc::new(node));
        }
        observed
    }

    fn settled(nodes: Vec<NodeView>) -> Observed {
        let observed = observed(nodes);
        let plan = plan(&observed);
        applied(observed, &plan)
    }

    fn written<'a>(plan: &'a Plan, node: &str) -> &'a NodeRouteSpec {
        match plan.routes.get(&name(node)) {
            Some(RouteAction::Write { spec, .. }) => spec,
            other => panic!("{node}: {other:?}"),
        }
    }

    /// Reports in which every agent has every other node's routes.
    fn report_all(observed: &mut Observed) {
        for name in observed.nodes.keys() {
            let seen = |(other, route): (&NodeName, &Arc<ObservedRoute>)| Witnessed {
                node: other.to_string(),
                route: route.spec.digest(),
            };
            let report = NodeReportStatus {
                boot_id: "boot-1".to_owned(),
                own_route: observed.routes.get(name).map(|route| route.spec.digest()),
                witnessed: observed.routes.iter().filter(|(other, _)| *other != name).map(seen).collect(),
                ..NodeReportStatus::default()
            };
            observed.reports.insert(name.clone(), Arc::new(report));
        }
    }

    fn edit_report(observed: &mut Observed, node: &str, edit: impl FnOnce(&mut NodeReportStatus)) {
        edit(Arc::make_mut(observed.reports.get_mut(&name(node)).expect("a report")));
    }

    fn exception(node: &str) -> RouteException {
        RouteException {
            node: node.to_owned(),
            cidr: "10.244.1.0/24".to_owned(),
            reason: RouteExceptionReason::Refused,
            message: "refused".to_owned(),
        }
    }

    #[test]
    fn a_node_that_lost_its_addresses_keeps_its_way() {
        let mut observed = settled(vec![node("n1", 1)]);
        let again = NodeView { uid: "uid-again".to_owned(), addresses: Vec::new(), ..node("n1", 1) };
        observed.nodes.insert(name("n1"), Arc::new(again));
        let plan = plan(&observed);
        assert_eq!(written(&plan, "n1").addresses, ["10.90.0.1"], "its new owner is written, its way stays");
        let cleared = NodeView { addresses: Vec::new(), ..node("n1", 1) };
        observed.nodes.insert(name("n1"), Arc::new(cleared));
        assert_eq!(super::plan(&observed).routes, BTreeMap::new());
    }

    #[test]
    fn a_node_with_pod_cidrs_has_a_node_route() {
        let view = NodeView {
            pod_cidrs: vec!["10.244.1.0/24".parse().expect("a prefix"), "fd00:244:1::/64".parse().expect("a prefix")],
            ..labelled(&[(ZONE, "row-a")])
        };
        let plan = plan(&observed(vec![view, NodeView { pod_cidrs: Vec::new(), ..node("n2", 2) }]));
        let want = NodeRouteSpec {
            addresses: vec!["10.90.0.1".to_owned()],
            pod_cidrs: vec!["10.244.1.0/24".to_owned(), "fd00:244:1::/64".to_owned()],
            zone: Some("row-a".to_owned()),
            entry: EntryFlag::Eligible,
            witnesses: Vec::new(),
        };
        assert_eq!(*written(&plan, "n1"), want);
        assert_eq!(plan.routes.len(), 1, "a node without pod CIDRs has no routes");
    }

    #[test]
    fn a_node_has_no_node_route_before_it_has_an_address() {
        assert_eq!(plan(&observed(vec![NodeView { addresses: Vec::new(), ..node("n1", 1) }])), Plan::default());
    }

    #[test]
    fn the_exclusion_label_is_read_as_a_boolean() {
        for (value, want) in [
            ("", EntryFlag::ExcludedByLabel),
            ("true", EntryFlag::ExcludedByLabel),
            ("garbage", EntryFlag::ExcludedByLabel),
            ("false", EntryFlag::Eligible),
            ("0", EntryFlag::Eligible),
        ] {
            let plan = plan(&observed(vec![labelled(&[(EXCLUDED, value)])]));
            assert_eq!(written(&plan, "n1").entry, want, "{value:?}");
        }
    }

    #[test]
    fn a_node_route_is_written_on_change_and_deleted_with_its_node() {
        let mut state = settled(vec![node("n1", 1), node("n2", 2)]);
        assert_eq!(plan(&state), Plan::default(), "planning after applying");

        let anew = NodeView { uid: "uid-2".to_owned(), ..node("n1", 1) };
        state.nodes.insert(name("n1"), Arc::new(anew));
        let recreated = plan(&state);
        assert!(matches!(&recreated.routes[&name("n1")], RouteAction::Write { owner_uid, .. } if owner_uid == "uid-2"));

        state.nodes.remove(&name("n1"));
        assert_eq!(plan(&state).routes.get(&name("n1")), Some(&RouteAction::Delete));

        let state = applied(state.clone(), &plan(&state));
        let bare = NodeView { pod_cidrs: Vec::new(), ..node("n2", 2) };
        let state = Observed { nodes: BTreeMap::from([(name("n2"), Arc::new(bare))]), ..state };
        assert_eq!(plan(&state).routes, BTreeMap::new(), "a node that is there keeps what it has");
    }

    #[test]
    fn network_unavailable_follows_the_reports() {
        struct Case {
            name: &'static str,
            edit: fn(&mut Observed),
            want: Option<Network>,
        }
        for case in [
            Case { name: "everyone has the routes", edit: |_| {}, want: Some(Network::Routed) },
            Case { name: "its own agent has not reported", edit: |o| drop(o.reports.remove(&name("n1"))), want: None },
            Case {
                name: "its own agent acts on an older version",
                edit: |o| edit_report(o, "n1", |report| report.own_route = Some("0".repeat(16))),
                want: None,
            },
            Case { name: "a witness has not reported", edit: |o| drop(o.reports.remove(&name("n3"))), want: None },
            Case {
                name: "a witness does not have the routes yet",
                edit: |o| edit_report(o, "n3", |report| report.witnessed.clear()),
                want: None,
            },
            Case {
                name: "a witness cannot have the routes",
                edit: |o| {
                    edit_report(o, "n3", |report| {
                        report.witnessed.clear();
                        report.routes.exceptions.push(exception("n1"));
                    })
                },
                want: Some(Network::NotRouted),
            },
            Case {
                name: "a witness lacks another node's routes",
                edit: |o| edit_report(o, "n3", |report| report.routes.exceptions.push(exception("n2"))),
                want: Some(Network::Routed),
            },
            Case {
                name: "a witness was rebooted since",
                edit: |o| {
                    let boot_id = Some("boot-2".to_owned());
                    o.nodes.insert(name("n3"), Arc::new(NodeView { boot_id, ..node("n3", 3) }));
                },
                want: None,
            },
            Case {
                name: "a witness of this boot",
                edit: |o| {
                    let boot_id = Some("boot-1".to_owned());
                    o.nodes.insert(name("n3"), Arc::new(NodeView { boot_id, ..node("n3", 3) }));
                },
                want: Some(Network::Routed),
            },
            Case {
                name: "another wrote the condition for its own reason",
                edit: |o| {
                    let network_unavailable = Some((Truth::False, "CalicoIsUp".to_owned()));
                    o.nodes.insert(name("n1"), Arc::new(NodeView { network_unavailable, ..node("n1", 1) }));
                },
                want: Some(Network::Routed),
            },
            Case {
                name: "it says so already",
                edit: |o| {
                    let network_unavailable = Some((Truth::False, "RouteCreated".to_owned()));
                    o.nodes.insert(name("n1"), Arc::new(NodeView { network_unavailable, ..node("n1", 1) }));
                },
                want: None,
            },
        ] {
            let mut state = settled((1..=4).map(|number| node(&format!("n{number}"), number)).collect());
            report_all(&mut state);
            (case.edit)(&mut state);
            assert_eq!(plan(&state).conditions.get(&name("n1")), case.want.as_ref(), "{}", case.name);
        }
    }

    #[test]
    fn a_single_node_needs_no_witness() {
        let mut state = settled(vec![node("n1", 1)]);
        report_all(&mut state);
        let first = plan(&state);
        assert_eq!(first.conditions, BTreeMap::from([(name("n1"), Network::Routed)]));
        assert_eq!(plan(&applied(state, &first)), Plan::default());
    }
}
