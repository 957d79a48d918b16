//! The times of an election, and which of them go together.

use std::time::Duration;

use thiserror::Error;

use crate::model::Moment;

/// A candidate waits up to this much of the retry period longer (`leaderelection.JitterFactor`).
pub const JITTER_FACTOR: f64 = 1.2;

/// How long before a leader gives up its last write has to be over.
const MARGIN: Duration = Duration::from_secs(2);

/// The times of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait for a sign of life before they take over.
    pub lease_duration: Duration,
    /// How long a leader goes on without a successful renewal. Below `lease_duration`.
    pub renew_deadline: Duration,
    /// How often a leader renews and a candidate looks. Below `renew_deadline` / 1.2.
    pub retry_period: Duration,
}

impl Default for Timing {
    /// Kubernetes' own: 15 s, 10 s and 2 s.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Why times do not go together; in client-go's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TimingFault {
    /// Others would never wait.
    #[error("leaseDuration must be greater than zero")]
    NoLeaseDuration,
    /// A leader would give up at once.
    #[error("renewDeadline must be greater than zero")]
    NoRenewDeadline,
    /// A candidate would never rest.
    #[error("retryPeriod must be greater than zero")]
    NoRetryPeriod,
    /// Others could take over before the leader gives up.
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseEndsFirst,
    /// A leader could give up before it has tried to renew.
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    NoTimeToRetry,
}

impl Timing {
    /// Every reason why these times do not go together; none when they do.
    pub fn faults(&self) -> Vec<TimingFault> {
        let Self { lease_duration, renew_deadline, retry_period } = *self;
        [
            (lease_duration.is_zero(), TimingFault::NoLeaseDuration),
            (renew_deadline.is_zero(), TimingFault::NoRenewDeadline),
            (retry_period.is_zero(), TimingFault::NoRetryPeriod),
            (lease_duration <= renew_deadline, TimingFault::LeaseEndsFirst),
            (renew_deadline <= retry_period.mul_f64(JITTER_FACTOR), TimingFault::NoTimeToRetry),
        ]
        .into_iter()
        .filter_map(|(is_wrong, fault)| is_wrong.then_some(fault))
        .collect()
    }

    /// By when a write has to be over of a leader that renewed at this moment and has not since.
    ///
    /// [`MARGIN`] before it gives up, and no more than a fifth: a request that nobody waits for any
    /// more may still be on its way to the server, and others take over no earlier than that.
    pub fn permitted_until(&self, renewed: Moment) -> Moment {
        renewed + self.renew_deadline.saturating_sub(MARGIN.min(self.renew_deadline / 5))
    }

    /// How long a request about the Lease may take: half the renew deadline, as upstream, so that a
    /// leader has a second try.
    pub fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// Whether a leader should have ended long ago: upstream's health check tells no sooner than
    /// 20 s after its Lease has run out.
    pub fn is_overdue(&self, renewed: Moment, now: Moment) -> bool {
        now.since(renewed) > self.lease_duration + Duration::from_secs(20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(lease: f64, renew: f64, retry: f64) -> Timing {
        let [lease_duration, renew_deadline, retry_period] = [lease, renew, retry].map(Duration::from_secs_f64);
        Timing { lease_duration, renew_deadline, retry_period }
    }

    #[test]
    fn times_go_together_as_client_go_wants_them() {
        use TimingFault::{LeaseEndsFirst, NoLeaseDuration, NoRenewDeadline, NoRetryPeriod, NoTimeToRetry};
        for (name, timing, want) in [
            ("upstream's own", Timing::default(), vec![]),
            ("the recommendation of some platforms", timing(137.0, 107.0, 26.0), vec![]),
            ("a lease as long as the deadline", timing(10.0, 10.0, 2.0), vec![LeaseEndsFirst]),
            ("a deadline of 1.2 retry periods", timing(15.0, 2.4, 2.0), vec![NoTimeToRetry]),
            ("just above", timing(15.0, 2.5, 2.0), vec![]),
            ("no retry period", timing(15.0, 10.0, 0.0), vec![NoRetryPeriod]),
            (
                "nothing at all",
                timing(0.0, 0.0, 0.0),
                vec![NoLeaseDuration, NoRenewDeadline, NoRetryPeriod, LeaseEndsFirst, NoTimeToRetry],
            ),
        ] {
            assert_eq!(timing.faults(), want, "{name}");
        }
    }

    #[test]
    fn a_fault_says_what_client_go_says() {
        for (fault, want) in [
            (TimingFault::LeaseEndsFirst, "leaseDuration must be greater than renewDeadline"),
            (TimingFault::NoTimeToRetry, "renewDeadline must be greater than retryPeriod*JitterFactor"),
            (TimingFault::NoLeaseDuration, "leaseDuration must be greater than zero"),
        ] {
            assert_eq!(fault.to_string(), want);
        }
    }

    #[test]
    fn a_permit_ends_before_the_leader_does_and_long_before_others_take_over() {
        let renewed = Moment::since_boot(Duration::from_secs(100));
        let until = Timing::default().permitted_until(renewed);
        assert_eq!(until.since(renewed), Duration::from_secs(8));
        let quick = timing(5.0, 3.0, 1.0).permitted_until(renewed);
        assert_eq!(quick.since(renewed), Duration::from_millis(2400));
    }

    #[test]
    fn a_request_about_the_lease_may_take_half_the_renew_deadline_and_a_second_in_any_case() {
        for (renew, want) in [(10.0, 5.0), (107.0, 53.5), (1.5, 1.0)] {
            assert_eq!(timing(15.0, renew, 1.0).request_timeout(), Duration::from_secs_f64(want), "{renew}");
        }
    }

    #[test]
    fn a_leader_is_overdue_twenty_seconds_after_its_lease() {
        let renewed = Moment::since_boot(Duration::from_secs(100));
        for (seconds, want) in [(0, false), (35, false), (36, true)] {
            assert_eq!(
                Timing::default().is_overdue(renewed, renewed + Duration::from_secs(seconds)),
                want,
                "{seconds}"
            );
        }
    }
}
