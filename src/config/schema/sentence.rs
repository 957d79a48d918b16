//! What is said of a value that does not fit, and of what would.

use regex_lite::Regex;
use serde_json::Value as Json;

use super::keyword::{bounds, types, words};
use crate::config::document::{Value, is_beyond_numbers};
use crate::config::nearest::nearest;

/// Words in a row: `a, b or c`.
pub fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}

/// What is said of a number that is larger than computers count, where one is taken.
pub(super) fn too_large(value: &Value, schema: &Json, types: &[&str]) -> Option<String> {
    const COUNTED: f64 = 18_446_744_073_709_552_000.0;
    let takes = |kind: &str| types.contains(&kind);
    match value {
        Value::Number(number, written) if takes("integer") && number.as_f64()?.abs() >= COUNTED => {
            Some(out_of_range(written, schema))
        }
        Value::Text(text) if (takes("integer") || takes("number")) && is_beyond_numbers(text) => {
            Some(out_of_range(text, schema))
        }
        _ => None,
    }
}

pub(super) fn out_of_range(written: &str, schema: &Json) -> String {
    let takes = match bounds(schema) {
        (None, None) => takes(schema),
        (least, most) => range(least, most),
    };
    format!("{written} is out of range: it takes {takes}")
}

pub(super) fn wrong_type(value: &Value, schema: &Json, types: &[&str]) -> String {
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
pub(super) fn takes(schema: &Json) -> String {
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

fn range(least: Option<f64>, most: Option<f64>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("{least} or more"),
        (None, Some(most)) => format!("{most} or less"),
        (None, None) => "any".to_owned(),
    }
}

pub(super) fn length_fault(text: &str, schema: &Json) -> Option<String> {
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

pub(super) fn pattern_fault(text: &str, schema: &Json) -> Option<String> {
    let pattern = schema["pattern"].as_str()?;
    let matches = Regex::new(pattern).is_ok_and(|regex| regex.is_match(text));
    (!matches).then(|| format!("{text:?} has the wrong form: it takes text that matches {pattern}"))
}

pub(super) fn count_fault(count: usize, schema: &Json) -> Option<String> {
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
pub fn unknown_field<'a>(key: &str, mut known: Vec<&'a str>) -> (String, Option<&'a str>) {
    if key == "<<" {
        let message = "is a merge key, which YAML 1.2 does not have: write the fields out";
        return (message.to_owned(), None);
    }
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
pub(super) fn in_words(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Boolean(truth) => Some(truth.to_string()),
        Value::Number(_, written) => Some(written.clone()),
        Value::Text(text) => Some(format!("{text:?}")),
        Value::List(_) => Some("a list".to_owned()),
        Value::Mapping(_) => Some("a mapping".to_owned()),
    }
}

pub(super) fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}
