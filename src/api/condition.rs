//! Conditions as Kubernetes objects carry them, with reasons from a closed set.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One condition of an object (`metav1.Condition`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word of a closed set.
    pub reason: ConditionReason,
    /// Why, in one sentence for people.
    pub message: String,
    /// When `status` last changed, RFC 3339.
    pub last_transition_time: String,
    /// `metadata.generation` this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// What a condition says, without its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    status: ConditionStatus,
    reason: ConditionReason,
    message: String,
}

impl Verdict {
    /// One that is to be said.
    pub fn new(status: ConditionStatus, reason: ConditionReason, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }

    /// The condition of an object of this generation that has the `known` ones. The time of its last change stays
    /// as long as its status does, else it is `now`, RFC 3339.
    pub fn condition(self, kind: ConditionType, known: &[Condition], generation: Option<i64>, now: &str) -> Condition {
        let Self { status, reason, message } = self;
        let before = known.iter().find(|known| known.kind == kind && known.status == status);
        let last_transition_time = before.map_or(now, |known| &known.last_transition_time).to_owned();
        Condition { kind, status, reason, message, last_transition_time, observed_generation: generation }
    }
}

/// The conditions to write to an object, all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewConditions {
    /// `metadata.resourceVersion` that was decided on.
    pub resource_version: String,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
}

impl NewConditions {
    /// These verdicts of an object of this version and generation, if its conditions say anything else; `now` is RFC 3339.
    pub fn unless_said<const N: usize>(
        verdicts: [(ConditionType, Verdict); N],
        conditions: &[Condition],
        (resource_version, generation): (&str, Option<i64>),
        now: &str,
    ) -> Option<Self> {
        let wanted = verdicts.map(|(kind, verdict)| verdict.condition(kind, conditions, generation, now));
        (wanted != *conditions)
            .then(|| Self { resource_version: resource_version.to_owned(), conditions: wanted.into() })
    }
}

impl Condition {
    /// Whether it is as whoever made the object will want it. What the inventory says on purpose is, and so is what
    /// is not looked at while the object has faults: those are told by another condition.
    pub fn is_well(&self) -> bool {
        use ConditionReason::{Decommissioned, Maintenance, Planned};
        let good = match self.kind {
            ConditionType::Ready | ConditionType::Matched | ConditionType::ResolvedRefs => ConditionStatus::True,
            ConditionType::Conflict | ConditionType::Draining => ConditionStatus::False,
        };
        let waits_for_others = self.status == ConditionStatus::Unknown && self.reason == ConditionReason::Invalid;
        self.status == good || waits_for_others || matches!(self.reason, Planned | Maintenance | Decommissioned)
    }
}

/// What a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ConditionType {
    /// The object is valid and in use.
    Ready,
    /// A Node is found for it.
    Matched,
    /// Another object says something else of the same, or has it.
    Conflict,
    /// Something goes on that the object no longer says, until nobody needs it any more.
    Draining,
    /// Each object that it names exists, and each selector of it takes one.
    ResolvedRefs,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

/// The closed set of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionReason {
    /// Every field is right.
    Valid,
    /// Some field is wrong; the message names each.
    Invalid,
    /// It is being deleted.
    Deleting,
    /// Others have some of its addresses; the message names each.
    AddressesTaken,
    /// An older `BgpPeer` names the same router for the same nodes; the message names it.
    RouterTaken,
    /// Nobody else has any of it.
    NoConflict,
    /// Services keep what it no longer gives.
    AddressesKept,
    /// Nobody keeps anything of what it no longer gives.
    NothingKept,
    /// Each object that it names exists, and each selector of it takes one.
    Resolved,
    /// An object that it names does not exist, or a selector takes none; the message names each.
    ReferenceNotFound,
    /// Other objects say something else of the same; the message names each.
    AttributesDiffer,
    /// A Node is this machine.
    NodeFound,
    /// No Node has a key of this machine.
    NoNode,
    /// A Node may be this machine, but its keys contradict each other.
    MachineMismatch,
    /// A Node's key points at this machine and at others.
    KeyAmbiguous,
    /// The machine is active and its Node initialized.
    InService,
    /// The machine is active, and has no Node.
    NotMatched,
    /// The machine is active, and its Node waits to be initialized.
    NotInitialized,
    /// The machine is not in service yet.
    Planned,
    /// The machine is in maintenance.
    Maintenance,
    /// The machine is gone for good.
    Decommissioned,
    /// The inventory's files take it out of service together with too many others.
    RemovalHeld,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_is_well() {
        use ConditionReason::{
            AddressesKept, AddressesTaken, Decommissioned, Invalid, NoConflict, NotMatched, Planned, ReferenceNotFound,
            RemovalHeld, Valid,
        };
        use ConditionStatus::{False, True, Unknown};
        use ConditionType::{Conflict, Draining, Ready, ResolvedRefs};
        for (kind, status, reason, want) in [
            (Ready, True, Valid, true),
            (Ready, False, Invalid, false),
            (Ready, Unknown, RemovalHeld, false),
            (Ready, False, NotMatched, false),
            (Ready, False, Planned, true),
            (Ready, False, Decommissioned, true),
            (Conflict, False, NoConflict, true),
            (Conflict, True, AddressesTaken, false),
            (Conflict, Unknown, Invalid, true),
            (Draining, True, AddressesKept, false),
            (ResolvedRefs, False, ReferenceNotFound, false),
        ] {
            let (message, last_transition_time) = (String::new(), String::new());
            let condition =
                super::Condition { kind, status, reason, message, last_transition_time, observed_generation: None };
            assert_eq!(condition.is_well(), want, "{kind:?} {status:?} {reason:?}");
        }
    }
}
