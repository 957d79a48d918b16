//! The brake: many Nodes that lose their network at once are more likely a mistake of whoever looks.
//!
//! Within any ten minutes no more Nodes turn to `NetworkUnavailable=True` than the limit. When more
//! would have to, none does: a taint on each of them would move their pods nowhere. The brake lets
//! go when the number has fallen. What has turned is remembered by this process alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::Moment;

/// The time within which Nodes that turn are counted together.
pub const WINDOW: Duration = Duration::from_secs(600);

/// How many may turn within [`WINDOW`]: a tenth of the Nodes, and one in any case.
pub fn limit(nodes: usize) -> usize {
    (nodes / 10).max(1)
}

/// When Nodes turned, by `metadata.uid`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Brake {
    turned: BTreeMap<String, Moment>,
}

impl Brake {
    /// Whether the Nodes that would turn now, with those that have within [`WINDOW`], are more than the
    /// limit. If not, they are noted as turned.
    pub fn holds(&mut self, wanting: &BTreeSet<String>, limit: usize, now: Moment) -> bool {
        self.turned.retain(|_, turned| now.since(*turned) < WINDOW);
        let new = wanting.iter().filter(|uid| !self.turned.contains_key(*uid)).count();
        let holds = new > 0 && self.turned.len() + new > limit;
        if !holds {
            self.turned.extend(wanting.iter().map(|uid| (uid.clone(), now)));
        }
        holds
    }

    /// When the next of those that turned is forgotten.
    pub fn deadline(&self) -> Option<Moment> {
        self.turned.values().min().map(|turned| *turned + WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uids(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_limit_is_a_tenth_and_at_least_one() {
        for (nodes, want) in [(0, 1), (1, 1), (19, 1), (20, 2), (5000, 500)] {
            assert_eq!(limit(nodes), want, "{nodes} nodes");
        }
    }

    #[test]
    fn of_too_many_none_turns_until_fewer_would_within_ten_minutes() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let mut brake = Brake::default();
        for (name, wanting, now, want) in [
            ("two of two", &["a", "b"][..], 1000, false),
            ("a third", &["c"], 1100, true),
            ("one that turned already", &["a"], 1200, false),
            ("the third still", &["c"], 1599, true),
            ("b is forgotten", &["c"], 1600, false),
            ("a was noted anew", &["d"], 1700, true),
        ] {
            assert_eq!(brake.holds(&uids(wanting), 2, at(now)), want, "{name}");
        }
        assert_eq!(brake.deadline(), Some(at(1800)));
    }
}
