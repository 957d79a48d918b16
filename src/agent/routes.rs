//! Which kernel routes this node should have to other nodes' pods.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::agent::snapshot::{NodeRouteView, Snapshot};
use crate::api::{RouteException, RouteExceptionReason};
use crate::model::{Family, FibRoute, FibWish, Hop, LocalAddress, Prefix};

/// The routes to other nodes' pods, and the pod CIDRs that get none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoutePlan {
    /// Every route there should be.
    pub wanted: FibWish,
    /// Whose pods each leads to.
    pub owners: BTreeMap<Prefix, String>,
    /// Pod CIDRs no route can be made for, and why.
    pub exceptions: Vec<RouteException>,
}

/// Plans a route to each pod CIDR of each other node, by the node's address of the same family that
/// is on a network of this one.
pub fn plan(snapshot: &Snapshot) -> RoutePlan {
    let mut plan = RoutePlan::default();
    let mut wanted = Vec::new();
    let others = snapshot.node_routes.values().filter(|route| route.node != snapshot.me);
    for other in others {
        for cidr in &other.malformed {
            plan.exceptions.push(exception(
                other,
                cidr,
                RouteExceptionReason::Malformed,
                "it is not a CIDR".to_owned(),
            ));
        }
        for &cidr in &other.pod_cidrs {
            match gateway(other, cidr.family(), &snapshot.local) {
                Ok(hop) => {
                    wanted.push(FibRoute::direct(cidr, hop));
                    plan.owners.insert(cidr, other.node.to_string());
                }
                Err((reason, message)) => plan.exceptions.push(exception(other, &cidr.to_string(), reason, message)),
            }
        }
    }
    plan.wanted = wanted.into_iter().collect();
    plan
}

fn exception(node: &NodeRouteView, cidr: &str, reason: RouteExceptionReason, message: String) -> RouteException {
    RouteException { node: node.node.to_string(), cidr: cidr.to_owned(), reason, message }
}

/// The first address of the node that is a neighbour here.
fn gateway(
    node: &NodeRouteView,
    family: Family,
    local: &[LocalAddress],
) -> Result<Hop, (RouteExceptionReason, String)> {
    let mut of_family = node.addresses.iter().copied().filter(|address| Family::of(*address) == family).peekable();
    let Some(&first) = of_family.peek() else {
        let message = format!("the node has no {family} address");
        return Err((RouteExceptionReason::NoAddressOfFamily, message));
    };
    of_family.find_map(|address| neighbour(address, local)).ok_or_else(|| {
        let message = format!("{first} is on no network of this node; a router has to carry these packets");
        (RouteExceptionReason::NotOnLink, message)
    })
}

/// The address as a next hop, when it is another host's on a network of this node.
pub fn neighbour(address: IpAddr, local: &[LocalAddress]) -> Option<Hop> {
    let is_own = local.iter().any(|own| own.address == address);
    let on_link =
        local.iter().find(|own| own.prefix.length() < own.prefix.family().bits() && own.prefix.contains(address));
    on_link.filter(|_| !is_own).map(|own| Hop { gateway: address, interface: Some(own.index) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::cases::{local, node_route, snapshot};

    #[test]
    fn each_pod_cidr_goes_by_the_on_link_address_of_its_family() {
        struct Case {
            name: &'static str,
            addresses: &'static [&'static str],
            cidrs: &'static [&'static str],
            want: &'static [(&'static str, &'static str)],
            exceptions: &'static [RouteExceptionReason],
        }
        use RouteExceptionReason::{Malformed, NoAddressOfFamily, NotOnLink};
        let cases = [
            Case {
                name: "dual stack",
                addresses: &["10.90.0.12", "fd90::12"],
                cidrs: &["10.244.1.0/24", "fd00:244:0:1::/64"],
                want: &[("10.244.1.0/24", "10.90.0.12"), ("fd00:244:0:1::/64", "fd90::12")],
                exceptions: &[],
            },
            Case {
                name: "the second address is the one on-link",
                addresses: &["192.0.2.12", "10.90.0.12"],
                cidrs: &["10.244.1.0/24"],
                want: &[("10.244.1.0/24", "10.90.0.12")],
                exceptions: &[],
            },
            Case {
                name: "behind a router",
                addresses: &["192.0.2.12"],
                cidrs: &["10.244.1.0/24"],
                want: &[],
                exceptions: &[NotOnLink],
            },
            Case {
                name: "no address of the family",
                addresses: &["10.90.0.12"],
                cidrs: &["10.244.1.0/24", "fd00:244:0:1::/64"],
                want: &[("10.244.1.0/24", "10.90.0.12")],
                exceptions: &[NoAddressOfFamily],
            },
            Case {
                name: "an address of our own is no neighbour",
                addresses: &["10.90.0.11"],
                cidrs: &["10.244.1.0/24"],
                want: &[],
                exceptions: &[NotOnLink],
            },
            Case {
                name: "a CIDR that does not parse",
                addresses: &["10.90.0.12"],
                cidrs: &["10.244.1.7/24"],
                want: &[],
                exceptions: &[Malformed],
            },
        ];
        for case in cases {
            let snapshot = snapshot()
                .node(node_route("n1", &["10.90.0.11", "fd90::11"], &["10.244.0.0/24"]))
                .node(node_route("n2", case.addresses, case.cidrs))
                .local([local("eth0", "10.90.0.11/24"), local("eth0", "fd90::11/64"), local("veth1", "10.244.0.1/32")])
                .build();
            let plan = plan(&snapshot);
            let got: Vec<_> = plan.wanted.routes().map(|r| (r.destination.to_string(), r.target.to_string())).collect();
            let got: Vec<_> = got.iter().map(|(d, g)| (d.as_str(), g.as_str())).collect();
            assert_eq!(got, case.want, "{}", case.name);
            let reasons: Vec<_> = plan.exceptions.iter().map(|e| e.reason).collect();
            assert_eq!(reasons, case.exceptions, "{}", case.name);
        }
    }

    #[test]
    fn the_own_pod_cidr_gets_no_route() {
        let snapshot = snapshot()
            .node(node_route("n1", &["10.90.0.11"], &["10.244.0.0/24"]))
            .local([local("eth0", "10.90.0.11/24")])
            .build();
        assert_eq!(plan(&snapshot), RoutePlan::default());
    }
}
