//! Which addresses a Node gets: the machine's, ordered and filtered by what the kubelet was told.
//!
//! The rules are those of `k8s.io/cloud-provider/node/helpers` (KEP-3705).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use crate::model::Note;
use crate::model::net::Family;
use crate::model::views::{NodeAddress, NodeAddressKind};

/// The addresses for `status.addresses`, in order.
///
/// `offered` is what the inventory gives, `current` what the Node has, `provided` the annotation
/// `alpha.kubernetes.io/provided-node-ip`.
///
/// # Errors
/// The note that says why the annotation does not fit the machine.
pub fn choose(
    offered: &[NodeAddress],
    current: &[NodeAddress],
    provided: Option<&str>,
) -> Result<Vec<NodeAddress>, Note> {
    let mut addresses = Vec::with_capacity(offered.len() + 1);
    add(&mut addresses, offered.iter());
    // The kubelet knows the host's name; an inventory that names one as well wins.
    if !offered.iter().any(is_hostname) {
        add(&mut addresses, current.iter().filter(|address| is_hostname(address)));
    }
    match provided {
        Some(text) => filter(&addresses, &parse_node_ips(text)?),
        None => Ok(addresses),
    }
}

/// `AddToNodeAddresses`: what is there already, by kind and address, is not added again.
fn add<'a>(addresses: &mut Vec<NodeAddress>, more: impl Iterator<Item = &'a NodeAddress>) {
    for address in more {
        if !addresses.contains(address) {
            addresses.push(address.clone());
        }
    }
}

fn is_hostname(address: &NodeAddress) -> bool {
    address.kind == NodeAddressKind::Hostname
}

/// `GetNodeAddressesFromNodeIP`: the kubelet's addresses first, the others of their kinds dropped,
/// other kinds as they are.
fn filter(addresses: &[NodeAddress], node_ips: &[IpAddr]) -> Result<Vec<NodeAddress>, Note> {
    let mut chosen = Vec::new();
    let mut chosen_kinds = BTreeSet::new();
    for &node_ip in node_ips {
        let matching = addresses.iter().filter(|address| address.address.parse() == Ok(node_ip));
        let before = chosen.len();
        chosen.extend(matching.cloned());
        if chosen.len() == before {
            return Err(Note::NodeIpNotOffered { address: node_ip });
        }
        chosen_kinds.extend(chosen[before..].iter().map(|address| address.kind));
    }
    chosen.extend(addresses.iter().filter(|address| !chosen_kinds.contains(&address.kind)).cloned());
    Ok(chosen)
}

/// `ParseNodeIPAnnotation`: one address, or one of each family; no white space.
fn parse_node_ips(text: &str) -> Result<Vec<IpAddr>, Note> {
    let malformed = || Note::NodeIpMalformed { text: text.to_owned() };
    let node_ips = text.split(',').map(parse_lenient).collect::<Option<Vec<_>>>().ok_or_else(malformed)?;
    match node_ips.as_slice() {
        [_] => Ok(node_ips),
        [one, two] if Family::of(*one) != Family::of(*two) && !one.is_unspecified() && !two.is_unspecified() => {
            Ok(node_ips)
        }
        _ => Err(malformed()),
    }
}

/// Takes leading zeros in IPv4, as Kubernetes does (`ParseIPSloppy`).
fn parse_lenient(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| {
        let parts = text.split('.').map(octet).collect::<Option<Vec<u8>>>()?;
        let octets: [u8; 4] = parts.try_into().ok()?;
        Some(Ipv4Addr::from(octets).into())
    })
}

