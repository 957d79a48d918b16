#![expect(clippy::disallowed_methods, reason = "shell: looks again and again")]
//! The leader under load: when it ends it is started again, as its pod would be, and what it had counted is kept.

use std::{convert::Infallible, time::Duration};

use anyhow::Result;

use super::{
    harness::{Lab, namespace::Program},
    many_nodes::spawn,
    renewals::Renewals,
};

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Longer than a benchmark lasts.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// A leader's renewals from now on, however often it has to be started again.
pub(crate) struct Watched<'a> {
    lab: &'a Lab,
    leader: &'a mut Program,
    /// What the process of now had counted before, and what it had when it was last asked.
    begun: Renewals,
    last: Renewals,
    /// By processes that have ended.
    ended: Renewals,
    ends: u32,
}

impl<'a> Watched<'a> {
    pub(crate) async fn begin(lab: &'a Lab, leader: &'a mut Program) -> Result<Self> {
        let begun = Renewals::scrape(lab).await?;
        Ok(Self { lab, leader, last: begun.clone(), ended: begun.of(&[]), begun, ends: 0 })
    }

    /// Watches over it until the future is dropped.
    pub(crate) async fn keep(&mut self) -> Result<Infallible> {
        loop {
            tokio::select! {
                ended = self.leader.wait(FOR_EVER) => {
                    println!("the leader ended ({}) and is started again", ended?);
                    self.ends += 1;
                    self.ended = self.renewals();
                    self.begun = self.begun.of(&[]);
                    self.last = self.begun.clone();
                    *self.leader = spawn(self.lab, &[])?;
                }
                () = tokio::time::sleep(LOOK_EVERY) => self.look().await,
            }
        }
    }

    /// One that does not lead, or has no time to answer, shows nothing; the next look finds it all.
    pub(crate) async fn look(&mut self) {
        if let Ok(now) = Renewals::scrape(self.lab).await {
            self.last = now;
        }
    }

    /// How often it ended, which it does when it has lost its Lease.
    pub(crate) fn ends(&self) -> u32 {
        self.ends
    }

    /// How long renewals took, as far as was seen.
    pub(crate) fn renewals(&self) -> Renewals {
        self.ended.plus(&self.last.since(&self.begun))
    }
}
