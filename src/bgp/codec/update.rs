//! UPDATE: reads it whole and judges its faults (RFC 4271 §4.3, RFC 4760, RFC 7606).
//!
//! Outcomes, the most severe wins: *discard* drops one attribute, *treat as withdraw* takes the
//! message's routes away as if it had withdrawn them, *reset* ends the session.

use std::collections::BTreeSet;

use crate::model::{Community, Family, NextHops, Prefix};

use super::attribute::{self, Flaw, Raw, kind};
use super::cursor::Cursor;
use super::notification::{Notification, Reason};
use super::{Context, family_of, nlri};

/// What an UPDATE says once its faults are judged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    /// Prefixes that went, of either family; those of routes treated as withdrawn are among them.
    pub withdrawn: Vec<Prefix>,
    /// Prefixes that came or changed, of either family.
    pub announced: Vec<Prefix>,
    /// The attributes of the announced prefixes.
    pub attributes: Attributes,
    /// The family whose first routes are hereby complete (RFC 4724 §2).
    pub end_of_rib: Option<Family>,
    /// What was wrong and did not end the session.
    pub faults: Vec<Fault>,
}

/// The attributes this speaker reads or writes; the others it only checks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// ORIGIN (RFC 4271 §5.1.1).
    pub origin: Option<Origin>,
    /// AS_PATH (RFC 4271 §5.1.2).
    pub as_path: Option<AsPath>,
    /// NEXT_HOP, and the next hop of MP_REACH_NLRI, by family.
    pub next_hops: NextHops,
    /// MULTI_EXIT_DISC (RFC 4271 §5.1.4).
    pub med: Option<u32>,
    /// LOCAL_PREF (RFC 4271 §5.1.5).
    pub local_pref: Option<u32>,
    /// COMMUNITIES (RFC 1997) and LARGE_COMMUNITY (RFC 8092).
    pub communities: BTreeSet<Community>,
}

/// Where a route is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// 0: the announcing AS itself.
    Igp,
    /// 1: EGP.
    Egp,
    /// 2: some other way.
    Incomplete,
}

/// The ASes a route came through, the nearest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AsPath(pub Vec<(SegmentKind, Vec<u32>)>);

/// What a segment of an AS_PATH is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// 1: an unordered set.
    Set,
    /// 2: a sequence.
    Sequence,
}

/// Something wrong in an UPDATE that did not end the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The attribute's type code; `None` when it is about the message as a whole.
    pub attribute: Option<u8>,
    /// What would have been the NOTIFICATION before RFC 7606.
    pub reason: Reason,
    /// What was done about it.
    pub outcome: Outcome,
}

/// How a fault that does not end the session is answered (RFC 7606 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The attribute was left out.
    Discard,
    /// The message's routes were taken as withdrawn.
    TreatAsWithdraw,
}

impl Update {
    pub(super) fn decode(body: &[u8], context: &Context) -> Result<Self, Notification> {
        let mut cursor = Cursor::new(body);
        // RFC 4271 §6.3: lengths that exceed the message.
        let withdrawn = cursor.block_u16().ok_or(Reason::MalformedAttributeList)?;
        let attributes = cursor.block_u16().ok_or(Reason::MalformedAttributeList)?;
        let announced = nlri::decode(Family::V4, cursor.rest())?;
        let mut walk = Walk::new(context);
        walk.update.withdrawn = nlri::decode(Family::V4, withdrawn)?;
        walk.update.announced = announced;
        walk.has_classic_routes = !walk.update.announced.is_empty();
        walk.attributes(attributes)?;
        if body == [0; 4] {
            walk.update.end_of_rib = Some(Family::V4);
        }
        walk.finish()
    }
}

/// The state of one walk over an UPDATE.
pub(super) struct Walk<'c> {
    pub(super) context: &'c Context,
    pub(super) update: Update,
    seen: [bool; 256],
    has_classic_routes: bool,
    /// The family whose MP_UNREACH_NLRI is there and empty.
    emptied: Option<Family>,
    attribute_count: usize,
}

impl<'c> Walk<'c> {
    fn new(context: &'c Context) -> Self {
        let update = Update::default();
        Self { context, update, seen: [false; 256], has_classic_routes: false, emptied: None, attribute_count: 0 }
    }

    fn fault(&mut self, attribute: Option<u8>, reason: Reason, outcome: Outcome) {
        self.update.faults.push(Fault { attribute, reason, outcome });
    }

    fn attributes(&mut self, block: &[u8]) -> Result<(), Notification> {
        let mut cursor = Cursor::new(block);
        while !cursor.is_empty() {
            let Some(raw) = Raw::read(&mut cursor) else {
                // RFC 7606 §4: the routes are still found, by the total length.
                self.fault(None, Reason::AttributeLength, Outcome::TreatAsWithdraw);
                break;
            };
            self.attribute_count += 1;
            if std::mem::replace(&mut self.seen[usize::from(raw.kind)], true) {
                self.repeated(&raw)?;
                continue;
            }
            match self.attribute(&raw) {
                Ok(()) => {}
                Err(Flaw::Discard(reason)) => self.fault(Some(raw.kind), reason, Outcome::Discard),
                Err(Flaw::Withdraw(reason)) => self.fault(Some(raw.kind), reason, Outcome::TreatAsWithdraw),
                Err(Flaw::Reset(notification)) => return Err(notification),
            }
        }
        Ok(())
    }

