//! What is shown of the ledger: each pool's state, and why a pool gives a Service nothing.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::Ledger;
use super::pick::serves;
use crate::config::AddressBlock;
use crate::model::{Family, NodeName, PoolName, ServiceKey};

/// So many addresses that cool down are written down for the next leader.
pub const MOST_COOLING: usize = 500;

/// All addresses of a family, those that Services have, those that could still be got.
pub type Counts = (u128, usize, u128);

/// The state of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PoolReport {
    /// The blocks that it gives out.
    pub blocks: Vec<AddressBlock>,
    /// The blocks that are its own: those, or more while it gives nothing out.
    pub ground: Vec<AddressBlock>,
    /// The blocks that it gave out once, of which someone has an address.
    pub draining: Vec<AddressBlock>,
    /// Who has what it claims, a sentence each.
    pub conflicts: Vec<String>,
    /// What of the namespaces that it serves is not there, a sentence each.
    pub idle: Vec<String>,
    /// Its IPv4 addresses, if it has any.
    pub v4: Option<Counts>,
    /// Its IPv6 addresses, if it has any.
    pub v6: Option<Counts>,
    /// Addresses that cool down, who had them, and since when in seconds since 1970; the latest 500.
    pub cooling: Vec<(IpAddr, ServiceKey, i64)>,
    /// How many Services keep what the pool would not give them.
    pub kept: usize,
    /// The first of them.
    pub first_kept: Option<(ServiceKey, IpAddr)>,
}

/// What a pool has for a Service that takes any address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "verdict")]
pub enum Verdict {
    /// The pool is not valid, or all it claims is another's.
    Unusable,
    /// The Service asks for another one.
    NotAskedFor,
    /// It gives nothing out unasked.
    NotAutomatic,
    /// It does not serve the Service.
    NotServing,
    /// It has no address of the family.
    NoFamily,
    /// The Services of the namespace have as many as they may.
    QuotaReached {
        /// How many.
        limit: u32,
    },
    /// All are in use.
    Exhausted,
    /// All that is left was given back a short while ago.
    OnlyCooling {
        /// The one whose wait ends first.
        address: IpAddr,
    },
    /// It has one.
    Free {
        /// The one that is next.
        address: IpAddr,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable => f.write_str("is not in use: see its conditions Ready and Conflict"),
            Self::NotAskedFor => f.write_str("is not asked for"),
            Self::NotAutomatic => f.write_str("gives out addresses only when asked for (spec.autoAssign)"),
            Self::NotServing => f.write_str("does not serve this Service (spec.serves)"),
            Self::NoFamily => f.write_str("has no addresses of this family"),
            Self::QuotaReached { limit } => {
                write!(
                    f,
                    "has given the Services of this namespace all {limit} that they may have (spec.namespaceQuota)"
                )
            }
            Self::Exhausted => f.write_str("has no free address"),
            Self::OnlyCooling { address } => {
                write!(f, "has no free address but such as were given back a short while ago, the next is {address}")
            }
            Self::Free { address } => write!(f, "has free addresses, the next is {address}"),
        }
    }
}

impl Ledger {
    /// The state of a pool.
    pub fn report(&self, name: &PoolName) -> Option<PoolReport> {
        let shelf = self.shelves.get(name)?;
        let serves = shelf.pool.as_ref().and_then(|pool| pool.serves.as_ref());
        let is_inhabited = |block: &&AddressBlock| self.book.within(block).next().is_some();
        let counts = |family| shelf.has_family(family).then(|| shelf.counts(family));
        let cooling = shelf.cooling().rev().take(MOST_COOLING).filter_map(|(_, address)| {
            let cool = self.cooling.get(address)?;
            Some((address, cool.by.clone(), cool.freed_seconds))
        });
        let mut cooling: Vec<_> = cooling.collect();
        cooling.sort();
        Some(PoolReport {
            blocks: shelf.blocks.clone(),
            ground: shelf.ground.clone(),
            draining: shelf.former.iter().filter(is_inhabited).copied().collect(),
            conflicts: shelf.conflicts.clone(),
            idle: serves.map(|serves| serves.idle(&self.namespaces)).unwrap_or_default(),
            v4: counts(Family::V4),
            v6: counts(Family::V6),
            cooling,
            kept: shelf.kept.len(),
            first_kept: shelf.kept.first().cloned(),
        })
    }

    /// Every Node it knows.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// Every namespace it knows.
    pub fn namespaces(&self) -> impl Iterator<Item = &String> {
        self.namespaces.keys()
    }

    /// The pool in which an address waits before another Service gets it, once it is given back.
    pub fn cools_in(&self, address: IpAddr) -> Option<PoolName> {
        let name = self.place(address)?;
        let pool = self.shelves.get(&name)?.pool.as_ref()?;
        (!pool.reuse_after.is_zero()).then_some(name)
    }

    /// The pools in the order in which they are asked, and what each has for a Service by itself.
    pub fn considered(&mut self, key: &ServiceKey, family: Family) -> Vec<(PoolName, Verdict)> {
        let Some(request) = self.accounts.get(key).and_then(|account| account.request.clone()) else {
            return Vec::new();
        };
        let wished = request.wish.as_ref().ok().and_then(|wish| wish.pool.clone());
        let invalid = self.shelves.iter().filter(|(_, shelf)| shelf.pool.is_none()).map(|(name, _)| name.clone());
        let names: Vec<_> = self.order.iter().cloned().chain(invalid).collect();
        let mut verdicts = Vec::with_capacity(names.len());
        for name in names {
            let Some(shelf) = self.shelves.get_mut(&name) else { continue };
            let (namespace, limit) = (key.namespace(), shelf.pool.as_ref().and_then(|pool| pool.namespace_quota));
            let verdict = match shelf.pool.clone() {
                None => Verdict::Unusable,
                Some(_) if shelf.blocks.is_empty() => Verdict::Unusable,
                Some(_) if wished.as_ref().is_some_and(|wished| *wished != name) => Verdict::NotAskedFor,
                Some(pool) if wished.is_none() && !pool.auto_assign => Verdict::NotAutomatic,
                Some(pool) if !serves(&pool, &request, &self.namespaces) => Verdict::NotServing,
                Some(_) if !shelf.has_family(family) => Verdict::NoFamily,
                Some(_) => match (limit, shelf.lowest_free(family), shelf.first_cooling(family)) {
                    (Some(limit), ..) if shelf.used_by(namespace) >= limit as usize => Verdict::QuotaReached { limit },
                    (_, Some(address), _) => Verdict::Free { address },
                    (_, None, Some(address)) => Verdict::OnlyCooling { address },
                    (_, None, None) => Verdict::Exhausted,
                },
            };
            verdicts.push((name, verdict));
        }
        verdicts
    }

    /// Who has addresses of a pool, in the order of the addresses.
    pub fn holders(&self, name: &PoolName) -> Vec<(IpAddr, Vec<ServiceKey>)> {
        let Some(shelf) = self.shelves.get(name) else { return Vec::new() };
        let blocks = shelf.blocks.iter().chain(&shelf.former);
        let held = blocks.flat_map(|block| self.book.within(block));
        let mut held: Vec<_> = held.map(|(address, holders)| (address, holders.cloned().collect())).collect();
        held.sort();
        held.dedup();
        held
    }
}
