//! The election as a machine: what to do with the Lease, and when.
//!
//! It follows `client-go/tools/leaderelection`, so that it can share a Lease with any other
//! cloud-controller-manager: a holder is gone when its record has not changed for as long as that
//! record says, by this machine's clock. Nobody compares wall clocks.
//!
//! Two processes may never begin a write at the same time. A leader's right to do so ends a renew
//! deadline after the *sending* of its last renewal, whatever became of later ones; others count
//! the longer lease duration from when they *received* what that renewal wrote; and each write of
//! the Lease names the version that it replaces. `simulation` tries to break that.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::timing::{JITTER_FACTOR, Timing};
use crate::model::{Leadership, Moment};

/// What the Lease says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// `metadata.resourceVersion`: a record with another one has changed.
    pub version: String,
    /// `spec.holderIdentity`; `None` when empty, which means that it was released.
    pub holder: Option<String>,
    /// `spec.leaseDurationSeconds`: the holder's own word on when it counts as gone.
    pub lease_duration: Duration,
    /// `spec.leaseTransitions`: how many holders there were before.
    pub transitions: u64,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The deadline came.
    Tick,
    /// The Lease was read; `None` when there is none.
    Read(Option<LeaseRecord>),
    /// A watch shows the Lease, perhaps as it was some time ago; `None` when it was deleted.
    Seen(Option<LeaseRecord>),
    /// A write was accepted; the Lease now says this.
    Written(LeaseRecord),
    /// A write was refused: someone else wrote first.
    Conflict,
    /// A read or write failed, or no answer came.
    Failed,
    /// The process ends: give the Lease back.
    Stop,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Read the Lease.
    Read,
    /// Create the Lease with this process as holder.
    Create,
    /// Write this process into the Lease in place of a holder that is gone.
    TakeOver {
        /// The version to replace.
        version: String,
    },
    /// Renew the own hold; since when it lasts, and how many came before, stay as they are.
    Renew {
        /// The version to replace.
        version: String,
    },
    /// Give the Lease back.
    Release {
        /// The version to replace.
        version: String,
    },
    /// From now on this process leads.
    Lead,
    /// From now on it does not, and must not write anything more. The machine has ended.
    Lose,
    /// Nothing is held any more, as asked. The machine has ended.
    End,
}

/// One candidate's view of the election.
#[derive(Debug)]
pub struct Election {
    identity: String,
    timing: Timing,
    jitter: fastrand::Rng,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Another one leads, or nobody.
    Candidate {
        observed: Option<Observed>,
        next: Next,
    },
    /// This process leads.
    Leader {
        /// The version to replace; `None` when a failure left it in doubt and it must be read first.
        version: Option<String>,
        /// When the last accepted write was begun: others count from no earlier time.
        renewed: Moment,
        /// What the Lease counted when it became this process's.
        term: u64,
        next: Next,
    },
    Ended,
}

/// The record last seen, and when it was first seen so.
#[derive(Debug)]
struct Observed {
    record: LeaseRecord,
    at: Moment,
}

impl Observed {
    /// From when on nobody needs to respect it: the holder's word counts, not ours.
    fn expires(&self) -> Moment {
        match self.record.holder {
            Some(_) => self.at + self.record.lease_duration,
            None => self.at,
        }
    }
}

/// What the machine waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    At(Moment),
    /// An answer, to a request made at this time.
    Answer(Moment),
}

impl Next {
    fn is_due(self, now: Moment) -> bool {
        matches!(self, Self::At(at) if at <= now)
    }
}

impl Election {
    /// A candidate that looks at the Lease at once. `seed` makes the jitter differ between candidates.
    pub fn new(identity: String, timing: Timing, seed: u64, now: Moment) -> Self {
        let state = State::Candidate { observed: None, next: Next::At(now) };
        Self { identity, timing, jitter: fastrand::Rng::with_seed(seed), state }
    }

    /// What the process is by now, and until when it may write.
    pub fn leadership(&self) -> Leadership {
        match &self.state {
            State::Candidate { .. } => Leadership::Candidate,
            State::Leader { renewed, term, .. } => {
                Leadership::Leader { renewed: *renewed, until: self.timing.permitted_until(*renewed), term: *term }
            }
            State::Ended => Leadership::Over,
        }
    }

