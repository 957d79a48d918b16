//! The brake on reloads: a file that lost its machines is not taken for a cluster that did.
//!
//! A reload may take a tenth of the machines out of service, and one always. What goes beyond that
//! has to be named in `acknowledgedRemovals` of an inventory file, so that the change itself says
//! that it is meant. Machines named there do not count; those that are planned do, as a file that
//! was cut off loses them as well.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Inventory, MachineState};
use crate::model::MachineId;

/// One in this many machines may go at once.
const ONE_IN: usize = 10;
/// Ids shown in a sentence.
const MOST_SHOWN: usize = 10;

/// Machines that a refused change would take out of service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removals {
    /// Those that nobody acknowledged, and whether each is gone or decommissioned.
    pub machines: BTreeMap<MachineId, Removal>,
    /// How many may go at once.
    pub limit: usize,
    /// How many machines were in service.
    pub of: usize,
}

/// How a machine goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Removal {
    /// It is in no file any more.
    Dropped,
    /// Its state says so.
    Decommissioned,
}

/// Whether an inventory may follow on the states that were in force.
///
/// # Errors
/// What it would take out of service, when that is more than a tenth, and more than one machine.
pub fn decide(before: &BTreeMap<MachineId, MachineState>, after: &Inventory) -> Result<(), Removals> {
    let in_service = || before.iter().filter(|(_, state)| **state != MachineState::Decommissioned).map(|(id, _)| id);
    let of = in_service().count();
    let limit = (of / ONE_IN).max(1);
    let removal = |id: &MachineId| match after.machine(id).map(|machine| machine.state) {
        None => Some(Removal::Dropped),
        Some(MachineState::Decommissioned) => Some(Removal::Decommissioned),
        Some(_) => None,
    };
    let unacknowledged = in_service().filter(|id| !after.acknowledges_removal_of(id));
    let machines: BTreeMap<_, _> = unacknowledged.filter_map(|id| Some((id.clone(), removal(id)?))).collect();
    if machines.len() > limit { Err(Removals { machines, limit, of }) } else { Ok(()) }
}

/// The states of an inventory's machines.
pub fn states(inventory: &Inventory) -> BTreeMap<MachineId, MachineState> {
    inventory.machines().map(|machine| (machine.id.clone(), machine.state)).collect()
}

impl fmt::Display for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machines, limit, of } = self;
        let shown: Vec<_> = machines.keys().take(MOST_SHOWN).map(MachineId::as_str).collect();
        let more = if machines.len() > MOST_SHOWN { ", …" } else { "" };
        write!(
            f,
            "the inventory files take {} of {of} machines out of service ({}{more}), and at most {limit} may go at once: \
             name those that are meant to go in acknowledgedRemovals",
            machines.len(),
            shown.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::catalog::tests::inventory;

    /// Machines m0, m1, … in service, and one decommissioned long ago.
    fn before(count: usize) -> BTreeMap<MachineId, MachineState> {
        let id = |name: String| name.parse().expect("an id");
        let active = (0..count).map(|number| (id(format!("m{number:02}")), MachineState::Active));
        active.chain([(id("old".to_owned()), MachineState::Decommissioned)]).collect()
    }

    /// The same in a file, but those from `kept` to `count` are dropped or decommissioned.
    fn after(kept: usize, decommissioned: std::ops::Range<usize>, acknowledged: &str) -> Inventory {
        let active = (0..kept).map(|number| format!("- {{id: m{number:02}}}\n"));
        let gone = decommissioned.map(|number| format!("- {{id: m{number:02}, state: decommissioned}}\n"));
        let machines: String = active.chain(gone).collect();
        inventory(&format!("acknowledgedRemovals: [{acknowledged}]\nmachines:\n{machines}- {{id: new}}\n"))
    }

    #[test]
    fn a_tenth_may_go_and_one_always() {
        for (name, count, kept, decommissioned, acknowledged, want) in [
            ("nothing goes", 20, 20, 0..0, "", None),
            ("one of three", 3, 2, 0..0, "", None),
            ("two of three", 3, 1, 0..0, "", Some(vec!["m01", "m02"])),
            ("a tenth", 20, 18, 0..0, "", None),
            ("a tenth and one", 20, 17, 0..0, "", Some(vec!["m17", "m18", "m19"])),
            ("decommissioned counts as dropped does", 20, 17, 17..19, "", Some(vec!["m17", "m18", "m19"])),
            ("all", 2, 0, 0..0, "", Some(vec!["m00", "m01"])),
            ("acknowledged ones do not count", 20, 17, 17..18, "m17", None),
            ("acknowledging some is not enough", 20, 15, 0..0, "m15", Some(vec!["m16", "m17", "m18", "m19"])),
            ("all acknowledged", 3, 1, 1..2, "'m01', m02", None),
            ("one that never was does not matter", 3, 1, 0..0, "m77", Some(vec!["m01", "m02"])),
        ] {
            let told = decide(&before(count), &after(kept, decommissioned, acknowledged)).err();
            let lost =
                told.as_ref().map(|removals| removals.machines.keys().map(MachineId::as_str).collect::<Vec<_>>());
            assert_eq!(lost, want, "{name}");
        }
    }

    #[test]
    fn a_machine_decommissioned_before_may_leave_the_file() {
        assert_eq!(decide(&before(1), &after(1, 0..0, "")), Ok(()));
        assert_eq!(decide(&BTreeMap::new(), &after(1, 0..0, "")), Ok(()), "a first file has nothing to lose");
    }

    #[test]
    fn the_refusal_says_what_to_write_and_where() {
        let told = decide(&before(30), &after(12, 12..13, "")).expect_err("a refusal");
        assert_eq!(
            told.to_string(),
            "the inventory files take 18 of 30 machines out of service (m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, …), \
             and at most 3 may go at once: name those that are meant to go in acknowledgedRemovals"
        );
        assert_eq!(told.machines.values().filter(|removal| **removal == Removal::Decommissioned).count(), 1);
    }
}
