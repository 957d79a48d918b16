use super::*;
use crate::model::PortProtocol;

fn guarded(addresses: &[&str], ports: &[(&str, PortProtocol, u16)]) -> Guarded {
    Guarded {
        announced: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        served: ports
            .iter()
            .map(|(address, protocol, port)| ServedPort {
                address: address.parse().unwrap(),
                protocol: *protocol,
                port: *port,
            })
            .collect(),
        ..Guarded::default()
    }
}

fn admission(address: &str, from: &str) -> Admission {
    let to = ServedPort { address: address.parse().unwrap(), protocol: PortProtocol::Tcp, port: 80 };
    Admission { to, from: from.parse().unwrap() }
}

#[test]
fn who_is_no_longer_admitted_goes_before_others_come_and_a_port_is_limited_last() {
    let (wide, narrow) = (admission("10.60.0.1", "10.0.0.0/8"), admission("10.60.0.1", "10.0.0.0/16"));
    let limited = |admissions: &[Admission]| Guarded {
        limited: admissions.iter().map(|admission| admission.to).collect(),
        admitted: admissions.iter().copied().collect(),
        ..Guarded::default()
    };
    let (open, before, after) = (Guarded::default(), limited(&[wide]), limited(&[narrow]));
    let admit = |verb, one: Admission| admission_elements(verb, &BTreeSet::from([one]));
    let limit = |verb| port_elements(verb, &BTreeSet::from([wide.to]), Set::Limited);
    use Verb::{DeleteElements, NewElements};
    let want = [admit(NewElements, wide), limit(NewElements)].concat();
    assert_eq!(update(&open, &before), want);
    let want = [admit(DeleteElements, wide), admit(NewElements, narrow)].concat();
    assert_eq!(update(&before, &after), want);
    let want = [limit(DeleteElements), admit(DeleteElements, narrow)].concat();
    assert_eq!(update(&after, &open), want);
}

#[test]
fn an_admission_is_from_the_first_to_the_last_address_of_its_range() {
    let admitted = Guarded { admitted: [admission("10.60.0.1", "10.1.0.0/16")].into(), ..Guarded::default() };
    let key = |client: [u8; 4]| value(&[&[10, 60, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0][..], &client].concat());
    let element = Attributes::default().nested(1, key([10, 1, 0, 0])).nested(10, key([10, 1, 255, 255]));
    let attributes = named_in_table().text(2, "admitted4").list(3, [element]);
    assert_eq!(update(&Guarded::default(), &admitted), [Request { verb: Verb::NewElements, attributes }]);
}

#[test]
fn an_update_holds_only_what_differs_and_serves_before_it_announces() {
    let before = guarded(&["10.60.0.1"], &[("10.60.0.1", PortProtocol::Tcp, 80)]);
    let after = guarded(&["10.60.0.2"], &[("10.60.0.1", PortProtocol::Tcp, 80), ("fd60::2", PortProtocol::Udp, 53)]);
    let verbs: Vec<Verb> = update(&before, &after).iter().map(|request| request.verb).collect();
    assert_eq!(verbs, [Verb::DeleteElements, Verb::NewElements, Verb::NewElements]);
    assert_eq!(update(&after, &after), vec![]);
}

#[test]
fn a_served_port_is_a_key_of_whole_words() {
    let served = guarded(&[], &[("10.60.0.1", PortProtocol::Tcp, 80)]);
    let got = update(&Guarded::default(), &served);
    let key = value(&[10, 60, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
    let list = [Attributes::default().nested(1, key)];
    let attributes = named_in_table().text(2, "served4").list(3, list);
    assert_eq!(got, [Request { verb: Verb::NewElements, attributes }]);
}

#[test]
fn many_elements_are_cut_into_requests() {
    let ports: Vec<_> = (1..=2500).map(|port| ("fd60::1", PortProtocol::Tcp, port)).collect();
    assert_eq!(update(&Guarded::default(), &guarded(&[], &ports)).len(), 3);
}

#[test]
fn networks_become_ranges_that_neither_overlap_nor_touch() {
    let of = |networks: &[&str]| {
        let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        ranges(&networks).iter().map(|[first, last]| format!("{first}-{last}")).collect::<Vec<_>>().join(" ")
    };
    for (networks, want) in [
        (&[][..], ""),
        (&["10.60.0.0/24"], "10.60.0.0-10.60.0.255"),
        (&["10.60.0.0/24", "10.60.0.64/26"], "10.60.0.0-10.60.0.255"),
        (&["10.60.0.0/25", "10.60.0.128/25", "10.60.2.0/24"], "10.60.0.0-10.60.0.255 10.60.2.0-10.60.2.255"),
        (&["255.255.255.0/24", "::/127"], "255.255.255.0-255.255.255.255 ::-::1"),
    ] {
        assert_eq!(of(networks), want, "{networks:?}");
    }
}

#[test]
fn a_range_to_the_end_of_all_addresses_has_no_element_behind_it() {
    let of = |text: &str| {
        let aggregated = [text.parse().unwrap()].into();
        update(&Guarded::default(), &Guarded { aggregated, ..Guarded::default() })
    };
    let list = |items: Vec<Attributes>| {
        let attributes = named_in_table().text(2, "aggregated4").list(3, items);
        vec![Request { verb: Verb::NewElements, attributes }]
    };
    let end = exactly(&[10, 60, 1, 0]).number(3, 1);
    assert_eq!(of("10.60.0.0/24"), list(vec![exactly(&[10, 60, 0, 0]), end]));
    assert_eq!(of("255.255.255.0/24"), list(vec![exactly(&[255, 255, 255, 0])]));
}
