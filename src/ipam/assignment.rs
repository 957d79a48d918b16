//! How one Node gets its blocks, request by request: pure.
//!
//! First a claim for each block, then the Node. Whatever happens in between, nothing has to be undone:
//! a claim without its block on the Node is used by the same Node next time, and goes when the Node
//! has other blocks or is gone.

use serde::Serialize;

use super::claim::{Claim, Holder};
use crate::model::Prefix;

/// What one Node is to get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// The Node.
    pub holder: Holder,
    /// Its blocks, one of each cluster CIDR in their order.
    pub blocks: Vec<Prefix>,
    /// Those of them that it has no claim for yet.
    pub unclaimed: Vec<Prefix>,
}

/// The next request for a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Create the claim, whoever has it.
    Claim(Prefix),
    /// See whose the claim is.
    Look(Prefix),
    /// Write the blocks to the Node, if it is still the one of this uid.
    Assign,
}

/// What the API server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This is the claim: it was created, or looked at.
    Claim(Claim),
    /// The claim is there already.
    Exists,
    /// The claim is not there any more.
    NoClaim,
    /// The Node has the blocks.
    Assigned,
    /// The request failed, or may have: nobody knows.
    Failed,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The Node has its blocks.
    Given,
    /// A block is claimed for another Node, or has just become free: plan anew.
    Taken,
    /// A request failed.
    Failed,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send this.
    Ask(Request),
    /// Nothing more.
    End(End),
}

/// A Node on its way to its blocks.
#[derive(Debug)]
pub struct Progress {
    holder: Holder,
    /// Still to be claimed, the last first.
    unclaimed: Vec<Prefix>,
    request: Request,
    learnt: Vec<Claim>,
}

impl Progress {
    /// Begins; the second value is the first thing to do.
    pub fn begin(assignment: &Assignment) -> (Self, Step) {
        let unclaimed = assignment.unclaimed.iter().rev().copied().collect();
        let mut progress =
            Self { holder: assignment.holder.clone(), unclaimed, request: Request::Assign, learnt: Vec::new() };
        let step = progress.next();
        (progress, step)
    }

    /// Goes on after an answer.
    pub fn step(&mut self, answer: Answer) -> Step {
        match (answer, self.request) {
            (Answer::Claim(claim), _) => {
                let is_ours = claim.holder.as_ref() == Some(&self.holder);
                self.learnt.push(claim);
                if is_ours { self.next() } else { Step::End(End::Taken) }
            }
            // An earlier try may have come through without an answer.
            (Answer::Exists, Request::Claim(block)) => self.ask(Request::Look(block)),
            (Answer::NoClaim | Answer::Exists, _) => Step::End(End::Taken),
            (Answer::Assigned, _) => Step::End(End::Given),
            (Answer::Failed, _) => Step::End(End::Failed),
        }
    }

    /// The request that is on its way, or was last.
    pub fn request(&self) -> Request {
        self.request
    }

    /// Every claim that an answer told of.
    pub fn learnt(self) -> Vec<Claim> {
        self.learnt
    }

    fn next(&mut self) -> Step {
        let request = self.unclaimed.pop().map_or(Request::Assign, Request::Claim);
        self.ask(request)
    }

    fn ask(&mut self, request: Request) -> Step {
        self.request = request;
        Step::Ask(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    fn holder(text: &str) -> Holder {
        text.parse().expect("a holder")
    }

    fn claim(block: &str, of: &str) -> Answer {
        Answer::Claim(Claim {
            block: prefix(block),
            holder: of.parse().ok(),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            acquired_microseconds: 0,
        })
    }

    #[test]
    fn a_node_is_written_only_after_each_of_its_blocks_was_claimed_for_it() {
        const A: &str = "10.244.1.0/24";
        const B: &str = "fd00:244:0:1::/64";
        let (ask_a, ask_b) = (Step::Ask(Request::Claim(prefix(A))), Step::Ask(Request::Claim(prefix(B))));
        let assign = Step::Ask(Request::Assign);
        for (name, unclaimed, answers, want) in [
            (
                "both new",
                &[A, B][..],
                vec![claim(A, "n1/1"), claim(B, "n1/1"), Answer::Assigned],
                vec![ask_a, ask_b, assign, Step::End(End::Given)],
            ),
            ("both claimed before a crash", &[], vec![Answer::Assigned], vec![assign, Step::End(End::Given)]),
            (
                "an earlier try came through",
                &[A],
                vec![Answer::Exists, claim(A, "n1/1"), Answer::Assigned],
                vec![ask_a, Step::Ask(Request::Look(prefix(A))), assign, Step::End(End::Given)],
            ),
            (
                "another Node has it",
                &[A, B],
                vec![Answer::Exists, claim(A, "n2/2")],
                vec![ask_a, Step::Ask(Request::Look(prefix(A))), Step::End(End::Taken)],
            ),
            (
                "the Node of the same name before this one has it",
                &[A],
                vec![Answer::Exists, claim(A, "n1/0")],
                vec![ask_a, Step::Ask(Request::Look(prefix(A))), Step::End(End::Taken)],
            ),
            (
                "it went while it was looked at",
                &[A],
                vec![Answer::Exists, Answer::NoClaim],
                vec![ask_a, Step::Ask(Request::Look(prefix(A))), Step::End(End::Taken)],
            ),
            ("no answer to the first", &[A, B], vec![Answer::Failed], vec![ask_a, Step::End(End::Failed)]),
            (
                "no answer to the last",
                &[A],
                vec![claim(A, "n1/1"), Answer::Failed],
                vec![ask_a, assign, Step::End(End::Failed)],
            ),
        ] {
            let assignment = Assignment {
                holder: holder("n1/1"),
                blocks: vec![prefix(A), prefix(B)],
                unclaimed: unclaimed.iter().map(|text| prefix(text)).collect(),
            };
            let (mut progress, first) = Progress::begin(&assignment);
            let mut steps = vec![first];
            steps.extend(answers.into_iter().map(|answer| progress.step(answer)));
            assert_eq!(steps, want, "{name}");
        }
    }
}
