//! What the rooms of this process see of the cluster, and from when on.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::api::{AddressPool, Advertisement, BgpPeer, EntryFlag, Machine, NodeReport, NodeReportStatus, NodeRoute};
use crate::cluster::lean::Lean;
use crate::cluster::store::Store;
use crate::cluster::views;
use crate::config::last_good::Checked;
use crate::config::pool_view::PoolView;
use crate::config::selector::Labels;
use crate::config::{self, AddressBlock, Controller};
use crate::model::Prefix;
use crate::model::views::{NodeView, ServiceView};
use crate::{advertisement, ipam, machine, peer, route, service};

/// How long Nodes that wait are seen to before anything else is asked for.
const COURTESY: Duration = Duration::from_secs(1);

/// What the rooms see of the cluster; each kind is watched once, by the process itself, from when
/// the first room that needs it may act. Nodes are watched before that.
#[derive(Clone, Default)]
pub(super) struct Stores {
    pub(super) nodes: Option<Store<NodeView>>,
    pub(super) machines: Option<Store<machine::MachineObject>>,
    pub(super) services: Option<Store<ServiceView>>,
    pub(super) pools: Option<Store<service::pool_status::ObservedPool>>,
    pub(super) namespaces: Option<Store<Labels>>,
    pub(super) service_cidrs: Option<Store<Vec<Prefix>>>,
    pub(super) advertisements: Option<Store<advertisement::plan::ObservedAdvertisement>>,
    pub(super) pool_labels: Option<Store<advertisement::plan::ObservedPool>>,
    pub(super) peer_labels: Option<Store<advertisement::ObservedPeer>>,
    pub(super) peers: Option<Store<peer::plan::ObservedPeer>>,
    pub(super) routes: Option<Store<route::plan::ObservedRoute>>,
    /// The same routes, for whom only their nodes' entry flags count.
    pub(super) entries: Option<Store<EntryFlag>>,
    pub(super) endpoints: Option<Store<service::announced::Endpoints>>,
    /// The same Advertisements and pools, for whom only what is announced counts.
    pub(super) announcing: Option<Store<Checked<config::Advertisement>>>,
    pub(super) announced_pools: Option<Store<Checked<PoolView>>>,
    /// The same peers, for whom only their labels count.
    pub(super) told_peers: Option<Store<Labels>>,
    pub(super) reports: Option<Store<NodeReportStatus>>,
    pub(super) claims: Option<Store<ipam::claim::Claim>>,
    /// The same pools, for whom only their addresses count.
    pub(super) pool_blocks: Option<Store<Vec<AddressBlock>>>,
}

impl Stores {
    /// Opens those that these controllers need and that are not open yet. `seen_to` says when the Nodes are seen to
    /// that wait for this process.
    pub(super) fn open_for(
        &mut self,
        client: &Client,
        controllers: &BTreeSet<Controller>,
        seen_to: &watch::Receiver<bool>,
    ) {
        let [initializes, serves, routes, allocates] =
            [Controller::Node, Controller::Service, Controller::Route, Controller::NodeIpam]
                .map(|name| controllers.contains(&name));
        let reports = initializes || routes || serves || allocates;
        let all = Config::default;
        open(&mut self.nodes, true, || {
            let view = |node: &Lean<Node>| views::node(&node.0);
            // Item by item, so that the server sends while we read.
            let config = Config::default().streaming_lists();
            Store::watch_news(Api::all(client.clone()), config, view, NodeView::says_the_same)
        });
        // Nodes that wait are waited for; what is not needed to see to them is asked for after them.
        let Some(nodes) = self.nodes.clone() else { return };
        let turn = move || turn(nodes.listed(), seen_to.clone());
        open(&mut self.machines, initializes, || {
            Store::watch_in_turn(turn(), Api::all(client.clone()), all(), |object: &Lean<Machine>| {
                machine::object(&object.0)
            })
        });
        open(&mut self.routes, routes, || {
            Store::watch_in_turn(turn(), Api::all(client.clone()), all(), |object: &Lean<NodeRoute>| {
                route::route(&object.0)
            })
        });
        open(&mut self.reports, reports, || {
            Store::watch_in_turn(turn(), Api::all(client.clone()), all(), |object: &Lean<NodeReport>| {
                route::report(&object.0)
            })
        });
        if serves {
            self.open_for_services(client, turn);
        }
        if allocates {
            self.open_for_pod_cidrs(client);
        }
    }

