//! What each router is told: the addresses and pod CIDRs of this node, as the Advertisements say.
//!
//! What no Advertisement selects is announced to every peer, addresses by themselves and pod CIDRs as
//! they are, with nothing said of them. What one or several select is announced exactly as those say
//! that hold on this node. Where they give one prefix to one peer, it has the communities of all, the
//! highest local preference, the lowest MED and the fewest prepended AS numbers that any of them names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::agent::entries::EntryPlan;
use crate::agent::last_good::{Checked, created_seconds};
use crate::agent::snapshot::{PoolView, Snapshot};
use crate::api::{self, AdvertException};
use crate::config::advertisement::{Advertised, Bgp, How, ServiceChoice};
use crate::config::peer::Peer;
use crate::config::{AddressBlock, Advertisement};
use crate::model::views::ServiceView;
use crate::model::{Adverts, Community, Family, PathAttributes, PeerName, Prefix};

/// What to announce.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnnouncePlan {
    /// What each peer is told.
    pub by_peer: BTreeMap<PeerName, Arc<Adverts>>,
    /// Announced networks around pod CIDRs of this node: what has no route in them leads nowhere.
    pub pod_aggregates: BTreeSet<Prefix>,
    /// What is announced otherwise than Advertisements say.
    pub exceptions: Vec<AdvertException>,
}

/// Checks an `Advertisement`.
pub fn advertisement(object: &api::Advertisement) -> Option<Checked<Advertisement>> {
    let check = Advertisement::check(object.metadata.name.as_deref()?, &object.spec);
    Some(Checked::new(check, created_seconds(object)))
}

/// Plans what this node tells the peers that it keeps sessions with.
pub fn plan(snapshot: &Snapshot, entries: &EntryPlan, peers: &[Arc<Peer>]) -> AnnouncePlan {
    let mut planner = Planner::new(snapshot, peers);
    for (key, addresses) in &entries.entries {
        if let Some(service) = snapshot.services.get(&key.to_string()) {
            addresses.iter().for_each(|address| planner.service_address(service, *address));
        }
    }
    let own = snapshot.node_routes.get(snapshot.me.as_str());
    own.into_iter().flat_map(|route| &route.pod_cidrs).for_each(|cidr| planner.pod_cidr(*cidr));
    planner.finish()
}

/// An Advertisement, and what it has to say on this node.
struct Voice<'a> {
    advertisement: &'a Advertisement,
    /// How, and to which peers by their place; `None` where it announces nothing from here by BGP.
    bgp: Option<(&'a Bgp, Vec<usize>)>,
}

/// Which Advertisements give a prefix to a peer, by their place.
type Speakers = BTreeSet<usize>;

struct Planner<'a> {
    snapshot: &'a Snapshot,
    peers: &'a [Arc<Peer>],
    voices: Vec<Voice<'a>>,
    pools: PoolIndex<'a>,
    /// What every peer is told, because no Advertisement selects it.
    plain: BTreeSet<Prefix>,
    /// What a peer is told because Advertisements say so.
    spoken: BTreeMap<(usize, Prefix), Speakers>,
    plan: AnnouncePlan,
}

