//! The generated files in `manifests/` agree with the Rust types they are generated from.

use std::fs;
use std::path::Path;

use cairn::api;

/// `CAIRN_GENERATE=1` writes what the test would otherwise compare (`make generate`).
pub(crate) fn check_or_write(path: &Path, generated: &str) {
    if std::env::var_os("CAIRN_GENERATE").is_some() {
        fs::write(path, generated).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
    }
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(committed == generated, "{} is not up to date: run `make generate` and commit it", path.display());
}

#[test]
fn the_crds_are_those_of_the_rust_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/crds");
    for crd in api::crds() {
        let yaml = serde_saphyr::to_string(&crd).expect("a CRD is YAML");
        check_or_write(&folder.join(format!("{}.yaml", crd.spec.names.plural)), &yaml);
    }
}
