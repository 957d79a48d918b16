//! Blocks of addresses, written as a CIDR or as first and last address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::model::{Family, Prefix};

/// Addresses of one family from a first to a last one, both included.
///
/// Read from `10.60.0.0/24` or `10.60.0.10-10.60.0.99`; written as a CIDR where it is one. Every
/// address in it is one that packets can be routed to: no loopback, link-local, multicast or
/// unspecified ones. Ordered by family, first and last address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressBlock {
    family: Family,
    first: u128,
    last: u128,
}

/// Why a text is not a block of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BlockError {
    /// Neither a CIDR nor a range.
    #[error(
        "{text:?} is not a block of addresses: it takes a CIDR such as 10.60.0.0/24 or first and last address such as \
         10.60.0.10-10.60.0.99"
    )]
    NotABlock {
        /// The refused text.
        text: String,
    },
    /// An address alone.
    #[error("{address} does not say how many addresses: write {address}/{bits} for this one alone")]
    NoLength {
        /// The address.
        address: IpAddr,
        /// 32 or 128.
        bits: u8,
    },
    /// A CIDR whose address is not its first.
    #[error(
        "{text} starts inside its network: write {network} for the whole of it, or {address}/{bits} for this one address"
    )]
    HostBitsSet {
        /// The refused text.
        text: String,
        /// The network, `address/length`.
        network: IpNetwork,
        /// The address.
        address: IpAddr,
        /// 32 or 128.
        bits: u8,
    },
    /// A range whose ends are of different families.
    #[error("{first}-{last} goes from {} to {}: it takes two addresses of one family", Family::of(*first), Family::of(*last))]
    FamiliesMixed {
        /// The first address.
        first: IpAddr,
        /// The last address.
        last: IpAddr,
    },
    /// A range that ends before it starts.
    #[error("{first}-{last} ends before it starts: write {last}-{first}")]
    Backwards {
        /// The first address.
        first: IpAddr,
        /// The last address.
        last: IpAddr,
    },
    /// A block with addresses that cannot be routed to.
    #[error(
        "{block} holds {what} addresses ({special}), which routers do not carry: it takes addresses of your network"
    )]
    NotRoutable {
        /// The block.
        block: AddressBlock,
        /// What the addresses are.
        what: &'static str,
        /// The block they are in.
        special: AddressBlock,
    },
}

impl AddressBlock {
    /// Its first address.
    pub fn first(&self) -> IpAddr {
        address(self.family, self.first)
    }

    /// Its last address, part of it.
    pub fn last(&self) -> IpAddr {
        address(self.family, self.last)
    }

    /// Its first address as a number.
    pub fn first_number(&self) -> u128 {
        self.first
    }

    /// Its last address as a number.
    pub fn last_number(&self) -> u128 {
        self.last
    }

    /// Its family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// How many addresses it has.
    pub fn size(&self) -> u128 {
        // The whole of IPv6 would not fit; it is not routable, so no block is that large.
        (self.last - self.first).saturating_add(1)
    }

    /// The address this many after the first, or `None` past the last.
    pub fn address_at(&self, offset: u128) -> Option<IpAddr> {
        let number = self.first.checked_add(offset)?;
        (number <= self.last).then(|| address(self.family, number))
    }

