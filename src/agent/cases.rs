//! Builders for the tables of this room's tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::agent::snapshot::{NodeRouteView, Objects, OwnCidr, Snapshot};
use crate::api::{EntryFlag, NodeRoute, NodeRouteSpec};
use crate::config::Peer;
use crate::model::LocalAddress;
use crate::model::cases;
use crate::model::views::{EndpointCounts, EndpointView, Ingress, IpMode, ServiceView, TrafficPolicy};
use crate::model::{Family, Prefix, Scope, ServiceKey};

/// Builds the snapshot of node `n1`.
pub(super) struct Builder(Snapshot);

pub(super) fn snapshot() -> Builder {
    Builder(Snapshot {
        me: "n1".parse().expect("a node name"),
        labels: BTreeMap::new(),
        local: Vec::new(),
        node_routes: Objects::default(),
        peers: Vec::new(),
        advertisements: Vec::new(),
        learned: BTreeMap::new(),
        stale: Arc::default(),
        own_cidr: OwnCidr::Left,
        pools: Vec::new(),
        services: Objects::default(),
        endpoints: Objects::default(),
        scope: Scope::Default,
    })
}

impl Builder {
    pub(super) fn node(mut self, route: NodeRouteView) -> Self {
        self.0.node_routes.insert(route.node.to_string(), Arc::new(route));
        self
    }

    pub(super) fn local(mut self, addresses: impl IntoIterator<Item = LocalAddress>) -> Self {
        self.0.local.extend(addresses);
        self
    }

    pub(super) fn service(mut self, service: ServiceView) -> Self {
        self.0.services.insert(service.key.to_string(), Arc::new(service));
        self
    }

    /// Endpoints of `default/web` on one node: ready ones and serving terminating ones.
    pub(super) fn endpoints(self, node: &str, ready: u32, serving_terminating: u32) -> Self {
        self.endpoints_of("default", node, ready, serving_terminating)
    }

    /// The same of Service `web` in another namespace.
    pub(super) fn endpoints_of(self, namespace: &str, node: &str, ready: u32, serving_terminating: u32) -> Self {
        let service = ServiceKey::new(namespace, "web");
        self.slice(service, node, EndpointCounts { ready, serving_terminating })
    }

    fn slice(mut self, service: ServiceKey, node: &str, counts: EndpointCounts) -> Self {
        let name = format!("{service}-{node}");
        let view = EndpointView {
            service,
            family: Some(Family::V4),
            nodes: [(node.parse().expect("a node name"), counts)].into(),
        };
        self.0.endpoints.insert(name, Arc::new(view));
        self
    }

    /// Ready endpoints of another Service of the namespace `default` on one node.
    pub(super) fn ready_endpoints(mut self, service: &str, node: &str, ready: u32) -> Self {
        let counts = EndpointCounts { ready, serving_terminating: 0 };
        let view = EndpointView {
            service: ServiceKey::new("default", service),
            family: Some(Family::V4),
            nodes: [(node.parse().expect("a node name"), counts)].into(),
        };
        self.0.endpoints.insert(format!("default/{service}-{node}"), Arc::new(view));
        self
    }

    pub(super) fn build(self) -> Snapshot {
        self.0
    }
}

pub(super) fn node_route(name: &str, addresses: &[&str], pod_cidrs: &[&str]) -> NodeRouteView {
    let text = |items: &[&str]| items.iter().map(ToString::to_string).collect();
    let spec = NodeRouteSpec {
        addresses: text(addresses),
        pod_cidrs: text(pod_cidrs),
        zone: None,
        entry: EntryFlag::Eligible,
        witnesses: Vec::new(),
    };
    NodeRouteView::of(&NodeRoute::new(name, spec)).expect("a node name")
}

/// A router of AS 64512, labelled `side: NAME`.
pub(super) fn peer(name: &str, address: &str) -> Arc<Peer> {
    let spec = json!({ "localAsn": 64513, "peerAsn": 64512, "address": address });
    let peer = Peer::check(name, &serde_json::from_value(spec).expect("a spec")).expect("a peer");
    Arc::new(peer.with_labels(&BTreeMap::from([("side".to_owned(), name.to_owned())])))
}

pub(super) fn local(interface: &str, cidr: &str) -> LocalAddress {
    let (address, length) = cidr.split_once('/').expect("address/length");
    let address = address.parse().expect("an address");
    let prefix = Prefix::containing(address, length.parse().expect("a length")).expect("a prefix");
    LocalAddress { interface: interface.to_owned(), index: 2, address, prefix, has_carrier: true }
}

/// `default/web` with the address 10.60.0.10 and TCP port 80.
pub(super) fn web(external_traffic_policy: TrafficPolicy) -> ServiceView {
    ServiceView {
        external_traffic_policy,
        ingress: vec![Ingress { ip: Some("10.60.0.10".parse().expect("an address")), ip_mode: IpMode::Vip }],
        ..cases::service("web")
    }
}
