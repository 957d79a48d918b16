//! Which Node gets which blocks: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::allocator::Blocks;
use super::assignment::Assignment;
use super::claim::{Claim, Holder};
use super::span::Span;
use super::survey::{Outside, Survey};
use crate::config::ClusterCidr;
use crate::model::views::{NodeView, Truth};
use crate::model::{NodeName, Note, PoolName, Prefix};

/// Everything the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// The cluster CIDRs; each Node gets a block of each.
    pub cluster: Vec<ClusterCidr>,
    /// Every Node.
    pub nodes: BTreeMap<NodeName, Arc<NodeView>>,
    /// Every claim, by its block.
    pub claims: BTreeMap<Prefix, Arc<Claim>>,
    /// Claims that may be there: nobody answered.
    pub doubtful: BTreeMap<Prefix, Holder>,
    /// Nodes that are getting these blocks right now.
    pub under_way: BTreeMap<NodeName, Vec<Prefix>>,
    /// Addresses that are not for pods, and whose they are.
    pub reserved: BTreeMap<Reserved, Vec<Span>>,
    /// Who tells of a pod CIDR outside the cluster CIDRs.
    pub outside: Outside,
    /// The last block that was given of each cluster CIDR.
    pub last: Vec<Option<Prefix>>,
}

/// Whose addresses are not for pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reserved {
    /// Services', by `--service-cluster-ip-range`.
    ServiceRange,
    /// Services', by a ServiceCIDR of this name.
    ServiceCidr(String),
    /// Load-balancer addresses.
    Pool(PoolName),
    /// Those of a network that nodes are on.
    Network {
        /// The network.
        network: Prefix,
        /// One of the nodes.
        node: NodeName,
    },
    /// A Node's own.
    Node(NodeName),
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceRange => f.write_str("--service-cluster-ip-range"),
            Self::ServiceCidr(name) => write!(f, "ServiceCIDR {name}"),
            Self::Pool(name) => write!(f, "AddressPool {name}"),
            Self::Network { network, node } => write!(f, "{network}, a network that node {node} is on"),
            Self::Node(name) => write!(f, "an address of node {name}"),
        }
    }
}

impl Serialize for Reserved {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What to do, and what to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// Nodes that get blocks, the oldest first.
    pub assignments: Vec<Assignment>,
    /// Claims that nobody needs any more.
    pub releases: BTreeMap<Prefix, Release>,
    /// Nodes whose condition `PodCIDRUnavailable` has to change.
    pub conditions: BTreeMap<NodeName, Availability>,
    /// What someone should know about a Node.
    pub notes: BTreeMap<NodeName, Note>,
    /// What is reserved within the cluster CIDRs.
    pub overlaps: BTreeMap<Reserved, Note>,
    /// The last block of each cluster CIDR, with those of the assignments.
    pub last: Vec<Option<Prefix>>,
    /// How full each cluster CIDR is.
    pub usage: Vec<Usage>,
}

/// A claim to be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Release {
    /// The claim; nothing else is deleted, not a newer one of the same name either.
    pub claim: Arc<Claim>,
    /// The Node that must not be there any more. A Node's store may lag behind the claims': only the
    /// API server can say that a Node nobody sees is gone, and not new.
    pub unless_there: Option<Holder>,
}

/// Whether there is a pod CIDR for a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Availability {
    /// It has its pod CIDRs.
    Assigned,
    /// There is none left, in these words.
    NotAvailable(String),
}

/// How full a cluster CIDR is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Blocks that somebody has, or that are left out.
    pub taken: u128,
    /// All blocks.
    pub size: u128,
}

/// Decides for every Node.
///
/// 1. What a Node has, it keeps, whoever gave it: pod CIDRs never change. Nothing that overlaps it,
///    a claim, or what is reserved, is given to another.
/// 2. A Node that waits, and has claims of an earlier try, gets the claimed blocks.
/// 3. The others get the next free block of each cluster CIDR, the oldest first; all or none, so
///    that a full family costs nothing of the other.
/// 4. Claims go with the Node they are for, or when it has other pod CIDRs.
pub fn plan(observed: &Observed) -> Plan {
    with_blocks(observed).0
}

