//! Views of what is known of pools, and of where Services' traffic may enter.

use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;

use super::announced::{Concerned, Endpoints, Entrances, EntryNode};
use super::pool_status::{ObservedCooling, ObservedPool};
use crate::api::{AddressPool, BgpPeer, CoolingAddress, EntryFlag, NodeReportStatus, NodeRoute};
use crate::cluster::changes::Changes;
use crate::cluster::store::Store;
use crate::cluster::views;
use crate::config::last_good::Checked;
use crate::config::pool_view::PoolView;
use crate::config::selector::Labels;
use crate::config::{AddressBlock, Advertisement, Pool};
use crate::model::NodeName;
use crate::model::views::NodeView;

/// What announcements follow from.
pub struct EntranceStores {
    /// Every Node.
    pub nodes: Store<NodeView>,
    /// Every `NodeRoute`; [`entry`] makes the view.
    pub entries: Store<EntryFlag>,
    /// Every `NodeReport` that its agent has written.
    pub reports: Store<NodeReportStatus>,
    /// Every EndpointSlice; [`endpoints`] makes the view.
    pub endpoints: Store<Endpoints>,
    /// Every `Advertisement`.
    pub advertisements: Store<Checked<Advertisement>>,
    /// Every `AddressPool`, as Advertisements speak of it.
    pub pools: Store<Checked<PoolView>>,
    /// The labels of every `BgpPeer`; [`peer`] makes the view.
    pub peers: Store<Labels>,
}

impl EntranceStores {
    /// Whether all of it is known.
    pub(super) fn is_synced(&self) -> bool {
        let of_nodes = self.nodes.is_synced() && self.entries.is_synced() && self.reports.is_synced();
        let of_policies = self.advertisements.is_synced() && self.pools.is_synced() && self.peers.is_synced();
        of_nodes && self.endpoints.is_synced() && of_policies
    }

    /// Waits until any of it changed. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            () = self.nodes.changed() => {}
            () = self.entries.changed() => {}
            () = self.reports.changed() => {}
            () = self.endpoints.changed() => {}
            () = self.advertisements.changed() => {}
            () = self.pools.changed() => {}
            () = self.peers.changed() => {}
        }
    }

    /// Takes what changed.
    pub(super) fn look(&mut self, entrances: &mut Entrances, concerned: &mut Concerned) {
        let changes = [self.advertisements.take_changes(), self.pools.take_changes(), self.peers.take_changes()];
        if changes.iter().any(|changes| !changes.is_empty()) {
            let (advertisements, pools) = (self.advertisements.snapshot(), self.pools.snapshot());
            let labels = |name: &NodeName| labels(self.nodes.get(name.as_str()).as_deref());
            entrances.set_selection(&advertisements, &pools, &self.peers.snapshot(), labels, concerned);
        }
        let mut names = BTreeSet::new();
        names_of(&mut self.nodes, &mut names);
        names_of(&mut self.reports, &mut names);
        if names_of(&mut self.entries, &mut names) {
            names.extend(entrances.nodes().map(|name| name.as_str().to_owned()));
        }
        for name in names {
            let flag = self.entries.get(&name).map(|flag| *flag);
            let node = self.nodes.get(&name);
            let known = EntryNode::of(flag, node.as_deref(), self.reports.get(&name).as_deref());
            if let Ok(name) = name.parse() {
                entrances.set_node(name, known, &labels(node.as_deref()), concerned);
            }
        }
        match self.endpoints.take_changes() {
            Changes::Keys(names) => {
                names.iter().for_each(|name| entrances.set_slice(name, self.endpoints.get(name), concerned));
            }
            Changes::All => self.endpoints.with(|all| {
                let gone: Vec<_> =
                    entrances.slices().filter(|name| !all.contains_key(*name)).map(str::to_owned).collect();
                gone.iter().for_each(|name| entrances.set_slice(name, None, concerned));
                all.iter().for_each(|(name, slice)| entrances.set_slice(name, Some(slice.clone()), concerned));
            }),
        }
    }
}

/// The labels of a Node; none of one that is not there.
fn labels(node: Option<&NodeView>) -> Labels {
    node.map(|node| node.labels.clone()).unwrap_or_default()
}

/// Adds the names of what changed; whether that is everything.
fn names_of<V: PartialEq + Send + Sync + 'static>(store: &mut Store<V>, names: &mut BTreeSet<String>) -> bool {
    match store.take_changes() {
        Changes::Keys(changed) => {
            names.extend(changed);
            false
        }
        Changes::All => {
            store.with(|all| names.extend(all.keys().cloned()));
            true
        }
    }
}

/// The view of a `NodeRoute`: whether its node may be an entry.
pub fn entry(route: &NodeRoute) -> Option<EntryFlag> {
    Some(route.spec.entry)
}

/// The view of a `BgpPeer`: its labels, by which Advertisements select.
pub fn peer(peer: &BgpPeer) -> Option<Labels> {
    Some(peer.labels().clone())
}

/// The view of an EndpointSlice: where it has endpoints that traffic may go to.
pub fn endpoints(slice: &EndpointSlice) -> Option<Endpoints> {
    views::endpoint_slice(slice).map(Endpoints::from)
}

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
