//! Which labels a Node gets from its machine: pure.

use std::collections::BTreeMap;

use super::facts::MachineFacts;
use crate::config::label::is_reserved;

/// The well-known labels: today's name, and the one before it.
const INSTANCE_TYPE: [&str; 2] = ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];
const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
const REGION: [&str; 2] = ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];

/// The labels to set, or with `None` to take off.
///
/// Well-known labels are the machine's; where it has none, the older name decides over the newer one,
/// as upstream has it. Those of our own prefix are the machine's alone. Others are set where the Node
/// has none, unless the key is Kubernetes' own.
pub(super) fn differences(
    current: &BTreeMap<String, String>,
    machine: &MachineFacts,
) -> BTreeMap<String, Option<String>> {
    let others = machine.labels.iter().filter(|(key, _)| !is_reserved(key) && !current.contains_key(*key));
    let mut labels: BTreeMap<_, _> = others.map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    labels.extend(machine.own_labels.clone());
    for (keys, value) in [(INSTANCE_TYPE, &machine.instance_type), (ZONE, &machine.zone), (REGION, &machine.region)] {
        match (value.as_ref().filter(|value| !value.is_empty()), current.get(keys[1])) {
            (Some(value), _) => labels.extend(keys.map(|key| (key.to_owned(), Some(value.clone())))),
            (None, Some(older)) => drop(labels.insert(keys[0].to_owned(), Some(older.clone()))),
            (None, None) => {}
        }
    }
    labels.retain(|key, value| current.get(key) != value.as_ref());
    labels
}
