//! Checks a YAML tree against a JSON schema and tells every fault, in words for people.
//!
//! It knows the part of JSON Schema that schemars writes for Rust types: types, properties, enums and
//! consts, bounds, patterns, `anyOf` with null, `$ref`. A keyword it does not know is no fault; what
//! it lets through, serde and the semantic checks still see. What the keywords are is in `keyword`, what is said in
//! `sentence`.

mod keyword;
mod sentence;

use std::path::Path;

use serde_json::Value as Json;

use super::document::{Entry, Node, Value};
use super::nearest::nearest;
use super::{Fault, Faults, FieldPath, Fields, Position};
use keyword::{bounds, choices, is_of_type, property, types, words};
use sentence::{
    count_fault, in_words, length_fault, out_of_range, pattern_fault, takes, too_large, with_article, wrong_type,
};

pub use sentence::{one_of, unknown_field};

/// The outcome of a check: every fault, and a value of the right shape all the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// What was written; without the optional fields that are wrong, and with an empty stand-in for
    /// each required one. The checks of what values mean go on with it, so that one wrong shape does
    /// not hide another wrong meaning.
    pub value: Json,
    /// Every wrong shape.
    pub faults: Faults,
    /// The fields of these faults, and those that a misspelt one was meant to be.
    pub misshapen: Fields,
}

/// Whether nothing is wrong with the shape of a document.
///
/// It takes no memory: [`check`] makes a second copy of the document, which only one with faults needs.
pub fn fits(document: &Node, schema: &Json) -> bool {
    let mut checker =
        Checker { file: Path::new(""), root: schema, faults: Faults::NONE, meant: Vec::new(), keeps: Keeps::Nothing };
    checker.check(document, schema, &Way::Root).is_some() && checker.faults.is_empty()
}

/// Checks a document against a schema.
pub fn check(file: &Path, document: &Node, schema: &Json) -> Checked {
    let mut checker = Checker { file, root: schema, faults: Faults::NONE, meant: Vec::new(), keeps: Keeps::Values };
    let value = checker.check(document, schema, &Way::Root);
    let value = value.unwrap_or_else(|| checker.stand_in(schema, DEEPEST_STAND_IN));
    let Checker { faults, meant, .. } = checker;
    let misshapen = faults.fields().with(meant);
    Checked { value, faults, misshapen }
}

/// Types that need a value of themselves have no end.
const DEEPEST_STAND_IN: usize = 16;

struct Checker<'a> {
    file: &'a Path,
    root: &'a Json,
    faults: Faults,
    /// Fields that a misspelt one was meant to be, where its value does not fit.
    meant: Vec<FieldPath>,
    keeps: Keeps,
}

/// What is made of values that are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Values,
    /// `null`, whatever they are.
    Nothing,
}

/// The way to a value, made into a path only when there is something to tell of it.
enum Way<'a> {
    Root,
    Field(&'a Way<'a>, &'a str),
    Entry(&'a Way<'a>, usize),
}

impl Way<'_> {
    fn path(&self) -> FieldPath {
        match self {
            Self::Root => FieldPath::ROOT,
            Self::Field(outer, name) => outer.path().field(name),
            Self::Entry(outer, index) => outer.path().entry(*index),
        }
    }

    /// As [`FieldPath::last_field`].
    fn last_field(&self) -> Option<&str> {
        match self {
            Self::Root => None,
            Self::Field(_, name) => Some(name),
            Self::Entry(outer, _) => outer.last_field(),
        }
    }
}

impl<'a> Checker<'a> {
    fn keep(&self, node: &Node) -> Json {
        match self.keeps {
            Keeps::Values => node.to_json(),
            Keeps::Nothing => Json::Null,
        }
    }

