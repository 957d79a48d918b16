//! From a YAML tree to a Rust type, without a copy of the tree in between.
//!
//! It reads as `serde_json` reads the same value as JSON.

use serde::de::value::{Error, MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{Deserializer, EnumAccess, IntoDeserializer, VariantAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::document::{Node, Value};

impl<'de> IntoDeserializer<'de> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Boolean(truth) => visitor.visit_bool(*truth),
            Value::Number(number, _) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (_, _, number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(nodes) => {
                let mut list = SeqDeserializer::new(nodes.iter());
                let value = visitor.visit_seq(&mut list)?;
                list.end()?;
                Ok(value)
            }
            Value::Mapping(entries) => {
                let mut mapping = MapDeserializer::new(entries.iter().map(|entry| (entry.key.as_str(), &entry.value)));
                let value = visitor.visit_map(&mut mapping)?;
                mapping.end()?;
                Ok(value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(self, _name: &str, _variants: &[&str], visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Text(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            Value::Mapping(entries) => match &**entries {
                [only] => visitor.visit_enum(Variant { name: &only.key, content: &only.value }),
                _ => Err(serde::de::Error::custom("takes exactly one field")),
            },
            _ => Err(serde::de::Error::custom("takes text or one field")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

/// A variant with content: `name: content`.
struct Variant<'de> {
    name: &'de str,
    content: &'de Node,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Error;
    type Variant = &'de Node;

    fn variant_seed<S: serde::de::DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, &'de Node), Error> {
        let name: StrDeserializer<'de, Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self.content))
    }
}

impl<'de> VariantAccess<'de> for &'de Node {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Deserialize::deserialize(self)
    }

    fn newtype_variant_seed<S: serde::de::DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _fields: &[&str], visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;
    use std::path::Path;

    use serde::de::DeserializeOwned;

    use super::*;
    use crate::config::document::parse;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Everything {
        text: String,
        number: u16,
        negative: Option<i32>,
        part: Option<f64>,
        truth: bool,
        word: Word,
        words: Vec<Word>,
        #[serde(default)]
        names: BTreeMap<String, Option<String>>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Word {
        One,
        Other(u8),
        Third { inner: String },
    }

    /// Reads it both ways, which have to agree.
    fn both<T: DeserializeOwned + Debug + PartialEq>(text: &str) -> Result<T, ()> {
        let node = parse(Path::new("test.yaml"), text).documents.remove(0);
        let direct = T::deserialize(&node).map_err(drop);
        assert_eq!(direct, serde_json::from_value(node.to_json()).map_err(drop), "{text}");
        direct
    }

    #[test]
    fn a_tree_is_read_as_the_same_value_in_json() {
        let right = "{text: a, number: 7, negative: -1, part: 0.5, truth: true, word: one, words: [{other: 3}, \
                     {third: {inner: x}}], names: {a: b, c: null}}";
        let read = both::<Everything>(right).expect("it is right");
        assert_eq!((read.number, read.words.len(), read.names.len()), (7, 2, 2));
        for wrong in [
            "{text: 1, number: 7, truth: true, word: one, words: []}",
            "{text: a, number: 70000, truth: true, word: one, words: []}",
            "{text: a, number: -7, truth: true, word: one, words: []}",
            "{text: a, number: 7, truth: yes, word: one, words: []}",
            "{text: a, number: 7, truth: true, word: two, words: []}",
            "{text: a, number: 7, truth: true, word: {other: 1, third: 2}, words: []}",
            "{text: a, number: 7, truth: true, word: one, words: {}}",
            "{text: a, number: 7, truth: true, word: one, words: [], more: 1}",
            "[a]",
        ] {
            assert!(both::<Everything>(wrong).is_err(), "{wrong}");
        }
        assert!(both::<Everything>("{text: a, number: 7, negative: ~, truth: false, word: one, words: []}").is_ok());
    }
}