    fn open_for_services<T: Future<Output = ()> + Send + 'static>(&mut self, client: &Client, turn: impl Fn() -> T) {
        let all = Config::default;
        // All of them: one that stops being a load balancer has to be cleaned up.
        open(&mut self.services, true, || {
            Store::watch(Api::all(client.clone()), all(), |object: &Lean<Service>| views::service(&object.0))
        });
        open(&mut self.pools, true, || Store::watch::<AddressPool>(Api::all(client.clone()), all(), service::pool));
        open(&mut self.namespaces, true, || {
            Store::watch::<Namespace>(Api::all(client.clone()), all(), views::namespace)
        });
        open(&mut self.service_cidrs, true, || {
            Store::watch::<ServiceCIDR>(Api::all(client.clone()), all(), views::service_cidr)
        });
        open(&mut self.advertisements, true, || {
            Store::watch::<Advertisement>(Api::all(client.clone()), all(), advertisement::view)
        });
        // A view of its own: rooms do not know each other's.
        open(&mut self.pool_labels, true, || {
            Store::watch::<AddressPool>(Api::all(client.clone()), all(), advertisement::pool)
        });
        open(&mut self.peer_labels, true, || {
            Store::watch::<BgpPeer>(Api::all(client.clone()), all(), advertisement::peer)
        });
        open(&mut self.peers, true, || Store::watch::<BgpPeer>(Api::all(client.clone()), all(), peer::view));
        // A view of its own, as above.
        open(&mut self.entries, true, || {
            Store::watch_in_turn(turn(), Api::all(client.clone()), all(), |object: &Lean<NodeRoute>| {
                service::entry(&object.0)
            })
        });
        open(&mut self.endpoints, true, || {
            let not_headless = all().labels("!service.kubernetes.io/headless");
            Store::watch_in_turn::<EndpointSlice>(turn(), Api::all(client.clone()), not_headless, service::endpoints)
        });
        open(&mut self.announcing, true, || {
            Store::watch_in_turn(turn(), Api::all(client.clone()), all(), config::Advertisement::of)
        });
        open(&mut self.announced_pools, true, || {
            Store::watch_in_turn(turn(), Api::all(client.clone()), all(), PoolView::of)
        });
        open(&mut self.told_peers, true, || {
            Store::watch_in_turn(turn(), Api::all(client.clone()), all(), service::peer)
        });
    }

    fn open_for_pod_cidrs(&mut self, client: &Client) {
        let all = Config::default;
        open(&mut self.claims, true, || {
            let leases: Api<Lease> = Api::namespaced(client.clone(), ipam::claim::NAMESPACE);
            Store::watch(leases, all(), ipam::claim_of)
        });
        open(&mut self.pool_blocks, true, || Store::watch::<AddressPool>(Api::all(client.clone()), all(), ipam::pool));
    }
}

/// Waits until the Nodes are listed and those among them are seen to that wait, but not for ever.
async fn turn(listed: impl Future<Output = ()>, mut seen_to: watch::Receiver<bool>) {
    listed.await;
    // A room that ended sees to none.
    let _ = tokio::time::timeout(COURTESY, seen_to.wait_for(|seen_to| *seen_to)).await;
}

fn open<T>(store: &mut Option<Store<T>>, is_needed: bool, watch: impl FnOnce() -> Store<T>) {
    if is_needed {
        store.get_or_insert_with(watch);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_second_waits_for_nodes_to_be_seen_to_and_not_for_ever() {
        let (sees, seen_to) = watch::channel(false);
        assert_eq!(turn(pending(), seen_to.clone()).now_or_never(), None, "the Nodes are not listed");
        assert_eq!(turn(ready(()), seen_to.clone()).now_or_never(), None, "some wait");
        assert!(timeout(COURTESY / 2, turn(ready(()), seen_to.clone())).await.is_err(), "they may still");
        assert!(timeout(COURTESY * 2, turn(ready(()), seen_to.clone())).await.is_ok(), "they wait for long");
        sees.send_replace(true);
        assert_eq!(turn(ready(()), seen_to.clone()).now_or_never(), Some(()), "none waits");
        sees.send_replace(false);
        drop(sees);
        assert_eq!(turn(ready(()), seen_to).now_or_never(), Some(()), "nobody sees to them");
    }
}