    /// The value, or `None` when it cannot be used at all.
    fn check(&mut self, node: &Node, schema: &'a Json, field: &Way<'_>) -> Option<Json> {
        let Some(schema) = self.resolve(schema) else { return Some(self.keep(node)) };
        if let Some(words) = words(schema) {
            return self.check_word(node, &words, field);
        }
        if let Some(choice) = choices(schema) {
            return self.check_choice(node, choice, field);
        }
        let types = types(schema);
        if !types.is_empty() && !types.iter().any(|kind| is_of_type(&node.value, kind)) {
            let message = labels_in_a_layer(&node.value, field)
                .or_else(|| too_large(&node.value, schema, &types))
                .unwrap_or_else(|| wrong_type(&node.value, schema, &types));
            return self.tell(field, node.position, message);
        }
        match &node.value {
            Value::Null | Value::Boolean(_) => Some(self.keep(node)),
            Value::Number(number, written) => {
                let (least, most) = bounds(schema);
                let number = number.as_f64().unwrap_or(f64::NAN);
                if least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most) {
                    return self.tell(field, node.position, out_of_range(written, schema));
                }
                Some(self.keep(node))
            }
            Value::Text(text) => match length_fault(text, schema).or_else(|| pattern_fault(text, schema)) {
                Some(message) => self.tell(field, node.position, message),
                None => Some(self.keep(node)),
            },
            Value::List(nodes) => Some(self.check_list(node, nodes, schema, field)),
            Value::Mapping(entries) => Some(self.check_mapping(node, entries, schema, field)),
        }
    }

    fn check_choice(&mut self, node: &Node, choice: &'a [Json], field: &Way<'_>) -> Option<Json> {
        let is_null = |schema: &&Json| schema["type"] == "null";
        let may_be_null = choice.iter().any(|schema| is_null(&schema));
        match choice.iter().filter(|schema| !is_null(schema)).collect::<Vec<_>>().as_slice() {
            _ if may_be_null && node.value == Value::Null => Some(Json::Null),
            [only] => self.check(node, only, field),
            // Of a real choice between shapes only serde can tell which is meant.
            _ => Some(self.keep(node)),
        }
    }

    fn check_list(&mut self, node: &Node, nodes: &[Node], schema: &'a Json, field: &Way<'_>) -> Json {
        if let Some(message) = count_fault(nodes.len(), schema) {
            self.tell(field, node.position, message);
        }
        let Some(of_entries) = schema.get("items") else { return self.keep(node) };
        let keeps = self.keeps;
        let mut check = |(index, node): (usize, &Node)| {
            let value = self.check(node, of_entries, &Way::Entry(field, index));
            match keeps {
                Keeps::Values => value.unwrap_or_else(|| self.stand_in(of_entries, DEEPEST_STAND_IN)),
                Keeps::Nothing => Json::Null,
            }
        };
        let values = nodes.iter().enumerate().map(&mut check);
        match keeps {
            Keeps::Values => values.collect(),
            Keeps::Nothing => {
                values.for_each(drop);
                Json::Null
            }
        }
    }

    fn check_mapping(&mut self, node: &Node, entries: &[Entry], schema: &'a Json, field: &Way<'_>) -> Json {
        let known = || schema["properties"].as_object().into_iter().flat_map(|known| known.keys().map(String::as_str));
        let mut checked = serde_json::Map::new();
        let mut misspelt = Vec::new();
        for Entry { key, key_position, value } in entries {
            let inner = Way::Field(field, key);
            let (name, of_field) = match (property(schema, key), schema.get("additionalProperties")) {
                (Some(of_field), _) => (key.as_str(), of_field),
                (None, Some(Json::Bool(false))) => {
                    let (message, meant) = unknown_field(key, known().collect());
                    self.tell(&inner, *key_position, message);
                    // A slip of the fingers is one fault: the value is taken for the field that was meant, where it fits.
                    let Some(meant) = meant.filter(|meant| node.get(meant).is_none()) else { continue };
                    (meant, &schema["properties"][meant])
                }
                (None, of_others) => (key.as_str(), of_others.unwrap_or(&Json::Bool(true))),
            };
            let before = (self.faults.len(), self.meant.len());
            let value = self.check(value, of_field, &inner);
            if name != key {
                misspelt.push(name);
                self.take_back_a_guess(value.is_some(), before, &inner, &Way::Field(field, name).path());
            }
            if self.keeps == Keeps::Values {
                checked.extend(value.map(|value| (name.to_owned(), value)));
            }
        }
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
            let of_field = property(schema, required).unwrap_or(&Json::Bool(true));
            if node.get(required).is_none() && !misspelt.contains(&required) {
                let takes = self.resolve(of_field).map_or("a value".to_owned(), takes);
                self.tell(&Way::Field(field, required), node.position, format!("is missing: it takes {takes}"));
            }
            if self.keeps == Keeps::Values {
                checked.entry(required).or_insert_with(|| self.stand_in(of_field, DEEPEST_STAND_IN));
            }
        }
        Json::Object(checked)
    }

    /// After the value of a misspelt field was checked as if it were the `meant` one: when it does not fit at all,
    /// the guess may be wrong, and its faults are not told. `before` is how many there were of `faults` and `meant`.
    fn take_back_a_guess(&mut self, fits: bool, before: (usize, usize), written: &Way<'_>, meant: &FieldPath) {
        let (told, guessed) = before;
        if !fits {
            self.faults.truncate(told);
            self.meant.push(meant.clone());
            return;
        }
        let written = written.path();
        let misshapen = self.faults.iter().skip(told).map(|fault| &fault.field).chain(self.meant.iter().skip(guessed));
        let moved: Vec<_> = misshapen.filter_map(|field| field.moved(&written, meant)).collect();
        self.meant.extend(moved);
    }

    fn check_word(&mut self, node: &Node, words: &[&str], field: &Way<'_>) -> Option<Json> {
        let written = match &node.value {
            Value::Text(text) if words.contains(&text.as_str()) => return Some(self.keep(node)),
            Value::Text(text) => Some(text),
            _ => None,
        };
        let noun = field.last_field().map_or("right".to_owned(), with_article);
        let takes = one_of(words.iter().copied());
        let mut message = match in_words(&node.value) {
            Some(value) => format!("{value} is not {noun}: it takes {takes}"),
            None => format!("has no value: it takes {takes}"),
        };
        if words.len() > 1
            && let Some(near) = written.and_then(|written| nearest(written, words.iter().copied()))
        {
            message.push_str(&format!("; did you mean {near}?"));
        }
        self.tell(field, node.position, message)
    }

    /// The emptiest value of the right shape.
    fn stand_in(&self, schema: &Json, deepest: usize) -> Json {
        let Some(schema) = self.resolve(schema).filter(|_| deepest > 0) else { return Json::Null };
        if let Some(word) = words(schema).and_then(|words| words.first().copied()) {
            return word.into();
        }
        if let Some(first) = choices(schema).and_then(|choice| choice.first()) {
            return self.stand_in(first, deepest - 1);
        }
        match types(schema).first() {
            Some(&"string") => "".into(),
            Some(&("integer" | "number")) => 0.into(),
            Some(&"boolean") => false.into(),
            Some(&"array") => Json::Array(Vec::new()),
            Some(&"object") => {
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str);
                let stand_in = |name: &str| (name.to_owned(), self.stand_in(&schema["properties"][name], deepest - 1));
                Json::Object(required.map(stand_in).collect())
            }
            _ => Json::Null,
        }
    }

    /// The schema itself, `$ref` followed; `None` where it goes in circles or nowhere.
    fn resolve<'s>(&self, schema: &'s Json) -> Option<&'s Json>
    where
        'a: 's,
    {
        let mut schema = schema;
        for _ in 0..16 {
            match schema.get("$ref").and_then(Json::as_str) {
                None => return Some(schema),
                Some(reference) => schema = self.root.pointer(reference.strip_prefix('#')?)?,
            }
        }
        None
    }

    /// Tells a fault of a value, which therefore cannot be used.
    fn tell(&mut self, field: &Way<'_>, position: Position, message: String) -> Option<Json> {
        self.faults.push(Fault::new(field.path(), message).in_file(self.file).at(position));
        None
    }
}

