//! What the condition `NetworkUnavailable` has to say, and when it is written.

use std::time::Duration;

use serde::Serialize;

use super::{Memory, Plan, Planner, State};
use crate::model::views::{Condition, NodeView, Truth};
use crate::model::{Moment, NodeName, Note};
use crate::route::brake;
use crate::route::case::{GRACE, Verdict};
use crate::route::network::{Lack, Network};

/// A condition that only says its reason in other words is written this seldom.
const REWORDING: Duration = Duration::from_secs(10);

/// What a Node's condition `NetworkUnavailable` is to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConditionWrite {
    /// `metadata.uid` of the Node.
    pub uid: String,
    /// What it is to say.
    pub condition: Condition,
    /// Whether this is more than another wording.
    pub is_transition: bool,
}

impl Planner {
    /// What the condition has to say. Only those who know can turn it to True: silence does not.
    pub(super) fn condition(
        &mut self,
        node: &NodeView,
        verdict: Verdict,
        memory: &mut Memory,
        now: Moment,
        plan: &mut Plan,
    ) {
        let is_available = node.network_unavailable.as_ref().is_some_and(|known| known.status == Truth::False);
        let due = memory.since.map_or(now, |(_, since)| since) + GRACE;
        let (state, lack) = match verdict {
            Verdict::Routed => (State::Routed, None),
            Verdict::NotRouted(lack) => (State::NotRouted, Some(lack)),
            Verdict::Open(lack) => (State::Open, Some(lack)),
        };
        memory.state = Some(state);
        if let Some(Lack::Incomplete { nodes, such_as }) = &lack {
            let note = Note::RoutesIncomplete { nodes: *nodes, such_as: such_as.iter().take(3).cloned().collect() };
            self.note(&node.name, note);
        }
        let network = match lack {
            None => Network::Routed,
            Some(_) if state == State::Open && is_available => return,
            Some(lack) if is_available => {
                self.wanting.insert(node.name.clone(), lack);
                return;
            }
            Some(_) if state == State::Open && now < due => return memory.wake(due),
            Some(lack) => {
                self.note(&node.name, not_created(node, &lack));
                Network::NotRouted(lack)
            }
        };
        let condition = network.condition();
        let known = node.network_unavailable.as_ref();
        let says_so = known.is_some_and(|known| known.status == condition.status && known.reason == condition.reason);
        let is_worded = network == Network::Routed || known.is_some_and(|known| known.message == condition.message);
        if says_so && is_worded {
            return;
        }
        match memory.worded.map(|worded| worded + REWORDING).filter(|again| says_so && now < *again) {
            Some(again) => memory.wake(again),
            None => {
                memory.worded = Some(now);
                let write = ConditionWrite { uid: node.uid.clone(), condition, is_transition: !says_so };
                plan.conditions.insert(node.name.clone(), write);
            }
        }
    }

    /// Turns the Nodes that have lost their network, unless the brake holds.
    pub(super) fn turn(&mut self, now: Moment, plan: &mut Plan) {
        let uid = |name: &NodeName| self.observed.nodes.get(name).map(|node| node.uid.clone());
        let uids = self.wanting.keys().filter_map(uid).collect();
        let limit = brake::limit(self.observed.nodes.len());
        self.is_held = self.brake.holds(&uids, limit, now);
        for (name, lack) in self.wanting.clone() {
            let Some(node) = self.observed.nodes.get(&name).cloned() else { continue };
            if self.is_held {
                self.note(&name, Note::RouteStormHeld { why: lack.to_string() });
            } else {
                self.note(&name, not_created(&node, &lack));
                let condition = Network::NotRouted(lack).condition();
                let write = ConditionWrite { uid: node.uid.clone(), condition, is_transition: true };
                plan.conditions.insert(name, write);
            }
        }
    }
}

/// The note that there is no route to a Node's pods, in upstream's words.
pub fn not_created(node: &NodeView, why: &impl std::fmt::Display) -> Note {
    Note::RouteNotCreated {
        node: node.name.clone(),
        uid: node.uid.clone(),
        cidrs: node.pod_cidrs.clone(),
        why: why.to_string(),
    }
}
