//! Checks a YAML tree against a JSON schema and tells every fault, in words for people.
//!
//! It knows the part of JSON Schema that schemars writes for Rust types: types, properties, enums and
//! consts, bounds, patterns, `anyOf` with null, `$ref`. A keyword it does not know is no fault; what
//! it lets through, serde and the semantic checks still see.

use std::path::Path;

use regex_lite::Regex;
use serde_json::Value as Json;

use super::document::{Node, Value};
use super::nearest::nearest;
use super::{Fault, Faults, FieldPath, Position};

/// Checks `node`, the field `field` of a document, against `schema`; its `$defs` are at the top.
///
/// # Errors
/// Every fault, with file, position and field.
pub fn check(file: &Path, node: &Node, field: &FieldPath, schema: &Json) -> Result<(), Faults> {
    let mut checker = Checker { file, root: schema, faults: Faults::NONE };
    checker.check(node, schema, field);
    checker.faults.or(())
}

/// Words in a row: `a, b or c`.
pub fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}

struct Checker<'a> {
    file: &'a Path,
    root: &'a Json,
    faults: Faults,
}

impl<'a> Checker<'a> {
    fn check(&mut self, node: &Node, schema: &'a Json, field: &FieldPath) {
        let Some(schema) = self.resolve(schema) else { return };
        if let Some(words) = words(schema) {
            return self.check_word(node, &words, field);
        }
        if let Some(choice) = choices(schema) {
            let is_null = |schema: &&Json| schema["type"] == "null";
            if node.value == Value::Null && choice.iter().any(|schema| is_null(&schema)) {
                return;
            }
            // Of a real choice between shapes only serde can tell which is meant.
            if let [only] = choice.iter().filter(|schema| !is_null(schema)).collect::<Vec<_>>().as_slice() {
                self.check(node, only, field);
            }
            return;
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.check(node, part, field);
        }
        let types = types(schema);
        if !types.is_empty() && !types.iter().any(|kind| is_of_type(&node.value, kind)) {
            return self.tell(field, node.position, wrong_type(&node.value, schema, &types));
        }
        self.check_value(node, schema, field);
    }

