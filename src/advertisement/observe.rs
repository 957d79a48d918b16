//! What is known of Advertisements, pools and peers now.

use kube::ResourceExt;

use super::Context;
use super::plan::{Observed, ObservedAdvertisement, ObservedPeer, ObservedPool};
use crate::api::{AddressPool, Advertisement, BgpPeer};
use crate::cluster::conditions::ConditionWriter;
use crate::config::{self, AddressBlock, remark};
use crate::model::AdvertisementName;

pub(super) fn observe(
    context: &Context,
    writer: &mut ConditionWriter<AdvertisementName, ObservedAdvertisement>,
) -> Observed {
    let advertisements = context.advertisements.snapshot().into_values().map(|view| (view.name.clone(), view));
    let mut observed = Observed {
        advertisements: advertisements.collect(),
        pools: context
            .pools
            .snapshot()
            .into_iter()
            .filter_map(|(name, pool)| Some((name.parse().ok()?, pool)))
            .collect(),
        peers: context
            .peers
            .snapshot()
            .into_iter()
            .filter_map(|(name, peer)| Some((name.parse().ok()?, peer)))
            .collect(),
        nodes: context.nodes.snapshot().into_values().collect(),
        namespaces: context.namespaces.with(|namespaces| namespaces.keys().cloned().collect()),
    };
    writer.lay_over(&mut observed.advertisements);
    observed
}

/// The view of an `Advertisement`.
pub fn view(object: &Advertisement) -> Option<ObservedAdvertisement> {
    Some(ObservedAdvertisement {
        name: object.metadata.name.as_deref()?.parse().ok()?,
        resource_version: object.resource_version().unwrap_or_default(),
        generation: object.metadata.generation,
        check: config::Advertisement::check(&object.name_any(), &object.spec),
        remarks: remark::of_advertisement(&object.spec),
        conditions: object.status.iter().flat_map(|status| status.conditions.clone()).collect(),
    })
}

/// The view of an `AddressPool`. One with faults exists all the same.
pub fn pool(object: &AddressPool) -> Option<ObservedPool> {
    let check = config::Pool::check(&object.name_any(), &object.spec);
    let blocks = check.map(|pool| pool.written).unwrap_or_default();
    let families = blocks.iter().map(AddressBlock::family).collect();
    Some(ObservedPool { labels: object.labels().clone(), families })
}

/// The view of a `BgpPeer`.
pub fn peer(object: &BgpPeer) -> Option<ObservedPeer> {
    Some(ObservedPeer { labels: object.labels().clone() })
}
