//! What one Service is to have now.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::Ledger;
use super::pick::{Refusal, quota_reached, serves};
use super::waiting::Watch;
use crate::model::{Family, KeptReason, Note, ServiceKey};
use crate::service::request::{Request, Wish};

/// What a Service is to have, and what it waits for.
#[derive(Debug, Default)]
struct Decision {
    grants: BTreeMap<Family, IpAddr>,
    note: Option<Note>,
    watches: BTreeSet<Watch>,
}

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
        let note = account.lost.clone().or(note.map(Box::new));
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
