//! Addresses from a first to a last one: pure.

use std::net::IpAddr;

use serde::Serialize;

use crate::config::AddressBlock;
use crate::model::{Family, Prefix};

/// Addresses of one family from a first to a last one, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Span {
    /// Their family.
    pub family: Family,
    /// The first, as a number.
    pub first: u128,
    /// The last, as a number.
    pub last: u128,
}

impl Span {
    /// Whether the two share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.last && other.first <= self.last
    }
}

impl From<Prefix> for Span {
    fn from(prefix: Prefix) -> Self {
        let (first, last) = prefix.bounds();
        Self { family: prefix.family(), first, last }
    }
}

impl From<AddressBlock> for Span {
    fn from(block: AddressBlock) -> Self {
        Self { family: block.family(), first: block.first_number(), last: block.last_number() }
    }
}

impl From<IpAddr> for Span {
    fn from(address: IpAddr) -> Self {
        Self::from(Prefix::host(address))
    }
}
