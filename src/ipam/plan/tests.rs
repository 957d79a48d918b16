use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cluster::views;
use crate::config::{NodeCidrFlags, NodeCidrs, cluster_cidrs};
use crate::model::Family;

const SINGLE: &str = "10.10.0.0/16";
const DUAL: &str = "10.10.0.0/16,ace:cab:deca::/48";

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn name(text: &str) -> NodeName {
    text.parse().expect("a name")
}

/// Cluster CIDRs in blocks of /24 and /64.
fn cluster(text: &str) -> Vec<ClusterCidr> {
    let cluster = cluster_cidrs(text).expect("cluster CIDRs");
    let flags = NodeCidrFlags { allocator_type: "RangeAllocator", mask: 0, mask_v4: 0, mask_v6: 0, services: "" };
    NodeCidrs::check(&cluster, flags).expect("no faults").cluster
}

/// A Node that the API server has had since this second, with these pod CIDRs.
fn node(text: &str, created_seconds: i64, cidrs: &[&str]) -> NodeView {
    let object = json!({ "metadata": { "name": text, "uid": format!("uid-{text}") }, "spec": { "podCIDRs": cidrs } });
    let view = views::node(&serde_json::from_value(object).expect("a Node")).expect("a name");
    NodeView { created_seconds, ..view }
}

fn claim(block: &str, holder: &str) -> Claim {
    Claim {
        block: prefix(block),
        holder: holder.parse().ok(),
        uid: format!("uid-{block}"),
        resource_version: "1".to_owned(),
        acquired_microseconds: 0,
    }
}

fn observed(cidrs: &str, nodes: Vec<NodeView>, claims: Vec<Claim>) -> Observed {
    Observed {
        cluster: cluster(cidrs),
        nodes: nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node))).collect(),
        claims: claims.into_iter().map(|claim| (claim.block, Arc::new(claim))).collect(),
        ..Observed::default()
    }
}

/// `node blocks`, and `new` where a claim has to be made for all of them.
fn given(plan: &Plan) -> Vec<String> {
    let words = |assignment: &Assignment| {
        let blocks: Vec<_> = assignment.blocks.iter().map(ToString::to_string).collect();
        let unclaimed: Vec<_> = assignment.unclaimed.iter().map(ToString::to_string).collect();
        format!("{} {} [{}]", assignment.holder.node, blocks.join(","), unclaimed.join(","))
    };
    plan.assignments.iter().map(words).collect()
}

#[test]
fn occupy_pre_existing() {
    for (row, cidrs, had, next, note) in [
        ("no podCIDRs, single", SINGLE, &[][..], "10.10.1.0/24", None),
        ("no podCIDRs, dual", DUAL, &[], "10.10.1.0/24,ace:cab:deca:1::/64", None),
        ("10.10.0.1/24", SINGLE, &["10.10.0.1/24"], "10.10.1.0/24", None),
        (
            "{10.10.0.1/24, a00::/86}",
            "10.10.0.0/16,a00::/48",
            &["10.10.0.1/24", "a00::/86"],
            "10.10.1.0/24,a00:0:0:1::/64",
            Some("PodCIDROddSize"),
        ),
        (
            "172.10.0.1/24: upstream does not start",
            SINGLE,
            &["172.10.0.1/24"],
            "10.10.0.0/24",
            Some("PodCIDROutsideCluster"),
        ),
        (
            "two podCIDRs but one cluster CIDR: upstream does not start",
            SINGLE,
            &["10.10.0.1/24", "ace:cab:deca::/64"],
            "10.10.1.0/24",
            Some("PodCIDROutsideCluster"),
        ),
        (
            "bad IPv4: upstream does not start",
            DUAL,
            &["172.10.0.1/24", "ace:cab:deca::/64"],
            "10.10.0.0/24,ace:cab:deca:1::/64",
            Some("PodCIDROutsideCluster"),
        ),
        (
            "bad IPv6: upstream does not start",
            DUAL,
            &["10.10.0.1/24", "cdd::/86"],
            "10.10.1.0/24,ace:cab:deca::/64",
            Some("PodCIDROutsideCluster"),
        ),
        ("one family of two", DUAL, &["10.10.0.0/24"], "10.10.1.0/24,ace:cab:deca::/64", Some("PodCIDRFamilyMissing")),
        ("several blocks", SINGLE, &["10.10.0.0/22"], "10.10.4.0/24", Some("PodCIDROddSize")),
        ("no prefix at all", SINGLE, &["010.10.0.0/24"], "10.10.0.0/24", Some("PodCIDRUnread")),
    ] {
        // Where the first Node has nothing yet, it gets the first block.
        let nodes = vec![node("n1", 1, had), node("n2", 2, &[])];
        let plan = plan(&observed(cidrs, nodes, Vec::new()));
        let last = plan.assignments.last().expect("a Node waits");
        let blocks: Vec<_> = last.blocks.iter().map(ToString::to_string).collect();
        assert_eq!((last.holder.node.as_str(), blocks.join(",").as_str()), ("n2", next), "{row}");
        assert_eq!(plan.notes.get(&name("n1")).map(Note::reason), note, "{row}");
        assert_eq!(plan.assignments.len(), if had.is_empty() { 2 } else { 1 }, "{row}: what a Node has, it keeps");
    }
}

