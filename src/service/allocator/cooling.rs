//! Addresses that were given back a short while ago, and wait before another Service gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::config::AddressBlock;
use crate::model::{Moment, ServiceKey};

/// One address that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cool {
    /// Who had it.
    pub(super) by: ServiceKey,
    /// Until when it waits.
    pub(super) until: Moment,
    /// When it was given back, in seconds since 1970: what the next leader reads.
    pub(super) freed_seconds: i64,
}

/// All addresses that wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Cooling {
    by_address: BTreeMap<IpAddr, Cool>,
    by_time: BTreeSet<(Moment, IpAddr)>,
    of: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
}

impl Cooling {
    pub(super) fn start(&mut self, address: IpAddr, cool: Cool) {
        self.end(address);
        self.by_time.insert((cool.until, address));
        self.of.entry(cool.by.clone()).or_default().insert(address);
        self.by_address.insert(address, cool);
    }

    /// Ends the wait of an address; whether it waited.
    pub(super) fn end(&mut self, address: IpAddr) -> Option<Cool> {
        let cool = self.by_address.remove(&address)?;
        self.by_time.remove(&(cool.until, address));
        if let Some(addresses) = self.of.get_mut(&cool.by) {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.of.remove(&cool.by);
            }
        }
        Some(cool)
    }

    pub(super) fn get(&self, address: IpAddr) -> Option<&Cool> {
        self.by_address.get(&address)
    }

    /// What a Service gave back, in order.
    pub(super) fn of(&self, key: &ServiceKey) -> impl Iterator<Item = IpAddr> + '_ {
        self.of.get(key).into_iter().flatten().copied()
    }

    /// Those of a block, in order.
    pub(super) fn within(&self, block: &AddressBlock) -> impl Iterator<Item = IpAddr> + use<'_> {
        self.by_address.range(block.first()..=block.last()).map(|(address, _)| *address)
    }

    /// The next address whose wait is over.
    pub(super) fn due(&self, now: Moment) -> Option<IpAddr> {
        self.by_time.first().filter(|(until, _)| *until <= now).map(|(_, address)| *address)
    }

    /// When the next wait is over.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.by_time.first().map(|(until, _)| *until)
    }
}
