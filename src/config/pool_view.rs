//! What announcements depend on of pools, and which pool an address is of.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::last_good::{Checked, created_seconds};
use super::selector::Labels;
use super::{AddressBlock, Pool};
use crate::api::AddressPool;
use crate::model::{Family, PoolName, Prefix};

/// What announcements depend on of an `AddressPool`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolView {
    /// Its name.
    pub name: PoolName,
    /// Its labels.
    pub labels: Labels,
    /// Its blocks as they were written.
    pub blocks: Vec<AddressBlock>,
}

impl PoolView {
    /// Checks an `AddressPool`.
    pub fn of(object: &AddressPool) -> Option<Checked<Self>> {
        let check = Pool::check(object.metadata.name.as_deref()?, &object.spec);
        Some(Checked::new(check.map(|pool| Self::new(pool, object.labels())), created_seconds(object)))
    }

    /// The view of a pool whose object has these labels.
    pub fn new(pool: Pool, labels: &Labels) -> Self {
        Self { name: pool.name, labels: labels.clone(), blocks: pool.written }
    }
}

/// Finds the pool of an address; of two pools that share addresses, the older counts.
#[derive(Debug, Default)]
pub struct PoolIndex(BTreeMap<(Family, u128), (AddressBlock, Arc<PoolView>)>);

impl PoolIndex {
    /// Of pools, the oldest first.
    pub fn of(pools: &[Arc<PoolView>]) -> Self {
        let mut index = Self::default();
        for pool in pools {
            for block in &pool.blocks {
                if index.last_up_to(block.family(), block.last_number()).is_none_or(|(other, _)| !other.overlaps(block))
                {
                    index.0.insert((block.family(), block.first_number()), (*block, Arc::clone(pool)));
                }
            }
        }
        index
    }

    /// The block that holds an address, and the pool it is of.
    pub fn find(&self, address: IpAddr) -> Option<(AddressBlock, &PoolView)> {
        let alone = AddressBlock::from(Prefix::host(address));
        self.last_up_to(alone.family(), alone.first_number()).filter(|(block, _)| block.contains(address))
    }

    fn last_up_to(&self, family: Family, number: u128) -> Option<(AddressBlock, &PoolView)> {
        let (_, (block, pool)) = self.0.range((family, 0)..=(family, number)).next_back()?;
        Some((*block, pool))
    }
}