    /// Whether the address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(address) == self.family && (self.first..=self.last).contains(&number(address))
    }

    /// Whether the two share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.last && other.first <= self.last
    }

    /// Of one address.
    pub fn only(address: IpAddr) -> Self {
        Self::between(address, address)
    }

    /// What is left of it without the addresses of `other`: nothing, one or two blocks.
    pub fn without(&self, other: &Self) -> impl Iterator<Item = Self> + use<> {
        let Self { family, first, last } = *self;
        let is_apart = !self.overlaps(other);
        let before = (other.first > first).then(|| Self { family, first, last: last.min(other.first.wrapping_sub(1)) });
        let after = (other.last < last).then(|| Self { family, first: first.max(other.last.wrapping_add(1)), last });
        let (before, after) = if is_apart { (Some(*self), None) } else { (before, after) };
        before.into_iter().chain(after)
    }

    /// The addresses that both have.
    pub fn common(&self, other: &Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        self.overlaps(other).then_some(Self { family: self.family, first, last })
    }

    /// The same without its first and last address, when it is a CIDR of more than two.
    pub fn inner(&self) -> Self {
        match self.cidr_length() {
            Some(length) if self.family.bits() - length > 1 => {
                Self { first: self.first + 1, last: self.last - 1, ..*self }
            }
            _ => *self,
        }
    }

    /// How many of its addresses end in .0 or .255; none of IPv6 do.
    pub fn buggy(&self) -> u128 {
        // Of the numbers below `end`, those that end in 0 (the first is 0 itself) and in 255.
        let below = |end: u128| end.div_ceil(256) + end / 256;
        match self.family {
            Family::V4 => below(self.last + 1) - below(self.first),
            Family::V6 => 0,
        }
    }

    /// The widest prefix of at least `length` bits that holds the address and reaches no further than
    /// the block; `None` when the address is not in the block, or no prefix is that long.
    pub fn aggregate(&self, address: IpAddr, length: u8) -> Option<Prefix> {
        let within = |prefix: &Prefix| Self::from(*prefix).is_within(self);
        (length..=self.family.bits()).filter_map(|length| Prefix::containing(address, length)).find(within)
    }

    /// Whether all its addresses are of `other`.
    pub fn is_within(&self, other: &Self) -> bool {
        self.family == other.family && other.first <= self.first && self.last <= other.last
    }

    fn between(first: IpAddr, last: IpAddr) -> Self {
        Self { family: Family::of(first), first: number(first), last: number(last) }
    }

    fn of_network(network: IpNetwork) -> Self {
        let last = match network {
            IpNetwork::V4(network) => IpAddr::V4(network.broadcast()),
            IpNetwork::V6(network) => IpAddr::V6(network.broadcast()),
        };
        Self::between(network.network(), last)
    }

    /// The length of the CIDR that is exactly this block.
    fn cidr_length(&self) -> Option<u8> {
        let host_mask = self.first ^ self.last;
        let host_bits = u8::try_from(host_mask.count_ones()).expect("a u128 has at most 128 bits");
        let is_aligned = host_mask.trailing_ones() == u32::from(host_bits) && self.first & host_mask == 0;
        is_aligned.then(|| self.family.bits() - host_bits)
    }
}

/// Blocks without the addresses of others, in the same order.
pub fn subtract(from: &[AddressBlock], others: &[AddressBlock]) -> Vec<AddressBlock> {
    others.iter().fold(from.to_vec(), |left, other| left.iter().flat_map(|block| block.without(other)).collect())
}

/// The addresses of blocks that are in others as well, in the same order.
pub fn intersect(blocks: &[AddressBlock], others: &[AddressBlock]) -> Vec<AddressBlock> {
    blocks.iter().flat_map(|block| others.iter().filter_map(|other| block.common(other))).collect()
}

/// Whether packets to the address can be routed: none that is special to a host, a link or a group.
pub fn is_routable(address: IpAddr) -> bool {
    what_is_special(address).is_none()
}

/// What an address that no router forwards is, and the block that makes it so: `a loopback address (127.0.0.0/8)`.
pub fn what_is_special(address: IpAddr) -> Option<String> {
    let (what, special) = not_routable().find(|(_, special)| special.contains(address))?;
    let article = if what.starts_with(['a', 'e', 'i', 'o', 'u', 'I']) { "an" } else { "a" };
    Some(format!("{article} {what} address ({special})"))
}

/// Whether an IPv4 address ends in .0 or .255.
pub fn is_buggy(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if matches!(address.octets()[3], 0 | 255))
}

