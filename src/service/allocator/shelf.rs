//! One pool: what it gives out, what of that is gone, and who keeps what it no longer gives.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::taken::Taken;
use super::territory::Territory;
use crate::config::block::subtract;
use crate::config::{AddressBlock, Pool, block};
use crate::model::{Family, Moment, ServiceKey};
use crate::service::pool_status::ObservedPool;

/// A pool as the ledger has it.
#[derive(Debug, Clone, Default)]
pub(super) struct Shelf {
    /// What it says; `None` when that is wrong.
    pub(super) pool: Option<Arc<Pool>>,
    /// The blocks it gives out, in the order of its `spec`.
    pub(super) blocks: Vec<AddressBlock>,
    /// The blocks that are its own: those, or more while it gives nothing out.
    pub(super) ground: Vec<AddressBlock>,
    /// Blocks that it gave out once.
    pub(super) former: Vec<AddressBlock>,
    /// Who has what it claims, a sentence each.
    pub(super) conflicts: Vec<String>,
    /// Services that keep addresses which this pool would not give them today.
    pub(super) kept: BTreeSet<(ServiceKey, IpAddr)>,
    /// Every address of the blocks that cannot be given now.
    unavailable: Taken,
    /// Those of them that nobody gets by waiting: held, reserved, a Node's.
    busy: BTreeSet<IpAddr>,
    held: BTreeSet<IpAddr>,
    cooling: BTreeSet<(Moment, IpAddr)>,
    /// By namespace, its addresses and how many of its Services have each.
    by_namespace: BTreeMap<String, BTreeMap<IpAddr, usize>>,
}

/// What there is to know about one address of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Anyone may have it.
    Free,
    /// It waits since it was given back.
    Cooling(Moment),
    /// Kept for one Service that does not have it, or a Node's.
    Spoken,
    /// A Service has it.
    Held,
}

impl Shelf {
    /// A pool of which nothing is given yet.
    pub(super) fn new(observed: &ObservedPool, territory: Territory, before: Option<&Self>) -> Self {
        let Territory { blocks, ground, conflicts } = territory;
        let gave: Vec<_> = match before {
            Some(shelf) => shelf.blocks.iter().chain(&shelf.former).copied().collect(),
            None => observed.blocks.iter().chain(&observed.draining).copied().collect(),
        };
        let mut former = Vec::new();
        for block in subtract(&gave, &blocks) {
            let more = subtract(&[block], &former);
            former.extend(more);
        }
        let kept = before.map(|shelf| shelf.kept.clone()).unwrap_or_default();
        let pool = observed.check.as_ref().ok().map(|pool| Arc::new(pool.clone()));
        Self { pool, blocks, ground, former, conflicts, kept, ..Self::default() }
    }

    /// Whether nothing changed for it.
    pub(super) fn is_as(&self, observed: &ObservedPool, territory: &Territory) -> bool {
        self.pool.as_deref() == observed.check.as_ref().ok()
            && (&self.blocks, &self.ground, &self.conflicts)
                == (&territory.blocks, &territory.ground, &territory.conflicts)
    }

    /// Whether the address is one that it gives out.
    pub(super) fn gives(&self, address: IpAddr) -> bool {
        let avoids_buggy = self.pool.as_ref().is_some_and(|pool| pool.avoids_buggy);
        self.blocks.iter().any(|block| block.contains(address)) && !(avoids_buggy && block::is_buggy(address))
    }

    /// Notes the state of one of its addresses.
    pub(super) fn mark(&mut self, address: IpAddr, state: State, was_cooling: Option<Moment>) {
        if let Some(until) = was_cooling {
            self.cooling.remove(&(until, address));
        }
        if state == State::Free {
            self.unavailable.remove(address)
        } else {
            self.unavailable.insert(address)
        }
        let mut put = |set: fn(&mut Self) -> &mut BTreeSet<IpAddr>, is_in: bool| {
            if is_in {
                set(self).insert(address)
            } else {
                set(self).remove(&address)
            };
        };
        put(|shelf| &mut shelf.busy, matches!(state, State::Held | State::Spoken));
        put(|shelf| &mut shelf.held, state == State::Held);
        if let State::Cooling(until) = state {
            self.cooling.insert((until, address));
        }
    }

    /// Notes that a Service of a namespace has one of its addresses.
    pub(super) fn count(&mut self, namespace: &str, address: IpAddr) {
        *self.by_namespace.entry(namespace.to_owned()).or_default().entry(address).or_default() += 1;
    }

    /// Notes that a Service of a namespace no longer has one of its addresses.
    pub(super) fn discount(&mut self, namespace: &str, address: IpAddr) {
        let Some(addresses) = self.by_namespace.get_mut(namespace) else { return };
        if let Some(count) = addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&address);
            }
        }
        if addresses.is_empty() {
            self.by_namespace.remove(namespace);
        }
    }

    /// How many addresses the Services of a namespace have.
    pub(super) fn used_by(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).map_or(0, BTreeMap::len)
    }

    /// Whether a Service of the namespace has the address already, so that it counts no second time.
    pub(super) fn is_used_by(&self, namespace: &str, address: IpAddr) -> bool {
        self.by_namespace.get(namespace).is_some_and(|addresses| addresses.contains_key(&address))
    }

    /// Whether it gives out addresses of a family at all.
    pub(super) fn has_family(&self, family: Family) -> bool {
        self.blocks.iter().any(|block| block.family() == family)
    }

    /// The lowest free address of the first block that has one.
    pub(super) fn lowest_free(&mut self, family: Family) -> Option<IpAddr> {
        let avoids_buggy = self.pool.as_ref().is_some_and(|pool| pool.avoids_buggy);
        let unavailable = &mut self.unavailable;
        self.blocks.iter().filter(|block| block.family() == family).find_map(|block| {
            loop {
                let address = unavailable.lowest_free(block)?;
                if !(avoids_buggy && block::is_buggy(address)) {
                    return Some(address);
                }
                // Met once and never again: a large pool is not marked before anyone asks.
                unavailable.insert(address);
            }
        })
    }

    /// The address of a family whose wait ends first.
    pub(super) fn first_cooling(&self, family: Family) -> Option<IpAddr> {
        self.cooling.iter().map(|(_, address)| *address).find(|address| Family::of(*address) == family)
    }

    /// Those that wait.
    pub(super) fn cooling(&self) -> impl DoubleEndedIterator<Item = (Moment, IpAddr)> + '_ {
        self.cooling.iter().copied()
    }

    /// All that it gives out of a family, how many of those are held, and how many could still be got.
    pub(super) fn counts(&self, family: Family) -> (u128, usize, u128) {
        let avoids_buggy = self.pool.as_ref().is_some_and(|pool| pool.avoids_buggy);
        let of_family = self.blocks.iter().filter(|block| block.family() == family);
        let total: u128 = of_family.map(|block| block.size() - if avoids_buggy { block.buggy() } else { 0 }).sum();
        let among = |set: &BTreeSet<IpAddr>| match family {
            Family::V4 => set.range(..IpAddr::from([0_u16; 8])).count(),
            Family::V6 => set.range(IpAddr::from([0_u16; 8])..).count(),
        };
        (total, among(&self.held), total - among(&self.busy) as u128)
    }
}
