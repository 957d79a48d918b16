//! What the tests of upstream's route controller assert, on the same clusters: `TestReconcile` and the
//! handler of Node updates of `k8s.io/cloud-provider/controllers/route`.
//!
//! A cloud's route is here a pod CIDR in a Node's `NodeRoute`, and its node addresses are that object's.
//! Upstream expects of the condition what its fake does not show; here it is asserted.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::api::EntryFlag;
use crate::model::views::{NodeAddress, NodeAddressKind};
use crate::route::cases::{World, name, node, report};

/// Node, pod CIDR, node address; `""`: the route has none.
type Route = (usize, &'static str, &'static str);

fn upstreams_node(number: usize, cidrs: &[&str]) -> NodeView {
    let address = NodeAddress { kind: NodeAddressKind::InternalIp, address: format!("10.0.0.{number}") };
    let prefix = |cidr: &&str| {
        let (address, length) = cidr.split_once('/').expect("a CIDR");
        let address = address.parse().expect("an address");
        crate::model::Prefix::containing(address, length.parse().expect("a length")).expect("a prefix")
    };
    NodeView { pod_cidrs: cidrs.iter().map(prefix).collect(), addresses: vec![address], ..node(number) }
}

const SINGLE: [(usize, &[&str]); 2] = [(1, &["10.120.0.0/24"]), (2, &["10.120.1.0/24"])];
const DUAL: [(usize, &[&str]); 2] = [(1, &["10.120.0.0/24", "a00:100::/24"]), (2, &["10.120.1.0/24", "a00:200::/24"])];
const SINGLE_ROUTES: [Route; 2] = [(1, "10.120.0.0/24", "10.0.0.1"), (2, "10.120.1.0/24", "10.0.0.2")];
const DUAL_ROUTES: [Route; 4] = [
    (1, "10.120.0.0/24", "10.0.0.1"),
    (1, "a00:100::/24", "10.0.0.1"),
    (2, "10.120.1.0/24", "10.0.0.2"),
    (2, "a00:200::/24", "10.0.0.2"),
];

/// What there is after the controller has seen to it, and how many `NodeRoute`s it wrote.
fn reconciled(nodes: &[(usize, &[&str])], there: &[Route]) -> (World, Vec<(String, String, String)>) {
    let mut world = World::new(Responsibility::Everything);
    let mut specs = BTreeMap::<usize, NodeRouteSpec>::new();
    for (number, cidr, address) in there {
        let spec = specs.entry(*number).or_insert_with(|| NodeRouteSpec {
            addresses: Vec::new(),
            pod_cidrs: Vec::new(),
            zone: None,
            entry: EntryFlag::Eligible,
            witnesses: Vec::new(),
        });
        spec.pod_cidrs.push((*cidr).to_owned());
        spec.addresses = [*address].into_iter().filter(|address| !address.is_empty()).map(str::to_owned).collect();
    }
    for (number, spec) in specs {
        let owner_uid = Some(format!("uid-n{number}"));
        let route = ObservedRoute { resource_version: "1".to_owned(), owner_uid, spec };
        world.planner.route(&name(number), Some(Arc::new(route)));
    }
    for (number, cidrs) in nodes {
        world.put(upstreams_node(*number, cidrs));
        world.planner.report(&name(*number), Some(Arc::new(report(*number))));
    }
    world.pass(60);
    let routes = world.planner.observed().node_routes.iter().flat_map(|(name, route)| {
        let address = route.spec.addresses.join(",");
        route.spec.pod_cidrs.iter().map(move |cidr| (name.to_string(), cidr.clone(), address.clone()))
    });
    let routes = routes.collect();
    (world, routes)
}

fn reconcile(nodes: &[(usize, &[&str])], there: &[Route], want: &[Route]) {
    let (world, got) = reconciled(nodes, there);
    let want =
        want.iter().map(|(number, cidr, address)| (format!("n{number}"), (*cidr).to_owned(), (*address).to_owned()));
    let (got, want): (BTreeSet<_>, BTreeSet<_>) = (got.into_iter().collect(), want.collect());
    assert_eq!(got, want);
    for (number, cidrs) in nodes {
        let available = world.network(*number).map(|(status, _)| status);
        assert_eq!(available, (!cidrs.is_empty()).then_some(Truth::False), "the condition of n{number}");
    }
}

#[test]
fn dual_stack_four_routes_without_addresses_get_those_of_their_nodes() {
    let bare = DUAL_ROUTES.map(|(node, cidr, _)| (node, cidr, ""));
    reconcile(&DUAL, &bare, &DUAL_ROUTES);
}

