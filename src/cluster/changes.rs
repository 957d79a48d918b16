//! What changed in a store since someone last looked: names, not objects.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// More names than this are not kept apart: whoever is that far behind looks at everything.
const MOST: usize = 10_000;

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Changes {
    /// Everything may have.
    All,
    /// The objects of these names came, changed or went.
    Keys(BTreeSet<String>),
}

impl Default for Changes {
    fn default() -> Self {
        Self::Keys(BTreeSet::new())
    }
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Keys(keys) if keys.is_empty())
    }

    /// Adds a name.
    pub fn add(&mut self, key: &str) {
        if let Self::Keys(keys) = self {
            if !keys.contains(key) {
                keys.insert(key.to_owned());
            }
            if keys.len() > MOST {
                *self = Self::All;
            }
        }
    }

    /// Adds what else changed.
    pub fn extend(&mut self, more: Self) {
        match more {
            Self::All => *self = Self::All,
            Self::Keys(keys) if self.is_empty() => *self = Self::Keys(keys),
            Self::Keys(keys) => keys.iter().for_each(|key| self.add(key)),
        }
    }
}

/// Where one reader of a store finds what changed. A new one has everything to look at.
#[derive(Debug)]
pub(super) struct Mailbox(Mutex<Changes>);

impl Mailbox {
    /// What is in it; it is empty afterwards.
    pub(super) fn take(&self) -> Changes {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The mailboxes of all readers of one store.
#[derive(Debug, Default)]
pub(super) struct Mailboxes(Mutex<Vec<Weak<Mailbox>>>);

impl Mailboxes {
    /// One more, until it is dropped.
    pub(super) fn open(&self) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox(Mutex::new(Changes::All)));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|mailbox| mailbox.strong_count() > 0);
        all.push(Arc::downgrade(&mailbox));
        mailbox
    }

    /// Puts these names into each.
    pub(super) fn post<'a>(&self, keys: impl Iterator<Item = &'a str> + Clone) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for mailbox in all.iter().filter_map(Weak::upgrade) {
            let mut changes = mailbox.0.lock().unwrap_or_else(PoisonError::into_inner);
            keys.clone().for_each(|key| changes.add(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Changes {
        Changes::Keys(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn what_was_not_taken_is_there_with_what_comes_after() {
        let mailboxes = Mailboxes::default();
        let (one, other) = (mailboxes.open(), mailboxes.open());
        assert_eq!((one.take(), one.take()), (Changes::All, keys(&[])), "a new reader looks at everything, once");
        mailboxes.post(["a", "b"].into_iter());
        mailboxes.post(["a", "c"].into_iter());
        assert_eq!((one.take(), one.take()), (keys(&["a", "b", "c"]), keys(&[])));
        assert_eq!(other.take(), Changes::All, "names say nothing to whoever looks at everything");
    }

    #[test]
    fn a_reader_that_is_far_behind_looks_at_everything() {
        let mailboxes = Mailboxes::default();
        let reader = mailboxes.open();
        let _ = reader.take();
        let names: Vec<_> = (0..=MOST).map(|number| number.to_string()).collect();
        mailboxes.post(names[1..].iter().map(String::as_str));
        assert!(matches!(&*reader.0.lock().expect("not poisoned"), Changes::Keys(keys) if keys.len() == MOST));
        mailboxes.post(names[..1].iter().map(String::as_str));
        assert_eq!(reader.take(), Changes::All);
    }

    #[test]
    fn changes_add_up() {
        for (name, one, more, want) in [
            ("nothing", keys(&[]), keys(&[]), keys(&[])),
            ("names", keys(&["a"]), keys(&["a", "b"]), keys(&["a", "b"])),
            ("everything and names", Changes::All, keys(&["a"]), Changes::All),
            ("names and everything", keys(&["a"]), Changes::All, Changes::All),
        ] {
            let mut changes = one;
            changes.extend(more);
            assert_eq!(changes, want, "{name}");
        }
    }

    #[test]
    fn a_reader_that_is_gone_costs_nothing() {
        let mailboxes = Mailboxes::default();
        drop(mailboxes.open());
        let _reader = mailboxes.open();
        assert_eq!(mailboxes.0.lock().expect("not poisoned").len(), 1);
    }
}
