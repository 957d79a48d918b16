//! The nodes that are known, and those whose `NodeRoute` is gone: are they gone too?
//!
//! A `NodeRoute` may vanish by a slip of the hand, or all of them with their kind, while every node is
//! there: an absence that nobody confirms changes nothing. So the last one stays in force until the
//! API server says that its Node does not exist, and nothing is even asked while the own one is gone
//! although the own Node is there: then it is not the nodes that went. A Node that comes again has a
//! new `NodeRoute`, which is taken at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::snapshot::{NodeRouteView, Objects};
use crate::model::Moment;

/// The leader writes a `NodeRoute` again that somebody deleted; so long nobody is asked.
const REWRITTEN_WITHIN: Duration = Duration::from_secs(2);
/// While its Node exists, or nobody can tell, it is asked again after this, and twice as long each time.
const FIRST_AGAIN: Duration = Duration::from_secs(10);
const LAST_AGAIN: Duration = Duration::from_secs(300);
/// All agents of a cluster together ask this often a second.
const QUESTIONS_PER_SECOND: f64 = 200.0;

/// Whether a Node exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The API server has it.
    Exists,
    /// The API server does not know it.
    Gone,
    /// Nobody could tell.
    Unknown,
}

/// What is known of the own Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// It exists, or nobody knows yet.
    MayExist,
    /// It is gone: what it had is no longer its.
    Gone,
}

/// Every `NodeRoute` that is in force.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    routes: Objects<NodeRouteView>,
    missing: BTreeMap<String, Missing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Missing {
    ask_at: Moment,
    again: Duration,
}

impl Nodes {
    /// Those that were in force before: none of them is known to be there.
    pub fn restored(routes: Objects<NodeRouteView>) -> Self {
        Self { routes, missing: BTreeMap::new() }
    }

    /// All in force, by the node's name.
    pub fn in_force(&self) -> &Objects<NodeRouteView> {
        &self.routes
    }

    /// How many stay only because nobody has confirmed that their Nodes are gone.
    pub fn held(&self) -> usize {
        self.missing.len()
    }

    /// Takes in what the API server has of one node. `dice` is this agent's own, 0 to 1: it spreads the
    /// questions of all agents.
    pub fn saw(&mut self, name: &str, route: Option<Arc<NodeRouteView>>, dice: f64, now: Moment) {
        match route {
            Some(route) => {
                self.missing.remove(name);
                let known = self.routes.get(name);
                if known.is_none_or(|known| **known != *route) {
                    self.routes.insert(name.to_owned(), route);
                }
            }
            None if self.routes.contains_key(name) => {
                let spread = Duration::from_secs_f64(dice * self.routes.len() as f64 / QUESTIONS_PER_SECOND);
                let missing = Missing { ask_at: now + REWRITTEN_WITHIN + spread, again: FIRST_AGAIN };
                self.missing.entry(name.to_owned()).or_insert(missing);
            }
            None => {}
        }
    }

    /// Takes in a complete list.
    pub fn saw_all(&mut self, all: &Objects<NodeRouteView>, dice: f64, now: Moment) {
        if self.routes.is_empty() {
            self.routes = all.clone();
        }
        let gone: Vec<_> = self.routes.keys().filter(|name| !all.contains_key(*name)).cloned().collect();
        all.iter().for_each(|(name, route)| self.saw(name, Some(Arc::clone(route)), dice, now));
        gone.iter().for_each(|name| self.saw(name, None, dice, now));
    }

    /// What is known of the own Node. When it is gone, its `NodeRoute` needs no confirmation.
    pub fn own(&mut self, me: &str, own: Own) {
        if own == Own::Gone && self.missing.remove(me).is_some() {
            self.routes.remove(me);
        }
    }

    /// The nodes to ask about now: none while the own `NodeRoute` is missing.
    pub fn to_ask(&self, me: &str, now: Moment) -> Vec<String> {
        if self.missing.contains_key(me) {
            return Vec::new();
        }
        self.missing.iter().filter(|(_, missing)| missing.ask_at <= now).map(|(name, _)| name.clone()).collect()
    }