    fn check_value(&mut self, node: &Node, schema: &'a Json, field: &FieldPath) {
        match &node.value {
            Value::Null | Value::Boolean(_) => {}
            Value::Number(number, written) => {
                let (least, most) = bounds(schema);
                let number = number.as_f64().unwrap_or(f64::NAN);
                if least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most) {
                    self.tell(
                        field,
                        node.position,
                        format!("{written} is out of range: it takes {}", range(least, most)),
                    );
                }
            }
            Value::Text(text) => {
                let message = length_fault(text, schema).or_else(|| pattern_fault(text, schema));
                message.into_iter().for_each(|message| self.tell(field, node.position, message));
            }
            Value::List(nodes) => {
                if let Some(message) = count_fault(nodes.len(), schema) {
                    self.tell(field, node.position, message);
                }
                if let Some(of_entries) = schema.get("items") {
                    nodes.iter().enumerate().for_each(|(i, node)| self.check(node, of_entries, &field.entry(i)));
                }
            }
            Value::Mapping(_) => self.check_mapping(node, schema, field),
        }
    }

    fn check_mapping(&mut self, node: &Node, schema: &'a Json, field: &FieldPath) {
        let Value::Mapping(entries) = &node.value else { return };
        let properties = schema["properties"].as_object();
        let mut misspelt = Vec::new();
        for entry in entries {
            let inner = field.field(&entry.key);
            match (properties.and_then(|properties| properties.get(&entry.key)), schema.get("additionalProperties")) {
                (Some(of_field), _) => self.check(&entry.value, of_field, &inner),
                (None, Some(Json::Bool(false))) => {
                    let known = properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str));
                    let (message, meant) = unknown_field(&entry.key, known.collect());
                    misspelt.extend(meant);
                    self.tell(&inner, entry.key_position, message);
                }
                (None, Some(of_others)) => self.check(&entry.value, of_others, &inner),
                (None, None) => {}
            }
        }
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
            // One slip of the fingers is one fault.
            if node.get(required).is_none() && !misspelt.contains(&required) {
                let of_field = properties.and_then(|properties| properties.get(required));
                let takes = of_field.and_then(|of_field| self.resolve(of_field)).map(takes);
                let message = format!("is missing: it takes {}", takes.as_deref().unwrap_or("a value"));
                self.tell(&field.field(required), node.position, message);
            }
        }
    }

    fn check_word(&mut self, node: &Node, words: &[&str], field: &FieldPath) {
        let written = match &node.value {
            Value::Text(text) if words.contains(&text.as_str()) => return,
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
        self.tell(field, node.position, message);
    }

    /// The schema itself, `$ref` followed; `None` where it goes in circles or nowhere.
    fn resolve(&self, schema: &'a Json) -> Option<&'a Json> {
        let mut schema = schema;
        for _ in 0..16 {
            match schema.get("$ref").and_then(Json::as_str) {
                None => return Some(schema),
                Some(reference) => schema = self.root.pointer(reference.strip_prefix('#')?)?,
            }
        }
        None
    }

    fn tell(&mut self, field: &FieldPath, position: Position, message: String) {
        self.faults.push(Fault::new(field.clone(), message).in_file(self.file).at(position));
    }
}

/// The words of an enum, however schemars wrote it: `enum`, `const`, or `oneOf` of those.
fn words(schema: &Json) -> Option<Vec<&str>> {
    if let Some(word) = schema.get("const") {
        return Some(vec![word.as_str()?]);
    }
    if let Some(words) = schema.get("enum").and_then(Json::as_array) {
        return words.iter().map(Json::as_str).collect();
    }
    let variants = schema.get("oneOf")?.as_array()?;
    variants.iter().map(words).collect::<Option<Vec<_>>>().map(|words| words.concat())
}

fn choices(schema: &Json) -> Option<&Vec<Json>> {
    schema.get("anyOf").or_else(|| schema.get("oneOf"))?.as_array()
}

fn types(schema: &Json) -> Vec<&str> {
    let nullable = schema["nullable"].as_bool().unwrap_or(false).then_some("null");
    match schema.get("type") {
        Some(Json::String(one)) => std::iter::once(one.as_str()).chain(nullable).collect(),
        Some(Json::Array(several)) => several.iter().filter_map(Json::as_str).chain(nullable).collect(),
        _ => Vec::new(),
    }
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Boolean(_) => kind == "boolean",
        Value::Number(number, _) => kind == "number" || (kind == "integer" && !number.is_f64()),
        Value::Text(_) => kind == "string",
        Value::List(_) => kind == "array",
        Value::Mapping(_) => kind == "object",
    }
}

fn wrong_type(value: &Value, schema: &Json, types: &[&str]) -> String {
    let takes = takes(schema);
    match value {
        Value::Null => format!("has no value: it takes {takes}"),
        Value::Number(_, written) if types.contains(&"string") => {
            format!("{written} is a number: it takes {takes}, so put it in quotes: \"{written}\"")
        }
        Value::Boolean(truth) if types.contains(&"string") => {
            format!("{truth} is a truth value: it takes {takes}, so put it in quotes: \"{truth}\"")
        }
        Value::Number(_, written) => format!("{written} is a number: it takes {takes}"),
        Value::Boolean(truth) => format!("{truth} is a truth value: it takes {takes}"),
        Value::Text(text) => format!("{text:?} is text: it takes {takes}"),
        Value::List(_) => format!("is a list: it takes {takes}"),
        Value::Mapping(_) if types.contains(&"array") => {
            format!("is a mapping: it takes {takes}, so start each entry with a dash")
        }
        Value::Mapping(_) => format!("is a mapping: it takes {takes}"),
    }
}

/// What the schema takes, for the end of a sentence.
fn takes(schema: &Json) -> String {
    if let Some(words) = words(schema) {
        return one_of(words);
    }
    let kind = types(schema).into_iter().find(|kind| *kind != "null");
    match kind {
        Some("string") => "text".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => match bounds(schema) {
            (None, None) => "a whole number".to_owned(),
            (least, most) => format!("a whole number, {}", range(least, most)),
        },
        Some("number") => "a number".to_owned(),
        Some("array") => "a list".to_owned(),
        Some("object") => match schema["properties"].as_object() {
            Some(properties) => {
                let known: Vec<_> = properties.keys().map(String::as_str).collect();
                format!("a mapping of {}", known.join(", "))
            }
            None => "a mapping of keys to values".to_owned(),
        },
        _ => "a value".to_owned(),
    }
}