fn octet(text: &str) -> Option<u8> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Int 10.1.1.1, Ext 55.55.55.55` as in the upstream tests.
    fn list(text: &str) -> Vec<NodeAddress> {
        let entry = |entry: &str| {
            let (kind, address) = entry.split_once(' ').expect("a kind and an address");
            let kind = match kind {
                "Int" => NodeAddressKind::InternalIp,
                "Ext" => NodeAddressKind::ExternalIp,
                "H" => NodeAddressKind::Hostname,
                "IntDNS" => NodeAddressKind::InternalDns,
                "ExtDNS" => NodeAddressKind::ExternalDns,
                other => panic!("{other}"),
            };
            NodeAddress { kind, address: address.to_owned() }
        };
        text.split(", ").filter(|text| !text.is_empty()).map(entry).collect()
    }

    #[test]
    fn the_kubelets_addresses_come_first_and_displace_others_of_their_kind() {
        struct Case {
            name: &'static str,
            provided: &'static str,
            offered: &'static str,
            want: Option<&'static str>,
        }
        for case in [
            Case {
                name: "a single internal address",
                provided: "10.1.1.1",
                offered: "Int 10.1.1.1, H n1",
                want: Some("Int 10.1.1.1, H n1"),
            },
            Case {
                name: "an external address comes first",
                provided: "55.55.55.55",
                offered: "Int 10.1.1.1, Ext 55.55.55.55, H n1",
                want: Some("Ext 55.55.55.55, Int 10.1.1.1, H n1"),
            },
            Case {
                name: "one address of two kinds",
                provided: "55.55.55.55",
                offered: "Int 44.44.44.44, Ext 44.44.44.44, Int 55.55.55.55, Ext 55.55.55.55, H n1",
                want: Some("Int 55.55.55.55, Ext 55.55.55.55, H n1"),
            },
            Case {
                name: "names stay",
                provided: "10.1.1.1",
                offered: "Int 10.1.1.1, Ext 55.55.55.55, IntDNS i, ExtDNS e, H n1",
                want: Some("Int 10.1.1.1, Ext 55.55.55.55, IntDNS i, ExtDNS e, H n1"),
            },
            Case {
                name: "others of the kind are dropped",
                provided: "10.1.1.1",
                offered: "Int 10.1.1.1, Int 10.2.2.2, Int 10.3.3.3, Ext 55.55.55.55, H n1",
                want: Some("Int 10.1.1.1, Ext 55.55.55.55, H n1"),
            },
            Case {
                name: "an address the machine does not have",
                provided: "10.2.2.2",
                offered: "Int 10.1.1.1, Ext 55.55.55.55, H n1",
                want: None,
            },
            Case {
                name: "the inventory's spelling is kept",
                provided: "2600:1f14:1d4:d101::ba3d",
                offered: "Int 10.1.1.1, Int 2600:1f14:1d4:d101:0:0:0:ba3d, H n1",
                want: Some("Int 2600:1f14:1d4:d101:0:0:0:ba3d, H n1"),
            },
            Case {
                name: "half of a pair is missing",
                provided: "10.1.1.1,fc01:1234::5678",
                offered: "Int 10.1.1.1, H n1",
                want: None,
            },
            Case {
                name: "a pair",
                provided: "10.1.1.1,fc01:1234::5678",
                offered: "Int 10.1.1.1, Int fc01:1234::5678, H n1",
                want: Some("Int 10.1.1.1, Int fc01:1234::5678, H n1"),
            },
            Case {
                name: "a pair gives the order",
                provided: "10.1.1.1,fc01:1234::5678",
                offered: "Int fc01:1234::5678, Int 10.1.1.1, H n1",
                want: Some("Int 10.1.1.1, Int fc01:1234::5678, H n1"),
            },
            Case {
                name: "a pair among several",
                provided: "10.1.1.1,fc01:1234::5678",
                offered: "Int 10.1.1.1, Int 10.1.1.2, Int fc01:1234::1234, Int fc01:1234::5678, H n1",
                want: Some("Int 10.1.1.1, Int fc01:1234::5678, H n1"),
            },
        ] {
            let got = choose(&list(case.offered), &[], Some(case.provided));
            assert_eq!(got.ok(), case.want.map(list), "{}", case.name);
        }
    }

    #[test]
    fn the_kubelets_host_name_comes_last_unless_the_inventory_names_one() {
        let current = list("Int 10.0.0.9, H overridden");
        assert_eq!(choose(&list("Int 10.0.0.1"), &current, None), Ok(list("Int 10.0.0.1, H overridden")));
        assert_eq!(choose(&list("H n1, Int 10.0.0.1"), &current, None), Ok(list("H n1, Int 10.0.0.1")));
        assert_eq!(choose(&list("Int 10.0.0.1"), &[], None), Ok(list("Int 10.0.0.1")));
    }

    #[test]
    fn an_address_is_added_once() {
        for (row, there, more, want) in [
            ("none and none", "", "", ""),
            ("two new ones", "", "Int 10.0.0.1, Ext 1.1.1.1", "Int 10.0.0.1, Ext 1.1.1.1"),
            ("one twice", "", "Int 10.0.0.1, Int 10.0.0.1", "Int 10.0.0.1"),
            (
                "one new, one there",
                "Int 10.0.0.1, H n1",
                "Ext 1.1.1.1, Int 10.0.0.1",
                "Int 10.0.0.1, H n1, Ext 1.1.1.1",
            ),
            ("one of two kinds", "Int 10.0.0.1", "Ext 10.0.0.1", "Int 10.0.0.1, Ext 10.0.0.1"),
        ] {
            let mut addresses = list(there);
            add(&mut addresses, list(more).iter());
            assert_eq!(addresses, list(want), "{row}");
        }
    }

    #[test]
    fn a_node_ip_annotation_is_one_address_or_one_of_each_family() {
        for text in [
            "",
            " ",
            "blah",
            " 1.2.3.4   ",
            "1.2.3",
            "1.2.3.0/24",
            "1.2.3.4,not-an-IPv6-address",
            "abcd::ef01 , 1.2.3.4",
            "abcd::ef01 , 1.2.3.4, something else",
            "1.2.3.4,1.2.3.5",
            "1.2.3.4,::",
            "0.0.0.0,abcd::1",
            "1.2.3.+4",
            "1.2.3.256",
        ] {
            assert_eq!(parse_node_ips(text), Err(Note::NodeIpMalformed { text: text.to_owned() }), "{text:?}");
        }
        for (text, want) in [
            ("1.2.3.4", vec!["1.2.3.4"]),
            ("01.2.3.004", vec!["1.2.3.4"]),
            ("0.0.0.0", vec!["0.0.0.0"]),
            ("abcd::ef01", vec!["abcd::ef01"]),
            ("abcd:0abc:00ab:0000:0000::1", vec!["abcd:abc:ab::1"]),
            ("1.2.3.4,abcd::ef01", vec!["1.2.3.4", "abcd::ef01"]),
            ("abcd::ef01,1.2.3.4", vec!["abcd::ef01", "1.2.3.4"]),
        ] {
            let got = parse_node_ips(text).map(|ips| ips.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(got, Ok(want.iter().map(ToString::to_string).collect()), "{text:?}");
        }
    }
}
