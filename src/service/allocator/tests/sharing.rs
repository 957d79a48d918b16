//! Services that share an address.

use super::*;
use crate::model::PortProtocol;
use crate::model::PortProtocol::{Tcp, Udp};
use crate::service::request::Entry;

fn sharing(key: &str, ports: &[(PortProtocol, u16)]) -> Sharing {
    Sharing { key: Some(key.to_owned()), entry: Entry::Cluster, ports: ports.iter().copied().collect() }
}

fn local(app: &str, ports: &[(PortProtocol, u16)]) -> Sharing {
    let selector = BTreeMap::from([("app".to_owned(), app.to_owned())]);
    Sharing { entry: Entry::Local { namespace: "default".to_owned(), selector }, ..sharing("k", ports) }
}

fn with(service: &str, sharing: Sharing) -> Request {
    Request { sharing, ..request(service) }
}

fn one() -> Ground {
    pools(vec![pool("a", &["10.60.0.10/32"], true)])
}

/// A Service asks for the address that another one has.
fn asked(first: Sharing, second: Sharing) -> Option<Note> {
    let first = Request { held: vec![ip("10.60.0.10")], ..with("first", first) };
    let second = Request { wish: asking(&["10.60.0.10"], None), ..with("second", second) };
    allocate(&one(), &[first, second], &BTreeMap::new())[&key("second")].note.clone()
}

#[test]
fn an_address_is_shared_by_key_on_different_ports_with_one_way_of_entry() {
    let not_shared = |why| Some(Note::AddressNotShared { address: ip("10.60.0.10"), by: key("first"), why });
    let port = |protocol, port| not_shared(ShareRefusal::PortTaken { protocol, port });
    let no_key = || Sharing { key: None, ..sharing("", &[(Tcp, 81)]) };
    let in_use = Some(Note::AddressInUse { address: ip("10.60.0.10"), by: key("first") });
    for (name, first, second, want) in [
        ("another port", sharing("k", &[(Tcp, 80)]), sharing("k", &[(Tcp, 81)]), None),
        ("another protocol", sharing("k", &[(Tcp, 53)]), sharing("k", &[(Udp, 53)]), None),
        ("the same port", sharing("k", &[(Tcp, 80), (Tcp, 81)]), sharing("k", &[(Tcp, 81)]), port(Tcp, 81)),
        ("another key", sharing("k", &[(Tcp, 80)]), sharing("l", &[(Tcp, 81)]), not_shared(ShareRefusal::NoCommonKey)),
        ("no key", sharing("k", &[(Tcp, 80)]), no_key(), in_use.clone()),
        ("no key with the first", no_key(), sharing("k", &[(Tcp, 80)]), not_shared(ShareRefusal::NoCommonKey)),
        (
            "Cluster and Local",
            sharing("k", &[(Tcp, 80)]),
            local("x", &[(Tcp, 81)]),
            not_shared(ShareRefusal::PoliciesDiffer),
        ),
        ("Local, the same pods", local("x", &[(Tcp, 80)]), local("x", &[(Tcp, 81)]), None),
        (
            "Local, other pods",
            local("x", &[(Tcp, 80)]),
            local("y", &[(Tcp, 81)]),
            not_shared(ShareRefusal::SelectorsDiffer),
        ),
    ] {
        assert_eq!(asked(first, second), want, "{name}");
    }
    let told = asked(local("x", &[(Tcp, 80)]), local("y", &[(Tcp, 81)])).expect("a refusal").to_string();
    assert!(told.contains("do not select the same pods"), "{told}");
}

#[test]
fn whoever_may_share_joins_before_it_takes_a_fresh_address() {
    let ground = pools(vec![pool("a", &["10.60.0.10-10.60.0.19"], true)]);
    let requests = [
        with("a", sharing("k", &[(Tcp, 80)])),
        with("b", sharing("k", &[(Tcp, 80)])),
        with("c", sharing("k", &[(Tcp, 81)])),
    ];
    let answers = allocate(&ground, &requests, &BTreeMap::new());
    assert_eq!(answers[&key("a")], has(&["10.60.0.10"]));
    assert_eq!(answers[&key("b")], has(&["10.60.0.11"]), "its port is taken at the first");
    assert_eq!(answers[&key("c")], has(&["10.60.0.10"]));
}