#[test]
fn the_oldest_node_comes_first_and_blocks_go_round() {
    let nodes = || vec![node("a", 3, &[]), node("b", 2, &[]), node("c", 2, &[])];
    let mut observed = observed("10.0.0.0/22", nodes(), Vec::new());
    assert_eq!(
        given(&plan(&observed)),
        ["b 10.0.0.0/24 [10.0.0.0/24]", "c 10.0.1.0/24 [10.0.1.0/24]", "a 10.0.2.0/24 [10.0.2.0/24]"]
    );
    observed.last = vec![Some(prefix("10.0.2.0/24"))];
    let plan = plan(&observed);
    assert_eq!(
        given(&plan),
        ["b 10.0.3.0/24 [10.0.3.0/24]", "c 10.0.0.0/24 [10.0.0.0/24]", "a 10.0.1.0/24 [10.0.1.0/24]"]
    );
    assert_eq!(plan.last, [Some(prefix("10.0.1.0/24"))]);
}

#[test]
fn claims_of_an_earlier_try_are_used_by_their_node_alone() {
    let (n1, n2) = (node("n1", 1, &[]), node("n2", 2, &[]));
    for (row, nodes, claims, want) in [
        (
            "both claims were made",
            vec![n1.clone()],
            vec![claim("10.10.7.0/24", "n1/uid-n1"), claim("ace:cab:deca:7::/64", "n1/uid-n1")],
            vec!["n1 10.10.7.0/24,ace:cab:deca:7::/64 []"],
        ),
        (
            "one was made",
            vec![n1.clone()],
            vec![claim("10.10.7.0/24", "n1/uid-n1")],
            vec!["n1 10.10.7.0/24,ace:cab:deca::/64 [ace:cab:deca::/64]"],
        ),
        (
            "another Node's",
            vec![n1.clone(), n2.clone()],
            vec![claim("10.10.0.0/24", "n2/uid-n2")],
            vec![
                "n1 10.10.1.0/24,ace:cab:deca::/64 [10.10.1.0/24,ace:cab:deca::/64]",
                "n2 10.10.0.0/24,ace:cab:deca:1::/64 [ace:cab:deca:1::/64]",
            ],
        ),
        (
            "of the Node of this name before",
            vec![n1.clone()],
            vec![claim("10.10.0.0/24", "n1/uid-0")],
            vec!["n1 10.10.1.0/24,ace:cab:deca::/64 [10.10.1.0/24,ace:cab:deca::/64]"],
        ),
        (
            "nobody can read whose it is",
            vec![n1.clone()],
            vec![claim("10.10.0.0/24", "?")],
            vec!["n1 10.10.1.0/24,ace:cab:deca::/64 [10.10.1.0/24,ace:cab:deca::/64]"],
        ),
        (
            "a block that another Node has got from someone else",
            vec![n1.clone(), node("n3", 0, &["10.10.7.0/24", "ace:cab:deca:7::/64"])],
            vec![claim("10.10.7.0/24", "n1/uid-n1")],
            vec!["n1 10.10.0.0/24,ace:cab:deca::/64 [10.10.0.0/24,ace:cab:deca::/64]"],
        ),
        (
            "of another mask",
            vec![n1.clone()],
            vec![claim("10.10.0.0/25", "n1/uid-n1")],
            vec!["n1 10.10.1.0/24,ace:cab:deca::/64 [10.10.1.0/24,ace:cab:deca::/64]"],
        ),
    ] {
        assert_eq!(given(&plan(&observed(DUAL, nodes, claims))), want, "{row}");
    }
    let mut unanswered = observed(SINGLE, vec![n1], Vec::new());
    unanswered.doubtful.insert(prefix("10.10.7.0/24"), "n1/uid-n1".parse().expect("a holder"));
    assert_eq!(given(&plan(&unanswered)), ["n1 10.10.7.0/24 [10.10.7.0/24]"], "it is asked for again");
}