impl From<Prefix> for AddressBlock {
    fn from(prefix: Prefix) -> Self {
        Self::of_network(IpNetwork::new(prefix.address(), prefix.length()).expect("a prefix is a network"))
    }
}

impl FromStr for AddressBlock {
    type Err = BlockError;

    fn from_str(text: &str) -> Result<Self, BlockError> {
        let block = match text.split_once('-') {
            Some((first, last)) => range(text, first.trim(), last.trim()),
            None => cidr(text.trim()),
        }?;
        match not_routable().find(|(_, special)| special.overlaps(&block)) {
            Some((what, special)) => Err(BlockError::NotRoutable { block, what, special }),
            None => Ok(block),
        }
    }
}

fn range(text: &str, first: &str, last: &str) -> Result<AddressBlock, BlockError> {
    let (Ok(first), Ok(last)) = (first.parse::<IpAddr>(), last.parse::<IpAddr>()) else {
        return Err(BlockError::NotABlock { text: text.to_owned() });
    };
    if Family::of(first) != Family::of(last) {
        Err(BlockError::FamiliesMixed { first, last })
    } else if first > last {
        Err(BlockError::Backwards { first, last })
    } else {
        Ok(AddressBlock::between(first, last))
    }
}

fn cidr(text: &str) -> Result<AddressBlock, BlockError> {
    // `IpNetwork` takes an address alone for a network of one.
    if let Ok(address) = text.parse::<IpAddr>() {
        return Err(BlockError::NoLength { address, bits: Family::of(address).bits() });
    }
    let Ok(written) = text.parse::<IpNetwork>() else {
        return Err(BlockError::NotABlock { text: text.to_owned() });
    };
    let address = written.ip();
    if written.network() == address {
        return Ok(AddressBlock::of_network(written));
    }
    let network = IpNetwork::new(written.network(), written.prefix()).expect("the length was just parsed");
    Err(BlockError::HostBitsSet { text: text.to_owned(), network, address, bits: Family::of(address).bits() })
}

/// Blocks of the IANA special-purpose registries (RFC 6890) whose addresses no router forwards.
fn not_routable() -> impl Iterator<Item = (&'static str, AddressBlock)> {
    let v4 = |octets: [u8; 4], length: u8| (IpAddr::from(octets), length);
    let v6 = |segments: [u16; 8], length: u8| (IpAddr::from(segments), length);
    [
        ("unspecified", v4([0, 0, 0, 0], 8)),
        ("loopback", v4([127, 0, 0, 0], 8)),
        ("link-local", v4([169, 254, 0, 0], 16)),
        ("multicast", v4([224, 0, 0, 0], 4)),
        ("broadcast", v4([255, 255, 255, 255], 32)),
        ("unspecified", v6([0; 8], 128)),
        ("loopback", v6([0, 0, 0, 0, 0, 0, 0, 1], 128)),
        ("IPv4-mapped", v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96)),
        ("link-local", v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10)),
        ("multicast", v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8)),
    ]
    .into_iter()
    .map(|(what, (address, length))| {
        (what, AddressBlock::of_network(IpNetwork::new(address, length).expect("the table holds networks")))
    })
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => {
            IpAddr::V4(Ipv4Addr::from(u32::try_from(number).expect("a number within an IPv4 block has 32 bits")))
        }
        Family::V6 => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

impl TryFrom<String> for AddressBlock {
    type Error = BlockError;

    fn try_from(text: String) -> Result<Self, BlockError> {
        text.parse()
    }
}