fn bounds(schema: &Json) -> (Option<f64>, Option<f64>) {
    let of_format = match schema["format"].as_str() {
        Some("uint8") => Some(f64::from(u8::MAX)),
        Some("uint16") => Some(f64::from(u16::MAX)),
        Some("uint32") => Some(f64::from(u32::MAX)),
        _ => None,
    };
    (schema["minimum"].as_f64(), schema["maximum"].as_f64().or(of_format))
}

fn range(least: Option<f64>, most: Option<f64>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("{least} or more"),
        (None, Some(most)) => format!("{most} or less"),
        (None, None) => "any".to_owned(),
    }
}

fn length_fault(text: &str, schema: &Json) -> Option<String> {
    let length = text.chars().count() as u64;
    let (least, most) = (schema["minLength"].as_u64(), schema["maxLength"].as_u64());
    if length == 0 && least.is_some_and(|least| least > 0) {
        Some("is empty: it takes text".to_owned())
    } else if least.is_some_and(|least| length < least) {
        least.map(|least| format!("{text:?} is too short: it takes {least} characters or more"))
    } else {
        let most = most.filter(|most| length > *most)?;
        Some(format!("is {length} characters long: it takes {most} or fewer"))
    }
}

fn pattern_fault(text: &str, schema: &Json) -> Option<String> {
    let pattern = schema["pattern"].as_str()?;
    let matches = Regex::new(pattern).is_ok_and(|regex| regex.is_match(text));
    (!matches).then(|| format!("{text:?} has the wrong form: it takes text that matches {pattern}"))
}

fn count_fault(count: usize, schema: &Json) -> Option<String> {
    let (least, most) = (schema["minItems"].as_u64(), schema["maxItems"].as_u64());
    let entries = |count: u64| if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") };
    let count = count as u64;
    if count == 0 && least.is_some_and(|least| least > 0) {
        Some("is empty: it takes at least one entry".to_owned())
    } else if least.is_some_and(|least| count < least) {
        least.map(|least| format!("has {}: it takes {} or more", entries(count), entries(least)))
    } else {
        most.filter(|most| count > *most).map(|most| format!("has {}: it takes {most} or fewer", entries(count)))
    }
}

/// What to say of a key that no field has, and the field that was meant, if that is plain.
fn unknown_field<'a>(key: &str, mut known: Vec<&'a str>) -> (String, Option<&'a str>) {
    known.sort_unstable();
    let meant = nearest(key, known.iter().copied());
    let message = match meant {
        Some(near) => format!("is not a field: did you mean {near}?"),
        None if known.is_empty() => "is not a field: it takes none here".to_owned(),
        None => format!("is not a field: the fields here are {}", known.join(", ")),
    };
    (message, meant)
}

/// The value as it stands in a sentence, if there is one.
fn in_words(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Boolean(truth) => Some(truth.to_string()),
        Value::Number(_, written) => Some(written.clone()),
        Value::Text(text) => Some(format!("{text:?}")),
        Value::List(_) => Some("a list".to_owned()),
        Value::Mapping(_) => Some("a mapping".to_owned()),
    }
}

fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
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
        let told = parsed.documents.iter().map(|node| check(file, node, &FieldPath::ROOT, &schema()));
        told.filter_map(Result::err).map(|faults| faults.to_string()).collect()
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
            ("{sate: active}", "f:1:2: sate: is not a field: did you mean state?"),
        ] {
            assert_eq!(faults(text), want, "{text}");
        }
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let text = "state: x\nport: 0\nname: ''\nentries: [{}, {address: 1}, {address: x}]\n";
        assert_eq!(faults(text).lines().count(), 6, "{}", faults(text));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((state|port|name|entries|labels|entry|on|circle|x)(: | )?[-\\[\\]{}:, \na1'\"]{0,4}){0,20}") {
            faults(&text);
        }
    }
}
