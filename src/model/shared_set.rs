//! A set in order whose copies share what they have in common: a [`SharedMap`] of keys alone.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::shared_map::SharedMap;

/// Values in order, each once. See the module.
pub struct SharedSet<T>(SharedMap<T, ()>);

impl<T> SharedSet<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.0.keys()
    }

    /// Whether the two are one and the same; two that are equal need not be.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }
}

impl<T: Ord> SharedSet<T> {
    /// Whether this is in it.
    pub fn contains<Q: Ord + ?Sized>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.contains_key(value)
    }

    /// Those from a value on, in order.
    pub fn onwards<'a, Q: Ord + ?Sized>(&'a self, value: &Q) -> impl Iterator<Item = &'a T> + use<'a, T, Q>
    where
        T: Borrow<Q>,
    {
        self.0.from(value).map(|(value, ())| value)
    }

    /// What is in this one and not in the other, in order. What both share is not looked at.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> {
        self.0.differences(&other.0).filter(|(_, other, own)| other.is_none() && own.is_some()).map(|(value, ..)| value)
    }
}

impl<T: Ord + Clone> SharedSet<T> {
    /// Puts a value in; whether it was not there.
    pub fn insert(&mut self, value: T) -> bool {
        // What is there already is not copied.
        !self.contains(&value) && self.0.insert(value, ()).is_none()
    }

    /// Takes a value out; whether it was there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.remove(value).is_some()
    }

    /// Takes the first one out.
    pub fn pop_first(&mut self) -> Option<T> {
        let first = self.iter().next()?.clone();
        self.remove(&first);
        Some(first)
    }
}

impl<T> Clone for SharedSet<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for SharedSet<T> {
    fn default() -> Self {
        Self(SharedMap::default())
    }
}

impl<T: Ord> PartialEq for SharedSet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Ord> Eq for SharedSet<T> {}

impl<T: fmt::Debug> fmt::Debug for SharedSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<T: Ord + Clone> FromIterator<T> for SharedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().map(|value| (value, ())).collect())
    }
}

impl<T: Ord + Clone, const N: usize> From<[T; N]> for SharedSet<T> {
    fn from(values: [T; N]) -> Self {
        values.into_iter().collect()
    }
}

impl<T: Ord + Clone> Extend<T> for SharedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|value| _ = self.insert(value));
    }
}

impl<'a, T: Ord + Copy> Extend<&'a T> for SharedSet<T> {
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

impl<T: Serialize> Serialize for SharedSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, T: Deserialize<'de> + Ord + Clone> Deserialize<'de> for SharedSet<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(BTreeSet::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_set_and_tells_what_another_lacks() {
        let old: SharedSet<u16> = (0..1_000).collect();
        let mut new = old.clone();
        assert_eq!((new.insert(7), new.insert(1_000), new.remove(&3), new.remove(&3)), (false, true, true, false));
        assert_eq!(new.difference(&old).copied().collect::<Vec<_>>(), [1_000]);
        assert_eq!(old.difference(&new).copied().collect::<Vec<_>>(), [3]);
        assert_eq!((new.len(), new.pop_first(), new.contains(&0)), (1_000, Some(0), false));
        assert!(new.onwards(&998).copied().eq([998, 999, 1_000]));
        assert!(old.iter().copied().eq(0..1_000));
        let text = serde_json::to_string(&SharedSet::from([2, 1])).expect("JSON");
        assert_eq!(text, "[1,2]");
        assert_eq!(serde_json::from_str::<SharedSet<u16>>(&text).expect("a set"), SharedSet::from([1, 2]));
    }
}
