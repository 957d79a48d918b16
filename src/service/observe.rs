//! Views of what is known of pools.

use kube::ResourceExt;

use super::pool_status::{ObservedCooling, ObservedPool};
use crate::api::{AddressPool, CoolingAddress};
use crate::config::{AddressBlock, Pool};

/// The view of an `AddressPool`.
pub fn pool(pool: &AddressPool) -> Option<ObservedPool> {
    let status = pool.status.clone().unwrap_or_default();
    // What people wrote into the status by hand, and does not parse, is put right by the next write.
    let blocks =
        |texts: &[String]| -> Vec<AddressBlock> { texts.iter().filter_map(|text| text.parse().ok()).collect() };
    Some(ObservedPool {
        resource_version: pool.resource_version().unwrap_or_default(),
        created_seconds: pool.creation_timestamp().map(|time| time.0.as_second()).unwrap_or_default(),
        generation: pool.metadata.generation,
        is_deleting: pool.metadata.deletion_timestamp.is_some(),
        check: Pool::check(&pool.name_any(), &pool.spec),
        blocks: blocks(&status.blocks),
        draining: blocks(&status.draining),
        cooling: status.cooling.iter().filter_map(cooling).collect(),
        status,
    })
}

fn cooling(cooling: &CoolingAddress) -> Option<ObservedCooling> {
    let freed = cooling.freed_at.parse::<k8s_openapi::jiff::Timestamp>().ok()?;
    Some(ObservedCooling {
        address: cooling.address.parse().ok()?,
        by: cooling.service.parse().ok()?,
        freed_seconds: freed.as_second(),
    })
}
