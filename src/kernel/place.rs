//! Where in the kernel our routes live.

use crate::model::Rank;

/// The main routing table (`RT_TABLE_MAIN`), which the kernel looks into without a rule of ours.
pub const MAIN_TABLE: u32 = 254;

/// The table of the kernel's own addresses (`RT_TABLE_LOCAL`): routes of others' have no place there.
const LOCAL_TABLE: u32 = 255;

/// The metric of our routes unless told: what IPv6 gives to a route that names none.
///
/// A CNI or an operator who adds a route to the same prefix without a metric gets 0 for IPv4 and
/// 1024 for IPv6, so theirs decides in both families and ours never takes packets from it.
pub const METRIC: u32 = 1024;

/// The routing table and the metric of our routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    table: u32,
    metric: u32,
}

impl Default for Place {
    fn default() -> Self {
        Self { table: MAIN_TABLE, metric: METRIC }
    }
}

impl Place {
    /// A table from 1 to 4294967295 without 255, and a metric from 1 to 4294967293.
    ///
    /// Zero is no table and no metric of IPv6; the metrics above are of our routes that stand behind.
    pub fn new(table: u32, metric: u32) -> Option<Self> {
        let is_place = table != 0 && table != LOCAL_TABLE && metric != 0 && metric <= u32::MAX - 2;
        is_place.then_some(Self { table, metric })
    }

    /// The routing table.
    pub fn table(self) -> u32 {
        self.table
    }

    /// The metric of a route of this rank; the smallest decides.
    pub fn metric(self, rank: Rank) -> u32 {
        match rank {
            Rank::Direct => self.metric,
            Rank::Learned => self.metric + 1,
            Rank::LastResort => u32::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_table_or_metric_is_no_place() {
        for (table, metric, is_place) in [
            (254, 1024, true),
            (1, 1, true),
            (100_000, u32::MAX - 2, true),
            (0, 1024, false),
            (255, 1024, false),
            (254, 0, false),
            (254, u32::MAX - 1, false),
        ] {
            assert_eq!(Place::new(table, metric).is_some(), is_place, "table {table}, metric {metric}");
        }
    }

    #[test]
    fn metrics_follow_the_ranks() {
        let place = Place::new(100, u32::MAX - 2).expect("a place");
        let metrics = [Rank::Direct, Rank::Learned, Rank::LastResort].map(|rank| place.metric(rank));
        assert!(metrics.is_sorted() && metrics[0] < metrics[1] && metrics[1] < metrics[2], "{metrics:?}");
    }
}
