//! Which Service gets which address: pure, kept up to date change by change.
//!
//! A [`Ledger`] knows every Service, pool and Node, and what each Service has been given. [`Ledger::apply`]
//! takes news and answers with the Services whose answer changed; it looks at these and at those that
//! waited for what became free, never at all of them, and never at the addresses of a pool one by one.
//! A ledger made of everything at once says the same as one that was told piece by piece, once what it
//! gave has been written.
//!
//! 1. Who has an address of a family it wants keeps it, whatever pools say now, unless a Node has it.
//!    Of two who cannot share it, who was first in this ledger keeps it; of two found at once, the one
//!    of the higher [`Term`](crate::model::Term).
//! 2. Who asks for particular addresses gets them where they are free, the oldest first. Until then it
//!    keeps what it has.
//! 3. Who still lacks a family gets: the address that is reserved for it; the one it gave back a
//!    short while ago; one that it may share; the lowest free one of the pools that serve it, those that
//!    select first, then by priority, then by name, where possible both families of one pool; the one
//!    that has waited longest of those that others gave back. The oldest Service goes first.
//!
//! Start at [`Ledger`]; [`decide`](self) has the rules, `book` who has what, `shared` who may join whom, `shelf` what a pool has left,
//! `territory` which addresses are whose, `waiting` who waits for what, `report` what is shown of it.

mod book;
mod cooling;
mod decide;
mod ground;
mod report;
mod shared;
mod shelf;
mod taken;
mod territory;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::config::selector::Labels;
use crate::config::{AddressBlock, block};
use crate::model::{Family, Moment, NodeName, Note, PoolName, Prefix, ServiceKey};
use crate::service::pool_status::ObservedPool;
use crate::service::request::{Rank, Request, Sharing};
use book::Book;
use cooling::{Cool, Cooling};
use shelf::{Shelf, State};
use territory::Surroundings;
use waiting::{Waiting, Watch};

pub use report::{Counts, MOST_COOLING, PoolReport, Verdict};

/// What a Service has from now on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// Its addresses, at most one a family, in the order of its families.
    pub addresses: Vec<IpAddr>,
    /// Why it has less than it asks for, or something else.
    pub note: Option<Note>,
}

/// What a Service is to the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is to have addresses of us.
    Asks(Box<Request>),
    /// It has addresses, and asks for none: of another class, or about to give them back.
    Holds(Vec<IpAddr>),
}

/// What a Node takes up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// The CIDRs of its pods.
    pub pod_cidrs: BTreeSet<Prefix>,
}

/// What changed. `None` is what is gone.
#[derive(Debug, Clone, Default)]
pub struct News {
    /// Services, as they are now.
    pub services: BTreeMap<ServiceKey, Option<Standing>>,
    /// All pools, when one changed.
    pub pools: Option<BTreeMap<PoolName, Arc<ObservedPool>>>,
    /// Nodes, as they are now.
    pub nodes: BTreeMap<NodeName, Option<NodeFacts>>,
    /// Labels of namespaces, as they are now.
    pub namespaces: BTreeMap<String, Option<Labels>>,
    /// All ranges of pods and of Services that the cluster has as a whole, and what each is, when one changed.
    pub cidrs: Option<BTreeMap<Prefix, String>>,
}

/// What follows from news.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed {
    /// The Services whose answer is another.
    pub services: BTreeSet<ServiceKey>,
    /// The pools of which there is something else to say.
    pub pools: BTreeSet<PoolName>,
}

/// The time: for waiting, and for telling the next leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// By a clock that no one sets.
    pub moment: Moment,
    /// Seconds since 1970.
    pub unix_seconds: i64,
}

/// What one Service has and waits for.
#[derive(Debug, Clone, Default)]
struct Account {
    /// What it asks, if it does.
    request: Option<Arc<Request>>,
    /// The addresses in its status.
    held: Vec<IpAddr>,
    /// What it is to have, in the order of its families.
    grants: Vec<IpAddr>,
    /// What it had to give up, until it is looked at anew.
    lost: Option<Note>,
    note: Option<Note>,
    /// Addresses it keeps that a pool would not give it today.
    kept: Vec<(PoolName, IpAddr)>,
}

/// Something that may serve one who waits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Chance {
    Address(IpAddr),
    Free(PoolName, Family),
    Share(String),
    Quota(PoolName, String),
}

/// Who has which address, and who waits for one.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    shelves: BTreeMap<PoolName, Shelf>,
    /// The pools in the order in which they are asked.
    order: Vec<PoolName>,
    /// The blocks of all pools, none of which overlap, by first address.
    places: BTreeMap<(Family, u128), (AddressBlock, PoolName)>,
    /// What is reserved, by Service.
    reserved: BTreeMap<ServiceKey, Vec<IpAddr>>,
    around: Surroundings,
    nodes: BTreeMap<NodeName, NodeFacts>,
    cidrs: BTreeMap<Prefix, String>,
    namespaces: BTreeMap<String, Labels>,
    observed: BTreeMap<PoolName, Arc<ObservedPool>>,
    /// The pools whose status was read for what cools down.
    recalled: BTreeSet<PoolName>,
    book: Book,
    cooling: Cooling,
    waiting: Waiting,
    accounts: BTreeMap<ServiceKey, Account>,
    now: Now,
    /// Who has to be looked at: who asks for something particular first, then the oldest.
    again: BTreeSet<(bool, Rank)>,
    chances: VecDeque<Chance>,
    changed: Changed,
}

