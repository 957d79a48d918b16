//! When to try again what failed: soon at first, then ever later, each object for itself.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::Moment;

/// A conflict or a hiccup is over by then.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(60);

/// What failed, and when its next try is due.
#[derive(Debug)]
pub struct Backoff<K> {
    waiting: BTreeMap<K, Wait>,
    jitter: fastrand::Rng,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    failures: u32,
    until: Moment,
}

impl<K: Ord + Clone> Backoff<K> {
    /// Nothing failed yet.
    pub fn new(seed: u64) -> Self {
        Self { waiting: BTreeMap::new(), jitter: fastrand::Rng::with_seed(seed) }
    }

    /// Notes a failure. The wait grows fourfold from 20 ms to 60 s; half of it is random.
    pub fn failed(&mut self, key: K, now: Moment) {
        let failures = self.waiting.get(&key).map_or(0, |wait| wait.failures.saturating_add(1));
        let full = FIRST.saturating_mul(4_u32.saturating_pow(failures)).min(LONGEST);
        let until = now + full.mul_f64(0.5 + self.jitter.f64() / 2.0);
        self.waiting.insert(key, Wait { failures, until });
    }

    /// Forgets the failures of an object.
    pub fn succeeded(&mut self, key: &K) {
        self.waiting.remove(key);
    }

    /// Forgets the objects that nothing is to be done for any more.
    pub fn keep_only(&mut self, is_wanted: impl Fn(&K) -> bool) {
        self.waiting.retain(|key, _| is_wanted(key));
    }

    /// Whether an object may be tried now.
    pub fn is_due(&self, key: &K, now: Moment) -> bool {
        self.waiting.get(key).is_none_or(|wait| wait.until <= now)
    }

    /// When the next object becomes due.
    pub fn deadline(&self) -> Option<Moment> {
        self.waiting.values().map(|wait| wait.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_minute_and_end_with_success() {
        let now = Moment::since_boot(Duration::from_secs(1000));
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
}
