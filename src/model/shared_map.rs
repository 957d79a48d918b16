//! A map in order whose copies share what they have in common.
//!
//! A copy costs a count, a change copies a leaf of at most [`LEAF`] entries and the list of leaves, and what
//! differs between two of one origin is found without looking at the leaves that both have. So each step of a
//! chain may keep the whole of what it saw last, and work through what is new alone.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most entries of a leaf.
const LEAF: usize = 64;

/// A leaf with fewer entries becomes one with the leaf behind it, where there is room.
const THIN: usize = LEAF / 4;

/// Entries in the order of their keys. See the module.
pub struct SharedMap<K, V> {
    /// None is empty; the keys of each are before those of the next.
    leaves: Arc<Vec<Leaf<K, V>>>,
    len: usize,
}

type Leaf<K, V> = Arc<Vec<(K, V)>>;

/// A key, what one map has for it, and what the other has. At least one has something.
pub type Difference<'a, K, V> = (&'a K, Option<&'a V>, Option<&'a V>);

impl<K, V> SharedMap<K, V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.leaves.iter().flat_map(|leaf| leaf.iter()).map(|(key, value)| (key, value))
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values, in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Whether the two are one and the same; two that are equal need not be.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.leaves, &other.leaves)
    }
}

impl<K: Ord, V> SharedMap<K, V> {
    /// What it has for a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let leaf = self.leaves.get(self.leaf_of(key))?;
        let place = leaf.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        Some(&leaf[place].1)
    }

    /// Whether it has something for a key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The entries from a key on, in order.
    pub fn from<'a, Q: Ord + ?Sized>(&'a self, key: &Q) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V, Q>
    where
        K: Borrow<Q>,
    {
        let first = self.leaf_of(key);
        let skipped = self.leaves.get(first).map_or(0, |leaf| leaf.partition_point(|(known, _)| known.borrow() < key));
        let leaves = self.leaves.get(first..).unwrap_or_default();
        leaves.iter().flat_map(|leaf| leaf.iter()).skip(skipped).map(|(key, value)| (key, value))
    }

    /// The leaf that has the key if any has: the last one that begins with it or before it, else the first.
    fn leaf_of<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.leaves
            .partition_point(|leaf| leaf.first().is_some_and(|(first, _)| first.borrow() <= key))
            .saturating_sub(1)
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// Puts a value in, and returns the one it takes the place of.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let index = self.leaf_of(&key);
        let is_last = index + 1 >= self.leaves.len();
        let leaves = Arc::make_mut(&mut self.leaves);
        let Some(shared) = leaves.get_mut(index) else {
            leaves.push(Arc::new(vec![(key, value)]));
            self.len = 1;
            return None;
        };
        let place = match shared.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(place) => return Some(std::mem::replace(&mut Arc::make_mut(shared)[place].1, value)),
            Err(place) => place,
        };
        self.len += 1;
        if shared.len() < LEAF {
            Arc::make_mut(shared).insert(place, (key, value));
        } else if is_last && place == LEAF {
            // What comes in order fills its leaves.
            leaves.push(Arc::new(vec![(key, value)]));
        } else {
            let mut first = shared[..LEAF / 2].to_vec();
            let mut second = shared[LEAF / 2..].to_vec();
            if place <= LEAF / 2 {
                first.insert(place, (key, value));
            } else {
                second.insert(place - LEAF / 2, (key, value));
            }
            *shared = Arc::new(first);
            leaves.insert(index + 1, Arc::new(second));
        }
        None
    }

    /// Takes out the keys that do not stay.
    pub fn retain(&mut self, mut stays: impl FnMut(&K) -> bool) {
        let gone: Vec<K> = self.keys().filter(|key| !stays(key)).cloned().collect();
        gone.iter().for_each(|key| _ = self.remove(key));
    }

    /// Takes a key out, and returns what it had.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let index = self.leaf_of(key);
        let place = self.leaves.get(index)?.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        let leaves = Arc::make_mut(&mut self.leaves);
        self.len -= 1;
        let (_, value) = Arc::make_mut(&mut leaves[index]).remove(place);
        let left = leaves[index].len();
        if left == 0 {
            leaves.remove(index);
        } else if left < THIN && leaves.get(index + 1).is_some_and(|next| left + next.len() <= LEAF) {
            let next = leaves.remove(index + 1);
            Arc::make_mut(&mut leaves[index]).extend(next.iter().cloned());
        }
        Some(value)
    }
}

impl<K: Ord, V: PartialEq> SharedMap<K, V> {
    /// What differs between an older map and this one, in order. Leaves that both have are not looked at.
    pub fn differences<'a>(&'a self, older: &'a Self) -> Differences<'a, K, V> {
        let is_same = self.is_same(older);
        let of = |map: &'a Self| if is_same { &[][..] } else { map.leaves.as_slice() };
        Differences { old: Cursor { leaves: of(older), place: 0 }, new: Cursor { leaves: of(self), place: 0 } }
    }
}

/// What differs between two maps; see [`SharedMap::differences`].
pub struct Differences<'a, K, V> {
    old: Cursor<'a, K, V>,
    new: Cursor<'a, K, V>,
}

/// A place in a map.
struct Cursor<'a, K, V> {
    /// That it is in the first of, and those behind.
    leaves: &'a [Leaf<K, V>],
    place: usize,
}

