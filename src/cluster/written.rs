//! What was written and has not come back by the watch yet.
//!
//! A plan made of a store that lags behind the own writes would do them again, or give an address
//! to a second Service. So what the API server answered counts until the store has caught up.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The newest views that own writes brought.
#[derive(Debug)]
pub struct Written<K, V> {
    newer: BTreeMap<K, Arc<V>>,
    version: fn(&V) -> &str,
}

impl<K: Ord + Clone, V> Written<K, V> {
    /// Nothing written yet; `version` gives the resource version of a view.
    pub fn new(version: fn(&V) -> &str) -> Self {
        Self { newer: BTreeMap::new(), version }
    }

    /// Keeps what the API server answered to a write.
    pub fn remember(&mut self, key: K, view: V) {
        self.newer.insert(key, Arc::new(view));
    }

    /// What is known of one object, of what the store shows of it and what was written.
    ///
    /// As in [`Self::lay_over`], what the store no longer has is gone.
    pub fn newest(&mut self, key: &K, seen: Option<Arc<V>>) -> Option<Arc<V>> {
        let version = self.version;
        match (self.newer.get(key), seen) {
            (Some(written), Some(seen)) if is_older(version(&seen), version(written)) => Some(Arc::clone(written)),
            (Some(_), seen) => {
                self.newer.remove(key);
                seen
            }
            (None, seen) => seen,
        }
    }

    /// Puts what was written in place of what a store shows of it, as long as that is older.
    ///
    /// What the store no longer has is gone. Resource versions of one kind are numbers that grow
    /// (KEP-5504); one that is no number counts as newer.
    pub fn lay_over(&mut self, seen: &mut BTreeMap<K, Arc<V>>) {
        let version = self.version;
        self.newer.retain(|key, written| match seen.get_mut(key) {
            Some(shown) if is_older(version(shown), version(written)) => {
                *shown = Arc::clone(written);
                true
            }
            _ => false,
        });
    }
}

/// Whether one resource version is older than another of the same kind, as far as they are numbers.
pub fn is_older(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one < other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type View = (&'static str, &'static str);

    #[test]
    fn what_was_written_counts_until_the_store_has_caught_up() {
        let seen = |version, text| BTreeMap::from([("a", Arc::new((version, text)))]);
        for (name, store, want) in [
            ("the store lags behind", seen("9", "old"), Some("written")),
            ("the store has it", seen("10", "written"), Some("written")),
            ("the store is ahead", seen("11", "newer"), Some("newer")),
            ("versions are no numbers", seen("x", "store"), Some("store")),
            ("the object is gone", BTreeMap::new(), None),
        ] {
            let mut written = Written::<_, View>::new(|view| view.0);
            written.remember("a", ("10", "written"));
            let mut store = store;
            let newest = |written: &mut Written<_, View>| written.newest(&"a", store.get("a").cloned());
            assert_eq!(newest(&mut written).map(|view| view.1), want, "{name}");
            assert_eq!(newest(&mut written).map(|view| view.1), want, "{name}, asked again");
            written.remember("a", ("10", "written"));
            written.lay_over(&mut store);
            assert_eq!(store.get("a").map(|view| view.1), want, "{name}");
        }
    }

    #[test]
    fn what_the_store_has_caught_up_with_is_forgotten() {
        let mut written = Written::<_, View>::new(|view| view.0);
        written.remember("a", ("10", "written"));
        written.lay_over(&mut BTreeMap::from([("a", Arc::new(("10", "written")))]));
        let mut older = BTreeMap::from([("a", Arc::new(("9", "old")))]);
        written.lay_over(&mut older);
        assert_eq!(older["a"].1, "old");
    }
}
