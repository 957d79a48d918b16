//! Which Node has which addresses already, and what is odd about that: pure.
//!
//! Pod CIDRs never change while a Node lives, whoever wrote them. So what is odd is told and left.

use std::collections::BTreeMap;

use serde::Serialize;

use super::span::Span;
use crate::config::ClusterCidr;
use crate::model::views::NodeView;
use crate::model::{Family, NodeName, Note, Prefix};

/// Who tells of a pod CIDR outside the cluster CIDRs: one of the two rooms that it matters to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Outside {
    /// This room does.
    #[default]
    Told,
    /// The route room does, which makes no route to it.
    ToldByRoutes,
}

/// The pod CIDRs of all Nodes.
#[derive(Debug, Default)]
pub struct Survey<'a> {
    /// By first address; no two share an address: of two that would, the older Node's is here.
    owners: BTreeMap<(Family, u128), Owner<'a>>,
    /// At most one a Node: what its pod CIDRs are that they should not be.
    pub notes: BTreeMap<NodeName, Note>,
}

/// A pod CIDR and its Node.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The Node.
    pub node: &'a NodeName,
    /// The pod CIDR.
    pub cidr: Prefix,
    last: u128,
}

impl<'a> Survey<'a> {
    /// Looks at Nodes, those that came first in front.
    pub fn of(cluster: &[ClusterCidr], outside: Outside, nodes: impl Iterator<Item = &'a NodeView> + Clone) -> Self {
        let mut survey = Self::default();
        for node in nodes.clone() {
            if let Some(text) = node.unread_pod_cidrs.first() {
                survey.note(&node.name, Note::PodCidrUnread { text: text.clone() });
            }
            for &cidr in &node.pod_cidrs {
                survey.add(node, cidr);
            }
        }
        // Last, since addresses of two Nodes are worse.
        for node in nodes {
            if let Some(note) = odd(cluster, outside, node) {
                survey.note(&node.name, note);
            }
        }
        survey
    }

    /// The pod CIDRs that share an address with these.
    pub fn owners(&self, span: Span) -> impl Iterator<Item = Owner<'a>> + '_ {
        let up_to_it = self.owners.range((span.family, 0)..=(span.family, span.last)).rev();
        up_to_it.map(|(_, owner)| *owner).take_while(move |owner| owner.last >= span.first)
    }

    /// Notes something about a Node; what was noted first stays.
    pub fn note(&mut self, node: &NodeName, note: Note) {
        self.notes.entry(node.clone()).or_insert(note);
    }

    fn add(&mut self, node: &'a NodeView, cidr: Prefix) {
        let span = Span::from(cidr);
        let earlier = self.owners(span).find(|owner| *owner.node != node.name);
        if let Some(owner) = earlier {
            let shared = |cidr, with, by: &NodeName| Note::PodCidrShared { cidr, with, by: by.clone() };
            self.note(&node.name, shared(cidr, owner.cidr, owner.node));
            self.note(owner.node, shared(owner.cidr, cidr, &node.name));
        } else {
            self.owners.insert((span.family, span.first), Owner { node: &node.name, cidr, last: span.last });
        }
    }
}

/// What is unusual about the pod CIDRs of a Node, for cluster CIDRs like these.
fn odd(cluster: &[ClusterCidr], outside: Outside, node: &NodeView) -> Option<Note> {
    let within = |cidr: &Prefix| cluster.iter().find(|cluster| cluster.prefix().overlaps(cidr));
    let is_block = |cidr: &Prefix| cluster.iter().any(|cluster| cluster.is_block(*cidr));
    if let Some(&cidr) = node.pod_cidrs.iter().find(|cidr| within(cidr).is_none()) {
        return (outside == Outside::Told).then_some(Note::PodCidrOutsideCluster { cidr });
    }
    if let Some(&cidr) = node.pod_cidrs.iter().find(|cidr| !is_block(cidr)) {
        let node_length = within(&cidr)?.node_length();
        return Some(Note::PodCidrOddSize { cidr, node_length });
    }
    let lacks = |cluster: &&ClusterCidr| {
        let family = cluster.prefix().family();
        node.pod_cidrs.iter().all(|cidr| cidr.family() != family)
    };
    let lacking = cluster.iter().find(lacks).filter(|_| !node.pod_cidrs.is_empty() && node.unread_pod_cidrs.is_empty());
    lacking.map(|cluster| Note::PodCidrFamilyMissing { family: cluster.prefix().family() })
}
