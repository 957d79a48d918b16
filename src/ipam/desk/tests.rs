//! Which changes take a plan, and who gets which blocks without one.

use super::*;
use crate::config::{NodeCidrFlags, NodeCidrs, cluster_cidrs};
use crate::ipam::claim::Holder;
use crate::model::cases::node;
use crate::model::views::{NodeAddress, NodeAddressKind, Truth};

fn name(text: &str) -> NodeName {
    text.parse().expect("a name")
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn with_cidr(text: &str, cidr: &str) -> NodeView {
    NodeView { pod_cidrs: vec![prefix(cidr)], ..node(text) }
}

fn claim(block: &str, of: &str) -> Claim {
    Claim {
        block: prefix(block),
        holder: Some(Holder { node: name(of), uid: format!("uid-{of}") }),
        uid: format!("uid-{block}"),
        resource_version: "1".to_owned(),
        acquired_microseconds: 0,
    }
}

/// Four blocks, 10.0.0.0/24 to 10.0.3.0/24. Node n0 has the first, n1 and n2 wait for theirs.
fn desk(claims: &[Claim]) -> Desk {
    let flags = NodeCidrFlags { allocator_type: "RangeAllocator", mask: 0, mask_v4: 0, mask_v6: 0, services: "" };
    let cluster = cluster_cidrs("10.0.0.0/22").expect("cluster CIDRs");
    let nodes = [with_cidr("n0", "10.0.0.0/24"), node("n1"), node("n2")];
    let observed = Observed {
        cluster: NodeCidrs::check(&cluster, flags).expect("no faults").cluster,
        nodes: nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node))).collect(),
        claims: claims.iter().map(|claim| (claim.block, Arc::new(claim.clone()))).collect(),
        ..Observed::default()
    };
    Desk::plan(observed).0
}

/// The blocks that are given out next.
fn given(desk: &mut Desk) -> Vec<String> {
    let next = || desk.next(|_| true).map(|next| format!("{} {}", next.holder.node, next.blocks[0]));
    std::iter::from_fn(next).collect()
}

fn see(desk: &mut Desk, view: NodeView) -> Heard {
    desk.node(&view.name.clone(), Some(Arc::new(view)))
}

#[test]
fn own_writes_and_what_does_not_matter_are_no_news() {
    use Heard::{Open, Planned};
    let at = |view: NodeView, address: &str| NodeView {
        addresses: vec![NodeAddress { kind: NodeAddressKind::InternalIp, address: address.to_owned() }],
        ..view
    };
    let labelled = NodeView { labels: [("rack".to_owned(), "r1".to_owned())].into(), ..node("n2") };
    let told = NodeView { pod_cidr_unavailable: Some((Truth::True, String::new())), ..node("n1") };
    let told_before = NodeView { pod_cidrs: vec![prefix("10.0.1.0/24")], ..told.clone() };
    // Node n1 is under way to 10.0.1.0/24, n2 still waits.
    for (case, view, want) in [
        ("what was written to it comes back", with_cidr("n1", "10.0.1.0/24"), Planned),
        ("someone else wrote", with_cidr("n1", "10.0.3.0/24"), Open),
        ("someone else wrote what n1 is to get", with_cidr("n2", "10.0.1.0/24"), Open),
        ("a label", labelled, Planned),
        ("an address", at(node("n2"), "192.0.2.1"), Planned),
        ("an address in the cluster CIDR", at(node("n2"), "10.0.3.7"), Open),
        ("registered again", NodeView { uid: "other".to_owned(), ..node("n2") }, Open),
        ("it is going", NodeView { is_deleting: true, ..node("n2") }, Open),
        ("a condition", told, Open),
        ("a condition that is to go", told_before, Open),
    ] {
        let mut desk = desk(&[]);
        let first = desk.next(|_| true).expect("n1 waits");
        assert_eq!(first.blocks, [prefix("10.0.1.0/24")]);
        assert_eq!(see(&mut desk, view), want, "{case}");
    }
    let mut desk = desk(&[]);
    assert_eq!(desk.node(&name("n0"), None), Open, "its block is free");
    assert_eq!(desk.node(&name("n9"), None), Planned);
}

#[test]
fn what_was_given_stays_given_though_the_watch_lags() {
    let mut desk = desk(&[]);
    let first = desk.next(|_| true).expect("n1 waits");
    assert_eq!(desk.ended(&first, End::Given), Heard::Planned);
    assert_eq!(see(&mut desk, with_cidr("n1", "10.0.1.0/24")), Heard::Planned);
    assert_eq!(given(&mut desk), ["n2 10.0.2.0/24"]);
    assert_eq!(desk.ended(&first, End::Taken), Heard::Open);
}

#[test]
fn a_new_node_queues_up_for_the_next_free_block() {
    let mut desk = desk(&[]);
    assert_eq!(see(&mut desk, node("n3")), Heard::Planned);
    assert_eq!(see(&mut desk, node("n4")), Heard::Open, "there is none left: that has to be told");
    assert_eq!(given(&mut desk), ["n1 10.0.1.0/24", "n2 10.0.2.0/24", "n3 10.0.3.0/24"]);
    assert_eq!(see(&mut self::desk(&[]), with_cidr("n3", "10.0.3.0/24")), Heard::Open, "somebody else gave it one");
    let of_n3 = [claim("10.0.3.0/24", "n3")];
    assert_eq!(see(&mut self::desk(&of_n3), node("n3")), Heard::Open, "it gets what is claimed for it");
}

#[test]
fn whoever_does_not_wait_any_more_is_passed_over() {
    let mut desk = desk(&[]);
    assert_eq!(see(&mut desk, NodeView { uid: "other".to_owned(), ..node("n1") }), Heard::Open);
    assert_eq!(given(&mut desk), ["n2 10.0.2.0/24"]);
    assert_eq!(self::desk(&[]).next(|node| *node != name("n1")).map(|next| next.holder.node), Some(name("n2")));
}

#[test]
fn a_claim_is_news_unless_its_node_has_the_block() {
    let mut desk = desk(&[claim("10.0.0.0/24", "n0")]);
    let first = desk.next(|_| true).expect("n1 waits");
    for (case, block, of, want) in [
        ("made for a Node under way", "10.0.1.0/24", "n1", Heard::Planned),
        ("of a Node that has it", "10.0.0.0/24", "n0", Heard::Planned),
        ("of another block", "10.0.3.0/24", "n1", Heard::Open),
        ("of a Node that nobody knows", "10.0.2.0/24", "n9", Heard::Open),
    ] {
        assert_eq!(desk.claim(prefix(block), Some(Arc::new(claim(block, of)))), want, "{case}");
    }
    assert_eq!(desk.claim(first.blocks[0], None), Heard::Open, "it went");
    assert_eq!(desk.claim(first.blocks[0], None), Heard::Planned);
}