#[test]
fn dual_stack_changed_addresses_are_replaced() {
    let changed = DUAL_ROUTES.map(|(node, cidr, _)| (node, cidr, "10.0.0.99"));
    reconcile(&DUAL, &changed, &DUAL_ROUTES);
}

#[test]
fn dual_stack_no_routes_are_all_created() {
    reconcile(&DUAL, &[], &DUAL_ROUTES);
}

#[test]
fn dual_stack_all_there_stay() {
    reconcile(&DUAL, &DUAL_ROUTES, &DUAL_ROUTES);
}

#[test]
fn dual_stack_cidrs_swapped_between_nodes_become_exactly_the_right_ones() {
    let swapped = DUAL_ROUTES.map(|(node, cidr, address)| (3 - node, cidr, address));
    reconcile(&DUAL, &swapped, &DUAL_ROUTES);
}

#[test]
fn dual_stack_two_of_four_are_completed() {
    reconcile(&DUAL, &[DUAL_ROUTES[0], DUAL_ROUTES[3]], &DUAL_ROUTES);
}

#[test]
fn dual_stack_extra_routes_of_unknown_nodes_are_removed() {
    let extra = [(8, "10.120.2.0/24", "10.0.0.8"), (9, "a00:300::/24", "10.0.0.9")];
    reconcile(&DUAL, &[&DUAL_ROUTES[..], &extra].concat(), &DUAL_ROUTES);
}

#[test]
fn single_stack_all_there_stay() {
    reconcile(&SINGLE, &SINGLE_ROUTES, &SINGLE_ROUTES);
}

#[test]
fn single_stack_changed_node_addresses_are_replaced() {
    let changed = SINGLE_ROUTES.map(|(node, cidr, _)| (node, cidr, "10.0.0.99"));
    reconcile(&SINGLE, &changed, &SINGLE_ROUTES);
}

#[test]
fn single_stack_one_missing_is_created() {
    reconcile(&SINGLE, &SINGLE_ROUTES[..1], &SINGLE_ROUTES);
}

#[test]
fn single_stack_none_there_both_are_created() {
    reconcile(&SINGLE, &[], &SINGLE_ROUTES);
}

#[test]
fn single_stack_extra_routes_of_unknown_nodes_are_removed() {
    let extra = [(8, "10.120.2.0/24", "10.0.0.8"), (9, "10.120.3.0/24", "10.0.0.9")];
    reconcile(&SINGLE, &[&SINGLE_ROUTES[..], &extra].concat(), &SINGLE_ROUTES);
}

#[test]
fn single_stack_a_wrong_route_is_removed_and_the_missing_one_made() {
    reconcile(&SINGLE, &[SINGLE_ROUTES[0], (8, "10.120.2.0/24", "10.0.0.8")], &SINGLE_ROUTES);
}

#[test]
fn single_stack_a_node_without_pod_cidr_has_no_route_and_its_condition_is_left_alone() {
    reconcile(&[SINGLE[0], (2, &[])], &[], &SINGLE_ROUTES[..1]);
}

#[test]
fn only_node_changes_that_matter_are_looked_at() {
    struct Row {
        name: &'static str,
        edit: fn(&mut NodeView),
        want: bool,
    }
    for row in [
        Row { name: "InternalIP changed", edit: |node| node.addresses[0].address = "10.0.0.9".to_owned(), want: true },
        Row {
            name: "podCIDR changed",
            edit: |node| node.pod_cidrs = vec!["10.120.9.0/24".parse().expect("a prefix")],
            want: true,
        },
        // Images are no part of what is kept of a Node: what is left of such a change is its version.
        Row {
            name: "images and resource version changed",
            edit: |node| node.resource_version = "2".to_owned(),
            want: false,
        },
        Row { name: "nothing changed", edit: |_| {}, want: false },
    ] {
        let (mut world, _) = reconciled(&SINGLE, &SINGLE_ROUTES);
        world.edit(1, row.edit);
        assert_eq!(world.planner.plan(world.now).looked_at.contains(&name(1)), row.want, "{}", row.name);
    }
}

#[test]
fn a_resync_looks_at_everything() {
    let (mut world, _) = reconciled(&SINGLE, &SINGLE_ROUTES);
    world.planner.look_at_all();
    assert_eq!(world.planner.plan(world.now).looked_at.len(), 2);
}
