//! How often the agent tells the cluster what it has to tell.

use std::time::Duration;

use crate::api::{GuardReport, NodeReportStatus, RouteReport, WitnessAnswer};
use crate::model::Moment;

/// Counts may be this old.
const ORDINARY: Duration = Duration::from_secs(10);
/// Counts of what is well may be so old: a node that joins changes them on every other one, and a report
/// of each would be worth less than what it costs.
const COUNTS_OF_WHAT_IS_WELL: Duration = Duration::from_secs(600);
/// Urgent reports follow each other this fast, so that one tells of all the nodes that join together …
const URGENT: Duration = Duration::from_millis(100);
/// … for the first few, and then one in this time.
const URGENT_SUSTAINED: Duration = Duration::from_secs(1);
const URGENT_BURST: u32 = 10;
/// An agent that has just learned of its own node sets up the guard next: one report tells of both,
/// unless the guard takes longer than this.
const GUARD_IS_SET_UP: Duration = Duration::from_millis(500);

/// Decides when a report is written: never unchanged, at once when someone waits for it.
#[derive(Debug, Clone, Default)]
pub struct Pacer {
    published: Option<NodeReportStatus>,
    last_write: Option<Moment>,
    /// Since when there is something to write.
    changed: Option<Moment>,
    urgent_credit: u32,
    credit_at: Option<Moment>,
}

/// What to do about a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It has been written as it is.
    Rest,
    /// Write it now.
    Now,
    /// Write it then, if nothing else comes.
    At(Moment),
}

impl Pacer {
    /// When to write `current`. `spread` is a delay of this node's own, so that a change that every
    /// node reports does not reach the API server from all of them at once.
    pub fn pace(&mut self, current: &NodeReportStatus, spread: Duration, now: Moment) -> Pace {
        let Some(last_write) = self.last_write else { return Pace::Now };
        let Some(published) = &self.published else { return at(last_write + URGENT_SUSTAINED, now) };
        if says_the_same(published, current) {
            self.changed = None;
            return Pace::Rest;
        }
        let changed = *self.changed.get_or_insert(now);
        let due = if is_urgent(published, current) {
            self.refill(now);
            let due = last_write + if self.urgent_credit > 0 { URGENT } else { URGENT_SUSTAINED };
            let guard_is_next = current.guard == GuardReport::Waiting && current.own_route.is_some();
            if guard_is_next { due.max(changed + GUARD_IS_SET_UP) } else { due }
        } else if differs_in_counts_only(published, current) {
            changed + COUNTS_OF_WHAT_IS_WELL + spread
        } else {
            changed + ORDINARY + spread
        };
        at(due, now)
    }

    /// Notes that `written` is what the API server has.
    pub fn wrote(&mut self, written: NodeReportStatus, now: Moment) {
        self.urgent_credit = self.urgent_credit.saturating_sub(1);
        self.published = Some(written);
        self.changed = None;
        self.last_write = Some(now);
    }

    /// Looks at what the API server has: when it is gone, or says something else than was written, it
    /// is to be written anew.
    pub fn saw(&mut self, kept: Option<&NodeReportStatus>) {
        self.published.take_if(|published| kept != Some(published));
    }

    fn refill(&mut self, now: Moment) {
        let earned = self.credit_at.map_or(URGENT_BURST, |at| {
            u32::try_from(now.since(at).as_secs() / URGENT_SUSTAINED.as_secs()).unwrap_or(URGENT_BURST)
        });
        if earned > 0 {
            self.urgent_credit = self.urgent_credit.saturating_add(earned).min(URGENT_BURST);
            self.credit_at = Some(now);
        }
    }
}

fn at(due: Moment, now: Moment) -> Pace {
    if due <= now { Pace::Now } else { Pace::At(due) }
}

/// What nobody waits for any more is no news, and goes with the next report: a proposal of addresses,
/// an answer as a witness that is not asked for.
fn says_the_same(published: &NodeReportStatus, current: &NodeReportStatus) -> bool {
    let mut published = published.clone();
    if current.default_addresses.is_empty() {
        published.default_addresses.clear();
    }
    published.witness.retain(|answer| current.witness.iter().any(|new| new.node == answer.node));
    published == *current
}

