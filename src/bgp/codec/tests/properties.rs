//! Properties: nothing panics, what is written reads back, packing is tight.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use crate::bgp::desired::HoldTime;
use crate::model::{Community, NextHops, PathAttributes};

use super::*;

prop_compose! {
    fn any_context()(four_octet_as: bool, is_internal: bool, v4: bool, v6: bool) -> Context {
        let peering = if is_internal { Peering::Internal } else { Peering::External };
        Context { four_octet_as, peering, families: Families { v4, v6 } }
    }
}

prop_compose! {
    fn v4_prefix()(address: u32, length in 0_u8..=32) -> Prefix {
        Prefix::containing(Ipv4Addr::from(address).into(), length).unwrap()
    }
}

prop_compose! {
    fn v6_prefix()(address: u128, length in 0_u8..=128) -> Prefix {
        Prefix::containing(Ipv6Addr::from(address).into(), length).unwrap()
    }
}

fn as_path() -> impl Strategy<Value = AsPath> {
    let kind = prop_oneof![Just(SegmentKind::Set), Just(SegmentKind::Sequence)];
    vec((kind, vec(1_u32.., 1..20)), 0..4).prop_map(AsPath)
}

fn community() -> impl Strategy<Value = Community> {
    prop_oneof![any::<u32>().prop_map(Community::Standard), any::<[u32; 3]>().prop_map(Community::Large)]
}

prop_compose! {
    fn attributes(is_internal: bool)(
        origin in prop_oneof![Just(Origin::Igp), Just(Origin::Egp), Just(Origin::Incomplete)],
        as_path in as_path(),
        next_hop: u32,
        med: Option<u32>,
        communities in btree_set(community(), 0..=PathAttributes::COMMUNITIES),
        preference: u32,
    ) -> Attributes {
        Attributes {
            origin: Some(origin),
            as_path: Some(as_path),
            next_hops: NextHops { v4: Some(next_hop.into()), v6: None },
            med,
            local_pref: is_internal.then_some(preference),
            communities,
        }
    }
}

fn capability() -> impl Strategy<Value = Capability> {
    prop_oneof![
        (any::<u16>(), any::<u8>()).prop_map(|(afi, safi)| Capability::Multiprotocol { afi, safi }),
        Just(Capability::RouteRefresh),
        (1_u32..).prop_map(Capability::FourOctetAs),
        (0_u8..16, 0_u16..4096, vec((any::<u16>(), any::<u8>(), any::<u8>()), 0..4)).prop_map(restart),
        (66_u8.., vec(any::<u8>(), 0..20)).prop_map(|(code, value)| Capability::Other { code, value }),
    ]
}

fn restart((flags, restart_time_seconds, families): (u8, u16, Vec<(u16, u8, u8)>)) -> Capability {
    let families = families.into_iter().map(|(afi, safi, flags)| PreservedFamily { afi, safi, flags }).collect();
    Capability::GracefulRestart(GracefulRestart { flags, restart_time_seconds, families })
}

/// A valid message of some kind, to be broken.
fn valid_message() -> impl Strategy<Value = Vec<u8>> {
    let update = (attributes(true), vec(v4_prefix(), 1..30)).prop_map(|(attributes, prefixes)| {
        let mut out = Vec::new();
        pack::announce(&attributes, &context(Peering::Internal), Family::V4, &prefixes, &mut out);
        out
    });
    let update_v6 = (attributes(true), vec(v6_prefix(), 1..30)).prop_map(|(mut attributes, prefixes)| {
        attributes.next_hops.v6 = Some(Ipv6Addr::LOCALHOST);
        let mut out = Vec::new();
        pack::announce(&attributes, &context(Peering::Internal), Family::V6, &prefixes, &mut out);
        out
    });
    let open = any_open().prop_map(|open| {
        let mut out = Vec::new();
        encode_open(&open, &mut out);
        out
    });
    let text = Notification::shutdown(Reason::AdministrativeShutdown, "rack 12");
    let mut notification = Vec::new();
    encode_notification(&text, &mut notification);
    prop_oneof![update, update_v6, open, Just(notification)]
}

prop_compose! {
    fn any_open()(
        two_octet_asn in 1_u16..,
        hold_time in (0_u16..).prop_filter_map("a hold time", |seconds| HoldTime::try_from(seconds).ok()),
        router_id in 1_u32..,
        capabilities in vec(capability(), 0..8),
    ) -> Open {
        Open { two_octet_asn, hold_time, router_id: Ipv4Addr::from(router_id).try_into().unwrap(), capabilities }
    }
}