    /// When the machine wants its next `Tick`; `None` once it has ended.
    ///
    /// While an answer is due, this is the time at which a leader gives up.
    pub fn deadline(&self) -> Option<Moment> {
        match &self.state {
            State::Candidate { next: Next::At(at), .. } => Some(*at),
            State::Candidate { next: Next::Answer(_), .. } | State::Ended => None,
            State::Leader { renewed, next, .. } => {
                let end = *renewed + self.timing.renew_deadline;
                match next {
                    Next::At(at) => Some(end.min(*at)),
                    Next::Answer(_) => Some(end),
                }
            }
        }
    }

    /// Takes one input and says what to do, in order.
    ///
    /// Between a request and its answer the only other inputs are `Tick`, `Seen` and `Stop`.
    pub fn step(&mut self, input: Input, now: Moment) -> Vec<Output> {
        if self.has_run_out(now) {
            self.state = State::Ended;
            return vec![Output::Lose];
        }
        match input {
            Input::Tick => self.tick(now),
            Input::Read(record) => self.read(record, now),
            Input::Seen(record) => self.seen(record, now),
            Input::Written(record) => self.written(record, now),
            Input::Conflict => self.failed(now, Duration::ZERO),
            Input::Failed => self.failed(now, self.timing.retry_period),
            Input::Stop => self.stop(),
        }
    }

    fn has_run_out(&self, now: Moment) -> bool {
        matches!(&self.state, State::Leader { renewed, .. } if now.since(*renewed) >= self.timing.renew_deadline)
    }

    fn tick(&mut self, now: Moment) -> Vec<Output> {
        match &mut self.state {
            State::Candidate { next, .. } if next.is_due(now) => {
                *next = Next::Answer(now);
                vec![Output::Read]
            }
            State::Leader { next, version, .. } if next.is_due(now) => {
                *next = Next::Answer(now);
                // The fast path of client-go: no read before a write that will most likely succeed.
                match version {
                    Some(version) => vec![Output::Renew { version: version.clone() }],
                    None => vec![Output::Read],
                }
            }
            _ => Vec::new(),
        }
    }

    fn read(&mut self, record: Option<LeaseRecord>, now: Moment) -> Vec<Output> {
        match &mut self.state {
            State::Ended => Vec::new(),
            State::Leader { version, next, .. } => match record {
                Some(record) if record.holder.as_deref() == Some(&self.identity) => {
                    *version = Some(record.version.clone());
                    *next = Next::Answer(now);
                    vec![Output::Renew { version: record.version }]
                }
                // Someone else holds it, or someone deleted it: nothing protects this leader's writes any more.
                _ => {
                    self.state = State::Ended;
                    vec![Output::Lose]
                }
            },
            State::Candidate { .. } => {
                let outputs = self.contend(record, now);
                if outputs.is_empty() {
                    self.wait(now);
                }
                outputs
            }
        }
    }

    /// A watch is faster than the next look, but it may lag: a leader looks for itself.
    fn seen(&mut self, record: Option<LeaseRecord>, now: Moment) -> Vec<Output> {
        match &mut self.state {
            State::Candidate { next: Next::At(_), .. } => self.contend(record, now),
            State::Leader { next: next @ Next::At(_), .. }
                if record.as_ref().and_then(|record| record.holder.as_ref()) != Some(&self.identity) =>
            {
                *next = Next::Answer(now);
                vec![Output::Read]
            }
            State::Candidate { .. } | State::Leader { .. } | State::Ended => Vec::new(),
        }
    }

    /// Takes the Lease if it is free; else keeps in mind what it says.
    fn contend(&mut self, record: Option<LeaseRecord>, now: Moment) -> Vec<Output> {
        let State::Candidate { observed, next } = &mut self.state else { return Vec::new() };
        let output = match record {
            // Whoever held a Lease that was deleted may not have noticed yet.
            None if observed.as_ref().is_some_and(|seen| now < seen.expires()) => return Vec::new(),
            None => {
                *observed = None;
                Output::Create
            }
            Some(record) => {
                let version = record.version.clone();
                let known = observed.take().filter(|known| known.record == record);
                let seen = observed.insert(known.unwrap_or(Observed { record, at: now }));
                if seen.record.holder.as_ref() == Some(&self.identity) {
                    // The answer to its own first write was lost.
                    Output::Renew { version }
                } else if now >= seen.expires() {
                    Output::TakeOver { version }
                } else {
                    return Vec::new();
                }
            }
        };
        *next = Next::Answer(now);
        vec![output]
    }

