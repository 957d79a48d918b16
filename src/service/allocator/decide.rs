//! What one Service is to have now.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::Ledger;
use super::shelf::Shelf;
use super::waiting::Watch;
use crate::config::selector::Labels;
use crate::config::{AddressBlock, Pool};
use crate::model::{Family, KeptReason, Note, PoolName, ServiceKey};
use crate::service::request::{Request, Wish};

/// What a Service is to have, and what it waits for.
#[derive(Debug, Default)]
struct Decision {
    grants: BTreeMap<Family, IpAddr>,
    note: Option<Note>,
    watches: BTreeSet<Watch>,
}

/// Why something cannot be had, and what would change that.
#[derive(Debug)]
struct Refusal {
    note: Box<Note>,
    watches: BTreeSet<Watch>,
}

impl Refusal {
    fn new(note: Note, watches: impl IntoIterator<Item = Watch>) -> Self {
        Self { note: Box::new(note), watches: watches.into_iter().chain([Watch::Pools]).collect() }
    }
}

/// The pools that may serve a Service by themselves, in order; never none.
struct Candidates(Vec<PoolName>);

impl Ledger {
    /// Looks at one Service, and gives and takes what follows.
    pub(super) fn decide(&mut self, key: &ServiceKey) {
        let Some(account) = self.accounts.get(key) else { return };
        let Some(request) = account.request.clone() else { return };
        let has = account.grants.iter().map(|address| (Family::of(*address), *address)).collect();
        let decision = self.decision(&request, has);
        self.commit(&request, decision);
    }

    fn decision(&mut self, request: &Request, mut has: BTreeMap<Family, IpAddr>) -> Decision {
        let mut of_node = None;
        has.retain(|_, address| {
            let node = self.around.nodes.get(address).and_then(BTreeSet::first);
            of_node = of_node.take().or(node.map(|node| Note::AddressOfNode { address: *address, node: node.clone() }));
            node.is_none()
        });
        let wish = match &request.wish {
            Ok(wish) => wish.clone(),
            Err(note) => return Decision { grants: has, note: Some(note.clone()), ..Decision::default() },
        };
        let mut grants = has.clone();
        if let Err(refusal) = self.grant_particular(request, &wish, &mut grants) {
            let Refusal { note, watches } = refusal;
            return Decision { grants: has, note: Some(*note), watches };
        }
        let mut decision = self.fill(request, &wish, has, grants);
        decision.note = decision.note.or(of_node);
        decision
    }

    /// Puts all the addresses that a Service asks for in place, or says what is in the way of one.
    fn grant_particular(
        &mut self,
        request: &Request,
        wish: &Wish,
        grants: &mut BTreeMap<Family, IpAddr>,
    ) -> Result<(), Refusal> {
        let lacks = |address: &&IpAddr| grants.get(&Family::of(**address)) != Some(*address);
        for address in wish.addresses.iter().filter(lacks) {
            self.may_have(request, wish, *address)?;
        }
        grants.extend(wish.addresses.iter().map(|address| (Family::of(*address), *address)));
        Ok(())
    }

    /// Whether a Service may have the address that it asks for.
    fn may_have(&mut self, request: &Request, wish: &Wish, address: IpAddr) -> Result<(), Refusal> {
        let key = &request.key;
        let refused = |note| Err(Refusal::new(note, [Watch::Address(address)]));
        if let Some(node) = self.around.nodes.get(&address).and_then(BTreeSet::first) {
            return refused(Note::AddressOfNode { address, node: node.clone() });
        }
        if let Some(name) = &wish.pool {
            self.named(name)?;
        }
        let place = self.place(address).filter(|place| wish.pool.as_ref().is_none_or(|name| name == place));
        let Some(name) = place else { return refused(Note::AddressNotInPool { address }) };
        let Some(pool) = self.shelves.get(&name).and_then(|shelf| shelf.pool.clone()) else {
            return refused(Note::AddressNotInPool { address });
        };
        let reserved = pool.reservations.get(&address);
        if let Some(by) = reserved.filter(|by| *by != key) {
            return refused(Note::AddressReserved { address, by: by.clone() });
        }
        if reserved.is_none() && !serves(&pool, request, &self.namespaces) {
            return refused(Note::PoolNotServing { pool: name });
        }
        if let Some((by, why)) = self.book.objection(address, key, &request.sharing) {
            return refused(match request.sharing.key {
                Some(_) => Note::AddressNotShared { address, by, why },
                None => Note::AddressInUse { address, by },
            });
        }
        let Some(shelf) = self.shelves.get_mut(&name) else { return Ok(()) };
        let cool = self.cooling.get(address).filter(|cool| cool.by != *key && reserved.is_none());
        if let Some(cool) = cool
            && shelf.lowest_free(Family::of(address)).is_some()
        {
            return refused(Note::AddressCooling { address, by: cool.by.clone() });
        }
        let limit = pool.namespace_quota.filter(|_| reserved.is_none() && !shelf.is_used_by(key.namespace(), address));
        match limit.filter(|limit| shelf.used_by(key.namespace()) >= *limit as usize) {
            Some(limit) => Err(quota_reached(&name, key, limit)),
            None => Ok(()),
        }
    }

