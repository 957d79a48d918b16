//! The blocks of one cluster CIDR, and which of them are taken: pure.
//!
//! No block is looked for one by one: what is taken is kept as intervals, so a cluster CIDR of 2^24
//! blocks costs what one of four does. Blocks go round: the next one is given from behind the last,
//! so that a block that became free is given out again as late as possible. A route or a connection
//! of its last Node has then long been forgotten.

use std::collections::BTreeMap;

use crate::config::ClusterCidr;
use crate::model::{Family, Prefix};

/// The blocks of one cluster CIDR.
#[derive(Debug, Clone)]
pub struct Blocks {
    cluster: ClusterCidr,
    /// First to last block, by number; intervals that neither touch nor overlap.
    taken: BTreeMap<u128, u128>,
    /// How many blocks that are.
    count: u128,
    /// Where the search for a free block begins.
    next: u128,
}

impl Blocks {
    /// All of them are free; the first to be given is the one behind `last`.
    pub fn new(cluster: ClusterCidr, last: Option<Prefix>) -> Self {
        let mut blocks = Self { cluster, taken: BTreeMap::new(), count: 0, next: 0 };
        let behind = last.and_then(|last| blocks.covered(last)).map(|(_, last)| last + 1);
        blocks.next = behind.filter(|next| *next <= blocks.last()).unwrap_or(0);
        blocks
    }

    /// The cluster CIDR.
    pub fn cluster(&self) -> ClusterCidr {
        self.cluster
    }

    /// How many blocks there are, saturating at 2^128 - 1.
    pub fn size(&self) -> u128 {
        self.last().saturating_add(1)
    }

    /// How many of them are taken.
    pub fn taken(&self) -> u128 {
        self.count
    }

    /// Takes every block that shares an address with the prefix; those beyond the cluster CIDR are
    /// not ours to take. Blocks that are taken already stay so.
    pub fn occupy(&mut self, prefix: Prefix) {
        if let Some((first, last)) = self.covered(prefix) {
            self.take(first, last);
        }
    }

    /// As [`Self::occupy`], for addresses from a first to a last one.
    pub fn occupy_between(&mut self, family: Family, first: u128, last: u128) {
        if let Some((first, last)) = self.covered_between(family, first, last) {
            self.take(first, last);
        }
    }

    /// Whether no block that shares an address with the prefix is taken.
    pub fn is_free(&self, prefix: Prefix) -> bool {
        self.covered(prefix).is_none_or(|(first, last)| {
            let before = self.taken.range(..=last).next_back();
            before.is_none_or(|(_, taken_last)| *taken_last < first)
        })
    }

    /// Takes the next free block, or none when there is none.
    pub fn allocate(&mut self) -> Option<Prefix> {
        let number = self.free_from(self.next).or_else(|| self.free_from(0))?;
        self.take(number, number);
        self.next = if number == self.last() { 0 } else { number + 1 };
        self.block(number)
    }

    /// The lowest free block from this one on.
    fn free_from(&self, number: u128) -> Option<u128> {
        let free = match self.taken.range(..=number).next_back() {
            Some((_, last)) if *last >= number => last.checked_add(1)?,
            _ => number,
        };
        (free <= self.last()).then_some(free)
    }

    fn take(&mut self, first: u128, last: u128) {
        let (mut low, mut high) = (first, last);
        // Those that touch or overlap the new one become one with it, from the last to the first.
        while let Some((&known_low, &known_high)) = self.taken.range(..=high.saturating_add(1)).next_back() {
            if known_high.saturating_add(1) < low {
                break;
            }
            self.taken.remove(&known_low);
            self.count -= known_high - known_low + 1;
            (low, high) = (low.min(known_low), high.max(known_high));
        }
        self.count = self.count.saturating_add((high - low).saturating_add(1));
        self.taken.insert(low, high);
    }

    /// The numbers of the blocks that share an address with the prefix.
    fn covered(&self, prefix: Prefix) -> Option<(u128, u128)> {
        let (first, last) = prefix.bounds();
        self.covered_between(prefix.family(), first, last)
    }

    fn covered_between(&self, family: Family, first: u128, last: u128) -> Option<(u128, u128)> {
        let (low, high) = self.cluster.prefix().bounds();
        if family != self.cluster.prefix().family() || last < low || high < first {
            return None;
        }
        let number = |address: u128| (address - low).checked_shr(self.host_bits()).unwrap_or(0);
        Some((number(first.max(low)), number(last.min(high))))
    }

    fn block(&self, number: u128) -> Option<Prefix> {
        let (low, _) = self.cluster.prefix().bounds();
        let first = low + number.checked_shl(self.host_bits()).unwrap_or(0);
        Prefix::containing(self.cluster.prefix().family().address(first)?, self.cluster.node_length())
    }

    /// The number of the last block.
    fn last(&self) -> u128 {
        let bits = u32::from(self.cluster.node_length() - self.cluster.prefix().length());
        1_u128.checked_shl(bits).map_or(u128::MAX, |size| size - 1)
    }

    fn host_bits(&self) -> u32 {
        u32::from(self.cluster.prefix().family().bits() - self.cluster.node_length())
    }
}

#[cfg(test)]
mod tests;
