use proptest::prelude::*;

use super::super::codec::{HEADER_LENGTH, MAXIMUM_LENGTH, Message, Update, frame_length};
use super::*;

const BOTH: Families = Families { v4: true, v6: true };

fn context(families: Families) -> Context {
    Context { four_octet_as: true, peering: Peering::External, families }
}

fn rib(families: Families) -> AdjRibOut {
    AdjRibOut::new(context(families), 4_200_000_001.try_into().unwrap())
}

fn adverts(texts: &[&str]) -> Adverts {
    announced_by(&PathAttributes::default(), texts)
}

fn announced_by(path: &PathAttributes, texts: &[&str]) -> Adverts {
    texts.iter().map(|text| (text.parse().unwrap(), Arc::new(path.clone()))).collect()
}

fn hops() -> NextHops {
    NextHops { v4: Some([10, 99, 0, 1].into()), v6: Some("fd99::1".parse().unwrap()) }
}

/// Everything there is to send, as the peer reads it.
fn drain(rib: &mut AdjRibOut) -> Vec<Update> {
    let mut out = Vec::new();
    while rib.next_message(&mut out) {}
    let mut updates = Vec::new();
    let mut rest = out.as_slice();
    while !rest.is_empty() {
        let length = frame_length(rest).unwrap().expect("a whole message");
        assert!((HEADER_LENGTH..=MAXIMUM_LENGTH).contains(&length));
        match Message::decode(&rest[..length], &rib.context).unwrap() {
            Message::Update(update) => updates.push(update),
            other => panic!("not an UPDATE: {other:?}"),
        }
        rest = &rest[length..];
    }
    updates
}

