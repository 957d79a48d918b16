//! What answers have told and watches have not shown yet: pure.
//!
//! It only saves work. Whatever is forgotten here, or wrong, the claims still see to it that no block
//! is given twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::assignment::{Assignment, End, Request};
use super::claim::{Claim, Holder};
use super::plan::Observed;
use crate::model::{Moment, NodeName, Prefix};

/// By then a watch has shown what there is, and a request without an answer has come to its end
/// (the API server gives up after 60 s).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(90);

/// What answers have told.
#[derive(Debug, Default)]
pub struct Knowledge {
    claims: BTreeMap<Prefix, (Arc<Claim>, Moment)>,
    doubtful: BTreeMap<Prefix, (Holder, Moment)>,
    given: BTreeMap<NodeName, (String, Vec<Prefix>)>,
}

impl Knowledge {
    /// Keeps what one Node's requests have brought. `learnt` are the claims that answers told of, and
    /// `request` is the last one that was sent.
    pub fn learn(&mut self, assignment: &Assignment, learnt: Vec<Claim>, end: (End, Request), now: Moment) {
        for claim in learnt {
            self.doubtful.remove(&claim.block);
            self.claims.insert(claim.block, (Arc::new(claim), now));
        }
        match end {
            (End::Given, _) => {
                let Holder { node, uid } = assignment.holder.clone();
                self.given.insert(node, (uid, assignment.blocks.clone()));
            }
            (End::Failed, Request::Claim(block) | Request::Look(block)) => {
                self.doubtful.insert(block, (assignment.holder.clone(), now));
            }
            (End::Failed, Request::Assign) | (End::Taken, _) => {}
        }
    }

    /// Adds it to what watches show, and forgets what they show as well.
    pub fn lay_over(&mut self, observed: &mut Observed, now: Moment) {
        self.claims.retain(|block, (claim, learnt)| {
            let is_needed = !observed.claims.contains_key(block) && now.since(*learnt) < FORGOTTEN_AFTER;
            if is_needed {
                observed.claims.insert(*block, Arc::clone(claim));
            }
            is_needed
        });
        self.doubtful
            .retain(|block, (_, asked)| !observed.claims.contains_key(block) && now.since(*asked) < FORGOTTEN_AFTER);
        observed.doubtful = self.doubtful.iter().map(|(block, (holder, _))| (*block, holder.clone())).collect();
        self.given.retain(|name, (uid, blocks)| match observed.nodes.get_mut(name) {
            Some(node) if node.uid == *uid && node.pod_cidrs.is_empty() => {
                Arc::make_mut(node).pod_cidrs.clone_from(blocks);
                true
            }
            _ => false,
        });
    }
}
