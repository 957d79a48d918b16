//! The networks that nodes are on, as their agents report them.
//!
//! A network is known from the first report of it until no report has it any more; that of a node that is
//! gone goes with the Node. Reports change much more often than networks do: only those that changed are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::NodeReportStatus;
use crate::cluster::changes::Changes;
use crate::model::{NodeName, Prefix};

/// What all agents say of their networks.
#[derive(Debug, Default)]
pub struct Networks(BTreeMap<NodeName, Vec<Prefix>>);

impl Networks {
    /// Takes in what reports say. Says whether a node is on another network than before.
    pub fn see(&mut self, changes: Changes, reports: &BTreeMap<String, Arc<NodeReportStatus>>) -> bool {
        let names = match changes {
            Changes::Keys(names) => names,
            Changes::All => reports.keys().cloned().chain(self.0.keys().map(ToString::to_string)).collect(),
        };
        let mut is_new = false;
        for name in names {
            let Ok(node) = name.parse::<NodeName>() else { continue };
            let networks = reports.get(&name).map(|report| read(report)).unwrap_or_default();
            is_new |= self.0.get(&node).map(Vec::as_slice).unwrap_or_default() != networks;
            if networks.is_empty() {
                self.0.remove(&node);
            } else {
                self.0.insert(node, networks);
            }
        }
        is_new
    }

    /// Each network, and the first node that is on it.
    pub fn each(&self) -> impl Iterator<Item = (Prefix, &NodeName)> {
        let mut first = BTreeMap::new();
        for (node, networks) in &self.0 {
            for network in networks {
                first.entry(*network).or_insert(node);
            }
        }
        first.into_iter()
    }
}

/// An agent writes prefixes; whatever else is there was not written by one.
fn read(report: &NodeReportStatus) -> Vec<Prefix> {
    report.networks.iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Reports = BTreeMap<String, Arc<NodeReportStatus>>;

    fn report(networks: &[&str]) -> Arc<NodeReportStatus> {
        let networks = networks.iter().map(ToString::to_string).collect();
        Arc::new(NodeReportStatus { networks, ..NodeReportStatus::default() })
    }

    fn keys(names: &[&str]) -> Changes {
        Changes::Keys(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_network_is_known_while_a_report_has_it() {
        let of = |networks: &Networks| networks.each().map(|(net, node)| format!("{net} {node}")).collect::<Vec<_>>();
        let mut networks = Networks::default();
        let mut reports = Reports::from([
            ("n1".to_owned(), report(&["10.90.0.0/24", "fd90::/64"])),
            ("n2".to_owned(), report(&["10.90.0.0/24", "not a network"])),
            ("n3".to_owned(), report(&[])),
        ]);
        assert!(networks.see(Changes::All, &reports));
        assert_eq!(of(&networks), ["10.90.0.0/24 n1", "fd90::/64 n1"]);
        assert!(!networks.see(keys(&["n1", "n3", "n9"]), &reports), "nothing is new");

        reports.insert("n1".to_owned(), report(&["10.91.0.0/24"]));
        assert!(networks.see(keys(&["n1"]), &reports));
        assert_eq!(of(&networks), ["10.90.0.0/24 n2", "10.91.0.0/24 n1"]);

        reports.remove("n2");
        assert!(networks.see(Changes::All, &reports));
        assert_eq!(of(&networks), ["10.91.0.0/24 n1"]);
    }
}
