//! Adj-RIB-In: what one peer has told us, as far as we asked for it (RFC 4271 §3.2). Pure.
//!
//! The default is to take nothing (RFC 8212). What the peer's import policy does not take is
//! forgotten at once, so that no peer can make memory grow: there are at most as many routes as the
//! policy says. Which are refused beyond that is the peer's order of telling; those that are in stay.
//! When the policy or the room for routes changes, the peer is asked to tell everything again (RFC 2918).
//! What a peer told that restarts stays, stale, until it has told it anew ([`retained`](super::retained)).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::config::peer::Import;
use crate::model::learned::{LearnedPath, LearnedRoutes, Merit};
use crate::model::{Asn, Family, Moment, Prefix};

use super::codec::{AsPath, Attributes, Context, Families, Origin, SegmentKind, Update};
use super::desired::Peering;
use super::fsm::Restart;
use super::retained::Retained;

/// What LOCAL_PREF is on sessions that do not carry it.
const LOCAL_PREF: u32 = 100;
/// So many KEEPALIVEs without an UPDATE between them: the peer had nothing to say for a whole interval.
const QUIET: u8 = 2;

/// The routes of one session, from its Established on.
#[derive(Debug)]
pub(super) struct AdjRibIn {
    context: Context,
    local_asn: Asn,
    local_address: IpAddr,
    import: Import,
    routes: LearnedRoutes,
    /// Those of them that have been in the own AS, and how often.
    through_own: BTreeMap<Prefix, usize>,
    /// Routes that were refused for want of room since the peer last told everything.
    over_limit: usize,
    /// The families that the peer is to tell anew.
    to_ask: Families,
    /// The families of which the peer has told everything once (RFC 4724 §2).
    told: Families,
    /// KEEPALIVEs since the last UPDATE.
    keepalives: u8,
    /// Routes that it told before it restarted, and not since.
    stale: BTreeSet<Prefix>,
}

impl AdjRibIn {
    /// Nothing was told yet.
    pub(super) fn new(context: Context, local_asn: Asn, local_address: IpAddr, import: Import) -> Self {
        let (routes, through_own, to_ask) = (LearnedRoutes::default(), BTreeMap::new(), Families::default());
        Self {
            context,
            local_asn,
            local_address,
            import,
            routes,
            through_own,
            over_limit: 0,
            to_ask,
            told: Families::default(),
            keepalives: 0,
            stale: BTreeSet::new(),
        }
    }

    /// Goes on with what the peer told before it restarted, of the families that it has forwarded meanwhile; the
    /// rest goes at once (RFC 4724 §4.2).
    pub(super) fn resume(&mut self, retained: Retained, forwarding: Families) {
        (self.routes, self.through_own) = retained.into_parts();
        self.routes.retain(|prefix| forwarding.contains(prefix.family()));
        self.through_own.retain(|prefix, _| self.routes.contains_key(prefix));
        self.stale = self.routes.keys().copied().collect();
    }

    /// What stays of this session's routes when it ended because the peer restarts. What was stale then already
    /// goes (RFC 4724 §4.2).
    pub(super) fn retain(mut self, restart: Restart, now: Moment) -> Option<Retained> {
        self.routes.retain(|prefix| restart.kept.contains(prefix.family()) && !self.stale.contains(prefix));
        self.through_own.retain(|prefix, _| self.routes.contains_key(prefix));
        Retained::new(self.routes, self.through_own, now, now + restart.time)
    }

    /// How many routes the peer has not told since it restarted.
    pub(super) fn stale(&self) -> usize {
        self.stale.len()
    }

    /// Forgets what the peer has not told since it restarted.
    pub(super) fn forget_stale(&mut self) {
        self.change(|rib| std::mem::take(&mut rib.stale).iter().for_each(|prefix| rib.remove(prefix)));
    }

    /// What was told and is taken.
    pub(super) fn routes(&self) -> &LearnedRoutes {
        &self.routes
    }

    /// Whether the peer has told all its first routes, of every family that the session carries.
    pub(super) fn is_told(&self) -> bool {
        [Family::V4, Family::V6]
            .into_iter()
            .all(|family| self.told.contains(family) || !self.context.families.contains(family))
    }

