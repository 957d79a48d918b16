//! What a router told that restarts: it goes on forwarding meanwhile, so its routes stay for a while
//! (the Receiving Speaker of RFC 4724 §4.2). Pure.
//!
//! Only a router that has said so, for the families that it named, and only when its connection just ended: one that
//! says goodbye, or falls silent, is not restarting (§4, RFC 8538 §4 would need both sides to agree otherwise).

use std::collections::BTreeMap;

use crate::config::peer::Import;
use crate::model::learned::{LearnedPath, LearnedRoutes, Merit};
use crate::model::{Moment, Prefix};

/// The routes of the session that ended, until the next one is Established.
#[derive(Debug)]
pub(super) struct Retained {
    routes: LearnedRoutes,
    /// Those of them that have been in the own AS, and how often.
    through_own: BTreeMap<Prefix, usize>,
    until: Moment,
}

impl Retained {
    /// These routes, until then, and behind equally good ones of other routers; `None` without any, or for no time.
    pub(super) fn new(
        routes: LearnedRoutes,
        through_own: BTreeMap<Prefix, usize>,
        now: Moment,
        until: Moment,
    ) -> Option<Self> {
        let outdated = |path: &LearnedPath| LearnedPath { merit: Merit { is_current: false, ..path.merit }, ..*path };
        let routes: LearnedRoutes = routes.iter().map(|(prefix, path)| (*prefix, outdated(path))).collect();
        (!routes.is_empty() && now < until).then_some(Self { routes, through_own, until })
    }

    /// They.
    pub(super) fn routes(&self) -> &LearnedRoutes {
        &self.routes
    }

    /// How long they stay without a session.
    pub(super) fn until(&self) -> Moment {
        self.until
    }

    /// Another policy holds at once.
    pub(super) fn adopt(&mut self, import: &Import) {
        let own = &self.through_own;
        let is_loop = |prefix: &Prefix| own.get(prefix).is_some_and(|own| *own > usize::from(import.allow_own_as));
        let mut room = import.max_prefixes;
        self.routes.retain(|prefix| {
            let stays = import.takes(prefix) && !is_loop(prefix) && room > 0;
            room -= usize::from(stays);
            stays
        });
        self.through_own.retain(|prefix, _| self.routes.contains_key(prefix));
    }

    /// The routes, and those that have been in the own AS.
    pub(super) fn into_parts(self) -> (LearnedRoutes, BTreeMap<Prefix, usize>) {
        (self.routes, self.through_own)
    }
}
