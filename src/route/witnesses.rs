//! Who may be asked whether a node can be reached, and who of them is asked first.
//!
//! Of each zone the best by rendezvous hash, one zone after the other, so that the witnesses of a
//! node stand in different places, every node is a witness for about as many as every other, and
//! one that comes or goes changes few choices. Only the next [`WINDOW`] on a ring of hashes are
//! compared, so that a choice costs the same among ten and among ten thousand nodes.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::NodeName;

/// How many witnesses a node has, where there are so many others.
pub const COUNT: usize = 5;

/// Of a zone, and of the zones, so many are compared.
const WINDOW: usize = 32;

/// Names in the order of their hashes; after the last comes the first.
type Ring<V> = BTreeMap<(u64, String), V>;

/// The nodes that may be witnesses: those whose agents are known to speak of today's routes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidates {
    zones: Ring<Ring<NodeName>>,
    zone_of: BTreeMap<NodeName, String>,
}

impl Candidates {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.zone_of.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.zone_of.is_empty()
    }

    /// Whether this node is one.
    pub fn contains(&self, node: &NodeName) -> bool {
        self.zone_of.contains_key(node)
    }

    /// Makes this node one, in that zone; says whether anything changed.
    pub fn add(&mut self, node: &NodeName, zone: &str) -> bool {
        if self.zone_of.get(node).is_some_and(|known| known == zone) {
            return false;
        }
        self.remove(node);
        self.zone_of.insert(node.clone(), zone.to_owned());
        self.zones.entry(key(zone)).or_default().insert(key(node.as_str()), node.clone());
        true
    }

    /// Makes this node none; says whether it was one.
    pub fn remove(&mut self, node: &NodeName) -> bool {
        let Some(zone) = self.zone_of.remove(node) else { return false };
        let zone = key(&zone);
        if let Some(ring) = self.zones.get_mut(&zone) {
            ring.remove(&key(node.as_str()));
            if ring.is_empty() {
                self.zones.remove(&zone);
            }
        }
        true
    }

    /// Up to `count` witnesses of `node`, the best first, without itself and those in `besides`.
    pub fn choose(&self, node: &NodeName, besides: &BTreeSet<&NodeName>, count: usize) -> Vec<NodeName> {
        if count == 0 {
            return Vec::new();
        }
        let place = hash(node.as_str());
        let is_eligible = |name: &NodeName| name != node && !besides.contains(name);
        let has_eligible = |ring: &Ring<NodeName>| ring.values().any(is_eligible);
        let mut zones: Vec<_> = after(&self.zones, place).filter(|(_, ring)| has_eligible(ring)).take(WINDOW).collect();
        zones.sort_by_key(|((zone, _), _)| weight(place, *zone));
        let mut columns: Vec<_> = zones
            .into_iter()
            .map(|(_, ring)| {
                let near = after(ring, place).filter(|(_, name)| is_eligible(name)).take(WINDOW);
                let mut near: Vec<_> = near.map(|((hash, _), name)| (weight(place, *hash), name)).collect();
                near.sort();
                near.truncate(count);
                near.into_iter()
            })
            .collect();
        let mut chosen = Vec::new();
        while chosen.len() < count {
            let before = chosen.len();
            let round = columns.iter_mut().filter_map(|column| column.next()).take(count - before);
            chosen.extend(round.map(|(_, name)| name.clone()));
            if chosen.len() == before {
                break;
            }
        }
        chosen
    }
}

/// All of a ring, from a place on.
fn after<V>(ring: &Ring<V>, place: u64) -> impl Iterator<Item = (&(u64, String), &V)> {
    let start = (place, String::new());
    ring.range(start..).chain(ring.iter().take_while(move |((hash, _), _)| *hash < place))
}

fn key(name: &str) -> (u64, String) {
    (hash(name), name.to_owned())
}

/// FNV-1a, stirred so that names that differ in one letter are far apart.
fn hash(text: &str) -> u64 {
    stir(text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)))
}

/// The smallest wins.
fn weight(node: u64, candidate: u64) -> u64 {
    stir(node ^ candidate.rotate_left(32))
}

/// The finalizer of SplitMix64.
fn stir(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<NodeName> {
        (1..=count).map(|number| format!("n{number}").parse().expect("a name")).collect()
    }

    /// So many nodes, each in the zone that `zone` gives its number.
    fn candidates(count: usize, zone: impl Fn(usize) -> String) -> Candidates {
        let mut candidates = Candidates::default();
        for (number, name) in names(count).iter().enumerate() {
            candidates.add(name, &zone(number));
        }
        candidates
    }

    #[test]
    fn a_node_has_five_witnesses_where_there_are_so_many_and_never_itself() {
        for (count, want) in [(1, 0), (2, 1), (3, 2), (5, 4), (6, 5), (300, 5)] {
            let candidates = candidates(count, |_| String::new());
            for node in names(count) {
                let chosen = candidates.choose(&node, &BTreeSet::new(), COUNT);
                assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), want, "{count} nodes");
                assert!(!chosen.contains(&node));
            }
        }
    }

    #[test]
    fn those_to_leave_out_are_left_out() {
        let candidates = candidates(50, |_| String::new());
        let node = &names(1)[0];
        let first = candidates.choose(node, &BTreeSet::new(), COUNT);
        let besides = first.iter().take(2).collect();
        let second = candidates.choose(node, &besides, COUNT);
        assert_eq!(second.len(), COUNT);
        assert!(first[..2].iter().all(|name| !second.contains(name)), "{second:?}");
    }

    #[test]
    fn witnesses_stand_in_different_zones() {
        for (zones, want) in [(2, 2), (5, 5), (40, 5)] {
            let candidates = candidates(200, |number| format!("rack{}", number % zones));
            for node in names(200) {
                let chosen = candidates.choose(&node, &BTreeSet::new(), COUNT);
                let zones: BTreeSet<_> = chosen.iter().map(|name| &candidates.zone_of[name]).collect();
                assert_eq!((chosen.len(), zones.len()), (5, want), "{node}: {chosen:?}");
            }
        }
    }

    #[test]
    fn the_work_is_spread() {
        let candidates = candidates(1000, |number| format!("rack{}", number % 7));
        let mut load = BTreeMap::<NodeName, usize>::new();
        for node in names(1000) {
            let chosen = candidates.choose(&node, &BTreeSet::new(), COUNT);
            chosen.into_iter().for_each(|name| *load.entry(name).or_default() += 1);
        }
        let most = load.values().max().expect("some");
        assert!(*most <= 20, "one is a witness for {most} nodes");
    }

    #[test]
    fn one_that_comes_or_goes_changes_few_choices() {
        let all = candidates(1000, |_| String::new());
        let mut fewer = all.clone();
        let gone = &names(1000)[499];
        assert!(fewer.remove(gone) && !fewer.remove(gone));
        let mut changed = 0;
        for node in names(1000).iter().filter(|node| *node != gone) {
            let [before, after] = [&all, &fewer].map(|candidates| candidates.choose(node, &BTreeSet::new(), COUNT));
            changed += usize::from(before != after);
            let lost = before.iter().filter(|name| !after.contains(name)).count();
            assert!(lost <= 1, "{node}: {before:?}, {after:?}");
        }
        // Those it is a witness of, and a few of those it is compared for.
        assert!((1..=WINDOW).contains(&changed), "{changed} choices changed");
        assert!(fewer.add(gone, "") && !fewer.add(gone, ""));
        assert_eq!(fewer, all);
    }
}