    /// RFC 7606 §3(g): of two, the first counts; of MP_REACH_NLRI and MP_UNREACH_NLRI there may not be two.
    fn repeated(&mut self, raw: &Raw<'_>) -> Result<(), Notification> {
        if matches!(raw.kind, kind::MP_REACH | kind::MP_UNREACH) {
            return Err(Reason::MalformedAttributeList.into());
        }
        self.fault(Some(raw.kind), Reason::MalformedAttributeList, Outcome::Discard);
        Ok(())
    }

    fn attribute(&mut self, raw: &Raw<'_>) -> Result<(), Flaw> {
        // Routes first: if the flags are wrong, they are what has to be withdrawn.
        match raw.kind {
            kind::MP_REACH => self.mp_reach(raw)?,
            kind::MP_UNREACH => self.mp_unreach(raw)?,
            _ => {}
        }
        attribute::check(raw, self.context)?;
        let into = &mut self.update.attributes;
        match raw.kind {
            kind::ORIGIN => into.origin = Some(attribute::origin(raw.value)?),
            kind::AS_PATH => into.as_path = Some(attribute::as_path(raw.value, self.context.four_octet_as)?),
            kind::NEXT_HOP => into.next_hops.v4 = Some(attribute::next_hop(raw.value)?),
            kind::MED => into.med = Some(attribute::number(raw.value)?),
            kind::LOCAL_PREF => into.local_pref = Some(attribute::number(raw.value)?),
            kind::COMMUNITIES => into.communities.extend(attribute::communities(raw.value)),
            kind::LARGE_COMMUNITIES => into.communities.extend(attribute::large_communities(raw.value)),
            _ => {}
        }
        Ok(())
    }

    /// RFC 4760 §3. Faults here hide where routes are, so they end the session (RFC 7606 §5.3, §7.11).
    fn mp_reach(&mut self, raw: &Raw<'_>) -> Result<(), Flaw> {
        let malformed = || Flaw::Reset(Notification::new(Reason::OptionalAttribute, raw.whole));
        let mut cursor = Cursor::new(raw.value);
        let (afi, safi) = cursor.u16().zip(cursor.u8()).ok_or_else(malformed)?;
        let next_hop = cursor.block_u8().ok_or_else(malformed)?;
        let _reserved = cursor.u8().ok_or_else(malformed)?;
        let Some(family) = self.negotiated(afi, safi) else { return Ok(()) };
        match (family, next_hop) {
            (Family::V4, &[a, b, c, d]) => self.update.attributes.next_hops.v4 = Some([a, b, c, d].into()),
            (Family::V6, _) if matches!(next_hop.len(), 16 | 32) => {
                // A link-local address may follow the global one (RFC 2545 §3).
                let global = next_hop.first_chunk::<16>().copied().ok_or_else(malformed)?;
                self.update.attributes.next_hops.v6 = Some(global.into());
            }
            _ => return Err(malformed()),
        }
        self.update.announced.extend(nlri::decode(family, cursor.rest())?);
        Ok(())
    }

    /// RFC 4760 §4.
    fn mp_unreach(&mut self, raw: &Raw<'_>) -> Result<(), Flaw> {
        let malformed = || Flaw::Reset(Notification::new(Reason::OptionalAttribute, raw.whole));
        let mut cursor = Cursor::new(raw.value);
        let (afi, safi) = cursor.u16().zip(cursor.u8()).ok_or_else(malformed)?;
        let Some(family) = self.negotiated(afi, safi) else { return Ok(()) };
        let prefixes = nlri::decode(family, cursor.rest())?;
        self.emptied = prefixes.is_empty().then_some(family);
        self.update.withdrawn.extend(prefixes);
        Ok(())
    }

    fn negotiated(&self, afi: u16, safi: u8) -> Option<Family> {
        family_of(afi, safi).filter(|family| self.context.families.contains(*family))
    }

    fn finish(mut self) -> Result<Update, Notification> {
        let has_reach = self.has_classic_routes || self.seen[usize::from(kind::MP_REACH)];
        if !self.update.announced.is_empty() {
            self.require_mandatory();
        }
        let worst = self.update.faults.iter().find(|fault| fault.outcome == Outcome::TreatAsWithdraw).copied();
        let mut update = self.update;
        match worst {
            // RFC 7606 §5.2: which routes were meant is not known.
            Some(fault) if !has_reach => return Err(fault.reason.into()),
            Some(_) => update.withdrawn.append(&mut update.announced),
            None => {}
        }
        if let (Some(family), 1, true) = (self.emptied, self.attribute_count, update.withdrawn.is_empty()) {
            update.end_of_rib = Some(family);
        }
        if !self.context.families.v4 {
            // Nobody agreed to IPv4 routes: they were only read to find errors.
            let is_wanted = |prefix: &Prefix| prefix.family() != Family::V4;
            update.announced.retain(is_wanted);
            update.withdrawn.retain(is_wanted);
        }
        Ok(update)
    }

    /// RFC 7606 §3(d).
    fn require_mandatory(&mut self) {
        let local_pref = (self.context.peering == super::Peering::Internal).then_some(kind::LOCAL_PREF);
        let next_hop = self.has_classic_routes.then_some(kind::NEXT_HOP);
        for required in [Some(kind::ORIGIN), Some(kind::AS_PATH), next_hop, local_pref].into_iter().flatten() {
            if !self.seen[usize::from(required)] {
                self.fault(Some(required), Reason::MissingWellKnownAttribute, Outcome::TreatAsWithdraw);
            }
        }
    }
}