    /// When the next has to be asked about.
    pub fn deadline(&self, me: &str) -> Option<Moment> {
        let is_asking = !self.missing.contains_key(me);
        self.missing.values().map(|missing| missing.ask_at).min().filter(|_| is_asking)
    }

    /// Takes in whether a node exists. An answer about one that is there again means nothing.
    pub fn answered(&mut self, name: &str, answer: Answer, now: Moment) {
        let Some(missing) = self.missing.get_mut(name) else { return };
        match answer {
            Answer::Gone => {
                self.missing.remove(name);
                self.routes.remove(name);
            }
            Answer::Exists | Answer::Unknown => {
                missing.ask_at = now + missing.again;
                missing.again = (missing.again * 2).min(LAST_AGAIN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::cases::node_route;

    const DICE: f64 = 0.5;

    fn at(seconds: u64) -> Moment {
        Moment::since_boot(Duration::from_secs(seconds))
    }

    fn route(name: &str, cidr: &str) -> Arc<NodeRouteView> {
        Arc::new(node_route(name, &["10.90.0.11"], &[cidr]))
    }

    fn nodes() -> Nodes {
        let all = ["n1", "n2", "n3"].map(|name| (name.to_owned(), route(name, "10.244.0.0/24")));
        let mut nodes = Nodes::default();
        nodes.saw_all(&all.into_iter().collect(), DICE, at(0));
        nodes
    }

    fn names(nodes: &Nodes) -> Vec<&str> {
        nodes.in_force().keys().map(String::as_str).collect()
    }

    #[test]
    fn a_node_route_that_is_gone_stays_until_its_node_is_known_to_be_gone() {
        let mut nodes = nodes();
        nodes.saw("n2", None, DICE, at(10));
        assert_eq!((names(&nodes).len(), nodes.held()), (3, 1));
        assert!(nodes.to_ask("n1", at(11)).is_empty(), "the leader may write it again");
        let due = nodes.deadline("n1").expect("something missing");
        assert_eq!(nodes.to_ask("n1", due), ["n2"]);
        for answer in [Answer::Unknown, Answer::Exists] {
            nodes.answered("n2", answer, due);
            assert_eq!(names(&nodes).len(), 3, "{answer:?}");
            assert!(nodes.to_ask("n1", due).is_empty(), "{answer:?}: not at once again");
        }
        nodes.answered("n2", Answer::Gone, at(60));
        assert_eq!((names(&nodes), nodes.held(), nodes.deadline("n1")), (vec!["n1", "n3"], 0, None));
    }

    #[test]
    fn a_node_route_that_comes_again_is_taken_at_once() {
        let mut nodes = nodes();
        nodes.saw("n2", None, DICE, at(10));
        nodes.saw("n2", Some(route("n2", "10.244.9.0/24")), DICE, at(11));
        assert_eq!(nodes.held(), 0);
        assert_eq!(nodes.in_force().get("n2").expect("it is in force").pod_cidrs[0].to_string(), "10.244.9.0/24");
        nodes.answered("n2", Answer::Gone, at(12));
        assert_eq!(names(&nodes).len(), 3, "a late answer means nothing");
    }

    #[test]
    fn nobody_is_asked_while_the_own_one_is_missing_and_the_own_node_is_there() {
        let mut nodes = nodes();
        nodes.saw_all(&Objects::default(), DICE, at(10));
        nodes.own("n1", Own::MayExist);
        assert_eq!((names(&nodes).len(), nodes.held()), (3, 3));
        assert_eq!((nodes.to_ask("n1", at(10_000)), nodes.deadline("n1")), (Vec::new(), None));
        nodes.own("n1", Own::Gone);
        assert_eq!(names(&nodes), ["n2", "n3"]);
        assert_eq!(nodes.to_ask("n1", at(10_000)), ["n2", "n3"]);
    }

    #[test]
    fn what_is_the_same_is_not_replaced() {
        let mut nodes = nodes();
        let before = Arc::clone(nodes.in_force().get("n2").expect("it is in force"));
        nodes.saw("n2", Some(route("n2", "10.244.0.0/24")), DICE, at(1));
        assert!(Arc::ptr_eq(&before, nodes.in_force().get("n2").expect("it is in force")));
    }
}
