//! Whether the pods of a Node can be reached, in the words of the condition `NetworkUnavailable`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::NodeName;
use crate::model::views::{Condition, Truth};

/// So many names or causes are told; the rest is a number.
const TOLD: usize = 5;

/// Whether pods of a Node can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Its own agent is ready, and a majority of its witnesses have its routes.
    Routed,
    /// That is not so, or not yet.
    NotRouted(Lack),
}

impl Network {
    /// The condition, as upstream's route controller words it; what we know more follows.
    pub fn condition(&self) -> Condition {
        match self {
            Self::Routed => Condition {
                status: Truth::False,
                reason: "RouteCreated".to_owned(),
                message: "RouteController created a route".to_owned(),
            },
            Self::NotRouted(lack) => Condition {
                status: Truth::True,
                reason: "NoRouteCreated".to_owned(),
                message: format!("RouteController failed to create a route: {lack}"),
            },
        }
    }
}

/// What is missing before a Node's pods can be reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lack {
    /// No agent has ever reported from it.
    NoAgent,
    /// The agent has reported, but not since the Node was booted or registered.
    NoReportSince,
    /// The agent does not act on the Node's addresses and pod CIDRs yet.
    AgentBehind,
    /// The agent itself lacks routes to many others.
    Incomplete {
        /// To how many.
        nodes: u32,
        /// Some of them, and why.
        such_as: Vec<String>,
    },
    /// Witnesses have no route to it.
    Denied {
        /// Who, and why.
        by: Vec<(NodeName, String)>,
        /// How many were asked.
        of: usize,
    },
    /// Too few witnesses have answered.
    Unconfirmed {
        /// How many have its routes.
        by: usize,
        /// How many have to.
        of: usize,
        /// Who is asked and has not answered.
        silent: Vec<NodeName>,
    },
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAgent => f.write_str("Cairn's agent has never reported from this node; does its pod run there?"),
            Self::NoReportSince => f.write_str(
                "Cairn's agent has not reported since the node was booted or registered; does its pod run there?",
            ),
            Self::AgentBehind => {
                f.write_str("Cairn's agent on this node does not act on its addresses and pod CIDRs yet")
            }
            Self::Incomplete { nodes, such_as } => {
                write!(f, "this node itself lacks routes to {nodes} others: {}", listed(such_as, "; "))
            }
            Self::Denied { by, of } => {
                let by: Vec<_> = by.iter().map(|(node, why)| format!("{node} ({why})")).collect();
                write!(f, "{} of {of} other nodes have no route to it: {}", by.len(), listed(&by, ", "))
            }
            Self::Unconfirmed { by, of, silent } => {
                write!(f, "{by} of {of} other nodes have confirmed a route to it")?;
                match silent.is_empty() {
                    true => Ok(()),
                    false => write!(f, "; not yet {}", listed(silent, ", ")),
                }
            }
        }
    }
}

fn listed<T: fmt::Display>(items: &[T], between: &str) -> String {
    let mut shown: Vec<_> = items.iter().take(TOLD).map(ToString::to_string).collect();
    if items.len() > TOLD {
        shown.push(format!("{} more", items.len() - TOLD));
    }
    shown.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_upstreams_and_says_more() {
        let name = |text: &str| text.parse().expect("a name");
        let denied = Lack::Denied { by: vec![(name("n3"), "no way".to_owned())], of: 5 };
        let unconfirmed = Lack::Unconfirmed { by: 1, of: 3, silent: vec![name("n4"), name("n5")] };
        let missing = Lack::Incomplete { nodes: 7, such_as: (1..=6).map(|n| format!("n{n}")).collect() };
        for (network, status, reason, message) in [
            (Network::Routed, Truth::False, "RouteCreated", "RouteController created a route"),
            (
                Network::NotRouted(Lack::NoAgent),
                Truth::True,
                "NoRouteCreated",
                "RouteController failed to create a route: Cairn's agent has never reported from this node; does its pod run there?",
            ),
            (
                Network::NotRouted(denied),
                Truth::True,
                "NoRouteCreated",
                "RouteController failed to create a route: 1 of 5 other nodes have no route to it: n3 (no way)",
            ),
            (
                Network::NotRouted(unconfirmed),
                Truth::True,
                "NoRouteCreated",
                "RouteController failed to create a route: 1 of 3 other nodes have confirmed a route to it; not yet n4, n5",
            ),
            (
                Network::NotRouted(missing),
                Truth::True,
                "NoRouteCreated",
                "RouteController failed to create a route: this node itself lacks routes to 7 others: n1; n2; n3; n4; n5; 1 more",
            ),
        ] {
            let want = Condition { status, reason: reason.to_owned(), message: message.to_owned() };
            assert_eq!(network.condition(), want);
        }
    }
}
