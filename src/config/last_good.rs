//! Objects that people write: one that was changed for the worse stays as it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Resource;

use super::Faults;

/// An object as it was checked.
#[derive(Debug, Clone, PartialEq)]
pub enum Checked<T> {
    /// It has no fault.
    Right {
        /// As it was checked.
        value: Arc<T>,
        /// `metadata.creationTimestamp` in seconds since 1970.
        created_seconds: i64,
    },
    /// Every fault, one sentence each.
    Wrong(String),
}

impl<T> Checked<T> {
    /// What the check of an object of this age came to.
    pub fn new(check: Result<T, Faults>, created_seconds: i64) -> Self {
        match check {
            Ok(value) => Self::Right { value: Arc::new(value), created_seconds },
            Err(faults) => Self::Wrong(faults.to_string()),
        }
    }
}

/// `metadata.creationTimestamp` in seconds since 1970.
pub fn created_seconds(object: &impl Resource) -> i64 {
    object.meta().creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

/// The last right state of each object that still exists.
#[derive(Debug, Clone)]
pub struct LastGood<T>(BTreeMap<String, (i64, Arc<T>)>);

impl<T> Default for LastGood<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> LastGood<T> {
    /// Takes over what the cluster says now, and gives the faults of each object that has some.
    pub fn take(&mut self, views: &BTreeMap<String, Arc<Checked<T>>>) -> Vec<(String, String)> {
        self.0.retain(|name, _| views.contains_key(name));
        let mut wrong = Vec::new();
        for (name, view) in views {
            match &**view {
                Checked::Right { value, created_seconds } => {
                    self.0.insert(name.clone(), (*created_seconds, Arc::clone(value)));
                }
                Checked::Wrong(message) => wrong.push((name.clone(), message.clone())),
            }
        }
        wrong
    }

    /// The objects in force, the oldest first, then by name.
    pub fn in_force(&self) -> Vec<Arc<T>> {
        let mut by_age: Vec<_> = self.0.iter().collect();
        by_age.sort_by_key(|(name, (created_seconds, _))| (*created_seconds, *name));
        by_age.into_iter().map(|(_, (_, value))| Arc::clone(value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Fault, FieldPath};

    fn right(value: u8, created_seconds: i64) -> Arc<Checked<u8>> {
        Arc::new(Checked::new(Ok(value), created_seconds))
    }

    #[test]
    fn an_object_changed_for_the_worse_stays_as_it_was() {
        let mut objects = LastGood::default();
        let wrong = Arc::new(Checked::new(Err(Fault::new(FieldPath::of("spec"), "is wrong").into()), 10));
        let of = |view: &Arc<Checked<u8>>| BTreeMap::from([("a".to_owned(), Arc::clone(view))]);
        assert_eq!(objects.take(&of(&wrong)), [("a".to_owned(), "spec: is wrong".to_owned())]);
        assert!(objects.in_force().is_empty(), "nothing good is known of it");
        assert!(objects.take(&of(&right(1, 10))).is_empty());
        assert_eq!(objects.take(&of(&wrong)).len(), 1);
        assert_eq!(objects.in_force(), [Arc::new(1)]);
        assert!(objects.take(&BTreeMap::new()).is_empty());
        assert!(objects.in_force().is_empty());
    }

    #[test]
    fn the_oldest_is_first() {
        let mut objects = LastGood::default();
        let views = [("a", right(1, 20)), ("b", right(2, 10)), ("c", right(3, 20))];
        objects.take(&views.map(|(name, view)| (name.to_owned(), view)).into());
        assert_eq!(objects.in_force(), [2, 1, 3].map(Arc::new));
    }
}
