//! What each router is told: the addresses and pod CIDRs of this node, as the Advertisements say.
//!
//! What no Advertisement selects is announced to every peer, addresses by themselves and pod CIDRs as
//! they are, with nothing said of them. What one or several select is announced exactly as those say
//! that hold on this node. Where they give one prefix to one peer, it has the communities of all, the
//! highest local preference, the lowest MED and the fewest prepended AS numbers that any of them names.

mod book;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use self::book::{Book, Count, Speakers, Statement};
use crate::agent::entries::EntryPlan;
use crate::agent::node_addresses::NodeAddresses;
use crate::agent::snapshot::{Objects, Snapshot};
use crate::api::AdvertException;
use crate::config::advertisement::{Advertised, Bgp};
use crate::config::peer::Peer;
use crate::config::pool_view::{PoolIndex, PoolView};
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

/// Plans, and remembers what it planned from: a Service that came, changed or went costs what is said of it,
/// and the result is that of planning everything anew.
#[derive(Debug, Clone, Default)]
pub struct Announcer {
    ground: Option<Ground>,
    entries: SharedMap<ServiceKey, Vec<IpAddr>>,
    services: Objects<ServiceView>,
    pods: Pods,
    book: Book,
    plan: AnnouncePlan,
}

/// What all announcements hang on.
#[derive(Debug, Clone, PartialEq)]
struct Ground {
    advertisements: Vec<Arc<Advertisement>>,
    pools: Vec<Arc<PoolView>>,
    labels: BTreeMap<String, String>,
    peers: Vec<Arc<Peer>>,
}

/// What is said of the node's own pod CIDRs.
#[derive(Debug, Clone, PartialEq, Default)]
struct Pods {
    statements: Vec<Statement>,
    aggregates: BTreeSet<Prefix>,
    exceptions: Vec<AdvertException>,
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
        let ground = Ground {
            advertisements: snapshot.advertisements.clone(),
            pools: snapshot.pools.clone(),
            labels: snapshot.labels.clone(),
            peers: peers.to_vec(),
        };
        let is_anew = self.ground.as_ref() != Some(&ground);
        if is_anew {
            *self = Self { ground: Some(ground), book: Book::new(peers.len()), ..Self::default() };
        }
        let stage = Stage::new(snapshot, peers);
        let has_changed =
            self.count_pods(stage.pods(snapshot, of_nodes)) | self.count_services(&stage, snapshot, entries);
        if is_anew || has_changed {
            let told = self.book.settle(|speakers| merged(speakers, &stage.voices));
            let by_peer = peers.iter().zip(told).map(|(peer, told)| (peer.name.clone(), Arc::new(told.clone())));
            let by_peer = by_peer.collect();
            let too_many = self.book.speakers().filter_map(|speakers| too_many_communities(speakers, &stage.voices));
            self.plan = AnnouncePlan {
                by_peer,
                pod_aggregates: self.pods.aggregates.clone(),
                exceptions: self.pods.exceptions.iter().cloned().chain(too_many).collect(),
            };
        }
        self.plan.clone()
    }

    /// Whether something else is said of the own pod CIDRs.
    fn count_pods(&mut self, now: Pods) -> bool {
        if self.pods == now {
            return false;
        }
        let before = std::mem::replace(&mut self.pods, now);
        before.statements.iter().for_each(|statement| self.book.count(*statement, Count::Take));
        self.pods.statements.iter().for_each(|statement| self.book.count(*statement, Count::Add));
        true
    }

    /// Whether something else is said of Services.
    fn count_services(&mut self, stage: &Stage<'_>, snapshot: &Snapshot, entries: &EntryPlan) -> bool {
        let mut changed: BTreeSet<ServiceKey> =
            entries.entries.differences(&self.entries).map(|(key, ..)| key.clone()).collect();
        let services = snapshot.services.differences(&self.services);
        let keys = services.filter_map(|(_, old, new)| new.or(old)).map(|service| &service.key);
        changed.extend(keys.filter(|key| entries.entries.contains_key(*key)).cloned());
        let services = std::mem::replace(&mut self.services, snapshot.services.clone());
        let before = std::mem::replace(&mut self.entries, entries.entries.clone());
        for key in &changed {
            for (services, entries, count) in
                [(&services, &before, Count::Take), (&self.services, &self.entries, Count::Add)]
            {
                let Some((service, addresses)) = services.get(&key.to_string()).zip(entries.get(key)) else { continue };
                let statements = addresses.iter().flat_map(|address| stage.service_address(service, *address));
                statements.for_each(|statement| self.book.count(statement, count));
            }
        }
        !changed.is_empty()
    }
}

