//! When to try again what failed: soon at first, then ever later, each object for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::Moment;

/// A conflict or a hiccup is over by then.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(60);

/// What failed, and when its next try is due.
#[derive(Debug)]
pub struct Backoff<K> {
    failed: BTreeMap<K, Failed>,
    /// Those whose next try nobody has begun, by time.
    waiting: BTreeSet<(Moment, K)>,
    jitter: fastrand::Rng,
}

#[derive(Debug, Clone, Copy)]
struct Failed {
    times: u32,
    next: Moment,
}

impl<K: Ord + Clone> Backoff<K> {
    /// Nothing failed yet.
    pub fn new(seed: u64) -> Self {
        Self { failed: BTreeMap::new(), waiting: BTreeSet::new(), jitter: fastrand::Rng::with_seed(seed) }
    }

    /// Notes a failure. The wait grows fourfold from 20 ms to 60 s; half of it is random.
    pub fn failed(&mut self, key: K, now: Moment) {
        let times = self.failed.get(&key).map_or(0, |failed| failed.times.saturating_add(1));
        let full = FIRST.saturating_mul(4_u32.saturating_pow(times)).min(LONGEST);
        let next = now + full.mul_f64(0.5 + self.jitter.f64() / 2.0);
        self.succeeded(&key);
        self.failed.insert(key.clone(), Failed { times, next });
        self.waiting.insert((next, key));
    }

    /// Forgets the failures of an object.
    pub fn succeeded(&mut self, key: &K) {
        if let Some(Failed { next, times: _ }) = self.failed.remove(key) {
            self.waiting.remove(&(next, key.clone()));
        }
    }

    /// Forgets the objects that nothing is to be done for any more.
    pub fn keep_only(&mut self, is_wanted: impl Fn(&K) -> bool) {
        self.failed.retain(|key, _| is_wanted(key));
        self.waiting.retain(|(_, key)| is_wanted(key));
    }

    /// Whether an object may be tried now.
    pub fn is_due(&self, key: &K, now: Moment) -> bool {
        self.failed.get(key).is_none_or(|failed| failed.next <= now)
    }

    /// The objects whose time has come, each once: until they fail again they wait for nothing.
    pub fn take_due(&mut self, now: Moment) -> Vec<K> {
        let mut due = Vec::new();
        while let Some((next, _)) = self.waiting.first()
            && *next <= now
        {
            due.extend(self.waiting.pop_first().map(|(_, key)| key));
        }
        due
    }

    /// Until when an object that failed has to wait.
    pub fn until(&self, key: &K) -> Option<Moment> {
        self.failed.get(key).map(|failed| failed.next)
    }

    /// When the next object becomes due.
    pub fn deadline(&self) -> Option<Moment> {
        self.waiting.first().map(|(next, _)| *next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn waits_grow_to_a_minute_and_end_with_success() {
        let now = at(1000);
        let mut backoff = Backoff::new(3);
        let mut waits = Vec::new();
        for _ in 0..8 {
            backoff.failed("n1", now);
            waits.push(backoff.deadline().expect("a wait").since(now).as_secs_f64());
        }
        for (wait, full) in waits.iter().zip([0.02, 0.08, 0.32, 1.28, 5.12, 20.48, 60.0, 60.0]) {
            assert!((full / 2.0..=full).contains(wait), "{wait} of {full}");
        }
        assert!(!backoff.is_due(&"n1", now) && backoff.is_due(&"n2", now));
        backoff.succeeded(&"n1");
        assert!(backoff.is_due(&"n1", now));
        assert_eq!(backoff.deadline(), None);
    }

    #[test]
    fn what_is_due_is_taken_once_and_its_failures_still_count() {
        let mut backoff = Backoff::new(3);
        backoff.failed("n1", at(1000));
        backoff.failed("n2", at(2000));
        assert!(backoff.take_due(at(1000)).is_empty());
        assert_eq!((backoff.take_due(at(1001)), backoff.take_due(at(1001))), (vec!["n1"], vec![]));
        assert!(backoff.is_due(&"n1", at(1001)));
        backoff.failed("n1", at(1001));
        assert!(backoff.take_due(at(1001) + FIRST).is_empty(), "the second wait is longer");
        backoff.keep_only(|key| *key == "n2");
        assert_eq!(backoff.take_due(at(3000)), ["n2"]);
    }
}