#[test]
fn whoever_may_share_finds_room_behind_any_number_of_addresses_without() {
    let all = [(Tcp, 80), (Tcp, 81)];
    let full = (0..300).map(|number| with(&format!("full-{number:03}"), sharing("k", &all)));
    let roomy = Request { wish: asking(&["10.60.2.0"], None), ..with("roomy", sharing("k", &[(Tcp, 80)])) };
    let late = Request { created_seconds: 200, ..with("late", sharing("k", &[(Tcp, 81)])) };
    let ground = pools(vec![pool("a", &["10.60.0.0/22"], true)]);
    let requests: Vec<_> = full.chain([roomy, late]).collect();
    let answers = allocate(&ground, &requests, &BTreeMap::new());
    assert_eq!(answers[&key("full-299")], has(&["10.60.1.43"]), "no two of them fit together");
    assert_eq!(answers[&key("late")], has(&["10.60.2.0"]));
}

#[test]
fn sharing_is_checked_again_when_a_service_changes() {
    let mut world = changes::World::of(one());
    world.set(with("svc", sharing("k", &[(Tcp, 80)])));
    world.set(with("svc1", sharing("k", &[(Tcp, 81)])));
    assert_eq!((world.has("svc"), world.has("svc1")), (vec![ip("10.60.0.10")], vec![ip("10.60.0.10")]), "they share");
    world.set(with("svc1", local("x", &[(Tcp, 81)])));
    assert_eq!((world.has("svc"), world.has("svc1")), (vec![ip("10.60.0.10")], vec![]), "no longer the same key");
    world.set(with("svc", local("x", &[(Tcp, 80)])));
    assert_eq!(
        (world.has("svc"), world.has("svc1")),
        (vec![ip("10.60.0.10")], vec![ip("10.60.0.10")]),
        "the same key again"
    );
}

#[test]
fn whoever_breaks_the_conditions_is_told_and_gets_another_address() {
    let mut world = changes::World::of(pools(vec![pool("a", &["10.60.0.10-10.60.0.11"], true)]));
    world.set(with("a", sharing("k", &[(Tcp, 80)])));
    world.set(with("b", sharing("k", &[(Tcp, 81)])));
    let why = ShareRefusal::PortTaken { protocol: Tcp, port: 80 };
    let lost = Note::AddressLost { address: ip("10.60.0.10"), by: key("a"), why };
    assert_eq!(world.told(with("b", sharing("k", &[(Tcp, 80)]))), keeps(&["10.60.0.11"], lost));
    assert_eq!(world.has("a"), [ip("10.60.0.10")]);
}

#[test]
fn the_only_user_of_an_address_may_change_as_it_likes() {
    let mut world = changes::World::of(one());
    world.set(with("a", sharing("k", &[(Tcp, 80)])));
    assert_eq!(world.told(with("a", local("x", &[(Udp, 81)]))), has(&["10.60.0.10"]));
}

#[test]
fn room_that_a_sharer_makes_goes_to_one_that_waits() {
    let mut world = changes::World::of(one());
    world.set(with("a", sharing("k", &[(Tcp, 80), (Tcp, 81)])));
    world.set(with("b", sharing("k", &[(Tcp, 81)])));
    assert_eq!(world.has("b"), Vec::<IpAddr>::new());
    world.set(with("a", sharing("k", &[(Tcp, 80)])));
    assert_eq!(world.has("b"), [ip("10.60.0.10")]);
}

#[test]
fn an_address_that_is_shared_is_counted_once() {
    let requests = [with("a", sharing("k", &[(Tcp, 80)])), with("b", sharing("k", &[(Tcp, 81)]))];
    let ledger = ledger(&pools(vec![pool("a", &["10.60.0.10/31"], true)]), &requests, &BTreeMap::new());
    assert_eq!(ledger.report(&name("a")).expect("a report").v4, Some((2, 1, 1)));
}