    fn written(&mut self, record: LeaseRecord, now: Moment) -> Vec<Output> {
        let (asked, known_term) = match &mut self.state {
            State::Ended => return Vec::new(),
            State::Candidate { next: Next::Answer(begun), .. } => (*begun, None),
            State::Leader { next: Next::Answer(begun), term, .. } => (*begun, Some(*term)),
            // An answer that nobody waits for says nothing about when it was asked for.
            State::Candidate { next: Next::At(_), .. } | State::Leader { next: Next::At(_), .. } => return Vec::new(),
        };
        if now.since(asked) >= self.timing.renew_deadline {
            // Too late to lead on it; the Lease is its own, and the next look renews it.
            self.wait(now);
            return Vec::new();
        }
        let next = self.next(asked, self.timing.retry_period, now);
        let term = known_term.unwrap_or(record.transitions);
        self.state = State::Leader { version: Some(record.version), renewed: asked, term, next };
        if known_term.is_some() { Vec::new() } else { vec![Output::Lead] }
    }

    fn failed(&mut self, now: Moment, pause: Duration) -> Vec<Output> {
        let asked = match &self.state {
            State::Leader { next: Next::Answer(asked), .. } => *asked,
            _ => now,
        };
        let again = self.next(asked, pause, now);
        match &mut self.state {
            State::Ended => {}
            State::Candidate { .. } => self.wait(now),
            State::Leader { version, next, .. } => {
                // The answer to an accepted write may have been lost.
                *version = None;
                *next = again;
            }
        }
        Vec::new()
    }

    /// A leader's next look: a pause after the last was asked for, so that a slow answer, or none, does
    /// not cost it the pause as well; but never in a hurry.
    fn next(&self, asked: Moment, pause: Duration, now: Moment) -> Next {
        Next::At((asked + pause).max(now + self.timing.retry_period / 8))
    }

