//! A map of a few entries: sorted, and in one piece of memory.
//!
//! A `BTreeMap` takes room for eleven entries as soon as it has one. Where there is a map for each of thousands of
//! objects, and nearly all of them have one entry or two, that is most of the memory.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Entries by key, in order. Looking one up costs what it does in a `BTreeMap`; adding one moves those behind it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Few<K, V> {
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    /// What there is of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().map(|place| &self.0[place].1)
    }

    /// What there is of a key, to be changed.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().map(|place| &mut self.0[place].1)
    }

    /// Whether there is anything of a key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).is_ok()
    }

    /// Puts a value in place of what there is of a key, which is returned.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                if self.0.is_empty() {
                    // Most stay alone.
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (key, value));
                None
            }
        }
    }

    /// Takes out what there is of a key.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().map(|place| self.0.remove(place).1)
    }
}

impl<K, V> Few<K, V> {
    /// All of it, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Few<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        // As many as there are, and no room for more.
        Self(BTreeMap::from_iter(entries).into_iter().collect())
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for Few<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Serialize, V: Serialize> Serialize for Few<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Few<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from_iter)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn it_is_a_map() {
        let (mut rng, mut few, mut map) = (Rng::with_seed(3), Few::default(), BTreeMap::new());
        for step in 0..5000 {
            let key = rng.u8(0..12);
            match rng.u8(0..3) {
                0 => assert_eq!(few.remove(&key), map.remove(&key)),
                1 => assert_eq!(few.insert(key, step), map.insert(key, step)),
                _ => {
                    few.get_mut(&key).into_iter().for_each(|value| *value += 1);
                    map.get_mut(&key).into_iter().for_each(|value| *value += 1);
                }
            }
            assert_eq!((few.get(&key), few.contains_key(&key)), (map.get(&key), map.contains_key(&key)));
            assert!(few.iter().eq(&map) && few.keys().eq(map.keys()) && few.is_empty() == map.is_empty());
        }
        assert_eq!(map.into_iter().rev().collect::<Few<_, _>>(), few, "in any order");
    }

    #[test]
    fn it_is_written_as_a_map() {
        let few = Few::from([("b".to_owned(), 2), ("a".to_owned(), 1)]);
        let text = serde_json::to_string(&few).expect("JSON");
        assert_eq!(text, r#"{"a":1,"b":2}"#);
        assert_eq!(serde_json::from_str::<Few<String, i32>>(&text).expect("a map"), few);
    }
}
