//! Planning change by change comes to what planning everything anew does, whatever changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::json;

use super::cases::{local, node_route, peer, snapshot, web};
use super::desired::{self, Memory};
use super::snapshot::{NodeRouteView, Objects, OwnCidr, Snapshot};
use super::stale::StaleRoutes;
use crate::api::EntryFlag;
use crate::config::pool_view::PoolView;
use crate::config::{Advertisement, Pool};
use crate::model::learned::{LearnedPath, Merit};
use crate::model::views::{EndpointCounts, EndpointView, Ingress, IpMode, ServiceView, TrafficPolicy};
use crate::model::{Family, Hop, Moment, Prefix, Scope, ServiceKey, SourceRanges};

/// Steps of one sequence.
const STEPS: usize = 1_000;

/// Something that changes. Everything is drawn from so few that they meet all the time.
#[derive(Debug, Clone)]
enum Step {
    Node(&'static str, Option<NodeRouteView>),
    Networks(Vec<&'static str>),
    Service(Box<ServiceView>),
    NoService(&'static str),
    Endpoints(&'static str, &'static str, Option<u32>),
    Peers(Vec<&'static str>),
    Advertisements(Vec<usize>),
    Pools(Vec<&'static str>),
    Learned(&'static str, Vec<(&'static str, &'static str, bool)>),
    Stale(Vec<&'static str>),
    OwnCidr(OwnCidr),
    Scope(Scope),
    /// The rack that this node's label says.
    Rack(Option<&'static str>),
    /// All objects come once more, as after a watch that was cut: equal, and not the same.
    Resync,
    /// So many seconds pass.
    Time(u64),
}

const NODES: [&str; 5] = ["n1", "n2", "n3", "n4", "n5"];
const ADDRESSES: [&str; 7] =
    ["10.90.0.11", "10.90.0.12", "10.90.0.13", "192.0.2.1", "fd90::12", "10.244.3.7", "10.60.0.10"];
const CIDRS: [&str; 7] = [
    "10.244.0.0/24",
    "10.244.1.0/24",
    "10.244.2.0/23",
    "10.244.3.0/24",
    "10.244.0.0/25",
    "fd00:244::/64",
    "10.244.9.9/24",
];
const NETWORKS: [&str; 6] =
    ["10.90.0.11/24", "fd90::11/64", "192.0.2.9/24", "10.244.0.1/24", "10.244.3.1/32", "10.90.0.13/25"];
const SERVICES: [&str; 4] = ["a", "b", "c", "d"];
const VIPS: [&str; 5] = ["10.60.0.10", "10.60.0.11", "fd60::10", "10.90.0.12", "10.61.0.1"];
const ROUTERS: [&str; 3] = ["10.90.0.1", "10.60.0.11", "10.244.1.9"];
const LEARNED: [&str; 9] = [
    "10.244.1.0/24",
    "10.244.2.0/23",
    "10.60.0.10/32",
    "10.60.0.0/25",
    "198.51.100.0/24",
    "192.0.2.64/26",
    "10.244.3.128/25",
    "fd60::10/128",
    "0.0.0.0/0",
];
const HOPS: [&str; 3] = ["10.90.0.1", "192.0.2.7", "fd90::7"];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => node(),
        2 => subsequence(&NETWORKS[..], 0..5).prop_map(Step::Networks),
        5 => service().prop_map(|service| Step::Service(Box::new(service))),
        1 => select(&SERVICES[..]).prop_map(Step::NoService),
        4 => (select(&SERVICES[..]), select(&NODES[..2]), prop::option::of(0u32..2))
            .prop_map(|(service, node, ready)| Step::Endpoints(service, node, ready)),
        1 => subsequence(&ROUTERS[..], 0..3).prop_map(Step::Peers),
        1 => subsequence(vec![0, 1, 2, 3, 4, 5], 0..4).prop_map(Step::Advertisements),
        1 => subsequence(vec!["10.60.0.0/24", "10.61.0.0/30", "10.244.1.0/28"], 0..3).prop_map(Step::Pools),
        4 => (select(&["r0", "r1"][..]), prop::collection::vec((select(&LEARNED[..]), select(&HOPS[..]), any::<bool>()), 0..5))
            .prop_map(|(peer, told)| Step::Learned(peer, told)),
        1 => subsequence(&LEARNED[..], 0..3).prop_map(Step::Stale),
        1 => select(vec![OwnCidr::Left, OwnCidr::Blackholed]).prop_map(Step::OwnCidr),
        1 => select(vec![Scope::Default, Scope::OwnClassOnly]).prop_map(Step::Scope),
        1 => select(vec![None, Some("a"), Some("b")]).prop_map(Step::Rack),
        1 => Just(Step::Resync),
        2 => (0u64..7).prop_map(Step::Time),
    ]
}

fn node() -> impl Strategy<Value = Step> {
    let drawn = (subsequence(&ADDRESSES[..], 0..3), subsequence(&CIDRS[..], 0..3), 0i64..3, 0usize..4);
    (select(&NODES[..]), prop::option::weighted(0.85, drawn)).prop_map(|(name, drawn)| {
        let view = drawn.map(|(addresses, cidrs, created_seconds, kind)| {
            let witnesses = if kind == 0 { vec!["n1".to_owned(), "n4".to_owned()] } else { Vec::new() };
            let entry = if kind == 1 { EntryFlag::ExcludedByLabel } else { EntryFlag::Eligible };
            NodeRouteView { created_seconds, witnesses, entry, ..node_route(name, &addresses, &cidrs) }
        });
        Step::Node(name, view)
    })
}

fn service() -> impl Strategy<Value = ServiceView> {
    let policy = select(vec![TrafficPolicy::Cluster, TrafficPolicy::Local]);
    let drawn = (select(&SERVICES[..]), subsequence(&VIPS[..], 0..3), policy, prop::option::of(0u64..3), any::<bool>());
    let ranges = select(vec![&[][..], &["10.0.0.0/8"], &["0.0.0.0/0"], &["fd00::/8", "10.1.0.0/16"]]);
    let more = (79u16..81, any::<bool>(), ranges, prop::option::of(Just(30_080)));
    (drawn, more).prop_map(|((name, vips, policy, term, shares), (port, has_foreign_proxy, ranges, health))| {
        let ingress = |text: &&str| Ingress { ip: text.parse().ok(), ip_mode: IpMode::Vip };
        let term = term.map(|term| (crate::model::claim::ALLOCATION.to_owned(), format!("{term}.1")));
        let shares = shares.then(|| ("metallb.io/allow-shared-ip".to_owned(), "k".to_owned()));
        ServiceView {
            key: ServiceKey::new("default", name),
            labels: BTreeMap::from([("app".to_owned(), name.to_owned())]).into(),
            annotations: term.into_iter().chain(shares).collect(),
            ingress: vips.iter().map(ingress).collect(),
            ports: [(crate::model::PortProtocol::Tcp, port)].into(),
            source_ranges: SourceRanges::of(&ranges.iter().map(ToString::to_string).collect::<Vec<_>>(), None),
            health_check_node_port: health,
            has_foreign_proxy,
            ..web(policy)
        }
    })
}

fn advertisement(number: usize) -> Arc<Advertisement> {
    let spec = [
        json!({ "podCidrs": {}, "bgp": { "aggregationLength": 16 } }),
        json!({ "podCidrs": {}, "bgp": { "aggregationLength": 22, "med": 7 } }),
        json!({ "services": {}, "bgp": { "aggregationLength": 24 } }),
        json!({ "services": { "serviceSelector": { "matchLabels": { "app": "a" } } }, "bgp": { "communities": ["64512:7"] } }),
        json!({ "services": { "pools": ["p0"] }, "bgp": { "localPreference": 200 } }),
        json!({ "services": {}, "nodeSelector": { "rack": "a" }, "bgp": { "aggregationLength": 25 } }),
    ][number]
        .clone();
    let spec = serde_json::from_value(spec).expect("a spec");
    Arc::new(Advertisement::check(&format!("a{number}"), &spec).expect("an Advertisement"))
}

fn pool(number: usize, block: &str) -> Arc<PoolView> {
    let spec = serde_json::from_value(json!({ "addresses": [block] })).expect("a spec");
    let pool = Pool::check(&format!("p{number}"), &spec).expect("a pool");
    Arc::new(PoolView::new(pool, &BTreeMap::new()))
}

fn path(next_hop: &str, is_current: bool) -> LearnedPath {
    let (path_length, origin, med) = Default::default();
    let merit = Merit { local_preference: 100, path_length, origin, med, is_external: true, is_current };
    LearnedPath { next_hop: next_hop.parse().expect("an address"), merit }
}

/// Changes what is known as the agent's stores do.
fn take(snapshot: &mut Snapshot, now: &mut Moment, step: Step) {
    match step {
        Step::Node(name, Some(view)) => drop(snapshot.node_routes.insert(name.to_owned(), Arc::new(view))),
        Step::Node(name, None) => drop(snapshot.node_routes.remove(name)),
        Step::Networks(cidrs) => {
            snapshot.local =
                cidrs.iter().enumerate().map(|(place, cidr)| local(&format!("eth{place}"), cidr)).collect();
        }
        Step::Service(view) => drop(snapshot.services.insert(view.key.to_string(), Arc::new(*view))),
        Step::NoService(name) => drop(snapshot.services.remove(format!("default/{name}").as_str())),
        Step::Endpoints(service, node, ready) => {
            let name = format!("default/{service}-{node}");
            let view = |ready| EndpointView {
                service: ServiceKey::new("default", service),
                family: Some(Family::V4),
                nodes: [(node.parse().expect("a name"), EndpointCounts { ready, serving_terminating: 1 - ready })]
                    .into(),
            };
            match ready {
                Some(ready) => drop(snapshot.endpoints.insert(name, Arc::new(view(ready)))),
                None => drop(snapshot.endpoints.remove(name.as_str())),
            }
        }
        Step::Peers(routers) => {
            snapshot.peers =
                routers.iter().enumerate().map(|(place, address)| peer(&format!("r{place}"), address)).collect();
            // The first one is of one rack only.
            let rack = BTreeMap::from([("rack".to_owned(), "a".to_owned())]);
            snapshot.peers.iter_mut().take(1).for_each(|peer| Arc::make_mut(peer).node_selector = rack.clone());
        }
        Step::Advertisements(numbers) => {
            snapshot.advertisements = numbers.into_iter().map(advertisement).collect();
        }
        Step::Pools(blocks) => {
            snapshot.pools = blocks.iter().enumerate().map(|(number, block)| pool(number, block)).collect();
        }
        Step::Learned(peer, told) => {
            let told = told
                .into_iter()
                .map(|(prefix, hop, is_current)| (prefix.parse::<Prefix>().expect("a prefix"), path(hop, is_current)));
            snapshot.learned.insert(peer.parse().expect("a name"), told.collect());
            snapshot.learned.retain(|_, told| !told.is_empty());
        }
        Step::Stale(prefixes) => {
            let hop = Hop { gateway: HOPS[0].parse().expect("an address"), interface: Some(2) };
            let held = prefixes.iter().map(|text| (text.parse::<Prefix>().expect("a prefix"), [hop].into()));
            let last_resorts = prefixes.iter().map(|text| text.parse().expect("a prefix")).collect();
            snapshot.stale = Arc::new(StaleRoutes { learned: held.collect(), last_resorts });
        }
        Step::OwnCidr(own_cidr) => snapshot.own_cidr = own_cidr,
        Step::Scope(scope) => snapshot.scope = scope,
        Step::Rack(rack) => {
            snapshot.labels = rack.map(|rack| ("rack".to_owned(), rack.to_owned())).into_iter().collect();
        }
        Step::Resync => {
            snapshot.node_routes = once_more(&snapshot.node_routes);
            snapshot.services = once_more(&snapshot.services);
            snapshot.endpoints = once_more(&snapshot.endpoints);
            for told in snapshot.learned.values_mut() {
                *told = told.iter().map(|(prefix, path)| (*prefix, *path)).collect();
            }
        }
        Step::Time(seconds) => *now = *now + Duration::from_secs(seconds),
    }
}

fn once_more<V: Clone>(objects: &Objects<V>) -> Objects<V> {
    objects.iter().map(|(name, object)| (name.clone(), Arc::new(V::clone(object)))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn a_change_comes_to_what_planning_everything_anew_does(steps in prop::collection::vec(step(), STEPS)) {
        let mut now = Moment::since_boot(Duration::from_secs(1));
        let mut snapshot = snapshot().local([local("eth0", "10.90.0.11/24")]).build();
        let mut memory = Memory::default();
        for step in steps {
            take(&mut snapshot, &mut now, step.clone());
            let mut without = memory.without_what_saves_work();
            let anew = desired::plan(&snapshot, &mut without, now);
            let planned = desired::plan(&snapshot, &mut memory, now);
            prop_assert_eq!(planned, anew, "after {:?}", step);
        }
    }
}
