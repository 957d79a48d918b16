//! The rows of MetalLB's own unit test of its controller, on one ledger, in a hundred orders.
//!
//! Where Cairn differs, the row says so and ARCHITECTURE.md says why.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::allocator::{Ledger, News, Now};
use super::cases;
use super::plan::{self, CLEANUP_FINALIZER, Observed};
use super::pool_status::ObservedPool;
use crate::api::{AddressPoolSpec, LabelSelector, Serves};
use crate::model::views::{Ingress, IpFamilyPolicy, IpMode, ServiceView, TrafficPolicy};
use crate::model::{Family, PoolName, Scope, ServiceKey};
use Family::{V4, V6};
use IpFamilyPolicy::{PreferDualStack, RequireDualStack, SingleStack};

const ADDRESSES: &str = "metallb.io/loadBalancerIPs";

/// What becomes of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Becomes {
    /// Nothing is written, nothing is told.
    LeftAlone,
    /// It has these addresses.
    Has(Vec<&'static str>),
    /// It has nothing, and a warning says why, by this reason.
    Warned(&'static str),
    /// It has these, and a warning that says why it should not.
    HasAndWarned(Vec<&'static str>, &'static str),
    /// What it had is taken away.
    Cleared,
}
use Becomes::{Cleared, Has, HasAndWarned, LeftAlone, Warned};

struct Row {
    row: &'static str,
    service: ServiceView,
    becomes: Becomes,
}

fn row(row: &'static str, service: ServiceView, becomes: Becomes) -> Row {
    Row { row, service, becomes }
}

fn service(families: &[Family], policy: IpFamilyPolicy) -> ServiceView {
    ServiceView { ip_families: families.to_vec(), ip_family_policy: policy, ..cases::service("test") }
}

fn single() -> ServiceView {
    service(&[V4], SingleStack)
}

fn asking(text: &str, service: ServiceView) -> ServiceView {
    let annotations = [(ADDRESSES.to_owned(), text.to_owned())].into();
    ServiceView { annotations, ..service }
}

fn by_field(text: &str, service: ServiceView) -> ServiceView {
    ServiceView { load_balancer_ip: Some(text.to_owned()), ..service }
}

fn within(namespace: &str, service: ServiceView) -> ServiceView {
    ServiceView { key: ServiceKey::new(namespace, "test"), ..service }
}

fn labelled(service: ServiceView) -> ServiceView {
    let labels = BTreeMap::from([("team".to_owned(), "metallb".to_owned())]);
    ServiceView { labels: labels.into(), ..service }
}

fn showing(ip: &str, service: ServiceView) -> ServiceView {
    let entry = Ingress { ip: Some(ip.parse().expect("an address")), ip_mode: IpMode::Vip };
    ServiceView { ingress: vec![entry], finalizers: vec![CLEANUP_FINALIZER.to_owned()], ..service }
}

fn pool(name: &str, addresses: &[&str], more: AddressPoolSpec) -> (PoolName, Arc<ObservedPool>) {
    let addresses = addresses.iter().map(ToString::to_string).collect();
    let spec = AddressPoolSpec { addresses, reuse_after_seconds: 0, ..more };
    let observed = cases::observed_pool(name, &spec);
    (name.parse().expect("a name"), Arc::new(observed))
}

fn automatic() -> AddressPoolSpec {
    AddressPoolSpec { auto_assign: true, ..AddressPoolSpec::default() }
}

fn serving(namespace: Option<&str>, is_labelled: bool, priority: Option<u16>) -> AddressPoolSpec {
    let select = || LabelSelector {
        match_labels: BTreeMap::from([("team".to_owned(), "metallb".to_owned())]),
        ..LabelSelector::default()
    };
    let serves = Serves {
        namespaces: namespace.map(str::to_owned).into_iter().collect(),
        service_selector: is_labelled.then(select),
        ..Serves::default()
    };
    AddressPoolSpec { priority, serves: Some(serves), ..automatic() }
}

/// MetalLB's pools p1 to p4 and p6 to p12.
fn most_pools() -> BTreeMap<PoolName, Arc<ObservedPool>> {
    let by_name = AddressPoolSpec::default;
    BTreeMap::from([
        pool("p1", &["1.2.3.0/31"], automatic()),
        pool("p2", &["3.4.5.6/32"], by_name()),
        pool("p3", &["1000::/127"], automatic()),
        pool("p4", &["2000::1/128"], by_name()),
        pool("p6", &["7.8.9.0/31"], serving(Some("ns1"), false, Some(10))),
        pool("p7", &["10.11.12.0/31"], serving(Some("ns1"), false, Some(11))),
        pool("p8", &["13.14.15.0/31"], serving(None, true, Some(9))),
        // MetalLB's priority 0 is none.
        pool("p9", &["16.17.18.0/31"], serving(Some("ns2"), false, None)),
        pool("p10", &["19.20.21.0/31"], serving(None, true, Some(8))),
        pool("p11", &["22.23.24.0/31"], serving(Some("ns1"), true, Some(8))),
        pool("p12", &["25.26.27.0/31"], serving(Some("ns1"), true, Some(5))),
    ])
}

/// Each row by itself, in any order, on a ledger that has seen all the others.
fn holds(pools: BTreeMap<PoolName, Arc<ObservedPool>>, rows: &[Row]) {
    let mut ledger = Ledger::default();
    let observed = Observed { pools, ..Observed::default() };
    drop(ledger.apply(observed.news(), Now::default()));
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..100 {
        let mut order: Vec<_> = rows.iter().collect();
        random.shuffle(&mut order);
        for Row { row, service, becomes } in order {
            assert_eq!(&judged(&mut ledger, service), becomes, "{row}, round {round}");
        }
    }
}

fn judged(ledger: &mut Ledger, service: &ServiceView) -> Becomes {
    let key = &service.key;
    let mut tell = |standing| {
        let services = BTreeMap::from([(key.clone(), standing)]);
        drop(ledger.apply(News { services, ..News::default() }, Now::default()));
        ledger.answer(key)
    };
    let answer = tell(plan::standing(service, Scope::Default));
    let action = plan::service_action(service, answer.as_ref(), Scope::Default);
    // The next row begins without it.
    tell(None);
    let warning = answer.and_then(|answer| answer.note).map(|note| note.reason());
    let shown: Vec<String> = match &action {
        Some(action) => action.ingress.iter().map(ToString::to_string).collect(),
        None => service.ingress.iter().filter_map(|entry| entry.ip).map(|ip| ip.to_string()).collect(),
    };
    let shown: Vec<&'static str> = shown.into_iter().map(|ip| &*ip.leak()).collect();
    match (warning, shown.is_empty()) {
        (None, true) if action.is_none() => LeftAlone,
        (None, true) => Cleared,
        (None, false) => Has(shown),
        (Some(reason), true) => Warned(reason),
        (Some(reason), false) => HasAndWarned(shown, reason),
    }
}

#[test]
fn rows_of_metallbs_controller() {
    let (v6, dual) = (|| service(&[V6], SingleStack), || service(&[V4, V6], RequireDualStack));
    let prefer = |families: &[Family]| service(families, PreferDualStack);
    let local = ServiceView { external_traffic_policy: TrafficPolicy::Local, ..by_field("3.4.5.6", single()) };
    holds(
        most_pools(),
        &[
            row("ClusterIP", ServiceView { is_load_balancer: false, ..single() }, LeftAlone),
            row("LB without clusterIP", service(&[], SingleStack), LeftAlone),
            row("LB, clusterIP v4", single(), Has(vec!["1.2.3.0"])),
            row("spec.loadBalancerIP 1.2.3.1", by_field("1.2.3.1", single()), Has(vec!["1.2.3.1"])),
            row("annotation 1.2.3.1", asking("1.2.3.1", single()), Has(vec!["1.2.3.1"])),
            row(
                "both set, and not the same",
                by_field("1.2.3.0", asking("1.2.3.1", single())),
                Warned("WishesContradict"),
            ),
            row(
                "both set to the same: differs",
                by_field("1.2.3.1", asking("1.2.3.1", single())),
                Has(vec!["1.2.3.1"]),
            ),
            row("unparsable IP in spec", by_field("please", single()), Warned("AddressMalformed")),
            row("unparsable IP in the annotation", asking("please", single()), Warned("AddressMalformed")),
            row("two of a family", asking("1.2.3.1,1.2.3.2", single()), Warned("TwoAddressesOfFamily")),
            row(
                "status 2.3.4.5 not in any pool: differs",
                showing("2.3.4.5", single()),
                HasAndWarned(vec!["2.3.4.5"], "AddressKept"),
            ),
            row(
                "NodePort with leftover status",
                ServiceView { is_load_balancer: false, ..showing("1.2.3.0", single()) },
                Cleared,
            ),
            row("loadBalancerIP of a manual pool, Cluster", by_field("3.4.5.6", single()), Has(vec!["3.4.5.6"])),
            row("loadBalancerIP of a manual pool, Local", local, Has(vec!["3.4.5.6"])),
            row("v6 clusterIP, v4 in spec", by_field("1.2.3.0", v6()), Warned("AddressOfOtherFamily")),
            row("v6 clusterIP, v4 in the annotation", asking("1.2.3.0", v6()), Warned("AddressOfOtherFamily")),
            row("v4 clusterIP, v6 in spec", by_field("1000::", single()), Warned("AddressOfOtherFamily")),
            row("v4 clusterIP, v6 in the annotation", asking("1000::", single()), Warned("AddressOfOtherFamily")),
            row("dual clusterIPs, Require", dual(), Has(vec!["1.2.3.0", "1000::"])),
            row("dual clusterIPs, Prefer", prefer(&[V4, V6]), Has(vec!["1.2.3.0", "1000::"])),
            row("dual, spec v4: differs", by_field("1.2.3.1", dual()), Has(vec!["1.2.3.1", "1000::"])),
            row("dual, one-IP annotation: differs", asking("1000::1", dual()), Has(vec!["1.2.3.0", "1000::1"])),
            row("dual, annotation of both", asking("1.2.3.0,1000::", dual()), Has(vec!["1.2.3.0", "1000::"])),
            row(
                "single clusterIP, annotation of both",
                asking("1.2.3.0,1000::", single()),
                Warned("AddressOfOtherFamily"),
            ),
            row("ns1", within("ns1", single()), Has(vec!["7.8.9.0"])),
            row("ns1, Prefer, single", within("ns1", prefer(&[V4])), Has(vec!["7.8.9.0"])),
            row("ns2", within("ns2", single()), Has(vec!["16.17.18.0"])),
            row("label", labelled(single()), Has(vec!["19.20.21.0"])),
            row("ns1 and label", labelled(within("ns1", single())), Has(vec!["25.26.27.0"])),
        ],
    );
    let p5 = || BTreeMap::from([pool("p5", &["1.2.3.0/31", "1000::/127"], automatic())]);
    holds(
        p5(),
        &[
            row("p5, dual, Require", dual(), Has(vec!["1.2.3.0", "1000::"])),
            row("p5, dual, Prefer", prefer(&[V4, V6]), Has(vec!["1.2.3.0", "1000::"])),
            row("p5, v4 clusterIP, Prefer", prefer(&[V4]), Has(vec!["1.2.3.0"])),
        ],
    );
    holds(
        BTreeMap::from([pool("p1", &["1.2.3.0/31"], automatic())]),
        &[
            row("p1, dual, Prefer", prefer(&[V4, V6]), Has(vec!["1.2.3.0"])),
            row("p1, dual, Require", dual(), Warned("FamilyNotInPools")),
        ],
    );
    holds(
        BTreeMap::from([pool("p3", &["1000::/127"], automatic())]),
        &[row("p3, v6 clusterIP, Prefer", prefer(&[V6]), Has(vec!["1000::"]))],
    );
    // MetalLB says nothing as long as there is no pool.
    holds(BTreeMap::new(), &[row("no config: differs", single(), Warned("NoPool"))]);
}

#[test]
fn class_matrix() {
    let class = |class: Option<&str>| ServiceView { class: class.map(str::to_owned), ..single() };
    let served = || Has(vec!["1.2.3.0"]);
    holds(
        most_pools(),
        &[
            row("a foreign class", class(Some("example.net/lb")), LeftAlone),
            row("without a class", class(None), served()),
            row("of our class", class(Some(crate::api::LOAD_BALANCER_CLASS)), served()),
        ],
    );
    for (row, class, is_served) in [
        ("--load-balancer-class-only, without a class", None, false),
        ("--load-balancer-class-only, of our class", Some(crate::api::LOAD_BALANCER_CLASS), true),
        ("--load-balancer-class-only, another", Some("example.net/lb"), false),
    ] {
        let view = ServiceView { class: class.map(str::to_owned), ..single() };
        assert_eq!(plan::standing(&view, Scope::OwnClassOnly).is_some(), is_served, "{row}");
    }
}
