//! Every kernel route there should be, put together from what each part of the plan wants.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{FibRoute, FibWish, Prefix, routes_to};

/// The whole wish, and the parts it was last made of: only what changed of them is put together again.
#[derive(Debug, Clone, Default)]
pub struct Fib {
    direct: FibWish,
    learned: FibWish,
    last_resorts: BTreeSet<FibRoute>,
    whole: Arc<FibWish>,
}

impl Fib {
    /// The routes straight to nodes, those that routers told of, and those for packets that would go in circles.
    pub fn of(&mut self, direct: &FibWish, learned: &FibWish, last_resorts: &BTreeSet<FibRoute>) -> Arc<FibWish> {
        let mut changed: BTreeSet<Prefix> = direct.changed_since(&self.direct).into_iter().collect();
        changed.extend(learned.changed_since(&self.learned));
        changed.extend(take_in(&mut self.last_resorts, last_resorts));
        (self.direct, self.learned) = (direct.clone(), learned.clone());
        if !changed.is_empty() {
            let whole = Arc::make_mut(&mut self.whole);
            for destination in changed {
                whole.take_over(destination, direct);
                let others = learned.to(&destination).iter().chain(routes_to(last_resorts, destination));
                others.for_each(|route| whole.add(route.clone()));
            }
        }
        Arc::clone(&self.whole)
    }
}

/// Brings routes up to date, and returns the destinations for which they were not; there are few of them.
fn take_in(known: &mut BTreeSet<FibRoute>, now: &BTreeSet<FibRoute>) -> Vec<Prefix> {
    if known == now {
        return Vec::new();
    }
    let changed = known.symmetric_difference(now).map(|route| route.destination).collect();
    known.clone_from(now);
    changed
}
