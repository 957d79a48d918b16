//! What to write of each machine: pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::{Condition, ConditionReason, ConditionStatus, ConditionType, MachineStatus, Reading, ReadingSource};
use crate::model::{MachineId, MachineState, NodeName, Note};

/// Everything the plan depends on: all machines and objects, or some of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// Machines of the inventory in force; `None` before there is one.
    pub machines: Option<BTreeMap<MachineId, ObservedMachine>>,
    /// `Machine`s of the API server, and the status of each if it has one. One that is in no file any more is deleted.
    pub objects: BTreeMap<MachineId, Option<MachineStatus>>,
    /// The machines whose removal waits to be acknowledged.
    pub held: BTreeMap<MachineId, Held>,
}

/// That the removal of a machine waits to be acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The sentence that says so.
    pub why: String,
    /// Whether an Event says so as well.
    pub is_told: bool,
}

/// A machine of the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservedMachine {
    /// Where it is in its life.
    pub state: MachineState,
    /// Why it is in maintenance, if anything is said of it.
    pub maintenance: Option<String>,
    /// A word that changes when what the files say of it changes.
    pub digest: String,
    /// What its Node's provider ID is or will be.
    pub provider_id: String,
    /// The Node it is.
    pub node: Option<ObservedNode>,
    /// The Nodes that it may be, and why that is not certain.
    pub doubts: Vec<Doubt>,
}

/// The Node of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservedNode {
    /// Its name.
    pub name: NodeName,
    /// The key that it was found by, as a noun.
    pub key: String,
    /// Whether it still waits for its cloud provider.
    pub is_uninitialized: bool,
}

/// A Node that a machine may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doubt {
    /// Its name.
    pub node: NodeName,
    /// Why it is not certain, in the inventory's words.
    pub why: String,
    /// Whether keys contradict each other, or one key points at several machines.
    pub reason: DoubtReason,
}

/// Why it is not certain that a Node is a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum DoubtReason {
    /// Keys contradict each other.
    Mismatch,
    /// One key points at several machines.
    Ambiguous,
}

/// What to do, and what to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// At most one action a machine.
    pub actions: BTreeMap<MachineId, Action>,
    /// What someone has to see to, by machine.
    pub notes: BTreeMap<MachineId, Note>,
}

/// What to write of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    /// A new object with this status.
    Create(MachineStatus),
    /// The status of an object that is there.
    Update(MachineStatus),
    /// Nothing: the machine left the inventory.
    Delete,
}

/// Decides for each machine that is observed; `now` is RFC 3339.
///
/// Without an inventory in force nothing is written and nothing deleted.
pub fn plan(observed: &Observed, now: &str) -> Plan {
    let mut plan = Plan::default();
    let Some(machines) = &observed.machines else { return plan };
    for (id, machine) in machines {
        let object = observed.objects.get(id);
        let held = observed.held.get(id).map(|held| &held.why);
        let status = status(machine, held, object.and_then(Option::as_ref), now);
        let action = match object {
            None => Some(Action::Create(status)),
            Some(current) if current.as_ref() != Some(&status) => Some(Action::Update(status)),
            Some(_) => None,
        };
        plan.actions.extend(action.map(|action| (id.clone(), action)));
        let mismatch = machine.doubts.iter().find(|doubt| doubt.reason == DoubtReason::Mismatch);
        plan.notes.extend(mismatch.map(|doubt| (id.clone(), Note::MachineMismatch { why: doubt.sentence() })));
    }
    for (id, object) in observed.objects.iter().filter(|(id, _)| !machines.contains_key(id)) {
        match observed.held.get(id) {
            None => drop(plan.actions.insert(id.clone(), Action::Delete)),
            Some(Held { why, .. }) => {
                let status = object.clone().map(|current| held_back(current, why, now));
                let status = status.filter(|status| object.as_ref() != Some(status));
                plan.actions.extend(status.map(|status| (id.clone(), Action::Update(status))));
            }
        }
    }
    let held = observed.held.iter().filter(|(_, held)| held.is_told);
    plan.notes.extend(held.map(|(id, held)| (id.clone(), Note::RemovalHeld { why: held.why.clone() })));
    plan
}

