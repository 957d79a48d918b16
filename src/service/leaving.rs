//! Addresses that Services are about to give back: pure.
//!
//! The next leader must know of an address that it is cooling down, whatever happens to this one. So
//! the pool's status says it first, and only then the Service is written that gives it back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::allocator::{MOST_COOLING, Now, PoolReport};
use crate::api::AddressPoolStatus;
use crate::model::{Moment, PoolName, ServiceKey};

/// A pool's status that cannot be written holds up nobody for longer: a Service that cannot be
/// deleted is worse than an address that is given again too early after the leader changed.
const LONGEST: Duration = Duration::from_secs(5);

/// What is about to be given back, and since when the pools are to say so.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    by_address: BTreeMap<IpAddr, Leave>,
    of: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
}

#[derive(Debug, Clone)]
struct Leave {
    pool: PoolName,
    by: ServiceKey,
    since: Now,
}

impl Leaving {
    /// Notes that a Service is about to give an address of a pool back; whether that is news.
    pub(super) fn note(&mut self, address: IpAddr, pool: &PoolName, by: &ServiceKey, now: Now) -> bool {
        if self.by_address.get(&address).is_some_and(|leave| leave.by == *by && leave.pool == *pool) {
            return false;
        }
        self.of.entry(by.clone()).or_default().insert(address);
        self.by_address.insert(address, Leave { pool: pool.clone(), by: by.clone(), since: now });
        true
    }

    /// Whether the next leader would know: `status` is that of the pool as it was last written.
    pub(super) fn is_told(&self, address: IpAddr, status: Option<&AddressPoolStatus>, now: Moment) -> bool {
        let Some(leave) = self.by_address.get(&address) else { return true };
        // A pool that is gone has nothing to give.
        let Some(status) = status else { return true };
        let (text, by) = (address.to_string(), leave.by.to_string());
        let is_said = status.cooling.iter().any(|cooling| cooling.address == text && cooling.service == by);
        is_said || now.since(leave.since.moment) >= LONGEST
    }

    /// When the next leader is waited for no longer.
    pub(super) fn patience_ends(&self, by: &ServiceKey) -> Option<Moment> {
        let own = self.of.get(by).into_iter().flatten().filter_map(|address| self.by_address.get(address));
        own.map(|leave| leave.since.moment + LONGEST).min()
    }

    /// A Service is about to give back these and no others.
    pub(super) fn only(&mut self, by: &ServiceKey, addresses: &BTreeSet<IpAddr>) {
        let Some(known) = self.of.get_mut(by) else { return };
        known.retain(|address| {
            let stays = addresses.contains(address);
            if !stays {
                self.by_address.remove(address);
            }
            stays
        });
        if known.is_empty() {
            self.of.remove(by);
        }
    }

    /// Adds what is about to come to what a pool says of its addresses that cool down: these first,
    /// and of the others the latest, as many as a status holds.
    pub(super) fn add_to(&self, name: &PoolName, report: &mut PoolReport) {
        let of_pool = self.by_address.iter().filter(|(_, leave)| leave.pool == *name);
        let mut said: Vec<_> = of_pool
            .take(MOST_COOLING)
            .map(|(address, leave)| (*address, leave.by.clone(), leave.since.unix_seconds))
            .collect();
        report.cooling.retain(|(address, ..)| !self.by_address.contains_key(address));
        report.cooling.sort_by_key(|(_, _, freed_seconds)| Reverse(*freed_seconds));
        said.extend(report.cooling.drain(..).take(MOST_COOLING.saturating_sub(said.len())));
        said.sort();
        report.cooling = said;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::CoolingAddress;

    fn ip(last: u16) -> IpAddr {
        IpAddr::from([0xfd60, 0, 0, 0, 0, 0, 0, last])
    }

    fn at(seconds: u64) -> Now {
        Now { moment: Moment::since_boot(Duration::from_secs(seconds)), unix_seconds: seconds as i64 }
    }

    #[test]
    fn a_service_waits_until_the_next_leader_would_know_and_no_longer_than_is_reasonable() {
        let (pool, web): (PoolName, _) = ("a".parse().expect("a name"), ServiceKey::new("default", "web"));
        let mut leaving = Leaving::default();
        let silent = AddressPoolStatus::default();
        assert!(leaving.is_told(ip(1), Some(&silent), at(0).moment), "nobody gives it back");
        assert!(leaving.note(ip(1), &pool, &web, at(0)) && !leaving.note(ip(1), &pool, &web, at(1)));
        let entry = CoolingAddress { address: ip(1).to_string(), service: web.to_string(), freed_at: String::new() };
        let said = AddressPoolStatus { cooling: vec![entry], ..AddressPoolStatus::default() };
        for (name, status, seconds, want) in [
            ("the pool says nothing", Some(&silent), 1, false),
            ("it says so", Some(&said), 1, true),
            ("there is no pool", None, 1, true),
            ("it cannot be written", Some(&silent), 5, true),
        ] {
            assert_eq!(leaving.is_told(ip(1), status, at(seconds).moment), want, "{name}");
        }
        leaving.only(&web, &BTreeSet::new());
        assert_eq!(leaving.patience_ends(&web), None);
    }

    #[test]
    fn a_status_holds_what_is_about_to_come_and_the_latest_of_the_rest() {
        let (pool, web): (PoolName, _) = ("a".parse().expect("a name"), ServiceKey::new("default", "web"));
        let mut leaving = Leaving::default();
        assert!((0..300).all(|last| leaving.note(ip(last), &pool, &web, at(900))));
        let cooling = (200..800).map(|last| (ip(last), web.clone(), i64::from(last))).collect();
        let mut report = PoolReport { cooling, ..PoolReport::default() };
        leaving.add_to(&pool, &mut report);
        let said: Vec<_> = report.cooling.iter().map(|(address, ..)| *address).collect();
        let want: Vec<_> = (0..300).chain(600..800).map(ip).collect();
        assert_eq!(said, want);
    }
}
