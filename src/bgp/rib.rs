//! Adj-RIB-Out: what one peer has heard from us and what it should hear (RFC 4271 §3.2). Pure.
//!
//! It keeps no queue, only the difference of two sets, so the newest wish wins and a slow peer
//! costs no more memory than a fast one. Withdrawals go before announcements, and a family's
//! End-of-RIB after its last one, once the wish is complete. While it is not, nothing is withdrawn.
//! A wish that differs from the last one in a few prefixes costs these.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::model::{Adverts, Asn, Family, NextHops, PathAttributes, Prefix};

use super::codec::{AsPath, Attributes, Context, Families, Origin, SegmentKind, pack};
use super::desired::Peering;
use super::status::Withheld;

/// The most prefixes looked at for one message; a message of 4096 octets holds fewer.
const BATCH: usize = 4096;
/// What RFC 4271 §9.1.1 leaves open and every router takes for its default.
const LOCAL_PREF: u32 = 100;

/// The routes of one session, from its Established on.
#[derive(Debug)]
pub(super) struct AdjRibOut {
    context: Context,
    local_asn: Asn,
    /// What it should hear: with which next hops, and whether that is all.
    wish: Adverts,
    next_hops: NextHops,
    is_complete: bool,
    /// What the peer has.
    sent: BTreeMap<Prefix, Route>,
    to_withdraw: BTreeSet<Prefix>,
    to_announce: Groups,
    /// The families of which the peer asked to hear everything again.
    asked_again: Families,
    /// The families whose End-of-RIB the peer has.
    ended: Families,
    withheld: BTreeMap<Withheld, usize>,
}

/// What a peer was told of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Route {
    next_hop: IpAddr,
    path: Arc<PathAttributes>,
}

/// Prefixes that one message may hold: of one family, and with the same said of them.
type Groups = BTreeMap<(Family, Arc<PathAttributes>), BTreeSet<Prefix>>;

/// A prefix that was still to be told, be it once more as the peer has it: that stays so if it is still wished.
struct Again;

/// The next hops of a session: its own address for its family, this node's for the other one.
pub(super) fn session_next_hops(local_address: IpAddr, node: NextHops) -> NextHops {
    match local_address {
        IpAddr::V4(address) => NextHops { v4: Some(address), ..node },
        // A link-local address means nothing to who hears the route from the peer.
        IpAddr::V6(address) if address.is_unicast_link_local() => node,
        IpAddr::V6(address) => NextHops { v6: Some(address), ..node },
    }
}

impl AdjRibOut {
    /// The peer has heard nothing yet.
    pub(super) fn new(context: Context, local_asn: Asn) -> Self {
        Self {
            context,
            local_asn,
            wish: Adverts::default(),
            next_hops: NextHops::default(),
            is_complete: false,
            sent: BTreeMap::new(),
            to_withdraw: BTreeSet::new(),
            to_announce: Groups::new(),
            asked_again: Families::default(),
            ended: Families::default(),
            withheld: BTreeMap::new(),
        }
    }

    /// Takes the whole wish: what is announced with which next hops, and whether that is all.
    ///
    /// What was announced and is now announced otherwise is told anew, without a withdrawal between.
    pub(super) fn want(&mut self, adverts: &Adverts, next_hops: NextHops, is_complete: bool) {
        let before = std::mem::replace(&mut self.wish, adverts.clone());
        if (self.next_hops, self.is_complete) != (next_hops, is_complete) {
            (self.next_hops, self.is_complete) = (next_hops, is_complete);
            return self.decide_all();
        }
        for (prefix, old, new) in adverts.differences(&before) {
            match (old, new) {
                (None, Some(_)) => self.withhold(prefix.family()),
                (Some(_), None) => self.withhold_no_more(prefix.family()),
                _ => {}
            }
            let again = self.take_pending(*prefix, old);
            self.decide(*prefix, new, again);
        }
    }