fn status(
    machine: &ObservedMachine,
    held: Option<&String>,
    current: Option<&MachineStatus>,
    now: &str,
) -> MachineStatus {
    let ready = held.map_or_else(|| ready(machine), |why| removal_held(why));
    let conditions = [(ConditionType::Matched, matched(machine)), (ConditionType::Ready, ready)];
    MachineStatus {
        state: machine.state,
        provider_id: machine.provider_id.clone(),
        node: machine.node.as_ref().map(|node| node.name.to_string()),
        last_reading: Some(reading(&machine.digest, current, now)),
        conditions: conditions.map(|(kind, verdict)| condition(kind, verdict, current, now)).to_vec(),
    }
}

/// The files say today what they said first at the time of the reading.
fn reading(digest: &str, current: Option<&MachineStatus>, now: &str) -> Reading {
    let before = current.and_then(|current| current.last_reading.as_ref());
    let since = before.filter(|before| before.digest == digest).map_or(now, |before| &before.time);
    Reading { source: ReadingSource::File, digest: digest.to_owned(), time: since.to_owned() }
}

/// The status of a machine that is in no file any more, but whose removal waits.
fn held_back(current: MachineStatus, why: &str, now: &str) -> MachineStatus {
    let ready = condition(ConditionType::Ready, removal_held(why), Some(&current), now);
    let others = current.conditions.iter().filter(|condition| condition.kind != ConditionType::Ready).cloned();
    let conditions = others.chain([ready]).collect();
    MachineStatus { conditions, ..current }
}

type Verdict = (ConditionStatus, ConditionReason, String);

fn removal_held(why: &str) -> Verdict {
    (ConditionStatus::Unknown, ConditionReason::RemovalHeld, why.to_owned())
}

fn matched(machine: &ObservedMachine) -> Verdict {
    match (&machine.node, machine.doubts.as_slice()) {
        (Some(node), _) => (ConditionStatus::True, ConditionReason::NodeFound, format!("found by {}", node.key)),
        (None, []) => (ConditionStatus::False, ConditionReason::NoNode, "no node has a key of this machine".to_owned()),
        (None, doubts) => {
            let reason = match doubts[0].reason {
                DoubtReason::Mismatch => ConditionReason::MachineMismatch,
                DoubtReason::Ambiguous => ConditionReason::KeyAmbiguous,
            };
            let sentences: Vec<_> = doubts.iter().map(Doubt::sentence).collect();
            (ConditionStatus::False, reason, sentences.join("; "))
        }
    }
}

fn ready(machine: &ObservedMachine) -> Verdict {
    let no = |reason, message: &str| (ConditionStatus::False, reason, message.to_owned());
    match (machine.state, &machine.node) {
        (MachineState::Planned, _) => no(ConditionReason::Planned, "not in service yet"),
        (MachineState::Maintenance, _) => {
            no(ConditionReason::Maintenance, machine.maintenance.as_deref().unwrap_or("in maintenance"))
        }
        (MachineState::Decommissioned, _) => no(ConditionReason::Decommissioned, "gone for good"),
        (MachineState::Active, None) => no(ConditionReason::NotMatched, "active, and no node is it: see Matched"),
        (MachineState::Active, Some(node)) if node.is_uninitialized => {
            no(ConditionReason::NotInitialized, "its node waits to be initialized: see the node's events")
        }
        (MachineState::Active, Some(_)) => {
            (ConditionStatus::True, ConditionReason::InService, "active, and its node is initialized".to_owned())
        }
    }
}

/// A condition that remembers since when it has had its status.
fn condition(kind: ConditionType, verdict: Verdict, current: Option<&MachineStatus>, now: &str) -> Condition {
    let (status, reason, message) = verdict;
    let before = current.into_iter().flat_map(|current| &current.conditions);
    let mut since = before
        .filter(|before| before.kind == kind && before.status == status)
        .map(|before| &before.last_transition_time);
    let last_transition_time = since.next().cloned().unwrap_or_else(|| now.to_owned());
    Condition { kind, status, reason, message, last_transition_time, observed_generation: None }
}

