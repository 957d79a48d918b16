//! For which addresses a node is an entry.

use std::time::Duration;

use super::*;
use crate::agent::cases::{Builder, node_route, snapshot, web};
use crate::api::LOAD_BALANCER_CLASS;
use crate::model::views::{Ingress, TrafficPolicy};
use crate::model::{Few, SourceRanges};

fn plan(snapshot: &Snapshot, memory: &mut Memory, now: Moment) -> Arc<EntryPlan> {
    super::plan(snapshot, &NodeAddresses::of(&snapshot.node_routes), memory, now)
}

fn base() -> Builder {
    snapshot().node(node_route("n1", &["10.90.0.11"], &[])).node(node_route("n2", &["10.90.0.12"], &[]))
}

fn verdict(snapshot: &Snapshot) -> Result<(), NoEntry> {
    let plan = plan(snapshot, &mut Memory::default(), Moment::default());
    match plan.refused.values().next() {
        Some(&reason) => Err(reason),
        None => {
            assert_eq!(plan.announced, BTreeSet::from(["10.60.0.10".parse().expect("an address")]));
            Ok(())
        }
    }
}

#[test]
fn the_traffic_policy_decides_who_is_an_entry() {
    use TrafficPolicy::{Cluster, Local};
    struct Case {
        name: &'static str,
        policy: TrafficPolicy,
        /// Node, ready, serving terminating.
        endpoints: &'static [(&'static str, u32, u32)],
        want: Result<(), NoEntry>,
    }
    let cases = [
        Case { name: "an endpoint elsewhere", policy: Cluster, endpoints: &[("n2", 1, 0)], want: Ok(()) },
        Case { name: "an endpoint here", policy: Cluster, endpoints: &[("n1", 1, 0)], want: Ok(()) },
        Case { name: "none", policy: Cluster, endpoints: &[], want: Err(NoEntry::NoReadyEndpoint) },
        Case { name: "only terminating ones", policy: Cluster, endpoints: &[("n2", 0, 1)], want: Ok(()) },
        Case { name: "a local endpoint", policy: Local, endpoints: &[("n1", 1, 0)], want: Ok(()) },
        Case {
            name: "no local endpoint",
            policy: Local,
            endpoints: &[("n2", 1, 0)],
            want: Err(NoEntry::NoLocalEndpoint),
        },
        Case {
            name: "terminating here, ready elsewhere",
            policy: Local,
            endpoints: &[("n1", 0, 1), ("n2", 1, 0)],
            want: Err(NoEntry::NoLocalEndpoint),
        },
        Case { name: "terminating here, none elsewhere", policy: Local, endpoints: &[("n1", 0, 1)], want: Ok(()) },
    ];
    for case in cases {
        let mut builder = base().service(web(case.policy));
        for &(node, ready, terminating) in case.endpoints {
            builder = builder.endpoints(node, ready, terminating);
        }
        assert_eq!(verdict(&builder.build()), case.want, "{:?}: {}", case.policy, case.name);
    }
}

#[test]
fn an_excluded_or_unknown_node_is_no_entry() {
    let mut excluded = node_route("n1", &[], &[]);
    excluded.entry = EntryFlag::ExcludedByLabel;
    let service = || web(TrafficPolicy::Cluster);
    let snapshot_of = |builder: Builder| builder.service(service()).endpoints("n1", 1, 0).build();
    assert_eq!(verdict(&snapshot_of(snapshot().node(excluded))), Err(NoEntry::ExcludedByLabel));
    assert_eq!(verdict(&snapshot_of(snapshot())), Err(NoEntry::NoNodeRoute));
}

#[test]
fn a_service_of_a_foreign_class_or_mode_is_not_announced() {
    let foreign = ServiceView { class: Some("other.example/lb".to_owned()), ..web(TrafficPolicy::Cluster) };
    let ours = ServiceView { class: Some(LOAD_BALANCER_CLASS.to_owned()), ..web(TrafficPolicy::Cluster) };
    let mut proxied = web(TrafficPolicy::Cluster);
    proxied.ingress[0].ip_mode = IpMode::Proxy;
    for (service, count) in [(foreign, 0), (ours, 1), (proxied, 0)] {
        let snapshot = base().service(service).endpoints("n1", 1, 0).build();
        assert_eq!(plan(&snapshot, &mut Memory::default(), Moment::default()).announced.len(), count);
    }
}

