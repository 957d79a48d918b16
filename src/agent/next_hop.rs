//! By which address and interface another node is reached from here.

use std::net::IpAddr;

use crate::agent::snapshot::NodeRouteView;
use crate::model::{Family, Hop, LocalAddress};

/// The networks this node is on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks {
    networks: Vec<Network>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Network {
    local: LocalAddress,
    /// Whether its address is one the node is known by: nodes talk to each other there.
    is_of_nodes: bool,
}

impl Networks {
    /// The networks of these interfaces, of a node that is known by `own_addresses`.
    pub fn new(local: &[LocalAddress], own_addresses: &[IpAddr]) -> Self {
        let network = |local: &LocalAddress| Network {
            local: local.clone(),
            is_of_nodes: own_addresses.contains(&local.address),
        };
        // Nodes are not known by link-local addresses, and every pod's interface brings one.
        Self { networks: local.iter().filter(|local| !is_link_local(local.address)).map(network).collect() }
    }

    /// The addresses of this node.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.networks.iter().map(|network| network.local.address)
    }

    /// The networks on which `address` is another host's.
    fn around(&self, address: IpAddr) -> impl Iterator<Item = &Network> {
        let is_own = self.addresses().any(|own| own == address);
        self.networks.iter().filter(move |network| !is_own && network.local.prefix.contains(address))
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The way to another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// It is on a network of this node.
    Neighbour(Hop),
    /// It is not: whoever routes packets to this address of it has to carry its pods' as well.
    Router(IpAddr),
    /// There is none, and why.
    None(String),
}

/// The address as a next hop, when it is another host's on a network of this node.
pub fn neighbour(address: IpAddr, local: &[LocalAddress]) -> Option<Hop> {
    let networks = Networks::new(local, &[]);
    let nearest = networks.around(address).max_by_key(|network| network.local.prefix.length())?;
    Some(Hop { gateway: address, interface: Some(nearest.local.index) })
}

/// The way to a node's pods of one family.
///
/// Of several ways the one whose interface has a carrier, then the one on the network where node
/// addresses live, then the node's own order, then the narrower network. Pods of IPv4 on a node that
/// has only IPv6 are reached by that.
pub fn way(node: &NodeRouteView, family: Family, networks: &Networks) -> Way {
    let of = |family| node.addresses.iter().copied().filter(move |address| Family::of(*address) == family);
    let has_family = of(family).next().is_some();
    let by = match (family, has_family) {
        (Family::V4, false) => Family::V6,
        (family, _) => family,
    };
    let Some(first) = of(by).next() else {
        return Way::None(format!("the node has no address by which {family} packets get there"));
    };
    let candidates = of(by).enumerate().flat_map(|(place, address)| {
        networks.around(address).map(move |network| {
            let local = &network.local;
            let preference = (local.has_carrier, network.is_of_nodes, std::cmp::Reverse(place), local.prefix.length());
            (preference, Hop { gateway: address, interface: Some(local.index) })
        })
    });
    // Of equal ones the lowest interface: the order must not depend on how they were listed.
    let best = candidates.max_by_key(|(preference, hop)| (*preference, std::cmp::Reverse(hop.interface)));
    best.map_or(Way::Router(first), |(_, hop)| Way::Neighbour(hop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::cases::{local, node_route};

    fn on(interface: &str, index: u32, cidr: &str) -> LocalAddress {
        LocalAddress { index, ..local(interface, cidr) }
    }

    fn without_carrier(local: LocalAddress) -> LocalAddress {
        LocalAddress { has_carrier: false, ..local }
    }

    #[test]
    fn the_best_way_is_taken() {
        let (nodes, storage) = (on("eth0", 2, "10.90.0.11/24"), on("eth1", 3, "10.91.0.11/24"));
        let nodes6 = on("eth0", 2, "fd90::11/64");
        let twin = on("wlan0", 4, "10.90.0.99/24");
        let narrow = on("eth2", 5, "10.90.0.9/29");
        let wire = LocalAddress { prefix: "10.99.0.2/32".parse().expect("a prefix"), ..on("ptp", 6, "10.99.0.1/32") };
        let stick = on("lo1", 7, "10.90.0.12/32");
        for (name, locals, addresses, family, want) in [
            ("its network", vec![&nodes], vec!["10.90.0.12"], Family::V4, Some(("10.90.0.12", 2))),
            (
                "where nodes live, though it names another first",
                vec![&nodes, &storage],
                vec!["10.91.0.12", "10.90.0.12"],
                Family::V4,
                Some(("10.90.0.12", 2)),
            ),
            (
                "the other one while that has no carrier",
                vec![&without_carrier(nodes.clone()), &storage],
                vec!["10.90.0.12", "10.91.0.12"],
                Family::V4,
                Some(("10.91.0.12", 3)),
            ),
            (
                "without a carrier rather than not at all",
                vec![&without_carrier(nodes.clone())],
                vec!["10.90.0.12"],
                Family::V4,
                Some(("10.90.0.12", 2)),
            ),
            ("the second address", vec![&nodes], vec!["192.0.2.1", "10.90.0.12"], Family::V4, Some(("10.90.0.12", 2))),
            ("of one network twice", vec![&twin, &nodes], vec!["10.90.0.12"], Family::V4, Some(("10.90.0.12", 2))),
            ("the narrower one", vec![&narrow, &twin], vec!["10.90.0.12"], Family::V4, Some(("10.90.0.12", 5))),
            ("the other end of a wire", vec![&wire], vec!["10.99.0.2"], Family::V4, Some(("10.99.0.2", 6))),
            ("an address of our own", vec![&nodes, &stick], vec!["10.90.0.12"], Family::V4, None),
            ("IPv4 by IPv6", vec![&nodes, &nodes6], vec!["fd90::12"], Family::V4, Some(("fd90::12", 2))),
            ("IPv4 by IPv4 when it has that", vec![&nodes6], vec!["192.0.2.1", "fd90::12"], Family::V4, None),
            ("IPv6 never by IPv4", vec![&nodes, &nodes6], vec!["10.90.0.12"], Family::V6, None),
        ] {
            let locals: Vec<_> = locals.into_iter().cloned().collect();
            let networks = Networks::new(&locals, &["10.90.0.11".parse().expect("an address")]);
            let got = match way(&node_route("n2", &addresses, &[]), family, &networks) {
                Way::Neighbour(hop) => Some((hop.gateway.to_string(), hop.interface.expect("an interface"))),
                Way::Router(_) | Way::None(_) => None,
            };
            assert_eq!(got.as_ref().map(|(gateway, interface)| (gateway.as_str(), *interface)), want, "{name}");
        }
    }
}