/// The same, and what is free then.
pub(super) fn with_blocks(observed: &Observed) -> (Plan, AllBlocks) {
    let mut in_order: Vec<&NodeView> = observed.nodes.values().map(|node| &**node).collect();
    in_order.sort_by_key(|node| (node.created_seconds, &node.name));
    let mut survey = Survey::of(&observed.cluster, observed.outside, in_order.iter().copied());
    let mut plan = Plan::default();
    let mut all = AllBlocks::new(observed);
    for cidr in in_order.iter().flat_map(|node| &node.pod_cidrs) {
        all.occupy(Span::from(*cidr));
    }
    reserve(observed, &mut all, &mut survey, &mut plan);
    let waiting: Vec<_> = in_order.into_iter().filter(|node| is_waiting(node)).collect();
    let claimed = claimed(observed, &waiting, &all);
    for block in observed.claims.keys().chain(observed.doubtful.keys()).chain(observed.under_way.values().flatten()) {
        all.occupy(Span::from(*block));
    }
    for node in waiting.iter().filter(|node| !observed.under_way.contains_key(&node.name)) {
        match all.give(node, claimed.get(&node.uid)) {
            Ok(assignment) => plan.assignments.push(assignment),
            Err(full) => {
                let (cidr, node_length) = (full.prefix(), full.node_length());
                survey.note(&node.name, Note::CidrNotAvailable { node: node.name.clone(), cidr, node_length });
            }
        }
    }
    plan.notes = survey.notes;
    plan.conditions = conditions(observed, &plan.notes);
    plan.releases = releases(observed);
    plan.usage = all.of_clusters.iter().map(|blocks| Usage { taken: blocks.taken(), size: blocks.size() }).collect();
    plan.last.clone_from(&all.last);
    (plan, all)
}

/// Whether it is to get pod CIDRs.
pub(super) fn is_waiting(node: &NodeView) -> bool {
    !node.is_deleting && !has_pod_cidrs(node)
}

fn has_pod_cidrs(node: &NodeView) -> bool {
    !(node.pod_cidrs.is_empty() && node.unread_pod_cidrs.is_empty())
}

/// The blocks of all cluster CIDRs.
#[derive(Debug)]
pub(super) struct AllBlocks {
    of_clusters: Vec<Blocks>,
    last: Vec<Option<Prefix>>,
}

/// What a waiting Node may use of an earlier try: by cluster CIDR, a block and whether the claim is
/// there for certain.
type Claimed = BTreeMap<usize, (Prefix, bool)>;

impl AllBlocks {
    fn new(observed: &Observed) -> Self {
        let last = observed.last.iter().copied().chain(std::iter::repeat(None));
        let last: Vec<_> = last.take(observed.cluster.len()).collect();
        let of_clusters = observed.cluster.iter().zip(&last).map(|(cluster, last)| Blocks::new(*cluster, *last));
        Self { of_clusters: of_clusters.collect(), last }
    }

    fn occupy(&mut self, span: Span) {
        for blocks in &mut self.of_clusters {
            blocks.occupy_between(span.family, span.first, span.last);
        }
    }

    /// A block of each cluster CIDR, or the one that has none.
    pub(super) fn give(&mut self, node: &NodeView, claimed: Option<&Claimed>) -> Result<Assignment, ClusterCidr> {
        let claimed_of = |index| claimed.and_then(|claimed| claimed.get(&index)).copied();
        let lacks =
            |(index, blocks): &(usize, &Blocks)| claimed_of(*index).is_none() && blocks.taken() >= blocks.size();
        if let Some((_, full)) = self.of_clusters.iter().enumerate().find(lacks) {
            return Err(full.cluster());
        }
        let (mut given, mut unclaimed) = (Vec::new(), Vec::new());
        for (index, blocks) in self.of_clusters.iter_mut().enumerate() {
            let (block, is_claimed) = match claimed_of(index) {
                Some(claimed) => claimed,
                None => {
                    let block = blocks.allocate().ok_or(blocks.cluster())?;
                    self.last[index] = Some(block);
                    (block, false)
                }
            };
            given.push(block);
            unclaimed.extend((!is_claimed).then_some(block));
        }
        let holder = Holder { node: node.name.clone(), uid: node.uid.clone() };
        Ok(Assignment { holder, blocks: given, unclaimed })
    }
}

