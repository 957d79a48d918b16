//! What a full plan has left to do, and what a change comes to until the next one: pure.
//!
//! A plan gives blocks to every Node that waits; few of them are under way at a time, and the others queue
//! here. What the room's own writes come back as is no news, and a Node that is new gets the next free blocks
//! and queues up. For all else that happens, this only says that it takes a plan. As everywhere in this room,
//! a mistake would cost a request in vain: the claims see to it that no block is given twice.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::assignment::{Assignment, End};
use super::claim::Claim;
use super::plan::{self, AllBlocks, Observed, Plan};
use super::span::Span;
use crate::model::views::NodeView;
use crate::model::{NodeName, Prefix};

/// What a change comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Heard {
    /// Everything is planned for.
    Planned,
    /// A plan has to be made.
    Open,
}

/// See the module.
#[derive(Debug)]
pub struct Desk {
    observed: Observed,
    blocks: AllBlocks,
    /// What is not under way yet, the oldest Node first.
    queue: VecDeque<Assignment>,
    /// The uids of Nodes that have a claim and were not seen.
    unseen: BTreeSet<String>,
}

impl Desk {
    /// Plans for all that is known. The assignments are on the desk then, no longer in the plan.
    pub fn plan(observed: Observed) -> (Self, Plan) {
        let (mut plan, blocks) = plan::with_blocks(&observed);
        let queue = std::mem::take(&mut plan.assignments).into();
        let seen: BTreeSet<_> = observed.nodes.values().map(|node| node.uid.as_str()).collect();
        let holders = observed.claims.values().filter_map(|claim| claim.holder.as_ref());
        let uids = holders.chain(observed.doubtful.values()).map(|holder| &holder.uid);
        let unseen = uids.filter(|uid| !seen.contains(uid.as_str())).cloned().collect();
        (Self { observed, blocks, queue, unseen }, plan)
    }

    /// What is known, as of the last plan and what was heard since.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// The Nodes that wait for a turn.
    pub fn queue(&self) -> impl ExactSizeIterator<Item = &NodeName> {
        self.queue.iter().map(|assignment| &assignment.holder.node)
    }

    /// The next Node that is to get its blocks, of those that may; it counts as under way from now on.
    pub fn next(&mut self, may: impl Fn(&NodeName) -> bool) -> Option<Assignment> {
        loop {
            let next = self.queue.pop_front()?;
            let node = self.observed.nodes.get(&next.holder.node);
            let waits = node.is_some_and(|node| node.uid == next.holder.uid && plan::is_waiting(node));
            if waits && may(&next.holder.node) {
                self.observed.under_way.insert(next.holder.node.clone(), next.blocks.clone());
                return Some(next);
            }
        }
    }

    /// Takes what came of an assignment.
    pub fn ended(&mut self, assignment: &Assignment, end: End) -> Heard {
        let holder = &assignment.holder;
        self.observed.under_way.remove(&holder.node);
        if end != End::Given {
            return Heard::Open;
        }
        if let Some(node) = self.observed.nodes.get_mut(&holder.node)
            && node.uid == holder.uid
        {
            Arc::make_mut(node).pod_cidrs.clone_from(&assignment.blocks);
        }
        Heard::Planned
    }

    /// Takes in that a Node came, changed or went.
    pub fn node(&mut self, name: &NodeName, now: Option<Arc<NodeView>>) -> Heard {
        let Some(now) = now else {
            // Its blocks may be free.
            return if self.observed.nodes.remove(name).is_some() { Heard::Open } else { Heard::Planned };
        };
        let Some(before) = self.observed.nodes.insert(name.clone(), Arc::clone(&now)) else {
            return self.newcomer(&now);
        };
        let is_as_written = || self.observed.under_way.get(name).is_some_and(|blocks| now.pod_cidrs == *blocks);
        let keeps_its_cidrs = before.pod_cidrs == now.pod_cidrs || (before.pod_cidrs.is_empty() && is_as_written());
        if keeps_its_cidrs && self.says_the_same(&before, &now) { Heard::Planned } else { Heard::Open }
    }

    /// Takes in that a claim came, changed or went.
    pub fn claim(&mut self, block: Prefix, now: Option<Arc<Claim>>) -> Heard {
        let Some(now) = now else {
            return if self.observed.claims.remove(&block).is_some() { Heard::Open } else { Heard::Planned };
        };
        let is_of_its_node = now.holder.as_ref().is_some_and(|holder| {
            let node = self.observed.nodes.get(&holder.node).filter(|node| node.uid == holder.uid);
            let under_way = self.observed.under_way.get(&holder.node);
            node.is_some_and(|node| {
                node.pod_cidrs.iter().chain(under_way.into_iter().flatten()).any(|has| *has == block)
            })
        });
        let before = self.observed.claims.insert(block, Arc::clone(&now));
        let is_as_before = before.is_some_and(|before| before.holder == now.holder && before.uid == now.uid);
        if is_of_its_node || is_as_before { Heard::Planned } else { Heard::Open }
    }

    fn newcomer(&mut self, node: &NodeView) -> Heard {
        let is_plain = plan::is_waiting(node)
            && self.within_the_cluster(node).is_empty()
            && node.pod_cidr_unavailable.is_none()
            && !self.unseen.contains(&node.uid);
        if !is_plain {
            return Heard::Open;
        }
        match self.blocks.give(node, None) {
            Ok(assignment) => {
                self.queue.push_back(assignment);
                Heard::Planned
            }
            Err(_) => Heard::Open,
        }
    }

    /// Whether all else that counts here is as before.
    fn says_the_same(&self, before: &NodeView, now: &NodeView) -> bool {
        before.uid == now.uid
            && before.is_deleting == now.is_deleting
            && before.unread_pod_cidrs == now.unread_pod_cidrs
            // What a condition says is to change with the pod CIDRs.
            && before.pod_cidr_unavailable == now.pod_cidr_unavailable
            && (now.pod_cidr_unavailable.is_none() || before.pod_cidrs == now.pod_cidrs)
            && self.within_the_cluster(before) == self.within_the_cluster(now)
    }

    /// The addresses of a Node that no pod can have.
    fn within_the_cluster(&self, node: &NodeView) -> Vec<Span> {
        let spans = node.ips().map(Span::from);
        let is_within = |span: &Span| self.observed.cluster.iter().any(|all| Span::from(all.prefix()).overlaps(span));
        spans.filter(is_within).collect()
    }
}

#[cfg(test)]
mod tests;
