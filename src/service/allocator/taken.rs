//! Addresses that cannot be given, as intervals: what is between them is found without looking at each.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::config::AddressBlock;
use crate::model::Family;

/// Numbers of addresses, as intervals that neither touch nor overlap: first to last, by family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Taken {
    v4: BTreeMap<u128, u128>,
    v6: BTreeMap<u128, u128>,
}

impl Taken {
    pub(super) fn insert(&mut self, address: IpAddr) {
        let (intervals, number) = self.place(address);
        let before = intervals.range(..=number).next_back().map(|(first, last)| (*first, *last));
        let (mut first, mut last) = (number, number);
        match before {
            Some((_, before_last)) if before_last >= number => return,
            Some((before_first, before_last)) if before_last.checked_add(1) == Some(number) => first = before_first,
            _ => {}
        }
        let after = number.checked_add(1).and_then(|next| intervals.remove_entry(&next));
        if let Some((_, after_last)) = after {
            last = after_last;
        }
        intervals.insert(first, last);
    }

    pub(super) fn remove(&mut self, address: IpAddr) {
        let (intervals, number) = self.place(address);
        let Some((first, last)) = intervals.range(..=number).next_back().map(|(first, last)| (*first, *last)) else {
            return;
        };
        if last < number {
            return;
        }
        intervals.remove(&first);
        if first < number {
            intervals.insert(first, number - 1);
        }
        if number < last {
            intervals.insert(number + 1, last);
        }
    }

    /// The lowest address of a block that is not among them: one look at one interval.
    pub(super) fn lowest_free(&self, block: &AddressBlock) -> Option<IpAddr> {
        let intervals = match block.family() {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let first = block.first_number();
        match intervals.range(..=first).next_back() {
            Some((_, last)) if *last >= first => block.address_at(last.checked_add(1)? - first),
            _ => Some(block.first()),
        }
    }

    fn place(&mut self, address: IpAddr) -> (&mut BTreeMap<u128, u128>, u128) {
        match address {
            IpAddr::V4(address) => (&mut self.v4, u128::from(u32::from(address))),
            IpAddr::V6(address) => (&mut self.v6, u128::from(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn giving_back_leaves_no_trace(addresses in prop::collection::btree_set(0_u8..40, 0..30), gone in 0_u8..40) {
            let at = |last: u8| IpAddr::from([10, 0, 0, last]);
            let (mut used, mut fresh) = (Taken::default(), Taken::default());
            addresses.iter().for_each(|last| used.insert(at(*last)));
            used.remove(at(gone));
            addresses.iter().rev().filter(|last| **last != gone).for_each(|last| fresh.insert(at(*last)));
            prop_assert_eq!(&used, &fresh);
            let lowest = (5..40).find(|last| !addresses.contains(last) || *last == gone).map(at);
            let block: AddressBlock = "10.0.0.5-10.0.0.39".parse().expect("a block");
            prop_assert_eq!(used.lowest_free(&block), lowest);
        }
    }
}