impl<'a, K, V> Cursor<'a, K, V> {
    fn peek(&self) -> Option<&'a (K, V)> {
        self.leaves.first()?.get(self.place)
    }

    fn advance(&mut self) {
        self.place += 1;
        if self.leaves.first().is_some_and(|leaf| leaf.len() <= self.place) {
            self.skip_leaf();
        }
    }

    fn skip_leaf(&mut self) {
        self.leaves = self.leaves.get(1..).unwrap_or_default();
        self.place = 0;
    }

    /// The leaf that begins here.
    fn whole_leaf(&self) -> Option<&'a Leaf<K, V>> {
        self.leaves.first().filter(|_| self.place == 0)
    }
}

impl<'a, K: Ord, V: PartialEq> Iterator for Differences<'a, K, V> {
    type Item = Difference<'a, K, V>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let (Some(old), Some(new)) = (self.old.whole_leaf(), self.new.whole_leaf())
                && Arc::ptr_eq(old, new)
            {
                self.old.skip_leaf();
                self.new.skip_leaf();
                continue;
            }
            let (old, new) = (self.old.peek(), self.new.peek());
            let order = match (old, new) {
                (Some((old, _)), Some((new, _))) => old.cmp(new),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            let (old, new) = (old.filter(|_| order.is_le()), new.filter(|_| order.is_ge()));
            if old.is_some() {
                self.old.advance();
            }
            if new.is_some() {
                self.new.advance();
            }
            let (key, _) = new.or(old)?;
            let (old, new) = (old.map(|(_, value)| value), new.map(|(_, value)| value));
            if old != new {
                return Some((key, old, new));
            }
        }
    }
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        Self { leaves: Arc::clone(&self.leaves), len: self.len }
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { leaves: Arc::default(), len: 0 }
    }
}

impl<K: Ord, V: PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.differences(other).next().is_none()
    }
}

impl<K: Ord, V: Eq> Eq for SharedMap<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    /// Of several values of one key the last stays.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let sorted: BTreeMap<K, V> = entries.into_iter().collect();
        let len = sorted.len();
        let mut entries = sorted.into_iter().peekable();
        let mut leaves = Vec::with_capacity(len.div_ceil(LEAF));
        while entries.peek().is_some() {
            leaves.push(Arc::new(entries.by_ref().take(LEAF).collect()));
        }
        Self { leaves: Arc::new(leaves), len }
    }
}

impl<K: Serialize, V: Serialize> Serialize for SharedMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, K: Deserialize<'de> + Ord + Clone, V: Deserialize<'de> + Clone> Deserialize<'de> for SharedMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Copies of a map on its way share leaves with it; all of them are looked at again later.
    const COPIES: usize = 4;

    fn check_leaves(map: &SharedMap<u16, u8>) {
        assert!(map.leaves.iter().all(|leaf| !leaf.is_empty() && leaf.len() <= LEAF));
    }

    #[test]
    fn what_comes_in_order_fills_its_leaves() {
        let mut map = SharedMap::default();
        (0..10 * LEAF).for_each(|key| assert_eq!(map.insert(key, ()), None));
        assert_eq!((map.len(), map.leaves.len()), (10 * LEAF, 10));
    }

    #[test]
    fn what_two_share_is_not_looked_at() {
        let old: SharedMap<usize, f64> = (0..100 * LEAF).map(|key| (key, f64::NAN)).collect();
        let mut new = old.clone();
        assert_eq!(new.differences(&old).count(), 0);
        new.insert(7 * LEAF + 1, 0.0);
        new.insert(50 * LEAF, 0.0);
        // What is not a number differs from itself: so much was looked at.
        assert_eq!(new.differences(&old).count(), 2 * LEAF);
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_tells_what_differs(
            steps in prop::collection::vec((0u16..700, prop::option::weighted(0.6, any::<u8>())), 1..1500),
        ) {
            let mut map = SharedMap::default();
            let mut model = BTreeMap::new();
            let mut copies = Vec::new();
            let pause = steps.len() / COPIES + 1;
            for (number, (key, value)) in steps.into_iter().enumerate() {
                if number % pause == 0 {
                    copies.push((map.clone(), model.clone()));
                }
                match value {
                    Some(value) => prop_assert_eq!(map.insert(key, value), model.insert(key, value)),
                    None => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                }
                check_leaves(&map);
                prop_assert_eq!(map.get(&key), model.get(&key));
                prop_assert_eq!(map.len(), model.len());
            }
            prop_assert!(map.iter().eq(model.iter()));
            prop_assert!(map.iter().rev().eq(model.iter().rev()));
            for key in [0, 350, 699, 700] {
                prop_assert!(map.from(&key).eq(model.range(key..)));
            }
            prop_assert_eq!(&map, &model.clone().into_iter().collect());
            for (copy, then) in copies {
                prop_assert!(copy.iter().eq(then.iter()));
                let keys = then.keys().chain(model.keys()).collect::<std::collections::BTreeSet<_>>();
                let different = keys.into_iter().filter(|key| then.get(key) != model.get(key));
                let want: Vec<_> = different.map(|key| (key, then.get(key), model.get(key))).collect();
                prop_assert_eq!(map.differences(&copy).collect::<Vec<_>>(), want);
                prop_assert_eq!(map == copy, model == then);
            }
        }
    }
}
