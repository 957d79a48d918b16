//! Which routes follow from what, and that planning bit by bit comes to the same.

use proptest::prelude::*;

use super::*;
use crate::agent::cases::{local, node_route, snapshot};
use crate::api::RouteExceptionReason::{Contested, HoldsAddress, Malformed, NoAddressOfFamily, NotOnLink, Overlapped};

/// Name, age in seconds since 1970, addresses, pod CIDRs.
type Node = (&'static str, i64, &'static [&'static str], &'static [&'static str]);

struct Case {
    name: &'static str,
    others: &'static [Node],
    want: &'static [(&'static str, &'static str)],
    asked: &'static [&'static str],
    exceptions: &'static [(&'static str, RouteExceptionReason)],
}

fn view((name, created_seconds, addresses, cidrs): Node) -> NodeRouteView {
    NodeRouteView { created_seconds, ..node_route(name, addresses, cidrs) }
}

/// Node n1 at 10.90.0.11 and fd90::11 with the pod CIDR 10.244.0.0/24 and a pod's interface.
fn around(others: &[Node]) -> Snapshot {
    let own = node_route("n1", &["10.90.0.11", "fd90::11"], &["10.244.0.0/24"]);
    let networks = [
        local("eth0", "10.90.0.11/24"),
        local("eth0", "fd90::11/64"),
        local("veth1", "10.244.0.1/32"),
        local("veth1", "fe80::1/64"),
    ];
    others.iter().fold(snapshot().node(own).local(networks), |built, node| built.node(view(*node))).build()
}

#[test]
fn each_pod_cidr_goes_by_the_best_way_or_is_told() {
    for case in [
        Case {
            name: "dual stack",
            others: &[("n2", 0, &["10.90.0.12", "fd90::12"], &["10.244.1.0/24", "fd00:244:0:1::/64"])],
            want: &[("10.244.1.0/24", "10.90.0.12"), ("fd00:244:0:1::/64", "fd90::12")],
            asked: &[],
            exceptions: &[],
        },
        Case {
            name: "the second address is the one on-link",
            others: &[("n2", 0, &["192.0.2.12", "10.90.0.12"], &["10.244.1.0/24"])],
            want: &[("10.244.1.0/24", "10.90.0.12")],
            asked: &[],
            exceptions: &[],
        },
        Case {
            name: "behind a router",
            others: &[("n2", 0, &["192.0.2.12"], &["10.244.1.0/24"])],
            want: &[],
            asked: &["10.244.1.0/24"],
            exceptions: &[("n2", NotOnLink)],
        },
        Case {
            name: "IPv4 pods of a node that has only IPv6",
            others: &[("n2", 0, &["fd90::12"], &["10.244.1.0/24"])],
            want: &[("10.244.1.0/24", "fd90::12")],
            asked: &[],
            exceptions: &[],
        },
        Case {
            name: "IPv6 pods of a node that has only IPv4",
            others: &[("n2", 0, &["10.90.0.12"], &["10.244.1.0/24", "fd00:244:0:1::/64"])],
            want: &[("10.244.1.0/24", "10.90.0.12")],
            asked: &[],
            exceptions: &[("n2", NoAddressOfFamily)],
        },
        Case {
            name: "a CIDR that does not parse",
            others: &[("n2", 0, &["10.90.0.12"], &["10.244.1.7/24"])],
            want: &[],
            asked: &[],
            exceptions: &[("n2", Malformed)],
        },
        Case {
            name: "one CIDR on two nodes: both are asked for, the older first; the kernel's stays",
            others: &[("n2", 7, &["10.90.0.12"], &["10.244.1.0/24"]), ("n3", 5, &["10.90.0.13"], &["10.244.1.0/24"])],
            want: &[("10.244.1.0/24", "10.90.0.13"), ("10.244.1.0/24", "10.90.0.12")],
            asked: &[],
            exceptions: &[],
        },
        Case {
            name: "a part of another's CIDR: the older has all of it, both are told",
            others: &[("n2", 5, &["10.90.0.12"], &["10.244.2.0/23"]), ("n3", 7, &["10.90.0.13"], &["10.244.3.0/24"])],
            want: &[("10.244.2.0/23", "10.90.0.12")],
            asked: &[],
            exceptions: &[("n2", Overlapped), ("n3", Contested)],
        },
        Case {
            name: "the part is older than the whole",
            others: &[("n2", 7, &["10.90.0.12"], &["10.244.2.0/23"]), ("n3", 5, &["10.90.0.13"], &["10.244.3.0/24"])],
            want: &[("10.244.3.0/24", "10.90.0.13")],
            asked: &[],
            exceptions: &[("n2", Contested), ("n3", Overlapped)],
        },
        Case {
            name: "a part of our own CIDR",
            others: &[("n2", 0, &["10.90.0.12"], &["10.244.0.128/25"])],
            want: &[],
            asked: &[],
            exceptions: &[("n2", Contested)],
        },
        Case {
            name: "a CIDR that holds the address of a node",
            others: &[("n2", 0, &["10.90.0.12"], &["10.90.0.0/25"])],
            want: &[],
            asked: &[],
            exceptions: &[("n2", HoldsAddress)],
        },
    ] {
        let plan = Planner::default().plan(&around(case.others));
        let got: Vec<_> =
            plan.wanted.routes().map(|route| (route.destination.to_string(), route.target.to_string())).collect();
        let got: Vec<_> = got.iter().map(|(destination, to)| (destination.as_str(), to.as_str())).collect();
        assert_eq!(got, case.want, "{}", case.name);
        let asked: Vec<_> =
            plan.wanted.destinations().filter(|cidr| plan.wanted.is_asked(cidr)).map(ToString::to_string).collect();
        assert_eq!(asked, case.asked, "{}", case.name);
        let mut told: Vec<_> = plan.exceptions().map(|told| (told.node.as_str(), told.reason)).collect();
        told.sort();
        assert_eq!(told, case.exceptions, "{}", case.name);
    }
}

