//! Changes that wait until nothing more changes: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::{MachineId, Moment};

/// How long nothing may change about a machine before it is looked at: a Node that joins changes several
/// times, and when thousands join, what they wait for comes first.
const QUIET: Duration = Duration::from_secs(2);
/// How long a change waits at most where there never is quiet.
const LONGEST: Duration = Duration::from_secs(30);

/// Machines about which something changed, each until it has been quiet for a while.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    waiting: BTreeMap<MachineId, Wait>,
    order: BTreeSet<(Moment, MachineId)>,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    first: Moment,
    due: Moment,
}

impl Quiet {
    /// Something changed about a machine.
    pub(super) fn stir(&mut self, machine: MachineId, now: Moment) {
        let before = self.waiting.get(&machine).copied();
        let first = before.map_or(now, |wait| wait.first);
        let due = (now + QUIET).min(first + LONGEST);
        if let Some(before) = before {
            self.order.remove(&(before.due, machine.clone()));
        }
        self.order.insert((due, machine.clone()));
        self.waiting.insert(machine, Wait { first, due });
    }

    /// The machines about which nothing has changed for long enough.
    pub(super) fn take(&mut self, now: Moment) -> Vec<MachineId> {
        let mut settled = Vec::new();
        while self.order.first().is_some_and(|(due, _)| *due <= now)
            && let Some((_, machine)) = self.order.pop_first()
        {
            self.waiting.remove(&machine);
            settled.push(machine);
        }
        settled
    }

    /// When the next is to be looked at.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.order.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_boot(Duration::from_secs(seconds))
    }

    fn id(text: &str) -> MachineId {
        text.parse().expect("an id")
    }

    #[test]
    fn each_machine_waits_for_its_own_quiet_and_not_for_ever() {
        let mut quiet = Quiet::default();
        quiet.stir(id("a"), at(100));
        quiet.stir(id("b"), at(101));
        assert_eq!((quiet.take(at(101)), quiet.deadline()), (vec![], Some(at(102))));
        assert_eq!((quiet.take(at(102)), quiet.deadline()), (vec![id("a")], Some(at(103))));
        for second in 102..131 {
            assert_eq!(quiet.take(at(second)), [], "there was no quiet by second {second}");
            quiet.stir(id("b"), at(second));
        }
        assert_eq!((quiet.take(at(131)), quiet.deadline()), (vec![id("b")], None), "thirty seconds are enough");
        quiet.stir(id("b"), at(200));
        assert_eq!(quiet.deadline(), Some(at(202)), "afterwards it waits anew");
    }
}
