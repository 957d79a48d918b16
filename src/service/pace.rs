//! When conditions are written: pure.
//!
//! They say what is so anyway, so they never hold anything up: each waits until it has not changed for two
//! seconds, and all together are written no faster than twenty a second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::{Moment, ServiceKey};

/// How long what a Service's conditions are to say has to stay the same.
const SETTLED: Duration = Duration::from_secs(2);
/// How far apart two of them are written at least.
const APART: Duration = Duration::from_millis(50);

/// The Services whose conditions are to be written, and the gist of what they are to say.
#[derive(Debug)]
pub struct Pace<G> {
    waiting: BTreeMap<ServiceKey, (G, Moment)>,
    by_time: BTreeSet<(Moment, ServiceKey)>,
    /// Before this none is written.
    next: Moment,
}

impl<G> Default for Pace<G> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), by_time: BTreeSet::new(), next: Moment::default() }
    }
}

impl<G: PartialEq> Pace<G> {
    /// Notes what a Service's conditions are to say and do not; `None` when they say it.
    pub fn note(&mut self, key: &ServiceKey, gist: Option<G>, now: Moment) {
        let known = self.waiting.get(key);
        if known.is_none() && gist.is_none() || known.zip(gist.as_ref()).is_some_and(|((known, _), gist)| known == gist)
        {
            return;
        }
        if let Some((_, at)) = self.waiting.remove(key) {
            self.by_time.remove(&(at, key.clone()));
        }
        if let Some(gist) = gist {
            let at = now + SETTLED;
            self.waiting.insert(key.clone(), (gist, at));
            self.by_time.insert((at, key.clone()));
        }
    }

    /// Takes the next that may be written now.
    pub fn pop(&mut self, now: Moment) -> Option<ServiceKey> {
        if self.deadline().is_none_or(|due| due > now) {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.waiting.remove(&key);
        self.next = now + APART;
        Some(key)
    }

    /// When [`Self::pop`] has something to give.
    pub fn deadline(&self) -> Option<Moment> {
        let (at, _) = self.by_time.first()?;
        Some(self.next.max(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::since_boot(Duration::from_millis(100_000 + milliseconds))
    }

    fn key(number: usize) -> ServiceKey {
        ServiceKey::new("default", format!("s{number:05}"))
    }

    #[test]
    fn a_condition_is_written_two_seconds_after_it_last_changed() {
        let mut pace = Pace::default();
        pace.note(&key(1), Some("a"), at(0));
        pace.note(&key(1), Some("a"), at(1000));
        assert_eq!((pace.pop(at(1999)), pace.deadline()), (None, Some(at(2000))));
        pace.note(&key(1), Some("b"), at(1999));
        assert_eq!(pace.pop(at(3998)), None);
        assert_eq!(pace.pop(at(3999)), Some(key(1)));
        assert_eq!((pace.pop(at(9000)), pace.deadline()), (None, None));
        pace.note(&key(1), Some("c"), at(9000));
        pace.note(&key(1), None, at(9500));
        assert_eq!(pace.deadline(), None, "it came back to what is said");
    }

    #[test]
    fn no_more_than_twenty_are_written_in_any_second() {
        let mut pace = Pace::default();
        (0..100).for_each(|number| pace.note(&key(number), Some(()), at(0)));
        let mut written = Vec::new();
        for millisecond in 0..10_000 {
            while let Some(key) = pace.pop(at(millisecond)) {
                written.push((millisecond, key));
            }
        }
        assert_eq!((written.len(), written[0].0, written[99].0), (100, 2000, 6950));
        assert!(written.windows(21).all(|window| window[20].0 - window[0].0 >= 1000));
        assert!(written.is_sorted_by_key(|(_, key)| key.clone()), "who waits longest goes first");
    }
}