impl Ledger {
    /// Takes news, and gives and takes addresses as they make it right.
    pub fn apply(&mut self, news: News, now: Now) -> Changed {
        let News { services, pools, nodes, namespaces, cidrs } = news;
        self.now = now;
        self.end_waits();
        let has_news = pools.is_some() || cidrs.is_some();
        if let Some(pools) = pools {
            self.observed = pools;
        }
        if let Some(cidrs) = cidrs {
            self.take_cidrs(cidrs);
        }
        let (moved, is_moved) = self.take_nodes(nodes);
        self.take_namespaces(namespaces);
        if has_news || is_moved {
            self.survey();
        }
        moved.into_iter().for_each(|address| self.node_moved(address));
        self.take_services(services);
        self.settle();
        std::mem::take(&mut self.changed)
    }

    /// What a Service is to have; nothing of one that asks for nothing.
    pub fn answer(&self, key: &ServiceKey) -> Option<Answer> {
        let account = self.accounts.get(key)?;
        account.request.as_ref()?;
        Some(Answer { addresses: account.grants.clone(), note: account.note.clone() })
    }

    /// When to apply something again, even without news.
    pub fn deadline(&self) -> Option<Moment> {
        self.cooling.deadline()
    }

    fn end_waits(&mut self) {
        while let Some(address) = self.cooling.due(self.now.moment) {
            let cool = self.cooling.end(address);
            self.refresh(address, cool.map(|cool| cool.until));
            self.chances.push_back(Chance::Address(address));
        }
    }

    /// Services come in three steps: who is gone, who has something, and who is left with less than it asks.
    fn take_services(&mut self, services: BTreeMap<ServiceKey, Option<Standing>>) {
        let (mut asks, mut holds) = (Vec::new(), Vec::new());
        for (key, standing) in services {
            match standing {
                None => self.forget(&key),
                Some(Standing::Asks(request)) => asks.push(Arc::new(*request)),
                Some(Standing::Holds(addresses)) => holds.push((key, addresses)),
            }
        }
        asks.sort_by_cached_key(|request| request.claim());
        for request in asks {
            self.claim(&request);
            self.again.insert((!request.is_particular(), request.rank()));
        }
        for (key, addresses) in holds {
            self.hold(&key, addresses);
        }
    }

    /// Nothing is left of a Service but what it gave back.
    fn forget(&mut self, key: &ServiceKey) {
        self.book.of(key).into_iter().for_each(|address| self.release(address, key));
        self.waiting.clear(key);
        if let Some(account) = self.accounts.remove(key) {
            self.keep_nothing(key, &account.kept);
            self.changed.services.insert(key.clone());
        }
    }

    /// A Service that asks for nothing has these.
    fn hold(&mut self, key: &ServiceKey, addresses: Vec<IpAddr>) {
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
    fn claim(&mut self, request: &Arc<Request>) {
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
                lost.get_or_insert(Note::AddressOfNode { address, node: node.clone() });
            } else if let Some((by, why)) = self.book.objection(address, key, &request.sharing) {
                lost.get_or_insert(Note::AddressLost { address, by, why });
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
    fn let_go(&mut self, key: &ServiceKey, sharing: &Sharing) {
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

    fn own(&mut self, address: IpAddr, key: &ServiceKey, sharing: Option<&Sharing>) {
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
    fn place(&self, address: IpAddr) -> Option<PoolName> {
        let only = AddressBlock::only(address);
        let (_, (block, name)) = self.places.range(..=(only.family(), only.first_number())).next_back()?;
        let is_given = block.contains(address) && self.shelves.get(name)?.gives(address);
        is_given.then(|| name.clone())
    }

    /// Tells the pool of an address what has become of it.
    fn refresh(&mut self, address: IpAddr, was_cooling: Option<Moment>) {
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

    /// Looks at everyone who has to be looked at, and at those whom that serves.
    fn settle(&mut self) {
        loop {
            while let Some((_, (_, key))) = self.again.pop_first() {
                self.decide(&key);
            }
            match self.chances.pop_front() {
                Some(chance) => self.offer(chance),
                None => break,
            }
        }
    }

    /// Offers something to those who wait for it, the oldest first.
    fn offer(&mut self, chance: Chance) {
        match chance {
            Chance::Address(address) => self.look_at_all(&Watch::Address(address)),
            Chance::Share(key) => self.look_at_all(&Watch::Share(key)),
            Chance::Quota(name, namespace) => self.look_at_all(&Watch::Quota(name, namespace)),
            Chance::Free(name, family) => {
                let watch = Watch::Free(name.clone(), family);
                let mut last = None;
                while let Some(next) = self.waiting.next(&watch, last.as_ref()).cloned() {
                    let Some(shelf) = self.shelves.get_mut(&name) else { break };
                    if shelf.lowest_free(family).or_else(|| shelf.first_cooling(family)).is_none() {
                        break;
                    }
                    self.decide(&next.1);
                    last = Some(next);
                }
            }
        }
    }

    fn look_at_all(&mut self, watch: &Watch) {
        let waiting: Vec<_> = self.waiting.all(watch).cloned().collect();
        waiting.iter().for_each(|key| self.look_again(key));
    }

    fn look_again(&mut self, key: &ServiceKey) {
        if let Some(request) = self.accounts.get(key).and_then(|account| account.request.as_ref()) {
            self.again.insert((!request.is_particular(), request.rank()));
        }
    }

    fn keep_nothing(&mut self, key: &ServiceKey, kept: &[(PoolName, IpAddr)]) {
        for (name, address) in kept {
            if let Some(shelf) = self.shelves.get_mut(name) {
                shelf.kept.remove(&(key.clone(), *address));
                self.changed.pools.insert(name.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests;
