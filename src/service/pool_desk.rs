//! The pools on the desk: what is known of them, and whose status is to be written when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::pool_status::ObservedPool;
use crate::api::AddressPoolStatus;
use crate::cluster::written::is_older;
use crate::model::{Moment, PoolName};

/// A pool's status changes with every Service; it is written no more often than this.
const PACE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct PoolDesk {
    known: BTreeMap<PoolName, Arc<ObservedPool>>,
    /// Those of which there may be something else to say.
    queue: BTreeSet<PoolName>,
    written: BTreeMap<PoolName, Moment>,
}

impl PoolDesk {
    /// Every pool that is known.
    pub(super) fn known(&self) -> &BTreeMap<PoolName, Arc<ObservedPool>> {
        &self.known
    }

    /// A pool's status as it was last written or seen.
    pub(super) fn status(&self, name: &PoolName) -> Option<&AddressPoolStatus> {
        self.known.get(name).map(|pool| &pool.status)
    }

    /// Keeps the newer of what is known and what is seen of each; a pool that is not seen is gone.
    pub(super) fn see(&mut self, pools: BTreeMap<PoolName, Arc<ObservedPool>>) {
        let mut newest = BTreeMap::new();
        for (name, pool) in pools {
            let known = self.known.get(&name);
            let is_behind = known.filter(|known| is_older(&pool.resource_version, &known.resource_version));
            let pool = is_behind.cloned().unwrap_or(pool);
            if known != Some(&pool) {
                self.queue.insert(name.clone());
            }
            newest.insert(name, pool);
        }
        self.queue.retain(|name| newest.contains_key(name));
        self.written.retain(|name, _| newest.contains_key(name));
        self.known = newest;
    }

    /// A pool as the API server answered that it is, unless it is known to be gone or to be another since: somebody
    /// may have changed it between the write and its answer, and the watch may have been faster.
    pub(super) fn answered(&mut self, name: &PoolName, pool: ObservedPool) {
        let known = self.known.get_mut(name);
        if let Some(known) = known.filter(|known| !is_older(&pool.resource_version, &known.resource_version)) {
            *known = Arc::new(pool);
        }
    }

    /// There may be something else to say of these.
    pub(super) fn enqueue(&mut self, names: impl IntoIterator<Item = PoolName>) {
        self.queue.extend(names);
    }

    /// Takes those whose time has come, and who `may` be written.
    pub(super) fn take_due(&mut self, now: Moment, may: impl Fn(&PoolName) -> bool) -> Vec<PoolName> {
        let due: Vec<_> = self.queue.iter().filter(|name| self.due(name) <= Some(now) && may(name)).cloned().collect();
        due.iter().for_each(|name| _ = self.queue.remove(name));
        due
    }

    /// The status of a pool is on its way.
    pub(super) fn sent(&mut self, name: PoolName, now: Moment) {
        self.written.insert(name, now);
    }

    /// When the next is to be taken, of those that wait for no answer; `retry` is when one that failed may be.
    pub(super) fn deadline(
        &self,
        is_on_its_way: impl Fn(&PoolName) -> bool,
        retry: impl Fn(&PoolName) -> Option<Moment>,
    ) -> Option<Moment> {
        let waiting = self.queue.iter().filter(|name| !is_on_its_way(name));
        waiting.map(|name| self.due(name).max(retry(name)).unwrap_or_default()).min()
    }

    /// When a pool may be written again; `None` is at once.
    fn due(&self, name: &PoolName) -> Option<Moment> {
        self.written.get(name).map(|written| *written + PACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::AddressPoolSpec;
    use crate::service::cases;

    #[test]
    fn of_what_is_seen_and_what_is_answered_the_newer_is_known() {
        let name: PoolName = "a".parse().expect("a name");
        let pool = |version: u32| {
            let spec = AddressPoolSpec { addresses: vec!["10.0.0.0/24".to_owned()], ..AddressPoolSpec::default() };
            ObservedPool { resource_version: version.to_string(), ..cases::observed_pool("a", &spec) }
        };
        let seen = |version| BTreeMap::from([(name.clone(), Arc::new(pool(version)))]);
        let version = |desk: &PoolDesk| desk.known[&name].resource_version.clone();
        let mut desk = PoolDesk::default();
        desk.answered(&name, pool(4));
        assert!(desk.known.is_empty(), "an answer of one that is gone");
        desk.see(seen(5));
        desk.answered(&name, pool(7));
        assert_eq!(version(&desk), "7");
        desk.see(seen(6));
        assert_eq!(version(&desk), "7", "the watch lags behind");
        desk.see(seen(9));
        assert_eq!(desk.take_due(Moment::default(), |_| true), std::slice::from_ref(&name));
        desk.answered(&name, pool(8));
        assert_eq!(version(&desk), "9", "the answer lags behind");
    }
}
