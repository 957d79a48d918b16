//! Who comes to have an address, keeps it, and gives it back.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::cooling::Cool;
use super::shelf::State;
use super::{Account, Chance, Ledger};
use crate::config::{AddressBlock, block};
use crate::model::{Family, Moment, Note, PoolName, ServiceKey};
use crate::service::request::{Request, Sharing};

impl Ledger {
    /// Nothing is left of a Service but what it gave back.
    pub(super) fn forget(&mut self, key: &ServiceKey) {
        self.book.of(key).into_iter().for_each(|address| self.release(address, key));
        self.waiting.clear(key);
        if let Some(account) = self.accounts.remove(key) {
            self.keep_nothing(key, &account.kept);
            self.changed.services.insert(key.clone());
        }
    }

    /// A Service that asks for nothing has these.
    pub(super) fn hold(&mut self, key: &ServiceKey, addresses: Vec<IpAddr>) {
        let is_gone = |address: &IpAddr| !addresses.contains(address);
        self.book.of(key).into_iter().filter(is_gone).for_each(|address| self.release(address, key));
        for address in &addresses {
            if self.book.has(key, *address) || !self.book.is_held(*address) {
                self.own(*address, key, None);
            }
        }
        self.waiting.clear(key);
        let account = Account { held: addresses, ..Account::default() };
        if let Some(before) = self.accounts.insert(key.clone(), account) {
            self.keep_nothing(key, &before.kept);
        }
        self.changed.services.insert(key.clone());
    }

    /// A Service that asks keeps what it has, as far as others let it.
    pub(super) fn claim(&mut self, request: &Arc<Request>) {
        let key = &request.key;
        let before = self.accounts.get(key).cloned().unwrap_or_default();
        if before.request.as_ref().is_some_and(|known| known.uid != request.uid) {
            self.forget(key);
            return self.claim(request);
        }
        let mut lost = None;
        let mut grants = Vec::<IpAddr>::new();
        for &address in before.grants.iter().chain(&request.held) {
            let family = Family::of(address);
            let is_needed = request.families.contains(&family) && !grants.iter().any(|ip| Family::of(*ip) == family);
            let is_known = before.grants.contains(&address);
            // With an address given, another one in the status is someone's mistake and is put right.
            let is_granted = before.grants.iter().any(|ip| Family::of(*ip) == family);
            if !is_needed || !block::is_routable(address) || (is_granted && !is_known) {
                continue;
            }
            if let Some(node) = self.around.nodes.get(&address).and_then(BTreeSet::first) {
                lost.get_or_insert_with(|| Box::new(Note::AddressOfNode { address, node: node.clone() }));
            } else if let Some((by, why)) = self.book.objection(address, key, &request.sharing) {
                lost.get_or_insert_with(|| Box::new(Note::AddressLost { address, by, why }));
            } else {
                self.own(address, key, Some(&request.sharing));
                grants.push(address);
            }
        }
        let account =
            Account { request: Some(Arc::clone(request)), held: request.held.clone(), lost, grants, ..before };
        self.accounts.insert(key.clone(), account);
        self.let_go(key, &request.sharing);
    }

    /// What is in a Service's status is nobody else's; what it neither has nor shows is given back.
    pub(super) fn let_go(&mut self, key: &ServiceKey, sharing: &Sharing) {
        let Some(account) = self.accounts.get(key) else { return };
        let (held, grants) = (account.held.clone(), account.grants.clone());
        for address in self.book.of(key) {
            if !held.contains(&address) && !grants.contains(&address) {
                self.release(address, key);
            }
        }
        for address in held {
            if block::is_routable(address) && !self.book.is_held(address) {
                self.own(address, key, Some(sharing));
            }
        }
    }

    pub(super) fn own(&mut self, address: IpAddr, key: &ServiceKey, sharing: Option<&Sharing>) {
        let (is_first, is_new) = (!self.book.is_held(address), !self.book.has(key, address));
        self.book.own(address, key, sharing);
        let cool = self.cooling.end(address);
        if is_new && let Some(shelf) = self.place(address).and_then(|name| self.shelves.get_mut(&name)) {
            shelf.count(key.namespace(), address);
        }
        if is_first || cool.is_some() {
            self.refresh(address, cool.map(|cool| cool.until));
        }
        self.chances.push_back(Chance::Address(address));
        self.chances.extend(sharing.and_then(|sharing| sharing.key.clone()).map(Chance::Share));
    }

    /// A Service no longer has an address; the last one leaves it to cool down.
    fn release(&mut self, address: IpAddr, key: &ServiceKey) {
        let place = self.place(address);
        let is_last = self.book.disown(address, key);
        self.chances.push_back(Chance::Address(address));
        if let Some(name) = place {
            let Some(shelf) = self.shelves.get_mut(&name) else { return };
            shelf.discount(key.namespace(), address);
            let reuse_after = shelf.pool.as_ref().map_or(Duration::ZERO, |pool| pool.reuse_after);
            if is_last && !reuse_after.is_zero() {
                let (until, freed_seconds) = (self.now.moment + reuse_after, self.now.unix_seconds);
                self.cooling.start(address, Cool { by: key.clone(), until, freed_seconds });
            }
            self.chances.push_back(Chance::Quota(name, key.namespace().to_owned()));
        }
        let keys = self.accounts.get(key).and_then(|account| account.request.as_ref()?.sharing.key.clone());
        self.chances.extend(keys.map(Chance::Share));
        self.refresh(address, None);
    }

    /// The pool that gives out an address.
    pub(super) fn place(&self, address: IpAddr) -> Option<PoolName> {
        let only = AddressBlock::only(address);
        let (_, (block, name)) = self.places.range(..=(only.family(), only.first_number())).next_back()?;
        let is_given = block.contains(address) && self.shelves.get(name)?.gives(address);
        is_given.then(|| name.clone())
    }

    /// Tells the pool of an address what has become of it.
    pub(super) fn refresh(&mut self, address: IpAddr, was_cooling: Option<Moment>) {
        let Some(name) = self.place(address) else { return };
        let state = self.state(address, &name);
        let Some(shelf) = self.shelves.get_mut(&name) else { return };
        shelf.mark(address, state, was_cooling);
        if matches!(state, State::Free | State::Cooling(_)) {
            self.chances.push_back(Chance::Free(name.clone(), Family::of(address)));
        } else if shelf.cooling().next().is_some() && shelf.lowest_free(Family::of(address)).is_none() {
            // With nothing else left, who waits for one that cools down by name waits no longer.
            self.chances.extend(shelf.cooling().map(|(_, address)| Chance::Address(address)));
        }
        self.changed.pools.insert(name);
    }

    fn state(&self, address: IpAddr, name: &PoolName) -> State {
        let is_reserved =
            || self.shelves.get(name).and_then(|shelf| shelf.pool.as_ref()?.reservations.get(&address)).is_some();
        match self.cooling.get(address) {
            _ if self.book.is_held(address) => State::Held,
            _ if self.around.nodes.contains_key(&address) || is_reserved() => State::Spoken,
            Some(cool) => State::Cooling(cool.until),
            None => State::Free,
        }
    }

    pub(super) fn keep_nothing(&mut self, key: &ServiceKey, kept: &[(PoolName, IpAddr)]) {
        for (name, address) in kept {
            if let Some(shelf) = self.shelves.get_mut(name) {
                shelf.kept.remove(&(key.clone(), *address));
                self.changed.pools.insert(name.clone());
            }
        }
    }
}
