//! Builders for the tables of this room's tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::plan::{About, ObservedRoute, Plan, Planner, RouteAction};
use super::spec::Responsibility;
use crate::api::{NodeReportStatus, Reached, RouteReport, WitnessAnswer, majority};
use crate::model::cases;
use crate::model::views::{NodeAddress, NodeAddressKind, NodeView, Truth};
use crate::model::{Moment, NodeName, Note};

pub(super) fn name(number: usize) -> NodeName {
    format!("n{number}").parse().expect("a name")
}

/// Node `n<number>`, Ready, with an address and a pod CIDR; the rest as it was registered.
pub(super) fn node(number: usize) -> NodeView {
    let (high, low) = (number / 256, number % 256);
    let address = format!("10.90.{high}.{low}");
    NodeView {
        pod_cidrs: vec![format!("10.{}.{low}.0/24", 244 - high).parse().expect("a prefix")],
        addresses: vec![NodeAddress { kind: NodeAddressKind::InternalIp, address }],
        ready: Some(Truth::True),
        boot_id: Some("boot-1".to_owned()),
        ..cases::node(&format!("n{number}"))
    }
}

/// The report of `n<number>`'s agent, which has done nothing yet.
pub(super) fn report(number: usize) -> NodeReportStatus {
    NodeReportStatus {
        boot_id: "boot-1".to_owned(),
        node_uid: Some(format!("uid-n{number}")),
        ..NodeReportStatus::default()
    }
}

/// A cluster in miniature: the planner's writes are carried out, and agents answer what they see.
pub(super) struct World {
    pub(super) planner: Planner,
    pub(super) now: Moment,
    /// Nodes whose agents do not report any more, or never did.
    pub(super) hung: BTreeSet<NodeName>,
    /// Whom which node cannot reach.
    pub(super) cut: BTreeSet<(NodeName, NodeName)>,
    /// How many routes an agent says that it lacks.
    pub(super) lacking: BTreeMap<NodeName, u32>,
    /// `NodeRoute`s, conditions and reports that were written.
    pub(super) route_writes: usize,
    pub(super) condition_writes: usize,
    pub(super) report_writes: usize,
    /// Nodes that the planner looked at.
    pub(super) looks: usize,
}

impl World {
    pub(super) fn new(responsibility: Responsibility) -> Self {
        Self {
            planner: Planner::new(responsibility),
            now: Moment::since_boot(Duration::from_secs(1000)),
            hung: BTreeSet::new(),
            cut: BTreeSet::new(),
            lacking: BTreeMap::new(),
            route_writes: 0,
            condition_writes: 0,
            report_writes: 0,
            looks: 0,
        }
    }

    /// So many nodes, all settled.
    pub(super) fn settled(count: usize) -> Self {
        let mut world = Self::new(Responsibility::Everything);
        for number in 1..=count {
            world.put(node(number));
            world.settle();
        }
        world.start_counting();
        world
    }

    pub(super) fn start_counting(&mut self) {
        (self.route_writes, self.condition_writes, self.report_writes, self.looks) = (0, 0, 0, 0);
    }

    pub(super) fn put(&mut self, node: NodeView) {
        self.planner.node(&node.name.clone(), Some(Arc::new(node)));
    }

    pub(super) fn edit(&mut self, number: usize, edit: impl FnOnce(&mut NodeView)) {
        let mut view = NodeView::clone(self.view(number));
        edit(&mut view);
        self.put(view);
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.planner.node(&name(number), None);
    }

    pub(super) fn view(&self, number: usize) -> &NodeView {
        &self.planner.observed().nodes[&name(number)]
    }

    pub(super) fn witnesses(&self, number: usize) -> Vec<NodeName> {
        let route = &self.planner.observed().node_routes[&name(number)];
        route.spec.witnesses.iter().map(|name| name.parse().expect("a name")).collect()
    }

    /// Status of the condition, and what the message says beyond upstream's.
    pub(super) fn network(&self, number: usize) -> Option<(Truth, &str)> {
        let condition = self.view(number).network_unavailable.as_ref()?;
        let told = condition.message.split_once(": ").map_or("", |(_, told)| told);
        Some((condition.status, told))
    }

