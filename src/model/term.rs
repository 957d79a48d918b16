//! Terms: when an address was given, in a time that no clock and no second leader can bend.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// When an address was given to a Service: in which lease, and as which of that leader's gifts.
///
/// Written `<leaseTransitions>.<n>`, such as `4.117`. Of two Services that hold one address, the one of
/// the lower term has to give way: its leader no longer led when the other one's gave the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Term {
    /// `spec.leaseTransitions` of the Lease under which it was given.
    pub lease: u64,
    /// Counts what was given under that Lease, from 1.
    pub number: u64,
}

/// The text is not a term.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a term: it takes two numbers with a dot between, such as 4.117")]
pub struct NotATerm {
    text: String,
}

impl FromStr for Term {
    type Err = NotATerm;

    fn from_str(text: &str) -> Result<Self, NotATerm> {
        let refused = || NotATerm { text: text.to_owned() };
        // `u64` also reads `+1`.
        let number = |part: &str| {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| part.parse().ok()).flatten().ok_or_else(refused)
        };
        let (lease, count) = text.split_once('.').ok_or_else(refused)?;
        Ok(Self { lease: number(lease)?, number: number(count)? })
    }
}

impl TryFrom<String> for Term {
    type Error = NotATerm;

    fn try_from(text: String) -> Result<Self, NotATerm> {
        text.parse()
    }
}

impl From<Term> for String {
    fn from(term: Term) -> String {
        term.to_string()
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.lease, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_ordered_by_lease_and_then_by_number() {
        let term = |text: &str| text.parse::<Term>().expect("a term");
        assert!(term("4.117") < term("5.1") && term("5.2") < term("5.10"));
        assert_eq!(term("4.117").to_string(), "4.117");
        for text in ["", "4", "4.", ".1", "4.1.1", "+4.1", "-1.1", "4.x", "99999999999999999999.1"] {
            assert!(text.parse::<Term>().is_err(), "{text:?}");
        }
    }
}
