//! A few texts by their keys, in order, in no more memory than they need: annotations of thousands of Nodes.
//!
//! A leaf of a `BTreeMap` has room for eleven entries, half a kilobyte, even when one is in it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Texts in the order of their keys. A change copies the list of them.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TextMap(Box<[(Box<str>, Box<str>)]>);

impl TextMap {
    /// The text of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        Some(&self.0[self.place_of(key).ok()?].1)
    }

    /// Whether it has a text for a key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.place_of(key).is_ok()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, text)| (&**key, &**text))
    }

    /// The same as a map that is made for changes.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(key, text)| (key.to_owned(), text.to_owned())).collect()
    }

    fn place_of(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(key))
    }
}

impl From<BTreeMap<String, String>> for TextMap {
    fn from(map: BTreeMap<String, String>) -> Self {
        Self(map.into_iter().map(|(key, text)| (key.into(), text.into())).collect())
    }
}

impl<const N: usize> From<[(String, String); N]> for TextMap {
    fn from(texts: [(String, String); N]) -> Self {
        BTreeMap::from(texts).into()
    }
}

/// Of a key that comes twice, the last text counts.
impl<'a> FromIterator<(&'a String, &'a String)> for TextMap {
    fn from_iter<I: IntoIterator<Item = (&'a String, &'a String)>>(texts: I) -> Self {
        let mut all: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (key, text) in texts {
            match all.binary_search_by(|(known, _)| (**known).cmp(key)) {
                Ok(place) => all[place].1 = text.as_str().into(),
                Err(place) => all.insert(place, (key.as_str().into(), text.as_str().into())),
            }
        }
        Self(all.into())
    }
}

impl fmt::Debug for TextMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for TextMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<String, String>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_has_what_a_map_has(
            pairs in proptest::collection::vec(("[a-e]{1,2}", "[a-c]{0,2}"), 0..20),
            key in "[a-e]{1,2}",
        ) {
            let map: BTreeMap<String, String> = pairs.iter().cloned().collect();
            let texts: TextMap = pairs.iter().map(|(key, text)| (key, text)).collect();
            prop_assert_eq!(&texts, &TextMap::from(map.clone()));
            prop_assert_eq!(texts.get(&key), map.get(&key).map(String::as_str));
            prop_assert_eq!(texts.contains_key(&key), map.contains_key(&key));
            let json = serde_json::to_value(&texts).expect("it has text as keys");
            prop_assert_eq!(&json, &serde_json::to_value(&map).expect("it has text as keys"));
            prop_assert_eq!(serde_json::from_value::<TextMap>(json).expect("a map"), texts.clone());
            prop_assert_eq!(texts.to_map(), map);
        }
    }
}