    fn stop(&mut self) -> Vec<Output> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Leader { version: Some(version), next: Next::At(_), .. } => {
                vec![Output::Release { version }, Output::End]
            }
            // In doubt, the Lease runs out by itself.
            State::Leader { .. } | State::Candidate { .. } => vec![Output::End],
            State::Ended => Vec::new(),
        }
    }

    /// Lets a candidate wait a jittered retry period, but not past the time at which the holder expires.
    fn wait(&mut self, now: Moment) {
        let stretch = 1.0 + self.jitter.f64() * JITTER_FACTOR;
        let at = now + self.timing.retry_period.mul_f64(stretch);
        if let State::Candidate { next, observed } = &mut self.state {
            let expires = observed.as_ref().map(Observed::expires).filter(|expires| *expires > now);
            *next = Next::At(expires.map_or(at, |expires| at.min(expires)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: &str = "n1_11111111";
    const OTHER: &str = "n2_22222222";

    fn at(seconds: f64) -> Moment {
        Moment::since_boot(Duration::from_secs_f64(1000.0 + seconds))
    }

    fn record(version: &str, holder: Option<&str>) -> LeaseRecord {
        let lease_duration = Duration::from_secs(if holder.is_some() { 15 } else { 1 });
        LeaseRecord { version: version.to_owned(), holder: holder.map(str::to_owned), lease_duration, transitions: 4 }
    }

    fn candidate() -> Election {
        Election::new(ME.to_owned(), Timing::default(), 7, at(0.0))
    }

    /// A leader since second 0.
    fn leader() -> Election {
        let mut election = candidate();
        assert_eq!(election.step(Input::Tick, at(0.0)), [Output::Read]);
        assert_eq!(election.step(Input::Read(None), at(0.0)), [Output::Create]);
        assert_eq!(election.step(Input::Written(record("1", Some(ME))), at(0.0)), [Output::Lead]);
        election
    }

    fn renew(version: &str) -> Output {
        Output::Renew { version: version.to_owned() }
    }

    #[test]
    fn an_absent_or_released_lease_is_taken_at_once() {
        for (lease, want) in
            [(None, Output::Create), (Some(record("5", None)), Output::TakeOver { version: "5".to_owned() })]
        {
            let mut election = candidate();
            assert_eq!(election.deadline(), Some(at(0.0)));
            assert_eq!(election.step(Input::Tick, at(0.0)), [Output::Read]);
            assert_eq!(election.deadline(), None, "it waits for the answer");
            assert_eq!(election.step(Input::Read(lease), at(0.1)), [want]);
            assert_eq!(election.step(Input::Written(record("6", Some(ME))), at(0.2)), [Output::Lead]);
        }
    }

    #[test]
    fn a_holder_is_gone_when_its_record_stood_still_for_as_long_as_it_says() {
        let mut election = candidate();
        for (seconds, version, is_taken) in
            [(0.0, "5", false), (14.9, "5", false), (15.0, "6", false), (29.9, "6", false), (30.0, "6", true)]
        {
            let next = election.deadline().expect("a candidate always wants to look");
            assert!(next <= at(seconds).max(at(0.0)) || seconds == 15.0, "{seconds}: {next:?}");
            election.step(Input::Tick, next.max(at(seconds)));
            let outputs = election.step(Input::Read(Some(record(version, Some(OTHER)))), at(seconds));
            let want = if is_taken { vec![Output::TakeOver { version: version.to_owned() }] } else { Vec::new() };
            assert_eq!(outputs, want, "at {seconds} s");
        }
    }

    #[test]
    fn a_candidate_looks_again_after_one_to_two_point_two_retry_periods() {
        for seed in 0..200 {
            let mut election = Election::new(ME.to_owned(), Timing::default(), seed, at(0.0));
            election.step(Input::Tick, at(0.0));
            election.step(Input::Read(Some(record("5", Some(OTHER)))), at(0.0));
            let next = election.deadline().expect("a candidate always wants to look").since(at(0.0));
            assert!((2.0..=4.4).contains(&next.as_secs_f64()), "seed {seed}: {next:?}");
        }
    }

    #[test]
    fn who_loses_the_race_for_a_free_lease_stays_a_candidate() {
        let mut election = candidate();
        election.step(Input::Tick, at(0.0));
        election.step(Input::Read(None), at(0.0));
        assert_eq!(election.step(Input::Failed, at(0.1)), []);
        let next = election.deadline().expect("a candidate always wants to look");
        assert!(next >= at(2.1));
        assert_eq!(election.step(Input::Tick, next), [Output::Read]);
    }

    #[test]
    fn a_leader_renews_every_retry_period() {
        let mut election = leader();
        for round in 1..5 {
            let now = at(2.0 * f64::from(round));
            assert_eq!(election.deadline(), Some(now));
            assert_eq!(election.step(Input::Tick, now), [renew(&round.to_string())]);
            assert_eq!(election.step(Input::Written(record(&(round + 1).to_string(), Some(ME))), now), []);
        }
    }

    #[test]
    fn a_leader_whose_renewal_fails_reads_before_it_writes_again() {
        let mut election = leader();
        assert_eq!(election.step(Input::Tick, at(2.0)), [renew("1")]);
        assert_eq!(election.step(Input::Failed, at(2.1)), []);
        assert_eq!(election.deadline(), Some(at(4.0)), "no busy loop");
        assert_eq!(election.step(Input::Tick, at(4.0)), [Output::Read]);
        assert_eq!(election.step(Input::Read(Some(record("2", Some(ME)))), at(4.2)), [renew("2")]);
        assert_eq!(election.step(Input::Written(record("3", Some(ME))), at(4.3)), []);
        assert_eq!(election.deadline(), Some(at(6.2)));
    }

    #[test]
    fn a_slow_answer_does_not_make_the_next_renewal_late() {
        for (name, answer, answered, want) in [
            ("within the retry period", Input::Written(record("2", Some(ME))), 3.0, 4.0),
            ("after it", Input::Written(record("2", Some(ME))), 5.0, 5.25),
            ("none within half the renew deadline", Input::Failed, 7.0, 7.25),
        ] {
            let mut election = leader();
            assert_eq!(election.step(Input::Tick, at(2.0)), [renew("1")]);
            assert_eq!(election.step(answer, at(answered)), [], "{name}");
            assert_eq!(election.deadline(), Some(at(want)), "{name}");
        }
    }

    #[test]
    fn a_leader_gives_up_at_the_renew_deadline() {
        let mut election = leader();
        let mut now = at(2.0);
        while now < at(10.0) {
            election.step(Input::Tick, now);
            assert_eq!(election.step(Input::Failed, now), []);
            now = election.deadline().expect("a leader always has a deadline");
        }
        assert_eq!(now, at(10.0));
        assert_eq!(election.step(Input::Tick, now), [Output::Lose]);
        assert_eq!(election.deadline(), None);
    }

    #[test]
    fn an_answer_after_the_renew_deadline_comes_too_late() {
        let mut election = leader();
        election.step(Input::Tick, at(2.0));
        assert_eq!(election.deadline(), Some(at(10.0)), "a leader gives up while it waits");
        assert_eq!(election.step(Input::Written(record("2", Some(ME))), at(10.0)), [Output::Lose]);
    }

    #[test]
    fn a_leader_who_finds_another_holder_or_no_lease_stops_at_once() {
        for lease in [None, Some(record("9", Some(OTHER))), Some(record("9", None))] {
            let mut election = leader();
            election.step(Input::Tick, at(2.0));
            election.step(Input::Failed, at(2.0));
            election.step(Input::Tick, at(4.0));
            assert_eq!(election.step(Input::Read(lease), at(4.0)), [Output::Lose]);
            assert_eq!(election.step(Input::Tick, at(5.0)), []);
        }
    }

    #[test]
    fn the_hold_counts_from_when_a_renewal_was_begun() {
        let mut election = leader();
        election.step(Input::Tick, at(2.0));
        election.step(Input::Written(record("2", Some(ME))), at(6.0));
        election.step(Input::Tick, at(8.0));
        assert_eq!(election.deadline(), Some(at(12.0)));
    }

    #[test]
    fn stopping_releases_what_is_held_and_nothing_else() {
        let release = Output::Release { version: "1".to_owned() };
        let mut in_doubt = leader();
        in_doubt.step(Input::Tick, at(2.0));
        let mut failed = leader();
        failed.step(Input::Tick, at(2.0));
        failed.step(Input::Failed, at(2.1));
        for (name, mut election, want) in [
            ("a leader", leader(), vec![release, Output::End]),
            ("a candidate", candidate(), vec![Output::End]),
            ("a leader whose renewal is on its way", in_doubt, vec![Output::End]),
            ("a leader whose renewal failed", failed, vec![Output::End]),
        ] {
            assert_eq!(election.step(Input::Stop, at(2.2)), want, "{name}");
            assert_eq!(election.leadership(), Leadership::Over, "{name}");
            assert_eq!(election.step(Input::Stop, at(2.3)), [], "{name}");
        }
    }

    #[test]
    fn a_candidate_acts_on_what_a_watch_shows() {
        let take_over = |version: &str| vec![Output::TakeOver { version: version.to_owned() }];
        for (name, seen, want) in [
            ("released", Some(record("6", None)), take_over("6")),
            ("renewed", Some(record("6", Some(OTHER))), vec![]),
            ("the same", Some(record("5", Some(OTHER))), vec![]),
            ("its own, by a write whose answer was lost", Some(record("6", Some(ME))), vec![renew("6")]),
            ("deleted, its holder perhaps still at work", None, vec![]),
        ] {
            let mut election = candidate();
            election.step(Input::Tick, at(0.0));
            assert_eq!(election.step(Input::Read(Some(record("5", Some(OTHER)))), at(0.0)), [], "{name}");
            let next = election.deadline();
            assert_eq!(election.step(Input::Seen(seen), at(1.0)), want, "{name}");
            if want.is_empty() {
                assert_eq!(election.deadline(), next, "{name}: it still looks for itself");
            }
        }
    }

    #[test]
    fn nothing_seen_changes_what_an_answer_is_waited_for() {
        let mut election = candidate();
        election.step(Input::Tick, at(0.0));
        assert_eq!(election.step(Input::Seen(Some(record("6", None))), at(0.1)), []);
        let mut election = leader();
        election.step(Input::Tick, at(2.0));
        assert_eq!(election.step(Input::Seen(Some(record("9", Some(OTHER)))), at(2.1)), []);
        assert_eq!(election.step(Input::Conflict, at(2.2)), []);
    }

    #[test]
    fn a_renewal_shown_by_a_watch_counts_from_then_on() {
        let mut election = candidate();
        election.step(Input::Tick, at(0.0));
        election.step(Input::Read(Some(record("5", Some(OTHER)))), at(0.0));
        election.step(Input::Seen(Some(record("6", Some(OTHER)))), at(10.0));
        for (seconds, want) in [(24.9, vec![]), (25.0, vec![Output::TakeOver { version: "6".to_owned() }])] {
            election.step(Input::Tick, at(seconds));
            assert_eq!(election.step(Input::Read(Some(record("6", Some(OTHER)))), at(seconds)), want, "{seconds}");
        }
    }

    #[test]
    fn a_deleted_lease_is_made_anew_when_its_holder_is_gone_for_certain() {
        let mut election = candidate();
        election.step(Input::Tick, at(0.0));
        election.step(Input::Read(Some(record("5", Some(OTHER)))), at(0.0));
        for (seconds, want) in [(5.0, vec![]), (14.9, vec![]), (15.0, vec![Output::Create])] {
            election.step(Input::Tick, at(seconds));
            assert_eq!(election.step(Input::Read(None), at(seconds)), want, "{seconds}");
        }
    }

    #[test]
    fn a_leader_looks_for_itself_when_a_watch_shows_another_holder() {
        for (name, read, want) in [
            ("the watch lagged", Some(record("1", Some(ME))), renew("1")),
            ("it was taken", Some(record("9", Some(OTHER))), Output::Lose),
            ("it was deleted", None, Output::Lose),
        ] {
            let mut election = leader();
            assert_eq!(election.step(Input::Seen(Some(record("1", Some(ME)))), at(0.5)), [], "{name}");
            assert_eq!(election.step(Input::Seen(Some(record("0", None))), at(1.0)), [Output::Read], "{name}");
            assert_eq!(election.step(Input::Read(read), at(1.1)), [want], "{name}");
        }
    }

    #[test]
    fn a_leader_that_was_overtaken_looks_soon_but_does_not_hurry() {
        let mut election = leader();
        election.step(Input::Tick, at(2.0));
        assert_eq!(election.step(Input::Conflict, at(2.0)), []);
        assert_eq!(election.deadline(), Some(at(2.25)));
        assert_eq!(election.step(Input::Tick, at(2.25)), [Output::Read]);
    }

    #[test]
    fn who_may_write_is_said_by_the_sending_of_the_last_renewal() {
        let mut election = candidate();
        assert_eq!(election.leadership(), Leadership::Candidate);
        election.step(Input::Tick, at(0.0));
        election.step(Input::Read(None), at(1.0));
        election.step(Input::Written(record("1", Some(ME))), at(3.0));
        let first = Leadership::Leader { renewed: at(1.0), until: at(9.0), term: 4 };
        assert_eq!(election.leadership(), first);
        assert_eq!(first.time_left(at(3.0)), Some(Duration::from_secs(6)));
        assert!(first.permits(at(8.9)) && !first.permits(at(9.0)));
        election.step(Input::Tick, at(5.0));
        election.step(Input::Failed, at(9.0));
        assert_eq!(election.leadership(), first, "a failed renewal gives no time");
    }

    #[test]
    fn a_first_write_answered_too_late_leads_to_nothing() {
        let mut election = candidate();
        election.step(Input::Tick, at(0.0));
        election.step(Input::Read(None), at(0.0));
        assert_eq!(election.step(Input::Written(record("1", Some(ME))), at(10.0)), []);
        assert_eq!(election.leadership(), Leadership::Candidate);
        let next = election.deadline().expect("a candidate always wants to look");
        assert_eq!(election.step(Input::Tick, next), [Output::Read]);
        assert_eq!(election.step(Input::Read(Some(record("1", Some(ME)))), next), [renew("1")]);
    }

    #[test]
    fn the_holders_own_word_on_its_duration_counts() {
        let mut election = candidate();
        let long = LeaseRecord { lease_duration: Duration::from_secs(60), ..record("5", Some(OTHER)) };
        for (seconds, is_taken) in [(0.0, false), (16.0, false), (59.9, false), (60.0, true)] {
            election.step(Input::Tick, at(seconds));
            let outputs = election.step(Input::Read(Some(long.clone())), at(seconds));
            assert_eq!(!outputs.is_empty(), is_taken, "{seconds}");
        }
    }
}
