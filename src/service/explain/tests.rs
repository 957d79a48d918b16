use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::{AddressPoolSpec, BgpReport, EntryReport, GuardReport, NoEntry, PeerException, RefusedEntries};
use crate::config::Advertisement;
use crate::config::last_good::Checked;
use crate::config::selector::Labels;
use crate::model::SourceRanges;
use crate::model::views::{EndpointCounts, EndpointView, Ingress, IpMode, NodeView, TrafficPolicy, Truth};
use crate::service::announced::{Concerned, EntryNode};
use crate::service::cases;

fn service_of(name: &str, ip: Option<&str>) -> ServiceView {
    let ingress = ip.map(|ip| Ingress { ip: ip.parse().ok(), ip_mode: IpMode::Vip });
    ServiceView {
        created_seconds: 1_800_000_000,
        annotations: [(ALLOCATION.to_owned(), "4.17".to_owned())].into(),
        external_traffic_policy: TrafficPolicy::Cluster,
        ports: BTreeSet::new(),
        ingress: ingress.into_iter().collect(),
        assigned_seconds: ip.map(|_| 1_800_000_001),
        ..cases::service(name)
    }
}

fn observed() -> Observed {
    let pool = |name: &str, addresses: &str, auto_assign| {
        let spec = AddressPoolSpec { addresses: vec![addresses.to_owned()], auto_assign, ..AddressPoolSpec::default() };
        (name.parse().expect("a name"), Arc::new(cases::observed_pool(name, &spec)))
    };
    let services = [service_of("web", Some("10.60.0.10")), service_of("late", None)];
    Observed {
        services: services.into_iter().map(|view| (view.key.clone(), Arc::new(view))).collect(),
        pools: BTreeMap::from([pool("public", "10.60.0.10/32", true), pool("spare", "10.61.0.0/24", false)]),
        ..Observed::default()
    }
}

fn time(seconds: i64) -> String {
    format!("@{seconds}")
}

fn explain(observed: &Observed, around: &Surroundings, name: &str) -> ServiceExplained {
    service(observed, around, &ServiceKey::new("default", name), Now::default(), time).expect("a Service")
}

/// Of one Service, beside the others, in these surroundings.
fn told_of(view: ServiceView, around: &Surroundings, nodes: &[NodeView]) -> String {
    let mut observed = observed();
    observed.nodes = nodes.iter().map(|node| (node.name.clone(), Arc::new(node.clone()))).collect();
    let name = view.key.name().to_owned();
    observed.services.insert(view.key.clone(), Arc::new(view));
    explain(&observed, around, &name).to_string()
}

#[test]
fn a_service_hears_what_it_asks_what_it_has_and_what_each_pool_says() {
    let told = |name| explain(&observed(), &Surroundings::default(), name).to_string();
    assert_eq!(
        told("late"),
        "Service default/late\n  asks for    any address (IPv4)\n  has         no address, since it was created at @1800000000\n  \
         result      it waits. PoolExhausted: every IPv4 address of AddressPool public is in use\n  \
         assigned    False, PoolExhausted: every IPv4 address of AddressPool public is in use (its status does not say so yet)\n  \
         announced   False, NoAddress: it has no address (its status does not say so yet)\n  \
         lets in     everyone\n\
         Pools for IPv4, in the order in which they are asked\n  public  has no free address\n  \
         spare   gives out addresses only when asked for (spec.autoAssign)\n"
    );
    assert!(told("web").contains(
        "  has         10.60.0.10, since @1800000001 (allocation 4.17)\n  result      it keeps what it has\n"
    ));
}

#[test]
fn scripts_read_the_same() {
    let told = |name| serde_json::to_value(explain(&observed(), &Surroundings::default(), name)).expect("JSON");
    let late = told("late");
    assert_eq!(late["service"], "default/late");
    assert_eq!(late["notServed"], Value::Null);
    assert_eq!(late["has"]["addresses"], json!([]));
    assert_eq!(late["result"]["reason"], "PoolExhausted");
    assert_eq!(late["conditions"][1]["type"], "cairn.dev/Announced");
    assert_eq!(late["conditions"][1]["reason"], "NoAddress");
    assert_eq!(late["pools"][0], json!({ "family": "IPv4", "pool": "public", "verdict": "exhausted" }));
}