impl<'a> Planner<'a> {
    fn new(snapshot: &'a Snapshot, peers: &'a [Arc<Peer>]) -> Self {
        let told = |bgp: &Bgp| {
            let told = peers.iter().enumerate().filter(|(_, peer)| bgp.peers.takes(&peer.name, &peer.labels));
            told.map(|(place, _)| place).collect()
        };
        let voice = |advertisement: &'a Arc<Advertisement>| {
            let bgp = match &advertisement.how {
                How::Bgp(bgp) if advertisement.nodes.matches(&snapshot.labels) => Some((bgp, told(bgp))),
                How::Bgp(_) | How::L2(_) | How::Withhold => None,
            };
            Voice { advertisement, bgp }
        };
        Self {
            snapshot,
            peers,
            voices: snapshot.advertisements.iter().map(voice).collect(),
            pools: PoolIndex::of(&snapshot.pools),
            plain: BTreeSet::new(),
            spoken: BTreeMap::new(),
            plan: AnnouncePlan::default(),
        }
    }

    fn service_address(&mut self, service: &ServiceView, address: IpAddr) {
        let pool = self.pools.find(address);
        let selects = |advertisement: &Advertisement| match &advertisement.what {
            Advertised::Services(choice) => takes(choice, service, pool.map(|(_, pool)| pool)),
            Advertised::PodCidrs => false,
        };
        let host = Prefix::host(address);
        let around = |bgp: &Bgp| {
            let (length, (block, _)) = bgp.length(host.family()).zip(pool)?;
            block.aggregate(address, length)
        };
        let selecting = self.selecting(selects);
        self.say(&selecting, host, |_, bgp| around(bgp).unwrap_or(host));
    }

    fn pod_cidr(&mut self, cidr: Prefix) {
        let mut fits = BTreeMap::new();
        for voice in &self.voices {
            let Some((bgp, _)) = &voice.bgp else { continue };
            let Some(network) = around(cidr, bgp).filter(|_| voice.advertisement.what == Advertised::PodCidrs) else {
                continue;
            };
            let stranger = fits.entry(network).or_insert_with(|| stranger(self.snapshot, network));
            if let Some(stranger) = stranger {
                let message = format!("{cidr} is announced as it is: {network} holds {stranger}");
                let advertisement = voice.advertisement.name.to_string();
                self.plan.exceptions.push(AdvertException { advertisement, message });
            }
        }
        fits.retain(|_, stranger| stranger.is_none());
        let selecting = self.selecting(|advertisement| advertisement.what == Advertised::PodCidrs);
        self.say(&selecting, cidr, |_, bgp| {
            around(cidr, bgp).filter(|network| fits.contains_key(network)).unwrap_or(cidr)
        });
        self.plan.pod_aggregates.extend(fits.into_keys());
    }

    fn selecting(&self, selects: impl Fn(&Advertisement) -> bool) -> Vec<usize> {
        let selecting = self.voices.iter().enumerate().filter(|(_, voice)| selects(voice.advertisement));
        selecting.map(|(place, _)| place).collect()
    }

    /// Says as the selecting Advertisements do; without any, `plain` to everyone.
    fn say(&mut self, selecting: &[usize], plain: Prefix, prefix: impl Fn(&Advertisement, &Bgp) -> Prefix) {
        if selecting.is_empty() {
            self.plain.insert(plain);
        }
        for &place in selecting {
            let Voice { advertisement, bgp: Some((bgp, peers)) } = &self.voices[place] else { continue };
            let prefix = prefix(advertisement, bgp);
            for &peer in peers {
                self.spoken.entry((peer, prefix)).or_default().insert(place);
            }
        }
    }

    fn finish(mut self) -> AnnouncePlan {
        let nothing = Arc::new(PathAttributes::default());
        let plain: Arc<Adverts> = Arc::new(self.plain.iter().map(|prefix| (*prefix, Arc::clone(&nothing))).collect());
        let mut paths = BTreeMap::<&Speakers, Arc<PathAttributes>>::new();
        for (place, peer) in self.peers.iter().enumerate() {
            let mut told = Arc::clone(&plain);
            for ((_, prefix), speakers) in self.spoken.iter().filter(|((peer, _), _)| *peer == place) {
                let path = paths.entry(speakers).or_insert_with(|| Arc::new(merged(speakers, &self.voices)));
                Arc::make_mut(&mut told).insert(*prefix, Arc::clone(path));
            }
            self.plan.by_peer.insert(peer.name.clone(), told);
        }
        for speakers in paths.keys() {
            self.plan.exceptions.extend(too_many_communities(speakers, &self.voices));
        }
        self.plan
    }
}

/// Whether an address of a Service, which is of this pool or of none, is one of those.
fn takes(choice: &ServiceChoice, service: &ServiceView, pool: Option<&PoolView>) -> bool {
    let ServiceChoice { pools, namespaces, services } = choice;
    let is_of_pool = pools.is_any() || pool.is_some_and(|pool| pools.takes(&pool.name, &pool.labels));
    let is_in_namespace = namespaces.is_empty() || namespaces.contains(service.key.namespace());
    is_of_pool && is_in_namespace && services.matches(&service.labels)
}

/// The wider network around a pod CIDR that is asked for.
fn around(cidr: Prefix, bgp: &Bgp) -> Option<Prefix> {
    let length = bgp.length(cidr.family()).filter(|length| *length < cidr.length())?;
    Prefix::containing(cidr.address(), length)
}

