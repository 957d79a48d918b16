//! Chains of nftables that drop forwarded packets, as the kernel lists them.
//!
//! Those of iptables-nft are among them. Those of the older iptables are not to be seen this way, only whether it is
//! in use: the kernel lists its tables by name, and hands out what is in them by a socket option that takes unsafe code.

use super::forwarding::Chain;
use super::wire;
use crate::model::Family;

/// The multicast group that tells of nftables (`NFNLGRP_NFTABLES`).
pub(super) const GROUP: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES` and `NFT_MSG_GETCHAIN`.
pub(super) const GET_CHAIN: u16 = 10 << 8 | 4;

/// Length of `struct nfgenmsg`.
const HEADER: usize = 4;

/// `NFTA_CHAIN_*` and `NFTA_HOOK_*`.
mod attribute {
    pub(super) const TABLE: u16 = 1;
    pub(super) const NAME: u16 = 3;
    pub(super) const HOOK: u16 = 4;
    pub(super) const POLICY: u16 = 5;
    pub(super) const HOOK_NUMBER: u16 = 1;
}

/// `NF_INET_FORWARD`.
const FORWARD: u32 = 2;
/// `NF_DROP`.
const DROP: u32 = 0;

/// Asks for the chains of every family.
pub(super) fn chains_request() -> Vec<u8> {
    vec![0; HEADER]
}

/// Reads a chain; `None` for one that does not drop what it forwards.
pub(super) fn dropping_chain(payload: &[u8]) -> Option<Chain> {
    let family = match payload.first()? {
        1 => "inet",
        2 => "ip",
        10 => "ip6",
        _ => return None,
    };
    let attributes = payload.get(HEADER..)?;
    let hook = wire::attribute(attributes, attribute::HOOK)?;
    let is_forward = wire::attribute(hook, attribute::HOOK_NUMBER).and_then(number) == Some(FORWARD);
    let drops = wire::attribute(attributes, attribute::POLICY).and_then(number) == Some(DROP);
    if !is_forward || !drops {
        return None;
    }
    let text = |kind| wire::attribute(attributes, kind).map(wire::text);
    Some(Chain { family, table: text(attribute::TABLE)?, name: text(attribute::NAME)? })
}

/// Where the kernel lists the tables of the older iptables in the network namespace of this thread. Only root may read it,
/// and without that firewall it is not there.
pub(super) fn legacy_tables_file(family: Family) -> &'static str {
    match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    }
}

/// Whether the table that filters is among these.
pub(super) fn has_filter(names: &str) -> bool {
    names.lines().any(|name| name.trim() == "filter")
}

/// Numbers of nftables are in network byte order.
fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chain(hook: Option<u32>, policy: u32) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0];
        wire::put_attribute(&mut out, attribute::TABLE, b"filter\0");
        wire::put_attribute(&mut out, attribute::NAME, b"FORWARD\0");
        if let Some(hook) = hook {
            let mut nested = Vec::new();
            wire::put_attribute(&mut nested, attribute::HOOK_NUMBER, &hook.to_be_bytes());
            wire::put_attribute(&mut out, attribute::HOOK | 0x8000, &nested);
        }
        wire::put_attribute(&mut out, attribute::POLICY, &policy.to_be_bytes());
        out
    }

    #[test]
    fn only_a_chain_that_drops_what_it_forwards_counts() {
        for (name, hook, policy, counts) in [
            ("it drops", Some(2), 0, true),
            ("it accepts", Some(2), 1, false),
            ("of another hook", Some(1), 0, false),
            ("of no hook", None, 0, false),
        ] {
            assert_eq!(dropping_chain(&chain(hook, policy)).is_some(), counts, "{name}");
        }
    }

    #[test]
    fn only_the_table_that_filters_counts() {
        assert!(has_filter("nat\nfilter\n"));
        assert!(!has_filter("nat\nmangle\nfilter2\n") && !has_filter(""));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = dropping_chain(&bytes);
        }
    }
}
