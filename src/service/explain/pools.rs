//! Who has what of a pool, and what is wrong with it.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use crate::model::{Family, PoolName, ServiceKey};
use crate::service::allocator::{Counts, Ledger, Now};
use crate::service::plan::{self, Observed};

/// What there is to say about pools.
#[derive(Debug, Serialize)]
pub struct PoolsExplained {
    pools: Vec<PoolExplained>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolExplained {
    name: PoolName,
    counts: Vec<FamilyCounts>,
    /// What is not as it should be, a sentence each.
    faults: Vec<String>,
    holders: Vec<Holders>,
    cooling: Vec<Cooling>,
}

/// Addresses of one family.
#[derive(Debug, Serialize)]
struct FamilyCounts {
    family: String,
    /// Written as text: an IPv6 block has more than a number of JSON holds.
    total: String,
    used: usize,
    free: String,
}

/// Whose an address is.
#[derive(Debug, Serialize)]
struct Holders {
    address: IpAddr,
    services: Vec<ServiceKey>,
}

/// An address that was given back a short while ago.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cooling {
    address: IpAddr,
    service: ServiceKey,
    freed_at: String,
}

/// Explains pools: all of them, or the one of this name. `time` writes seconds since 1970.
pub fn pools(observed: &Observed, only: Option<&PoolName>, now: Now, time: fn(i64) -> String) -> PoolsExplained {
    // What was given is in the statuses; who waits is given nothing here.
    let (_, ledger) = plan::plan(observed, now);
    let wanted = observed.pools.keys().filter(|name| only.is_none_or(|only| only == *name));
    PoolsExplained { pools: wanted.filter_map(|name| explained(observed, &ledger, name, time)).collect() }
}

fn explained(observed: &Observed, ledger: &Ledger, name: &PoolName, time: fn(i64) -> String) -> Option<PoolExplained> {
    let conditions = &observed.pools.get(name)?.status.conditions;
    let report = ledger.report(name)?;
    let faults = conditions.iter().filter(|condition| !condition.is_well());
    let held = |key: &&ServiceKey, address: &IpAddr| {
        observed.services.get(*key).is_some_and(|view| view.ingress.iter().any(|entry| entry.ip == Some(*address)))
    };
    let holders = ledger.holders(name).into_iter().filter_map(|(address, keys)| {
        let services: Vec<_> = keys.iter().filter(|key| held(key, &address)).cloned().collect();
        (!services.is_empty()).then_some(Holders { address, services })
    });
    let counts = |(family, counts): (Family, Option<Counts>)| {
        let (total, used, free) = counts?;
        Some(FamilyCounts { family: family.to_string(), total: total.to_string(), used, free: free.to_string() })
    };
    let cooling =
        |(address, service, freed): (IpAddr, ServiceKey, i64)| Cooling { address, service, freed_at: time(freed) };
    Some(PoolExplained {
        name: name.clone(),
        counts: [(Family::V4, report.v4), (Family::V6, report.v6)].into_iter().filter_map(counts).collect(),
        faults: faults.map(|condition| format!("{:?}: {}", condition.kind, condition.message)).collect(),
        holders: holders.collect(),
        cooling: report.cooling.into_iter().map(cooling).collect(),
    })
}

impl fmt::Display for PoolsExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pools.is_empty() {
            return writeln!(f, "There is no AddressPool.");
        }
        self.pools.iter().try_for_each(|pool| pool.fmt(f))
    }
}

impl fmt::Display for PoolExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "AddressPool {}", self.name)?;
        for FamilyCounts { family, total, used, free } in &self.counts {
            writeln!(f, "  {family}  {total} in all, {used} in use, {free} free")?;
        }
        for fault in &self.faults {
            writeln!(f, "  {fault}")?;
        }
        let addresses = self.holders.iter().map(|one| one.address).chain(self.cooling.iter().map(|one| one.address));
        let width = addresses.map(|address| address.to_string().len()).max().unwrap_or_default();
        for Holders { address, services } in &self.holders {
            let services: Vec<_> = services.iter().map(ToString::to_string).collect();
            writeln!(f, "  {:width$}  {}", address.to_string(), services.join(", "))?;
        }
        for Cooling { address, service, freed_at } in &self.cooling {
            writeln!(f, "  {:width$}  given back by {service} at {freed_at}", address.to_string())?;
        }
        Ok(())
    }
}
