//! What the host has to grant before pods' packets get anywhere, and what of it is missing: pure.
//!
//! It is told, not changed: a host has reasons for its settings, and others own its firewall.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::place::{MAIN_TABLE, Place};
use crate::api::{ForwardingFault, ForwardingReason};
use crate::model::{Family, Prefix};

/// `RT_TABLE_DEFAULT`, which the kernel's own rules consult as they do the main one.
const DEFAULT_TABLE: u32 = 253;

/// What the pods of this node need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodNetwork {
    /// The pod CIDRs of this node.
    pub own: Vec<Prefix>,
    /// The interfaces by which other nodes' pods are reached.
    pub interfaces: BTreeSet<u32>,
    /// Where our routes live.
    pub place: Place,
}

/// What the host grants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Host {
    /// Whether it forwards packets of a family; no word where that cannot be read.
    pub(super) forwards: BTreeMap<Family, bool>,
    /// `net.ipv4.conf.all.rp_filter`.
    pub(super) reverse_path_filter: u8,
    /// Its interfaces by index.
    pub(super) interfaces: BTreeMap<u32, Interface>,
    /// Chains of its firewall that drop forwarded packets unless a rule accepts them.
    pub(super) dropping: BTreeSet<Chain>,
    /// The families that the older iptables filters as well, nobody knows how.
    pub(super) unseen: BTreeSet<Family>,
    /// The tables that rules lead to; `None` where that cannot be known.
    pub(super) consulted: Option<BTreeSet<u32>>,
    /// Why forwarding could not be turned on.
    pub(super) refusal: Option<String>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Interface {
    pub(super) name: String,
    /// The longest packet it takes, in octets.
    pub(super) mtu: u32,
    /// `net.ipv4.conf.NAME.rp_filter`.
    pub(super) reverse_path_filter: u8,
    pub(super) addresses: Vec<IpAddr>,
}

/// A chain of nftables; those of iptables-nft are among them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Chain {
    /// `ip`, `ip6` or `inet`.
    pub(super) family: &'static str,
    pub(super) table: String,
    pub(super) name: String,
}

/// The setting that turns forwarding on.
pub(super) fn forwarding_sysctl(family: Family) -> &'static str {
    match family {
        Family::V4 => "net.ipv4.ip_forward",
        Family::V6 => "net.ipv6.conf.all.forwarding",
    }
}

/// The families pods have here.
pub(super) fn families(network: &PodNetwork) -> BTreeSet<Family> {
    network.own.iter().map(Prefix::family).collect()
}

