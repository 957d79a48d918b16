//! Who confirms that a Node can be reached: three others, chosen so that the choice seldom changes.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::model::NodeName;

/// How many witnesses a Node has, where there are so many other Nodes.
const COUNT: usize = 3;

/// The witnesses of `node`.
///
/// Those it has stay while they are `ready`; the places left go to the others by rendezvous hash,
/// so that every Node is a witness for about as many as every other. Sorted by name.
pub fn choose(node: &NodeName, known: &[String], ready: &BTreeSet<&NodeName>) -> Vec<String> {
    let is_ready = |name: &&String| {
        name.as_str() != node.as_str() && name.parse::<NodeName>().is_ok_and(|name| ready.contains(&name))
    };
    let mut chosen: BTreeSet<&str> = known.iter().filter(is_ready).map(String::as_str).take(COUNT).collect();
    if chosen.len() < COUNT {
        let others = ready.iter().map(|name| name.as_str()).filter(|name| *name != node.as_str());
        let mut ranked: Vec<_> =
            others.filter(|name| !chosen.contains(name)).map(|name| (Reverse(weight(node, name)), name)).collect();
        ranked.sort_unstable();
        chosen.extend(ranked.into_iter().take(COUNT - chosen.len()).map(|(_, name)| name));
    }
    chosen.into_iter().map(str::to_owned).collect()
}

/// FNV-1a over both names, stirred so that names that differ in one letter are far apart.
fn weight(node: &NodeName, witness: &str) -> u64 {
    let bytes = node.as_str().bytes().chain([0]).chain(witness.bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // The finalizer of SplitMix64.
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn names(count: usize) -> Vec<NodeName> {
        (1..=count).map(|number| format!("n{number}").parse().expect("a name")).collect()
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_has_three_witnesses_and_never_itself() {
        for (count, want) in [(1, 0), (2, 1), (3, 2), (4, 3), (50, 3)] {
            let all = names(count);
            let ready = all.iter().collect();
            for node in &all {
                let chosen = choose(node, &[], &ready);
                assert_eq!(chosen.len(), want, "{count} nodes");
                assert!(!chosen.contains(&node.to_string()));
            }
        }
    }

    #[test]
    fn a_choice_stays_while_its_witnesses_are_ready() {
        let all = names(50);
        let ready: BTreeSet<_> = all.iter().collect();
        let known = strings(&["n20", "n30", "n40"]);
        assert_eq!(choose(&all[0], &known, &ready), known);
        let fewer: BTreeSet<_> = all.iter().filter(|name| name.as_str() != "n30").collect();
        let chosen = choose(&all[0], &known, &fewer);
        assert_eq!(chosen.len(), 3);
        assert!(chosen.contains(&"n20".to_owned()) && chosen.contains(&"n40".to_owned()), "{chosen:?}");
        assert_eq!(choose(&all[0], &chosen, &ready), chosen, "one that comes back does not displace its successor");
    }

    #[test]
    fn the_work_is_spread() {
        let all = names(300);
        let ready = all.iter().collect();
        let mut load = BTreeMap::<String, usize>::new();
        all.iter().flat_map(|node| choose(node, &[], &ready)).for_each(|name| *load.entry(name).or_default() += 1);
        assert!(load.values().all(|count| *count <= 12), "{:?}", load.values().max());
    }
}