#[test]
fn services_that_are_not_ours_to_serve_are_not_announced() {
    use crate::model::Scope::{Default, OwnClassOnly};
    let class = Some(LOAD_BALANCER_CLASS.to_owned());
    let ignored = Few::from([("cairn.dev/ignore".to_owned(), "true".to_owned())]);
    for (name, class, annotations, scope, want) in [
        ("no class", None, Few::default(), Default, 1),
        ("no class, another controller has these", None, Few::default(), OwnClassOnly, 0),
        ("our class", class.clone(), Few::default(), OwnClassOnly, 1),
        ("left alone", None, ignored.clone(), Default, 0),
        ("left alone, our class", class, ignored, OwnClassOnly, 0),
    ] {
        let service = ServiceView { class, annotations, ..web(TrafficPolicy::Cluster) };
        let snapshot = Snapshot { scope, ..base().service(service).endpoints("n1", 1, 0).build() };
        assert_eq!(plan(&snapshot, &mut Memory::default(), Moment::default()).announced.len(), want, "{name}");
    }
}

#[test]
fn of_two_services_with_one_address_the_one_with_the_right_to_it_is_announced() {
    struct Case {
        name: &'static str,
        /// Term, since when, sharing key and port of `web` and `other`.
        web: (Option<&'static str>, Option<i64>, Option<&'static str>, u16),
        other: (Option<&'static str>, Option<i64>, Option<&'static str>, u16),
        /// The ports that are served on the address.
        want: &'static [u16],
    }
    let cases = [
        Case {
            name: "the later leader's",
            web: (Some("5.1"), None, None, 80),
            other: (Some("4.9"), None, None, 81),
            want: &[80],
        },
        Case {
            name: "the other way round, though it says that it is older",
            web: (Some("4.9"), Some(1), None, 80),
            other: (Some("4.10"), Some(900), None, 81),
            want: &[81],
        },
        Case {
            name: "one that no leader of ours gave",
            web: (None, Some(1), None, 80),
            other: (Some("0.1"), None, None, 81),
            want: &[81],
        },
        Case {
            name: "of two such, the later condition loses",
            web: (None, Some(200), None, 80),
            other: (None, Some(100), None, 81),
            want: &[81],
        },
        Case { name: "nobody knows", web: (None, None, None, 80), other: (None, None, None, 81), want: &[81] },
        Case {
            name: "they share",
            web: (Some("5.1"), None, Some("k"), 80),
            other: (Some("4.9"), None, Some("k"), 81),
            want: &[80, 81],
        },
        Case {
            name: "they share and have the same port",
            web: (Some("5.1"), None, Some("k"), 80),
            other: (Some("4.9"), None, Some("k"), 80),
            want: &[80],
        },
        Case {
            name: "they share with others",
            web: (Some("5.1"), None, Some("k"), 80),
            other: (Some("4.9"), None, Some("l"), 81),
            want: &[80],
        },
    ];
    for Case { name, web, other, want } in cases {
        let view = |name: &str, (term, since, key, port): (Option<&str>, Option<i64>, Option<&str>, u16)| {
            let said = [(claim::ALLOCATION, term), ("metallb.io/allow-shared-ip", key)];
            let said = said.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.to_owned())));
            ServiceView {
                key: ServiceKey::new("default", name),
                annotations: said.collect(),
                assigned_seconds: since,
                ports: [(crate::model::PortProtocol::Tcp, port)].into(),
                ..self::web(TrafficPolicy::Cluster)
            }
        };
        let builder = base().service(view("web", web)).service(view("other", other));
        let snapshot = builder.endpoints("n1", 1, 0).ready_endpoints("other", "n1", 1).build();
        let plan = plan(&snapshot, &mut Memory::default(), Moment::default());
        let served: Vec<_> = plan.guarded.served.iter().map(|served| served.port).collect();
        assert_eq!((served.as_slice(), plan.announced.len()), (want, 1), "{name}");
        let lost = plan.refused.values().filter(|reason| **reason == NoEntry::AddressOfAnother).count();
        assert_eq!(lost, 2 - want.len(), "{name}: {:?}", plan.refused);
    }
}

