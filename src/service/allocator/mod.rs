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
//! Start at [`Ledger`]; `holdings` has the first rule, `decide` the second, `pick` the third, and `kept` what a Service would not be
//! given today. `book` has who has what, `shared` who may join whom, `shelf` what a pool has left, `territory` which addresses
//! are whose, `waiting` who waits for what, `report` what is shown of it.

mod book;
mod cooling;
mod decide;
mod ground;
mod holdings;
mod kept;
mod pick;
mod report;
mod shared;
mod shelf;
mod taken;
mod territory;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use crate::config::AddressBlock;
use crate::config::selector::Labels;
use crate::model::{Family, Moment, NodeName, Note, PoolName, Prefix, ServiceKey};
use crate::service::pool_status::ObservedPool;
use crate::service::request::{Rank, Request};
use book::Book;
use cooling::Cooling;
use shelf::Shelf;
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
    lost: Option<Box<Note>>,
    note: Option<Box<Note>>,
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
        Some(Answer { addresses: account.grants.clone(), note: account.note.as_deref().cloned() })
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
}

#[cfg(test)]
mod tests;
