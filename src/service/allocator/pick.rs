//! Which addresses a Service gets that takes what there is: of which pools, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::Ledger;
use super::shelf::Shelf;
use super::waiting::Watch;
use crate::config::selector::Labels;
use crate::config::{AddressBlock, Pool};
use crate::model::{Family, Note, PoolName, ServiceKey};
use crate::service::request::{Request, Wish};

/// Why something cannot be had, and what would change that.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) note: Box<Note>,
    pub(super) watches: BTreeSet<Watch>,
}

impl Refusal {
    pub(super) fn new(note: Note, watches: impl IntoIterator<Item = Watch>) -> Self {
        Self { note: Box::new(note), watches: watches.into_iter().chain([Watch::Pools]).collect() }
    }
}

/// The pools that may serve a Service by themselves, in order; never none.
struct Candidates(Vec<PoolName>);

impl Ledger {
    /// An address for each family, or why there is none.
    pub(super) fn pick(
        &mut self,
        request: &Request,
        wish: &Wish,
        families: &[Family],
    ) -> Vec<(Family, Result<IpAddr, Refusal>)> {
        let mut picked = BTreeMap::<Family, IpAddr>::new();
        for family in families {
            picked.extend(self.reserved_for(request, wish, *family).map(|address| (*family, address)));
        }
        let candidates = self.candidates(request, wish);
        if let Ok(candidates) = &candidates {
            for family in families {
                if !picked.contains_key(family) {
                    let known = self.known_or_shared(request, candidates, *family, &picked);
                    picked.extend(known.map(|address| (*family, address)));
                }
            }
            if picked.is_empty() && families.len() > 1 {
                picked = self.all_of_one_pool(request, candidates, families);
            }
        }
        let mut answers = Vec::with_capacity(families.len());
        for family in families {
            let answer = match (picked.get(family), &candidates) {
                (Some(address), _) => Ok(*address),
                (None, Ok(candidates)) => self.fresh(request, candidates, *family, &picked),
                (None, Err(note)) => Err(Refusal::new(note.clone(), [])),
            };
            picked.extend(answer.as_ref().ok().map(|address| (*family, *address)));
            answers.push((*family, answer));
        }
        answers
    }

    /// The address that is reserved for a Service.
    pub(super) fn reserved_for(&self, request: &Request, wish: &Wish, family: Family) -> Option<IpAddr> {
        let reserved = self.reserved.get(&request.key)?;
        let is_open = |address: &&IpAddr| {
            let place = self.place(**address);
            Family::of(**address) == family
                && place.is_some_and(|place| wish.pool.as_ref().is_none_or(|name| *name == place))
                && !self.around.nodes.contains_key(*address)
                && self.book.objection(**address, &request.key, &request.sharing).is_none()
        };
        reserved.iter().find(is_open).copied()
    }

    /// The pools that may serve a Service by themselves.
    fn candidates(&self, request: &Request, wish: &Wish) -> Result<Candidates, Note> {
        if let Some(name) = &wish.pool {
            let pool = self.named(name).map_err(|refusal| *refusal.note)?;
            return if serves(&pool, request, &self.namespaces) {
                Ok(Candidates(vec![name.clone()]))
            } else {
                Err(Note::PoolNotServing { pool: name.clone() })
            };
        }
        let by_themselves = |name: &&PoolName| {
            let shelf = self.shelves.get(*name).filter(|shelf| !shelf.blocks.is_empty());
            shelf.and_then(|shelf| shelf.pool.as_ref()).is_some_and(|pool| pool.auto_assign)
        };
        let all: Vec<_> = self.order.iter().filter(by_themselves).cloned().collect();
        if all.is_empty() {
            return Err(Note::NoPool);
        }
        let is_served = |name: &&PoolName| {
            let pool = self.shelves.get(*name).and_then(|shelf| shelf.pool.as_ref());
            pool.is_some_and(|pool| serves(pool, request, &self.namespaces))
        };
        let serving: Vec<_> = all.iter().filter(is_served).cloned().collect();
        if serving.is_empty() { Err(Note::NotServed { pools: all }) } else { Ok(Candidates(serving)) }
    }

    /// A pool that is asked for by name.
    pub(super) fn named(&self, name: &PoolName) -> Result<Arc<Pool>, Refusal> {
        let pool = name.clone();
        let Some(shelf) = self.shelves.get(name) else { return Err(Refusal::new(Note::PoolMissing { pool }, [])) };
        let usable = shelf.pool.as_ref().filter(|_| !shelf.blocks.is_empty());
        usable.cloned().ok_or_else(|| Refusal::new(Note::PoolInvalid { pool }, []))
    }

