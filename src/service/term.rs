//! Numbers what a leader gives, so that of two who gave one address the later can be told.
//!
//! A write names its term in the annotation [`ALLOCATION`]. A leader that stood still between looking at
//! the clock and sending, and woke up after its successor had given the same address to another
//! Service, wrote a lower term than the successor: whoever sees both knows who has the address by right.

use crate::model::Term;
use crate::model::claim::ALLOCATION;
use crate::model::views::ServiceView;

use super::plan::Action;

/// The terms of one leader, each higher than the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    last: Term,
}

impl Terms {
    /// Those of the leader who holds the Lease for the `lease`-th time, above all that `services` have.
    ///
    /// A Lease that was deleted counts from zero again, and another one (leader migration) counts for
    /// itself; what was given before is still the earlier.
    pub fn new<'a>(lease: u64, services: impl IntoIterator<Item = &'a ServiceView>) -> Self {
        let given = services.into_iter().filter_map(allocation).max();
        let first = Term { lease, number: 0 };
        Self { last: given.map_or(first, |given| given.max(first)) }
    }

    /// The term of an action that gives a Service addresses; none when it has them already.
    pub fn number(&mut self, before: &ServiceView, action: &Action) -> Option<Term> {
        let gives_nothing = action.ingress.is_empty();
        let is_known = allocation(before).is_some();
        let has_all = action.ingress.iter().all(|ip| before.ingress.iter().any(|entry| entry.ip == Some(*ip)));
        if gives_nothing || has_all && is_known {
            return None;
        }
        self.last.number = self.last.number.saturating_add(1);
        Some(self.last)
    }
}

/// When a Service was given its addresses, as its annotation has it.
fn allocation(service: &ServiceView) -> Option<Term> {
    service.annotations.get(ALLOCATION)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::model::views::{Ingress, IpMode};
    use crate::service::cases::service;

    fn with(allocation: Option<&str>, held: &[&str]) -> ServiceView {
        let entry = |text: &&str| Ingress { ip: Some(text.parse().expect("an address")), ip_mode: IpMode::Vip };
        ServiceView {
            annotations: allocation.map(|term| (ALLOCATION.to_owned(), term.to_owned())).into_iter().collect(),
            ingress: held.iter().map(entry).collect(),
            ..service("web")
        }
    }

    fn giving(addresses: &[&str]) -> Action {
        let ingress = addresses.iter().map(|text| text.parse().expect("an address")).collect();
        Action {
            resource_version: "7".to_owned(),
            finalizers: None,
            ingress,
            frees: BTreeSet::new(),
            conditions: None,
            term: None,
            note: None,
        }
    }

    #[test]
    fn what_is_given_is_numbered_and_what_is_held_keeps_its_term() {
        let numbered = |before: &ServiceView, action: &Action| {
            Terms::new(7, []).number(before, action).map(|term| term.to_string())
        };
        let first = Some("7.1".to_owned());
        for (name, allocation, held, given, want) in [
            ("new", None, &[][..], &["10.60.0.1"][..], &first),
            ("of a leader that wrote no terms", None, &["10.60.0.1"], &["10.60.0.1"], &first),
            ("its own again", Some("5.3"), &["10.60.0.1"], &["10.60.0.1"], &None),
            ("a second family", Some("5.3"), &["10.60.0.1"], &["10.60.0.1", "fd60::1"], &first),
            ("one family less", Some("5.3"), &["10.60.0.1", "fd60::1"], &["10.60.0.1"], &None),
            ("another address", Some("5.3"), &["10.60.0.1"], &["10.60.0.2"], &first),
            ("a status that was taken away", Some("5.3"), &[], &["10.60.0.1"], &first),
            ("nothing any more", Some("5.3"), &["10.60.0.1"], &[], &None),
            ("a term that is none", Some("x"), &["10.60.0.1"], &["10.60.0.1"], &first),
        ] {
            assert_eq!(&numbered(&with(allocation, held), &giving(given)), want, "{name}");
        }
    }

    #[test]
    fn every_term_is_above_all_that_were_given_before() {
        let mut given = BTreeMap::new();
        for (name, lease, seen, want) in [
            ("the first leader ever", 0, &[][..], "0.1"),
            ("the next one", 5, &["4.117", "3.9"], "5.1"),
            ("a Lease that counts from zero again", 0, &["4.117", "3.9"], "4.118"),
            ("without a Lease, after a restart", 0, &["0.12"], "0.13"),
            (
                "a hand-written one",
                5,
                &["4.1", "99999999999999999999.1", "18446744073709551615.18446744073709551615"],
                "18446744073709551615.18446744073709551615",
            ),
        ] {
            let services: Vec<_> = seen.iter().map(|term| with(Some(term), &["10.60.0.1"])).collect();
            let first = Terms::new(lease, &services).number(&with(None, &[]), &giving(&["10.60.0.9"]));
            given.insert(name, first.expect("a term").to_string());
            assert_eq!(given[name], want, "{name}");
        }
    }
}
