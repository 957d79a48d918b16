//! The guard table's sets, and how they follow what is guarded.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::codec::{Attributes, Request, Verb, value};
use crate::model::{Admission, Family, Guarded, Prefix, ServedPort, SharedSet};

/// The table's name; its family is inet.
pub(super) const TABLE: &str = "cairn";

/// Elements of a set in one request: well below the 64 KiB an attribute can have.
const ELEMENTS: usize = 1000;

pub(super) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Makes the sets of the table follow; where it takes several batches nothing is refused in
/// between that is served before or after, and nobody is admitted who is not before or after.
pub(super) fn update(from: &Guarded, to: &Guarded) -> Vec<Request> {
    use Verb::{DeleteElements, NewElements};
    fn only<T: Ord + Copy>(one: &SharedSet<T>, other: &SharedSet<T>) -> BTreeSet<T> {
        one.difference(other).copied().collect()
    }
    let is_same = from.aggregated.is_same(&to.aggregated);
    let [before, after] = [from, to].map(|guarded| if is_same { BTreeSet::new() } else { ranges(&guarded.aggregated) });
    [
        address_elements(DeleteElements, &only(&from.announced, &to.announced), Set::Announced),
        range_elements(DeleteElements, &(&before - &after)),
        port_elements(NewElements, &only(&to.served, &from.served), Set::Served),
        port_elements(DeleteElements, &only(&from.served, &to.served), Set::Served),
        // Ranges of one port must not overlap: the old ones go first.
        port_elements(DeleteElements, &only(&from.limited, &to.limited), Set::Limited),
        admission_elements(DeleteElements, &only(&from.admitted, &to.admitted)),
        admission_elements(NewElements, &only(&to.admitted, &from.admitted)),
        port_elements(NewElements, &only(&to.limited, &from.limited), Set::Limited),
        address_elements(NewElements, &only(&to.assigned, &from.assigned), Set::Assigned),
        address_elements(DeleteElements, &only(&from.assigned, &to.assigned), Set::Assigned),
        address_elements(NewElements, &only(&to.announced, &from.announced), Set::Announced),
        range_elements(NewElements, &(&after - &before)),
    ]
    .concat()
}

/// Addresses from a first to a last one.
type Range = [IpAddr; 2];

/// The addresses of these networks, in as few ranges as there can be: a set takes none that overlap or touch.
fn ranges(networks: &SharedSet<Prefix>) -> BTreeSet<Range> {
    let mut ranges = Vec::<(Family, u128, u128)>::new();
    for network in networks.iter() {
        let (family, (first, last)) = (network.family(), network.bounds());
        match ranges.last_mut() {
            Some((before, _, end)) if *before == family && first <= end.saturating_add(1) => *end = last.max(*end),
            _ => ranges.push((family, first, last)),
        }
    }
    let address = |family: Family, number| family.address(number).expect("a prefix's bounds are of its family");
    ranges.into_iter().map(|(family, first, last)| [address(family, first), address(family, last)]).collect()
}

/// The sets, one of each for either family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    Announced(Family),
    Served(Family),
    Limited(Family),
    Admitted(Family),
    Aggregated(Family),
    Assigned(Family),
}