proptest! {
    #[test]
    fn no_octets_make_decoding_panic(octets in vec(any::<u8>(), 0..300), kind in 1_u8..=6, context in any_context()) {
        let _ = frame_length(&octets);
        let _ = Message::decode(&octets, &context);
        let mut framed = Vec::new();
        write(kind, &mut framed, |body| body.extend(&octets));
        let _ = Message::decode(&framed, &context);
    }

    #[test]
    fn no_damage_to_a_message_makes_decoding_panic(
        mut octets in valid_message(),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        context in any_context(),
    ) {
        for (at, octet) in edits {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        let _ = Message::decode(&octets, &context);
        // Also past the header's checks, with the length made right.
        let end = HEADER_LENGTH + cut.index(octets.len() - HEADER_LENGTH + 1);
        let mut framed = Vec::new();
        write(octets[18], &mut framed, |body| body.extend(&octets[HEADER_LENGTH..end]));
        let _ = Message::decode(&framed, &context);
    }

    #[test]
    fn an_open_reads_back_as_it_was_written(open in any_open()) {
        let mut out = Vec::new();
        encode_open(&open, &mut out);
        prop_assert_eq!(Message::decode(&out, &external()), Ok(Message::Open(open)));
    }

    #[test]
    fn a_notification_reads_back_as_it_was_written(code: u8, subcode: u8, data in vec(any::<u8>(), 0..100)) {
        let said = Notification::new(Reason::of(code, subcode), data);
        let mut out = Vec::new();
        encode_notification(&said, &mut out);
        prop_assert_eq!(Message::decode(&out, &external()), Ok(Message::Notification(said)));
    }

    #[test]
    fn a_refresh_reads_back_as_it_was_written(afi: u16, subtype: u8, safi: u8) {
        let refresh = Refresh { afi, subtype, safi };
        let mut out = Vec::new();
        encode_refresh(refresh, &mut out);
        prop_assert_eq!(Message::decode(&out, &external()), Ok(Message::RouteRefresh(refresh)));
    }

    #[test]
    fn announced_ipv4_routes_read_back(
        attributes in any::<bool>().prop_flat_map(attributes),
        prefixes in vec(v4_prefix(), 1..2000),
    ) {
        reads_back(&attributes, Family::V4, &prefixes)?;
    }

    #[test]
    fn announced_ipv6_routes_read_back(
        mut attributes in any::<bool>().prop_flat_map(attributes),
        next_hop: u128,
        prefixes in vec(v6_prefix(), 1..1000),
    ) {
        attributes.next_hops = NextHops { v4: None, v6: Some(next_hop.into()) };
        reads_back(&attributes, Family::V6, &prefixes)?;
    }

    #[test]
    fn withdrawn_routes_read_back(v4 in vec(v4_prefix(), 1..2000), v6 in vec(v6_prefix(), 1..1000)) {
        for (family, prefixes) in [(Family::V4, v4), (Family::V6, v6)] {
            let mut out = Vec::new();
            let count = pack::withdraw(family, &prefixes, &mut out);
            prop_assert!(count == prefixes.len() || out.len() > MAXIMUM_LENGTH - 17, "packed tightly");
            let want = Update { withdrawn: prefixes[..count].to_vec(), ..Update::default() };
            prop_assert_eq!(Message::decode(&out, &external()), Ok(Message::Update(want)));
        }
    }
}

fn reads_back(attributes: &Attributes, family: Family, prefixes: &[Prefix]) -> Result<(), TestCaseError> {
    let peering = if attributes.local_pref.is_some() { Peering::Internal } else { Peering::External };
    let context = context(peering);
    let mut out = Vec::new();
    let count = pack::announce(attributes, &context, family, prefixes, &mut out);
    prop_assert!(out.len() <= MAXIMUM_LENGTH);
    prop_assert!(count == prefixes.len() || out.len() > MAXIMUM_LENGTH - 17, "packed tightly");
    let want = Update { announced: prefixes[..count].to_vec(), attributes: attributes.clone(), ..Update::default() };
    prop_assert_eq!(Message::decode(&out, &context), Ok(Message::Update(want)));
    Ok(())
}