    pub(super) fn is_available(&self, number: usize) -> bool {
        self.network(number).is_some_and(|(status, _)| status == Truth::False)
    }

    /// What is told of a node, in one word each.
    pub(super) fn notes(&self, number: usize) -> Vec<&'static str> {
        let of = |(about, _): &(&About, &Note)| about.0 == name(number);
        self.planner.notes().iter().filter(of).map(|(_, note)| note.reason()).collect()
    }

    /// Lets the leader and the agents act until nothing is left to do now.
    pub(super) fn settle(&mut self) {
        for _ in 0..50 {
            let plan = self.planner.plan(self.now);
            self.looks += plan.looked_at.len();
            let wrote = self.carry_out(plan);
            if !(self.report() || wrote) {
                return;
            }
        }
        panic!("it never settles");
    }

    /// Lets time pass; the leader acts when it said that it would.
    pub(super) fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        self.settle();
        while let Some(due) = self.planner.deadline().filter(|due| *due <= end) {
            assert!(due > self.now, "a deadline that has passed: {due:?} at {:?}", self.now);
            self.now = due;
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    fn carry_out(&mut self, plan: Plan) -> bool {
        let Plan { looked_at: _, routes, conditions } = plan;
        let wrote = !routes.is_empty() || !conditions.is_empty();
        self.route_writes += routes.len();
        self.condition_writes += conditions.len();
        for (name, action) in routes {
            let route = match action {
                RouteAction::Delete => None,
                RouteAction::Write { owner_uid, spec } => {
                    Some(Arc::new(ObservedRoute { resource_version: "1".to_owned(), owner_uid: Some(owner_uid), spec }))
                }
            };
            self.planner.route(&name, route);
        }
        for (name, write) in conditions {
            let mut view = NodeView::clone(&self.planner.observed().nodes[&name]);
            assert_eq!(view.uid, write.uid);
            view.network_unavailable = Some(write.condition);
            self.planner.node(&name, Some(Arc::new(view)));
        }
        wrote
    }

    /// Each agent says what it would; true if one of them had news.
    fn report(&mut self) -> bool {
        let observed = self.planner.observed().clone();
        let mut has_news = false;
        let mut answers = BTreeMap::<&str, Vec<WitnessAnswer>>::new();
        for (about, route) in &observed.node_routes {
            let asked = majority(route.spec.witnesses.len());
            for (place, witness) in route.spec.witnesses.iter().enumerate() {
                let is_cut = self.cut.contains(&(witness.parse().expect("a name"), about.clone()));
                if is_cut || place < asked {
                    answers.entry(witness).or_default().push(WitnessAnswer {
                        node: about.to_string(),
                        route: route.spec.digest(),
                        answer: if is_cut { Reached::NoRoute } else { Reached::Ok },
                        message: is_cut.then(|| "cut".to_owned()),
                    });
                }
            }
        }
        for (name, view) in &observed.nodes {
            if self.hung.contains(name) {
                continue;
            }
            let own = observed.node_routes.get(name).map(|route| route.spec.digest());
            let report = NodeReportStatus {
                boot_id: view.boot_id.clone().unwrap_or_default(),
                node_uid: Some(view.uid.clone()),
                own_route: own,
                witness: answers.remove(name.as_str()).unwrap_or_default(),
                routes: RouteReport {
                    nodes_without: self.lacking.get(name).copied().unwrap_or_default(),
                    ..RouteReport::default()
                },
                ..NodeReportStatus::default()
            };
            let known = observed.node_reports.get(name);
            if known.is_none_or(|known| has_news_over(known, &report)) {
                has_news = true;
                self.report_writes += 1;
                self.planner.report(name, Some(Arc::new(report)));
            }
        }
        has_news
    }
}

/// As agents pace their reports: an answer that is not asked for any more is no news.
fn has_news_over(known: &NodeReportStatus, new: &NodeReportStatus) -> bool {
    let mut known = known.clone();
    known.witness.retain(|answer| new.witness.iter().any(|other| other.node == answer.node));
    known != *new
}
