//! Malformed messages, each with the answer its RFC asks for.

use super::*;

#[test]
fn framing_errors_become_their_notification() {
    let header = |marker: u8, length: u16, kind: u8| {
        let mut octets = vec![marker; 16];
        octets.extend(length.to_be_bytes());
        octets.push(kind);
        octets.resize(64, 0);
        octets
    };
    for (name, octets, want) in [
        ("a bad marker", header(0, 19, KEEPALIVE), Reason::NotSynchronized),
        ("a KEEPALIVE of length 20", header(255, 20, KEEPALIVE), Reason::BadMessageLength),
        ("a length below the header's", header(255, 18, UPDATE), Reason::BadMessageLength),
        ("a length beyond 4096", header(255, 4097, UPDATE), Reason::BadMessageLength),
        ("an OPEN of length 28", header(255, 28, OPEN), Reason::BadMessageLength),
        ("an UPDATE of length 22", header(255, 22, UPDATE), Reason::BadMessageLength),
        ("a NOTIFICATION of length 20", header(255, 20, NOTIFICATION), Reason::BadMessageLength),
        ("a truncated ROUTE-REFRESH", header(255, 22, ROUTE_REFRESH), Reason::BadMessageLength),
        ("message type 9", header(255, 19, 9), Reason::BadMessageType),
    ] {
        assert_eq!(frame_length(&octets).map_err(|n| n.reason), Err(want), "{name}");
    }
    assert_eq!(frame_length(&header(255, 19, KEEPALIVE)[..18]), Ok(None), "the header is not all there");
    let long_refresh = Message::decode(&frame(ROUTE_REFRESH, "0001000100"), &external());
    assert_eq!(long_refresh.map_err(|n| n.reason), Err(Reason::InvalidRefreshLength));
}

#[test]
fn open_errors_become_their_notification() {
    for (name, body, want) in [
        ("version 3", "03fde8005a0a63000200", Reason::UnsupportedVersion),
        ("hold time 1", "04fde800010a63000200", Reason::UnacceptableHoldTime),
        ("router id 0", "04fde8005a0000000000", Reason::BadBgpIdentifier),
        ("AS 0", "040000005a0a63000200", Reason::BadPeerAs),
        ("AS 0 as a capability", "04fde8005a0a63000208 0206410400000000", Reason::BadPeerAs),
        ("parameters beyond the message", "04fde8005a0a63000208 0206", Reason::OpenUnspecific),
        ("octets beyond the parameters", "04fde8005a0a63000200 0206", Reason::OpenUnspecific),
        ("a parameter beyond the parameters", "04fde8005a0a63000202 0206", Reason::OpenUnspecific),
        ("a capability beyond its parameter", "04fde8005a0a63000204 02024104", Reason::OpenUnspecific),
        ("a capability of the wrong length", "04fde8005a0a63000205 0203410100", Reason::OpenUnspecific),
        ("an unknown parameter", "04fde8005a0a63000202 0900", Reason::UnsupportedOptionalParameter),
    ] {
        let got = Message::decode(&frame(OPEN, body), &external());
        assert_eq!(got.map_err(|n| n.reason), Err(want), "{name}");
    }
}

/// What became of the route 10.1.0.0/16 (or fd01::/16) of an UPDATE.
#[derive(Debug, PartialEq)]
enum Fate {
    Kept,
    /// Kept, one attribute left out.
    Discarded,
    Withdrawn,
    Reset(u8, u8),
    /// Neither came nor went.
    Ignored,
}

fn fate(body: &str, context: &Context) -> Fate {
    match decode_update(body, context) {
        Err(notification) => {
            let (code, subcode) = notification.reason.codes();
            Fate::Reset(code, subcode)
        }
        Ok(update) if !update.withdrawn.is_empty() => Fate::Withdrawn,
        Ok(update) if update.announced.is_empty() => Fate::Ignored,
        Ok(update) if update.faults.is_empty() => Fate::Kept,
        Ok(_) => Fate::Discarded,
    }
}

/// An UPDATE with these attributes and the route 10.1.0.0/16.
fn with_route(attributes: &str) -> String {
    format!("0000 {:04x} {attributes} 100a01", octets(attributes).len())
}

