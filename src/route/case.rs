//! One Node's case: who is asked about it, since when, and what follows from the answers. Pure.
//!
//! What is remembered here is this leader's own and starts anew with the next one: it only ever
//! makes a judgement later. Silence never makes one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::api::majority;
use crate::model::views::{Condition, NodeView, Truth};
use crate::model::{Moment, NodeName};

use super::evidence::Answer;
use super::network::Lack;
use super::witnesses::{COUNT, Candidates};

/// A Node that joins has this long to have its routes before anything is said against it.
pub const GRACE: Duration = Duration::from_secs(5);
/// A witness that is silent for so long is passed over; twice as long once as many have been as a
/// Node has, and so on: an API server that is slow would not be faster for more writes.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_DOUBLINGS: u32 = 4;
/// Witnesses have to deny for so long before others are asked, and believed.
const DOUBT: Duration = Duration::from_secs(60);
/// The own agent has to say so for so long: an interface that flaps is no outage.
const OWN_WORD: Duration = Duration::from_secs(10);
/// A witness of a settled Node may be away for so long before another takes its place.
const LOST: Duration = Duration::from_secs(60);

/// What one look at a Node sees.
pub struct Scene<'a> {
    /// The Node.
    pub node: &'a NodeView,
    /// The version of its routes.
    pub digest: &'a str,
    /// Its witnesses so far.
    pub known: &'a [NodeName],
    /// What its own agent says.
    pub own: Result<(), Lack>,
    /// Who may be a witness.
    pub candidates: &'a Candidates,
    /// Whether it is time to choose some: while a cluster is young, the few that may be witnesses
    /// would have all Nodes to speak of, so each waits for its own agent.
    pub draws: bool,
    /// What each witness says.
    pub answer: &'a dyn Fn(&NodeName) -> Answer,
}

impl Scene<'_> {
    fn is_settled(&self) -> bool {
        let says_so = |condition: &Condition| condition.status == Truth::False && condition.reason == "RouteCreated";
        self.node.network_unavailable.as_ref().is_some_and(says_so)
    }
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its witnesses from now on: the first are asked, the others speak up when they deny.
    pub witnesses: Vec<NodeName>,
    /// What is to be thought of its network.
    pub verdict: Verdict,
    /// Whether there are not enough others to choose from.
    pub is_short: bool,
    /// When to look again although nothing has changed.
    pub deadline: Option<Moment>,
}

/// What is to be thought of a Node's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Its pods can be reached.
    Routed,
    /// They cannot: those who know say so.
    NotRouted(Lack),
    /// Nobody can tell yet.
    Open(Lack),
}

/// What is remembered of one Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Case {
    /// The version of the routes that all this is about.
    about: String,
    /// Since when those who are asked owe an answer.
    asked: BTreeMap<NodeName, Moment>,
    /// Those who were passed over, the oldest first, and how often one was.
    silent: Vec<NodeName>,
    passed_over: u32,
    /// Since when witnesses of a settled Node are away.
    lost: BTreeMap<NodeName, Moment>,
    /// Since when the own agent says that it lacks routes.
    against_itself: Option<Moment>,
    doubt: Option<Doubt>,
}

/// A majority of the witnesses has denied.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Doubt {
    since: Moment,
    /// Whether others have been asked since.
    is_redrawn: bool,
}

impl Case {
    /// Looks at the Node once more.
    pub fn decide(&mut self, scene: &Scene<'_>, now: Moment) -> Decision {
        if self.about != scene.digest {
            *self = Self { about: scene.digest.to_owned(), ..Self::default() };
        }
        let mut look = Look { case: self, scene, now, deadline: None };
        let is_open = !scene.is_settled() || look.case.doubt.is_some();
        let witnesses = if is_open { look.ask() } else { look.keep() };
        let (verdict, others) = look.judge(&witnesses);
        let deadline = look.deadline;
        let witnesses = others.unwrap_or(witnesses);
        Decision { is_short: scene.draws && witnesses.len() < COUNT, witnesses, verdict, deadline }
    }
}