    /// An address that a Service gave back a short while ago, or one of those it may share.
    fn known_or_shared(
        &self,
        request: &Request,
        Candidates(names): &Candidates,
        family: Family,
        picked: &BTreeMap<Family, IpAddr>,
    ) -> Option<IpAddr> {
        let is_right = |address: &IpAddr| {
            Family::of(*address) == family
                && self.place(*address).is_some_and(|place| {
                    let shelf = &self.shelves[&place];
                    let is_reserved = shelf.pool.as_ref().is_some_and(|pool| pool.reservations.contains_key(address));
                    names.contains(&place)
                        && !is_reserved
                        && has_room(shelf, request, Some(*address), &place, picked, self)
                })
                && !self.around.nodes.contains_key(address)
                && self.book.objection(*address, &request.key, &request.sharing).is_none()
        };
        let back = self.cooling.of(&request.key).find(is_right);
        back.or_else(|| {
            let open = self.book.open_to(&request.sharing)?;
            let lowest = |block: &AddressBlock| open.range(block.first()..=block.last()).copied().find(is_right);
            names.iter().find_map(|name| self.shelves[name].blocks.iter().filter_map(lowest).min())
        })
    }

    /// Free addresses of all the families, of the first pool that has them all.
    fn all_of_one_pool(
        &mut self,
        request: &Request,
        Candidates(names): &Candidates,
        families: &[Family],
    ) -> BTreeMap<Family, IpAddr> {
        for name in names {
            let Some(shelf) = self.shelves.get_mut(name) else { continue };
            let limit = shelf.pool.as_ref().and_then(|pool| pool.namespace_quota);
            let used = shelf.used_by(request.key.namespace());
            if limit.is_some_and(|limit| used + families.len() > limit as usize) {
                continue;
            }
            let free = families.iter().filter_map(|family| Some((*family, shelf.lowest_free(*family)?)));
            let free: BTreeMap<_, _> = free.collect();
            if free.len() == families.len() {
                return free;
            }
        }
        BTreeMap::new()
    }

    /// The lowest free address, else the one that has waited longest.
    fn fresh(
        &mut self,
        request: &Request,
        Candidates(names): &Candidates,
        family: Family,
        picked: &BTreeMap<Family, IpAddr>,
    ) -> Result<IpAddr, Refusal> {
        let has_family = |name: &&PoolName| self.shelves.get(*name).is_some_and(|shelf| shelf.has_family(family));
        let names_of_family: Vec<_> = names.iter().filter(has_family).cloned().collect();
        if names_of_family.is_empty() {
            return Err(Refusal::new(Note::FamilyNotInPools { pools: names.clone(), family }, []));
        }
        let has_room = |name: &&PoolName| has_room(&self.shelves[*name], request, None, name, picked, self);
        let (open, closed): (Vec<_>, Vec<_>) = names_of_family.iter().partition(has_room);
        for name in &open {
            let free = self.shelves.get_mut(*name).and_then(|shelf| shelf.lowest_free(family));
            if let Some(address) = free {
                return Ok(address);
            }
        }
        let cooling = open.iter().filter_map(|name| self.shelves.get(*name)?.first_cooling(family));
        if let Some(address) = cooling.min_by_key(|address| self.cooling.get(*address).map(|cool| cool.until)) {
            return Ok(address);
        }
        let mut refusal = Refusal::new(Note::PoolExhausted { pools: names.clone(), family }, []);
        for name in closed {
            let limit =
                self.shelves.get(name).and_then(|shelf| shelf.pool.as_ref()?.namespace_quota).unwrap_or_default();
            let Refusal { note, watches } = quota_reached(name, &request.key, limit);
            if !matches!(*refusal.note, Note::QuotaReached { .. }) {
                refusal.note = note;
            }
            refusal.watches.extend(watches);
        }
        refusal.watches.extend(open.into_iter().map(|name| Watch::Free(name.clone(), family)));
        refusal.watches.extend(request.sharing.key.clone().map(Watch::Share));
        Err(refusal)
    }
}

/// Whether a pool serves a Service.
pub(super) fn serves(pool: &Pool, request: &Request, namespaces: &BTreeMap<String, Labels>) -> bool {
    static NONE: Labels = Labels::new();
    let namespace = request.key.namespace();
    let labels = namespaces.get(namespace).unwrap_or(&NONE);
    pool.serves.as_ref().is_none_or(|serves| serves.selects(namespace, labels, &request.labels))
}

/// Whether the Services of a namespace may have one more address of a pool, beside those picked already.
fn has_room(
    shelf: &Shelf,
    request: &Request,
    address: Option<IpAddr>,
    name: &PoolName,
    picked: &BTreeMap<Family, IpAddr>,
    ledger: &Ledger,
) -> bool {
    let Some(limit) = shelf.pool.as_ref().and_then(|pool| pool.namespace_quota) else { return true };
    let namespace = request.key.namespace();
    if address.is_some_and(|address| shelf.is_used_by(namespace, address)) {
        return true;
    }
    let is_new = |ip: &&IpAddr| ledger.place(**ip).as_ref() == Some(name) && !shelf.is_used_by(namespace, **ip);
    shelf.used_by(namespace) + picked.values().filter(is_new).count() < limit as usize
}

pub(super) fn quota_reached(name: &PoolName, key: &ServiceKey, limit: u32) -> Refusal {
    let (pool, namespace) = (name.clone(), key.namespace().to_owned());
    let watch = Watch::Quota(pool.clone(), namespace.clone());
    Refusal::new(Note::QuotaReached { pool, namespace, limit }, [watch])
}
