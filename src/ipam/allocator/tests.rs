use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn prefix(text: &str) -> Prefix {
    match text.parse() {
        Ok(prefix) | Err(crate::model::NetError::HostBitsSet { network: prefix, .. }) => prefix,
        Err(error) => panic!("{error}"),
    }
}

fn blocks(cluster: &str, node_length: u8) -> Blocks {
    Blocks::new(ClusterCidr::new(prefix(cluster), node_length).expect("a cluster CIDR"), None)
}

#[test]
fn a_full_set_of_one_block_gives_no_second_and_the_same_again_after_it_is_free() {
    for cluster in ["127.123.234.0/30", "beef:1234::/30"] {
        let mut set = blocks(cluster, 30);
        assert_eq!(set.allocate(), Some(prefix(cluster)));
        assert_eq!(set.allocate(), None, "{cluster}");
        let mut anew = Blocks::new(set.cluster(), Some(prefix(cluster)));
        assert_eq!(anew.allocate(), Some(prefix(cluster)), "released");
    }
}

#[test]
fn index_to_block() {
    for (cluster, node_length, index, want) in [
        ("127.123.3.0/16", 24, 0, "127.123.0.0/24"),
        ("127.123.0.0/16", 24, 15, "127.123.15.0/24"),
        ("192.168.5.219/28", 32, 5, "192.168.5.213/32"),
        ("2001:db8:1234:3::/48", 64, 0, "2001:db8:1234::/64"),
        ("2001:db8:1234::/48", 64, 15, "2001:db8:1234:f::/64"),
        ("2001:db8:85a3::8a2e:370:7334/50", 63, 6425, "2001:db8:85a3:3232::/63"),
    ] {
        let set = blocks(cluster, node_length);
        assert_eq!(set.block(index).map(|block| block.to_string()).as_deref(), Some(want), "{cluster}");
        assert_eq!(set.covered(prefix(want)), Some((index, index)), "{cluster}");
    }
}

#[test]
fn a_prefix_takes_every_block_it_overlaps_and_nothing_beyond() {
    for (name, occupied, want) in [
        ("a block", &["10.10.3.0/24"][..], 1),
        ("host bits", &["10.10.3.1/24"], 1),
        ("a part of a block", &["10.10.3.128/26"], 1),
        ("two blocks", &["10.10.2.0/23"], 2),
        ("twice", &["10.10.3.0/24", "10.10.3.0/24"], 1),
        ("one within the other", &["10.10.0.0/22", "10.10.3.0/24", "10.10.2.0/23"], 4),
        ("everything, and more", &["10.0.0.0/8"], 256),
        ("beside it", &["10.11.0.0/16", "172.10.0.0/24"], 0),
        ("another family", &["fd00::/64"], 0),
        ("those that touch", &["10.10.0.0/24", "10.10.2.0/24", "10.10.1.0/24"], 3),
    ] {
        let mut set = blocks("10.10.0.0/16", 24);
        for text in occupied {
            set.occupy(prefix(text));
        }
        assert_eq!((set.taken(), set.size()), (want, 256), "{name}");
        assert!(occupied.iter().filter(|_| want > 0).all(|text| !set.is_free(prefix(text))), "{name}");
    }
}

#[test]
fn a_block_that_became_free_is_given_out_after_all_others() {
    let mut set = blocks("10.0.0.0/22", 24);
    let first = [set.allocate(), set.allocate()].map(|block| block.expect("a free block"));
    let mut anew = Blocks::new(set.cluster(), Some(first[1]));
    let order: Vec<_> = std::iter::from_fn(|| anew.allocate()).map(|block| block.to_string()).collect();
    assert_eq!(order, ["10.0.2.0/24", "10.0.3.0/24", "10.0.0.0/24", "10.0.1.0/24"]);
}

#[test]
fn the_largest_cluster_is_no_slower_than_the_smallest() {
    let mut set = blocks("0.0.0.0/0", 32);
    set.occupy(prefix("0.0.0.0/1"));
    assert_eq!((set.size(), set.taken()), (1 << 32, 1 << 31));
    assert_eq!(set.allocate(), Some(prefix("128.0.0.0/32")));
}

/// Blocks one by one in a set of their numbers.
struct Naive {
    taken: BTreeSet<u128>,
    size: u128,
    next: u128,
}

impl Naive {
    fn allocate(&mut self) -> Option<u128> {
        let number = (0..self.size).map(|step| (self.next + step) % self.size).find(|n| !self.taken.contains(n))?;
        self.taken.insert(number);
        self.next = (number + 1) % self.size;
        Some(number)
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Allocate,
    Occupy(u32, u8),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => Just(Operation::Allocate),
        1 => (0_u32..0x800, 22_u8..=32).prop_map(|(offset, length)| Operation::Occupy(offset * 64, length)),
    ]
}

proptest! {
    #[test]
    fn random_operations_do_what_a_naive_set_of_numbers_does(operations in prop::collection::vec(operation(), 0..120)) {
        // 64 blocks of /26 from 10.0.64.0 on; what is occupied may lie beside them.
        let mut set = blocks("10.0.64.0/20", 26);
        let mut naive = Naive { taken: BTreeSet::new(), size: 64, next: 0 };
        for operation in operations {
            match operation {
                Operation::Allocate => {
                    let want = naive.allocate().map(|number| set.block(number).expect("a block"));
                    prop_assert_eq!(set.allocate(), want);
                }
                Operation::Occupy(offset, length) => {
                    let address = std::net::Ipv4Addr::from(0x0a00_0000 + offset).into();
                    let prefix = Prefix::containing(address, length).expect("a prefix");
                    let all: Vec<_> = (0..64).map(|n| (n, set.block(n).expect("a block"))).collect();
                    let covered = all.iter().filter(|(_, block)| block.overlaps(&prefix)).map(|(n, _)| *n);
                    let covered: Vec<u128> = covered.collect();
                    prop_assert_eq!(set.is_free(prefix), covered.iter().all(|n| !naive.taken.contains(n)));
                    naive.taken.extend(covered);
                    set.occupy(prefix);
                }
            }
            prop_assert_eq!(set.taken(), naive.taken.len() as u128);
            let mut before = None;
            for (first, last) in &set.taken {
                prop_assert!(first <= last && before.is_none_or(|before| before + 1 < *first), "{:?}", set.taken);
                before = Some(*last);
            }
        }
    }

    #[test]
    fn every_block_is_given_once(start in 0_u128..16) {
        let mut set = blocks("fd00:244::/60", 64);
        let last = set.block(start);
        set = Blocks::new(set.cluster(), last);
        let given: BTreeSet<_> = std::iter::from_fn(|| set.allocate()).collect();
        prop_assert_eq!((given.len(), set.taken()), (16, 16));
    }
}