struct Look<'a> {
    case: &'a mut Case,
    scene: &'a Scene<'a>,
    now: Moment,
    deadline: Option<Moment>,
}

impl Look<'_> {
    /// Whether so much time has passed; if not, this is looked at again then.
    fn has_passed(&mut self, since: Moment, time: Duration) -> bool {
        let due = since + time;
        if due > self.now {
            self.deadline = Some(self.deadline.map_or(due, |known| known.min(due)));
        }
        due <= self.now
    }

    fn answer(&self, witness: &NodeName) -> Answer {
        (self.scene.answer)(witness)
    }

    fn draw(&self, besides: &BTreeSet<&NodeName>, count: usize) -> Vec<NodeName> {
        let Scene { candidates, node, draws, .. } = self.scene;
        if *draws { candidates.choose(&node.name, besides, count) } else { Vec::new() }
    }

    /// The witnesses of a Node that nothing is in question of: those it has, and others in the places
    /// of those that are away for long.
    fn keep(&mut self) -> Vec<NodeName> {
        let scene = self.scene;
        self.case.asked.clear();
        self.case.lost.retain(|name, _| scene.known.contains(name) && !scene.candidates.contains(name));
        let mut witnesses = Vec::new();
        for name in scene.known {
            let is_kept = scene.candidates.contains(name) || {
                let since = *self.case.lost.entry(name.clone()).or_insert(self.now);
                !self.has_passed(since, LOST)
            };
            if is_kept && witnesses.len() < COUNT {
                witnesses.push(name.clone());
            }
        }
        let fresh = self.draw(&witnesses.iter().collect(), COUNT - witnesses.len());
        witnesses.extend(fresh);
        witnesses
    }

    /// The witnesses of a Node whose routes are in question. In front those who affirm or may answer
    /// yet, then those who deny, and those who are silent for too long only where there are no others.
    fn ask(&mut self) -> Vec<NodeName> {
        let scene = self.scene;
        let may_be_asked = |name: &&NodeName| scene.candidates.contains(name);
        let present: Vec<_> = scene.known.iter().filter(may_be_asked).take(COUNT).cloned().collect();
        self.pass_over(&present);
        let silent = &self.case.silent;
        let (denying, others): (Vec<_>, Vec<_>) = present
            .into_iter()
            .filter(|name| !silent.contains(name))
            .partition(|name| matches!(self.answer(name), Answer::Denied(_)));
        let besides = others.iter().chain(&denying).chain(silent).collect::<BTreeSet<_>>();
        let room = COUNT - others.len() - denying.len();
        let fresh = self.draw(&besides, room);
        let mut witnesses = [others, fresh, denying].concat();
        let last = silent.iter().filter(|name| scene.candidates.contains(name)).take(COUNT - witnesses.len());
        witnesses.extend(last.cloned());
        self.expect(&witnesses);
        witnesses
    }

    /// Notes who has owed an answer for too long.
    fn pass_over(&mut self, present: &[NodeName]) {
        let answers = self.scene.answer;
        self.case.silent.retain(|name| answers(name) == Answer::Silent);
        let doublings = (self.case.passed_over / COUNT as u32).min(MOST_DOUBLINGS);
        let patience = PATIENCE * 2_u32.pow(doublings);
        for name in present {
            let Some(since) = self.case.asked.get(name).copied() else { continue };
            if self.answer(name) == Answer::Silent && self.has_passed(since, patience) {
                self.case.asked.remove(name);
                self.case.silent.retain(|known| known != name);
                self.case.silent.push(name.clone());
                self.case.passed_over = self.case.passed_over.saturating_add(1);
            }
        }
    }

    /// Notes who owes an answer from now on.
    fn expect(&mut self, witnesses: &[NodeName]) {
        let asked = &witnesses[..majority(witnesses.len())];
        let silent: Vec<_> = asked.iter().filter(|name| self.answer(name) == Answer::Silent).cloned().collect();
        self.case.asked.retain(|name, _| silent.contains(name));
        let doublings = (self.case.passed_over / COUNT as u32).min(MOST_DOUBLINGS);
        for name in silent {
            let since = *self.case.asked.entry(name).or_insert(self.now);
            self.has_passed(since, PATIENCE * 2_u32.pow(doublings));
        }
    }

    /// What is to be thought, and whom to ask instead.
    fn judge(&mut self, witnesses: &[NodeName]) -> (Verdict, Option<Vec<NodeName>>) {
        let needed = majority(witnesses.len());
        let answers: Vec<_> = witnesses.iter().map(|name| (name, self.answer(name))).collect();
        let affirmed = answers.iter().filter(|(_, answer)| *answer == Answer::Affirmed).count();
        let denied: Vec<_> = answers
            .iter()
            .filter_map(|(name, answer)| match answer {
                Answer::Denied(why) => Some(((*name).clone(), why.clone())),
                _ => None,
            })
            .collect();
        let is_against_itself = self.is_against_itself();
        // A Node whose kubelet is silent is in question already, and takes no new pods.
        let is_denied = needed > 0 && denied.len() >= needed && self.scene.node.ready == Some(Truth::True);
        let lack = match &self.scene.own {
            Err(lack) => lack.clone(),
            Ok(()) if is_denied => Lack::Denied { by: denied, of: witnesses.len() },
            Ok(()) => {
                let is_silent = |(_, answer): &&(&NodeName, Answer)| *answer == Answer::Silent;
                let silent = answers.iter().take(needed).filter(is_silent).map(|(name, _)| (*name).clone()).collect();
                Lack::Unconfirmed { by: affirmed, of: needed, silent }
            }
        };
        if self.scene.own.is_ok() && affirmed >= needed {
            self.case.doubt = None;
            return (Verdict::Routed, None);
        }
        if is_against_itself {
            return (Verdict::NotRouted(lack), None);
        }
        match self.doubt(is_denied, witnesses) {
            Believed::Yes => (Verdict::NotRouted(lack), None),
            Believed::No => (Verdict::Open(lack), None),
            Believed::Ask(others) => (Verdict::Open(lack), Some(others)),
        }
    }

    fn is_against_itself(&mut self) -> bool {
        match self.scene.own {
            Err(Lack::Incomplete { .. }) => {
                let since = *self.case.against_itself.get_or_insert(self.now);
                self.has_passed(since, OWN_WORD)
            }
            _ => {
                self.case.against_itself = None;
                false
            }
        }
    }

    /// Whether a denial is believed: it has to stand for [`DOUBT`], and then others have to say the same.
    fn doubt(&mut self, is_denied: bool, witnesses: &[NodeName]) -> Believed {
        if !is_denied {
            // Others who were asked may still be about to answer.
            self.case.doubt.take_if(|doubt| !doubt.is_redrawn);
            return Believed::No;
        }
        let now = self.now;
        let doubt = self.case.doubt.get_or_insert(Doubt { since: now, is_redrawn: false }).clone();
        if !self.has_passed(doubt.since, DOUBT) {
            return Believed::No;
        }
        if doubt.is_redrawn {
            return Believed::Yes;
        }
        self.case.doubt = Some(Doubt { is_redrawn: true, ..doubt });
        let fresh = self.draw(&witnesses.iter().collect(), COUNT);
        if fresh.is_empty() {
            return Believed::Yes;
        }
        // Where there are too few others, those who do not deny stay, and then those who do.
        let is_denying = |name: &&NodeName| matches!(self.answer(name), Answer::Denied(_));
        let (denying, rest): (Vec<_>, Vec<_>) = witnesses.iter().partition(is_denying);
        let kept = rest.into_iter().chain(denying).take(COUNT - fresh.len()).cloned();
        let others: Vec<_> = fresh.iter().cloned().chain(kept).collect();
        self.expect(&others);
        Believed::Ask(others)
    }
}

/// Whether a denial is believed.
enum Believed {
    Yes,
    No,
    /// Not before these have been asked.
    Ask(Vec<NodeName>),
}
