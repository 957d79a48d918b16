#![expect(clippy::disallowed_methods, reason = "shell: waits before it asks again")]
//! What is known of Nodes, claims and reserved addresses now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::ListParams;
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource};
use tracing::{info, warn};

use super::Context;
use super::claim::{self, Claim};
use super::desk::{Desk, Heard};
use super::memory::{Memory, Object};
use super::networks::Networks;
use super::plan::{Observed, Reserved};
use super::span::Span;
use crate::api::AddressPool;
use crate::cluster::changes::Changes;
use crate::cluster::clock;
use crate::cluster::store::Store;
use crate::cluster::told::Told;
use crate::config::AddressBlock;
use crate::model::{NetError, Prefix};

const RETRY: Duration = Duration::from_secs(1);

/// Everything, with what answers have told.
pub(super) fn observe(context: &mut Context, services: Option<&Store<Vec<Prefix>>>, memory: &mut Memory) -> Observed {
    // What comes in meanwhile is heard of again.
    let _ = (context.claims.take_changes(), context.nodes.take_changes());
    // Claims before Nodes: a Node is there before its claim is.
    let claims = context.claims.with(|claims| claims.values().map(|claim| (claim.block, Arc::clone(claim))).collect());
    let nodes = context.nodes.with(|nodes| nodes.values().map(|node| (node.name.clone(), Arc::clone(node))).collect());
    let under_way = memory.objects.iter().filter_map(|(object, blocks)| match object {
        Object::Assignment(node) => Some((node.clone(), blocks.clone())),
        Object::Condition(_) | Object::Release(_) => None,
    });
    let mut observed = Observed {
        cluster: context.cidrs.cluster.clone(),
        nodes,
        claims,
        doubtful: BTreeMap::new(),
        under_way: under_way.collect(),
        reserved: reserved(context, services, &memory.networks),
        outside: context.outside,
        last: memory.last.clone(),
    };
    memory.knowledge.lay_over(&mut observed, clock::now());
    observed
}

fn reserved(
    context: &Context,
    services: Option<&Store<Vec<Prefix>>>,
    networks: &Networks,
) -> BTreeMap<Reserved, Vec<Span>> {
    let prefixes = |prefixes: &[Prefix]| prefixes.iter().map(|prefix| Span::from(*prefix)).collect::<Vec<_>>();
    let mut reserved = BTreeMap::from([(Reserved::ServiceRange, prefixes(&context.cidrs.services))]);
    context.pools.with(|pools| {
        reserved.extend(pools.iter().filter_map(|(name, blocks)| {
            Some((Reserved::Pool(name.parse().ok()?), blocks.iter().map(|block| Span::from(*block)).collect()))
        }));
    });
    reserved.extend(
        networks
            .each()
            .map(|(network, node)| (Reserved::Network { network, node: node.clone() }, vec![Span::from(network)])),
    );
    if let Some(services) = services {
        services.with(|ranges| {
            reserved
                .extend(ranges.iter().map(|(name, ranges)| (Reserved::ServiceCidr(name.clone()), prefixes(ranges))));
        });
    }
    reserved
}

/// Puts on the desk which Nodes and claims came, changed or went.
pub(super) fn hear(context: &mut Context, desk: &mut Desk) -> Heard {
    let (claims, nodes) = (context.claims.take_changes(), context.nodes.take_changes());
    let (Changes::Keys(claims), Changes::Keys(nodes)) = (claims, nodes) else { return Heard::Open };
    let mut heard = Vec::new();
    // Claims before Nodes, as they are written.
    for key in claims {
        let name = key.rsplit('/').next().and_then(claim::block);
        heard.extend(name.map(|block| desk.claim(block, context.claims.get(&key))));
    }
    for key in nodes {
        heard.extend(key.parse().map(|name| desk.node(&name, context.nodes.get(&key))));
    }
    if heard.contains(&Heard::Open) { Heard::Open } else { Heard::Planned }
}

/// The last block that was claimed of each cluster CIDR: a new leader goes on where the last one was.
pub(super) fn newest_claims(context: &Context) -> Vec<Option<Prefix>> {
    let newest = |claims: &BTreeMap<String, Arc<Claim>>| {
        let of = |cluster: &crate::config::ClusterCidr| {
            let claims = claims.values().filter(|claim| cluster.is_block(claim.block));
            claims.max_by_key(|claim| (claim.acquired_microseconds, claim.block)).map(|claim| claim.block)
        };
        context.cidrs.cluster.iter().map(of).collect()
    };
    context.claims.with(newest)
}

/// Every ServiceCIDR; none where the API server does not have them (before Kubernetes 1.33). Asks until
/// it knows: before that nothing may be given out.
pub(super) async fn service_cidrs(reader: &Client) -> Option<Store<Vec<Prefix>>> {
    let api: Api<ServiceCIDR> = Api::all(reader.clone());
    let mut is_told = false;
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                info!("the API server has no ServiceCIDRs: only --service-cluster-ip-range says where Services are");
                return None;
            }
            Err(error) if !std::mem::replace(&mut is_told, true) => {
                warn!(error = %Told(&error), "cannot list ServiceCIDRs: no pod CIDR is given out before; trying again");
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
    let mut store = Store::watch::<ServiceCIDR>(api, Config::default(), ranges);
    store.synced().await;
    Some(store)
}

/// What is reserved, as an Event names it; a flag is no object.
pub(super) fn about(reserved: &Reserved) -> Option<ObjectReference> {
    let (api_version, kind, name) = match reserved {
        Reserved::Pool(name) => (AddressPool::api_version(&()), AddressPool::kind(&()), name.to_string()),
        Reserved::ServiceCidr(name) => (ServiceCIDR::api_version(&()), ServiceCIDR::kind(&()), name.clone()),
        Reserved::ServiceRange | Reserved::Network { .. } | Reserved::Node(_) => return None,
    };
    Some(ObjectReference {
        api_version: Some(api_version.into_owned()),
        kind: Some(kind.into_owned()),
        name: Some(name),
        ..ObjectReference::default()
    })
}

fn ranges(services: &ServiceCIDR) -> Option<Vec<Prefix>> {
    let cidrs = services.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    let prefixes = cidrs.filter_map(|cidr| match cidr.parse() {
        Ok(prefix) | Err(NetError::HostBitsSet { network: prefix, .. }) => Some(prefix),
        Err(_) => None,
    });
    Some(prefixes.collect())
}

/// The blocks of an `AddressPool`; those of one with mistakes too: they are meant for Services.
pub fn pool(pool: &AddressPool) -> Option<Vec<AddressBlock>> {
    Some(pool.spec.addresses.iter().filter_map(|text| text.parse().ok()).collect())
}