#[test]
fn a_service_that_is_not_served_hears_the_one_reason_and_nothing_of_pools() {
    let ignored = || crate::model::Few::from([(IGNORE.to_owned(), "true".to_owned())]);
    let of = |class: &str| Some(class.to_owned());
    let new = || service_of("web", None);
    let type_is_wrong = "its spec.type is not LoadBalancer";
    let cluster_ip = || ServiceView { is_load_balancer: false, ..new() };
    for (name, scope, view, want) in [
        ("ClusterIP", Scope::Default, cluster_ip(), type_is_wrong),
        (
            "ClusterIP, left alone",
            Scope::Default,
            ServiceView { annotations: ignored(), ..cluster_ip() },
            type_is_wrong,
        ),
        (
            "another's class",
            Scope::Default,
            ServiceView { class: of("other.io/x"), ..new() },
            "its spec.loadBalancerClass is other.io/x, which is not Cairn's cairn.dev/cairn",
        ),
        (
            "no class where one is needed",
            Scope::OwnClassOnly,
            new(),
            "it has no spec.loadBalancerClass, and only cairn.dev/cairn is served",
        ),
        (
            "left alone",
            Scope::Default,
            ServiceView { annotations: ignored(), ..new() },
            "its annotation cairn.dev/ignore is \"true\", so it is left alone",
        ),
        ("being deleted", Scope::Default, ServiceView { is_deleting: true, ..new() }, "it is being deleted"),
    ] {
        let mut observed = Observed { scope, ..observed() };
        observed.services.insert(view.key.clone(), Arc::new(view));
        let told = explain(&observed, &Surroundings::default(), "web").to_string();
        let want = format!(
            "Service default/web\n  not served  {want}\n  \
             has         no address, since it was created at @1800000000\n"
        );
        assert_eq!(told, want, "{name}");
    }
}

/// Nodes n1, n2, …, all eligible, each with a report that holds.
fn nodes(count: usize) -> (Vec<NodeView>, Surroundings) {
    let nodes: Vec<_> = (1..=count).map(|number| cases::node(&format!("n{number}"))).collect();
    let report = NodeReportStatus {
        guard: GuardReport::Standing,
        bgp: BgpReport { peers: 1, established: 1, ..BgpReport::default() },
        ..NodeReportStatus::default()
    };
    let around = Surroundings {
        flags: nodes.iter().map(|node| (node.name.clone(), EntryFlag::Eligible)).collect(),
        reports: nodes.iter().map(|node| (node.name.clone(), of_node(node, report.clone()))).collect(),
        ..Surroundings::default()
    };
    (nodes, around)
}

/// The report as one of this Node's since it started.
fn of_node(node: &NodeView, report: NodeReportStatus) -> NodeReportStatus {
    NodeReportStatus { boot_id: node.boot_id.clone().unwrap_or_default(), node_uid: Some(node.uid.clone()), ..report }
}

/// Takes the nodes as they are, endpoints of Service web on these, and what the Advertisements say.
fn look(nodes: &[NodeView], around: &mut Surroundings, endpoints: &[&str], advertisements: &[Value]) {
    let Surroundings { entrances, flags, reports } = around;
    let mut concerned = Concerned::default();
    let advertisements = advertisements.iter().enumerate().map(|(number, spec)| {
        let spec = serde_json::from_value(spec.clone()).expect("a spec");
        let name = format!("a{number}");
        let checked = Arc::new(Checked::new(Advertisement::check(&name, &spec), 0));
        (name, checked)
    });
    let (advertisements, none) = (advertisements.collect(), BTreeMap::new());
    entrances.set_selection(&advertisements, &BTreeMap::new(), &none, |_| Labels::new(), &mut concerned);
    for node in nodes {
        let known = EntryNode::of(flags.get(&node.name).copied(), Some(node), reports.get(&node.name));
        entrances.set_node(node.name.clone(), known, &node.labels, &mut concerned);
    }
    let ready = |name: &&str| (name.parse().expect("a name"), EndpointCounts { ready: 1, serving_terminating: 0 });
    let view = EndpointView {
        service: ServiceKey::new("default", "web"),
        family: None,
        nodes: endpoints.iter().map(ready).collect(),
    };
    entrances.set_slice("default/web-1", Some(Arc::new(view.into())), &mut concerned);
}