    fn decide_all(&mut self) {
        let pending: BTreeSet<Prefix> = std::mem::take(&mut self.to_announce).into_values().flatten().collect();
        self.to_withdraw.clear();
        self.withheld.clear();
        let wish = self.wish.clone();
        for prefix in wish.keys() {
            self.withhold(prefix.family());
        }
        let all: BTreeSet<Prefix> = wish.keys().chain(self.sent.keys()).copied().collect();
        for prefix in all {
            let again = pending.contains(&prefix).then_some(Again);
            self.decide(prefix, wish.get(&prefix), again);
        }
    }

    /// One prefix: whether it is told, withdrawn, or left as the peer has it. It is not pending.
    fn decide(&mut self, prefix: Prefix, wished: Option<&Arc<PathAttributes>>, again: Option<Again>) {
        let family = prefix.family();
        self.to_withdraw.remove(&prefix);
        let wished = wished.filter(|_| self.obstacle(family).is_none()).map(|path| self.told(path));
        let sent = self.sent.get(&prefix);
        let path = match (wished, sent) {
            (Some(path), Some(sent)) => {
                let is_known = sent.path == path && Some(sent.next_hop) == self.next_hop_of(family);
                (!is_known || again.is_some()).then_some(path)
            }
            (Some(path), None) => Some(path),
            (None, Some(_)) if self.is_complete => {
                self.to_withdraw.insert(prefix);
                None
            }
            // Without its next hop it cannot be said again.
            (None, Some(sent)) => {
                (again.is_some() && self.next_hop_of(family).is_some()).then(|| Arc::clone(&sent.path))
            }
            (None, None) => None,
        };
        if let Some(path) = path {
            self.to_announce.entry((family, path)).or_default().insert(prefix);
        }
    }

    /// Takes a prefix out of what is still to be told, which says of it as the wish did, or as the peer has it.
    fn take_pending(&mut self, prefix: Prefix, wished: Option<&Arc<PathAttributes>>) -> Option<Again> {
        let wished = wished.map(|path| self.told(path));
        let sent = self.sent.get(&prefix).map(|route| Arc::clone(&route.path));
        let mut paths = wished.into_iter().chain(sent);
        paths.find_map(|path| {
            let Entry::Occupied(mut group) = self.to_announce.entry((prefix.family(), path)) else { return None };
            let is_pending = group.get_mut().remove(&prefix);
            if group.get().is_empty() {
                group.remove();
            }
            is_pending.then_some(Again)
        })
    }

    /// Counts a wished prefix of a family that cannot be announced, if that is so.
    fn withhold(&mut self, family: Family) {
        if let Some(why) = self.obstacle(family) {
            *self.withheld.entry(why).or_default() += 1;
        }
    }

