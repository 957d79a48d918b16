//! What is begun, and what is heard until the next plan.
//!
//! A plan is made of everything that is known; as much of it is begun as may be under way, and the next Node
//! as soon as another has its blocks. What the own writes come back as, and Nodes that are new, the desk sees
//! to, so that a Node costs the same among ten thousand others as among ten; for all else the next plan is
//! made, a moment after the last at the soonest.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use tracing::{debug, info, warn};

use super::apply::Ended;
use super::assignment::{Assignment, End};
use super::desk::{Desk, Heard};
use super::memory::{Memory, Object};
use super::plan::{Observed, Plan, Reserved};
use super::{Context, apply, observe};
use crate::cluster::clock;
use crate::cluster::events::about_node;
use crate::cluster::patch::WriteError;
use crate::cluster::store::Store;
use crate::cluster::told::Told;
use crate::model::{Moment, NodeName, Note, Prefix};

/// Nodes under way at the same time: while the API server answers fifty writes, the next wait.
const UNDER_WAY: usize = 100;
/// With no more than these under way, what a plan had to leave out is planned again.
const FEW: usize = UNDER_WAY / 2;
/// Whatever happens, no more is planned.
const PAUSE: Duration = Duration::from_millis(100);
/// Where nothing waits for a plan, it only counts what Nodes have been given since the last one.
const COUNT: Duration = Duration::from_secs(1);
/// Whatever was missed is seen by then.
const PERIOD: Duration = Duration::from_secs(300);

/// Tells and counts.
pub(super) fn show(context: &Context, observed: &Observed, plan: &Plan, memory: &mut Memory) {
    let mut notes = plan.notes.clone();
    let waits = |name: &NodeName| observed.nodes.get(name).is_some_and(|node| node.pod_cidrs.is_empty());
    memory.failures.retain(|name, _| waits(name));
    memory.in_vain.retain(|name, _| waits(name));
    notes.extend(memory.failures.clone());
    for (name, note) in memory.news.of(&notes) {
        warn!(node = %name, reason = note.reason(), error = %note, "someone has to see to this node's pod CIDRs");
        tell(context, observed, &name, note);
    }
    for (reserved, note) in memory.overlaps.of(&plan.overlaps) {
        warn!(reason = note.reason(), error = %note, "some pod CIDRs are not given out");
        match &reserved {
            Reserved::Node(name) | Reserved::Network { node: name, .. } => tell(context, observed, name, note),
            reserved => {
                observe::about(reserved).into_iter().for_each(|object| context.events.tell(object, note.clone()))
            }
        }
    }
    let held = observed.nodes.values().flat_map(|node| &node.pod_cidrs).copied().collect();
    let earlier = std::mem::replace(&mut memory.held, held);
    let free: Vec<_> = earlier.difference(&memory.held).copied().collect();
    context.metrics.released(&observed.cluster, &free);
    context.metrics.show(&observed.cluster, &plan.usage);
}

fn tell(context: &Context, observed: &Observed, name: &NodeName, note: Note) {
    if let Some(node) = observed.nodes.get(name) {
        context.events.tell(about_node(node), note);
    }
}

/// Starts what the plan says of claims and conditions, as much of it as may be under way.
pub(super) fn begin(context: &Context, desk: &Desk, plan: Plan, memory: &mut Memory) {
    let Plan { assignments: _, releases, conditions, notes: _, overlaps: _, last: _, usage: _ } = plan;
    let now = clock::now();
    let mut work = Vec::<(Object, BoxFuture<'static, Ended>)>::new();
    // Releases first: what they free, a Node may wait for.
    work.extend(
        releases
            .into_iter()
            .map(|(block, release)| (Object::Release(block), apply::release(context.client.clone(), release).boxed())),
    );
    work.extend(conditions.into_iter().map(|(name, availability)| {
        let future = apply::condition(context.client.clone(), name.clone(), availability).boxed();
        (Object::Condition(name), future)
    }));
    let mut wanted: BTreeSet<_> = work.iter().map(|(object, ..)| object.clone()).collect();
    wanted.extend(desk.queue().cloned().map(Object::Assignment));
    memory.backoff.keep_only(|object| wanted.contains(object) || memory.objects.contains_key(object));
    // What is due is begun now or, in a crowd, with the next plan.
    drop(memory.backoff.take_due(now));
    memory.is_crowded = false;
    for (object, future) in work {
        if memory.objects.contains_key(&object) || !memory.backoff.is_due(&object, now) {
            continue;
        }
        if memory.under_way.len() >= UNDER_WAY {
            memory.is_crowded = true;
            break;
        }
        memory.start(object, Vec::new(), future);
    }
}

/// Starts as many assignments as may be under way.
fn begin_assignments(context: &Context, desk: &mut Desk, memory: &mut Memory) {
    let now = clock::now();
    while memory.under_way.len() < UNDER_WAY {
        let may = |node: &NodeName| {
            let object = Object::Assignment(node.clone());
            !memory.objects.contains_key(&object) && memory.backoff.is_due(&object, now)
        };
        let Some(assignment) = desk.next(may) else { return };
        let blocks = assignment.blocks.clone();
        // What is not begun is planned again, so only what is counts.
        for (last, (cluster, block)) in memory.last.iter_mut().zip(context.cidrs.cluster.iter().zip(&blocks)) {
            *last = cluster.is_block(*block).then_some(*block).or(*last);
        }
        let object = Object::Assignment(assignment.holder.node.clone());
        memory.start(object, blocks, apply::assign(context.client.clone(), assignment).boxed());
    }
}

/// What the next plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// To see what was missed.
    Nothing,
    /// To count what was given.
    Count,
    /// To decide about what has changed.
    Decide,
}