/// The updates as one line: `-` withdrawn, `+` announced, `.` End-of-RIB.
fn story(updates: &[Update]) -> String {
    let words = updates.iter().flat_map(|update| {
        assert_eq!(update.faults, vec![]);
        let gone = update.withdrawn.iter().map(|prefix| format!("-{prefix}"));
        let come = update.announced.iter().map(|prefix| format!("+{prefix}"));
        gone.chain(come).chain(update.end_of_rib.map(|family| format!(".{family}"))).collect::<Vec<_>>()
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn announces_what_is_wished_and_then_ends_the_rib() {
    let mut rib = rib(BOTH);
    rib.want(&adverts(&["10.60.0.1/32", "fd60::1/128"]), hops(), true);
    assert_eq!(story(&drain(&mut rib)), "+10.60.0.1/32 +fd60::1/128 .IPv4 .IPv6");
    assert_eq!(rib.advertised(), 2);
    rib.want(&adverts(&["10.60.0.1/32", "fd60::1/128"]), hops(), true);
    assert_eq!(story(&drain(&mut rib)), "", "nothing changed, nothing is said");
}

#[test]
fn withdraws_before_it_announces() {
    let mut rib = rib(BOTH);
    rib.want(&adverts(&["10.60.0.1/32", "fd60::1/128"]), hops(), true);
    drain(&mut rib);
    rib.want(&adverts(&["10.60.0.2/32"]), hops(), true);
    assert_eq!(story(&drain(&mut rib)), "-10.60.0.1/32 -fd60::1/128 +10.60.0.2/32");
}

#[test]
fn an_incomplete_wish_withdraws_nothing_and_ends_no_rib() {
    let mut rib = rib(BOTH);
    rib.want(&adverts(&["10.60.0.1/32"]), hops(), false);
    assert_eq!(story(&drain(&mut rib)), "+10.60.0.1/32");
    rib.want(&adverts(&["10.60.0.2/32"]), NextHops::default(), false);
    assert_eq!(story(&drain(&mut rib)), "", "the next hop is not known, and nothing is withdrawn");
    rib.want(&adverts(&["10.60.0.2/32"]), hops(), false);
    assert_eq!(story(&drain(&mut rib)), "+10.60.0.2/32");
    rib.want(&adverts(&["10.60.0.2/32"]), hops(), true);
    assert_eq!(story(&drain(&mut rib)), "-10.60.0.1/32 .IPv4 .IPv6");
}

#[test]
fn the_newest_wish_wins_over_what_was_not_sent_yet() {
    let mut rib = rib(BOTH);
    rib.want(&adverts(&["10.60.0.1/32"]), hops(), true);
    rib.want(&adverts(&[]), hops(), true);
    assert_eq!(story(&drain(&mut rib)), ".IPv4 .IPv6", "it came and went before it was sent");
    rib.want(&adverts(&["10.60.0.1/32"]), hops(), true);
    drain(&mut rib);
    rib.want(&adverts(&[]), hops(), true);
    rib.want(&adverts(&["10.60.0.1/32"]), hops(), true);
    assert_eq!(story(&drain(&mut rib)), "", "it went and came before that was sent");
}

#[test]
fn a_refresh_sends_all_of_its_family_again() {
    let mut rib = rib(BOTH);
    rib.want(&adverts(&["10.60.0.1/32", "10.60.0.2/32", "fd60::1/128"]), hops(), true);
    drain(&mut rib);
    rib.resend(Family::V4);
    rib.want(&adverts(&["10.60.0.2/32", "fd60::1/128"]), hops(), true);
    assert_eq!(story(&drain(&mut rib)), "-10.60.0.1/32 +10.60.0.2/32");
    rib.resend(Family::V6);
    assert_eq!(story(&drain(&mut rib)), "+fd60::1/128");
}

#[test]
fn a_new_next_hop_is_told_for_its_family() {
    let mut rib = rib(BOTH);
    rib.want(&adverts(&["10.60.0.1/32", "fd60::1/128"]), hops(), true);
    drain(&mut rib);
    let moved = NextHops { v6: Some("fd99::7".parse().unwrap()), ..hops() };
    rib.want(&adverts(&["10.60.0.1/32", "fd60::1/128"]), moved, true);
    let updates = drain(&mut rib);
    assert_eq!(story(&updates), "+fd60::1/128");
    assert_eq!(updates[0].attributes.next_hops.v6, moved.v6);
}

#[test]
fn what_cannot_be_announced_is_withheld_with_its_reason() {
    let wish = adverts(&["10.60.0.1/32", "fd60::1/128", "fd60::2/128"]);
    let mut no_address = rib(BOTH);
    no_address.want(&wish, NextHops { v6: None, ..hops() }, true);
    assert_eq!(story(&drain(&mut no_address)), "+10.60.0.1/32 .IPv4 .IPv6");
    assert_eq!(no_address.withheld(), &BTreeMap::from([(Withheld::NoNextHop(Family::V6), 2)]));

    let mut no_family = rib(Families { v4: true, v6: false });
    no_family.want(&wish, hops(), true);
    assert_eq!(story(&drain(&mut no_family)), "+10.60.0.1/32 .IPv4");
    assert_eq!(no_family.withheld(), &BTreeMap::from([(Withheld::FamilyNotNegotiated(Family::V6), 2)]));
}

#[test]
fn routes_look_equal_from_every_node() {
    let mut external = rib(BOTH);
    external.want(&adverts(&["10.60.0.1/32"]), hops(), true);
    let said = &drain(&mut external)[0].attributes;
    assert_eq!((said.origin, said.med, said.local_pref), (Some(Origin::Igp), None, None));
    assert_eq!(said.as_path, Some(AsPath(vec![(SegmentKind::Sequence, vec![4_200_000_001])])));

    let mut internal =
        AdjRibOut::new(Context { peering: Peering::Internal, ..context(BOTH) }, 65000.try_into().unwrap());
    internal.want(&adverts(&["10.60.0.1/32"]), hops(), true);
    let said = &drain(&mut internal)[0].attributes;
    assert_eq!((said.local_pref, said.as_path.clone()), (Some(100), Some(AsPath::default())));
}

#[test]
fn a_thousand_prefixes_take_few_updates() {
    let hosts = |family: Family| {
        let address = move |i: u32| match family {
            Family::V4 => IpAddr::V4((0x0a3c_0000 + i).into()),
            Family::V6 => IpAddr::V6((0xfd60_u128 << 112 | u128::from(i)).into()),
        };
        (0..1000).map(move |i| (Prefix::host(address(i)), Arc::default())).collect::<Adverts>()
    };
    for family in [Family::V4, Family::V6] {
        let mut rib = rib(BOTH);
        rib.want(&hosts(family), hops(), false);
        let updates = drain(&mut rib);
        assert!(updates.len() <= 5, "{} UPDATEs for 1000 {family} prefixes", updates.len());
        assert_eq!(rib.advertised(), 1000);
    }
}

#[test]
fn prefixes_of_which_the_same_is_said_share_their_updates() {
    let path = |med| PathAttributes { med: Some(med), ..PathAttributes::default() };
    let (odd, even): (Vec<u8>, Vec<u8>) = (0..200).partition(|n| n % 2 == 1);
    let hosts = |of: &[u8]| of.iter().map(|n| format!("10.60.0.{n}/32")).collect::<Vec<_>>();
    let texts = [hosts(&odd), hosts(&even)];
    let [odd, even] = [0, 1].map(|i| texts[i].iter().map(String::as_str).collect::<Vec<_>>());
    let both = [announced_by(&path(1), &odd), announced_by(&path(2), &even)];
    let wish = both.iter().flat_map(Adverts::iter).map(|(prefix, path)| (*prefix, Arc::clone(path))).collect();
    let mut rib = rib(BOTH);
    rib.want(&wish, hops(), false);
    let said: Vec<_> = drain(&mut rib).iter().map(|update| (update.attributes.med, update.announced.len())).collect();
    assert_eq!(said, [(Some(1), 100), (Some(2), 100)]);
}

#[test]
fn what_an_advertisement_says_is_told_and_a_change_of_it_without_a_withdrawal() {
    let path = PathAttributes {
        communities: ["64512:100", "no-export", "4200000000:1:2"].map(|text| text.parse().unwrap()).into(),
        local_preference: Some(200),
        med: Some(7),
        prepend: 2,
    };
    let mut external = rib(BOTH);
    external.want(&announced_by(&path, &["10.60.0.1/32", "10.60.0.2/32"]), hops(), false);
    let updates = drain(&mut external);
    assert_eq!(story(&updates), "+10.60.0.1/32 +10.60.0.2/32");
    let said = &updates[0].attributes;
    assert_eq!((&said.communities, said.med, said.local_pref), (&path.communities, Some(7), None));
    assert_eq!(said.as_path, Some(AsPath(vec![(SegmentKind::Sequence, vec![4_200_000_001; 3])])));

    // What only an internal session is told changes nothing on an external one.
    let preferred = PathAttributes { local_preference: Some(300), ..path.clone() };
    let mut wish = announced_by(&preferred, &["10.60.0.1/32", "10.60.0.2/32"]);
    external.want(&wish, hops(), true);
    assert_eq!(story(&drain(&mut external)), ".IPv4 .IPv6");
    adverts(&["10.60.0.2/32"]).iter().for_each(|(prefix, path)| drop(wish.insert(*prefix, Arc::clone(path))));
    external.want(&wish, hops(), true);
    assert_eq!(story(&drain(&mut external)), "+10.60.0.2/32");

    let mut internal =
        AdjRibOut::new(Context { peering: Peering::Internal, ..context(BOTH) }, 65000.try_into().unwrap());
    internal.want(&announced_by(&path, &["10.60.0.1/32"]), hops(), true);
    let said = &drain(&mut internal)[0].attributes;
    assert_eq!((said.local_pref, said.med, said.as_path.clone()), (Some(200), Some(7), Some(AsPath::default())));
}

#[test]
fn a_session_names_its_own_address_for_its_own_family() {
    let node = NextHops { v4: Some([10, 0, 0, 1].into()), v6: Some("fd00::1".parse().unwrap()) };
    for (local, want) in [
        ("10.99.0.1", NextHops { v4: Some([10, 99, 0, 1].into()), ..node }),
        ("fd99::1", NextHops { v6: Some("fd99::1".parse().unwrap()), ..node }),
        ("fe80::1", node),
    ] {
        assert_eq!(session_next_hops(local.parse().unwrap(), node), want, "{local}");
    }
}

fn hop(prefix: Prefix, next_hops: NextHops) -> IpAddr {
    match prefix.family() {
        Family::V4 => next_hops.v4.unwrap().into(),
        Family::V6 => next_hops.v6.unwrap().into(),
    }
}

/// What can befall a RIB.
#[derive(Debug, Clone)]
enum Event {
    Want(BTreeMap<u8, u32>, bool, bool),
    Resend(bool),
    SendOne,
    Send,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (prop::collection::btree_map(0_u8..12, 0_u32..3, 0..8), any::<bool>(), any::<bool>())
            .prop_map(|(wish, complete, moved)| Event::Want(wish, complete, moved)),
        any::<bool>().prop_map(Event::Resend),
        Just(Event::SendOne),
        Just(Event::Send),
    ]
}

fn advert((number, med): (u8, u32)) -> (Prefix, Arc<PathAttributes>) {
    let text = if number < 6 { format!("10.0.0.{number}/32") } else { format!("fd00::{number}/128") };
    (text.parse().unwrap(), Arc::new(PathAttributes { med: Some(med), ..PathAttributes::default() }))
}

proptest! {
    #[test]
    fn the_peer_ends_up_with_the_wish_whatever_came_before(events in prop::collection::vec(event(), 0..20)) {
        let mut rib = rib(BOTH);
        let mut peer: BTreeMap<Prefix, (IpAddr, Option<u32>)> = BTreeMap::new();
        let mut last = (Adverts::default(), hops());
        let end = [Event::Want(BTreeMap::from([(1, 0), (7, 1)]), true, false), Event::Send];
        for event in events.into_iter().chain(end) {
            match event {
                Event::Want(numbers, is_complete, is_moved) => {
                    let other = NextHops { v4: Some([10, 99, 0, 2].into()), ..hops() };
                    last = (numbers.into_iter().map(advert).collect(), if is_moved { other } else { hops() });
                    rib.want(&last.0, last.1, is_complete);
                }
                Event::Resend(is_v4) => rib.resend(if is_v4 { Family::V4 } else { Family::V6 }),
                Event::SendOne | Event::Send => for update in drain(&mut rib) {
                    for prefix in update.withdrawn {
                        prop_assert!(peer.remove(&prefix).is_some(), "{} was never announced", prefix);
                    }
                    for prefix in update.announced {
                        peer.insert(prefix, (hop(prefix, update.attributes.next_hops), update.attributes.med));
                    }
                }
            }
        }
        let want: BTreeMap<_, _> =
            last.0.iter().map(|(prefix, path)| (*prefix, (hop(*prefix, last.1), path.med))).collect();
        prop_assert_eq!(peer, want);
        prop_assert_eq!(rib.advertised(), 2);
    }

    #[test]
    fn a_changed_wish_is_told_as_if_all_of_it_were_new(
        events in prop::collection::vec(event(), 0..60), lacks_v6 in any::<bool>(),
    ) {
        let families = Families { v4: true, v6: !lacks_v6 };
        let (mut rib, mut anew) = (rib(families), rib(families));
        for event in events.into_iter().chain([Event::Send]) {
            match event {
                Event::Want(numbers, is_complete, has_v4) => {
                    let wish: Adverts = numbers.into_iter().map(advert).collect();
                    let next_hops = if has_v4 { hops() } else { NextHops { v4: None, ..hops() } };
                    rib.want(&wish, next_hops, is_complete);
                    (anew.wish, anew.next_hops, anew.is_complete) = (wish, next_hops, is_complete);
                    anew.decide_all();
                }
                Event::Resend(is_v4) => {
                    let family = if is_v4 { Family::V4 } else { Family::V6 };
                    rib.resend(family);
                    anew.resend(family);
                }
                Event::SendOne => {
                    let (mut said, mut want) = (Vec::new(), Vec::new());
                    prop_assert_eq!(rib.next_message(&mut said), anew.next_message(&mut want));
                    prop_assert_eq!(said, want);
                }
                Event::Send => prop_assert_eq!(story(&drain(&mut rib)), story(&drain(&mut anew))),
            }
            prop_assert_eq!(&rib.withheld, &anew.withheld);
            prop_assert_eq!(&rib.sent, &anew.sent);
            prop_assert_eq!(&rib.to_withdraw, &anew.to_withdraw);
            prop_assert_eq!(&rib.to_announce, &anew.to_announce);
        }
    }
}
