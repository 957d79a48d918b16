//! Addresses that Services share: by what they have in common, and where a port is still open.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::model::PortProtocol;
use crate::service::request::Entry;

type Port = (PortProtocol, u16);

/// What all who share an address have in common: their key, and how traffic enters.
pub(super) type Common = (String, Entry);

/// The addresses of all Services that share, by what they have in common.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(BTreeMap<Common, Addresses>);

#[derive(Debug, Clone, Default)]
struct Addresses {
    all: BTreeSet<IpAddr>,
    /// By port that somebody has at one of them: those of them where nobody has it.
    open: BTreeMap<Port, BTreeSet<IpAddr>>,
}

impl Shared {
    /// The addresses where a Service with these ports may find them open: those where the scarcest of them is.
    pub(super) fn open_to(&self, common: &Common, ports: &BTreeSet<Port>) -> Option<&BTreeSet<IpAddr>> {
        let among = self.0.get(common)?;
        let open = ports.iter().filter_map(|port| among.open.get(port));
        Some(open.min_by_key(|addresses| addresses.len()).unwrap_or(&among.all))
    }

    /// An address is among them from now on; these of its ports are taken.
    pub(super) fn join<'a>(&mut self, common: &Common, address: IpAddr, taken: impl Iterator<Item = &'a Port>) {
        let among = self.0.entry(common.clone()).or_default();
        among.all.insert(address);
        among.open.values_mut().for_each(|open| _ = open.insert(address));
        taken.for_each(|port| among.close(address, *port));
    }

    /// A port of an address is taken.
    pub(super) fn close(&mut self, common: &Common, address: IpAddr, port: Port) {
        if let Some(among) = self.0.get_mut(common) {
            among.close(address, port);
        }
    }

    /// A port of an address is free again.
    pub(super) fn open(&mut self, common: &Common, address: IpAddr, port: Port) {
        let Some(among) = self.0.get_mut(common) else { return };
        if let Some(open) = among.open.get_mut(&port) {
            open.insert(address);
            if open.len() == among.all.len() {
                among.open.remove(&port);
            }
        }
    }

    /// An address is not among them any more.
    pub(super) fn leave(&mut self, common: &Common, address: IpAddr) {
        let Some(among) = self.0.get_mut(common) else { return };
        let Addresses { all, open } = among;
        all.remove(&address);
        open.retain(|_, open| {
            open.remove(&address);
            open.len() < all.len()
        });
        if all.is_empty() {
            self.0.remove(common);
        }
    }
}

impl Addresses {
    fn close(&mut self, address: IpAddr, port: Port) {
        self.open.entry(port).or_insert_with(|| self.all.clone()).remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn what_is_open_is_what_a_look_at_every_address_finds() {
        let (mut rng, common) = (Rng::with_seed(11), ("k".to_owned(), Entry::Cluster));
        let (mut shared, mut taken) = (Shared::default(), BTreeMap::<IpAddr, BTreeSet<Port>>::new());
        for _ in 0..20_000 {
            let (address, port) = (IpAddr::from([10, 0, 0, rng.u8(0..12)]), (PortProtocol::Tcp, rng.u16(80..84)));
            match (rng.u8(0..4), taken.get_mut(&address)) {
                (0, None) => {
                    shared.join(&common, address, [port].iter());
                    taken.insert(address, BTreeSet::from([port]));
                }
                (1, Some(_)) => {
                    shared.leave(&common, address);
                    taken.remove(&address);
                }
                (2, Some(ports)) => {
                    shared.close(&common, address, port);
                    ports.insert(port);
                }
                (3, Some(ports)) => {
                    let was_taken = ports.remove(&port);
                    if was_taken {
                        shared.open(&common, address, port);
                    }
                }
                _ => {}
            }
            for port in (80..84).map(|port| (PortProtocol::Tcp, port)) {
                let found: BTreeSet<_> =
                    taken.iter().filter(|(_, ports)| !ports.contains(&port)).map(|(address, _)| *address).collect();
                let open = shared.open_to(&common, &BTreeSet::from([port])).cloned().unwrap_or_default();
                assert_eq!(open, found, "{port:?}");
            }
            let ports = shared.0.get(&common).map(|among| among.open.len()).unwrap_or_default();
            let in_use: BTreeSet<_> = taken.values().flatten().collect();
            assert_eq!(ports, in_use.len(), "a port that nobody has is forgotten");
        }
    }
}
