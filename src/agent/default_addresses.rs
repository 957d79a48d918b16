//! Which addresses this node proposes for itself, when neither the inventory nor its kubelet knows any.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::model::net::Family;
use crate::model::{LocalAddress, Prefix};

/// The kernel's routes as `/proc/net/route` and `/proc/net/ipv6_route` show them.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// IPv4.
    pub v4: &'a str,
    /// IPv6.
    pub v6: &'a str,
}

/// Set for routes that refuse packets (`RTF_REJECT`).
const REJECT: u32 = 0x0200;

/// One address a family: the first of the interface that the default route leads to.
///
/// None of `taken` is one: an address of a Service does not stay on a node.
pub fn default_addresses(local: &[LocalAddress], tables: Tables<'_>, taken: &BTreeSet<IpAddr>) -> Vec<IpAddr> {
    let interfaces = [(Family::V4, default_v4(tables.v4)), (Family::V6, default_v6(tables.v6))];
    let address = |(family, interface): (Family, Option<&str>)| {
        let of_it = local.iter().filter(|local| Some(local.interface.as_str()) == interface);
        let usable = of_it.filter(|local| {
            Family::of(local.address) == family && !is_link_local(local.address) && !taken.contains(&local.address)
        });
        // An address without neighbours is there for another reason than to be this node's.
        usable.min_by_key(|local| (is_host(local.prefix), local.address)).map(|local| local.address)
    };
    interfaces.into_iter().filter_map(address).collect()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_host(prefix: Prefix) -> bool {
    prefix.length() == prefix.family().bits()
}

/// The interface of the default route with the lowest metric.
fn default_v4(table: &str) -> Option<&str> {
    let route = |line| {
        let [interface, destination, _, _, _, _, metric, mask] = columns(line)?;
        let is_default = destination == "00000000" && mask == "00000000";
        is_default.then_some((metric.parse::<u32>().ok()?, interface))
    };
    table.lines().filter_map(route).min().map(|(_, interface)| interface)
}

fn default_v6(table: &str) -> Option<&str> {
    let route = |line| {
        let [destination, length, _, _, _, metric, _, _, flags, interface] = columns(line)?;
        let number = |digits| u32::from_str_radix(digits, 16).ok();
        let is_default = length == "00" && destination.bytes().all(|digit| digit == b'0');
        let is_open = number(flags)? & REJECT == 0 && interface != "lo";
        (is_default && is_open).then_some((number(metric)?, interface))
    };
    table.lines().filter_map(route).min().map(|(_, interface)| interface)
}

/// The first columns of a line.
fn columns<const N: usize>(line: &str) -> Option<[&str; N]> {
    line.split_whitespace().take(N).collect::<Vec<_>>().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
wifi	00000000	0100000A	0003	0	0	600	00000000	0	0	0
lan	00000000	0100000A	0003	0	0	100	00000000	0	0	0
lan	0000000A	00000000	0001	0	0	100	00FFFFFF	0	0	0
";
    const V6: &str = "\
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000002 00000000 00000003     lan
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     lan
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

    fn local(interface: &str, address: &str, length: u8) -> LocalAddress {
        let network = ipnetwork::IpNetwork::new(address.parse().expect("an address"), length).expect("a network");
        let prefix = format!("{}/{length}", network.network()).parse().expect("a prefix");
        LocalAddress { interface: interface.to_owned(), index: 1, address: network.ip(), prefix, has_carrier: true }
    }

    #[test]
    fn a_node_proposes_what_its_default_route_leaves_by() {
        let usual = || vec![local("lan", "10.0.0.9", 24), local("lan", "fd00::9", 64), local("wifi", "10.1.0.9", 24)];
        let also = |more: LocalAddress| usual().into_iter().chain([more]).collect::<Vec<_>>();
        for (name, local, tables, taken, want) in [
            ("one a family", usual(), Tables { v4: V4, v6: V6 }, "10.9.9.9", vec!["10.0.0.9", "fd00::9"]),
            ("no default route", usual(), Tables { v4: "", v6: V6 }, "10.9.9.9", vec!["fd00::9"]),
            (
                "a Service's address",
                also(local("lan", "10.0.0.10", 24)),
                Tables { v4: V4, v6: "" },
                "10.0.0.9",
                vec!["10.0.0.10"],
            ),
            (
                "an address without a network",
                also(local("lan", "10.0.0.1", 32)),
                Tables { v4: V4, v6: "" },
                "10.9.9.9",
                vec!["10.0.0.9"],
            ),
            (
                "link-local ones",
                also(local("lan", "fe80::1", 64)),
                Tables { v4: "", v6: V6 },
                "10.9.9.9",
                vec!["fd00::9"],
            ),
            ("no address", vec![], Tables { v4: V4, v6: V6 }, "10.9.9.9", vec![]),
            ("tables that are none", usual(), Tables { v4: "x\n\ny z", v6: "00 00" }, "10.9.9.9", vec![]),
        ] {
            let taken = BTreeSet::from([taken.parse().expect("an address")]);
            let proposed = default_addresses(&local, tables, &taken);
            assert_eq!(proposed.iter().map(ToString::to_string).collect::<Vec<_>>(), want, "{name}");
        }
    }
}