/// An UPDATE with these attributes alone.
fn alone(attributes: &str) -> String {
    format!("0000 {:04x} {attributes}", octets(attributes).len())
}

const ORIGIN: &str = "40010100";
const AS_PATH: &str = "400206 02010000fde8";
const NEXT_HOP: &str = "400304 0a630002";
const V6_ROUTE: &str = "800e18 000201 10 fd990000000000000000000000000002 00 10fd01";

#[test]
fn a_malformed_attribute_has_the_outcome_of_rfc_7606() {
    let and = |more: &str| with_route(&format!("{ORIGIN} {AS_PATH} {NEXT_HOP} {more}"));
    let cases = [
        ("nothing wrong", and(""), Fate::Kept),
        ("ORIGIN 3", with_route(&format!("40010103 {AS_PATH} {NEXT_HOP}")), Fate::Withdrawn),
        ("ORIGIN of two octets", with_route(&format!("4001020000 {AS_PATH} {NEXT_HOP}")), Fate::Withdrawn),
        ("ORIGIN marked optional", with_route(&format!("c0010100 {AS_PATH} {NEXT_HOP}")), Fate::Withdrawn),
        ("no ORIGIN", with_route(&format!("{AS_PATH} {NEXT_HOP}")), Fate::Withdrawn),
        ("no AS_PATH", with_route(&format!("{ORIGIN} {NEXT_HOP}")), Fate::Withdrawn),
        ("no NEXT_HOP", with_route(&format!("{ORIGIN} {AS_PATH}")), Fate::Withdrawn),
        ("NEXT_HOP of five octets", with_route(&format!("{ORIGIN} {AS_PATH} 4003050a63000200")), Fate::Withdrawn),
        ("an AS_PATH cut off", with_route(&format!("{ORIGIN} 40020602020000fde8 {NEXT_HOP}")), Fate::Withdrawn),
        ("an empty segment", with_route(&format!("{ORIGIN} 4002020200 {NEXT_HOP}")), Fate::Withdrawn),
        ("segment type 9", with_route(&format!("{ORIGIN} 40020609010000fde8 {NEXT_HOP}")), Fate::Withdrawn),
        ("AS 0 in AS_PATH", with_route(&format!("{ORIGIN} 400206020100000000 {NEXT_HOP}")), Fate::Withdrawn),
        ("MED of three octets", and("800403000000"), Fate::Withdrawn),
        ("communities of five octets", and("c0080500000000 00"), Fate::Withdrawn),
        ("communities of none", and("c00800"), Fate::Withdrawn),
        ("extended communities of seven", and("c0100700000000000000"), Fate::Withdrawn),
        ("large communities of eleven", and("c0200b0000000000000000000000"), Fate::Withdrawn),
        ("LOCAL_PREF from another AS", and("400503000000"), Fate::Discarded),
        ("ORIGINATOR_ID from another AS", and("8009040a000001"), Fate::Discarded),
        ("AGGREGATOR of seven octets", and("c00707000000000000 00"), Fate::Discarded),
        ("ATOMIC_AGGREGATE of one octet", and("40060100"), Fate::Discarded),
        ("AS4_PATH from a four-octet speaker", and("c011060201fa56ea01"), Fate::Discarded),
        ("ORIGIN twice", and("40010101"), Fate::Discarded),
        ("an unknown optional attribute", and("c0fa0100"), Fate::Kept),
        ("an unknown well-known attribute", and("40fa0100"), Fate::Reset(3, 2)),
        ("an attribute beyond the attributes", and("80040a0000"), Fate::Withdrawn),
        ("an attribute's header cut off", and("8004"), Fate::Withdrawn),
    ];
    for (name, body, want) in cases {
        assert_eq!(fate(&body, &external()), want, "{name}");
    }
}

#[test]
fn an_internal_peer_has_to_say_local_pref() {
    let internal = context(Peering::Internal);
    let without = with_route(&format!("{ORIGIN} {AS_PATH} {NEXT_HOP}"));
    assert_eq!(fate(&without, &internal), Fate::Withdrawn);
    let short = with_route(&format!("{ORIGIN} {AS_PATH} {NEXT_HOP} 400503000000"));
    assert_eq!(fate(&short, &internal), Fate::Withdrawn);
    let with = with_route(&format!("{ORIGIN} {AS_PATH} {NEXT_HOP} 40050400000064"));
    assert_eq!(fate(&with, &internal), Fate::Kept);
}