fn part<'a>(told: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = told.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    lines.take_while(|line| line.starts_with(' ')).collect()
}

#[test]
fn each_node_says_what_it_is_to_the_service() {
    let name = |node: &str| -> NodeName { node.parse().expect("a name") };
    let web = || service_of("web", Some("10.60.0.10"));
    let (mut nodes, mut around) = nodes(8);
    nodes[7].ready = Some(Truth::Unknown);
    around.flags.insert(name("n2"), EntryFlag::ExcludedByLabel);
    around.flags.remove(&name("n3"));
    let report = |node: &str| around.reports[&name(node)].clone();
    let no_session = NodeReportStatus {
        bgp: BgpReport {
            peers: 1,
            exceptions: vec![PeerException { peer: "tor".to_owned(), message: "refused".to_owned() }],
            ..BgpReport::default()
        },
        ..report("n4")
    };
    let no_peer = NodeReportStatus { bgp: BgpReport::default(), ..report("n5") };
    let refused = NodeReportStatus {
        entries: EntryReport {
            services: 0,
            refused: vec![RefusedEntries {
                reason: NoEntry::AddressOfAnother,
                services: 1,
                first: "default/web".to_owned(),
            }],
        },
        ..report("n6")
    };
    around.reports.extend([(name("n4"), no_session), (name("n5"), no_peer), (name("n6"), refused)]);
    around.reports.remove(&name("n7"));
    look(&nodes, &mut around, &["n1"], &[]);
    assert_eq!(
        part(&told_of(web(), &around, &nodes), "Nodes, 8 in all"),
        [
            "  1 announce it by BGP: n1",
            "  1 have a session, and their agents do not announce it: AddressOfAnother: n6",
            "  1 are not heard of: their kubelets are silent: n8",
            "  1 are not heard of: their agents have not reported since the nodes started: n7",
            "  1 have no session with a router: n4 (BgpPeer tor: refused)",
            "  1 have no router to talk to: no BgpPeer has a nodeSelector that takes them: n5",
            "  1 are no entry for any Service: the label node.kubernetes.io/exclude-from-external-load-balancers is on them: n2",
            "  1 have no NodeRoute: their Nodes have no address yet, or no controller leads: n3",
        ]
    );
    let without = told_of(service_of("web", None), &around, &nodes);
    assert!(!without.contains("Nodes"), "what is not there is announced by nobody: {without}");
}

#[test]
fn policy_endpoints_and_advertisements_say_who_announces() {
    let web = |policy| ServiceView { external_traffic_policy: policy, ..service_of("web", Some("10.60.0.10")) };
    let on_n2 = json!({ "services": {}, "nodeSelector": { "rack": "n2" }, "bgp": {} });
    let withheld = json!({ "services": {}, "withhold": {} });
    let all = "  2 announce it by BGP: n1, n2";
    for (case, policy, endpoints, advertisements, want) in [
        ("cluster", TrafficPolicy::Cluster, vec!["n1"], vec![], vec![all]),
        (
            "local",
            TrafficPolicy::Local,
            vec!["n1"],
            vec![],
            vec![
                "  1 announce it by BGP: n1",
                "  1 have no ready endpoint of it, and its externalTrafficPolicy is Local: n2",
            ],
        ),
        (
            "none is ready",
            TrafficPolicy::Local,
            vec![],
            vec![],
            vec!["  2 wait for a ready endpoint of it: there is none on any node: n1, n2"],
        ),
        (
            "one is left out",
            TrafficPolicy::Cluster,
            vec!["n1"],
            vec![on_n2],
            vec![
                "  1 announce it by BGP: n2",
                "  1 are left out by the nodeSelectors of the Advertisements that select its addresses: n1",
            ],
        ),
        (
            "withheld",
            TrafficPolicy::Cluster,
            vec!["n1"],
            vec![withheld],
            vec!["  2 are kept from announcing it by Advertisements with withhold or l2: n1, n2"],
        ),
    ] {
        let (mut nodes, mut around) = nodes(2);
        for node in &mut nodes {
            node.labels = Labels::from([("rack".to_owned(), node.name.to_string())]);
        }
        look(&nodes, &mut around, &endpoints, &advertisements);
        assert_eq!(part(&told_of(web(policy), &around, &nodes), "Nodes"), want, "{case}");
    }
    let (nodes, mut around) = nodes(12);
    look(&nodes, &mut around, &["n1"], &[]);
    let told = told_of(web(TrafficPolicy::Cluster), &around, &nodes);
    assert_eq!(part(&told, "Nodes"), ["  12 announce it by BGP: n1, n10, n11, n12, n2, …"], "five are named");
}

