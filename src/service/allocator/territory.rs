//! Which addresses each pool has, when several claim the same: the one that had them first.
//!
//! What a pool had in use stays in use, as far as its `spec` still says it. What it adds, a new pool
//! all of it, is taken whole or not at all: with an address that another pool, a Node, the pods or the
//! Services' own range has, nothing is added. Of two additions the older pool's goes first.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::config::AddressBlock;
use crate::config::block::{intersect, subtract};
use crate::model::{Family, NodeName, PoolName};
use crate::service::pool_status::ObservedPool;

/// What is on the map beside pools.
#[derive(Debug, Clone, Default)]
pub(super) struct Surroundings {
    /// Addresses of Nodes.
    pub(super) nodes: BTreeMap<IpAddr, BTreeSet<NodeName>>,
    /// CIDRs of pods and of Services, by first address, and whose they are.
    pub(super) cidrs: BTreeMap<(Family, u128), BTreeMap<AddressBlock, BTreeSet<String>>>,
}

impl Surroundings {
    /// The Nodes' addresses in a block.
    fn nodes_within(&self, block: &AddressBlock) -> impl Iterator<Item = (IpAddr, &NodeName)> {
        let nodes = self.nodes.range(block.first()..=block.last());
        nodes.filter_map(|(address, nodes)| Some((*address, nodes.first()?)))
    }

    /// The CIDRs that share addresses with a block. CIDRs are disjoint or one within the other.
    fn cidrs_within<'a>(&'a self, block: &'a AddressBlock) -> impl Iterator<Item = (&'a AddressBlock, &'a String)> {
        let (first, last) = ((block.family(), block.first_number()), (block.family(), block.last_number()));
        let before = self.cidrs.range(..first).rev().take(2).flat_map(|(_, cidrs)| cidrs);
        let within = self.cidrs.range(first..=last).flat_map(|(_, cidrs)| cidrs);
        let cidrs = before.chain(within).filter(|(cidr, _)| cidr.overlaps(block));
        cidrs.filter_map(|(cidr, owners)| Some((cidr, owners.first()?)))
    }
}

/// What one pool has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Territory {
    /// The blocks that it gives out, in the order of its `spec`.
    pub(super) blocks: Vec<AddressBlock>,
    /// The blocks that are its own: those, or more while it gives nothing out.
    pub(super) ground: Vec<AddressBlock>,
    /// Who has what it claims, a sentence each.
    pub(super) conflicts: Vec<String>,
}

/// The addresses that pools have so far; no two blocks overlap.
#[derive(Default)]
struct Claimed<'a>(BTreeMap<(Family, u128), (AddressBlock, &'a PoolName)>);

impl<'a> Claimed<'a> {
    fn claim(&mut self, name: &'a PoolName, blocks: &[AddressBlock]) {
        self.0.extend(blocks.iter().map(|block| ((block.family(), block.first_number()), (*block, name))));
    }

    /// What others have of a block.
    fn others<'b>(
        &'b self,
        name: &'b PoolName,
        block: &'b AddressBlock,
    ) -> impl Iterator<Item = &'b (AddressBlock, &'a PoolName)> {
        let (first, last) = ((block.family(), block.first_number()), (block.family(), block.last_number()));
        let before = self.0.range(..first).next_back().map(|(_, claim)| claim);
        let within = self.0.range(first..=last).map(|(_, claim)| claim);
        before.into_iter().chain(within).filter(move |(other, by)| *by != name && other.overlaps(block))
    }
}

/// Divides the addresses among the pools; `in_use` is what each gave out before.
pub(super) fn divide(
    pools: &BTreeMap<PoolName, Arc<ObservedPool>>,
    in_use: &BTreeMap<PoolName, Vec<AddressBlock>>,
    around: &Surroundings,
) -> BTreeMap<PoolName, Territory> {
    let mut by_age: Vec<_> = pools.iter().collect();
    by_age.sort_by_key(|(name, pool)| (pool.created_seconds, *name));
    let mut claimed = Claimed::default();
    let mut territories = BTreeMap::<PoolName, Territory>::new();
    let before = |name: &PoolName| in_use.get(name).map(Vec::as_slice).unwrap_or_default();
    for (name, pool) in &by_age {
        let mut territory = Territory::default();
        let says = pool.check.as_ref().map(|pool| pool.blocks.as_slice()).unwrap_or(before(name));
        let stays = intersect(says, before(name));
        let others = taken_by_others(name, &stays, &claimed, around, &mut territory.conflicts);
        let stays = subtract(&stays, &others);
        claimed.claim(name, &stays);
        territory.conflicts.extend(
            stays.iter().flat_map(|block| around.nodes_within(block).map(|(address, node)| of_node(address, node))),
        );
        // What cannot be read gives nothing out, and lets nobody else have it.
        territory.blocks = if pool.check.is_ok() && !pool.is_deleting { stays.clone() } else { Vec::new() };
        territory.ground = stays;
        territories.insert((*name).clone(), territory);
    }
    for (name, pool) in &by_age {
        let (Ok(says), Some(territory)) = (&pool.check, territories.get_mut(*name)) else { continue };
        let added = subtract(&says.blocks, before(name));
        if pool.is_deleting || added.is_empty() {
            continue;
        }
        let mut conflicts = Vec::new();
        taken_by_others(name, &added, &claimed, around, &mut conflicts);
        let nodes = added.iter().flat_map(|block| around.nodes_within(block));
        conflicts.extend(nodes.map(|(address, node)| of_node(address, node)));
        if conflicts.is_empty() {
            claimed.claim(name, &added);
            let all: Vec<_> = territory.blocks.iter().copied().chain(added).collect();
            territory.blocks = merged(&says.blocks, &all);
            territory.ground.clone_from(&territory.blocks);
        }
        territory.conflicts.extend(conflicts);
    }
    territories
}

/// The blocks that others have of these, and a sentence for each.
fn taken_by_others(
    name: &PoolName,
    blocks: &[AddressBlock],
    claimed: &Claimed<'_>,
    around: &Surroundings,
    conflicts: &mut Vec<String>,
) -> Vec<AddressBlock> {
    let mut taken = Vec::new();
    for block in blocks {
        for (other, by) in claimed.others(name, block) {
            conflicts.push(format!(
                "{block} shares addresses with {other} of AddressPool {by}, which had them first: each address takes one pool"
            ));
            taken.push(*other);
        }
        for (cidr, whose) in around.cidrs_within(block) {
            conflicts.push(format!(
                "{block} shares addresses with {cidr}, {whose}: it takes addresses that nothing else has"
            ));
            taken.push(*cidr);
        }
    }
    taken
}

fn of_node(address: IpAddr, node: &NodeName) -> String {
    format!("{address} is an address of node {node}: put it into spec.exclude")
}

/// Parts of blocks as these blocks again, where a block is whole.
fn merged(says: &[AddressBlock], parts: &[AddressBlock]) -> Vec<AddressBlock> {
    let of = |block: &AddressBlock| intersect(std::slice::from_ref(block), parts);
    says.iter()
        .flat_map(|block| {
            let parts = of(block);
            let size: u128 = parts.iter().map(AddressBlock::size).sum();
            if size == block.size() { vec![*block] } else { parts }
        })
        .collect()
}
