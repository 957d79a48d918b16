//! `AddressPool`, checked.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{AddressBlock, Fault, Faults, FieldPath};
use crate::api::AddressPoolSpec;
use crate::model::PoolName;

/// The addresses that Services may get, and who gets them unasked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The name of the `AddressPool`.
    pub name: PoolName,
    /// Its blocks in the order they were written; no two share an address.
    pub blocks: Vec<AddressBlock>,
    /// Whether Services that ask for nothing particular may get an address of it.
    pub auto_assign: bool,
}

impl Pool {
    /// Checks what an `AddressPool` says.
    ///
    /// # Errors
    /// Every fault, with the object and the field below `spec`.
    pub fn check(name: &str, spec: &AddressPoolSpec) -> Result<Self, Faults> {
        let AddressPoolSpec { addresses, auto_assign } = spec;
        let field = FieldPath::of("spec").field("addresses");
        let mut faults = Faults::NONE;
        if addresses.is_empty() {
            faults.push(Fault::new(field.clone(), "is empty: it takes at least one block, such as 10.60.0.0/24"));
        }
        let mut blocks = Vec::with_capacity(addresses.len());
        for (index, text) in addresses.iter().enumerate() {
            match text.parse::<AddressBlock>() {
                Ok(block) => blocks.push((index, block)),
                Err(error) => faults.push(Fault::new(field.entry(index), error.to_string())),
            }
        }
        faults.extend(overlaps(&blocks).map(|((earlier, one), (later, other))| {
            Fault::new(
                field.entry(later),
                format!(
                    "{other} shares addresses with {one} of {}: each address takes one block",
                    field.entry(earlier)
                ),
            )
        }));
        let name = name.parse::<PoolName>().map_err(|error| {
            faults.push(Fault::new(FieldPath::of("metadata").field("name"), error.to_string()));
        });
        let object = |faults: Faults, name: &str| faults.map(|fault| fault.of_object(format!("AddressPool {name}")));
        match name {
            Ok(name) if faults.is_empty() => {
                let blocks = blocks.into_iter().map(|(_, block)| block).collect();
                Ok(Self { name, blocks, auto_assign: *auto_assign })
            }
            Ok(name) => Err(object(faults, name.as_str())),
            Err(()) => Err(object(faults, "without a name")),
        }
    }

    /// Whether the address is one of this pool.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.blocks.iter().any(|block| block.contains(address))
    }

    /// A block of each that share an address, if any do.
    pub fn overlap(&self, other: &Self) -> Option<(AddressBlock, AddressBlock)> {
        self.blocks
            .iter()
            .flat_map(|one| other.blocks.iter().map(move |two| (*one, *two)))
            .find(|(one, two)| one.overlaps(two))
    }
}

/// Neighbours in address order that share an address, each pair in the order it was written.
fn overlaps(
    blocks: &[(usize, AddressBlock)],
) -> impl Iterator<Item = ((usize, AddressBlock), (usize, AddressBlock))> + use<> {
    let mut sorted = blocks.to_vec();
    sorted.sort_by_key(|(_, block)| *block);
    let mut reaches_furthest: Option<(usize, AddressBlock)> = None;
    let mut pairs = Vec::new();
    for next in sorted {
        if let Some(before) = reaches_furthest
            && before.1.overlaps(&next.1)
        {
            pairs.push(if before.0 < next.0 { (before, next) } else { (next, before) });
        }
        let goes_on = reaches_furthest
            .is_none_or(|(_, far)| far.family() != next.1.family() || far.last_number() < next.1.last_number());
        if goes_on {
            reaches_furthest = Some(next);
        }
    }
    pairs.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addresses: &[&str]) -> Result<Pool, String> {
        let spec =
            AddressPoolSpec { addresses: addresses.iter().map(ToString::to_string).collect(), auto_assign: true };
        Pool::check("public", &spec).map_err(|faults| faults.to_string())
    }

    #[test]
    fn a_pool_of_both_families_is_right() {
        let pool = check(&["10.60.0.0/24", "fd60::/64"]).expect("a pool");
        assert!(pool.contains("10.60.0.255".parse().expect("an address")));
        assert!(pool.contains("fd60::1".parse().expect("an address")));
        assert!(!pool.contains("10.60.1.0".parse().expect("an address")));
    }

    #[test]
    fn every_fault_is_told_with_its_field() {
        let told = check(&["10.60.0.0/24", "nonsense", "fd60::/64", "10.60.0.250-10.60.1.9"]).expect_err("faults");
        assert_eq!(
            told,
            "AddressPool public: spec.addresses[1]: \"nonsense\" is not a block of addresses: it takes a CIDR such as \
             10.60.0.0/24 or first and last address such as 10.60.0.10-10.60.0.99\n\
             AddressPool public: spec.addresses[3]: 10.60.0.250-10.60.1.9 shares addresses with 10.60.0.0/24 of \
             spec.addresses[0]: each address takes one block"
        );
        assert_eq!(
            check(&[]).expect_err("faults"),
            "AddressPool public: spec.addresses: is empty: it takes at least one block, such as 10.60.0.0/24"
        );
    }

    #[test]
    fn a_block_within_a_large_one_is_found_past_its_neighbours() {
        let told = check(&["10.60.0.0/16", "10.60.1.0/24", "10.60.9.0/24"]).expect_err("faults");
        assert_eq!(told.lines().count(), 2, "{told}");
    }

    #[test]
    fn pools_that_share_an_address_are_found() {
        let one = check(&["10.60.0.0/24"]).expect("a pool");
        let other = check(&["10.61.0.0/24", "10.60.0.128-10.60.2.0"]).expect("a pool");
        let (mine, theirs) = one.overlap(&other).expect("an overlap");
        assert_eq!((mine.to_string(), theirs.to_string()), ("10.60.0.0/24".into(), "10.60.0.128-10.60.2.0".into()));
        assert_eq!(one.overlap(&check(&["10.61.0.0/24"]).expect("a pool")), None);
    }
}
