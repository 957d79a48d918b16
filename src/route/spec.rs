//! What the `NodeRoute` of a Node says: pure.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::api::{EntryFlag, NodeRouteSpec};
use crate::model::views::NodeView;
use crate::model::{Prefix, truth};

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const ZONE: &str = "topology.kubernetes.io/zone";
/// The schema of `NodeRoute` takes no more.
const MOST_ADDRESSES: usize = 16;

/// Which routes are ours to see to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Responsibility {
    /// Those of every Node's pod CIDRs: nobody has said otherwise.
    #[default]
    Everything,
    /// Those of pod CIDRs in `--cluster-cidr`.
    Within(Vec<Prefix>),
    /// None, as `--configure-cloud-routes=false` says: what is there stays as it is.
    Nothing,
}

impl Responsibility {
    /// Whether a pod CIDR is ours: its first or its last address lies in a cluster CIDR, as upstream
    /// has it.
    pub fn covers(&self, cidr: &Prefix) -> bool {
        match self {
            Self::Everything => true,
            Self::Within(all) => {
                let ends = [cidr.address(), last_address(cidr)];
                all.iter().any(|cluster| ends.iter().any(|end| cluster.contains(*end)))
            }
            Self::Nothing => false,
        }
    }
}

fn last_address(cidr: &Prefix) -> IpAddr {
    let host_bits = cidr.family().bits() - cidr.length();
    match cidr.address() {
        IpAddr::V4(first) => {
            let host = u32::MAX.checked_shr(u32::from(32 - host_bits)).unwrap_or(0);
            IpAddr::V4((first.to_bits() | host).into())
        }
        IpAddr::V6(first) => {
            let host = u128::MAX.checked_shr(u32::from(128 - host_bits)).unwrap_or(0);
            IpAddr::V6((first.to_bits() | host).into())
        }
    }
}

/// The spec of a Node's `NodeRoute`, with the addresses and witnesses that are `known`; none before the
/// Node has an address, when there is no way to it.
///
/// A Node that shows no address (any more, or yet again) did not lose its network: those it had stand
/// until it has others. A route that is not ours to see to is not made, and not taken away.
pub fn spec(node: &NodeView, responsibility: &Responsibility, known: Option<&NodeRouteSpec>) -> Option<NodeRouteSpec> {
    let shown: Vec<_> = node.internal_ips().take(MOST_ADDRESSES).map(|ip| ip.to_string()).collect();
    let known_cidrs = known.map(|known| known.pod_cidrs.as_slice()).unwrap_or_default();
    let cidrs = node.pod_cidrs.iter().map(|cidr| (responsibility.covers(cidr), cidr.to_string()));
    let known_addresses = known.map(|known| known.addresses.clone()).unwrap_or_default();
    if shown.is_empty() && known.is_none() {
        return None;
    }
    // The flag is read as a boolean since Kubernetes 1.34: only a plain false includes the Node.
    let entry = match node.labels.get(EXCLUDED).map(|value| truth(value) == Some(false)) {
        None | Some(true) => EntryFlag::Eligible,
        Some(false) => EntryFlag::ExcludedByLabel,
    };
    Some(NodeRouteSpec {
        addresses: if shown.is_empty() { known_addresses } else { shown },
        pod_cidrs: cidrs
            .filter(|(is_ours, cidr)| *is_ours || known_cidrs.contains(cidr))
            .map(|(_, cidr)| cidr)
            .collect(),
        zone: zone(node).map(str::to_owned),
        entry,
        witnesses: known.map(|known| known.witnesses.clone()).unwrap_or_default(),
    })
}

