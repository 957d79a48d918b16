//! What is known of the neighbours that are looked for, from what the kernel tells of each. Pure.
//!
//! The kernel gives up three seconds after it first asked. On a busy host, or while a node comes up, that is too soon to
//! tell others that nobody is there, and to take it back right after: one that has never answered is unknown, not silent,
//! until it has been asked in vain more than once.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::neighbour::Standing;
use crate::model::Neighbour;

/// So often one is asked that has never answered: in all it takes less than the leader waits for a witness.
const ROUNDS: u8 = 2;

/// What has been heard of each since it is looked for.
#[derive(Debug, Default)]
pub(super) struct Heard {
    of: BTreeMap<Neighbour, Known>,
}

#[derive(Debug)]
struct Known {
    standing: Standing,
    has_answered: bool,
    /// Whether it was asked since the kernel last gave up.
    is_asked: bool,
    /// How often the kernel has given up since it last answered.
    in_vain: u8,
}

impl Heard {
    /// Forgets those that are not looked for any more.
    pub(super) fn keep(&mut self, is_wanted: impl Fn(&Neighbour) -> bool) {
        self.of.retain(|neighbour, _| is_wanted(neighbour));
    }

    /// It is asked.
    pub(super) fn asked(&mut self, neighbour: Neighbour) {
        let nothing = Known { standing: Standing::Unknown, has_answered: false, is_asked: true, in_vain: 0 };
        self.of.entry(neighbour).or_insert(nothing).is_asked = true;
    }

    /// The kernel tells of it.
    pub(super) fn learn(&mut self, neighbour: Neighbour, standing: Standing) {
        let Some(known) = self.of.get_mut(&neighbour) else { return };
        match standing {
            Standing::Answers => (known.has_answered, known.in_vain) = (true, 0),
            Standing::Silent => {
                known.in_vain = known.in_vain.saturating_add(std::mem::take(&mut known.is_asked).into())
            }
            // While one that was silent is asked again, nothing new is known of it.
            Standing::Unknown if known.standing == Standing::Silent => return,
            Standing::Unknown => {}
        }
        known.standing = standing;
    }

    /// Takes in all that the kernel knows. Nobody has told of an entry that it dropped.
    pub(super) fn learn_all(&mut self, seen: &BTreeMap<Neighbour, Standing>) {
        let all: Vec<_> = self.of.keys().copied().collect();
        for neighbour in all {
            self.learn(neighbour, seen.get(&neighbour).copied().unwrap_or(Standing::Unknown));
        }
    }

    /// Those that are to be asked once more before anything is said of them.
    pub(super) fn doubtful(&self) -> Vec<Neighbour> {
        let is_one =
            |(_, known): &(&Neighbour, &Known)| known.standing == Standing::Silent && known.answers().is_none();
        self.of.iter().filter(is_one).filter(|(_, known)| !known.is_asked).map(|(neighbour, _)| *neighbour).collect()
    }

    /// `true` for those that answer, `false` for those that do not, nothing of the others.
    pub(super) fn answers(&self) -> BTreeMap<IpAddr, bool> {
        self.of.iter().filter_map(|(neighbour, known)| Some((neighbour.address, known.answers()?))).collect()
    }
}

impl Known {
    fn answers(&self) -> Option<bool> {
        match self.standing {
            Standing::Answers => Some(true),
            Standing::Silent => (self.has_answered || self.in_vain >= ROUNDS).then_some(false),
            Standing::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Asked,
        Told(Standing),
        /// All entries are listed, and this is its own, if it has one.
        Listed(Option<Standing>),
    }

    const SILENT: Step = Step::Told(Standing::Silent);

    fn neighbour() -> Neighbour {
        Neighbour { address: "10.90.0.12".parse().expect("an address"), interface: 2 }
    }

    #[test]
    fn one_that_never_answered_is_silent_when_it_was_asked_in_vain_more_than_once() {
        use Standing::{Answers, Silent, Unknown};
        use Step::{Asked, Listed, Told};
        // Whether it answers, and whether it is to be asked once more at once.
        for (name, steps, want) in [
            ("asked", &[Asked][..], (None, false)),
            ("it answers", &[Asked, Told(Answers)], (Some(true), false)),
            ("not at once", &[Asked, SILENT], (None, true)),
            ("told twice of one time", &[Asked, SILENT, Listed(Some(Silent)), SILENT], (None, true)),
            ("it is asked again", &[Asked, SILENT, Asked], (None, false)),
            ("it comes", &[Asked, SILENT, Asked, Told(Answers)], (Some(true), false)),
            ("it does not", &[Asked, SILENT, Asked, SILENT], (Some(false), false)),
            (
                "nothing new while it is asked",
                &[Asked, SILENT, Asked, SILENT, Asked, Told(Unknown)],
                (Some(false), false),
            ),
            ("nor when its entry goes", &[Asked, SILENT, Asked, SILENT, Listed(None)], (Some(false), false)),
            ("one that answered is believed to be gone", &[Asked, Told(Answers), Asked, SILENT], (Some(false), false)),
            ("an entry that was dropped", &[Asked, Told(Answers), Listed(None)], (None, false)),
            (
                "it had answered all the same",
                &[Asked, Told(Answers), Listed(None), Asked, SILENT],
                (Some(false), false),
            ),
        ] {
            let mut heard = Heard::default();
            for step in steps {
                match step {
                    Asked => heard.asked(neighbour()),
                    Told(standing) => heard.learn(neighbour(), *standing),
                    Listed(entry) => {
                        heard.learn_all(&entry.map(|standing| (neighbour(), standing)).into_iter().collect())
                    }
                }
            }
            let got = heard.answers().get(&neighbour().address).copied();
            assert_eq!((got, !heard.doubtful().is_empty()), want, "{name}");
        }
    }

    #[test]
    fn of_one_that_is_not_looked_for_nothing_is_known() {
        let mut heard = Heard::default();
        heard.learn(neighbour(), Standing::Answers);
        assert_eq!(heard.answers(), BTreeMap::new());
        heard.asked(neighbour());
        heard.learn(neighbour(), Standing::Answers);
        heard.keep(|_| false);
        assert_eq!(heard.answers(), BTreeMap::new());
    }
}
