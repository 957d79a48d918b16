//! What is known of Services, pools and Nodes' addresses now.

use kube::ResourceExt;

use super::plan::{Observed, ObservedPool};
use super::{Context, Memory};
use crate::api::AddressPool;
use crate::config::Pool;

/// Every Service, every pool and every Node's addresses.
pub(super) fn observe(context: &Context, memory: &mut Memory) -> Observed {
    let services = context.services.snapshot().into_values().map(|view| (view.key.clone(), view));
    let pools = context.pools.snapshot().into_iter().filter_map(|(name, pool)| Some((name.parse().ok()?, pool)));
    let nodes = context.nodes.snapshot();
    let of_nodes = nodes.values().flat_map(|node| node.ips().map(|address| (address, node.name.clone())));
    let mut observed = Observed { services: services.collect(), pools: pools.collect(), of_nodes: of_nodes.collect() };
    memory.services.lay_over(&mut observed.services);
    memory.pools.lay_over(&mut observed.pools);
    observed
}

/// The view of an `AddressPool`.
pub fn pool(pool: &AddressPool) -> Option<ObservedPool> {
    Some(ObservedPool {
        resource_version: pool.resource_version().unwrap_or_default(),
        created_seconds: pool.creation_timestamp().map(|time| time.0.as_second()).unwrap_or_default(),
        generation: pool.metadata.generation,
        check: Pool::check(&pool.name_any(), &pool.spec),
        conditions: pool.status.iter().flat_map(|status| status.conditions.clone()).collect(),
    })
}
