//! MAC addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The address of a network card, EUI-48.
///
/// Read with colons or hyphens in any case; written `70:b5:e8:f0:52:dc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress([u8; 6]);

/// Why a text is not a MAC address of one network card.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MacError {
    /// The text is not six pairs of hexadecimal digits.
    #[error("{text:?} is not a MAC address: it takes the form 70:b5:e8:f0:52:dc")]
    NotAMac {
        /// The refused text.
        text: String,
    },
    /// The address is a group's or nobody's.
    #[error("{mac} is no network card's address: it takes one with an even first byte that is not all zeros")]
    NotACard {
        /// The refused address.
        mac: MacAddress,
    },
}

impl FromStr for MacAddress {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let octet = |pair: &str| {
            let is_hex = pair.len() == 2 && pair.chars().all(|c| c.is_ascii_hexdigit());
            is_hex.then(|| u8::from_str_radix(pair, 16).ok()).flatten()
        };
        let octets: Option<Vec<u8>> = text.split([':', '-']).map(octet).collect();
        let octets: Option<[u8; 6]> = octets.and_then(|octets| octets.try_into().ok());
        let mac = octets.map(Self).ok_or_else(|| MacError::NotAMac { text: text.to_owned() })?;
        // IEEE 802: the lowest bit of the first byte marks a group.
        if mac.0[0] & 1 == 1 || mac.0 == [0; 6] { Err(MacError::NotACard { mac }) } else { Ok(mac) }
    }
}

impl TryFrom<String> for MacAddress {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, MacError> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(mac: MacAddress) -> String {
        mac.to_string()
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_address_are_equal_and_others_are_refused() {
        for text in ["70:b5:e8:f0:52:dc", "70-B5-E8-F0-52-DC"] {
            assert_eq!(text.parse::<MacAddress>().expect("an address").to_string(), "70:b5:e8:f0:52:dc");
        }
        for text in ["", "70:b5:e8:f0:52", "70:b5:e8:f0:52:dc:00", "70:b5:e8:f0:52:+1", "00:00:00:00:00:00"] {
            assert!(text.parse::<MacAddress>().is_err(), "{text:?}");
        }
        let group = "ff:ff:ff:ff:ff:ff".parse::<MacAddress>().expect_err("a group's");
        assert_eq!(
            group.to_string(),
            "ff:ff:ff:ff:ff:ff is no network card's address: it takes one with an even first byte that is not all zeros"
        );
    }
}
