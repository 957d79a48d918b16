//! What is known of peers and Nodes now.

use kube::ResourceExt;

use super::Context;
use super::plan::{Observed, ObservedPeer};
use crate::api::BgpPeer;
use crate::cluster::conditions::ConditionWriter;
use crate::config::last_good::created_seconds;
use crate::config::{Peer, remark};
use crate::model::PeerName;

pub(super) fn observe(context: &Context, writer: &mut ConditionWriter<PeerName, ObservedPeer>) -> Observed {
    let peers = context.peers.snapshot().into_values().map(|view| (view.name.clone(), view));
    let mut observed = Observed { peers: peers.collect(), nodes: context.nodes.snapshot().into_values().collect() };
    writer.lay_over(&mut observed.peers);
    observed
}

/// The view of a `BgpPeer`.
pub fn view(object: &BgpPeer) -> Option<ObservedPeer> {
    Some(ObservedPeer {
        name: object.metadata.name.as_deref()?.parse().ok()?,
        resource_version: object.resource_version().unwrap_or_default(),
        created_seconds: created_seconds(object),
        generation: object.metadata.generation,
        check: Peer::check(&object.name_any(), &object.spec),
        remarks: remark::of_peer(&object.spec),
        conditions: object.status.iter().flat_map(|status| status.conditions.clone()).collect(),
    })
}
