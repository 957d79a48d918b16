//! Who waits for what, so that what becomes free finds its taker without asking everyone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;

use crate::model::{Family, PoolName, ServiceKey};
use crate::service::request::Rank;

/// What a Service waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watch {
    /// That something changes with one address.
    Address(IpAddr),
    /// An address of a family in a pool.
    Free(PoolName, Family),
    /// That someone who shares by this key makes room.
    Share(String),
    /// That the Services of a namespace have fewer addresses of a pool.
    Quota(PoolName, String),
    /// Another pool, or another word of one.
    Pools,
}

/// Who waits, in both directions.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting {
    by_watch: BTreeMap<Watch, BTreeSet<Rank>>,
    of: BTreeMap<ServiceKey, (Rank, BTreeSet<Watch>)>,
}

impl Waiting {
    /// Puts these in place of what a Service waited for.
    pub(super) fn set(&mut self, rank: &Rank, watches: BTreeSet<Watch>) {
        self.clear(&rank.1);
        if watches.is_empty() {
            return;
        }
        for watch in &watches {
            self.by_watch.entry(watch.clone()).or_default().insert(rank.clone());
        }
        self.of.insert(rank.1.clone(), (rank.clone(), watches));
    }

    /// The Service waits for nothing.
    pub(super) fn clear(&mut self, key: &ServiceKey) {
        let Some((rank, watches)) = self.of.remove(key) else { return };
        for watch in watches {
            if let Some(ranks) = self.by_watch.get_mut(&watch) {
                ranks.remove(&rank);
                if ranks.is_empty() {
                    self.by_watch.remove(&watch);
                }
            }
        }
    }

    /// Who waits for it, the oldest first.
    pub(super) fn all(&self, watch: &Watch) -> impl Iterator<Item = &ServiceKey> {
        self.by_watch.get(watch).into_iter().flatten().map(|(_, key)| key)
    }

    /// Who waits for it next after this one.
    pub(super) fn next(&self, watch: &Watch, after: Option<&Rank>) -> Option<&Rank> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_watch.get(watch)?.range((from, Bound::Unbounded)).next()
    }
}
