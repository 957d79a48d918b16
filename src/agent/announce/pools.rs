//! Which pool an address is of.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::agent::snapshot::PoolView;
use crate::config::AddressBlock;
use crate::model::{Family, Prefix};

/// Finds the pool of an address; of two pools that share addresses, the older counts.
pub(super) struct PoolIndex<'a>(BTreeMap<(Family, u128), (AddressBlock, &'a PoolView)>);

impl<'a> PoolIndex<'a> {
    /// Of pools, the oldest first.
    pub(super) fn of(pools: &'a [Arc<PoolView>]) -> Self {
        let mut index = Self(BTreeMap::new());
        for pool in pools {
            for block in &pool.blocks {
                if index.last_up_to(block.family(), block.last_number()).is_none_or(|(other, _)| !other.overlaps(block))
                {
                    index.0.insert((block.family(), block.first_number()), (*block, pool));
                }
            }
        }
        index
    }

    /// The block that holds an address, and the pool it is of.
    pub(super) fn find(&self, address: IpAddr) -> Option<(AddressBlock, &'a PoolView)> {
        let alone = AddressBlock::from(Prefix::host(address));
        self.last_up_to(alone.family(), alone.first_number()).filter(|(block, _)| block.contains(address))
    }

    fn last_up_to(&self, family: Family, number: u128) -> Option<(AddressBlock, &'a PoolView)> {
        let (_, found) = self.0.range((family, 0)..=(family, number)).next_back()?;
        Some(*found)
    }
}
