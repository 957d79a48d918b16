//! Labels and annotations that the inventory gives Nodes.

use std::collections::BTreeMap;

use super::place::FieldPlace;
use crate::config::{Faults, label};

/// Checks labels that a machine, or its type, gives a Node.
pub(super) fn check_labels(labels: &BTreeMap<String, String>, place: &FieldPlace<'_>, faults: &mut Faults) {
    for (key, value) in labels {
        let message = label::key_fault(key).or_else(|| label::value_fault(value)).or_else(|| reserved_fault(key));
        message.into_iter().for_each(|message| place.field(key).tell(message, faults));
    }
}

/// Checks annotations that a machine gives a Node.
pub(super) fn check_annotations(annotations: &BTreeMap<String, String>, place: &FieldPlace<'_>, faults: &mut Faults) {
    for key in annotations.keys() {
        let message = label::key_fault(key).map(|message| message.replace("a label", "an annotation"));
        let message = message.or_else(|| reserved_fault(key));
        message.into_iter().for_each(|message| place.field(key).tell(message, faults));
    }
}

fn reserved_fault(key: &str) -> Option<String> {
    if label::is_reserved(key) {
        Some(format!("{key} is for Kubernetes to set: it takes keys outside kubernetes.io and k8s.io"))
    } else if key.starts_with("cairn.dev/") {
        Some(format!("{key} is for Cairn to set: it takes keys outside cairn.dev"))
    } else {
        None
    }
}
