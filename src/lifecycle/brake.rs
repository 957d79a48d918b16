//! The brake: many Nodes that go at once are more likely a mistake than so many dead machines.
//!
//! Within any ten minutes no more Nodes are deleted than the limit. When more would have to go, none
//! goes, so that whoever looks finds all of them. The brake lets go when the number has fallen, by
//! itself or with time; a Node that carries [`ACKNOWLEDGED`] goes at any time and does not count.
//!
//! What was deleted is remembered by this process alone: after a change of leader the limit counts
//! from nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::Moment;

/// The annotation of a Node, with the value `true`, by which someone says that it may go.
pub const ACKNOWLEDGED: &str = "cairn.dev/acknowledge-deletion";

/// The time within which deletions are counted together.
pub const WINDOW: Duration = Duration::from_secs(600);

/// How many Nodes may go within [`WINDOW`]: a tenth of those that are machines, and one in any case.
pub fn limit(nodes: usize) -> usize {
    (nodes / 10).max(1)
}

/// Whether the Nodes that wait to be deleted, with those that just were, are more than the limit.
pub fn holds<'a>(waiting: impl Iterator<Item = &'a str>, recent: &'a BTreeSet<String>, limit: usize) -> bool {
    let mut all: BTreeSet<&str> = recent.iter().map(String::as_str).collect();
    all.extend(waiting);
    all.len() > limit
}

/// When Nodes were deleted, by `metadata.uid`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deletions {
    deleted: BTreeMap<String, Moment>,
}

impl Deletions {
    /// Notes that a Node was deleted, or may have been, no later than `now`.
    pub fn remember(&mut self, uid: String, now: Moment) {
        self.deleted.insert(uid, now);
    }

    /// Those within [`WINDOW`] before `now`; older ones are forgotten.
    pub fn recent(&mut self, now: Moment) -> BTreeSet<String> {
        self.deleted.retain(|_, deleted| now.since(*deleted) < WINDOW);
        self.deleted.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_tenth_and_at_least_one() {
        for (nodes, want) in [(0, 1), (1, 1), (19, 1), (20, 2), (5000, 500)] {
            assert_eq!(limit(nodes), want, "{nodes} nodes");
        }
    }

    #[test]
    fn a_node_that_waits_though_it_was_deleted_counts_once() {
        let recent = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        for (name, waiting, limit, want) in [
            ("nothing waits", vec![], 2, false),
            ("the limit is reached", vec!["c"], 3, false),
            ("the limit is passed", vec!["c"], 2, true),
            ("the answer to a delete was lost", vec!["b"], 2, false),
        ] {
            assert_eq!(holds(waiting.into_iter(), &recent, limit), want, "{name}");
        }
    }

    #[test]
    fn a_deletion_counts_for_ten_minutes() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let mut deletions = Deletions::default();
        deletions.remember("a".to_owned(), at(100));
        deletions.remember("b".to_owned(), at(400));
        for (now, want) in [(100, vec!["a", "b"]), (699, vec!["a", "b"]), (700, vec!["b"]), (1000, vec![])] {
            let recent = deletions.recent(at(now));
            assert_eq!(recent.iter().map(String::as_str).collect::<Vec<_>>(), want, "at {now} s");
        }
    }
}
