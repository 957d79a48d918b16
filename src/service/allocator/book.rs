//! Who has which address, alone or together with others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::shared::{Common, Shared};
use crate::config::AddressBlock;
use crate::model::{Few, PortProtocol, ServiceKey, ShareRefusal};
use crate::service::request::{Entry, Sharing};

/// Addresses and their holders, in both directions.
#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    holdings: BTreeMap<IpAddr, Holding>,
    of: BTreeMap<ServiceKey, Few<IpAddr, ()>>,
    shared: Shared,
}

/// What holders of one address have to have in common; `None` is one that shares with nobody.
type Kind = Option<Arc<Common>>;
type Ports = Box<[(PortProtocol, u16)]>;

/// Nearly every address has one holder, which shares with nobody.
#[derive(Debug, Clone, Default)]
struct Holding {
    holders: Few<ServiceKey, (Kind, Ports)>,
    /// How many holders there are of each kind: one kind, but for holders that are about to leave.
    kinds: Few<Kind, usize>,
    /// Who has which port, of those that share.
    ports: Few<(PortProtocol, u16), ServiceKey>,
}

fn kind_of(sharing: &Sharing) -> Kind {
    sharing.key.clone().map(|key| Arc::new((key, sharing.entry.clone())))
}

impl Book {
    /// Whether anyone has it.
    pub(super) fn is_held(&self, address: IpAddr) -> bool {
        self.holdings.contains_key(&address)
    }

    /// Whether this Service has it.
    pub(super) fn has(&self, key: &ServiceKey, address: IpAddr) -> bool {
        self.of.get(key).is_some_and(|addresses| addresses.contains_key(&address))
    }

    /// All that a Service has.
    pub(super) fn of(&self, key: &ServiceKey) -> Vec<IpAddr> {
        self.of.get(key).into_iter().flat_map(Few::keys).copied().collect()
    }

    /// Everyone who has it.
    pub(super) fn holders(&self, address: IpAddr) -> impl Iterator<Item = &ServiceKey> {
        self.holdings.get(&address).into_iter().flat_map(|holding| holding.holders.keys())
    }

    /// The held addresses of a block, in order, and who has them.
    pub(super) fn within(
        &self,
        block: &AddressBlock,
    ) -> impl Iterator<Item = (IpAddr, impl Iterator<Item = &ServiceKey>)> {
        let range: RangeInclusive<IpAddr> = block.first()..=block.last();
        self.holdings.range(range).map(|(address, holding)| (*address, holding.holders.keys()))
    }

    /// The addresses of Services that share in the same way, as far as the ports may be open there.
    pub(super) fn open_to(&self, sharing: &Sharing) -> Option<&BTreeSet<IpAddr>> {
        let common = kind_of(sharing)?;
        self.shared.open_to(&common, &sharing.ports)
    }

    /// Who stands in the way of a Service at an address, and why.
    pub(super) fn objection(
        &self,
        address: IpAddr,
        key: &ServiceKey,
        sharing: &Sharing,
    ) -> Option<(ServiceKey, ShareRefusal)> {
        let holding = self.holdings.get(&address)?;
        let mine = kind_of(sharing);
        let own = holding.holders.get(key).map(|(kind, _)| kind);
        for (kind, count) in holding.kinds.iter() {
            let others = count - usize::from(own == Some(kind));
            if others > 0 && (mine.is_none() || *kind != mine) {
                let is_it = |(other, (its, _)): &(&ServiceKey, &(Kind, Ports))| *other != key && its == kind;
                let (other, _) = holding.holders.iter().find(is_it)?;
                return Some((other.clone(), refusal(&mine, kind)));
            }
        }
        let taken = |port: &(PortProtocol, u16)| {
            let by = holding.ports.get(port).filter(|by| *by != key)?;
            Some((by.clone(), ShareRefusal::PortTaken { protocol: port.0, port: port.1 }))
        };
        sharing.ports.iter().find_map(taken)
    }

    /// Notes that a Service has an address, on these terms; `None` shares with nobody.
    pub(super) fn own(&mut self, address: IpAddr, key: &ServiceKey, sharing: Option<&Sharing>) {
        self.disown(address, key);
        let kind = sharing.and_then(kind_of);
        let ports: Ports = match sharing.filter(|_| kind.is_some()) {
            Some(sharing) => sharing.ports.iter().copied().collect(),
            None => Box::default(),
        };
        let holding = self.holdings.entry(address).or_default();
        // A holder on its way out may have the same port: it keeps it until it has left.
        let vacant: Vec<_> = ports.iter().filter(|port| !holding.ports.contains_key(*port)).copied().collect();
        vacant.iter().for_each(|port| drop(holding.ports.insert(*port, key.clone())));
        if let Some(common) = kind.as_ref().filter(|_| !holding.kinds.contains_key(&kind)) {
            self.shared.join(common, address, holding.ports.keys());
        }
        let others = holding.kinds.get(&kind).copied().unwrap_or_default();
        holding.kinds.insert(kind.clone(), others + 1);
        for common in holding.kinds.keys().flatten() {
            vacant.iter().for_each(|port| self.shared.close(common, address, *port));
        }
        holding.holders.insert(key.clone(), (kind, ports));
        self.of.entry(key.clone()).or_default().insert(address, ());
    }

    /// Notes that a Service no longer has an address; whether nobody has it now.
    pub(super) fn disown(&mut self, address: IpAddr, key: &ServiceKey) -> bool {
        let Some(holding) = self.holdings.get_mut(&address) else { return false };
        let Some((kind, ports)) = holding.holders.remove(key) else { return false };
        for port in &ports {
            if holding.ports.get(port) == Some(key) {
                holding.ports.remove(port);
                holding.kinds.keys().flatten().for_each(|common| self.shared.open(common, address, *port));
            }
        }
        let is_last_of_kind = holding.kinds.get_mut(&kind).is_some_and(|count| {
            *count -= 1;
            *count == 0
        });
        if is_last_of_kind {
            holding.kinds.remove(&kind);
            kind.iter().for_each(|common| self.shared.leave(common, address));
        }
        let is_last = holding.holders.is_empty();
        if is_last {
            self.holdings.remove(&address);
        }
        remove_from(&mut self.of, key, address);
        is_last
    }
}

/// Takes one out of a set in a map, and the set out of the map when it is empty.
fn remove_from<K: Ord>(sets: &mut BTreeMap<K, Few<IpAddr, ()>>, key: &K, address: IpAddr) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(&address);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

fn refusal(mine: &Kind, theirs: &Kind) -> ShareRefusal {
    match (mine, theirs) {
        (Some(mine), Some(theirs)) if mine.0 != theirs.0 => ShareRefusal::NoCommonKey,
        (Some(mine), Some(theirs)) => match (&mine.1, &theirs.1) {
            (Entry::Local { .. }, Entry::Local { .. }) => ShareRefusal::SelectorsDiffer,
            _ => ShareRefusal::PoliciesDiffer,
        },
        _ => ShareRefusal::NoCommonKey,
    }
}
