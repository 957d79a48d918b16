//! What the log says about routes: each thing once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tracing::{info, warn};

use super::standing::RouteFailure;
use crate::model::{FibRoute, Moment, Prefix};

/// At most one line about repairs in this time.
const REPAIR_LOG_GAP: Duration = Duration::from_secs(10);

/// Says each thing once: the first failure of a kind, its end, and repairs at most every 10 s.
#[derive(Debug, Default)]
pub(super) struct Journal {
    warned: BTreeSet<&'static str>,
    untold_repairs: usize,
    told_repairs: Option<Moment>,
}

impl Journal {
    /// These routes are not in place.
    pub(super) fn failed(&mut self, failures: &BTreeMap<Prefix, RouteFailure>) {
        let mut kinds = BTreeSet::new();
        for (prefix, failure) in failures {
            let kind = failure.label();
            if kinds.insert(kind) && !self.warned.contains(kind) {
                let routes = failures.values().filter(|other| other.label() == kind).count();
                warn!(%prefix, error = %failure, routes, "route not in place");
            }
        }
        for kind in self.warned.difference(&kinds) {
            info!(reason = kind, "routes no longer fail for this reason");
        }
        self.warned = kinds;
    }

    /// These were put back.
    pub(super) fn repaired(&mut self, repaired: &[FibRoute], now: Moment) {
        self.untold_repairs += repaired.len();
        let is_time = self.told_repairs.is_none_or(|told| now.since(told) >= REPAIR_LOG_GAP);
        if let Some(route) = repaired.first()
            && is_time
        {
            let routes = self.untold_repairs;
            warn!(prefix = %route.destination, routes, "put routes back that others removed or changed");
            self.untold_repairs = 0;
            self.told_repairs = Some(now);
        }
    }
}
