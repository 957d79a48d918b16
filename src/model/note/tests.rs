use super::*;

/// A note, whether upstream warns of it, its reason and the beginning of its text.
type Case = (Note, Severity, &'static str, &'static str);

#[test]
fn what_upstream_tells_too_has_its_reason_and_begins_with_its_text() {
    use Severity::{Normal, Warning};
    let node = || "n1".parse::<NodeName>().expect("a name");
    let prefix = |text: &str| text.parse::<Prefix>().expect("a prefix");
    let identity = || "host_1".to_owned();
    let error = || "why".to_owned();
    let route = Note::RouteNotCreated {
        node: node(),
        uid: "uid-1".to_owned(),
        cidrs: vec![prefix("10.244.1.0/24")],
        why: error(),
    };
    let full = Note::CidrNotAvailable { node: node(), cidr: prefix("10.244.0.0/16"), node_length: 24 };
    let deleting = "Deleting node n1 because it does not exist in the cloud provider";
    let refused = Note::ServiceNotWritten { error: error() };
    let cases: [Case; 11] = [
        (Note::NodeSynced, Normal, "Synced", "Node synced successfully"),
        (Note::NodeDeleting { node: node() }, Normal, "DeletingNode", deleting),
        (
            Note::NodeDeleteFailed { node: node(), error: error() },
            Warning,
            "DeletingNodeFailed",
            "Failed deleting node n1: why",
        ),
        (route, Warning, "FailedToCreateRoute", "Could not create route uid-1 10.244.1.0/24 for node n1"),
        (full, Warning, "CIDRNotAvailable", "Node n1 status is now: CIDRNotAvailable"),
        (
            Note::CidrAssignmentFailed { node: node(), error: error() },
            Warning,
            "CIDRAssignmentFailed",
            "Node n1 status is now: CIDRAssignmentFailed",
        ),
        (Note::BecameLeader { identity: identity() }, Normal, "LeaderElection", "host_1 became leader"),
        (Note::StoppedLeading { identity: identity() }, Normal, "LeaderElection", "host_1 stopped leading"),
        (Note::LoadBalancerEnsured, Normal, "EnsuredLoadBalancer", "Ensured load balancer"),
        (Note::LoadBalancerDeleted, Normal, "DeletedLoadBalancer", "Deleted load balancer"),
        (
            refused,
            Warning,
            "SyncLoadBalancerFailed",
            "Error syncing load balancer: failed to update load balancer status: why",
        ),
    ];
    for (note, severity, reason, text) in cases {
        assert_eq!((note.event_reason(), note.severity()), (reason, severity), "{note:?}");
        assert!(note.to_string().starts_with(text), "{note:?}: {note}");
    }
}