impl Doubt {
    fn sentence(&self) -> String {
        format!("node {}: {}", self.node, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MachineId {
        text.parse().expect("an id")
    }

    fn machine(state: MachineState) -> ObservedMachine {
        let provider_id = "cairn://m1".to_owned();
        let digest = "0123456789abcdef".to_owned();
        ObservedMachine { state, maintenance: None, digest, provider_id, node: None, doubts: Vec::new() }
    }

    fn node(is_uninitialized: bool) -> Option<ObservedNode> {
        let key = "the system UUID".to_owned();
        Some(ObservedNode { name: "n1".parse().expect("a name"), key, is_uninitialized })
    }

    fn held_back_by(is_told: bool) -> Held {
        Held { why: "too many go".to_owned(), is_told }
    }

    fn doubt(reason: DoubtReason) -> Vec<Doubt> {
        vec![Doubt { node: "n1".parse().expect("a name"), why: "it is odd".to_owned(), reason }]
    }

    fn observed(machine: Option<ObservedMachine>, object: Option<Option<MachineStatus>>) -> Observed {
        Observed {
            machines: Some(machine.map(|machine| (id("m1"), machine)).into_iter().collect()),
            objects: object.map(|status| (id("m1"), status)).into_iter().collect(),
            held: BTreeMap::new(),
        }
    }

    /// The status that the plan creates.
    fn created(observed: &Observed) -> MachineStatus {
        match plan(observed, "then").actions.remove(&id("m1")) {
            Some(Action::Create(status) | Action::Update(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_machine_says_which_node_it_is_or_why_none() {
        use ConditionReason as R;
        use ConditionStatus as S;
        let active = || machine(MachineState::Active);
        for (name, machine, want) in [
            ("nobody", active(), [(S::False, R::NoNode), (S::False, R::NotMatched)]),
            (
                "a node",
                ObservedMachine { node: node(false), ..active() },
                [(S::True, R::NodeFound), (S::True, R::InService)],
            ),
            (
                "a node that waits",
                ObservedMachine { node: node(true), ..active() },
                [(S::True, R::NodeFound), (S::False, R::NotInitialized)],
            ),
            (
                "keys disagree",
                ObservedMachine { doubts: doubt(DoubtReason::Mismatch), ..active() },
                [(S::False, R::MachineMismatch), (S::False, R::NotMatched)],
            ),
            (
                "a key is ambiguous",
                ObservedMachine { doubts: doubt(DoubtReason::Ambiguous), ..active() },
                [(S::False, R::KeyAmbiguous), (S::False, R::NotMatched)],
            ),
            ("planned", machine(MachineState::Planned), [(S::False, R::NoNode), (S::False, R::Planned)]),
            (
                "maintenance",
                ObservedMachine { node: node(false), ..machine(MachineState::Maintenance) },
                [(S::True, R::NodeFound), (S::False, R::Maintenance)],
            ),
            (
                "decommissioned",
                ObservedMachine { node: node(false), ..machine(MachineState::Decommissioned) },
                [(S::True, R::NodeFound), (S::False, R::Decommissioned)],
            ),
        ] {
            let status = created(&observed(Some(machine), None));
            let told: Vec<_> = status.conditions.iter().map(|c| (c.status, c.reason)).collect();
            assert_eq!(told, want, "{name}");
        }
    }

    #[test]
    fn a_machine_is_written_on_change_only_and_remembers_since_when() {
        let alone = machine(MachineState::Active);
        let first = created(&observed(Some(alone.clone()), None));
        assert_eq!(plan(&observed(Some(alone.clone()), Some(Some(first.clone()))), "later"), Plan::default());
        let with_node = ObservedMachine { node: node(true), ..alone };
        let Plan { actions, .. } = plan(&observed(Some(with_node), Some(Some(first))), "later");
        let Some(Action::Update(second)) = actions.get(&id("m1")) else { panic!("{actions:?}") };
        let since: Vec<_> = second.conditions.iter().map(|c| c.last_transition_time.as_str()).collect();
        assert_eq!(since, ["later", "then"], "Ready stays False, whatever the reason");
        assert_eq!(second.node.as_deref(), Some("n1"));
    }

    #[test]
    fn a_reading_is_as_old_as_what_it_says() {
        let alone = machine(MachineState::Active);
        let first = created(&observed(Some(alone.clone()), None));
        let told = |status: &MachineStatus| status.last_reading.clone().map(|reading| (reading.digest, reading.time));
        assert_eq!(told(&first), Some(("0123456789abcdef".to_owned(), "then".to_owned())));
        let with_node = ObservedMachine { node: node(false), ..alone.clone() };
        let Plan { actions, .. } = plan(&observed(Some(with_node), Some(Some(first.clone()))), "later");
        let Some(Action::Update(second)) = actions.get(&id("m1")) else { panic!("{actions:?}") };
        assert_eq!(told(second), told(&first), "the file says what it said");
        let changed = ObservedMachine { digest: "f".to_owned(), ..alone };
        let Plan { actions, .. } = plan(&observed(Some(changed), Some(Some(first))), "later");
        let Some(Action::Update(third)) = actions.get(&id("m1")) else { panic!("{actions:?}") };
        assert_eq!(told(third), Some(("f".to_owned(), "later".to_owned())));
    }

    #[test]
    fn an_object_goes_when_its_machine_left_the_inventory_and_not_before() {
        let status = created(&observed(Some(machine(MachineState::Active)), None));
        let gone = observed(None, Some(Some(status.clone())));
        assert_eq!(plan(&gone, "later").actions, BTreeMap::from([(id("m1"), Action::Delete)]));
        let unread = Observed { machines: None, ..gone.clone() };
        assert_eq!(plan(&unread, "later"), Plan::default(), "no inventory is not an empty one");
        let held = Observed { held: BTreeMap::from([(id("m1"), held_back_by(true))]), ..gone };
        let Plan { actions, notes } = plan(&held, "later");
        let Some(Action::Update(kept)) = actions.get(&id("m1")) else { panic!("{actions:?}") };
        let ready = &kept.conditions[1];
        assert_eq!((ready.status, ready.reason), (ConditionStatus::Unknown, ConditionReason::RemovalHeld));
        assert_eq!(kept.conditions[0], status.conditions[0], "what was known of its node stays");
        assert_eq!(notes.values().collect::<Vec<_>>(), [&Note::RemovalHeld { why: "too many go".to_owned() }]);
    }

    #[test]
    fn a_held_removal_shows_at_each_machine_and_in_a_few_events() {
        let ids: Vec<_> = (0..30).map(|number| id(&format!("m{number:02}"))).collect();
        let machines = ids.iter().map(|id| (id.clone(), machine(MachineState::Active)));
        let observed = Observed {
            machines: Some(machines.collect()),
            objects: BTreeMap::new(),
            held: (0..).zip(&ids).map(|(place, id)| (id.clone(), held_back_by(place < 10))).collect(),
        };
        let plan = plan(&observed, "now");
        let is_held = |action: &&Action| match action {
            Action::Create(status) => status.conditions[1].reason == ConditionReason::RemovalHeld,
            _ => false,
        };
        assert_eq!(plan.actions.values().filter(is_held).count(), 30);
        assert_eq!(plan.notes.len(), 10);
    }

    #[test]
    fn a_mismatch_is_told_as_an_alarm() {
        let odd = ObservedMachine { doubts: doubt(DoubtReason::Mismatch), ..machine(MachineState::Active) };
        let notes = plan(&observed(Some(odd), None), "now").notes;
        let want = Note::MachineMismatch { why: "node n1: it is odd".to_owned() };
        assert_eq!(notes, BTreeMap::from([(id("m1"), want)]));
    }
}