impl From<AddressBlock> for String {
    fn from(block: AddressBlock) -> String {
        block.to_string()
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cidr_length() {
            Some(length) => write!(f, "{}/{length}", self.first()),
            None => write!(f, "{}-{}", self.first(), self.last()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_is_a_cidr_or_a_range() {
        for (text, want) in [
            ("10.60.0.0/24", Ok("10.60.0.0/24")),
            ("fd60::/64", Ok("fd60::/64")),
            ("10.60.0.10-10.60.0.99", Ok("10.60.0.10-10.60.0.99")),
            (" 10.60.0.10 - 10.60.0.99 ", Ok("10.60.0.10-10.60.0.99")),
            ("10.60.0.0-10.60.0.255", Ok("10.60.0.0/24")),
            ("fd60::5-fd60::5", Ok("fd60::5/128")),
            (
                "10.60.0",
                Err(
                    "\"10.60.0\" is not a block of addresses: it takes a CIDR such as 10.60.0.0/24 or first and last address such as 10.60.0.10-10.60.0.99",
                ),
            ),
            ("10.60.0.7", Err("10.60.0.7 does not say how many addresses: write 10.60.0.7/32 for this one alone")),
            (
                "10.60.0.7/24",
                Err(
                    "10.60.0.7/24 starts inside its network: write 10.60.0.0/24 for the whole of it, or 10.60.0.7/32 for this one address",
                ),
            ),
            (
                "10.60.0.1-fd60::1",
                Err("10.60.0.1-fd60::1 goes from IPv4 to IPv6: it takes two addresses of one family"),
            ),
            ("10.60.0.9-10.60.0.1", Err("10.60.0.9-10.60.0.1 ends before it starts: write 10.60.0.1-10.60.0.9")),
            (
                "0.0.0.0/0",
                Err(
                    "0.0.0.0/0 holds unspecified addresses (0.0.0.0/8), which routers do not carry: it takes addresses of your network",
                ),
            ),
            (
                "224.0.0.5/32",
                Err(
                    "224.0.0.5/32 holds multicast addresses (224.0.0.0/4), which routers do not carry: it takes addresses of your network",
                ),
            ),
        ] {
            let got = text.parse::<AddressBlock>().map(|b| b.to_string()).map_err(|e| e.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(first in 0x0100_0000_u32..0x7eff_ffff, more in 0_u32..0xffff) {
            let (first, last) = (Ipv4Addr::from(first), Ipv4Addr::from(first.saturating_add(more).min(0x7eff_ffff)));
            let block: AddressBlock = format!("{first}-{last}").parse().expect("a block");
            prop_assert_eq!(block.to_string().parse::<AddressBlock>(), Ok(block));
            prop_assert_eq!((block.first(), block.last()), (IpAddr::V4(first), IpAddr::V4(last)));
            prop_assert_eq!(block.address_at(block.size() - 1), Some(block.last()));
            prop_assert_eq!(block.address_at(block.size()), None);
        }

        #[test]
        fn what_is_taken_away_and_what_is_left_are_the_whole(
            (a, b) in (0_u32..40, 0_u32..40), (c, d) in (0_u32..40, 0_u32..40)
        ) {
            let at = |number: u32| IpAddr::V4(Ipv4Addr::from(0x0a3c_0000 + number));
            let (one, other) = (AddressBlock::between(at(a.min(b)), at(a.max(b))), AddressBlock::between(at(c.min(d)), at(c.max(d))));
            for number in 0..40 {
                let (is_left, is_common) = (one.without(&other).any(|left| left.contains(at(number))), one.common(&other).is_some_and(|both| both.contains(at(number))));
                prop_assert_eq!(is_common, one.contains(at(number)) && other.contains(at(number)));
                prop_assert_eq!(is_left, one.contains(at(number)) && !other.contains(at(number)));
            }
        }

        #[test]
        fn buggy_addresses_are_counted_without_looking_at_each(first in 0_u32..2000, more in 0_u32..2000) {
            let at = |number: u32| IpAddr::V4(Ipv4Addr::from(0x0a3c_0000 + number));
            let block = AddressBlock::between(at(first), at(first + more));
            let counted = (first..=first + more).filter(|number| is_buggy(at(*number))).count();
            prop_assert_eq!(block.buggy(), counted as u128);
        }

        #[test]
        fn no_text_panics(text in "[0-9a-f:./ -]{0,50}") {
            let _ = text.parse::<AddressBlock>();
        }
    }
}