    /// Gives a Service the families it lacks, if that is enough for it.
    fn fill(
        &mut self,
        request: &Request,
        wish: &Wish,
        had: BTreeMap<Family, IpAddr>,
        mut grants: BTreeMap<Family, IpAddr>,
    ) -> Decision {
        let movable: BTreeMap<_, _> = grants
            .iter()
            .filter(|(_, address)| self.is_movable(request, wish, **address))
            .map(|(f, a)| (*f, *a))
            .collect();
        let lacking: Vec<_> = (request.families.iter().copied())
            .filter(|family| !grants.contains_key(family) || movable.contains_key(family))
            .collect();
        let mut decision = Decision::default();
        let mut refusals = Vec::new();
        if !lacking.is_empty() {
            for (family, picked) in self.pick(request, wish, &lacking) {
                match picked {
                    Ok(address) => drop(grants.insert(family, address)),
                    Err(refusal) => refusals.push((family, refusal)),
                }
            }
        }
        let enough = if request.needs_every_family { request.families.len() } else { 1.min(request.families.len()) };
        let is_short = grants.len() < enough;
        if is_short {
            // All or nothing: what it could have is left to others.
            grants = had;
        }
        for (index, (family, Refusal { note, watches })) in refusals.into_iter().enumerate() {
            let is_kept = movable.contains_key(&family);
            // It cannot do without any of them: it is enough to hear of one.
            if index == 0 || !request.needs_every_family || is_kept {
                decision.watches.extend(watches);
            }
            if is_short && !is_kept {
                decision.note.get_or_insert(*note);
            }
        }
        let kept = grants.values().find_map(|address| self.kept_note(request, *address));
        decision.note = decision.note.or(kept);
        Decision { grants, ..decision }
    }

    /// Whether a Service is to have another address in place of this one, where there is one.
    fn is_movable(&self, request: &Request, wish: &Wish, address: IpAddr) -> bool {
        if wish.addresses.contains(&address) {
            return false;
        }
        match (self.place(address), &wish.pool) {
            // It asks for another pool than the one that has its address.
            (Some(place), Some(name)) if place != *name => true,
            _ => request.may_move && self.kept_reason(request, address).is_some(),
        }
    }

    /// An address for each family, or why there is none.
    fn pick(&mut self, request: &Request, wish: &Wish, families: &[Family]) -> Vec<(Family, Result<IpAddr, Refusal>)> {
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
    fn reserved_for(&self, request: &Request, wish: &Wish, family: Family) -> Option<IpAddr> {
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
    fn named(&self, name: &PoolName) -> Result<Arc<Pool>, Refusal> {
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

    /// Why a Service would not be given the address it has.
    pub(super) fn kept_reason(&self, request: &Request, address: IpAddr) -> Option<KeptReason> {
        let wish = request.wish.as_ref().ok()?;
        let Some(pool) = self.place(address) else {
            let gave = |shelf: &&Shelf| shelf.former.iter().any(|block| block.contains(address));
            let gave = self.shelves.iter().find(|(_, shelf)| gave(shelf)).map(|(name, _)| name.clone());
            return Some(gave.map_or(KeptReason::InNoPool, |pool| KeptReason::NoLongerGiven { pool }));
        };
        let says = self.shelves.get(&pool)?.pool.as_ref()?;
        let reserved = says.reservations.get(&address);
        if let Some(service) = reserved.filter(|by| **by != request.key) {
            return Some(KeptReason::ReservedFor { pool, service: service.clone() });
        }
        if let Some(name) = wish.pool.as_ref().filter(|name| **name != pool) {
            return Some(KeptReason::OutsidePool { pool: name.clone() });
        }
        if reserved.is_some() {
            return None;
        }
        if !serves(says, request, &self.namespaces) {
            return Some(KeptReason::NotServed { pool });
        }
        let other = self.reserved_for(request, wish, Family::of(address)).filter(|_| wish.addresses.is_empty())?;
        Some(KeptReason::ReservedOther { other })
    }

    fn kept_note(&self, request: &Request, address: IpAddr) -> Option<Note> {
        // What was just given is no one's by now.
        if !self.book.has(&request.key, address) {
            return None;
        }
        self.kept_reason(request, address).map(|why| Note::AddressKept { address, why })
    }

    /// Gives and takes what was decided.
    fn commit(&mut self, request: &Arc<Request>, decision: Decision) {
        let key = &request.key;
        let Decision { grants, note, mut watches } = decision;
        let grants: Vec<_> = request.families.iter().filter_map(|family| grants.get(family).copied()).collect();
        let kept: Vec<_> = (grants.iter())
            .filter_map(|address| {
                let pool = match self.kept_reason(request, *address)? {
                    KeptReason::NoLongerGiven { pool } | KeptReason::NotServed { pool } => pool,
                    KeptReason::ReservedFor { pool, .. } => pool,
                    _ => return None,
                };
                Some((pool, *address))
            })
            .collect();
        for address in &grants {
            if !self.book.has(key, *address) {
                self.own(*address, key, Some(&request.sharing));
            }
        }
        if note.is_some() {
            watches.insert(Watch::Pools);
        }
        self.waiting.set(&request.rank(), watches);
        let Some(account) = self.accounts.get_mut(key) else { return };
        let note = account.lost.clone().or(note);
        let before = std::mem::replace(&mut account.grants, grants.clone());
        let kept_before = std::mem::replace(&mut account.kept, kept.clone());
        if before != grants || account.note != note {
            self.changed.services.insert(key.clone());
        }
        account.note = note;
        if kept_before != kept {
            self.keep_nothing(key, &kept_before);
            for (name, address) in kept {
                if let Some(shelf) = self.shelves.get_mut(&name) {
                    shelf.kept.insert((key.clone(), address));
                    self.changed.pools.insert(name);
                }
            }
        }
        self.let_go(key, &request.sharing);
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

fn quota_reached(name: &PoolName, key: &ServiceKey, limit: u32) -> Refusal {
    let (pool, namespace) = (name.clone(), key.namespace().to_owned());
    let watch = Watch::Quota(pool.clone(), namespace.clone());
    Refusal::new(Note::QuotaReached { pool, namespace, limit }, [watch])
}
