//! Which addresses the nodes have.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::agent::snapshot::{NodeRouteView, Objects};
use crate::model::Prefix;

/// The addresses of all nodes, in order.
#[derive(Debug, Clone, Default)]
pub struct NodeAddresses {
    nodes: Objects<NodeRouteView>,
    /// And how many nodes have each: two may claim one by mistake.
    counts: BTreeMap<IpAddr, usize>,
}

impl NodeAddresses {
    /// The addresses of these nodes.
    pub fn of(nodes: &Objects<NodeRouteView>) -> Self {
        let mut addresses = Self::default();
        addresses.look(nodes);
        addresses
    }

    /// Takes in which nodes came, changed and went, and returns the addresses that are a node's now and were
    /// not, or the other way round.
    pub fn look(&mut self, nodes: &Objects<NodeRouteView>) -> Vec<IpAddr> {
        let mut touched = Vec::new();
        for (_, old, new) in nodes.differences(&self.nodes) {
            for address in new.iter().flat_map(|node| &node.addresses) {
                let count = self.counts.entry(*address).or_default();
                *count += 1;
                touched.extend((*count == 1).then_some(*address));
            }
            for address in old.iter().flat_map(|node| &node.addresses) {
                if take_one(&mut self.counts, *address) {
                    touched.push(*address);
                }
            }
        }
        self.nodes = nodes.clone();
        touched
    }

    /// Whether a node has it.
    pub fn contains(&self, address: &IpAddr) -> bool {
        self.counts.contains_key(address)
    }

    /// The first address of a node that lies in a network.
    pub fn first_in(&self, network: Prefix) -> Option<IpAddr> {
        let (address, _) = self.counts.range(network.address()..).next()?;
        network.contains(*address).then_some(*address)
    }

    /// The first node that has an address.
    pub fn owner(&self, address: IpAddr) -> Option<&NodeRouteView> {
        self.nodes.values().find(|node| node.addresses.contains(&address)).map(|node| &**node)
    }
}

/// Counts one less; whether that was the last.
pub(super) fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) -> bool {
    let std::collections::btree_map::Entry::Occupied(mut count) = counts.entry(key) else { return false };
    *count.get_mut() -= 1;
    let is_last = *count.get() == 0;
    if is_last {
        count.remove();
    }
    is_last
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::cases::node_route;

    #[test]
    fn an_address_is_a_nodes_as_long_as_one_node_has_it() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let nodes = |nodes: &[(&str, &[&str])]| {
            let view =
                |(name, addresses): &(&str, &[&str])| ((*name).to_owned(), Arc::new(node_route(name, addresses, &[])));
            nodes.iter().map(view).collect::<Objects<_>>()
        };
        let (first, second) = (address("10.90.0.1"), address("10.90.0.2"));
        let mut addresses = NodeAddresses::default();
        for (name, now, touched) in [
            ("two with one", nodes(&[("a", &["10.90.0.1"]), ("b", &["10.90.0.1"])]), vec![first]),
            ("one of them moves", nodes(&[("a", &["10.90.0.2"]), ("b", &["10.90.0.1"])]), vec![second]),
            ("they change places", nodes(&[("a", &["10.90.0.1"]), ("b", &["10.90.0.2"])]), vec![]),
            ("one goes", nodes(&[("b", &["10.90.0.2"])]), vec![first]),
        ] {
            let told = addresses.look(&now);
            assert!(touched.iter().all(|address| told.contains(address)), "{name}: {told:?}");
            assert_eq!(addresses.counts, NodeAddresses::of(&now).counts, "{name}");
        }
        assert_eq!(addresses.first_in("10.90.0.0/24".parse().expect("a prefix")), Some(second));
        assert_eq!(addresses.first_in("10.90.1.0/24".parse().expect("a prefix")), None);
        assert_eq!(addresses.owner(second).map(|node| node.node.as_str()), Some("b"));
    }
}
