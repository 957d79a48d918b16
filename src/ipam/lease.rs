//! A claim as the API server has it: how a Lease is written for it, and read.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::claim::{self, Claim, Holder};
use crate::model::Prefix;

/// A claim that goes with its Node: the garbage collector deletes it once the Node of this uid is gone,
/// and before that no other Node may have the block.
pub(super) fn of(block: Prefix, holder: &Holder) -> Lease {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: holder.node.to_string(),
        uid: holder.uid.clone(),
        controller: None,
        block_owner_deletion: None,
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(claim::name(block)),
            labels: Some(BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "cairn".to_owned())])),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_string()),
            acquire_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    }
}

/// The view of a Lease that claims a block; none of others.
pub fn claim_of(lease: &Lease) -> Option<Claim> {
    let spec = lease.spec.as_ref();
    Some(Claim {
        block: claim::block(&lease.name_any())?,
        holder: spec.and_then(|spec| spec.holder_identity.as_ref()?.parse().ok()),
        uid: lease.uid().unwrap_or_default(),
        resource_version: lease.resource_version().unwrap_or_default(),
        acquired_microseconds: spec
            .and_then(|spec| Some(spec.acquire_time.as_ref()?.0.as_microsecond().into()))
            .unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_names_its_block_and_its_node_and_goes_with_it() {
        let holder: Holder = "n1/8f3a".parse().expect("a holder");
        let block: Prefix = "10.244.3.0/24".parse().expect("a prefix");
        let lease = of(block, &holder);
        let claim = claim_of(&lease).expect("a claim");
        assert_eq!((claim.block, claim.holder.as_ref()), (block, Some(&holder)));
        assert!(claim.acquired_microseconds > 0);
        let owner = &lease.metadata.owner_references.as_deref().expect("an owner")[0];
        assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()), ("Node", "n1", "8f3a"));
        assert_eq!(owner.block_owner_deletion, None, "that would need a right on the Node's finalizers");
    }
}
