//! Which clients a Service lets in, and on which nodes that does not hold.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::api::{GuardReport, NodeReportStatus};
use crate::model::source_ranges::{Place, SourceRanges};
use crate::model::views::{NodeView, ServiceView};
use crate::model::{Family, NodeName};

/// Which clients a Service lets in.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LetIn {
    /// The ranges; `None` is everyone.
    ranges: Option<Ranges>,
    /// The nodes whose agents say that their guard does not hold the ranges, and what they say.
    not_held_on: BTreeMap<NodeName, GuardReport>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ranges {
    /// Where they are written.
    named_in: &'static str,
    /// Those that parse.
    ranges: Vec<String>,
    /// What is no range.
    unread: Vec<String>,
    /// The families of its addresses of which nobody is let in.
    nobody_by: Vec<String>,
    #[serde(skip)]
    place: Place,
}

impl LetIn {
    pub(super) fn of(
        service: &ServiceView,
        nodes: &BTreeMap<NodeName, Arc<NodeView>>,
        reports: &BTreeMap<NodeName, NodeReportStatus>,
    ) -> Self {
        let Some(named) = &service.source_ranges else {
            return Self { ranges: None, not_held_on: BTreeMap::new() };
        };
        let is_shut = |family: Family| named.admitted(family).is_some_and(|mut ranges| ranges.next().is_none());
        let ranges = Ranges {
            named_in: named.place.name(),
            ranges: named.ranges().iter().map(ToString::to_string).collect(),
            unread: named.unread.clone(),
            nobody_by: service.ip_families.iter().filter(|family| is_shut(**family)).map(ToString::to_string).collect(),
            place: named.place,
        };
        let guards =
            reports.iter().filter(|(name, report)| nodes.get(*name).is_some_and(|node| report.is_current(node)));
        let failing = guards.filter(|(_, report)| report.guard != GuardReport::Standing);
        let everyone = is_everyone(named);
        let not_held_on = failing.filter(|_| !everyone).map(|(name, report)| (name.clone(), report.guard)).collect();
        Self { ranges: Some(ranges), not_held_on }
    }
}

fn is_everyone(named: &SourceRanges) -> bool {
    named.admitted(Family::V4).is_none()
}

impl fmt::Display for LetIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Ranges { named_in, ranges, unread, nobody_by, place }) = &self.ranges else {
            return f.write_str("everyone");
        };
        let who = if ranges.is_empty() { "nobody".to_owned() } else { ranges.join(", ") };
        write!(f, "{who} ({named_in})")?;
        for family in nobody_by.iter().filter(|_| !ranges.is_empty()) {
            write!(f, "; nobody by {family}, of which it names no range")?;
        }
        for text in unread {
            write!(f, "; {text:?} is no range")?;
        }
        if let Some((first, guard)) = self.not_held_on.iter().next() {
            let rest = match self.not_held_on.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let instead = match place {
                Place::Field => "only kube-proxy holds them there",
                Place::Annotation => "nobody holds them there",
            };
            write!(f, "; the guard of node {first}{rest} does not stand ({guard:?}), so {instead}")?;
        }
        Ok(())
    }
}