    /// Takes a KEEPALIVE of a peer that says no End-of-RIB, since it does not know what that is (RFC 4724 §2). It has told
    /// everything when it has nothing to say for a while; FRR takes the first KEEPALIVE for that.
    pub(super) fn keep_alive(&mut self) {
        self.keepalives = self.keepalives.saturating_add(1);
        if self.keepalives >= QUIET {
            self.told = self.context.families;
        }
    }

    /// How many routes were refused because there are as many as may be.
    pub(super) fn over_limit(&self) -> usize {
        self.over_limit
    }

    /// Changes what is taken. Routes that were refused before come when the peer tells them again.
    pub(super) fn adopt(&mut self, import: &Import) {
        if self.import == *import {
            return;
        }
        self.import = import.clone();
        let (import, through_own) = (&self.import, &self.through_own);
        let mut room = import.max_prefixes;
        let stays = |prefix: &Prefix| {
            let is_loop = through_own.get(prefix).is_some_and(|own| *own > usize::from(import.allow_own_as));
            let stays = import.takes(prefix) && !is_loop && room > 0;
            room -= usize::from(stays);
            stays
        };
        self.routes.retain(stays);
        self.through_own.retain(|prefix, _| self.routes.contains_key(prefix));
        self.stale.retain(|prefix| self.routes.contains_key(prefix));
        self.ask_again();
    }

    /// Takes what an UPDATE says.
    pub(super) fn take(&mut self, update: &Update) {
        self.keepalives = 0;
        self.change(|rib| rib.follow(update));
    }

    /// Changes the routes. When that makes room, the peer is to tell again what was refused for want of it.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let is_full = |rib: &Self| rib.routes.len() >= rib.import.max_prefixes;
        let was_full = is_full(self);
        change(self);
        if was_full && self.over_limit > 0 && !is_full(self) {
            self.ask_again();
        }
    }

    fn follow(&mut self, update: &Update) {
        for prefix in &update.withdrawn {
            self.remove(prefix);
        }
        for prefix in update.announced.iter() {
            match self.path(prefix.family(), &update.attributes).filter(|_| self.import.takes(prefix)) {
                Some((path, own)) => self.insert(*prefix, path, own),
                // What was told before is hereby replaced.
                None => self.remove(prefix),
            }
        }
        if let Some(family) = update.end_of_rib {
            *self.told.of_mut(family) = true;
            let gone: Vec<Prefix> = self.stale.iter().filter(|prefix| prefix.family() == family).copied().collect();
            gone.iter().for_each(|prefix| self.remove(prefix));
        }
    }

    /// The next family that the peer is to tell anew.
    pub(super) fn next_question(&mut self) -> Option<Family> {
        let family = [Family::V4, Family::V6].into_iter().find(|family| self.to_ask.contains(*family))?;
        *self.to_ask.of_mut(family) = false;
        Some(family)
    }

    fn ask_again(&mut self) {
        self.over_limit = 0;
        if !self.import.is_nothing() {
            self.to_ask = self.context.families;
        }
    }

    fn insert(&mut self, prefix: Prefix, path: LearnedPath, own: usize) {
        self.stale.remove(&prefix);
        match self.routes.get(&prefix) {
            Some(known) if *known == path => {}
            None if self.routes.len() >= self.import.max_prefixes => {
                self.over_limit = self.over_limit.saturating_add(1);
                return;
            }
            _ => drop(self.routes.insert(prefix, path)),
        }
        if own == 0 {
            self.through_own.remove(&prefix);
        } else {
            self.through_own.insert(prefix, own);
        }
    }

    fn remove(&mut self, prefix: &Prefix) {
        self.stale.remove(prefix);
        self.through_own.remove(prefix);
        self.routes.remove(prefix);
    }

    /// The path that attributes describe, and how often it has been in the own AS; none for a loop, or a next hop that
    /// packets cannot be handed to.
    fn path(&self, family: Family, attributes: &Attributes) -> Option<(LearnedPath, usize)> {
        let next_hop = match family {
            Family::V4 => attributes.next_hops.v4.map(IpAddr::V4),
            Family::V6 => attributes.next_hops.v6.map(IpAddr::V6),
        };
        let next_hop = next_hop.filter(|address| is_host(*address) && *address != self.local_address)?;
        let as_path = attributes.as_path.as_ref()?;
        // RFC 4271 §9.1.2: a path through the own AS is a loop, unless the policy says otherwise.
        let asns = as_path.0.iter().flat_map(|(_, asns)| asns);
        let own = asns.filter(|asn| **asn == self.local_asn.get()).count();
        if own > usize::from(self.import.allow_own_as) {
            return None;
        }
        let local_preference = match self.context.peering {
            Peering::Internal => attributes.local_pref.unwrap_or(LOCAL_PREF),
            Peering::External => LOCAL_PREF,
        };
        let merit = Merit {
            local_preference,
            path_length: Reverse(length(as_path)),
            origin: Reverse(match attributes.origin? {
                Origin::Igp => 0,
                Origin::Egp => 1,
                Origin::Incomplete => 2,
            }),
            med: Reverse(attributes.med.unwrap_or_default()),
            is_external: self.context.peering == Peering::External,
            is_current: true,
        };
        Some((LearnedPath { next_hop, merit }, own))
    }
}

