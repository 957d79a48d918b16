//! Claims: who has a block, before its Node says so. Pure.
//!
//! A claim is a Lease named after the block. Creating an object is atomic, so of two processes that
//! would give the same block to two Nodes at the same time, only one gets to the Node at all. A
//! claim stays for as long as its Node: a process that has not heard yet of a Node's pod CIDR is
//! stopped by it later as well.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::{NodeName, Prefix};

/// The namespace of the Leases: the right to write them then says nothing of other Leases.
pub const NAMESPACE: &str = "cairn-pod-cidrs";
const STEM: &str = "cairn-cidr-";

/// A Lease that claims a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The block, from the Lease's name.
    pub block: Prefix,
    /// Whose it is; `None` when `spec.holderIdentity` does not say.
    pub holder: Option<Holder>,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `spec.acquireTime` in microseconds since 1970.
    pub acquired_microseconds: i128,
}

/// Whose a claim is: `spec.holderIdentity`, written `node/uid`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// The Node's name.
    pub node: NodeName,
    /// The Node's uid: a Node that is registered again is another one.
    pub uid: String,
}

impl FromStr for Holder {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (node, uid) = text.split_once('/').ok_or(())?;
        let node = node.parse().map_err(drop)?;
        if uid.is_empty() { Err(()) } else { Ok(Self { node, uid: uid.to_owned() }) }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.uid)
    }
}

/// The name of the Lease that claims a block: `cairn-cidr-10-244-3-0-24`, and all eight groups of an
/// IPv6 address, so that each block has one name, which is a DNS label.
pub fn name(block: Prefix) -> String {
    let parts: Vec<String> = match block.address() {
        IpAddr::V4(address) => address.octets().iter().map(ToString::to_string).collect(),
        IpAddr::V6(address) => address.segments().iter().map(|group| format!("{group:x}")).collect(),
    };
    format!("{STEM}{}-{}", parts.join("-"), block.length())
}

/// The block that a Lease of this name claims.
pub fn block(name: &str) -> Option<Prefix> {
    let parts: Vec<_> = name.strip_prefix(STEM)?.split('-').collect();
    let address = match parts.as_slice() {
        [a, b, c, d, _] => {
            let octets = [a, b, c, d].map(|part| part.parse::<u8>().ok());
            let [Some(a), Some(b), Some(c), Some(d)] = octets else { return None };
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        [groups @ .., _] if groups.len() == 8 => {
            let mut address = [0_u16; 8];
            for (group, part) in address.iter_mut().zip(groups) {
                *group = u16::from_str_radix(part, 16).ok()?;
            }
            IpAddr::V6(Ipv6Addr::from(address))
        }
        _ => return None,
    };
    let block = Prefix::containing(address, parts.last()?.parse().ok()?)?;
    // Another spelling of the name would be another Lease for the same block.
    (self::name(block) == name).then_some(block)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_claim_is_named_after_its_block() {
        for (text, want) in [
            ("10.244.3.0/24", "cairn-cidr-10-244-3-0-24"),
            ("0.0.0.0/0", "cairn-cidr-0-0-0-0-0"),
            ("fd00:244:0:1f::/64", "cairn-cidr-fd00-244-0-1f-0-0-0-0-64"),
            ("::/1", "cairn-cidr-0-0-0-0-0-0-0-0-1"),
        ] {
            let prefix: Prefix = text.parse().expect("a prefix");
            assert_eq!(name(prefix), want);
            assert_eq!(block(want), Some(prefix));
        }
    }

    #[test]
    fn other_names_claim_nothing() {
        for name in [
            "kube-scheduler",
            "cairn-cidr-",
            "cairn-cidr-10-244-3-0",
            "cairn-cidr-10-244-3-0-33",
            "cairn-cidr-10-244-3-1-24",
            "cairn-cidr-10-244-03-0-24",
            "cairn-cidr-10-244-256-0-24",
            "cairn-cidr-fd00-0244-0-1f-0-0-0-0-64",
            "cairn-cidr-fd00-244-0-1f-0-0-0-64",
            "cairn-cidr-10-244-3-0-24-",
        ] {
            assert_eq!(block(name), None, "{name}");
        }
    }

    #[test]
    fn a_holder_is_a_node_and_its_uid() {
        let holder: Holder = "n1.example/8f3a".parse().expect("a holder");
        assert_eq!((holder.node.as_str(), holder.uid.as_str()), ("n1.example", "8f3a"));
        assert_eq!(holder.to_string(), "n1.example/8f3a");
        for text in ["", "n1", "n1/", "/8f3a", "N1/8f3a"] {
            assert!(text.parse::<Holder>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_block_has_one_name_and_it_is_a_dns_label(address: u128, length in 0_u8..=128) {
            let prefix = Prefix::containing(IpAddr::V6(address.into()), length).expect("a prefix");
            let name = name(prefix);
            prop_assert!(name.len() <= 63 && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'));
            prop_assert_eq!(block(&name), Some(prefix));
        }

        #[test]
        fn no_name_panics(name in "cairn-cidr-[0-9a-f-]{0,50}") {
            let _ = block(&name);
        }
    }
}
