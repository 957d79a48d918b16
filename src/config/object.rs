//! Documents that say what they are: `apiVersion`, `kind` and, for objects of the API, a name.

use std::path::Path;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::document::{Entry, Node, Value};
use super::schema::{self, Checked};
use super::{Fault, Faults, FieldPath, Fields};

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

    /// Of an item in a list of one kind, which says of itself only its name.
    pub fn of_item(item: &Node, api_version: String, kind: &str) -> Self {
        let name = item.get("metadata").and_then(|metadata| metadata.text("name")).map(ToOwned::to_owned);
        Self { api_version, kind: kind.to_owned(), name }
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

/// A document in its raw type, as far as its shape is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shaped<T> {
    /// The raw value; fields with a fault are left out, or empty where they are required.
    pub raw: T,
    /// Every wrong shape.
    pub faults: Faults,
    /// The fields whose shape is wrong.
    pub misshapen: Fields,
}

impl<T> Shaped<T> {
    /// Checks what the raw value means, and tells the faults of both; of a field whose shape is
    /// wrong, its meaning is nobody's concern.
    ///
    /// # Errors
    /// Every fault of shape or meaning.
    pub fn check<U>(mut self, check: impl FnOnce(T) -> Result<U, Faults>) -> Result<U, Faults> {
        let (checked, meant) = match check(self.raw) {
            Ok(checked) => (Some(checked), Faults::NONE),
            Err(faults) => (None, faults),
        };
        self.faults.extend(meant.into_iter().filter(|fault| !self.misshapen.cover(&fault.field)));
        match checked {
            Some(checked) => self.faults.or(checked),
            None => Err(self.faults),
        }
    }
}

/// Reads a whole document of a known kind.
///
/// # Errors
/// The faults, when nothing of the type can be made of the document.
pub fn read<T: JsonSchema + DeserializeOwned>(file: &Path, document: &Node) -> Result<Shaped<T>, Faults> {
    let schema = schema_of::<T>();
    if let Some(raw) = read_right(document, &schema) {
        return Ok(Shaped { raw, faults: Faults::NONE, misshapen: Fields::default() });
    }
    let checked = schema::check(file, document, &schema);
    raw(checked, || Fault::of_file(file, "").at(document.position))
}

/// Reads a value in which nothing is wrong; `schema` is that of its type.
pub fn read_right<T: DeserializeOwned>(value: &Node, schema: &Json) -> Option<T> {
    schema::fits(value, schema).then(|| T::deserialize(value).ok()).flatten()
}

/// Reads the `spec` of an object of the API, and checks what is around it.
///
/// # Errors
/// The faults, when nothing of the type can be made of the document.
pub fn read_spec<T: JsonSchema + DeserializeOwned>(file: &Path, document: &Node) -> Result<Shaped<T>, Faults> {
    let mut spec = schema_of::<T>();
    // References start at the top of the schema.
    let definitions = spec.as_object_mut().and_then(|spec| spec.remove("$defs"));
    let texts = json!({ "type": ["object", "null"], "additionalProperties": { "type": "string" } });
    // The API server checks what the rest of metadata means, and takes no status from people.
    let whole = json!({
        "type": "object",
        "properties": {
            "apiVersion": {}, "kind": {}, "status": {}, "spec": spec,
            "metadata": {
                "type": "object",
                "properties": { "name": { "type": "string", "minLength": 1 }, "labels": texts, "annotations": texts },
                "required": ["name"],
            },
        },
        "required": ["metadata", "spec"],
        "additionalProperties": false,
        "$defs": definitions,
    });
    let mut checked = schema::check(file, document, &whole);
    checked.value = checked.value["spec"].take();
    checked.faults.extend(unknown_metadata(file, document));
    raw(checked, || Fault::new(FieldPath::of("spec"), "").in_file(file).at(document.position))
}

/// Fields of `metadata` (`metav1.ObjectMeta`) beside those that people write.
const OF_THE_SERVER: [&str; 12] = [
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

fn unknown_metadata(file: &Path, document: &Node) -> Vec<Fault> {
    let entries = document.get("metadata").into_iter().flat_map(|metadata| match &metadata.value {
        Value::Mapping(entries) => &entries[..],
        _ => &[],
    });
    let known = ["annotations", "labels", "name"];
    let unknown = entries.filter(|entry| !known.contains(&&*entry.key) && !OF_THE_SERVER.contains(&&*entry.key));
    let fault = |entry: &Entry| {
        let (message, _) = schema::unknown_field(&entry.key, known.to_vec());
        let field = FieldPath::of("metadata").field(&entry.key);
        Fault::new(field, message).in_file(file).at(entry.key_position)
    };
    unknown.map(fault).collect()
}

fn raw<T: DeserializeOwned>(checked: Checked, fault: impl FnOnce() -> Fault) -> Result<Shaped<T>, Faults> {
    let Checked { value, faults, misshapen } = checked;
    match serde_json::from_value(value) {
        Ok(raw) => Ok(Shaped { raw, faults, misshapen }),
        // Either a stand-in did not serve, which its fault explains, or serde knows better.
        Err(_) if !faults.is_empty() => Err(faults),
        Err(error) => Err(Fault { message: error.to_string(), ..fault() }.into()),
    }
}

/// The schema of a Rust type, unknown fields refused.
pub fn schema_of<T: JsonSchema>() -> Json {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value()
}