/// RFC 4271 §9.1.2.2 (a): a set counts as one.
fn length(path: &AsPath) -> u32 {
    let count = |(kind, asns): &(SegmentKind, Vec<u32>)| match kind {
        SegmentKind::Set => 1,
        SegmentKind::Sequence => u32::try_from(asns.len()).unwrap_or(u32::MAX),
    };
    path.0.iter().map(count).fold(0, u32::saturating_add)
}

/// Whether the address can be one of another host on a network.
fn is_host(address: IpAddr) -> bool {
    let is_odd = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        // It would take the interface to say which host that is.
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_odd)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::config::peer::ImportRule;
    use crate::model::NextHops;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn import(rules: &[(&str, Option<u8>, Option<u8>)], max_prefixes: usize) -> Import {
        let rules = rules.iter().map(|(text, ge, le)| ImportRule::new(prefix(text), *ge, *le).unwrap()).collect();
        Import { rules, max_prefixes, allow_own_as: 0 }
    }

    fn rib(import: Import) -> AdjRibIn {
        let families = Families { v4: true, v6: true };
        let context = Context { four_octet_as: true, peering: Peering::External, families };
        AdjRibIn::new(context, 64513.try_into().unwrap(), [10, 90, 0, 11].into(), import)
    }

    fn attributes(as_path: &[u32], next_hop: [u8; 4]) -> Attributes {
        Attributes {
            origin: Some(Origin::Igp),
            as_path: Some(AsPath(vec![(SegmentKind::Sequence, as_path.to_vec())])),
            next_hops: NextHops { v4: Some(next_hop.into()), v6: Some("fd90::1".parse().unwrap()) },
            ..Attributes::default()
        }
    }

    fn told(announced: &[&str]) -> Update {
        let announced = announced.iter().map(|text| prefix(text)).collect();
        Update { announced, attributes: attributes(&[64512, 65000], [10, 90, 0, 1]), ..Update::default() }
    }

    fn gone(withdrawn: &[&str]) -> Update {
        Update { withdrawn: withdrawn.iter().map(|text| prefix(text)).collect(), ..Update::default() }
    }

    fn end(family: Family) -> Update {
        Update { end_of_rib: Some(family), ..Update::default() }
    }

    fn story(rib: &AdjRibIn) -> String {
        rib.routes().keys().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    fn questions(rib: &mut AdjRibIn) -> Vec<Family> {
        std::iter::from_fn(|| rib.next_question()).collect()
    }

    #[test]
    fn only_what_the_policy_takes_is_kept() {
        let all = [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.0/24",
            "10.1.2.3/32",
            "11.0.0.0/8",
            "::/0",
            "fd00:1::/32",
        ];
        for (rules, want) in [
            (&[][..], ""),
            (&[("10.0.0.0/8", None, None)], "10.0.0.0/8"),
            (&[("10.0.0.0/8", None, Some(24))], "10.0.0.0/8 10.1.0.0/16 10.1.2.0/24"),
            (&[("10.0.0.0/8", Some(16), Some(24))], "10.1.0.0/16 10.1.2.0/24"),
            (&[("10.0.0.0/8", Some(24), None)], "10.1.2.0/24 10.1.2.3/32"),
            (&[("0.0.0.0/0", None, None)], "0.0.0.0/0"),
            (&[("0.0.0.0/0", None, Some(8))], "10.0.0.0/8 11.0.0.0/8"),
            (&[("::/0", None, None), ("fd00::/8", None, Some(48))], "::/0 fd00:1::/32"),
        ] {
            let mut rib = rib(import(rules, 100));
            rib.take(&told(&all));
            assert_eq!(story(&rib), want, "{rules:?}");
        }
    }

    #[test]
    fn withdrawn_replaced_and_looping_routes_go() {
        let mut rib = rib(import(&[("10.0.0.0/8", None, Some(32))], 100));
        rib.take(&told(&["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"]));
        rib.take(&gone(&["10.1.0.0/16", "10.9.0.0/16"]));
        assert_eq!(story(&rib), "10.2.0.0/16 10.3.0.0/16");
        let with = |attributes| Update { announced: vec![prefix("10.2.0.0/16")], attributes, ..Update::default() };
        for (name, attributes) in [
            ("the own AS", attributes(&[64512, 64513], [10, 90, 0, 1])),
            ("the own address", attributes(&[64512], [10, 90, 0, 11])),
            ("no host", attributes(&[64512], [224, 0, 0, 1])),
        ] {
            rib.take(&told(&["10.2.0.0/16"]));
            rib.take(&with(attributes));
            assert_eq!(story(&rib), "10.3.0.0/16", "{name}");
        }
    }

    #[test]
    fn the_own_as_may_stand_in_a_path_as_often_as_the_policy_says() {
        const OWN: u32 = 64513;
        let policy = |allow_own_as| Import { allow_own_as, ..import(&[("10.0.0.0/8", None, Some(16))], 100) };
        let through = |text: &str, as_path: &[u32]| Update {
            announced: vec![prefix(text)],
            attributes: attributes(as_path, [10, 90, 0, 1]),
            ..Update::default()
        };
        for (allowed, want) in [
            (0, "10.0.0.0/16"),
            (1, "10.0.0.0/16 10.1.0.0/16"),
            (2, "10.0.0.0/16 10.1.0.0/16 10.2.0.0/16"),
            (10, "10.0.0.0/16 10.1.0.0/16 10.2.0.0/16"),
        ] {
            let mut rib = rib(policy(allowed));
            rib.take(&through("10.0.0.0/16", &[64512]));
            rib.take(&through("10.1.0.0/16", &[64512, OWN]));
            rib.take(&through("10.2.0.0/16", &[64512, OWN, 64512, OWN]));
            assert_eq!(story(&rib), want, "{allowed}");
        }
        // In a set as in a sequence.
        let mut rib = rib(policy(1));
        let mut set = through("10.3.0.0/16", &[]);
        set.attributes.as_path =
            Some(AsPath(vec![(SegmentKind::Set, vec![64512, OWN]), (SegmentKind::Set, vec![OWN])]));
        rib.take(&set);
        assert_eq!(story(&rib), "");
        // A stricter policy holds at once for what is in; a path that is no loop any more stays.
        rib.take(&through("10.1.0.0/16", &[64512, OWN]));
        rib.take(&through("10.2.0.0/16", &[64512, OWN]));
        rib.take(&through("10.2.0.0/16", &[64512]));
        rib.adopt(&policy(0));
        assert_eq!(story(&rib), "10.2.0.0/16");
    }

    #[test]
    fn no_more_than_the_limit_is_kept_and_the_rest_is_asked_for_when_there_is_room() {
        let mut rib = rib(import(&[("10.0.0.0/8", None, Some(32))], 2));
        rib.take(&told(&["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"]));
        assert_eq!((story(&rib).as_str(), rib.over_limit()), ("10.1.0.0/16 10.2.0.0/16", 2));
        rib.take(&told(&["10.1.0.0/16"]));
        assert_eq!((questions(&mut rib), rib.over_limit()), (vec![], 2), "those that are in may be told again");
        rib.take(&gone(&["10.1.0.0/16"]));
        assert_eq!(questions(&mut rib), [Family::V4, Family::V6]);
        rib.take(&told(&["10.3.0.0/16"]));
        assert_eq!((story(&rib).as_str(), rib.over_limit()), ("10.2.0.0/16 10.3.0.0/16", 0));
    }

    #[test]
    fn a_peer_has_told_everything_when_each_family_has_its_end() {
        let mut rib = rib(import(&[("10.0.0.0/8", None, Some(32))], 2));
        rib.take(&told(&["10.1.0.0/16"]));
        assert!(!rib.is_told());
        rib.take(&end(Family::V6));
        assert!(!rib.is_told());
        rib.take(&end(Family::V4));
        assert!(rib.is_told());
        rib.context.families.v6 = false;
        rib.told = Families { v4: true, v6: false };
        assert!(rib.is_told(), "of the other family nothing comes");
    }

    #[test]
    fn a_peer_that_says_no_end_has_told_everything_when_it_has_nothing_to_say_for_a_while() {
        let mut rib = rib(import(&[("10.0.0.0/8", None, Some(32))], 2));
        rib.keep_alive();
        rib.take(&told(&["10.1.0.0/16"]));
        rib.keep_alive();
        assert!(!rib.is_told());
        rib.keep_alive();
        assert!(rib.is_told());
    }

    #[test]
    fn what_a_router_told_before_it_restarted_stays_until_it_has_told_everything_again() {
        const V4: Families = Families { v4: true, v6: false };
        const BOTH: Families = Families { v4: true, v6: true };
        let policy = || import(&[("10.0.0.0/8", None, Some(32)), ("fd00::/8", None, Some(64))], 100);
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let restart = |kept| Restart { time: Duration::from_secs(30), kept, forwarding: kept };
        let before = || {
            let mut rib = rib(policy());
            rib.take(&told(&["10.1.0.0/16", "10.2.0.0/16", "fd00:1::/32"]));
            rib
        };
        for (name, kept, forwarding, again, want) in [
            ("nothing told yet", BOTH, BOTH, vec![], "10.1.0.0/16 10.2.0.0/16 fd00:1::/32"),
            ("only one family is kept", V4, BOTH, vec![], "10.1.0.0/16 10.2.0.0/16"),
            ("only one was forwarded", BOTH, V4, vec![], "10.1.0.0/16 10.2.0.0/16"),
            ("one told again", BOTH, BOTH, vec![told(&["10.1.0.0/16"])], "10.1.0.0/16 10.2.0.0/16 fd00:1::/32"),
            ("that is all", BOTH, BOTH, vec![told(&["10.1.0.0/16"]), end(Family::V4)], "10.1.0.0/16 fd00:1::/32"),
            ("withdrawn", BOTH, BOTH, vec![gone(&["10.1.0.0/16"])], "10.2.0.0/16 fd00:1::/32"),
            ("both families", BOTH, BOTH, vec![end(Family::V4), end(Family::V6)], ""),
        ] {
            let retained = before().retain(restart(kept), at(1)).expect("something stays");
            assert_eq!(retained.until(), at(31));
            let mut rib = rib(policy());
            rib.resume(retained, forwarding);
            again.iter().for_each(|update| rib.take(update));
            assert_eq!(story(&rib), want, "{name}");
            // Nothing stays stale over a second restart.
            let fresh = rib.routes().len() - rib.stale();
            let again = rib.retain(restart(BOTH), at(2));
            assert_eq!(again.map_or(0, |retained| retained.routes().len()), fresh, "{name}");
        }
        assert!(before().retain(restart(Families::default()), at(1)).is_none());
        assert!(before().retain(Restart { time: Duration::ZERO, ..restart(BOTH) }, at(1)).is_none());
        let mut late = rib(policy());
        late.resume(before().retain(restart(BOTH), at(1)).expect("something stays"), BOTH);
        late.take(&told(&["10.1.0.0/16"]));
        late.forget_stale();
        assert_eq!(story(&late), "10.1.0.0/16");
    }

    #[test]
    fn a_route_is_current_again_when_its_router_has_told_it_since_it_restarted() {
        let policy = || import(&[("10.0.0.0/8", None, Some(32))], 100);
        let kept = Families { v4: true, v6: false };
        let restart = Restart { time: Duration::from_secs(30), kept, forwarding: kept };
        let mut before = rib(policy());
        before.take(&told(&["10.1.0.0/16", "10.2.0.0/16"]));
        let mut rib = rib(policy());
        rib.resume(before.retain(restart, Moment::default()).expect("something stays"), kept);
        let current = |rib: &AdjRibIn| rib.routes().values().map(|path| path.merit.is_current).collect::<Vec<_>>();
        assert_eq!(current(&rib), [false, false]);
        rib.take(&told(&["10.1.0.0/16"]));
        assert_eq!(current(&rib), [true, false]);
    }

    #[test]
    fn what_has_no_room_beside_routes_of_before_a_restart_is_asked_for_when_these_go() {
        let policy = || import(&[("10.0.0.0/8", None, Some(32))], 2);
        let kept = Families { v4: true, v6: false };
        let restart = Restart { time: Duration::from_secs(30), kept, forwarding: kept };
        for (name, go) in [
            ("the router has told everything", (|rib| rib.take(&end(Family::V4))) as fn(&mut AdjRibIn)),
            ("it never says so", AdjRibIn::forget_stale),
        ] {
            let mut before = rib(policy());
            before.take(&told(&["10.1.0.0/16", "10.2.0.0/16"]));
            let mut rib = rib(policy());
            rib.resume(before.retain(restart, Moment::default()).expect("something stays"), kept);
            rib.take(&told(&["10.3.0.0/16"]));
            assert_eq!((questions(&mut rib), rib.over_limit()), (vec![], 1), "{name}");
            go(&mut rib);
            assert_eq!((questions(&mut rib), rib.over_limit()), (vec![Family::V4, Family::V6], 0), "{name}");
        }
    }

    #[test]
    fn a_new_policy_holds_at_once_and_what_it_takes_more_is_asked_for() {
        let mut rib = rib(import(&[("10.0.0.0/8", None, Some(16))], 100));
        rib.take(&told(&["10.1.0.0/16", "10.2.0.0/16", "11.1.0.0/16"]));
        rib.adopt(&import(&[("10.0.0.0/8", None, Some(16))], 100));
        assert_eq!(questions(&mut rib), []);
        rib.adopt(&import(&[("10.2.0.0/16", None, None), ("11.0.0.0/8", Some(16), None)], 100));
        assert_eq!((story(&rib).as_str(), questions(&mut rib)), ("10.2.0.0/16", vec![Family::V4, Family::V6]));
        rib.adopt(&import(&[], 100));
        assert_eq!((story(&rib).as_str(), questions(&mut rib)), ("", vec![]));
    }

    #[test]
    fn better_paths_are_greater() {
        let rib = rib(import(&[], 0));
        let merit = |attributes: &Attributes| rib.path(Family::V4, attributes).expect("a path").0.merit;
        let usual = attributes(&[64512, 65000], [10, 90, 0, 1]);
        assert_eq!(
            merit(&usual),
            merit(&attributes(&[64514, 65001], [10, 90, 0, 2])),
            "whose path it is does not matter"
        );
        for (name, better, worse) in [
            ("a shorter path", attributes(&[64512], [10, 90, 0, 1]), usual.clone()),
            ("a better origin", usual.clone(), Attributes { origin: Some(Origin::Incomplete), ..usual.clone() }),
            ("a lower MED", usual.clone(), Attributes { med: Some(1), ..usual.clone() }),
            (
                "a set counts as one",
                Attributes { as_path: Some(AsPath(vec![(SegmentKind::Set, vec![1, 2, 3, 4])])), ..usual.clone() },
                usual.clone(),
            ),
        ] {
            assert!(merit(&better) > merit(&worse), "{name}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_peer_tells_there_are_no_more_routes_than_the_limit(
            updates in prop::collection::vec((prop::collection::vec(any::<(u32, u8)>(), 0..40), prop::collection::vec(any::<(u32, u8)>(), 0..10)), 0..20),
            limit in 0_usize..20,
        ) {
            let mut rib = rib(import(&[("0.0.0.0/0", Some(1), None)], limit));
            let prefixes = |all: &[(u32, u8)]| -> Vec<Prefix> {
                all.iter().map(|(address, length)| Prefix::containing(IpAddr::V4((*address).into()), length % 33).unwrap()).collect()
            };
            for (announced, withdrawn) in updates {
                let (announced, withdrawn) = (prefixes(&announced), prefixes(&withdrawn));
                rib.take(&Update { announced, withdrawn, attributes: attributes(&[64512], [10, 90, 0, 1]), ..Update::default() });
                prop_assert!(rib.routes().len() <= limit);
                prop_assert!(rib.routes().keys().all(|prefix| prefix.length() > 0));
            }
        }
    }
}