/// What is said where a selector of labels has a layer that only those of other fields have.
fn labels_in_a_layer(value: &Value, field: &Way<'_>) -> Option<String> {
    let Way::Field(outer, "matchLabels" | "matchExpressions") = field else { return None };
    let what = match value {
        Value::Mapping(_) => "is a mapping",
        Value::List(_) => "is a list",
        _ => return None,
    };
    let selector = outer.last_field()?;
    Some(format!("{what}: write the labels directly, as in {selector}: {{rack: r12}}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::parse;
    use proptest::prelude::*;
    use serde_json::json;

    /// A schema with everything that schemars writes.
    fn schema() -> Json {
        json!({
            "type": "object",
            "properties": {
                "state": { "$ref": "#/$defs/State" },
                "mode": { "enum": ["fast", "slow"] },
                "port": { "type": "integer", "format": "uint16", "minimum": 1 },
                "weight": { "type": ["number", "null"], "minimum": 0, "maximum": 1 },
                "name": { "type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$" },
                "entries": { "type": "array", "items": { "$ref": "#/$defs/Entry" }, "minItems": 1, "maxItems": 2 },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                "entry": { "anyOf": [{ "$ref": "#/$defs/Entry" }, { "type": "null" }] },
                "on": { "type": "boolean" },
                "circle": { "$ref": "#/$defs/Circle" },
            },
            "required": ["state"],
            "additionalProperties": false,
            "$defs": {
                "State": { "oneOf": [{ "const": "planned" }, { "const": "active" }] },
                "Entry": {
                    "type": "object",
                    "properties": { "address": { "type": "string" } },
                    "required": ["address"],
                    "additionalProperties": false,
                },
                "Circle": { "$ref": "#/$defs/Circle" },
            },
        })
    }

    fn faults(text: &str) -> String {
        let file = Path::new("f");
        let parsed = parse(file, text);
        let told = parsed.documents.iter().map(|node| check(file, node, &schema()).faults);
        told.map(|mut faults| {
            faults.sort();
            faults.to_string()
        })
        .collect()
    }

    #[test]
    fn what_fits_the_schema_has_no_fault() {
        for text in [
            "state: active",
            "{state: planned, mode: slow, port: 65535, weight: ~, name: abc, entries: [{address: x}], labels: {a: b}}",
            "{state: planned, weight: 0.5, entry: ~, on: true, circle: [1]}",
        ] {
            assert_eq!(faults(text), "", "{text}");
        }
    }

    #[test]
    fn each_fault_says_what_would_be_right() {
        for (text, want) in [
            ("{}", "f:1:1: state: is missing: it takes planned or active"),
            (
                "[]",
                "f:1:1: is a list: it takes a mapping of circle, entries, entry, labels, mode, name, on, port, state, weight",
            ),
            (
                "state: acitve",
                "f:1:8: state: \"acitve\" is not a state: it takes planned or active; did you mean active?",
            ),
            ("state: 5", "f:1:8: state: 5 is not a state: it takes planned or active"),
            ("state:", "f:1:6: state: has no value: it takes planned or active"),
            ("{state: active, mode: quick}", "f:1:23: mode: \"quick\" is not a mode: it takes fast or slow"),
            ("{state: active, port: 0}", "f:1:23: port: 0 is out of range: it takes 1 to 65535"),
            ("{state: active, port: 70000}", "f:1:23: port: 70000 is out of range: it takes 1 to 65535"),
            ("{state: active, port: 1.5}", "f:1:23: port: 1.5 is a number: it takes a whole number, 1 to 65535"),
            ("{state: active, port: '80'}", "f:1:23: port: \"80\" is text: it takes a whole number, 1 to 65535"),
            ("{state: active, on: yes}", "f:1:21: on: \"yes\" is text: it takes true or false"),
            (
                "{state: active, name: 007}",
                "f:1:23: name: 007 is a number: it takes text, so put it in quotes: \"007\"",
            ),
            ("{state: active, name: ''}", "f:1:23: name: is empty: it takes text"),
            ("{state: active, name: abcdef}", "f:1:23: name: is 6 characters long: it takes 5 or fewer"),
            ("{state: active, name: A}", "f:1:23: name: \"A\" has the wrong form: it takes text that matches ^[a-z]+$"),
            ("{state: active, entries: []}", "f:1:26: entries: is empty: it takes at least one entry"),
            (
                "{state: active, entries: {address: x}}",
                "f:1:26: entries: is a mapping: it takes a list, so start each entry with a dash",
            ),
            (
                "{state: active, entries: [{adress: x}]}",
                "f:1:28: entries[0].adress: is not a field: did you mean address?",
            ),
            ("{state: active, entry: {}}", "f:1:24: entry.address: is missing: it takes text"),
            ("{state: active, labels: }", "f:1:23: labels: has no value: it takes a mapping of keys to values"),
            (
                "{state: active, labels: {a: 1}}",
                "f:1:29: labels.a: 1 is a number: it takes text, so put it in quotes: \"1\"",
            ),
            (
                "{state: active, colour: red}",
                "f:1:17: colour: is not a field: the fields here are circle, entries, entry, labels, mode, name, on, port, state, weight",
            ),
            (
                "{state: active, <<: {port: 80}}",
                "f:1:17: [\"<<\"]: is a merge key, which YAML 1.2 does not have: write the fields out",
            ),
            ("{sate: active}", "f:1:2: sate: is not a field: did you mean state?"),
            ("{sate: x}", "f:1:2: sate: is not a field: did you mean state?"),
            ("{state: active, entrie: {adress: 1}}", "f:1:17: entrie: is not a field: did you mean entries?"),
            ("{state: active, port: 1e400}", "f:1:23: port: 1e400 is out of range: it takes 1 to 65535"),
            ("{state: active, port: -1e400}", "f:1:23: port: -1e400 is out of range: it takes 1 to 65535"),
            (
                "{state: active, port: 0x10000000000000000}",
                "f:1:23: port: 0x10000000000000000 is out of range: it takes 1 to 65535",
            ),
            (
                "{state: active, port: 99999999999999999999999999999}",
                "f:1:23: port: 99999999999999999999999999999 is out of range: it takes 1 to 65535",
            ),
            ("{state: active, weight: 1e400}", "f:1:25: weight: 1e400 is out of range: it takes 0 to 1"),
            ("{state: active, port: 0xfg}", "f:1:23: port: \"0xfg\" is text: it takes a whole number, 1 to 65535"),
            (
                "{state: active, labels: {matchLabels: {rack: r1}}}",
                "f:1:39: labels.matchLabels: is a mapping: write the labels directly, as in labels: {rack: r12}",
            ),
            (
                "{state: active, labels: {matchExpressions: [{key: rack}]}}",
                "f:1:44: labels.matchExpressions: is a list: write the labels directly, as in labels: {rack: r12}",
            ),
        ] {
            assert_eq!(faults(text), want, "{text}");
        }
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let text = "state: x\nport: 0\nname: ''\nentries: [{}, {address: 1}, {address: x}]\n";
        assert_eq!(faults(text).lines().count(), 6, "{}", faults(text));
    }

    #[test]
    fn what_is_wrong_is_left_out_or_stood_in_for() {
        for (text, want) in [
            ("{state: x, port: 0, name: abc}", json!({"state": "planned", "name": "abc"})),
            (
                "{entries: [{}, 5, {address: x, y: 1}]}",
                json!({
                    "state": "planned", "entries": [{"address": ""}, {"address": ""}, {"address": "x"}]
                }),
            ),
            ("5", json!({"state": "planned"})),
            ("{labels: {a: 1, b: c}, sate: active}", json!({"state": "active", "labels": {"b": "c"}})),
        ] {
            let parsed = parse(Path::new("f"), text);
            assert_eq!(check(Path::new("f"), &parsed.documents[0], &schema()).value, want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((state|port|name|entries|labels|entry|on|circle|x)(: | )?[-\\[\\]{}:, \na1'\"]{0,4}){0,20}") {
            faults(&text);
        }
    }
}