#[test]
fn an_address_that_is_no_services_is_not_announced_whatever_the_status_says() {
    let ingress = |text: &str| Ingress { ip: Some(text.parse().expect("an address")), ip_mode: IpMode::Vip };
    for wrong in ["10.90.0.11", "10.90.0.12", "0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.5", "fe80::1", "::1"] {
        let mut service = web(TrafficPolicy::Cluster);
        service.ingress.push(ingress(wrong));
        let plan_of = |service| {
            let snapshot = base().service(service).endpoints("n1", 1, 0).build();
            plan(&snapshot, &mut Memory::default(), Moment::default())
        };
        let plan = plan_of(service.clone());
        let announced: Vec<_> = plan.announced.iter().map(ToString::to_string).collect();
        assert_eq!(announced, ["10.60.0.10"], "{wrong}");
        assert!(plan.guarded.announced.len() == 1, "{wrong}: {:?}", plan.guarded);
        assert_eq!(plan.refused.get(&service.key), Some(&NoEntry::NoAddressOfService), "{wrong}");
        service.ingress = vec![ingress(wrong)];
        assert!(plan_of(service).announced.is_empty(), "{wrong}");
    }
}

#[test]
fn a_service_whose_last_endpoint_went_is_withdrawn_after_five_seconds() {
    let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
    let with = base().service(web(TrafficPolicy::Cluster)).endpoints("n2", 1, 0).build();
    let without = base().service(web(TrafficPolicy::Cluster)).build();
    let mut memory = Memory::default();
    assert_eq!(plan(&with, &mut memory, at(1)).announced.len(), 1);
    let grace = plan(&without, &mut memory, at(10));
    assert_eq!((grace.announced.len(), grace.deadline), (1, Some(at(15))));
    assert_eq!(plan(&without, &mut memory, at(14)).announced.len(), 1);
    assert_eq!(plan(&without, &mut memory, at(15)).announced.len(), 0);
    // It does not come back by itself, and a new endpoint brings it back at once.
    assert_eq!(plan(&without, &mut memory, at(16)).announced.len(), 0);
    assert_eq!(plan(&with, &mut memory, at(17)).announced.len(), 1);
}

#[test]
fn the_guard_knows_the_served_ports_and_leaves_foreign_proxies_alone() {
    let snapshot = base().service(web(TrafficPolicy::Cluster)).endpoints("n1", 1, 0).build();
    let plan = self::plan(&snapshot, &mut Memory::default(), Moment::default());
    let served: Vec<_> = plan.guarded.served.iter().map(|s| (s.address.to_string(), s.port)).collect();
    assert_eq!(served, [("10.60.0.10".to_owned(), 80)]);

    let foreign = ServiceView { has_foreign_proxy: true, ..web(TrafficPolicy::Cluster) };
    let snapshot = base().service(foreign).endpoints("n1", 1, 0).build();
    let plan = self::plan(&snapshot, &mut Memory::default(), Moment::default());
    assert_eq!((plan.announced.len(), &*plan.guarded), (1, &Guarded::default()));
}

#[test]
fn only_the_ranges_that_a_service_names_are_admitted_on_every_node() {
    let ranges = |texts: &[&str]| SourceRanges::of(&texts.iter().map(ToString::to_string).collect::<Vec<_>>(), None);
    struct Case {
        name: &'static str,
        ranges: Option<SourceRanges>,
        policy: TrafficPolicy,
        /// By address, the ranges; without an entry everyone is.
        want: &'static [(&'static str, &'static [&'static str])],
    }
    use TrafficPolicy::{Cluster, Local};
    for Case { name, ranges, policy, want } in [
        Case { name: "no ranges", ranges: None, policy: Cluster, want: &[] },
        Case {
            name: "ranges of both families",
            ranges: ranges(&["10.0.0.0/8", "192.0.2.0/24", "fd00::/8"]),
            policy: Cluster,
            want: &[("10.60.0.10", &["10.0.0.0/8", "192.0.2.0/24"]), ("fd60::10", &["fd00::/8"])],
        },
        Case {
            name: "ranges of one family admit nobody of the other",
            ranges: ranges(&["10.0.0.0/8"]),
            policy: Cluster,
            want: &[("10.60.0.10", &["10.0.0.0/8"]), ("fd60::10", &[])],
        },
        Case {
            name: "everyone, of one family or the other",
            ranges: ranges(&["10.0.0.0/8", "0.0.0.0/0"]),
            policy: Cluster,
            want: &[],
        },
        Case {
            name: "a node that is no entry: pods on it come to the address all the same",
            ranges: ranges(&["10.0.0.0/8"]),
            policy: Local,
            want: &[("10.60.0.10", &["10.0.0.0/8"]), ("fd60::10", &[])],
        },
        Case {
            name: "what is no range admits nobody",
            ranges: ranges(&["10.0.0.0"]),
            policy: Cluster,
            want: &[("10.60.0.10", &[]), ("fd60::10", &[])],
        },
    ] {
        let ingress = |text: &str| Ingress { ip: text.parse().ok(), ip_mode: IpMode::Vip };
        let ingress = ["10.60.0.10", "fd60::10"].map(ingress).into();
        let service = ServiceView { source_ranges: ranges, ingress, ..web(policy) };
        let snapshot = base().service(service).endpoints("n2", 1, 0).build();
        let plan = plan(&snapshot, &mut Memory::default(), Moment::default());
        let limited = plan.guarded.limited.iter().map(|to| {
            let admitted = plan.guarded.admitted.iter().filter(|admission| admission.to == *to);
            (to.address.to_string(), admitted.map(|admission| admission.from.to_string()).collect::<Vec<_>>())
        });
        let want: Vec<_> = want
            .iter()
            .map(|(address, ranges)| (address.to_string(), ranges.iter().map(ToString::to_string).collect()))
            .collect();
        assert_eq!(limited.collect::<Vec<_>>(), want, "{name}");
    }
}

