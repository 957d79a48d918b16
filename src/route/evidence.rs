//! What the agents' reports say of one Node's routes: pure.

use crate::api::{NodeReportStatus, Reached};
use crate::model::views::NodeView;

use super::network::Lack;

/// What a witness says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It has the routes.
    Affirmed,
    /// It has not, and why.
    Denied(String),
    /// Nothing, or nothing about today's routes.
    Silent,
}

/// Whether an agent lacks so many routes that the fault is its own, not that of the others: routes to
/// more than a twentieth of the nodes, and to more than three.
pub fn is_incomplete(report: &NodeReportStatus, nodes: usize) -> bool {
    let most = (nodes / 20).max(3);
    usize::try_from(report.routes.nodes_without).is_ok_and(|without| without > most)
}

/// Whether the node's own agent is ready, and what is missing if not.
///
/// # Errors
/// What is missing.
pub fn own_word(node: &NodeView, digest: &str, report: Option<&NodeReportStatus>, nodes: usize) -> Result<(), Lack> {
    let report = report.ok_or(Lack::NoAgent)?;
    if !report.is_current(node) {
        Err(Lack::NoReportSince)
    } else if is_incomplete(report, nodes) {
        let here = report.routes.exceptions.iter().filter(|exception| exception.reason.is_here());
        let such_as = here.map(|exception| format!("{} ({})", exception.node, exception.message)).collect();
        Err(Lack::Incomplete { nodes: report.routes.nodes_without, such_as })
    } else if report.own_route.as_deref() != Some(digest) {
        Err(Lack::AgentBehind)
    } else {
        Ok(())
    }
}

/// What a witness says of the routes to `node` in this version.
pub fn answer(report: &NodeReportStatus, node: &str, digest: &str) -> Answer {
    let about = |answer: &&crate::api::WitnessAnswer| answer.node == node && answer.route == digest;
    match report.witness.iter().find(about) {
        None => Answer::Silent,
        Some(said) if said.answer == Reached::Ok => Answer::Affirmed,
        Some(said) => Answer::Denied(said.message.clone().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RouteReport;
    use crate::route::cases::{node, report};

    #[test]
    fn an_agent_is_at_fault_above_three_nodes_and_a_twentieth() {
        for (without, nodes, want) in
            [(3, 5, false), (4, 5, true), (4, 79, true), (4, 80, false), (5, 100, false), (6, 100, true)]
        {
            let report =
                NodeReportStatus { routes: RouteReport { nodes_without: without, ..Default::default() }, ..report(1) };
            assert_eq!(is_incomplete(&report, nodes), want, "{without} of {nodes}");
        }
    }

    #[test]
    fn the_own_agent_is_ready_for_this_node_this_boot_and_these_cidrs() {
        let digest = "d".repeat(16);
        let ready = NodeReportStatus { own_route: Some(digest.clone()), ..report(1) };
        let without = RouteReport { nodes_without: 4, ..Default::default() };
        for (name, report, want) in [
            ("ready", Some(ready.clone()), Ok(())),
            ("never reported", None, Err(Lack::NoAgent)),
            (
                "another boot",
                Some(NodeReportStatus { boot_id: "boot-0".to_owned(), ..ready.clone() }),
                Err(Lack::NoReportSince),
            ),
            (
                "another Node of this name",
                Some(NodeReportStatus { node_uid: Some("uid-0".to_owned()), ..ready.clone() }),
                Err(Lack::NoReportSince),
            ),
            (
                "an agent that does not know its Node yet",
                Some(NodeReportStatus { node_uid: None, ..ready.clone() }),
                Ok(()),
            ),
            (
                "other CIDRs",
                Some(NodeReportStatus { own_route: Some("e".repeat(16)), ..ready.clone() }),
                Err(Lack::AgentBehind),
            ),
            (
                "at fault",
                Some(NodeReportStatus { routes: without, ..ready }),
                Err(Lack::Incomplete { nodes: 4, such_as: vec![] }),
            ),
        ] {
            assert_eq!(own_word(&node(1), &digest, report.as_ref(), 10), want, "{name}");
        }
    }
}
