//! Whose a Service address is, where more than one Service has it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::views::ServiceView;
use super::{ServiceKey, Term};

/// The annotation that says when a Service was given its addresses, a [`Term`].
pub const ALLOCATION: &str = "cairn.dev/allocation";
/// Spellings of the annotation that lets Services share addresses.
pub const SHARING: [&str; 3] =
    ["cairn.dev/allow-shared-ip", "metallb.io/allow-shared-ip", "metallb.universe.tf/allow-shared-ip"];

/// A Service's right to its addresses; of several the least has it.
///
/// The highest term: its leader gave the address when those of lower ones did not lead any more. Of
/// those without a term, whoever has it longest by its own condition. Never the older Service: which
/// of two was created first says nothing of whose clients use the address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    term: Reverse<Option<Term>>,
    since_seconds: i64,
    key: ServiceKey,
}

impl Claim {
    /// A Service's.
    pub fn of(service: &ServiceView) -> Self {
        let term = service.annotations.get(ALLOCATION).and_then(|text| text.parse().ok());
        let since_seconds = service.assigned_seconds.unwrap_or(i64::MAX);
        Self { term: Reverse(term), since_seconds, key: service.key.clone() }
    }
}

/// Which addresses Services have without a right to them, because others do and they do not share.
///
/// Two share when they say the same key and have no port in common. What else the leader asks of
/// them it sees to itself, and until then both go on.
pub fn without_right<'a>(
    services: impl IntoIterator<Item = &'a ServiceView>,
) -> BTreeMap<&'a ServiceKey, BTreeSet<IpAddr>> {
    let mut holders = BTreeMap::<IpAddr, Vec<&ServiceView>>::new();
    for service in services {
        for address in service.ingress.iter().filter_map(|entry| entry.ip) {
            holders.entry(address).or_default().push(service);
        }
    }
    let mut lost = BTreeMap::<_, BTreeSet<_>>::new();
    for (address, mut several) in holders.into_iter().filter(|(_, holders)| holders.len() > 1) {
        several.sort_by_cached_key(|service| Claim::of(service));
        let mut by_right = Vec::<&ServiceView>::new();
        for service in several {
            if by_right.iter().all(|other| share(other, service)) {
                by_right.push(service);
            } else {
                lost.entry(&service.key).or_default().insert(address);
            }
        }
    }
    lost
}

fn share(one: &ServiceView, other: &ServiceView) -> bool {
    // The same Service may name an address twice.
    one.key == other.key
        || sharing_key(one).is_some_and(|key| sharing_key(other) == Some(key)) && one.ports.is_disjoint(&other.ports)
}

/// The key by which a Service shares addresses: of several spellings the first.
pub fn sharing_key(service: &ServiceView) -> Option<&str> {
    let said = SHARING.iter().filter_map(|name| service.annotations.get(*name)).map(|text| text.trim());
    said.into_iter().find(|key| !key.is_empty())
}