#[test]
fn kube_proxy_is_asked_when_the_first_local_endpoint_comes_and_waited_for_three_seconds() {
    let at = |millis| Moment::since_boot(Duration::from_millis(millis));
    let service = || ServiceView { health_check_node_port: Some(30_080), ..web(TrafficPolicy::Local) };
    let with = |service| base().service(service).endpoints("n1", 1, 0).endpoints("n2", 1, 0).build();
    let without = base().service(service()).endpoints("n2", 1, 0).build();
    let asked = BTreeMap::from([(service().key, BTreeSet::from(["10.90.0.11:30080".parse().expect("a socket")]))]);

    let mut memory = Memory::default();
    assert_eq!(plan(&without, &mut memory, at(0)).asks, BTreeMap::new(), "there is nothing to ask about");
    let waits = plan(&with(service()), &mut memory, at(1000));
    assert_eq!((&waits.asks, waits.deadline), (&asked, Some(at(4000))));
    assert_eq!((waits.announced.len(), waits.refused.get(&service().key)), (0, Some(&NoEntry::ProxyNotReady)));
    let mut answered = memory.clone();
    answered.proxy_forwards(&service().key);
    let ready = plan(&with(service()), &mut answered, at(1050));
    assert_eq!((ready.announced.len(), ready.asks.len(), ready.deadline), (1, 0, None), "it answers");

    assert_eq!(plan(&with(service()), &mut memory, at(3999)).asks, asked, "it is still waited for");
    assert_eq!(plan(&with(service()), &mut memory, at(4000)).announced.len(), 1, "it never answers");
    assert_eq!(plan(&with(service()), &mut memory, at(5000)).asks.len(), 0, "who is announced is not asked about");
    assert_eq!(plan(&without, &mut memory, at(6000)).announced.len(), 0, "the EndpointSlice takes it away at once");
    assert_eq!(plan(&with(service()), &mut memory, at(7000)).asks, asked, "and it is asked anew");
    assert_eq!(plan(&without, &mut memory, at(7100)).asks.len(), 0, "until the endpoint goes");
    memory.proxy_forwards(&service().key);
    assert_eq!(plan(&with(service()), &mut memory, at(7200)).asks, asked, "a late answer was about another one");

    for (name, service) in [
        ("without a port to ask", web(TrafficPolicy::Local)),
        ("of policy Cluster", ServiceView { external_traffic_policy: TrafficPolicy::Cluster, ..service() }),
        ("of another proxy", ServiceView { has_foreign_proxy: true, ..service() }),
    ] {
        let plan = plan(&with(service), &mut Memory::default(), at(0));
        assert_eq!((plan.announced.len(), plan.asks.len()), (1, 0), "{name}");
    }
    let ingress = |text: &str| Ingress { ip: text.parse().ok(), ip_mode: IpMode::Vip };
    let dual = ServiceView { ingress: ["10.60.0.10", "fd60::10"].map(ingress).into(), ..service() };
    let node = node_route("n1", &["10.90.0.11", "10.90.0.21", "fd90::11"], &[]);
    let both = plan(&base().node(node).service(dual).endpoints("n1", 1, 0).build(), &mut Memory::default(), at(0));
    let places: Vec<_> = both.asks.values().flatten().map(ToString::to_string).collect();
    assert_eq!(places, ["10.90.0.11:30080", "[fd90::11]:30080"], "each family is forwarded by itself");
    let terminating = base().service(service()).endpoints("n1", 0, 1).build();
    let plan = plan(&terminating, &mut Memory::default(), at(0));
    assert_eq!((plan.announced.len(), plan.asks.len()), (1, 0), "kube-proxy counts only ready ones");
}
