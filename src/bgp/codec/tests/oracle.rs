//! Octets that BIRD 2.0.12 sent, read; and octets of ours that BIRD, FRR 8.4.4 and GoBGP 3.10 took.

use crate::bgp::desired::HoldTime;
use crate::model::NextHops;

use super::*;

#[test]
fn reads_the_open_of_bird() {
    let body = "04fde800090a6300021e021c01040001000101040002000102004002007841040000fde846004700";
    let Ok(Message::Open(open)) = Message::decode(&frame(OPEN, body), &external()) else {
        panic!("BIRD's OPEN is not read");
    };
    assert_eq!((open.asn(), open.hold_time.seconds()), (65000, 9));
    assert_eq!(open.router_id.to_string(), "10.99.0.2");
    assert!(open.carries(Family::V4) && open.carries(Family::V6));
    assert!(open.capabilities.contains(&Capability::RouteRefresh));
    let restart = GracefulRestart { restart_time_seconds: 120, ..GracefulRestart::default() };
    assert_eq!(open.graceful_restart(), Some(&restart));
    let enhanced_refresh = Capability::Other { code: 70, value: vec![] };
    assert!(open.capabilities.contains(&enhanced_refresh), "unknown capabilities are kept");
    let mut again = Vec::new();
    encode_open(&open, &mut again);
    assert_eq!(again, frame(OPEN, body));
}

#[test]
fn reads_the_updates_of_bird() {
    let v4 = decode_update(
        "0000003c4001010040020602010000fde84003040a63000280040400000032c00804fde80064
         c010080002fde800000007c0200c0000fde80000000100000002 00 200a3c000a 180a3200",
        &external(),
    )
    .unwrap();
    assert_eq!(v4.announced, prefixes(&["0.0.0.0/0", "10.60.0.10/32", "10.50.0.0/24"]));
    assert_eq!((v4.withdrawn, v4.faults, v4.end_of_rib), (vec![], vec![], None));
    assert_eq!(v4.attributes.next_hops.v4, Some([10, 99, 0, 2].into()));
    assert_eq!((v4.attributes.origin, v4.attributes.med), (Some(Origin::Igp), Some(50)));
    assert_eq!(v4.attributes.as_path, Some(AsPath(vec![(SegmentKind::Sequence, vec![65000])])));

    let v6 = decode_update(
        "00000078900e003f00020120fd990000000000000000000000000002fe80000000000000188c64fffee6da8e00
         80fd60000000000000000000000000001040fd500000000000004001010040020602010000fde8
         80040400000032c00804fde80064c010080002fde800000007c0200c0000fde80000000100000002",
        &external(),
    )
    .unwrap();
    assert_eq!(v6.announced, prefixes(&["fd60::10/128", "fd50::/64"]));
    assert_eq!(v6.attributes.next_hops.v6, Some("fd99::2".parse().unwrap()));
    assert_eq!(v6.faults, vec![]);
}

#[test]
fn reads_the_withdrawals_and_ends_of_rib_of_bird() {
    for (body, withdrawn, end_of_rib) in [
        ("000a00200a3c000a180a32000000", &["0.0.0.0/0", "10.60.0.10/32", "10.50.0.0/24"][..], None),
        (
            "00000021900f001d00020180fd60000000000000000000000000001040fd50000000000000",
            &["fd60::10/128", "fd50::/64"],
            None,
        ),
        ("00000000", &[], Some(Family::V4)),
        ("00000006800f03000201", &[], Some(Family::V6)),
    ] {
        let update = decode_update(body, &external()).unwrap();
        assert_eq!(update.withdrawn, prefixes(withdrawn), "{body}");
        assert_eq!((update.end_of_rib, update.announced), (end_of_rib, vec![]), "{body}");
    }
    let refresh = Message::decode(&frame(ROUTE_REFRESH, "00020001"), &external());
    assert_eq!(refresh, Ok(Message::RouteRefresh(Refresh::of(Family::V6))));
}

#[test]
fn writes_what_three_routers_took() {
    let mut out = Vec::new();
    let asn = 4_200_000_001.try_into().unwrap();
    let router_id = std::net::Ipv4Addr::new(10, 99, 0, 1).try_into().unwrap();
    encode_open(&Open::ours(asn, router_id, HoldTime::DEFAULT), &mut out);
    assert_eq!(out, frame(OPEN, "045ba0005a0a6300011a0218010400010001010400020001020040020000 4104fa56ea01"));

    let attributes = Attributes {
        origin: Some(Origin::Igp),
        as_path: Some(AsPath(vec![(SegmentKind::Sequence, vec![asn.get()])])),
        next_hops: NextHops { v4: Some([10, 99, 0, 1].into()), v6: Some("fd99::1".parse().unwrap()) },
        ..Attributes::default()
    };
    for (family, routes, body) in [
        (
            Family::V4,
            ["10.60.0.1/32", "10.244.1.0/24"],
            "00000014400101004002060201fa56ea014003040a630001200a3c0001180af401",
        ),
        (
            Family::V6,
            ["fd00:244:1::/64", "fd60::1/128"],
            "0000003f800e2f00020110fd9900000000000000000000000000010040fd00024400010000
             80fd600000000000000000000000000001400101004002060201fa56ea01",
        ),
    ] {
        let mut out = Vec::new();
        assert_eq!(pack::announce(&attributes, &external(), family, &prefixes(&routes), &mut out), 2);
        assert_eq!(out, frame(UPDATE, body));
    }
}

#[test]
fn a_wide_as_number_travels_in_as4_path_through_a_two_octet_speaker() {
    let narrow = Context { four_octet_as: false, ..external() };
    let attributes = Attributes {
        origin: Some(Origin::Igp),
        as_path: Some(AsPath(vec![(SegmentKind::Sequence, vec![4_200_000_001])])),
        next_hops: NextHops { v4: Some([10, 99, 0, 1].into()), v6: None },
        ..Attributes::default()
    };
    let mut out = Vec::new();
    pack::announce(&attributes, &narrow, Family::V4, &prefixes(&["10.60.0.1/32"]), &mut out);
    // AS_PATH of AS_TRANS (0x5ba0), and AS4_PATH with the number (RFC 6793 §4.2.2).
    let body = "0000001b 40010100 4002040201 5ba0 4003040a630001 c011060201 fa56ea01 200a3c0001";
    assert_eq!(out, frame(UPDATE, body));
    let read = decode_update(body, &narrow).unwrap();
    assert_eq!((read.faults, read.announced), (vec![], prefixes(&["10.60.0.1/32"])));
}

#[test]
fn extended_optional_parameters_are_read() {
    // RFC 9072 §2: type 255, a length of two octets, parameters with lengths of two octets.
    let body = "045ba0005a0a630001 ff ff 0009 02 0006 4104fa56ea01";
    let Ok(Message::Open(open)) = Message::decode(&frame(OPEN, body), &external()) else {
        panic!("an OPEN with extended parameters is not read");
    };
    assert_eq!(open.asn(), 4_200_000_001);
}
