//! From what the rooms say of themselves to what the report says.

use crate::agent::outcome::Outcome;
use crate::api::{GuardReport, PeerException, RouteExceptionReason};
use crate::bgp::{SessionState, SpeakerStatus};
use crate::kernel::guard::{GuardState, GuardStatus};
use crate::kernel::{RouteFailure, RouteStatus};

/// What became of the wish.
pub fn outcome(
    routes: &RouteStatus,
    guard: &GuardStatus,
    speaker: &SpeakerStatus,
    wrong_peers: Vec<PeerException>,
) -> Outcome {
    let established = speaker.peers.iter().filter(|(_, peer)| peer.state == SessionState::Established);
    let mut peer_exceptions = wrong_peers;
    for (name, peer) in &speaker.peers {
        let mut add = |message: String| peer_exceptions.push(PeerException { peer: name.to_string(), message });
        if peer.state != SessionState::Established
            && let Some(error) = &peer.last_error
        {
            add(error.to_string());
        }
        for (reason, count) in &peer.withheld {
            add(format!("{count} prefixes withheld: {reason}"));
        }
        if peer.stale > 0 {
            add(format!("{} of its routes stay for now: it restarts and has not told them again", peer.stale));
        }
        if peer.over_limit > 0 {
            add(format!(
                "{} routes are left out: the peer tells more than the {} that its policy takes",
                peer.over_limit,
                peer.learned.len()
            ));
        }
    }
    Outcome {
        settled: routes.wish.clone(),
        failed: routes.failed.iter().map(|(route, why)| (route.clone(), (reason(why), why.to_string()))).collect(),
        carried: routes.carried.iter().map(|(cidr, carrier)| (*cidr, carrier.to_string())).collect(),
        repaired: routes.repaired_total,
        guard: guard_state(guard.state),
        announced: established
            .clone()
            .map(|(_, peer)| peer.advertised)
            .min()
            .map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        heard_by: established.map(|(name, _)| name.clone()).collect(),
        peer_exceptions,
        ..Outcome::default()
    }
}

fn reason(failure: &RouteFailure) -> RouteExceptionReason {
    match failure {
        RouteFailure::Unreachable => RouteExceptionReason::Unreachable,
        RouteFailure::NoCarrier => RouteExceptionReason::NoCarrier,
        RouteFailure::OwnedByOther { .. } => RouteExceptionReason::OwnedByOther,
        RouteFailure::Contested { .. } => RouteExceptionReason::Contested,
        RouteFailure::Denied => RouteExceptionReason::Denied,
        RouteFailure::Refused { .. } => RouteExceptionReason::Refused,
    }
}

fn guard_state(state: GuardState) -> GuardReport {
    match state {
        GuardState::Waiting => GuardReport::Waiting,
        GuardState::Standing => GuardReport::Standing,
        GuardState::Denied => GuardReport::Denied,
        GuardState::Unsupported => GuardReport::Unsupported,
        GuardState::Refused { .. } => GuardReport::Refused,
    }
}