#[test]
fn a_session_with_a_router_that_is_not_told_announces_nothing() {
    let web = service_of("web", Some("10.60.0.10"));
    let to_b = json!({ "services": {}, "bgp": { "peers": ["b"] } });
    let (nodes, mut around) = nodes(2);
    for (node, router) in [("n1", "a"), ("n2", "b")] {
        let report = around.reports.get_mut(&node.parse().expect("a name")).expect("a report");
        report.bgp.heard_by = vec![router.to_owned()];
    }
    look(&nodes, &mut around, &["n1"], &[to_b]);
    assert_eq!(
        part(&told_of(web, &around, &nodes), "Nodes"),
        [
            "  1 announce it by BGP: n2",
            "  1 have sessions, and with none of the routers that the Advertisements of its addresses name: n1",
        ]
    );
}

#[test]
fn a_service_says_whom_it_lets_in_and_where_that_does_not_hold() {
    let text = "spec.loadBalancerSourceRanges";
    let annotation = "service.beta.kubernetes.io/load-balancer-source-ranges";
    for (case, field, annotated, guard, want) in [
        ("everyone", vec![], None, GuardReport::Denied, "everyone".to_owned()),
        (
            "some",
            vec!["10.0.0.0/8", "192.0.2.0/24"],
            None,
            GuardReport::Standing,
            format!("10.0.0.0/8, 192.0.2.0/24 ({text})"),
        ),
        (
            "of the other family",
            vec!["fd00::/8"],
            None,
            GuardReport::Standing,
            format!("fd00::/8 ({text}); nobody by IPv4, of which it names no range"),
        ),
        ("everyone, in so many words", vec!["0.0.0.0/0"], None, GuardReport::Denied, format!("0.0.0.0/0 ({text})")),
        (
            "no range at all",
            vec![],
            Some("nonsense"),
            GuardReport::Standing,
            format!("nobody ({annotation}); \"nonsense\" is no range"),
        ),
        (
            "not held",
            vec!["10.0.0.0/8"],
            None,
            GuardReport::Unsupported,
            format!(
                "10.0.0.0/8 ({text}); the guard of node n1 and 1 more does not stand (Unsupported), so only kube-proxy holds them there"
            ),
        ),
        (
            "held by nobody",
            vec![],
            Some("10.0.0.0/8"),
            GuardReport::Denied,
            format!(
                "10.0.0.0/8 ({annotation}); the guard of node n1 and 1 more does not stand (Denied), so nobody holds them there"
            ),
        ),
    ] {
        let (nodes, mut around) = nodes(2);
        around.reports.values_mut().for_each(|report| report.guard = guard);
        let field: Vec<_> = field.into_iter().map(str::to_owned).collect();
        let view =
            ServiceView { source_ranges: SourceRanges::of(&field, annotated), ..service_of("web", Some("10.60.0.10")) };
        let told = told_of(view, &around, &nodes);
        assert!(told.contains(&format!("\n  lets in     {want}\n")), "{case}: {told}");
    }
}

#[test]
fn a_pool_says_who_has_what() {
    let of = |name: &str| pools(&observed(), name.parse().ok().as_ref(), Now::default(), time);
    assert_eq!(
        of("public").to_string(),
        "AddressPool public\n  IPv4  1 in all, 1 in use, 0 free\n  10.60.0.10  default/web\n"
    );
    assert_eq!(
        serde_json::to_value(of("public")).expect("JSON"),
        json!({ "pools": [{
            "name": "public",
            "counts": [{ "family": "IPv4", "total": "1", "used": 1, "free": "0" }],
            "faults": [],
            "holders": [{ "address": "10.60.0.10", "services": ["default/web"] }],
            "cooling": [],
        }] })
    );
}
