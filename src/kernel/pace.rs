//! How soon to look or repair again: at once, and slower while it does not last.

use std::time::Duration;

use crate::model::Moment;

/// The pace of looks or repairs.
///
/// The first is due at once. Where another follows within a second there is a burst, or somebody
/// fights us, and the gap doubles up to a limit; a quiet second resets it.
#[derive(Debug)]
pub(super) struct Pace {
    shortest: Duration,
    longest: Duration,
    gap: Duration,
    last: Option<Moment>,
}

impl Pace {
    /// After this long without work the next is due at once again.
    const QUIET: Duration = Duration::from_secs(1);

    /// A pace with gaps from `shortest` to `longest`.
    pub(super) const fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, gap: shortest, last: None }
    }

    /// How long to wait from `now` before working again.
    pub(super) fn wait(&self, now: Moment) -> Duration {
        self.last.map_or(Duration::ZERO, |last| self.gap.saturating_sub(now.since(last)))
    }

    /// The work was done.
    pub(super) fn worked(&mut self, now: Moment) {
        let quiet = Self::QUIET.max(self.gap * 2);
        let lasted = self.last.is_none_or(|last| now.since(last) >= quiet);
        self.gap = if lasted { self.shortest } else { (self.gap * 2).min(self.longest) };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_work_is_due_at_once_and_a_fight_slows_it_down() {
        let at = |millis| Moment::since_boot(Duration::from_millis(millis));
        let mut pace = Pace::new(Duration::from_millis(10), Duration::from_millis(40));
        assert_eq!(pace.wait(at(5_000)), Duration::ZERO);
        let mut gaps = Vec::new();
        for now in [5_000, 5_100, 5_200, 5_300, 9_000] {
            pace.worked(at(now));
            gaps.push(pace.wait(at(now)).as_millis());
        }
        assert_eq!(gaps, [10, 20, 40, 40, 10]);
        assert_eq!(pace.wait(at(9_004)), Duration::from_millis(6));
    }
}