/// An Advertisement, and what it has to say on this node.
struct Voice<'a> {
    advertisement: &'a Advertisement,
    /// How, and to which peers by their place; `None` where it announces nothing from here by BGP.
    bgp: Option<(&'a Bgp, Vec<usize>)>,
}

/// Those who say something, and the pools that they speak of.
struct Stage<'a> {
    voices: Vec<Voice<'a>>,
    pools: PoolIndex,
}

impl<'a> Stage<'a> {
    fn new(snapshot: &'a Snapshot, peers: &[Arc<Peer>]) -> Self {
        let told = |bgp: &Bgp| {
            let told = peers.iter().enumerate().filter(|(_, peer)| bgp.peers.takes(&peer.name, &peer.labels));
            told.map(|(place, _)| place).collect()
        };
        let voice = |advertisement: &'a Arc<Advertisement>| {
            let bgp = advertisement.bgp_from(&snapshot.labels);
            Voice { advertisement, bgp: bgp.map(|bgp| (bgp, told(bgp))) }
        };
        let voices = snapshot.advertisements.iter().map(voice).collect();
        Self { voices, pools: PoolIndex::of(&snapshot.pools) }
    }

    fn service_address(&self, service: &ServiceView, address: IpAddr) -> Vec<Statement> {
        let pool = self.pools.find(address);
        let selects = |advertisement: &Advertisement| advertisement.selects(service, pool.map(|(_, pool)| pool));
        let host = Prefix::host(address);
        let around = |bgp: &Bgp| {
            let (length, (block, _)) = bgp.length(host.family()).zip(pool)?;
            block.aggregate(address, length)
        };
        self.say(selects, host, |bgp| around(bgp).unwrap_or(host))
    }

    fn pods(&self, snapshot: &Snapshot, of_nodes: &NodeAddresses) -> Pods {
        let mut pods = Pods::default();
        let own = snapshot.node_routes.get(snapshot.me.as_str());
        for &cidr in own.into_iter().flat_map(|route| &route.pod_cidrs) {
            self.pod_cidr(cidr, snapshot, of_nodes, &mut pods);
        }
        pods
    }

    fn pod_cidr(&self, cidr: Prefix, snapshot: &Snapshot, of_nodes: &NodeAddresses, pods: &mut Pods) {
        let mut fits = BTreeMap::new();
        for voice in &self.voices {
            let Some((bgp, _)) = &voice.bgp else { continue };
            let Some(network) = around(cidr, bgp).filter(|_| voice.advertisement.what == Advertised::PodCidrs) else {
                continue;
            };
            let stranger = fits.entry(network).or_insert_with(|| stranger(snapshot, of_nodes, network));
            if let Some(stranger) = stranger {
                let message = format!("{cidr} is announced as it is: {network} holds {stranger}");
                let advertisement = voice.advertisement.name.to_string();
                pods.exceptions.push(AdvertException { advertisement, message });
            }
        }
        fits.retain(|_, stranger| stranger.is_none());
        pods.statements.extend(self.say(
            |advertisement| advertisement.what == Advertised::PodCidrs,
            cidr,
            |bgp| around(cidr, bgp).filter(|network| fits.contains_key(network)).unwrap_or(cidr),
        ));
        pods.aggregates.extend(fits.into_keys());
    }

    /// Says as the selecting Advertisements do; without any, `plain` to everyone.
    fn say(
        &self,
        selects: impl Fn(&Advertisement) -> bool,
        plain: Prefix,
        prefix: impl Fn(&Bgp) -> Prefix,
    ) -> Vec<Statement> {
        let selecting = self.voices.iter().enumerate().filter(|(_, voice)| selects(voice.advertisement));
        let mut is_plain = true;
        let mut statements = Vec::new();
        for (advertisement, voice) in selecting {
            is_plain = false;
            if let Some((bgp, peers)) = &voice.bgp {
                let prefix = prefix(bgp);
                statements.extend(peers.iter().map(|&peer| Statement::Spoken { peer, prefix, advertisement }));
            }
        }
        statements.extend(is_plain.then_some(Statement::Plain(plain)));
        statements
    }
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