/// Everything that keeps pods' packets from being forwarded, or may.
pub(super) fn faults(network: &PodNetwork, host: &Host) -> Vec<ForwardingFault> {
    let mut faults = Vec::new();
    let mut tell = |reason, message| faults.push(ForwardingFault { reason, message });
    for family in families(network) {
        if host.forwards.get(&family) == Some(&false) {
            let sysctl = forwarding_sysctl(family);
            let refusal = host.refusal.as_ref().map(|why| format!(" (it could not be set: {why})")).unwrap_or_default();
            tell(
                ForwardingReason::NotForwarding,
                format!(
                    "{sysctl} is 0, so this node forwards no {family} packets of pods: set it to 1, or start the agent with --manage-sysctls{refusal}"
                ),
            );
        }
    }
    let ways: Vec<_> = network.interfaces.iter().filter_map(|index| host.interfaces.get(index)).collect();
    if ways.len() > 1 && families(network).contains(&Family::V4) {
        let names: Vec<_> = ways.iter().map(|interface| interface.name.as_str()).collect();
        // The kernel takes the stricter of both: 1 is strict, 2 is loose and wins.
        let strictness = |interface: &Interface| interface.reverse_path_filter.max(host.reverse_path_filter);
        for strict in ways.iter().filter(|interface| strictness(interface) == 1) {
            let name = &strict.name;
            tell(
                ForwardingReason::StrictReversePath,
                format!(
                    "rp_filter of {name} is 1 (strict) and pods are reached by {}: packets that come in by another of these than answers leave by are dropped; set net.ipv4.conf.{name}.rp_filter to 2",
                    names.join(", ")
                ),
            );
        }
    }
    let is_pods = |interface: &&Interface| {
        interface.addresses.iter().any(|address| network.own.iter().any(|own| own.contains(*address)))
    };
    let narrowest = ways.iter().filter(|interface| interface.mtu > 0).min_by_key(|interface| interface.mtu);
    if let Some(narrowest) = narrowest {
        for pods in host.interfaces.values().filter(is_pods).filter(|pods| pods.mtu > narrowest.mtu) {
            tell(
                ForwardingReason::MtuMismatch,
                format!(
                    "{} lets pods send packets of {} octets, and {}, by which other nodes are reached, takes {}: set the MTU of the CNI's network to {}",
                    pods.name, pods.mtu, narrowest.name, narrowest.mtu, narrowest.mtu
                ),
            );
        }
    }
    for Chain { family, table, name } in &host.dropping {
        tell(
            ForwardingReason::ForwardDrop,
            format!(
                "chain {name} of nftables table {family} {table} drops forwarded packets that no rule of it accepts (policy drop): pods reach other nodes only if it has rules for the pod CIDRs"
            ),
        );
    }
    for family in families(network).intersection(&host.unseen) {
        let program = match family {
            Family::V4 => "iptables-legacy",
            Family::V6 => "ip6tables-legacy",
        };
        tell(
            ForwardingReason::FirewallUnseen,
            format!(
                "{program} has a table filter here, and whether it drops forwarded packets cannot be seen from the agent: `{program} -S FORWARD` shows it; with -P FORWARD DROP pods reach other nodes only if it has rules for the pod CIDRs"
            ),
        );
    }
    let table = network.place.table();
    let is_consulted = |consulted: &BTreeSet<u32>| consulted.contains(&table);
    if ![MAIN_TABLE, DEFAULT_TABLE].contains(&table) && !host.consulted.as_ref().is_none_or(is_consulted) {
        tell(
            ForwardingReason::TableNotConsulted,
            format!(
                "no rule leads packets to routing table {table}, so its routes carry nothing: add one for each family, as in `ip rule add priority 32000 table {table}`"
            ),
        );
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, mtu: u32, address: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            mtu,
            reverse_path_filter: 0,
            addresses: vec![address.parse().expect("an address")],
        }
    }

    fn network() -> PodNetwork {
        let own = ["10.244.0.0/24", "fd00:244::/64"].map(|cidr| cidr.parse().expect("a prefix")).into();
        PodNetwork { own, interfaces: [2, 3].into(), place: Place::default() }
    }

    /// A host on which nothing is wrong.
    fn host() -> Host {
        let interfaces = [
            (2, interface("eth0", 1500, "10.90.0.11")),
            (3, interface("eth1", 1500, "10.91.0.11")),
            (9, interface("cni0", 1500, "10.244.0.1")),
        ];
        Host {
            forwards: [(Family::V4, true), (Family::V6, true)].into(),
            interfaces: interfaces.into(),
            consulted: Some([255, 254, 253].into()),
            ..Host::default()
        }
    }

    #[test]
    fn each_fault_is_told_in_a_sentence_that_says_what_would_be_right() {
        type Edit = fn(&mut Host, &mut PodNetwork);
        type Want = &'static [(ForwardingReason, &'static str)];
        let cases: [(&str, Edit, Want); 12] = [
            ("nothing is wrong", |_, _| {}, &[]),
            (
                "IPv4 is not forwarded",
                |host, _| {
                    host.forwards.insert(Family::V4, false);
                },
                &[(ForwardingReason::NotForwarding, "net.ipv4.ip_forward is 0")],
            ),
            (
                "nor IPv6, which pods do not have",
                |host, network| {
                    host.forwards.insert(Family::V6, false);
                    network.own.truncate(1);
                },
                &[],
            ),
            (
                "strict where two ways lead out",
                |host, _| host.interfaces.get_mut(&3).expect("eth1").reverse_path_filter = 1,
                &[(ForwardingReason::StrictReversePath, "net.ipv4.conf.eth1.rp_filter to 2")],
            ),
            (
                "loose for all wins over strict for one",
                |host, _| {
                    host.reverse_path_filter = 2;
                    host.interfaces.get_mut(&3).expect("eth1").reverse_path_filter = 1;
                },
                &[],
            ),
            (
                "strict where one way leads out",
                |host, network| {
                    host.reverse_path_filter = 1;
                    network.interfaces = [2].into();
                },
                &[],
            ),
            (
                "pods send longer packets than the way takes",
                |host, _| host.interfaces.get_mut(&3).expect("eth1").mtu = 1400,
                &[(ForwardingReason::MtuMismatch, "set the MTU of the CNI's network to 1400")],
            ),
            (
                "a firewall drops",
                |host, _| {
                    let chain = Chain { family: "ip", table: "filter".to_owned(), name: "FORWARD".to_owned() };
                    host.dropping.insert(chain);
                },
                &[(ForwardingReason::ForwardDrop, "chain FORWARD of nftables table ip filter")],
            ),
            (
                "a firewall that cannot be seen",
                |host, _| host.unseen = [Family::V4, Family::V6].into(),
                &[
                    (ForwardingReason::FirewallUnseen, "`iptables-legacy -S FORWARD` shows it"),
                    (ForwardingReason::FirewallUnseen, "`ip6tables-legacy -S FORWARD` shows it"),
                ],
            ),
            (
                "one of a family that pods do not have",
                |host, network| {
                    host.unseen = [Family::V6].into();
                    network.own.truncate(1);
                },
                &[],
            ),
            (
                "a table nobody looks into",
                |_, network| network.place = Place::new(1000, 1024).expect("a place"),
                &[(ForwardingReason::TableNotConsulted, "ip rule add priority 32000 table 1000")],
            ),
            (
                "a table with a rule",
                |host, network| {
                    network.place = Place::new(1000, 1024).expect("a place");
                    host.consulted.as_mut().expect("known").insert(1000);
                },
                &[],
            ),
        ];
        for (name, edit, want) in cases {
            let (mut host, mut network) = (host(), network());
            edit(&mut host, &mut network);
            let got = faults(&network, &host);
            let reasons: Vec<_> = got.iter().map(|fault| fault.reason).collect();
            assert_eq!(reasons, want.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), "{name}");
            for (fault, (_, words)) in got.iter().zip(want) {
                assert!(fault.message.contains(words), "{name}: {}", fault.message);
            }
        }
    }
}