#[test]
fn claims_go_with_their_node_or_when_it_has_others() {
    let of = |nodes, holder: &str| {
        let plan = plan(&observed(SINGLE, nodes, vec![claim("10.10.7.0/24", holder)]));
        let release = plan.releases.get(&prefix("10.10.7.0/24")).cloned();
        release.map(|release| release.unless_there.map(|holder| holder.to_string()))
    };
    for (row, nodes, holder, want) in [
        ("its Node has the block", vec![node("n1", 1, &["10.10.7.0/24"])], "n1/uid-n1", None),
        ("its Node waits", vec![node("n1", 1, &[])], "n1/uid-n1", None),
        ("its Node has another", vec![node("n1", 1, &["10.10.8.0/24"])], "n1/uid-n1", Some(None)),
        ("its Node has one that nobody can read", vec![node("n1", 1, &["010.10.7.0/24"])], "n1/uid-n1", None),
        ("nobody sees its Node", Vec::new(), "n1/uid-n1", Some(Some("n1/uid-n1"))),
        ("its Node was registered again", vec![node("n1", 1, &[])], "n1/uid-0", Some(Some("n1/uid-0"))),
        ("nobody can read whose it is", Vec::new(), "?", None),
    ] {
        assert_eq!(of(nodes, holder), want.map(|there| there.map(str::to_owned)), "{row}");
    }
}