/// Whether nothing is new but how many routes there are, and as many are missing as before.
fn differs_in_counts_only(published: &NodeReportStatus, current: &NodeReportStatus) -> bool {
    let missing = |RouteReport { wanted, installed, carried, .. }: &RouteReport| {
        wanted.saturating_sub(installed.saturating_add(*carried))
    };
    let RouteReport { wanted, installed, carried, .. } = current.routes;
    let carriers = current.routes.carriers.clone();
    let routers =
        |report: &RouteReport| report.carriers.iter().map(|carrier| carrier.route.clone()).collect::<Vec<_>>();
    let has_same_routers = routers(&published.routes) == routers(&current.routes);
    let counted = RouteReport { wanted, installed, carried, carriers, ..published.routes.clone() };
    has_same_routers
        && missing(&published.routes) == missing(&current.routes)
        && says_the_same(&NodeReportStatus { routes: counted, ..published.clone() }, current)
}

/// The leader waits for these: they decide the condition NetworkUnavailable, and where a node is that
/// nobody knows an address of.
fn is_urgent(published: &NodeReportStatus, current: &NodeReportStatus) -> bool {
    let proposes = !current.default_addresses.is_empty() && published.default_addresses != current.default_addresses;
    let is_new = |answer: &WitnessAnswer| !published.witness.contains(answer);
    let own = |report: &NodeReportStatus| {
        (report.boot_id.clone(), report.node_uid.clone(), report.own_route.clone(), report.routes.nodes_without > 0)
    };
    proposes || own(published) != own(current) || current.witness.iter().any(is_new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Reached;

    #[test]
    fn a_report_is_written_when_it_changed_and_at_once_when_someone_waits_for_it() {
        let at = |seconds: f64| Moment::since_boot(Duration::from_secs_f64(seconds));
        let spread = Duration::from_secs(2);
        let first = NodeReportStatus::default();
        let mut counts = first.clone();
        counts.bgp.announced = 7;
        let guard = GuardReport::Standing;
        let urgent = |n: u64| NodeReportStatus { own_route: Some(n.to_string()), guard, ..first.clone() };

        let mut pacer = Pacer::default();
        assert_eq!(pacer.pace(&first, spread, at(100.0)), Pace::Now);
        pacer.wrote(first.clone(), at(100.0));
        assert_eq!(pacer.pace(&first, spread, at(101.0)), Pace::Rest);
        assert_eq!(pacer.pace(&counts, spread, at(101.0)), Pace::At(at(113.0)));
        assert_eq!(pacer.pace(&counts, spread, at(113.0)), Pace::Now);
        // A burst, a tenth of a second apart.
        for n in 0..10 {
            let moment = at(101.0 + 0.125 * n as f64);
            assert_eq!(pacer.pace(&urgent(n), spread, moment), Pace::Now, "{n}");
            pacer.wrote(urgent(n), moment);
            assert!(matches!(pacer.pace(&urgent(n + 1), spread, moment), Pace::At(_)), "{n}");
        }
        // One credit was earned in that second; then it is one a second.
        assert_eq!(pacer.pace(&urgent(98), spread, at(102.25)), Pace::Now);
        pacer.wrote(urgent(98), at(102.25));
        assert_eq!(pacer.pace(&urgent(99), spread, at(102.5)), Pace::At(at(103.25)));
    }

    #[test]
    fn the_first_word_on_the_own_routes_waits_half_a_second_for_the_guard() {
        let at = |seconds: f64| Moment::since_boot(Duration::from_secs_f64(seconds));
        let routed = |guard| NodeReportStatus { own_route: Some("1".to_owned()), guard, ..NodeReportStatus::default() };
        let mut pacer = Pacer::default();
        pacer.wrote(NodeReportStatus::default(), at(100.0));
        assert_eq!(pacer.pace(&routed(GuardReport::Waiting), Duration::ZERO, at(101.0)), Pace::At(at(101.5)));
        for (name, guard, moment) in [
            ("it stands", GuardReport::Standing, 101.25),
            ("it cannot stand", GuardReport::Denied, 101.25),
            ("it takes longer", GuardReport::Waiting, 101.5),
        ] {
            assert_eq!(pacer.pace(&routed(guard), Duration::ZERO, at(moment)), Pace::Now, "{name}");
        }
    }

    #[test]
    fn a_report_that_is_gone_or_changed_by_others_is_written_anew_once_a_second() {
        let at = |seconds: f64| Moment::since_boot(Duration::from_secs_f64(seconds));
        let written = NodeReportStatus::default();
        let foreign = NodeReportStatus { own_route: Some("by hand".to_owned()), ..written.clone() };
        for (name, kept, is_lost) in
            [("as written", Some(&written), false), ("changed", Some(&foreign), true), ("gone", None, true)]
        {
            let mut pacer = Pacer::default();
            pacer.saw(kept);
            assert_eq!(pacer.pace(&written, Duration::ZERO, at(10.0)), Pace::Now, "{name}, before the first");
            pacer.wrote(written.clone(), at(10.0));
            pacer.saw(kept);
            let (soon, later) = if is_lost { (Pace::At(at(11.0)), Pace::Now) } else { (Pace::Rest, Pace::Rest) };
            assert_eq!(pacer.pace(&written, Duration::ZERO, at(10.5)), soon, "{name}");
            assert_eq!(pacer.pace(&written, Duration::ZERO, at(11.0)), later, "{name}");
        }
    }

    #[test]
    fn more_routes_that_are_all_well_are_no_hurry() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let of = |wanted, installed| NodeReportStatus {
            routes: RouteReport { wanted, installed, ..RouteReport::default() },
            ..NodeReportStatus::default()
        };
        for (name, from, to, want) in [
            ("one more", of(4, 4), of(6, 6), 701),
            ("as many are missing", of(4, 3), of(6, 5), 701),
            ("some are missing", of(4, 4), of(6, 5), 111),
            ("none is missing any more", of(6, 5), of(6, 6), 111),
        ] {
            let mut pacer = Pacer::default();
            pacer.wrote(from, at(100));
            assert_eq!(pacer.pace(&to, Duration::ZERO, at(101)), Pace::At(at(want)), "{name}");
        }
    }

    #[test]
    fn an_answer_is_urgent_and_one_that_is_not_asked_for_any_more_is_no_news() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let answer =
            |node: &str, answer| WitnessAnswer { node: node.to_owned(), route: "0".repeat(16), answer, message: None };
        let of = |answers: Vec<WitnessAnswer>| NodeReportStatus { witness: answers, ..Default::default() };
        let (n2, n3) = (answer("n2", Reached::Ok), answer("n3", Reached::Ok));
        for (name, from, to, want) in [
            ("asked for", of(vec![n2.clone()]), of(vec![n2.clone(), n3.clone()]), Pace::Now),
            ("another answer", of(vec![n2.clone()]), of(vec![answer("n2", Reached::NoRoute)]), Pace::Now),
            ("no longer asked for", of(vec![n2.clone(), n3.clone()]), of(vec![n3.clone()]), Pace::Rest),
            ("another is asked for", of(vec![n2.clone()]), of(vec![n3]), Pace::Now),
        ] {
            let mut pacer = Pacer::default();
            pacer.wrote(from, at(100));
            assert_eq!(pacer.pace(&to, Duration::ZERO, at(101)), want, "{name}");
        }
    }

    #[test]
    fn addresses_that_the_leader_waits_for_are_urgent_and_no_news_once_it_has_them() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let waiting = NodeReportStatus { default_addresses: vec!["10.0.0.9".to_owned()], ..Default::default() };
        let known = NodeReportStatus::default();
        let mut pacer = Pacer::default();
        pacer.wrote(known.clone(), at(100));
        assert_eq!(pacer.pace(&waiting, Duration::ZERO, at(101)), Pace::Now);
        pacer.wrote(waiting, at(101));
        assert_eq!(pacer.pace(&known, Duration::ZERO, at(200)), Pace::Rest);
        let changed = NodeReportStatus { boot_id: "other".to_owned(), ..known };
        assert_eq!(pacer.pace(&changed, Duration::ZERO, at(200)), Pace::Now);
    }
}
