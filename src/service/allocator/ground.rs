//! The ground the ledger stands on: pools, Nodes, namespaces, and what changes when they do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::cooling::Cool;
use super::shelf::Shelf;
use super::territory;
use super::waiting::Watch;
use super::{Chance, Ledger, NodeFacts};
use crate::config::AddressBlock;
use crate::config::selector::Labels;
use crate::model::{NodeName, PoolName, Prefix, ServiceKey};

impl Ledger {
    /// Takes Nodes as they are now; answers with the addresses that came or went, and whether anything did.
    pub(super) fn take_nodes(&mut self, nodes: BTreeMap<NodeName, Option<NodeFacts>>) -> (BTreeSet<IpAddr>, bool) {
        let (mut moved, mut has_changed) = (BTreeSet::new(), false);
        for (name, facts) in nodes {
            let facts = facts.unwrap_or_default();
            // Most of what changes about Nodes is neither.
            if self.nodes.get(&name).unwrap_or(&NodeFacts::default()) == &facts {
                continue;
            }
            let before = self.nodes.remove(&name).unwrap_or_default();
            for address in before.addresses.difference(&facts.addresses) {
                let is_last = self.around.nodes.get_mut(address).is_some_and(|nodes| {
                    nodes.remove(&name);
                    nodes.is_empty()
                });
                if is_last {
                    self.around.nodes.remove(address);
                }
            }
            for address in facts.addresses.difference(&before.addresses) {
                self.around.nodes.entry(*address).or_default().insert(name.clone());
            }
            moved.extend(before.addresses.symmetric_difference(&facts.addresses));
            has_changed = true;
            let whose = format!("the pods of node {name}");
            for cidr in &before.pod_cidrs {
                self.drop_cidr((*cidr).into(), &whose);
            }
            for cidr in &facts.pod_cidrs {
                self.add_cidr((*cidr).into(), &whose);
            }
            if facts != NodeFacts::default() {
                self.nodes.insert(name, facts);
            }
        }
        (moved, has_changed)
    }

    fn add_cidr(&mut self, block: AddressBlock, whose: &str) {
        let cidrs = self.around.cidrs.entry((block.family(), block.first_number())).or_default();
        cidrs.entry(block).or_default().insert(whose.to_owned());
    }

    /// Whoever else has the same block keeps it.
    fn drop_cidr(&mut self, block: AddressBlock, whose: &str) {
        let place = (block.family(), block.first_number());
        let Some(cidrs) = self.around.cidrs.get_mut(&place) else { return };
        if let Some(owners) = cidrs.get_mut(&block) {
            owners.remove(whose);
            if owners.is_empty() {
                cidrs.remove(&block);
            }
        }
        if cidrs.is_empty() {
            self.around.cidrs.remove(&place);
        }
    }

    /// Takes the ranges of the cluster as a whole as they are now.
    pub(super) fn take_cidrs(&mut self, cidrs: BTreeMap<Prefix, String>) {
        for (cidr, whose) in std::mem::take(&mut self.cidrs) {
            self.drop_cidr(cidr.into(), &whose);
        }
        for (cidr, whose) in &cidrs {
            self.add_cidr((*cidr).into(), whose);
        }
        self.cidrs = cidrs;
    }

    /// An address of a Node came or went.
    pub(super) fn node_moved(&mut self, address: IpAddr) {
        let holders: Vec<_> = self.book.holders(address).cloned().collect();
        holders.iter().for_each(|key| self.look_again(key));
        self.refresh(address, None);
        self.chances.push_back(Chance::Address(address));
    }

    /// Takes the labels of namespaces as they are now; whoever is in one whose labels changed may be served by others.
    pub(super) fn take_namespaces(&mut self, namespaces: BTreeMap<String, Option<Labels>>) {
        let matters = |shelf: &Shelf| {
            shelf.pool.as_ref().and_then(|pool| pool.serves.as_ref()).is_some_and(|serves| serves.looks_at_namespaces())
        };
        let serves_some = |shelf: &Shelf| shelf.pool.as_ref().is_some_and(|pool| pool.serves.is_some());
        for (name, labels) in namespaces {
            let is_news = self.namespaces.get(&name) != labels.as_ref();
            match labels {
                Some(labels) => self.namespaces.insert(name.clone(), labels),
                None => self.namespaces.remove(&name),
            };
            if is_news {
                let serving = self.shelves.iter().filter(|(_, shelf)| serves_some(shelf));
                self.changed.pools.extend(serving.map(|(name, _)| name.clone()));
            }
            if is_news && self.shelves.values().any(matters) {
                let first = ServiceKey::new(name.clone(), "");
                let within: Vec<_> = self
                    .accounts
                    .range(first..)
                    .map(|(key, _)| key)
                    .take_while(|key| key.namespace() == name)
                    .cloned()
                    .collect();
                within.iter().for_each(|key| self.look_again(key));
            }
        }
    }