/// `topology.kubernetes.io/zone`, if it says anything.
pub fn zone(node: &NodeView) -> Option<&str> {
    node.labels.get(ZONE).map(String::as_str).filter(|zone| !zone.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::cases::node;

    /// `isResponsibleForRoute` of upstream's tests: the same cluster CIDRs, routes and answers.
    #[test]
    fn responsible_for_routes_whose_first_or_last_address_is_in_a_cluster_cidr() {
        for (cluster, cidr, want) in [
            ("10.244.0.0/16", "10.244.0.0/24", true),
            ("10.244.0.0/16", "10.244.10.0/24", true),
            ("10.244.0.0/16", "10.244.255.0/24", true),
            ("10.244.0.0/14", "10.244.0.0/24", true),
            ("10.244.0.0/14", "10.247.255.0/24", true),
            ("a00:100::/10", "a00:100::/24", true),
            ("10.244.0.0/16", "10.224.0.0/24", false),
            ("10.244.0.0/16", "10.0.10.0/24", false),
            ("10.244.0.0/16", "10.255.255.0/24", false),
            ("10.244.0.0/14", "10.248.0.0/24", false),
            ("10.244.0.0/14", "10.243.255.0/24", false),
            ("a00:100::/10", "b00:100::/24", false),
            // Ours: one that is larger than the cluster CIDR and begins before it.
            ("10.244.128.0/17", "10.244.0.0/16", true),
        ] {
            let containing = |text: &str| {
                let (address, length) = text.split_once('/')?;
                Prefix::containing(address.parse().ok()?, length.parse().ok()?)
            };
            let [cluster, cidr] = [cluster, cidr].map(|text| containing(text).expect("a CIDR"));
            assert_eq!(Responsibility::Within(vec![cluster]).covers(&cidr), want, "{cluster}, {cidr}");
            assert!(Responsibility::Everything.covers(&cidr) && !Responsibility::Nothing.covers(&cidr));
        }
    }

    #[test]
    fn a_route_that_is_not_ours_is_not_made_and_not_taken_away() {
        let elsewhere = Responsibility::Within(vec!["10.10.0.0/16".parse().expect("a CIDR")]);
        for responsibility in [elsewhere, Responsibility::Nothing] {
            let fresh = spec(&node(1), &responsibility, None).expect("a spec");
            assert_eq!(fresh.pod_cidrs, Vec::<String>::new());
            let known = spec(&node(1), &Responsibility::Everything, None).expect("a spec");
            assert_eq!(spec(&node(1), &responsibility, Some(&known)), Some(known));
        }
    }

    #[test]
    fn the_exclusion_label_is_read_as_a_boolean() {
        for (value, want) in [
            ("", EntryFlag::ExcludedByLabel),
            ("true", EntryFlag::ExcludedByLabel),
            ("garbage", EntryFlag::ExcludedByLabel),
            ("false", EntryFlag::Eligible),
            ("0", EntryFlag::Eligible),
        ] {
            let labels = [(EXCLUDED.to_owned(), value.to_owned())].into();
            let spec = spec(&NodeView { labels, ..node(1) }, &Responsibility::Everything, None);
            assert_eq!(spec.expect("a spec").entry, want, "{value:?}");
        }
    }

    #[test]
    fn a_spec_says_how_the_node_is_reached() {
        let labels = [(ZONE.to_owned(), "row-a".to_owned())].into();
        let spec = spec(&NodeView { labels, ..node(1) }, &Responsibility::Everything, None).expect("a spec");
        let want = NodeRouteSpec {
            addresses: vec!["10.90.0.1".to_owned()],
            pod_cidrs: vec!["10.244.1.0/24".to_owned()],
            zone: Some("row-a".to_owned()),
            entry: EntryFlag::Eligible,
            witnesses: Vec::new(),
        };
        assert_eq!(spec, want);
    }

    #[test]
    fn a_node_without_addresses_keeps_those_it_had_and_gets_no_spec_before_it_has_some() {
        let bare = NodeView { addresses: Vec::new(), ..node(1) };
        let all = Responsibility::Everything;
        assert_eq!(spec(&bare, &all, None), None);
        let known = spec(&node(1), &all, None).expect("a spec");
        assert_eq!(spec(&bare, &all, Some(&known)).expect("a spec").addresses, known.addresses);
    }
}