#[test]
fn the_own_pod_cidr_gets_no_route() {
    assert_eq!(*Planner::default().plan(&around(&[])), RoutePlan::default());
}

#[test]
fn pods_that_come_and_go_here_change_no_plan() {
    let mut planner = Planner::default();
    let before = planner.plan(&around(&[("n2", 0, &["10.90.0.12"], &["10.244.1.0/24"])]));
    let mut snapshot = around(&[("n2", 0, &["10.90.0.12"], &["10.244.1.0/24"])]);
    snapshot.node_routes = planner.nodes.clone();
    snapshot.local.push(local("veth2", "fe80::2/64"));
    assert!(Arc::ptr_eq(&before, &planner.plan(&snapshot)), "nothing was planned again");
}

fn nodes() -> impl Strategy<Value = Vec<Option<NodeRouteView>>> {
    let addresses =
        prop::sample::subsequence(vec!["10.90.0.12", "10.90.0.13", "192.0.2.1", "fd90::12", "10.244.3.7"], 0..3);
    let cidrs = prop::sample::subsequence(
        vec!["10.244.1.0/24", "10.244.2.0/23", "10.244.3.0/24", "10.244.0.0/25", "fd00:244::/64", "10.244.9.9/24"],
        0..3,
    );
    let node = prop::option::of((addresses, cidrs, 0i64..3));
    prop::collection::vec(node, 4).prop_map(|nodes| {
        let name = |number: usize| ["n1", "n2", "n3", "n4"][number];
        type Drawn = Option<(Vec<&'static str>, Vec<&'static str>, i64)>;
        let build = |(number, node): (usize, Drawn)| {
            node.map(|(addresses, cidrs, created_seconds)| NodeRouteView {
                created_seconds,
                ..node_route(name(number), &addresses, &cidrs)
            })
        };
        nodes.into_iter().enumerate().map(build).collect()
    })
}

proptest! {
    #[test]
    fn planning_change_by_change_is_planning_everything_anew(states in prop::collection::vec(nodes(), 1..5)) {
        let mut planner = Planner::default();
        let mut known = BTreeMap::<String, Arc<NodeRouteView>>::new();
        for state in states {
            let mut next = BTreeMap::new();
            for view in state.into_iter().flatten() {
                let name = view.node.to_string();
                // What is the same is shared, as a store does it.
                let view = known.get(&name).filter(|old| ***old == view).cloned().unwrap_or_else(|| Arc::new(view));
                next.insert(name, view);
            }
            let snapshot = Snapshot { node_routes: next.clone().into_iter().collect(), ..around(&[]) };
            let bit_by_bit = planner.plan(&snapshot);
            let anew = Planner::default().plan(&snapshot);
            prop_assert_eq!(bit_by_bit, anew);
            known = next;
        }
    }
}