    /// Divides the ground anew, and looks at those for whom that changes something.
    pub(super) fn survey(&mut self) {
        let mut in_use: BTreeMap<PoolName, Vec<AddressBlock>> = BTreeMap::new();
        for (name, pool) in &self.observed {
            let known = self.shelves.get(name).map(|shelf| shelf.ground.clone());
            in_use.insert(name.clone(), known.unwrap_or_else(|| pool.blocks.clone()));
        }
        let territories = territory::divide(&self.observed, &in_use, &self.around);
        let gone: Vec<_> = self.shelves.keys().filter(|name| !self.observed.contains_key(*name)).cloned().collect();
        let (mut moved, has_gone) = (BTreeSet::new(), !gone.is_empty());
        for name in gone {
            self.recalled.remove(&name);
            let shelf = self.shelves.remove(&name).unwrap_or_default();
            self.changed.pools.insert(name);
            moved.extend(self.holders_in(&shelf.blocks));
            moved.extend(shelf.kept.into_iter().map(|(key, _)| key));
        }
        let mut fresh = Vec::new();
        for (name, territory) in territories {
            let observed = Arc::clone(&self.observed[&name]);
            if self.shelves.get(&name).is_some_and(|shelf| shelf.is_as(&observed, &territory)) {
                continue;
            }
            let before = self.shelves.remove(&name);
            moved.extend(before.iter().flat_map(|shelf| self.holders_in(&shelf.blocks)));
            moved.extend(self.holders_in(&territory.blocks));
            fresh.push(name.clone());
            let mut shelf = Shelf::new(&observed, territory, before.as_ref());
            if before.is_some() {
                // Who has what is known by now: what nobody is left in has drained.
                shelf.former.retain(|block| self.book.within(block).next().is_some());
            }
            moved.extend(self.holders_in(&shelf.former));
            self.shelves.insert(name, shelf);
        }
        if fresh.is_empty() && !has_gone {
            return;
        }
        self.index();
        for name in &fresh {
            self.recall(name);
            self.stock(name);
        }
        moved.iter().for_each(|key| self.look_again(key));
        // Whoever lacks something may get it from a pool that changed.
        self.look_at_all(&Watch::Pools);
    }

    fn holders_in(&self, blocks: &[AddressBlock]) -> BTreeSet<ServiceKey> {
        blocks.iter().flat_map(|block| self.book.within(block)).flat_map(|(_, holders)| holders.cloned()).collect()
    }

    /// Puts the pools into their order, and their blocks and reservations where they are found.
    fn index(&mut self) {
        let mut order: Vec<_> =
            self.shelves.iter().filter_map(|(name, shelf)| Some((name, shelf.pool.as_ref()?))).collect();
        order.sort_by_key(|(name, pool)| (pool.serves.is_none(), pool.priority.unwrap_or(u16::MAX), *name));
        self.reserved.clear();
        for (_, pool) in &order {
            for (address, key) in &pool.reservations {
                self.reserved.entry(key.clone()).or_default().push(*address);
            }
        }
        self.order = order.into_iter().map(|(name, _)| name.clone()).collect();
        let of = |(name, shelf): (&PoolName, &Shelf)| {
            let name = name.clone();
            shelf
                .blocks
                .clone()
                .into_iter()
                .map(move |block| ((block.family(), block.first_number()), (block, name.clone())))
        };
        self.places = self.shelves.iter().flat_map(of).collect();
    }

    /// What the leader before this one wrote down of addresses that cool down.
    fn recall(&mut self, name: &PoolName) {
        let Some(observed) = self.observed.get(name).filter(|_| !self.recalled.contains(name)).cloned() else { return };
        self.recalled.insert(name.clone());
        let Ok(pool) = &observed.check else { return };
        for cooling in &observed.cooling {
            // A clock that was set back makes nobody wait longer than the pool says.
            let elapsed = self.now.unix_seconds.saturating_sub(cooling.freed_seconds);
            let elapsed = Duration::from_secs(u64::try_from(elapsed).unwrap_or_default());
            let left = pool.reuse_after.saturating_sub(elapsed);
            if left.is_zero() || self.book.is_held(cooling.address) || self.cooling.get(cooling.address).is_some() {
                continue;
            }
            let (until, freed_seconds) = (self.now.moment + left, cooling.freed_seconds);
            self.cooling.start(cooling.address, Cool { by: cooling.by.clone(), until, freed_seconds });
        }
    }

    /// Tells a pool what has become of each of its addresses that is not simply free.
    fn stock(&mut self, name: &PoolName) {
        let Some(shelf) = self.shelves.get(name) else { return };
        let blocks = shelf.blocks.clone();
        let mut known: BTreeSet<IpAddr> =
            shelf.pool.iter().flat_map(|pool| pool.reservations.keys().copied()).collect();
        let mut counted = Vec::new();
        for block in &blocks {
            known.extend(self.around.nodes.range(block.first()..=block.last()).map(|(address, _)| *address));
            known.extend(self.cooling.within(block));
            for (address, holders) in self.book.within(block) {
                known.insert(address);
                counted.extend(holders.map(|key| (key.namespace().to_owned(), address)));
            }
        }
        if let Some(shelf) = self.shelves.get_mut(name) {
            for (namespace, address) in counted {
                if shelf.gives(address) {
                    shelf.count(&namespace, address);
                }
            }
        }
        known.into_iter().for_each(|address| self.refresh(address, None));
        self.changed.pools.insert(name.clone());
    }
}
