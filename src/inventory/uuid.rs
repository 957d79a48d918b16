//! System UUIDs, and the ways in which firmware gets them wrong.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A machine's system UUID (SMBIOS type 1), as firmware, kernel and kubelet spell it.
///
/// Read in any case, with or without braces and hyphens; written in lower case with hyphens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SystemUuid(u128);

/// Why a text is not a system UUID.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UuidError {
    /// The text is not 32 hexadecimal digits.
    #[error("{text:?} is not a UUID: it takes the form 4c4c4544-0035-3410-8050-c6c04f314733")]
    NotAUuid {
        /// The refused text.
        text: String,
    },
}

/// What boards say whose maker gave them no UUID, seen on many machines at once.
const PLACEHOLDERS: [u128; 6] = [
    0,
    u128::MAX,
    0x0300_0200_0400_0500_0006_0007_0008_0009,
    0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f,
    0xfefe_fefe_fefe_fefe_fefe_fefe_fefe_fefe,
    0x1234_5678_1234_5678_90ab_cdde_efaa_bbcc,
];

impl SystemUuid {
    /// The same UUID with the bytes of its first three fields reversed.
    ///
    /// SMBIOS before 2.6 is big-endian, later ones are mixed, and tools disagree on which they read
    /// (DSP0134 §7.2.1), so one machine shows either of the two.
    pub fn swapped(self) -> Self {
        let mut bytes = self.0.to_be_bytes();
        bytes[0..4].reverse();
        bytes[4..6].reverse();
        bytes[6..8].reverse();
        Self(u128::from_be_bytes(bytes))
    }

    /// One value for both byte orders: two UUIDs of one machine have the same.
    pub fn in_either_order(self) -> Self {
        self.min(self.swapped())
    }

    /// Whether it is a value that boards without a UUID share.
    pub fn is_placeholder(self) -> bool {
        PLACEHOLDERS.iter().any(|junk| Self(*junk).in_either_order() == self.in_either_order())
    }
}

impl FromStr for SystemUuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        let refused = || UuidError::NotAUuid { text: text.to_owned() };
        let bare = text.trim().trim_start_matches('{').trim_end_matches('}');
        let digits: String = bare.chars().filter(|c| *c != '-').collect();
        if digits.len() != 32 || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(refused());
        }
        u128::from_str_radix(&digits, 16).map(Self).map_err(|_| refused())
    }
}

impl TryFrom<String> for SystemUuid {
    type Error = UuidError;

    fn try_from(text: String) -> Result<Self, UuidError> {
        text.parse()
    }
}

impl From<SystemUuid> for String {
    fn from(uuid: SystemUuid) -> String {
        uuid.to_string()
    }
}

impl fmt::Display for SystemUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uuid(text: &str) -> SystemUuid {
        text.parse().expect("a UUID")
    }

    #[test]
    fn spellings_of_one_uuid_are_equal() {
        let want = uuid("4c4c4544-0035-3410-8050-c6c04f314733");
        for text in [
            "4C4C4544-0035-3410-8050-C6C04F314733",
            "{4c4c4544-0035-3410-8050-c6c04f314733}",
            "4c4c454400353410 8050c6c04f314733".replace(' ', "").as_str(),
        ] {
            assert_eq!(uuid(text), want, "{text}");
        }
        for text in ["", "4c4c4544", "4c4c4544-0035-3410-8050-c6c04f31473g", "Not Specified"] {
            assert!(text.parse::<SystemUuid>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_swapped_variant_reverses_the_first_three_fields() {
        let one = uuid("4c4c4544-0035-3410-8050-c6c04f314733");
        let other = uuid("44454c4c-3500-1034-8050-c6c04f314733");
        assert_eq!(one.swapped(), other);
        assert_eq!(one.in_either_order(), other.in_either_order());
    }

    #[test]
    fn placeholders_are_known_in_both_byte_orders() {
        for text in [
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "03000200-0400-0500-0006-000700080009",
            "00020003-0004-0005-0006-000700080009",
        ] {
            assert!(uuid(text).is_placeholder(), "{text}");
        }
        assert!(!uuid("4c4c4544-0035-3410-8050-c6c04f314733").is_placeholder());
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(number: u128) {
            let one = SystemUuid(number);
            prop_assert_eq!(uuid(&one.to_string()), one);
            prop_assert_eq!(one.swapped().swapped(), one);
        }

        #[test]
        fn no_text_panics(text in ".{0,50}") {
            let _ = text.parse::<SystemUuid>();
        }
    }
}
