//! What the inventory says of a machine in one word, to see whether it says something else.

use super::Machine;

/// FNV-1a of 64 bits (draft-eastlake-fnv): the same in every build, and no protection against malice.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Sixteen hexadecimal digits that differ when anything differs that is known of the machine.
pub fn digest(machine: &Machine) -> String {
    let text = serde_json::to_vec(machine).expect("a machine has string keys only");
    let hash = text.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::catalog::tests::inventory;

    #[test]
    fn what_is_said_of_a_machine_changes_its_digest_and_nothing_else_does() {
        let digest_of = |text: &str| {
            let inventory = inventory(&format!("machines:\n{text}"));
            digest(inventory.machine(&"a".parse().expect("an id")).expect("machine a"))
        };
        let first = digest_of("- {id: a, labels: {x: y}}\n");
        assert_eq!(first.len(), 16);
        assert_eq!(digest_of("- {id: b}\n- {labels: {x: y}, id: a}\n"), first, "neither order nor other machines");
        assert_ne!(digest_of("- {id: a, labels: {x: z}}\n"), first);
        assert_ne!(digest_of("- {id: a, labels: {x: y}, state: maintenance}\n"), first);
    }
}
