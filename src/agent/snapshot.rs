//! What the agent knows: the input of its pure core.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::agent::stale::StaleRoutes;
use crate::api::{EntryFlag, NodeRoute};
use crate::config::Advertisement;
use crate::config::peer::Peer;
use crate::config::pool_view::PoolView;
use crate::model::learned::Learned;
use crate::model::views::{EndpointView, ServiceView};
use crate::model::{LocalAddress, NodeName, Prefix, Scope, SharedMap};

/// Objects by name, shared: a snapshot is taken for each change, and most of it is as before.
pub type Objects<V> = SharedMap<String, Arc<V>>;

/// Everything the agent of one node decides from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The node this agent runs on.
    pub me: NodeName,
    /// The labels of its Node.
    pub labels: BTreeMap<String, String>,
    /// The addresses of its interfaces.
    pub local: Vec<LocalAddress>,
    /// How every node's pods are reached, by the node's name.
    pub node_routes: Objects<NodeRouteView>,
    /// The routers of the cluster that are configured without a fault.
    #[serde(default)]
    pub peers: Vec<Arc<Peer>>,
    /// How things are announced; those without a fault.
    #[serde(default)]
    pub advertisements: Vec<Arc<Advertisement>>,
    /// The pools that are configured without a fault, the oldest first.
    #[serde(default)]
    pub pools: Vec<Arc<PoolView>>,
    /// What each router told of and may tell of.
    #[serde(default)]
    pub learned: Learned,
    /// Routes of an earlier run that are held.
    #[serde(default)]
    pub stale: Arc<StaleRoutes>,
    /// What is to be done about packets to pods that are not there.
    #[serde(default)]
    pub own_cidr: OwnCidr,
    /// Which of the Services are ours.
    #[serde(default)]
    pub scope: Scope,
    /// The Services of type LoadBalancer.
    #[serde(default)]
    pub services: Objects<ServiceView>,
    /// The EndpointSlices of Services.
    #[serde(default)]
    pub endpoints: Objects<EndpointView>,
}

/// What becomes of packets to pods that are not there (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OwnCidr {
    /// They are dropped: a route worse than all others leads nowhere.
    Blackholed,
    /// They go where other routes lead.
    #[default]
    Left,
}

/// What the node's own rooms know, and what it was told at its start.
#[derive(Debug, Clone)]
pub struct Here {
    /// The node this agent runs on.
    pub me: NodeName,
    /// The addresses of its interfaces.
    pub local: Vec<LocalAddress>,
    /// What each router told of and may tell of.
    pub learned: Learned,
    /// Routes of an earlier run that are held.
    pub stale: Arc<StaleRoutes>,
    /// What is to be done about packets to pods that are not there.
    pub own_cidr: OwnCidr,
}

/// A `NodeRoute`, parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRouteView {
    /// The node.
    pub node: NodeName,
    /// Its addresses, the preferred one of each family first.
    pub addresses: Vec<IpAddr>,
    /// Its pod CIDRs.
    pub pod_cidrs: Vec<Prefix>,
    /// Those of its pod CIDRs that do not parse.
    pub malformed: Vec<String>,
    /// Whether it may be an entry for the addresses of Services.
    pub entry: EntryFlag,
    /// Whose agents vouch for routes to it.
    pub witnesses: Vec<String>,
    /// Which version of it this is.
    pub digest: String,
    /// `metadata.creationTimestamp` in seconds since 1970: of two that claim one pod CIDR the older has it.
    pub created_seconds: i64,
}

impl NodeRouteView {
    /// The view of a `NodeRoute`; none for one whose name is no node's.
    pub fn of(route: &NodeRoute) -> Option<Self> {
        let spec = &route.spec;
        let (pod_cidrs, malformed): (Vec<_>, Vec<_>) =
            spec.pod_cidrs.iter().map(|text| text.parse::<Prefix>().map_err(|_| text.clone())).partition(Result::is_ok);
        Some(Self {
            node: route.metadata.name.as_deref()?.parse().ok()?,
            addresses: spec.addresses.iter().filter_map(|text| text.parse().ok()).collect(),
            pod_cidrs: pod_cidrs.into_iter().filter_map(Result::ok).collect(),
            malformed: malformed.into_iter().filter_map(Result::err).collect(),
            entry: spec.entry,
            witnesses: spec.witnesses.clone(),
            digest: spec.digest(),
            created_seconds: route.creation_timestamp().map_or(0, |time| time.0.as_second()),
        })
    }
}
