//! The API server of the simulation, and what it would be to get it wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ipam::assignment::{Answer, Assignment, Request};
use crate::ipam::claim::{Claim, Holder};
use crate::model::views::NodeView;
use crate::model::{NodeName, Prefix};

/// What is not as it should be, to see that the simulation would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// A claim that is there already is as good as a new one.
    ClaimsShared,
    /// Claims of Nodes that nobody sees are deleted without a look.
    NoLook,
}

/// What the API server has, and what it had: watches show one change after the other.
#[derive(Default)]
pub(super) struct Server {
    pub(super) ids: u64,
    pub(super) nodes: BTreeMap<NodeName, Arc<NodeView>>,
    pub(super) claims: BTreeMap<Prefix, Arc<Claim>>,
    pub(super) node_changes: Vec<(NodeName, Option<Arc<NodeView>>)>,
    pub(super) claim_changes: Vec<(Prefix, Option<Arc<Claim>>)>,
}

impl Server {
    pub(super) fn put_node(&mut self, name: &NodeName, node: Option<NodeView>) {
        let node = node.map(Arc::new);
        match node.clone() {
            Some(node) => drop(self.nodes.insert(name.clone(), node)),
            None => drop(self.nodes.remove(name)),
        }
        self.node_changes.push((name.clone(), node));
    }

    pub(super) fn put_claim(&mut self, block: Prefix, claim: Option<Claim>) {
        let claim = claim.map(Arc::new);
        match claim.clone() {
            Some(claim) => drop(self.claims.insert(block, claim)),
            None => drop(self.claims.remove(&block)),
        }
        self.claim_changes.push((block, claim));
    }

    pub(super) fn take(&mut self, assignment: &Assignment, request: Request, mistake: Mistake) -> Answer {
        match request {
            Request::Claim(block) if self.claims.contains_key(&block) && mistake != Mistake::ClaimsShared => {
                Answer::Exists
            }
            Request::Claim(block) => {
                self.ids += 1;
                let claim = Claim {
                    block,
                    holder: Some(assignment.holder.clone()),
                    uid: self.ids.to_string(),
                    resource_version: self.ids.to_string(),
                    acquired_microseconds: 0,
                };
                self.put_claim(block, Some(claim.clone()));
                Answer::Claim(claim)
            }
            Request::Look(block) => {
                self.claims.get(&block).map_or(Answer::NoClaim, |claim| Answer::Claim((**claim).clone()))
            }
            Request::Assign => {
                let Holder { node, uid } = &assignment.holder;
                match self.nodes.get(node).map(|node| (**node).clone()) {
                    Some(view) if view.uid == *uid && view.pod_cidrs.is_empty() => {
                        self.put_node(node, Some(NodeView { pod_cidrs: assignment.blocks.clone(), ..view }));
                        Answer::Assigned
                    }
                    Some(view) if view.uid == *uid && view.pod_cidrs == assignment.blocks => Answer::Assigned,
                    _ => Answer::Failed,
                }
            }
        }
    }

    pub(super) fn is_there(&self, holder: &Holder) -> bool {
        self.nodes.get(&holder.node).is_some_and(|node| node.uid == holder.uid)
    }

    pub(super) fn delete(&mut self, claim: &Claim) {
        if self.claims.get(&claim.block).is_some_and(|now| now.uid == claim.uid) {
            self.put_claim(claim.block, None);
        }
    }
}