    /// Counts one less: it is not wished any more.
    fn withhold_no_more(&mut self, family: Family) {
        let Some(why) = self.obstacle(family) else { return };
        if let Entry::Occupied(mut count) = self.withheld.entry(why) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// What this peer is told of a path: LOCAL_PREF is for the own AS only (RFC 4271 §5.1.5), and in
    /// the own AS a path with its number in it is a loop (§9.1.2).
    fn told(&self, path: &Arc<PathAttributes>) -> Arc<PathAttributes> {
        match self.context.peering {
            Peering::External if path.local_preference.is_some() => {
                Arc::new(PathAttributes { local_preference: None, ..PathAttributes::clone(path) })
            }
            Peering::Internal if path.prepend > 0 => {
                Arc::new(PathAttributes { prepend: 0, ..PathAttributes::clone(path) })
            }
            _ => Arc::clone(path),
        }
    }

    /// Sends all routes of a family again (RFC 2918 §4), from the next message on: who asks a
    /// thousand times before it reads an answer costs one look at the routes.
    pub(super) fn resend(&mut self, family: Family) {
        *self.asked_again.of_mut(family) = true;
    }

    fn take_requests(&mut self) {
        let asked = std::mem::take(&mut self.asked_again);
        for family in [Family::V4, Family::V6].into_iter().filter(|family| asked.contains(*family)) {
            // Routes that outlived their next hop, in an incomplete wish, cannot be said again.
            if self.next_hop_of(family).is_none() {
                continue;
            }
            // What is told anew anyway is told as it shall be.
            let pending: BTreeSet<Prefix> = self.to_announce.values().flatten().copied().collect();
            let is_same = |prefix: &Prefix| {
                prefix.family() == family && !self.to_withdraw.contains(prefix) && !pending.contains(prefix)
            };
            for (prefix, route) in self.sent.iter().filter(|(prefix, _)| is_same(prefix)) {
                self.to_announce.entry((family, Arc::clone(&route.path))).or_default().insert(*prefix);
            }
        }
    }

    /// Appends the next message there is to send; `false` when there is none.
    pub(super) fn next_message(&mut self, out: &mut Vec<u8>) -> bool {
        self.take_requests();
        if let Some((family, batch)) = front(&self.to_withdraw) {
            let count = pack::withdraw(family, &batch, out);
            for prefix in &batch[..count] {
                self.to_withdraw.remove(prefix);
                self.sent.remove(prefix);
            }
            return true;
        }
        if let Some(((family, path), mut prefixes)) = self.to_announce.pop_first() {
            let next_hop = self.next_hop_of(family).expect("nothing is announced without a next hop");
            let batch: Vec<_> = prefixes.iter().take(BATCH).copied().collect();
            let count = pack::announce(&self.attributes(&path), &self.context, family, &batch, out);
            for prefix in &batch[..count] {
                prefixes.remove(prefix);
                self.sent.insert(*prefix, Route { next_hop, path: Arc::clone(&path) });
            }
            if !prefixes.is_empty() {
                self.to_announce.insert((family, path), prefixes);
            }
            return count > 0;
        }
        self.end_of_rib(out)
    }

    /// How many prefixes the peer has.
    pub(super) fn advertised(&self) -> usize {
        self.sent.len()
    }

    /// What is wished and cannot be announced, counted by reason.
    pub(super) fn withheld(&self) -> &BTreeMap<Withheld, usize> {
        &self.withheld
    }

    fn next_hop_of(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.next_hops.v4.map(IpAddr::V4),
            Family::V6 => self.next_hops.v6.map(IpAddr::V6),
        }
    }

    fn obstacle(&self, family: Family) -> Option<Withheld> {
        if !self.context.families.contains(family) {
            Some(Withheld::FamilyNotNegotiated(family))
        } else if self.next_hop_of(family).is_none() {
            Some(Withheld::NoNextHop(family))
        } else {
            None
        }
    }

    fn end_of_rib(&mut self, out: &mut Vec<u8>) -> bool {
        let is_due =
            |family| self.is_complete && self.context.families.contains(family) && !self.ended.contains(family);
        let Some(family) = [Family::V4, Family::V6].into_iter().find(|family| is_due(*family)) else {
            return false;
        };
        *self.ended.of_mut(family) = true;
        pack::end_of_rib(family, out);
        true
    }

    /// Equal on every node but for the next hop and the AS number (RFC 4271 §5.1), or routers
    /// would not spread packets over the nodes.
    fn attributes(&self, path: &PathAttributes) -> Attributes {
        let PathAttributes { communities, local_preference, med, prepend } = path;
        let (as_path, local_pref) = match self.context.peering {
            Peering::Internal => (Vec::new(), Some(local_preference.unwrap_or(LOCAL_PREF))),
            Peering::External => {
                let asns = vec![self.local_asn.get(); 1 + usize::from(*prepend)];
                (vec![(SegmentKind::Sequence, asns)], None)
            }
        };
        Attributes {
            origin: Some(Origin::Igp),
            as_path: Some(AsPath(as_path)),
            next_hops: self.next_hops,
            med: *med,
            local_pref,
            communities: communities.clone(),
        }
    }
}

/// The family of the first prefix and the prefixes of that family at the front, a message's worth.
fn front(prefixes: &BTreeSet<Prefix>) -> Option<(Family, Vec<Prefix>)> {
    let family = prefixes.first()?.family();
    let batch = prefixes.iter().take_while(|prefix| prefix.family() == family).take(BATCH);
    Some((family, batch.copied().collect()))
}

#[cfg(test)]
mod tests;
