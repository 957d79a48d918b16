//! What each node is to a Service: which announce it, and why the others do not.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use super::Surroundings;
use super::and;
use crate::api::{EntryFlag, NoEntry, NodeReportStatus};
use crate::model::views::{NodeView, ServiceView, Truth};
use crate::model::{NodeName, ServiceKey};
use crate::service::announced::{Entry, Hindrance};

/// What a node is to a Service: a closed set, and those that announce it first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "stand")]
pub(super) enum Stand {
    /// It announces all of its addresses.
    Announces,
    /// It announces some of them.
    AnnouncesSome {
        /// These.
        addresses: Vec<IpAddr>,
    },
    /// It has a session, and its agent names this Service as one that it does not announce.
    Refused {
        /// Why.
        reason: NoEntry,
    },
    /// Its kubelet is silent: the machine may be dead, and nothing that was said of it counts.
    KubeletSilent,
    /// Its agent has not said how things are since the node started.
    NotHeardOf,
    /// No router listens to it.
    NoSession,
    /// Routers listen to it, and none of those that Advertisements have told.
    NoToldSession,
    /// It has no router to talk to.
    NoPeer,
    /// Advertisements select the addresses, and none of these the node.
    NotSelected,
    /// Advertisements keep its addresses from routers.
    Withheld,
    /// No endpoint is ready on it, and the Service keeps traffic local.
    NoLocalEndpoint,
    /// No endpoint is ready on any node.
    NoReadyEndpoint,
    /// It may be no entry for any Service.
    NotEligible {
        /// What its `NodeRoute` says.
        entry: EntryFlag,
        /// The same in words.
        #[serde(skip)]
        why: &'static str,
    },
    /// The leader has not said how it is reached.
    NoNodeRoute,
}

/// Nodes that are the same to a Service.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Group {
    #[serde(flatten)]
    stand: Stand,
    nodes: Vec<NodeName>,
    /// What the agent of the first of them says of it.
    detail: Option<String>,
}

/// All nodes, by what they are to a Service; none while it has no address.
pub(super) fn groups(
    service: &ServiceView,
    nodes: &BTreeMap<NodeName, Arc<NodeView>>,
    around: &Surroundings,
) -> Vec<Group> {
    if service.ingress.iter().all(|entry| entry.ip.is_none()) {
        return Vec::new();
    }
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for (name, node) in nodes {
        groups.entry(stand(service, node, around)).or_default().push(name.clone());
    }
    let group = |(stand, nodes): (Stand, Vec<NodeName>)| {
        let report = nodes.first().and_then(|first| around.reports.get(first));
        Group { detail: report.and_then(|report| stand.detail(report)), stand, nodes }
    };
    groups.into_iter().map(group).collect()
}

fn stand(service: &ServiceView, view: &NodeView, around: &Surroundings) -> Stand {
    let node = &view.name;
    let Some(entry) = around.flags.get(node).copied() else { return Stand::NoNodeRoute };
    if let Some(why) = entry.why_not() {
        return Stand::NotEligible { entry, why };
    }
    let addresses = match around.entrances.announced_on(service, node) {
        Ok(addresses) => addresses,
        Err(Hindrance::NoReadyEndpoint) => return Stand::NoReadyEndpoint,
        Err(Hindrance::NoLocalEndpoint) => return Stand::NoLocalEndpoint,
        Err(Hindrance::Withheld) => return Stand::Withheld,
        Err(Hindrance::NotSelected) => return Stand::NotSelected,
    };
    let report = around.reports.get(node);
    match addresses.iter().map(|(_, entry)| *entry).max() {
        None | Some(Entry::Silent) if view.ready == Some(Truth::Unknown) => Stand::KubeletSilent,
        None | Some(Entry::Silent) => Stand::NotHeardOf,
        Some(Entry::NoSession) if around.entrances.entry(node) == Some(Entry::Heard) => Stand::NoToldSession,
        Some(Entry::NoSession) if report.is_some_and(|report| report.bgp.peers == 0) => Stand::NoPeer,
        Some(Entry::NoSession) => Stand::NoSession,
        Some(Entry::Heard) => match report.and_then(|report| refused(report, &service.key)) {
            Some(reason) => Stand::Refused { reason },
            None => of_those_heard(service, &addresses),
        },
    }
}

fn of_those_heard(service: &ServiceView, addresses: &[(IpAddr, Entry)]) -> Stand {
    let heard = addresses.iter().filter(|(_, entry)| *entry == Entry::Heard);
    let addresses: Vec<_> = heard.map(|(address, _)| *address).collect();
    if addresses.len() < service.ingress.len() { Stand::AnnouncesSome { addresses } } else { Stand::Announces }
}

/// Why a node's agent does not announce a Service, if the report names it: it names the first of each reason.
fn refused(report: &NodeReportStatus, service: &ServiceKey) -> Option<NoEntry> {
    let named = report.entries.refused.iter().find(|refused| refused.first == service.to_string());
    named.map(|refused| refused.reason)
}

impl Stand {
    fn detail(&self, report: &NodeReportStatus) -> Option<String> {
        let Self::NoSession = self else { return None };
        report.bgp.exceptions.first().map(|told| format!("BgpPeer {}: {}", told.peer, told.message))
    }
}

/// So many nodes are named.
const NAMED: usize = 5;

impl Group {
    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }
}

impl fmt::Display for Stand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Announces => "announce it by BGP",
            Self::AnnouncesSome { addresses } => {
                return write!(f, "announce {} alone by BGP, as Advertisements say", and(addresses));
            }
            Self::Refused { reason } => {
                return write!(f, "have a session, and their agents do not announce it: {reason:?}");
            }
            Self::KubeletSilent => "are not heard of: their kubelets are silent",
            Self::NotHeardOf => "are not heard of: their agents have not reported since the nodes started",
            Self::NoSession => "have no session with a router",
            Self::NoToldSession => {
                "have sessions, and with none of the routers that the Advertisements of its addresses name"
            }
            Self::NoPeer => "have no router to talk to: no BgpPeer has a nodeSelector that takes them",
            Self::NotSelected => "are left out by the nodeSelectors of the Advertisements that select its addresses",
            Self::Withheld => "are kept from announcing it by Advertisements with withhold or l2",
            Self::NoLocalEndpoint => "have no ready endpoint of it, and its externalTrafficPolicy is Local",
            Self::NoReadyEndpoint => "wait for a ready endpoint of it: there is none on any node",
            Self::NotEligible { why, .. } => return write!(f, "are no entry for any Service: {why}"),
            Self::NoNodeRoute => "have no NodeRoute: their Nodes have no address yet, or no controller leads",
        })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.nodes.iter().take(NAMED).map(NodeName::as_str).collect();
        let rest = if self.nodes.len() > NAMED { ", …" } else { "" };
        write!(f, "{}: {}{rest}", self.stand, names.join(", "))?;
        self.detail.as_ref().map_or(Ok(()), |detail| write!(f, " ({detail})"))
    }
}
