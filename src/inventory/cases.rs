//! What tests of this room begin with.

use super::matching::NodeIdentity;

/// A Node that says no more of itself than this.
pub(super) fn node(name: &str, provider_id: Option<&str>, system_uuid: Option<&str>) -> NodeIdentity {
    NodeIdentity {
        name: name.parse().expect("a node name"),
        provider_id: provider_id.map(ToOwned::to_owned),
        system_uuid: system_uuid.map(ToOwned::to_owned),
        internal_ips: Vec::new(),
        first_machine: None,
        first_uuid: None,
    }
}
