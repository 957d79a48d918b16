//! When to try again what failed: soon at first, then ever later, each object for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::Moment;

/// A conflict or a hiccup is over by then.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(60);
/// Longer than a watch takes to tell what somebody else wrote.
const LONGEST_OVERTAKEN: Duration = Duration::from_secs(1);

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
        self.wait(key, now, 4, LONGEST);
    }

    /// Notes that somebody else wrote the object first. The wait grows twofold from 20 ms to 1 s; half of it is
    /// random: the next try is decided on what is there then, so it is as good as the first one.
    pub fn overtaken(&mut self, key: K, now: Moment) {
        self.wait(key, now, 2, LONGEST_OVERTAKEN);
    }

    fn wait(&mut self, key: K, now: Moment, growth: u32, longest: Duration) {
        let times = self.failed.get(&key).map_or(0, |failed| failed.times.saturating_add(1));
        let full = FIRST.saturating_mul(growth.saturating_pow(times)).min(longest);
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
    fn waits_grow_to_a_minute_after_failures_and_to_a_second_after_conflicts_and_end_with_success() {
        let now = at(1000);
        for (note, fulls) in [
            (Backoff::failed as fn(&mut Backoff<_>, _, _), [0.02, 0.08, 0.32, 1.28, 5.12, 20.48, 60.0, 60.0]),
            (Backoff::overtaken, [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]),
        ] {
            let mut backoff = Backoff::new(3);
            for full in fulls {
                note(&mut backoff, "n1", now);
                let wait = backoff.deadline().expect("a wait").since(now).as_secs_f64();
                assert!((full / 2.0..=full).contains(&wait), "{wait} of {full}");
            }
        }
        let mut backoff = Backoff::new(3);
        backoff.failed("n1", now);
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