/// Something in the network that is no pod, and that would be cut off if nodes announced all of it.
pub fn stranger(snapshot: &Snapshot, network: Prefix) -> Option<String> {
    let of_nodes = snapshot.node_routes.values().flat_map(|route| {
        route.addresses.iter().map(move |address| (*address, format!("{address}, an address of node {}", route.node)))
    });
    let of_routers = snapshot
        .peers
        .iter()
        .map(|peer| (peer.address, format!("{}, the address of BgpPeer {}", peer.address, peer.name)));
    let host = of_nodes.chain(of_routers).find(|(address, _)| network.contains(*address)).map(|(_, what)| what);
    let block = AddressBlock::from(network);
    let shared = |pool: &Arc<PoolView>| {
        let shared = pool.blocks.iter().find(|other| other.overlaps(&block))?;
        Some(format!("addresses of {shared} of AddressPool {}", pool.name))
    };
    host.or_else(|| snapshot.pools.iter().find_map(shared))
}

/// One path of what several Advertisements say.
fn merged(speakers: &Speakers, voices: &[Voice<'_>]) -> PathAttributes {
    let all = || speakers.iter().filter_map(|place| voices[*place].bgp.as_ref().map(|(bgp, _)| *bgp));
    PathAttributes {
        communities: communities(speakers, voices).into_iter().take(PathAttributes::COMMUNITIES).collect(),
        local_preference: all().filter_map(|bgp| bgp.local_preference).max(),
        med: all().filter_map(|bgp| bgp.med).min(),
        prepend: all().filter_map(|bgp| bgp.prepend).min().unwrap_or_default(),
    }
}

fn communities(speakers: &Speakers, voices: &[Voice<'_>]) -> BTreeSet<Community> {
    let of = |place: &usize| voices[*place].bgp.iter().flat_map(|(bgp, _)| bgp.communities.iter().copied());
    speakers.iter().flat_map(of).collect()
}

fn too_many_communities(speakers: &Speakers, voices: &[Voice<'_>]) -> Option<AdvertException> {
    let count = communities(speakers, voices).len();
    let mut names = speakers.iter().map(|place| voices[*place].advertisement.name.to_string());
    let advertisement = names.next()?;
    let message = format!(
        "gives routes {count} communities together with {}: the first {} are told",
        names.collect::<Vec<_>>().join(", "),
        PathAttributes::COMMUNITIES
    );
    (count > PathAttributes::COMMUNITIES).then_some(AdvertException { advertisement, message })
}

/// Finds the pool of an address; of two pools that share addresses, the older counts.
struct PoolIndex<'a>(BTreeMap<(Family, u128), (AddressBlock, &'a PoolView)>);

impl<'a> PoolIndex<'a> {
    /// Of pools, the oldest first.
    fn of(pools: &'a [Arc<PoolView>]) -> Self {
        let mut index = Self(BTreeMap::new());
        for pool in pools {
            for block in &pool.blocks {
                if index.last_up_to(block.family(), block.last_number()).is_none_or(|(other, _)| !other.overlaps(block))
                {
                    index.0.insert((block.family(), block.first_number()), (*block, pool));
                }
            }
        }
        index
    }

    fn find(&self, address: IpAddr) -> Option<(AddressBlock, &'a PoolView)> {
        let alone = AddressBlock::from(Prefix::host(address));
        self.last_up_to(alone.family(), alone.first_number()).filter(|(block, _)| block.contains(address))
    }

    fn last_up_to(&self, family: Family, number: u128) -> Option<(AddressBlock, &'a PoolView)> {
        let (_, found) = self.0.range((family, 0)..=(family, number)).next_back()?;
        Some(*found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::cases::{local, node_route, peer, snapshot, web};
    use crate::agent::entries::{self, Memory};
    use crate::config::Pool;
    use crate::model::views::TrafficPolicy;
    use crate::model::{Moment, ServiceKey};

    fn advertisement(name: &str, spec: Value) -> Arc<Advertisement> {
        let spec = serde_json::from_value(spec).expect("a spec");
        Arc::new(Advertisement::check(name, &spec).expect("an Advertisement"))
    }

    fn pool(name: &str, addresses: &[&str], tier: &str) -> Arc<PoolView> {
        let spec = serde_json::from_value(json!({ "addresses": addresses })).expect("a spec");
        let pool = Pool::check(name, &spec).expect("a pool");
        Arc::new(PoolView::new(pool, &BTreeMap::from([("tier".to_owned(), tier.to_owned())])))
    }

    /// Node n1 of rack r1 with two pod CIDRs, two routers `a` and `b`, two pools, and Services `default/web`
    /// (10.60.0.10, fd60::10, label app=web) and `shop/web` (10.60.0.200, 10.61.0.1).
    fn scene(advertisements: &[Arc<Advertisement>]) -> Snapshot {
        let service = |namespace: &str, addresses: &[&str]| {
            let mut service = web(TrafficPolicy::Cluster);
            service.key = ServiceKey::new(namespace, "web");
            service.labels = BTreeMap::from([("app".to_owned(), namespace.to_owned())]);
            let entry = service.ingress[0].clone();
            let of = |address: &&str| crate::model::views::Ingress {
                ip: Some(address.parse().expect("an address")),
                ..entry.clone()
            };
            service.ingress = addresses.iter().map(of).collect();
            service
        };
        let mut snapshot = snapshot()
            .node(node_route("n1", &["10.90.0.11"], &["10.244.0.0/24", "fd00:244::/64"]))
            .node(node_route("n2", &["10.90.0.12"], &["10.244.1.0/24"]))
            .local([local("eth0", "10.90.0.11/24")])
            .service(service("default", &["10.60.0.10", "fd60::10"]))
            .service(service("shop", &["10.60.0.200", "10.61.0.1"]))
            .endpoints_of("default", "n2", 1, 0)
            .endpoints_of("shop", "n2", 1, 0)
            .build();
        snapshot.labels.insert("rack".to_owned(), "r1".to_owned());
        snapshot.pools = vec![
            pool("public", &["10.60.0.0/24", "fd60::/112"], "edge"),
            pool("office", &["10.61.0.0-10.61.0.9"], "core"),
        ];
        snapshot.peers = vec![peer("a", "10.90.0.1"), peer("b", "10.90.0.2")];
        snapshot.advertisements = advertisements.to_vec();
        snapshot
    }

    fn planned(advertisements: &[Arc<Advertisement>]) -> AnnouncePlan {
        let snapshot = scene(advertisements);
        let entries = entries::plan(&snapshot, &mut Memory::default(), Moment::default());
        plan(&snapshot, &entries, &snapshot.peers)
    }

    /// What a peer is told, a word a prefix, with what is said of it behind it.
    fn story(plan: &AnnouncePlan, peer: &str) -> String {
        let word = |(prefix, path): (&Prefix, &Arc<PathAttributes>)| {
            let PathAttributes { communities, local_preference, med, prepend } = &**path;
            let communities = communities.iter().map(|community| format!("[{community}]")).collect::<String>();
            let number = |name: &str, number: Option<u32>| number.map(|n| format!("({name} {n})")).unwrap_or_default();
            let prepend = number("prepend", (*prepend > 0).then_some((*prepend).into()));
            format!("{prefix}{communities}{}{}{prepend}", number("pref", *local_preference), number("med", *med))
        };
        plan.by_peer[&peer.parse().expect("a name")].iter().map(word).collect::<Vec<_>>().join(" ")
    }

    const PODS: &str = "10.244.0.0/24 fd00:244::/64";

    #[test]
    fn without_an_advertisement_everything_goes_to_everyone_as_it_is() {
        let plan = planned(&[]);
        for peer in ["a", "b"] {
            let want = "10.60.0.10/32 10.60.0.200/32 10.61.0.1/32 10.244.0.0/24 fd00:244::/64 fd60::10/128";
            assert_eq!(story(&plan, peer), want);
        }
        assert_eq!((plan.pod_aggregates.len(), plan.exceptions.len()), (0, 0));
    }

    #[test]
    fn what_is_selected_is_announced_as_the_advertisement_says_and_the_rest_as_ever() {
        struct Case {
            name: &'static str,
            spec: Value,
            /// To peers a and b, without pod CIDRs.
            want: [&'static str; 2],
        }
        let all = "10.60.0.10/32 10.60.0.200/32 10.61.0.1/32 fd60::10/128";
        for case in [
            Case {
                name: "one peer by name, one pool",
                spec: json!({ "services": { "pools": ["public"] }, "bgp": { "peers": ["a"] } }),
                want: [all, "10.61.0.1/32"],
            },
            Case {
                name: "a peer and a pool by label",
                spec: json!({
                    "services": { "poolSelector": { "matchLabels": { "tier": "core" } } },
                    "bgp": { "peerSelector": { "matchLabels": { "side": "b" } }, "communities": ["64512:1"] },
                }),
                want: [
                    "10.60.0.10/32 10.60.0.200/32 fd60::10/128",
                    "10.60.0.10/32 10.60.0.200/32 10.61.0.1/32[64512:1] fd60::10/128",
                ],
            },
            Case {
                name: "a namespace, with everything said",
                spec: json!({
                    "services": { "namespaces": ["shop"] },
                    "bgp": { "communities": ["no-export", "64512:1:2"], "localPreference": 200, "med": 5, "asPathPrepend": 2 },
                }),
                want: ["10.60.0.10/32 10.60.0.200/32[no-export][64512:1:2](pref 200)(med 5)(prepend 2) \
                        10.61.0.1/32[no-export][64512:1:2](pref 200)(med 5)(prepend 2) fd60::10/128";
                    2],
            },
            Case {
                name: "Services by label",
                spec: json!({ "services": { "serviceSelector": { "matchLabels": { "app": "default" } } }, "withhold": {} }),
                want: ["10.60.0.200/32 10.61.0.1/32"; 2],
            },
            Case {
                name: "other nodes",
                spec: json!({ "services": {}, "nodeSelector": { "rack": "r2" }, "bgp": {} }),
                want: ["", ""],
            },
            Case {
                name: "this node",
                spec: json!({ "services": {}, "nodeSelector": { "rack": "r1" }, "bgp": { "med": 1 } }),
                want: ["10.60.0.10/32(med 1) 10.60.0.200/32(med 1) 10.61.0.1/32(med 1) fd60::10/128(med 1)"; 2],
            },
            Case {
                name: "layer 2",
                spec: json!({ "services": { "pools": ["public"] }, "l2": {} }),
                want: ["10.61.0.1/32", "10.61.0.1/32"],
            },
            Case {
                name: "a pool and a peer that are not there",
                spec: json!({ "services": { "pools": ["none"] }, "bgp": { "peers": ["none"] } }),
                want: [all, all],
            },
            Case {
                name: "aggregates, no wider than a block of the pool",
                spec: json!({ "services": {}, "bgp": { "aggregationLength": 25, "aggregationLengthV6": 64 } }),
                want: ["10.60.0.0/25 10.60.0.128/25 10.61.0.0/29 fd60::/112"; 2],
            },
        ] {
            let plan = planned(&[advertisement("x", case.spec)]);
            for (peer, want) in ["a", "b"].into_iter().zip(case.want) {
                let told: Vec<_> = story(&plan, peer).split(' ').map(ToOwned::to_owned).collect();
                let services: Vec<_> = told.iter().filter(|word| !PODS.split(' ').any(|pods| pods == *word)).collect();
                let is_of_path = |word: &&String| !word.is_empty();
                let services: Vec<_> = services.into_iter().filter(is_of_path).cloned().collect();
                assert_eq!(services.join(" "), want, "{}: to {peer}", case.name);
            }
            assert!(plan.exceptions.is_empty(), "{}: {:?}", case.name, plan.exceptions);
        }
    }

    #[test]
    fn an_aggregate_is_there_as_long_as_an_address_in_it_is() {
        let wide =
            advertisement("wide", json!({ "services": { "pools": ["public"] }, "bgp": { "aggregationLength": 24 } }));
        let told = |services: &[&str]| {
            let mut snapshot = scene(std::slice::from_ref(&wide));
            Arc::make_mut(&mut snapshot.services).retain(|key, _| services.contains(&key.as_str()));
            let entries = entries::plan(&snapshot, &mut Memory::default(), Moment::default());
            let plan = plan(&snapshot, &entries, &snapshot.peers);
            plan.by_peer[&"a".parse().expect("a name")].contains_key(&"10.60.0.0/24".parse().expect("a prefix"))
        };
        assert_eq!([&["default/web", "shop/web"][..], &["shop/web"], &[]].map(told), [true, true, false]);
    }

    #[test]
    fn what_several_say_of_one_prefix_is_merged_whatever_their_order() {
        let spec = |pref: u32, med: u32, prepend: u8, community: &str| {
            let bgp =
                json!({ "localPreference": pref, "med": med, "asPathPrepend": prepend, "communities": [community] });
            json!({ "services": { "namespaces": ["default"] }, "bgp": bgp })
        };
        let silent = json!({ "services": { "namespaces": ["default"] }, "bgp": {} });
        let mut all = [
            advertisement("one", spec(100, 30, 3, "64512:1")),
            advertisement("two", spec(200, 20, 1, "64512:2")),
            advertisement("three", silent),
        ];
        let want = "10.60.0.10/32[64512:1][64512:2](pref 200)(med 20)(prepend 1)";
        assert!(story(&planned(&all), "a").starts_with(want), "{}", story(&planned(&all), "a"));
        all.reverse();
        assert!(story(&planned(&all), "a").starts_with(want));
        // Different lengths are different prefixes.
        let narrow = advertisement("narrow", json!({ "services": { "namespaces": ["default"] }, "bgp": {} }));
        let wide = json!({ "services": { "namespaces": ["default"] }, "bgp": { "aggregationLength": 24, "med": 9 } });
        let plan = planned(&[narrow, advertisement("wide", wide)]);
        assert!(story(&plan, "a").starts_with("10.60.0.0/24(med 9) 10.60.0.10/32 "), "{}", story(&plan, "a"));
    }

    #[test]
    fn pod_cidrs_have_advertisements_of_their_own() {
        for (spec, want) in [
            (json!({ "podCidrs": {}, "withhold": {} }), ""),
            (json!({ "podCidrs": {}, "bgp": { "peers": ["b"] } }), ""),
            (
                json!({ "podCidrs": {}, "bgp": { "communities": ["64512:7"] } }),
                "10.244.0.0/24[64512:7] fd00:244::/64[64512:7]",
            ),
            (
                json!({ "podCidrs": {}, "bgp": { "aggregationLength": 16, "aggregationLengthV6": 65 } }),
                "10.244.0.0/16 fd00:244::/64",
            ),
            (json!({ "services": {}, "withhold": {} }), PODS),
        ] {
            let plan = planned(&[advertisement("x", spec.clone())]);
            let told: Vec<_> =
                story(&plan, "a").split(' ').filter(|word| word.contains("244")).map(ToOwned::to_owned).collect();
            assert_eq!(told.join(" "), want, "{spec}");
        }
        let wide = planned(&[advertisement("x", json!({ "podCidrs": {}, "bgp": { "aggregationLength": 16 } }))]);
        assert_eq!(wide.pod_aggregates, BTreeSet::from(["10.244.0.0/16".parse().expect("a prefix")]));
    }

    #[test]
    fn a_network_around_pods_with_others_in_it_is_not_announced() {
        let plan = planned(&[advertisement("x", json!({ "podCidrs": {}, "bgp": { "aggregationLength": 8 } }))]);
        assert!(story(&plan, "a").contains("10.244.0.0/24 "), "{}", story(&plan, "a"));
        let told: Vec<_> = plan.exceptions.iter().map(|e| (e.advertisement.as_str(), e.message.as_str())).collect();
        let message = "10.244.0.0/24 is announced as it is: 10.0.0.0/8 holds 10.90.0.11, an address of node n1";
        assert_eq!((told.as_slice(), plan.pod_aggregates.len()), ([("x", message)].as_slice(), 0));
    }

    #[test]
    fn communities_beyond_what_a_message_holds_are_left_out_and_told() {
        let of = |n: u32| {
            let communities: Vec<_> = (0..32).map(|i| format!("64512:{n}:{i}")).collect();
            advertisement(
                &format!("a{n}"),
                json!({ "services": { "namespaces": ["default"] }, "bgp": { "communities": communities } }),
            )
        };
        let plan = planned(&[of(1), of(2), of(3), of(4), of(5)]);
        let path = &plan.by_peer[&"a".parse().expect("a name")][&"10.60.0.10/32".parse().expect("a prefix")];
        assert_eq!(path.communities.len(), 128);
        assert_eq!(plan.exceptions.len(), 1);
        assert!(plan.exceptions[0].message.starts_with("gives routes 160 communities together with a2, a3, a4, a5"));
    }
}