impl Need {
    /// When the plan after one of this moment has to be made, with something to be tried again at `retry`.
    fn due(self, planned: Moment, retry: Option<Moment>) -> Moment {
        let due = planned
            + match self {
                Self::Nothing => PERIOD,
                Self::Count => COUNT,
                Self::Decide => PAUSE,
            };
        retry.map_or(due, |retry| retry.max(planned + PAUSE).min(due))
    }

    fn of(heard: Heard) -> Self {
        match heard {
            Heard::Planned => Self::Nothing,
            Heard::Open => Self::Decide,
        }
    }
}

/// Waits until a plan has to be made. Sees to the desk meanwhile: takes what has ended, and begins what follows.
pub(super) async fn wait(
    context: &mut Context,
    mut services: Option<&mut Store<Vec<Prefix>>>,
    desk: &mut Desk,
    memory: &mut Memory,
) {
    let mut need = Need::Nothing;
    loop {
        begin_assignments(context, desk, memory);
        let is_open = need < Need::Decide;
        let deadline = need.due(memory.planned, memory.backoff.deadline());
        let now_needed = tokio::select! {
            Some((object, ended)) = memory.under_way.next(), if !memory.under_way.is_empty() => {
                let heard = settle(context, object, ended, desk, memory);
                let count = memory.under_way.len();
                if memory.is_crowded && count <= FEW {
                    return;
                }
                let is_done = count == 0 && desk.queue().len() == 0;
                Need::of(heard).max(if is_done { Need::Count } else { Need::Nothing })
            }
            () = context.nodes.changed() => Need::of(observe::hear(context, desk)),
            () = context.claims.changed() => Need::of(observe::hear(context, desk)),
            () = context.pools.changed(), if is_open => Need::Decide,
            () = context.reports.changed(), if is_open => {
                if memory.look_at_reports(&mut context.reports) { Need::Decide } else { Need::Nothing }
            }
            () = changed(services.as_deref_mut()), if is_open => Need::Decide,
            () = clock::until(Some(deadline)) => return,
        };
        need = need.max(now_needed);
    }
}

async fn changed(services: Option<&mut Store<Vec<Prefix>>>) {
    match services {
        Some(services) => services.changed().await,
        None => std::future::pending().await,
    }
}

/// Takes what came of one object's requests.
fn settle(context: &Context, object: Object, ended: Ended, desk: &mut Desk, memory: &mut Memory) -> Heard {
    memory.objects.remove(&object);
    let now = clock::now();
    let mut heard = Heard::Planned;
    let error = match ended {
        Ended::Done => None,
        Ended::Failed(error) => Some(error),
        Ended::Assigned { assignment, learnt, end, error } => {
            heard = desk.ended(&assignment, end.0);
            memory.knowledge.learn(&assignment, learnt, end, now);
            match end.0 {
                End::Given => given(context, &assignment, memory),
                // Another process claimed it first: with the next plan, another block.
                End::Taken => *memory.in_vain.entry(assignment.holder.node.clone()).or_default() += 1,
                End::Failed => {}
            }
            if end.0 == End::Given { None } else { Some(error.unwrap_or(WriteError::Conflict)) }
        }
    };
    match error {
        None => memory.backoff.succeeded(&object),
        Some(error) => {
            failed(&object, &error, memory);
            memory.backoff.not_written(object, &error, now);
        }
    }
    heard
}

fn given(context: &Context, assignment: &Assignment, memory: &mut Memory) {
    let node = &assignment.holder.node;
    let blocks: Vec<_> = assignment.blocks.iter().map(ToString::to_string).collect();
    info!(%node, cidrs = blocks.join(","), "the node has its pod CIDRs");
    memory.failures.remove(node);
    let in_vain = memory.in_vain.remove(node).unwrap_or_default();
    context.metrics.allocated(&context.cidrs.cluster, in_vain + 1);
}

fn failed(object: &Object, error: &WriteError, memory: &mut Memory) {
    let cause = Told(error);
    match (error, object) {
        (WriteError::Conflict, _) => debug!(?object, error = %cause, "not written"),
        (WriteError::Gone, Object::Condition(_)) => {}
        (_, Object::Assignment(node)) => {
            let error = cause.to_string();
            memory.failures.insert(node.clone(), Note::CidrAssignmentFailed { node: node.clone(), error });
        }
        (_, Object::Condition(node)) => warn!(%node, error = %cause, "cannot write the condition; trying again"),
        (_, Object::Release(block)) => warn!(%block, error = %cause, "cannot delete the claim; trying again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_somebody_waits_for_comes_first_and_none_comes_at_once() {
        let planned = Moment::since_boot(Duration::from_secs(1000));
        for (name, needs, after) in [
            ("nothing happens", &[][..], PERIOD),
            ("a Node got its blocks", &[Need::of(Heard::Planned), Need::Count], COUNT),
            ("a Node went", &[Need::of(Heard::Open)], PAUSE),
            ("a Node went, another got its blocks", &[Need::Decide, Need::Count, Need::Nothing], PAUSE),
        ] {
            let need = needs.iter().copied().fold(Need::Nothing, Need::max);
            assert_eq!(need.due(planned, None), planned + after, "{name}");
        }
        // Of many that were overtaken one is due at each moment.
        for (name, retry, after) in [
            ("somebody was first", Duration::from_millis(20), PAUSE),
            ("and again", Duration::from_millis(500), Duration::from_millis(500)),
            ("it was due long ago", Duration::ZERO, PAUSE),
            ("the count comes before", COUNT * 2, COUNT),
        ] {
            assert_eq!(Need::Count.due(planned, Some(planned + retry)), planned + after, "{name}");
        }
    }
}
