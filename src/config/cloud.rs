//! The cloud config: the file that `--cloud-config` names.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::{self, Head};
use super::{Fault, Faults, FieldPath, document, source};

/// What the controllers have to know before they can ask the API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CloudConfig {
    /// The inventory's files and directories, found from the folder of the cloud config; not empty.
    pub inventory_files: Vec<PathBuf>,
}

/// The file's shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCloudConfig {
    api_version: String,
    kind: String,
    inventory: RawInventory,
}

/// Where the inventory is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawInventory {
    /// Files, and directories whose `*.yaml` and `*.yml` are meant.
    #[schemars(length(min = 1))]
    files: Vec<PathBuf>,
}

impl CloudConfig {
    /// `apiVersion` of the file.
    pub const API_VERSION: &str = "config.cairn.dev/v1alpha1";
    /// `kind` of the file.
    pub const KIND: &str = "CloudConfig";

    /// The JSON schema of the file.
    pub fn json_schema() -> serde_json::Value {
        object::schema_of::<RawCloudConfig>()
    }

    /// Reads the file. Whether the inventory is there is for the inventory to say.
    ///
    /// # Errors
    /// Every fault of the file.
    pub fn load(file: &Path) -> Result<Self, Faults> {
        let parsed = document::parse(file, &source::read(file)?);
        let mut faults = parsed.faults;
        let [only] = parsed.documents.as_slice() else {
            if !parsed.documents.is_empty() {
                faults.push(Fault::of_file(file, "has several documents: a cloud config takes one"));
            }
            return Err(faults);
        };
        match faults.take(Self::check(file, only)) {
            Some(config) => faults.or(config),
            None => Err(faults),
        }
    }

    /// Checks a document.
    ///
    /// # Errors
    /// Every fault of the document.
    pub fn check(file: &Path, document: &document::Node) -> Result<Self, Faults> {
        Head::expect(file, document, Self::API_VERSION, Self::KIND)?;
        object::read(file, document)?.check(|raw| Self::of_raw(raw, file, document))
    }

    fn of_raw(raw: RawCloudConfig, file: &Path, document: &document::Node) -> Result<Self, Faults> {
        let RawCloudConfig { api_version: _, kind: _, inventory } = raw;
        let folder = file.parent().unwrap_or(Path::new(""));
        let mut faults = Faults::NONE;
        for (index, path) in inventory.files.iter().enumerate() {
            let field = FieldPath::of("inventory").field("files").entry(index);
            let message = if path.as_os_str().is_empty() {
                "is empty: it takes the path of a file or directory"
            } else if inventory.files[..index].contains(path) {
                "is there twice: name each file once"
            } else {
                continue;
            };
            faults.push(Fault::new(field.clone(), message).in_file(file).at(document.position_of(&field)));
        }
        faults.or(Self { inventory_files: inventory.files.iter().map(|path| folder.join(path)).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<CloudConfig, String> {
        let file = Path::new("/etc/cairn/cloud.yaml");
        let parsed = document::parse(file, text);
        assert!(parsed.faults.is_empty(), "{}", parsed.faults);
        CloudConfig::check(file, &parsed.documents[0]).map_err(|faults| faults.to_string())
    }

    #[test]
    fn files_are_found_from_the_folder_of_the_config() {
        let config = check(
            "apiVersion: config.cairn.dev/v1alpha1\nkind: CloudConfig\ninventory: {files: [inventory.yaml, /srv/racks]}\n",
        );
        let files = ["/etc/cairn/inventory.yaml", "/srv/racks"].map(PathBuf::from).to_vec();
        assert_eq!(config, Ok(CloudConfig { inventory_files: files }));
    }

    #[test]
    fn every_fault_of_the_file_is_told() {
        assert_eq!(
            check("apiVersion: config.cairn.dev/v1\nkind: CloudConfig\ninventory: {files: []}\n"),
            Err("/etc/cairn/cloud.yaml:1:13: apiVersion: \"config.cairn.dev/v1\" is not right in this file: it takes \
                 config.cairn.dev/v1alpha1"
                .to_owned())
        );
        assert_eq!(
            check("apiVersion: config.cairn.dev/v1alpha1\nkind: CloudConfig\ninvetory: {files: []}\n"),
            Err("/etc/cairn/cloud.yaml:3:1: invetory: is not a field: did you mean inventory?\n\
                 /etc/cairn/cloud.yaml:3:19: invetory.files: is empty: it takes at least one entry"
                .to_owned())
        );
        let told = check(
            "apiVersion: config.cairn.dev/v1alpha1\nkind: CloudConfig\ninventory:\n  files:\n  - a.yaml\n  - a.yaml\n  - ''\n",
        );
        assert_eq!(
            told,
            Err("/etc/cairn/cloud.yaml:6:5: inventory.files[1]: is there twice: name each file once\n\
                 /etc/cairn/cloud.yaml:7:5: inventory.files[2]: is empty: it takes the path of a file or directory"
                .to_owned())
        );
    }
}
