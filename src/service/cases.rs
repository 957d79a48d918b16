//! What tests of this room begin with.

use super::pool_status::ObservedPool;
use crate::api::{AddressPoolSpec, AddressPoolStatus};
use crate::config::Pool;
pub(super) use crate::model::cases::{node, service};

/// A pool that says this, and of which nobody has anything yet.
pub(super) fn observed_pool(name: &str, spec: &AddressPoolSpec) -> ObservedPool {
    ObservedPool {
        resource_version: "3".to_owned(),
        created_seconds: 0,
        generation: Some(1),
        is_deleting: false,
        check: Pool::check(name, spec),
        blocks: Vec::new(),
        draining: Vec::new(),
        cooling: Vec::new(),
        status: AddressPoolStatus::default(),
    }
}
