//! What a Service keeps although it would not be given it today.

use std::net::IpAddr;

use super::Ledger;
use super::pick::serves;
use super::shelf::Shelf;
use crate::model::{Family, KeptReason, Note};
use crate::service::request::{Request, Wish};

impl Ledger {
    /// Whether a Service is to have another address in place of this one, where there is one.
    pub(super) fn is_movable(&self, request: &Request, wish: &Wish, address: IpAddr) -> bool {
        if wish.addresses.contains(&address) {
            return false;
        }
        match (self.place(address), &wish.pool) {
            // It asks for another pool than the one that has its address.
            (Some(place), Some(name)) if place != *name => true,
            _ => request.may_move && self.kept_reason(request, address).is_some(),
        }
    }

    /// Why a Service would not be given the address it has.
    pub(super) fn kept_reason(&self, request: &Request, address: IpAddr) -> Option<KeptReason> {
        let wish = request.wish.as_ref().ok()?;
        let Some(pool) = self.place(address) else {
            let gave = |shelf: &&Shelf| shelf.former.iter().any(|block| block.contains(address));
            let gave = self.shelves.iter().find(|(_, shelf)| gave(shelf)).map(|(name, _)| name.clone());
            return Some(gave.map_or(KeptReason::InNoPool, |pool| KeptReason::NoLongerGiven { pool }));
        };
        let says = self.shelves.get(&pool)?.pool.as_ref()?;
        let reserved = says.reservations.get(&address);
        if let Some(service) = reserved.filter(|by| **by != request.key) {
            return Some(KeptReason::ReservedFor { pool, service: service.clone() });
        }
        if let Some(name) = wish.pool.as_ref().filter(|name| **name != pool) {
            return Some(KeptReason::OutsidePool { pool: name.clone() });
        }
        if reserved.is_some() {
            return None;
        }
        if !serves(says, request, &self.namespaces) {
            return Some(KeptReason::NotServed { pool });
        }
        let other = self.reserved_for(request, wish, Family::of(address)).filter(|_| wish.addresses.is_empty())?;
        Some(KeptReason::ReservedOther { other })
    }

    pub(super) fn kept_note(&self, request: &Request, address: IpAddr) -> Option<Note> {
        // What was just given is no one's by now.
        if !self.book.has(&request.key, address) {
            return None;
        }
        self.kept_reason(request, address).map(|why| Note::AddressKept { address, why })
    }
}