impl Set {
    pub(super) const ALL: [Self; 12] = [
        Self::Announced(Family::V4),
        Self::Announced(Family::V6),
        Self::Served(Family::V4),
        Self::Served(Family::V6),
        Self::Limited(Family::V4),
        Self::Limited(Family::V6),
        Self::Admitted(Family::V4),
        Self::Admitted(Family::V6),
        Self::Aggregated(Family::V4),
        Self::Aggregated(Family::V6),
        Self::Assigned(Family::V4),
        Self::Assigned(Family::V6),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Announced(Family::V4) => "announced4",
            Self::Announced(Family::V6) => "announced6",
            Self::Served(Family::V4) => "served4",
            Self::Served(Family::V6) => "served6",
            Self::Limited(Family::V4) => "limited4",
            Self::Limited(Family::V6) => "limited6",
            Self::Admitted(Family::V4) => "admitted4",
            Self::Admitted(Family::V6) => "admitted6",
            Self::Aggregated(Family::V4) => "aggregated4",
            Self::Aggregated(Family::V6) => "aggregated6",
            Self::Assigned(Family::V4) => "assigned4",
            Self::Assigned(Family::V6) => "assigned6",
        }
    }

    /// The parts of its key: what `nft` calls their types, and their lengths in bytes.
    fn key(self) -> Vec<(u32, u32)> {
        const PORT: [(u32, u32); 2] = [(12, 1), (13, 2)];
        let address = |family| match family {
            Family::V4 => (7, 4),
            Family::V6 => (8, 16),
        };
        match self {
            Self::Announced(family) | Self::Aggregated(family) | Self::Assigned(family) => vec![address(family)],
            Self::Served(family) | Self::Limited(family) => vec![address(family), PORT[0], PORT[1]],
            Self::Admitted(family) => vec![address(family), PORT[0], PORT[1], address(family)],
        }
    }

    pub(super) fn create(self, id: u32) -> Request {
        const INTERVALS: u32 = 0x4;
        const PARTS: u32 = 0x80;
        let key = self.key();
        // Six bits for each type; each part begins a word.
        let kind = key.iter().fold(0, |kinds, (kind, _)| kinds << 6 | kind);
        let length = key.iter().map(|(_, length)| length.next_multiple_of(4)).sum();
        let flags = match self {
            Self::Admitted(_) => INTERVALS | PARTS,
            Self::Aggregated(_) => INTERVALS,
            Self::Announced(_) | Self::Served(_) | Self::Limited(_) | Self::Assigned(_) => 0,
        };
        let mut attributes = named_in_table().text(2, self.name()).number(3, flags).number(4, kind).number(5, length);
        if flags & PARTS != 0 {
            let parts = key.iter().map(|(_, length)| Attributes::default().number(1, *length));
            attributes = attributes.nested(9, Attributes::default().list(2, parts));
        }
        Request { verb: Verb::NewSet, attributes: attributes.number(10, id) }
    }
}

fn address_elements(verb: Verb, addresses: &BTreeSet<IpAddr>, set: fn(Family) -> Set) -> Vec<Request> {
    elements(verb, addresses, set, |address| *address, |address| vec![exactly(&octets(*address))])
}

/// A range is an element where it begins and one behind its end.
fn range_elements(verb: Verb, ranges: &BTreeSet<Range>) -> Vec<Request> {
    /// `NFT_SET_ELEM_INTERVAL_END`.
    const END: u32 = 1;
    let ends = |[first, last]: &Range| {
        let behind = Prefix::host(*last).bounds().1.checked_add(1).and_then(|number| Family::of(*last).address(number));
        let behind = behind.map(|behind| exactly(&octets(behind)).number(3, END));
        [exactly(&octets(*first))].into_iter().chain(behind).collect()
    };
    elements(verb, ranges, Set::Aggregated, |[first, _]| *first, ends)
}

fn port_elements(verb: Verb, ports: &BTreeSet<ServedPort>, set: fn(Family) -> Set) -> Vec<Request> {
    elements(verb, ports, set, |port| port.address, |port| vec![exactly(&port_key(port))])
}

fn admission_elements(verb: Verb, admissions: &BTreeSet<Admission>) -> Vec<Request> {
    const LAST: u16 = 10;
    let element = |admission: &Admission| {
        let port = port_key(&admission.to);
        let [first, last] = bounds(admission.from).map(|address| [&port[..], &octets(address)].concat());
        vec![exactly(&first).nested(LAST, value(&last))]
    };
    elements(verb, admissions, Set::Admitted, |admission| admission.to.address, element)
}

/// An element that is one key.
fn exactly(key: &[u8]) -> Attributes {
    Attributes::default().nested(1, value(key))
}

fn port_key(port: &ServedPort) -> Vec<u8> {
    let mut key = octets(port.address);
    key.extend([port.protocol.number(), 0, 0, 0]);
    key.extend(port.port.to_be_bytes());
    key.extend([0, 0]);
    key
}

fn bounds(prefix: Prefix) -> [IpAddr; 2] {
    let (first, last) = prefix.bounds();
    let address = |number| prefix.family().address(number).expect("a prefix's bounds are of its family");
    [address(first), address(last)]
}

fn elements<T: Ord>(
    verb: Verb,
    all: &BTreeSet<T>,
    set: fn(Family) -> Set,
    address: impl Fn(&T) -> IpAddr,
    parts: impl Fn(&T) -> Vec<Attributes>,
) -> Vec<Request> {
    let mut requests = Vec::new();
    for family in FAMILIES {
        let these: Vec<&T> = all.iter().filter(|one| Family::of(address(one)) == family).collect();
        for some in these.chunks(ELEMENTS) {
            let list = some.iter().flat_map(|one| parts(one));
            let attributes = named_in_table().text(2, set(family).name()).list(3, list);
            requests.push(Request { verb, attributes });
        }
    }
    requests
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(super) fn named_in_table() -> Attributes {
    Attributes::default().text(1, TABLE)
}

#[cfg(test)]
mod tests;
