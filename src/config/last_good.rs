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
    /// It has some.
    Wrong {
        /// Every fault, one sentence each.
        message: String,
        /// `metadata.creationTimestamp` in seconds since 1970.
        created_seconds: i64,
    },
}

impl<T> Checked<T> {
    /// What the check of an object of this age came to.
    pub fn new(check: Result<T, Faults>, created_seconds: i64) -> Self {
        match check {
            Ok(value) => Self::Right { value: Arc::new(value), created_seconds },
            Err(faults) => Self::Wrong { message: faults.to_string(), created_seconds },
        }
    }
}

/// `metadata.creationTimestamp` in seconds since 1970.
pub fn created_seconds(object: &impl Resource) -> i64 {
    object.meta().creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

/// The last right state of each object that still exists.
#[derive(Debug, Clone)]
pub struct LastGood<T> {
    in_force: BTreeMap<String, (i64, Arc<T>)>,
    /// What an earlier run had in force, until it is known which objects there are.
    earlier: BTreeMap<String, Arc<T>>,
}

impl<T> Default for LastGood<T> {
    fn default() -> Self {
        Self::after([])
    }
}

impl<T> LastGood<T> {
    /// Goes on after a run that had these in force, by name: whichever of them is wrong now stays as it was.
    pub fn after(earlier: impl IntoIterator<Item = (String, Arc<T>)>) -> Self {
        Self { in_force: BTreeMap::new(), earlier: earlier.into_iter().collect() }
    }

    /// Takes over what the cluster says now, which is all there is, and gives the faults of each object that has some.
    pub fn take(&mut self, views: &BTreeMap<String, Arc<Checked<T>>>) -> Vec<(String, String)> {
        self.in_force.retain(|name, _| views.contains_key(name));
        let mut earlier = std::mem::take(&mut self.earlier);
        let mut wrong = Vec::new();
        for (name, view) in views {
            match &**view {
                Checked::Right { value, created_seconds } => {
                    self.in_force.insert(name.clone(), (*created_seconds, Arc::clone(value)));
                }
                Checked::Wrong { message, created_seconds } => {
                    if let Some(value) = earlier.remove(name) {
                        self.in_force.insert(name.clone(), (*created_seconds, value));
                    }
                    wrong.push((name.clone(), message.clone()));
                }
            }
        }
        wrong
    }

    /// The objects in force, the oldest first, then by name.
    pub fn in_force(&self) -> Vec<Arc<T>> {
        let mut by_age: Vec<_> = self.in_force.iter().collect();
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

    fn wrong(created_seconds: i64) -> Arc<Checked<u8>> {
        Arc::new(Checked::new(Err(Fault::new(FieldPath::of("spec"), "is wrong").into()), created_seconds))
    }

    #[test]
    fn an_object_changed_for_the_worse_while_nobody_looked_stays_as_it_was() {
        let earlier = [("a", 1), ("b", 2), ("gone", 3)].map(|(name, value)| (name.to_owned(), Arc::new(value)));
        let mut objects = LastGood::after(earlier);
        assert!(objects.in_force().is_empty(), "they may be gone");
        let views = [("a", wrong(20)), ("b", right(7, 10)), ("new", wrong(5))];
        let told = objects.take(&views.map(|(name, view)| (name.to_owned(), view)).into());
        assert_eq!(told.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "new"]);
        assert_eq!(objects.in_force(), [7, 1].map(Arc::new), "the oldest first");
        let made_again = BTreeMap::from([("gone".to_owned(), wrong(30))]);
        assert_eq!(objects.take(&made_again).len(), 1);
        assert!(objects.in_force().is_empty(), "it is another object of that name");
    }

    #[test]
    fn an_object_changed_for_the_worse_stays_as_it_was() {
        let mut objects = LastGood::default();
        let wrong = wrong(10);
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