#[test]
fn what_is_not_for_pods_is_left_out_and_told() {
    let reserve = |what: Reserved, spans: &[&str]| {
        let mut observed = observed("10.0.0.0/22", vec![node("n1", 1, &[])], Vec::new());
        observed.reserved.insert(what, spans.iter().map(|text| Span::from(prefix(text))).collect());
        let plan = plan(&observed);
        (given(&plan), plan.overlaps.values().map(ToString::to_string).collect::<Vec<_>>())
    };
    let told = |what: &str| {
        format!(
            "--cluster-cidr 10.0.0.0/22 shares addresses with {what}: no node gets a pod CIDR that has any of these"
        )
    };
    for (what, spans, block, words) in [
        (Reserved::ServiceRange, &["10.0.0.0/23"][..], "10.0.2.0/24", Some("--service-cluster-ip-range")),
        (
            Reserved::ServiceCidr("more".to_owned()),
            &["10.0.0.0/28", "10.0.1.0/24"],
            "10.0.2.0/24",
            Some("ServiceCIDR more"),
        ),
        (Reserved::Pool("lab".parse().expect("a name")), &["10.0.0.10/32"], "10.0.1.0/24", Some("AddressPool lab")),
        (
            Reserved::Network { network: prefix("10.0.0.0/23"), node: name("n7") },
            &["10.0.0.0/23"],
            "10.0.2.0/24",
            Some("10.0.0.0/23, a network that node n7 is on"),
        ),
        (
            Reserved::Network { network: prefix("10.90.0.0/24"), node: name("n7") },
            &["10.90.0.0/24"],
            "10.0.0.0/24",
            None,
        ),
        (Reserved::ServiceRange, &["10.96.0.0/16", "fd00:96::/112"], "10.0.0.0/24", None),
    ] {
        let (given, overlaps) = reserve(what, spans);
        assert_eq!(given, [format!("n1 {block} [{block}]")], "{words:?}");
        assert_eq!(overlaps, words.map(told).into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn an_address_of_a_node_is_in_no_pod_cidr() {
    let addressed = |text: &str, created, ip: &str| {
        let object = json!({
            "metadata": { "name": text, "uid": format!("uid-{text}") },
            "status": { "addresses": [{ "type": "InternalIP", "address": ip }] },
        });
        let view = views::node(&serde_json::from_value(object).expect("a Node")).expect("a name");
        NodeView { created_seconds: created, ..view }
    };
    let nodes = vec![
        node("n0", 0, &["10.0.2.0/24"]),
        addressed("n1", 1, "10.0.0.7"),
        addressed("n2", 2, "10.0.2.9"),
        addressed("n3", 3, "192.0.2.1"),
    ];
    let plan = plan(&observed("10.0.0.0/22", nodes, Vec::new()));
    assert_eq!(given(&plan)[..2], ["n1 10.0.1.0/24 [10.0.1.0/24]", "n2 10.0.3.0/24 [10.0.3.0/24]"]);
    assert_eq!(plan.notes.get(&name("n3")).map(Note::reason), Some("CIDRNotAvailable"));
    assert_eq!(plan.notes.get(&name("n0")).map(Note::reason), Some("PodCIDRReserved"));
    assert_eq!(plan.overlaps.keys().collect::<Vec<_>>(), [&Reserved::Node(name("n1"))], "one of them is enough");
}

#[test]
fn a_network_of_nodes_is_in_no_pod_cidr_and_who_has_it_is_told() {
    let mut observed = observed("10.0.0.0/22", vec![node("n0", 0, &["10.0.1.0/24"]), node("n1", 1, &[])], Vec::new());
    let lan = Reserved::Network { network: prefix("10.0.0.0/23"), node: name("n0") };
    observed.reserved.insert(lan, vec![Span::from(prefix("10.0.0.0/23"))]);
    let of_two = plan(&observed);
    assert_eq!(given(&of_two), ["n1 10.0.2.0/24 [10.0.2.0/24]"]);
    let words = "spec.podCIDRs has 10.0.1.0/24, which shares addresses with 10.0.0.0/23, a network that node n0 is on: \
                 pod CIDRs never change, the node has to register again to get another";
    assert_eq!(of_two.notes.get(&name("n0")).map(ToString::to_string).as_deref(), Some(words));
    // All of it: then nobody gets any.
    let whole = Reserved::Network { network: prefix("10.0.0.0/8"), node: name("n0") };
    observed.reserved = BTreeMap::from([(whole, vec![Span::from(prefix("10.0.0.0/8"))])]);
    let full = plan(&observed);
    assert_eq!(full.notes.get(&name("n1")).map(Note::reason), Some("CIDRNotAvailable"));
    assert!(full.assignments.is_empty());
}

#[test]
fn a_pod_cidr_outside_the_cluster_is_told_by_one_room() {
    let mut observed = observed("10.0.0.0/22", vec![node("n1", 1, &["192.0.2.0/24"])], Vec::new());
    assert_eq!(plan(&observed).notes.get(&name("n1")).map(Note::reason), Some("PodCIDROutsideCluster"));
    observed.outside = Outside::ToldByRoutes;
    assert_eq!(plan(&observed).notes, BTreeMap::new());
}

#[test]
fn a_pod_cidr_of_two_nodes_is_told_to_both() {
    let nodes = vec![node("n1", 1, &["10.10.4.0/22"]), node("n2", 2, &["10.10.5.0/24"]), node("n3", 3, &[])];
    let notes = plan(&observed(SINGLE, nodes, Vec::new())).notes;
    let words = |node: &str| notes.get(&name(node)).map(ToString::to_string);
    let want = |cidr: &str, with: &str, by: &str| {
        format!(
            "spec.podCIDRs has {cidr}, which shares addresses with {with} of node {by}: pod CIDRs never change, one of the two nodes has to register again"
        )
    };
    assert_eq!(words("n1"), Some(want("10.10.4.0/22", "10.10.5.0/24", "n2")));
    assert_eq!(words("n2"), Some(want("10.10.5.0/24", "10.10.4.0/22", "n1")));
    assert_eq!(words("n3"), None);
}

#[test]
fn a_full_family_costs_nothing_of_the_other_and_is_told_until_there_is_space() {
    let full = "10.0.0.0/23,fd00::/48";
    let two = [node("n1", 1, &["10.0.0.0/24", "fd00::/64"]), node("n2", 2, &["10.0.1.0/24", "fd00:0:0:1::/64"])];
    let words = "Node n3 status is now: CIDRNotAvailable: every /24 of 10.0.0.0/23 is in use or left out";
    let told = |shown: Option<(Truth, &str)>, nodes: &[NodeView]| {
        let shown = shown.map(|(status, message)| (status, message.to_owned()));
        let n3 = NodeView { pod_cidr_unavailable: shown, ..node("n3", 3, &[]) };
        plan(&observed(full, nodes.iter().cloned().chain([n3]).collect(), Vec::new()))
    };
    let plan = told(None, &two);
    assert_eq!((given(&plan), &plan.last[..]), (Vec::new(), &[None, None][..]), "nothing of IPv6 either");
    assert_eq!(plan.usage, [Usage { taken: 2, size: 2 }, Usage { taken: 2, size: 65536 }]);
    assert_eq!(plan.notes.get(&name("n3")).map(ToString::to_string).as_deref(), Some(words));
    let unavailable = Availability::NotAvailable(words.to_owned());
    assert_eq!(plan.conditions, [(name("n3"), unavailable.clone())].into());
    assert_eq!(told(Some((Truth::True, words)), &two).conditions, BTreeMap::new(), "it is told already");
    assert_eq!(told(Some((Truth::True, "older words")), &two).conditions, [(name("n3"), unavailable)].into());

    let plan = told(Some((Truth::True, words)), &two[..1]);
    assert_eq!(given(&plan), ["n3 10.0.1.0/24,fd00:0:0:1::/64 [10.0.1.0/24,fd00:0:0:1::/64]"]);
    assert_eq!((&plan.notes, &plan.conditions), (&BTreeMap::new(), &BTreeMap::new()), "not before it has them");
    let has = |status| NodeView {
        pod_cidr_unavailable: Some((status, words.to_owned())),
        ..node("n3", 3, &["10.0.1.0/24", "fd00:0:0:1::/64"])
    };
    let conditions = |node| super::plan(&observed(full, vec![node], Vec::new())).conditions;
    assert_eq!(conditions(has(Truth::True)), [(name("n3"), Availability::Assigned)].into());
    assert_eq!(conditions(has(Truth::False)), BTreeMap::new());
}

#[test]
fn a_node_on_its_way_or_on_its_end_is_left_alone_and_keeps_its_blocks() {
    let going = NodeView { is_deleting: true, ..node("n1", 1, &["10.0.0.0/24"]) };
    let bare = NodeView { is_deleting: true, ..node("n2", 2, &[]) };
    let mut observed = observed("10.0.0.0/22", vec![going, bare, node("n3", 3, &[]), node("n4", 4, &[])], Vec::new());
    observed.under_way.insert(name("n3"), vec![prefix("10.0.1.0/24")]);
    assert_eq!(given(&plan(&observed)), ["n4 10.0.2.0/24 [10.0.2.0/24]"]);
}

/// What the API server has, and who would give out blocks of it.
struct World {
    observed: Observed,
    ids: u32,
}

#[derive(Debug, Clone)]
enum Event {
    Join,
    JoinWith(u8),
    Leave(usize),
    /// A round that ends after so many requests.
    Round(usize),
    ClaimLost(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Join),
        1 => any::<u8>().prop_map(Event::JoinWith),
        2 => any::<usize>().prop_map(Event::Leave),
        4 => (0_usize..12).prop_map(Event::Round),
        1 => any::<usize>().prop_map(Event::ClaimLost),
    ]
}

impl World {
    fn join(&mut self, cidrs: &[&str]) {
        self.ids += 1;
        let node = node(&format!("n{}", self.ids), i64::from(self.ids), cidrs);
        self.observed.nodes.insert(node.name.clone(), Arc::new(node));
    }

    /// Carries out a plan as far as the requests go; answers with what was given.
    fn round(&mut self, requests: usize) -> Vec<(NodeName, Vec<Prefix>)> {
        let plan = plan(&self.observed);
        let mut given = Vec::new();
        let mut left = requests;
        self.observed.last = plan.last;
        for assignment in plan.assignments {
            for block in &assignment.unclaimed {
                if left == 0 {
                    return given;
                }
                left -= 1;
                let new = claim(&block.to_string(), &assignment.holder.to_string());
                let earlier = self.observed.claims.insert(*block, Arc::new(new));
                assert!(earlier.is_none(), "{block} was claimed");
            }
            if left == 0 {
                return given;
            }
            left -= 1;
            let node = Arc::make_mut(self.observed.nodes.get_mut(&assignment.holder.node).expect("it waits"));
            assert!(node.pod_cidrs.is_empty(), "pod CIDRs never change");
            node.pod_cidrs.clone_from(&assignment.blocks);
            given.push((assignment.holder.node, assignment.blocks));
        }
        for block in plan.releases.keys().take(left) {
            self.observed.claims.remove(block);
        }
        given
    }

    /// Block by block: those that no Node, claim or reservation has a part of.
    fn free(&self) -> usize {
        let all = (0_u32..32).map(|n| prefix(&format!("10.0.{n}.0/24")));
        let nodes = || self.observed.nodes.values().flat_map(|node| &node.pod_cidrs);
        let reserved =
            |block: &Prefix| self.observed.reserved.values().flatten().any(|s| s.overlaps(&Span::from(*block)));
        let is_free = |block: &Prefix| {
            !nodes().any(|cidr| cidr.overlaps(block)) && !self.observed.claims.contains_key(block) && !reserved(block)
        };
        all.filter(is_free).count()
    }
}

proptest! {
    #[test]
    fn random_histories_give_no_address_to_two_nodes_and_leave_no_block_unused(
        events in prop::collection::vec(event(), 1..60),
        dual: bool,
    ) {
        let cidrs = if dual { "fd00::/56,10.0.0.0/19" } else { "10.0.0.0/19" };
        let mut world = World { observed: observed(cidrs, Vec::new(), Vec::new()), ids: 0 };
        world.observed.reserved.insert(Reserved::ServiceRange, vec![Span::from(prefix("10.0.4.0/22"))]);
        for event in events {
            match event {
                Event::Join => world.join(&[]),
                // As someone else gives them: never twice, and any size.
                Event::JoinWith(third) => {
                    let cidr = format!("10.0.{third}.0/{}", 24 + third % 3);
                    let taken = |node: &Arc<NodeView>| node.pod_cidrs.iter().any(|have| have.overlaps(&prefix(&cidr)));
                    let is_taken = world.observed.nodes.values().any(taken);
                    let is_claimed = world.observed.claims.keys().any(|block| block.overlaps(&prefix(&cidr)));
                    if !is_taken && !is_claimed {
                        world.join(&[&cidr]);
                    }
                }
                Event::Leave(which) => {
                    let count = world.observed.nodes.len().max(1);
                    let name = world.observed.nodes.keys().nth(which % count).cloned();
                    name.map(|name| world.observed.nodes.remove(&name));
                }
                Event::Round(requests) => drop(world.round(requests)),
                // By hand: what Nodes have counts without it.
                Event::ClaimLost(which) => {
                    let nodes = &world.observed.nodes;
                    let has = |block: &&Prefix| nodes.values().any(|node| node.pod_cidrs.contains(block));
                    let of_nodes: Vec<_> = world.observed.claims.keys().filter(has).copied().collect();
                    if let Some(block) = of_nodes.get(which % of_nodes.len().max(1)) {
                        world.observed.claims.remove(block);
                    }
                }
            }
            let all: Vec<_> = world.observed.nodes.values().flat_map(|node| &node.pod_cidrs).copied().collect();
            for (index, one) in all.iter().enumerate() {
                prop_assert!(all[index + 1..].iter().all(|other| !one.overlaps(other)), "{one} is given twice");
            }
        }
        // Undisturbed, three rounds are enough: finish what was begun, release, use what that freed.
        let free = world.free();
        let waiting = |world: &World| world.observed.nodes.values().filter(|node| node.pod_cidrs.is_empty()).count();
        let before = waiting(&world);
        let claimed = claimed_by_waiting(&world.observed);
        let given = world.round(usize::MAX).len();
        prop_assert_eq!(given, before.min(free + claimed), "a round gives all there is");
        world.round(usize::MAX);
        world.round(usize::MAX);
        if waiting(&world) > 0 {
            prop_assert_eq!(world.free(), 0);
        }
        let last = plan(&world.observed);
        prop_assert!(last.assignments.is_empty() && last.releases.is_empty(), "nothing is left to do: {:?}", last);
    }

    #[test]
    fn the_order_of_what_is_observed_does_not_matter(count in 1_usize..40, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut nodes: Vec<_> = (0..count).map(|n| {
            let cidr = format!("10.10.{n}.0/24");
            let has: &[&str] = if n % 3 == 0 { &[&cidr] } else { &[] };
            node(&format!("n{n}"), i64::try_from(n % 5).expect("small"), has)
        }).collect();
        let one = plan(&observed(SINGLE, nodes.clone(), Vec::new()));
        random.shuffle(&mut nodes);
        prop_assert_eq!(plan(&observed(SINGLE, nodes, Vec::new())), one);
    }
}

/// Waiting Nodes whose IPv4 block is claimed for them.
fn claimed_by_waiting(observed: &Observed) -> usize {
    let waits = |holder: &Holder| observed.nodes.get(&holder.node).is_some_and(|node| node.pod_cidrs.is_empty());
    let v4 = observed.claims.values().filter(|claim| claim.block.family() == Family::V4);
    v4.filter_map(|claim| claim.holder.as_ref()).filter(|holder| waits(holder)).count()
}

#[test]
fn five_thousand_nodes_at_once_are_planned_in_one_round() {
    let nodes: Vec<_> = (0..5000).map(|n| node(&format!("n{n:04}"), 1, &[])).collect();
    let plan = plan(&observed("10.0.0.0/8,fd00::/48", nodes, Vec::new()));
    let blocks: BTreeSet<_> = plan.assignments.iter().flat_map(|assignment| &assignment.blocks).collect();
    assert_eq!((plan.assignments.len(), blocks.len()), (5000, 10_000));
}