#[test]
fn what_hides_the_routes_ends_the_session() {
    let v6 = |attribute: &str| alone(&format!("{ORIGIN} {AS_PATH} {attribute}"));
    let cases = [
        ("withdrawn routes beyond the message", "ffff 0000".to_owned(), Fate::Reset(3, 1)),
        ("attributes beyond the message", "0000 ffff".to_owned(), Fate::Reset(3, 1)),
        ("no attribute length", "0002 100a".to_owned(), Fate::Reset(3, 1)),
        ("a withdrawn route of length 33", "0006 21 0a01000000 0000".to_owned(), Fate::Reset(3, 10)),
        ("a route of length 33", format!("{} 21 0a01000000", with_route("")), Fate::Reset(3, 10)),
        ("a route cut off", format!("{} 18 0a", with_route("")), Fate::Reset(3, 10)),
        ("MP_REACH_NLRI", v6(V6_ROUTE), Fate::Kept),
        ("MP_REACH_NLRI twice", v6(&format!("{V6_ROUTE} {V6_ROUTE}")), Fate::Reset(3, 1)),
        ("MP_REACH_NLRI with a next hop of seven", v6("800e0c 000201 07 fd990000000000 00"), Fate::Reset(3, 9)),
        ("MP_REACH_NLRI cut off", v6("800e08 000201 10 fd990000"), Fate::Reset(3, 9)),
        ("MP_UNREACH_NLRI of two octets", v6("800f02 0002"), Fate::Reset(3, 9)),
        (
            "an IPv6 route of length 129",
            v6("800e27 000201 10 fd990000000000000000000000000002 00 81 fd01000000000000000000000000000000"),
            Fate::Reset(3, 10),
        ),
        // RFC 7606 §5.2: what to withdraw is not known.
        ("a malformed attribute and no route", alone(&format!("{ORIGIN} 40020602020000fde8")), Fate::Reset(3, 11)),
        ("a discarded attribute and no route", alone(&format!("{ORIGIN} 40060100")), Fate::Ignored),
    ];
    for (name, body, want) in cases {
        assert_eq!(fate(&body, &external()), want, "{name}");
    }
}

#[test]
fn routes_of_families_nobody_agreed_to_are_ignored() {
    let v6 = |attribute: &str| alone(&format!("{ORIGIN} {AS_PATH} {attribute}"));
    let only_v4 = Context { families: Families { v4: true, v6: false }, ..external() };
    let only_v6 = Context { families: Families { v4: false, v6: true }, ..external() };
    let v4 = with_route(&format!("{ORIGIN} {AS_PATH} {NEXT_HOP}"));
    for (name, body, context, want) in [
        ("VPLS", v6("800e09 001941 04 0a630002 00"), &external(), Fate::Ignored),
        ("IPv6", v6(V6_ROUTE), &only_v4, Fate::Ignored),
        ("IPv4", v4.clone(), &only_v6, Fate::Ignored),
        ("IPv4 that is malformed", format!("{v4} 21 0a01000000"), &only_v6, Fate::Reset(3, 10)),
    ] {
        assert_eq!(fate(&body, context), want, "{name}");
    }
}

#[test]
fn a_notification_reads_whatever_is_in_it() {
    for (body, want) in [
        ("0602", "cease: administrative shutdown (6/2)"),
        ("0602 05 6e6f6465 21", "cease: administrative shutdown (6/2), \"node!\""),
        ("0602 80 6e", "cease: administrative shutdown (6/2)"),
        ("0602 01 ff", "cease: administrative shutdown (6/2)"),
        ("0202 fde9", "OPEN error: bad peer AS, the AS number is not the configured one (2/2), it was 65001"),
        ("ff07", "unknown error (255/7)"),
    ] {
        let Ok(Message::Notification(read)) = Message::decode(&frame(NOTIFICATION, body), &external()) else {
            panic!("not read: {body}");
        };
        assert_eq!(read.to_string(), want);
    }
}
