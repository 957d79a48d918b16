//! The keywords of a JSON schema, as far as schemars writes them.

use serde_json::Value as Json;

use crate::config::document::Value;

/// The words of an enum, however schemars wrote it: `enum`, `const`, or `oneOf` of those.
pub(super) fn words(schema: &Json) -> Option<Vec<&str>> {
    if let Some(word) = schema.get("const") {
        return Some(vec![word.as_str()?]);
    }
    if let Some(words) = schema.get("enum").and_then(Json::as_array) {
        return words.iter().map(Json::as_str).collect();
    }
    let variants = schema.get("oneOf")?.as_array()?;
    variants.iter().map(words).collect::<Option<Vec<_>>>().map(|words| words.concat())
}

pub(super) fn choices(schema: &Json) -> Option<&Vec<Json>> {
    schema.get("anyOf").or_else(|| schema.get("oneOf"))?.as_array()
}

pub(super) fn types(schema: &Json) -> Vec<&str> {
    let nullable = schema["nullable"].as_bool().unwrap_or(false).then_some("null");
    match schema.get("type") {
        Some(Json::String(one)) => std::iter::once(one.as_str()).chain(nullable).collect(),
        Some(Json::Array(several)) => several.iter().filter_map(Json::as_str).chain(nullable).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn is_of_type(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Boolean(_) => kind == "boolean",
        Value::Number(number, _) => kind == "number" || (kind == "integer" && !number.is_f64()),
        Value::Text(_) => kind == "string",
        Value::List(_) => kind == "array",
        Value::Mapping(_) => kind == "object",
    }
}

pub(super) fn bounds(schema: &Json) -> (Option<f64>, Option<f64>) {
    let of_format = match schema["format"].as_str() {
        Some("uint8") => Some(f64::from(u8::MAX)),
        Some("uint16") => Some(f64::from(u16::MAX)),
        Some("uint32") => Some(f64::from(u32::MAX)),
        _ => None,
    };
    (schema["minimum"].as_f64(), schema["maximum"].as_f64().or(of_format))
}

pub(super) fn property<'a>(schema: &'a Json, name: &str) -> Option<&'a Json> {
    schema["properties"].get(name)
}
