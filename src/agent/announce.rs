//! What each router is told: the addresses and pod CIDRs of this node, as the Advertisements say.
//!
//! What no Advertisement selects is announced to every peer, addresses by themselves and pod CIDRs as
//! they are, with nothing said of them. What one or several select is announced exactly as those say
//! that hold on this node. Where they give one prefix to one peer, it has the communities of all, the
//! highest local preference, the lowest MED and the fewest prepended AS numbers that any of them names.

mod pools;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use self::pools::PoolIndex;
use crate::agent::entries::EntryPlan;
use crate::agent::last_good::{Checked, created_seconds};
use crate::agent::node_addresses::NodeAddresses;
use crate::agent::snapshot::{NodeRouteView, Objects, PoolView, Snapshot};
use crate::api::{self, AdvertException};
use crate::config::advertisement::{Advertised, Bgp, How, ServiceChoice};
use crate::config::peer::Peer;
use crate::config::{AddressBlock, Advertisement};
use crate::model::views::ServiceView;
use crate::model::{Adverts, Community, PathAttributes, PeerName, Prefix, ServiceKey, SharedMap};

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

/// Plans, and plans again only when something changed that announcements follow from.
#[derive(Debug, Clone, Default)]
pub struct Announcer {
    ground: Option<Ground>,
    plan: AnnouncePlan,
}

/// What announcements follow from.
#[derive(Debug, Clone, PartialEq)]
struct Ground {
    entries: SharedMap<ServiceKey, Vec<IpAddr>>,
    services: Objects<ServiceView>,
    advertisements: Vec<Arc<Advertisement>>,
    pools: Vec<Arc<PoolView>>,
    labels: BTreeMap<String, String>,
    routers: Vec<Arc<Peer>>,
    sessions: Vec<Arc<Peer>>,
    pod_cidrs: Vec<Prefix>,
    /// The addresses of all nodes, which keep a network around pod CIDRs from being announced.
    nodes: Option<Objects<NodeRouteView>>,
}

impl Announcer {
    /// What this node tells the peers that it keeps sessions with.
    pub fn plan(
        &mut self,
        snapshot: &Snapshot,
        of_nodes: &NodeAddresses,
        entries: &EntryPlan,
        peers: &[Arc<Peer>],
    ) -> AnnouncePlan {
        let is_wide = |advertisement: &Arc<Advertisement>| {
            matches!(&advertisement.how, How::Bgp(_)) && advertisement.what == Advertised::PodCidrs
        };
        let own = snapshot.node_routes.get(snapshot.me.as_str());
        let ground = Ground {
            entries: entries.entries.clone(),
            services: snapshot.services.clone(),
            advertisements: snapshot.advertisements.clone(),
            pools: snapshot.pools.clone(),
            labels: snapshot.labels.clone(),
            routers: snapshot.peers.clone(),
            sessions: peers.to_vec(),
            pod_cidrs: own.map(|own| own.pod_cidrs.clone()).unwrap_or_default(),
            nodes: snapshot.advertisements.iter().any(is_wide).then(|| snapshot.node_routes.clone()),
        };
        if self.ground.as_ref() != Some(&ground) {
            self.plan = plan(snapshot, of_nodes, entries, peers);
            self.ground = Some(ground);
        }
        self.plan.clone()
    }
}

/// Plans what this node tells the peers that it keeps sessions with.
pub fn plan(snapshot: &Snapshot, of_nodes: &NodeAddresses, entries: &EntryPlan, peers: &[Arc<Peer>]) -> AnnouncePlan {
    let mut planner = Planner::new(snapshot, of_nodes, peers);
    for (key, addresses) in entries.entries.iter() {
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
    of_nodes: &'a NodeAddresses,
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
    fn new(snapshot: &'a Snapshot, of_nodes: &'a NodeAddresses, peers: &'a [Arc<Peer>]) -> Self {
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
            of_nodes,
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
            let stranger = fits.entry(network).or_insert_with(|| stranger(self.snapshot, self.of_nodes, network));
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
pub fn stranger(snapshot: &Snapshot, of_nodes: &NodeAddresses, network: Prefix) -> Option<String> {
    let of_node = || {
        let address = of_nodes.first_in(network)?;
        let node = of_nodes.owner(address)?;
        Some(format!("{address}, an address of node {}", node.node))
    };
    let of_router = || {
        let peer = snapshot.peers.iter().find(|peer| network.contains(peer.address))?;
        Some(format!("{}, the address of BgpPeer {}", peer.address, peer.name))
    };
    let host = of_node().or_else(of_router);
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

#[cfg(test)]
mod tests;
