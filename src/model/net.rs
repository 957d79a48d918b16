//! Network terms: prefixes, AS numbers, router ids.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text or number is not the network term it should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NetError {
    /// The text is not `address/length`.
    #[error("{text:?} is not a prefix: it takes the form address/length, such as 10.244.1.0/24 or fd00:244::/64")]
    NotAPrefix {
        /// The refused text.
        text: String,
    },
    /// The address has bits set beyond its length.
    #[error("{text:?} has host bits set: the prefix is {network}")]
    HostBitsSet {
        /// The refused text.
        text: String,
        /// The prefix with those bits cleared.
        network: Prefix,
    },
    /// An AS number that RFC 7607 and RFC 7300 reserve.
    #[error("{number} is not an AS number: it takes 1 to 4294967294, without 23456 and 65535 (RFC 6793, RFC 7300)")]
    ReservedAsn {
        /// The refused number.
        number: u32,
    },
    /// A BGP identifier of zero (RFC 6286 §2.1).
    #[error("0.0.0.0 is not a router ID")]
    ZeroRouterId,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Bits in an address: 32 or 128.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The address of this number, or `None` when it has too many bits.
    pub fn address(self, number: u128) -> Option<IpAddr> {
        match self {
            Self::V4 => u32::try_from(number).ok().map(|number| IpAddr::V4(number.into())),
            Self::V6 => Some(IpAddr::V6(number.into())),
        }
    }
}

/// An address as a number, the most significant bit first.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A destination of packets: an address and a length, no bits set beyond the length.
///
/// Written `10.244.1.0/24`. Ordered by family, address and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix(IpNetwork);

impl Prefix {
    /// The prefix of this length that holds `address`, or `None` when the length exceeds the family's.
    pub fn containing(address: IpAddr, length: u8) -> Option<Self> {
        let network = IpNetwork::new(address, length).ok()?;
        IpNetwork::new(network.network(), length).ok().map(Self)
    }

    /// The prefix of one address: /32 or /128.
    pub fn host(address: IpAddr) -> Self {
        Self(IpNetwork::from(address))
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.0.ip()
    }

    /// Its length in bits.
    pub fn length(&self) -> u8 {
        self.0.prefix()
    }

    /// Its address family.
    pub fn family(&self) -> Family {
        Family::of(self.0.ip())
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }

    /// All wider prefixes that it lies in, the widest first.
    pub fn around(&self) -> impl Iterator<Item = Self> + use<> {
        let address = self.address();
        (0..self.length()).filter_map(move |length| Self::containing(address, length))
    }

    /// Its first and its last address, as numbers.
    pub fn bounds(&self) -> (u128, u128) {
        let first = number(self.address());
        let host_bits = u32::from(self.family().bits() - self.length());
        // A shift by all 128 bits would overflow: the prefix is everything.
        (first, first | 1_u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1))
    }

    /// Whether the two share an address.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.contains(other.address()) || other.contains(self.address())
    }
}

impl FromStr for Prefix {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        // `IpNetwork` also takes a bare address; a prefix always says its length.
        let refused = || NetError::NotAPrefix { text: text.to_owned() };
        if !text.contains('/') {
            return Err(refused());
        }
        let written: IpNetwork = text.parse().map_err(|_| refused())?;
        let network = Self::containing(written.ip(), written.prefix()).ok_or_else(refused)?;
        if network.address() == written.ip() {
            Ok(network)
        } else {
            Err(NetError::HostBitsSet { text: text.to_owned(), network })
        }
    }
}

impl TryFrom<String> for Prefix {
    type Error = NetError;

    fn try_from(text: String) -> Result<Self, NetError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> String {
        prefix.to_string()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.ip(), self.0.prefix())
    }
}

/// An autonomous system number, four octets wide (RFC 6793).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Asn(u32);

