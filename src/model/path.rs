//! What BGP says of a route besides its destination: communities and preferences.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Communities with names, as the IANA registry has them (RFC 1997, 3765, 7611, 7999, 8326).
const WELL_KNOWN: [(&str, u32); 7] = [
    ("graceful-shutdown", 0xffff_0000),
    ("accept-own", 0xffff_0001),
    ("blackhole", 0xffff_029a),
    ("no-export", 0xffff_ff01),
    ("no-advertise", 0xffff_ff02),
    ("no-export-subconfed", 0xffff_ff03),
    ("no-peer", 0xffff_ff04),
];

/// Not a community.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a community: it takes two numbers up to 65535 such as 64512:100, three up to 4294967295 such as \
     64512:1:2, or one of {}",
    WELL_KNOWN.map(|(name, _)| name).join(", ")
)]
pub struct CommunityError {
    text: String,
}

/// A mark that routers act on, of either width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Community {
    /// Four octets (RFC 1997), written `64512:100` or by a name such as `no-export`.
    Standard(u32),
    /// Twelve octets (RFC 8092), written `64512:1:2`.
    Large([u32; 3]),
}

impl FromStr for Community {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, CommunityError> {
        let refused = || CommunityError { text: text.to_owned() };
        if let Some((_, number)) = WELL_KNOWN.iter().find(|(name, _)| *name == text) {
            return Ok(Self::Standard(*number));
        }
        let parts = text.split(':').map(number).collect::<Option<Vec<u32>>>().ok_or_else(refused)?;
        match *parts {
            [high, low] if high.max(low) <= u32::from(u16::MAX) => Ok(Self::Standard(high << 16 | low)),
            [global, one, two] => Ok(Self::Large([global, one, two])),
            _ => Err(refused()),
        }
    }
}

/// Digits only: `u32::from_str` would take a sign as well.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl TryFrom<String> for Community {
    type Error = CommunityError;

    fn try_from(text: String) -> Result<Self, CommunityError> {
        text.parse()
    }
}

impl From<Community> for String {
    fn from(community: Community) -> String {
        community.to_string()
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(number) => match WELL_KNOWN.iter().find(|(_, known)| known == number) {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "{}:{}", number >> 16, number & 0xffff),
            },
            Self::Large([global, one, two]) => write!(f, "{global}:{one}:{two}"),
        }
    }
}

/// What a route is announced with; the default is what a route without a word about it gets.
///
/// Routers spread packets only over routes that are equal in all of this, so each node that
/// announces a prefix should say the same of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct PathAttributes {
    /// COMMUNITIES and LARGE_COMMUNITY; at most [`PathAttributes::COMMUNITIES`].
    pub communities: BTreeSet<Community>,
    /// LOCAL_PREF, on internal sessions only; 100 where nothing is said. Routers prefer the highest.
    pub local_preference: Option<u32>,
    /// MULTI_EXIT_DISC. Routers prefer the lowest.
    pub med: Option<u32>,
    /// How often the own AS number stands in AS_PATH once more, on external sessions only; at most
    /// [`PathAttributes::PREPEND`].
    pub prepend: u8,
}

impl PathAttributes {
    /// The most communities of a route: with any number of prefixes they fit into a message.
    pub const COMMUNITIES: usize = 128;
    /// The most often an AS number is prepended.
    pub const PREPEND: u8 = 16;
}

impl fmt::Display for PathAttributes {
    /// Everything that is said, parted by commas; nothing when nothing is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { communities, local_preference, med, prepend } = self;
        let mut words: Vec<_> = communities.iter().map(|community| format!("community {community}")).collect();
        words.extend(local_preference.map(|preference| format!("local preference {preference}")));
        words.extend(med.map(|med| format!("MED {med}")));
        words.extend((*prepend > 0).then(|| format!("AS number {prepend} times more")));
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communities_are_read_and_written_as_routers_show_them() {
        for (text, want) in [
            ("64512:100", Some(Community::Standard(0xfc00_0064))),
            ("0:0", Some(Community::Standard(0))),
            ("no-export", Some(Community::Standard(0xffff_ff01))),
            ("blackhole", Some(Community::Standard(65535 << 16 | 666))),
            ("4200000000:1:2", Some(Community::Large([4_200_000_000, 1, 2]))),
            ("64512", None),
            ("65536:1", None),
            ("1:2:4294967296", None),
            ("1:2:3:4", None),
            ("+1:2", None),
            ("1:", None),
            ("large:1:2:3", None),
            ("no_export", None),
            ("", None),
        ] {
            let got = text.parse::<Community>();
            assert_eq!(got.as_ref().ok(), want.as_ref(), "{text:?}");
            if let Ok(community) = got {
                assert_eq!(community.to_string(), text);
            }
        }
        assert_eq!("65535:65281".parse::<Community>().map(|c| c.to_string()).as_deref(), Ok("no-export"));
    }
}
