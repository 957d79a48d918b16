//! When to try again what was not written: the one rule of all rooms, each object for itself.
//!
//! A conflict is somebody else's write and no failure: the next try waits for the watch only, no longer than a
//! second, unless it is one conflict after the other. What failed or was refused is tried soon at first, then ever
//! later, up to a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::patch::WriteError;
use crate::model::Moment;

/// So many conflicts one after the other, which take ten seconds, are no races: either what is seen does not become
/// newer, or nothing ever will be written. Of thousands of such objects, each a second is more than a server likes.
const RACES: u32 = 16;
/// A hiccup is over by then, and most watches have told what somebody else wrote.
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

#[derive(Debug, Clone, Copy, Default)]
struct Failed {
    /// In vain because the API server failed or refused.
    failures: u32,
    /// In vain because somebody else was first.
    conflicts: u32,
    next: Moment,
}

impl<K: Ord + Clone> Backoff<K> {
    /// Nothing failed yet.
    pub fn new(seed: u64) -> Self {
        Self { failed: BTreeMap::new(), waiting: BTreeSet::new(), jitter: fastrand::Rng::with_seed(seed) }
    }

    /// Notes that an object was not written. After failures the wait grows fourfold from 20 ms to 60 s, after
    /// conflicts twofold to 1 s: the next try is decided on what is there then, so it is as good as the first one.
    /// From the seventeenth conflict on it grows on to 60 s. Half of each wait is random. Either count goes on until
    /// the object is written.
    pub fn not_written(&mut self, key: K, error: &WriteError, now: Moment) {
        let mut failed = self.take(&key).unwrap_or_default();
        let (full, times) = match error {
            WriteError::Conflict => (after_conflicts(failed.conflicts), &mut failed.conflicts),
            WriteError::Gone | WriteError::Refused(_) | WriteError::TimedOut => {
                (grown(FIRST, 4, failed.failures, LONGEST), &mut failed.failures)
            }
        };
        *times = times.saturating_add(1);
        failed.next = now + full.mul_f64(0.5 + self.jitter.f64() / 2.0);
        self.failed.insert(key.clone(), failed);
        self.waiting.insert((failed.next, key));
    }

    /// Forgets the failures of an object.
    pub fn succeeded(&mut self, key: &K) {
        let _ = self.take(key);
    }

    fn take(&mut self, key: &K) -> Option<Failed> {
        let failed = self.failed.remove(key)?;
        self.waiting.remove(&(failed.next, key.clone()));
        Some(failed)
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

/// The wait after one more conflict than these.
fn after_conflicts(before: u32) -> Duration {
    match before.checked_sub(RACES) {
        None => grown(FIRST, 2, before, LONGEST_OVERTAKEN),
        Some(more) => grown(LONGEST_OVERTAKEN, 2, more.saturating_add(1), LONGEST),
    }
}

fn grown(first: Duration, growth: u32, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(growth.saturating_pow(times)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn conflicts_are_tried_again_at_once_and_failures_ever_later() {
        use WriteError::{Conflict, Gone, TimedOut};
        let refused = || WriteError::Refused(Box::new(kube::Error::LinesCodecMaxLineLengthExceeded));
        for (name, errors, full) in [
            ("somebody was first", vec![Conflict], 0.02),
            ("and again", vec![Conflict, Conflict], 0.04),
            ("somebody is most of the time", (0..16).map(|_| Conflict).collect(), 1.0),
            ("that is no race", (0..17).map(|_| Conflict).collect(), 2.0),
            ("it never ends", (0..40).map(|_| Conflict).collect(), 60.0),
            ("refused", vec![refused()], 0.02),
            ("no answer", vec![TimedOut, TimedOut], 0.08),
            ("gone, and planned again all the same", vec![Gone, Gone, Gone], 0.32),
            ("failures of all kinds", vec![refused(), TimedOut, refused(), TimedOut], 1.28),
            ("nothing works", (0..40).map(|_| TimedOut).collect(), 60.0),
            ("somebody was first once it works", vec![refused(), refused(), refused(), Conflict], 0.02),
            ("a conflict makes no failure worse", vec![Conflict, Conflict, Conflict, refused()], 0.02),
            ("and no better", vec![refused(), refused(), Conflict, refused()], 0.32),
        ] {
            let now = at(1000);
            let mut backoff = Backoff::new(3);
            errors.iter().for_each(|error| backoff.not_written("n1", error, now));
            let wait = backoff.deadline().expect("a wait").since(now).as_secs_f64();
            assert!((full / 2.0..=full).contains(&wait), "{name}: {wait} of {full}");
            assert_eq!(backoff.until(&"n1"), backoff.deadline(), "{name}: one wait an object");
            assert!(!backoff.is_due(&"n1", now) && backoff.is_due(&"n2", now), "{name}");
            backoff.succeeded(&"n1");
            assert!(backoff.is_due(&"n1", now) && backoff.deadline().is_none(), "{name}: it ends with success");
        }
    }

    #[test]
    fn what_is_due_is_taken_once_and_its_failures_still_count() {
        let mut backoff = Backoff::new(3);
        backoff.not_written("n1", &WriteError::TimedOut, at(1000));
        backoff.not_written("n2", &WriteError::TimedOut, at(2000));
        assert!(backoff.take_due(at(1000)).is_empty());
        assert_eq!((backoff.take_due(at(1001)), backoff.take_due(at(1001))), (vec!["n1"], vec![]));
        assert!(backoff.is_due(&"n1", at(1001)));
        backoff.not_written("n1", &WriteError::TimedOut, at(1001));
        assert!(backoff.take_due(at(1001) + FIRST).is_empty(), "the second wait is longer");
        backoff.keep_only(|key| *key == "n2");
        assert_eq!(backoff.take_due(at(3000)), ["n2"]);
    }
}