impl Asn {
    /// AS_TRANS, what a four-octet number looks like to a two-octet speaker (RFC 6793 §9).
    pub const TRANS: u16 = 23456;

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Asn {
    type Error = NetError;

    fn try_from(number: u32) -> Result<Self, NetError> {
        // RFC 7607 §2: 0; RFC 6793 §9: 23456; RFC 7300 §2: the last number of either width.
        match number {
            0 | 23456 | 65535 | u32::MAX => Err(NetError::ReservedAsn { number }),
            _ => Ok(Self(number)),
        }
    }
}

impl From<Asn> for u32 {
    fn from(asn: Asn) -> u32 {
        asn.0
    }
}

impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A BGP identifier: four octets, not zero, unique within the AS (RFC 6286 §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Ipv4Addr", into = "Ipv4Addr")]
pub struct RouterId(Ipv4Addr);

impl RouterId {
    /// The id in the form of an address.
    pub fn get(self) -> Ipv4Addr {
        self.0
    }
}

impl TryFrom<Ipv4Addr> for RouterId {
    type Error = NetError;

    fn try_from(id: Ipv4Addr) -> Result<Self, NetError> {
        if id.is_unspecified() { Err(NetError::ZeroRouterId) } else { Ok(Self(id)) }
    }
}

impl From<RouterId> for Ipv4Addr {
    fn from(id: RouterId) -> Ipv4Addr {
        id.0
    }
}

impl fmt::Display for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_says_its_length_and_has_no_host_bits() {
        for (text, want) in [
            ("10.244.1.0/24", Ok("10.244.1.0/24")),
            ("fd00:244::/64", Ok("fd00:244::/64")),
            ("0.0.0.0/0", Ok("0.0.0.0/0")),
            ("10.60.0.10/32", Ok("10.60.0.10/32")),
            ("10.244.1.7/24", Err("\"10.244.1.7/24\" has host bits set: the prefix is 10.244.1.0/24")),
            (
                "10.244.1.0",
                Err(
                    "\"10.244.1.0\" is not a prefix: it takes the form address/length, such as 10.244.1.0/24 or fd00:244::/64",
                ),
            ),
        ] {
            let got = text.parse::<Prefix>().map(|p| p.to_string()).map_err(|e| e.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{text:?}");
        }
        assert!("10.0.0.0/33".parse::<Prefix>().is_err());
    }

    #[test]
    fn reserved_as_numbers_are_refused() {
        for number in [0, 23456, 65535, u32::MAX] {
            assert!(Asn::try_from(number).is_err(), "{number}");
        }
        assert_eq!(Asn::try_from(4_200_000_000).map(Asn::get), Ok(4_200_000_000));
    }

    #[test]
    fn the_bounds_of_a_prefix_are_its_first_and_last_address() {
        for (text, first, last) in [
            ("10.244.1.0/24", "10.244.1.0", "10.244.1.255"),
            ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
            ("10.60.0.10/32", "10.60.0.10", "10.60.0.10"),
            ("::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("fd00:244::/64", "fd00:244::", "fd00:244::ffff:ffff:ffff:ffff"),
        ] {
            let prefix: Prefix = text.parse().expect("a prefix");
            let (low, high) = prefix.bounds();
            let read = |number| prefix.family().address(number).expect("an address").to_string();
            assert_eq!((read(low).as_str(), read(high).as_str()), (first, last), "{text}");
        }
        assert_eq!(Family::V4.address(1 << 32), None);
    }

    #[test]
    fn prefixes_overlap_when_one_holds_the_other() {
        let p = |text: &str| text.parse::<Prefix>().expect("a prefix");
        assert!(p("10.0.0.0/8").overlaps(&p("10.60.0.0/24")));
        assert!(p("10.60.0.0/24").overlaps(&p("10.0.0.0/8")));
        assert!(!p("10.60.0.0/24").overlaps(&p("10.61.0.0/24")));
        assert!(!p("10.0.0.0/8").overlaps(&p("fd00::/8")));
    }
}