/// Takes out what is not for pods, and notes who has it all the same.
fn reserve(observed: &Observed, all: &mut AllBlocks, survey: &mut Survey<'_>, plan: &mut Plan) {
    let of_nodes = observed.nodes.values().map(|node| {
        let spans = node.ips().map(Span::from).collect::<Vec<_>>();
        (Reserved::Node(node.name.clone()), spans)
    });
    // Who shares a network with pods is told of that; the addresses in it say no more.
    let mut is_node_told = false;
    for (reserved, spans) in observed.reserved.clone().into_iter().chain(of_nodes) {
        for span in spans {
            let within = observed.cluster.iter().find(|cluster| Span::from(cluster.prefix()).overlaps(&span));
            let Some(cluster) = within else { continue };
            all.occupy(span);
            let what = reserved.to_string();
            let owners: Vec<_> = survey.owners(span).map(|owner| (owner.node.clone(), owner.cidr)).collect();
            for (node, cidr) in owners {
                survey.note(&node, Note::PodCidrReserved { cidr, what: what.clone() });
            }
            // Where one Node's address is, those of all others may be: one of them is enough to say so.
            match reserved {
                Reserved::Node(_) if std::mem::replace(&mut is_node_told, true) => continue,
                Reserved::Network { .. } => is_node_told = true,
                _ => {}
            }
            let note = Note::ClusterCidrReserved { cidr: cluster.prefix(), what };
            plan.overlaps.entry(reserved.clone()).or_insert(note);
        }
    }
}

/// The claims of waiting Nodes that can be used: of blocks that nobody else has. By the Nodes' uids.
fn claimed(observed: &Observed, waiting: &[&NodeView], all: &AllBlocks) -> BTreeMap<String, Claimed> {
    let waiting: BTreeSet<_> = waiting.iter().map(|node| node.uid.as_str()).collect();
    let certain = observed.claims.iter().filter_map(|(block, claim)| Some((*block, claim.holder.as_ref()?, true)));
    let doubtful = observed.doubtful.iter().map(|(block, holder)| (*block, holder, false));
    let mut claimed = BTreeMap::<String, Claimed>::new();
    for (block, holder, is_certain) in certain.chain(doubtful) {
        let of = |blocks: &Blocks| blocks.cluster().is_block(block) && blocks.is_free(block);
        let Some(index) = all.of_clusters.iter().position(of) else { continue };
        if waiting.contains(holder.uid.as_str()) {
            claimed.entry(holder.uid.clone()).or_default().entry(index).or_insert((block, is_certain));
        }
    }
    claimed
}

/// The claims that nobody needs.
fn releases(observed: &Observed) -> BTreeMap<Prefix, Release> {
    let by_uid: BTreeMap<_, _> = observed.nodes.values().map(|node| (node.uid.as_str(), &**node)).collect();
    let release = |(block, claim): (&Prefix, &Arc<Claim>)| {
        let holder = claim.holder.as_ref()?;
        let unless_there = match by_uid.get(holder.uid.as_str()) {
            None => Some(holder.clone()),
            // It cannot get this one any more. An entry that nobody can read may be this one.
            Some(node)
                if has_pod_cidrs(node) && node.unread_pod_cidrs.is_empty() && !node.pod_cidrs.contains(block) =>
            {
                None
            }
            Some(_) => return None,
        };
        Some((*block, Release { claim: Arc::clone(claim), unless_there }))
    };
    observed.claims.iter().filter_map(release).collect()
}

/// Conditions of Nodes that wait in vain, and of those that did before.
fn conditions(observed: &Observed, notes: &BTreeMap<NodeName, Note>) -> BTreeMap<NodeName, Availability> {
    let change = |node: &Arc<NodeView>| {
        let shown = node.pod_cidr_unavailable.as_ref();
        let wanted = match notes.get(&node.name) {
            Some(note @ Note::CidrNotAvailable { .. }) => Availability::NotAvailable(note.to_string()),
            // Before it has them, the last word stays.
            _ if has_pod_cidrs(node) && shown.is_some() => Availability::Assigned,
            _ => return None,
        };
        let is_shown = match (&wanted, shown) {
            (Availability::Assigned, Some((status, _))) => *status == Truth::False,
            (Availability::NotAvailable(words), Some((status, message))) => *status == Truth::True && message == words,
            (_, None) => false,
        };
        (!is_shown).then(|| (node.name.clone(), wanted))
    };
    observed.nodes.values().filter_map(change).collect()
}

#[cfg(test)]
mod tests;
