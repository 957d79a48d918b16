//! Documents that say what they are: `apiVersion`, `kind` and, for objects of the API, a name.

use std::path::Path;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::document::{Node, Value};
use super::{Fault, Faults, FieldPath, schema};

/// What a document says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// `metadata.name`, if it has one.
    pub name: Option<String>,
}

impl Head {
    /// Reads it off a document.
    ///
    /// # Errors
    /// A fault for each of `apiVersion` and `kind` that is not there as text.
    pub fn read(file: &Path, document: &Node) -> Result<Self, Faults> {
        let mut faults = Faults::NONE;
        if !matches!(document.value, Value::Mapping(_)) {
            let message = "is not an object: it takes a mapping that starts with apiVersion and kind";
            return Err(Fault::of_file(file, message).at(document.position).into());
        }
        let mut field = |name: &str| {
            document.text(name).map(ToOwned::to_owned).or_else(|| {
                let (position, message) = match document.get(name) {
                    None => (document.position, "is missing: it says what the document is"),
                    Some(node) => (node.position, "is not text: it says what the document is"),
                };
                faults.push(Fault::new(FieldPath::of(name), message).in_file(file).at(position));
                None
            })
        };
        let (api_version, kind) = (field("apiVersion"), field("kind"));
        let name = document.get("metadata").and_then(|metadata| metadata.text("name")).map(ToOwned::to_owned);
        match (api_version, kind) {
            (Some(api_version), Some(kind)) => Ok(Self { api_version, kind, name }),
            _ => Err(faults),
        }
    }

    /// Reads it off a document that has to be of one kind.
    ///
    /// # Errors
    /// A fault for each of `apiVersion` and `kind` that is missing or another.
    pub fn expect(file: &Path, document: &Node, api_version: &str, kind: &str) -> Result<Self, Faults> {
        let head = Self::read(file, document)?;
        let mut faults = Faults::NONE;
        for (name, written, wanted) in [("apiVersion", &head.api_version, api_version), ("kind", &head.kind, kind)] {
            if written != wanted {
                let field = FieldPath::of(name);
                let position = document.position_of(&field);
                let message = format!("{written:?} is not right in this file: it takes {wanted}");
                faults.push(Fault::new(field, message).in_file(file).at(position));
            }
        }
        faults.or(head)
    }

    /// The object as people call it: `AddressPool public`.
    pub fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{} {name}", self.kind),
            None => self.kind.clone(),
        }
    }
}

/// Reads a whole document of a known kind into its raw type.
///
/// # Errors
/// Every way in which its shape is not that of the type.
pub fn read<T: JsonSchema + DeserializeOwned>(file: &Path, document: &Node) -> Result<T, Faults> {
    read_part(file, document, &FieldPath::ROOT, &schema_of::<T>())
}

/// Reads the `spec` of an object of the API, and checks what is around it.
///
/// # Errors
/// Every way in which its shape is not that of the type, and a missing name.
pub fn read_spec<T: JsonSchema + DeserializeOwned>(file: &Path, document: &Node) -> Result<T, Faults> {
    // The API server checks the rest of metadata and takes no status from people.
    let around = json!({
        "type": "object",
        "properties": {
            "apiVersion": {}, "kind": {}, "status": {}, "spec": { "type": "object" },
            "metadata": {
                "type": "object",
                "properties": { "name": { "type": "string", "minLength": 1 } },
                "required": ["name"],
            },
        },
        "required": ["metadata", "spec"],
        "additionalProperties": false,
    });
    let mut faults = Faults::NONE;
    faults.take(schema::check(file, document, &FieldPath::ROOT, &around));
    let spec = document.get("spec").filter(|spec| matches!(spec.value, Value::Mapping(_)));
    match spec.and_then(|spec| faults.take(read_part(file, spec, &FieldPath::of("spec"), &schema_of::<T>()))) {
        Some(raw) => faults.or(raw),
        None => Err(faults),
    }
}

fn read_part<T: DeserializeOwned>(file: &Path, node: &Node, field: &FieldPath, schema: &Json) -> Result<T, Faults> {
    schema::check(file, node, field, schema)?;
    serde_json::from_value(node.to_json())
        .map_err(|error| Fault::new(field.clone(), error.to_string()).in_file(file).at(node.position).into())
}

/// The schema of a Rust type, unknown fields refused.
fn schema_of<T: JsonSchema>() -> Json {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value()
}
