//! The custom resources of `cairn.dev/v1alpha1`, all cluster-scoped.
//!
//! People write [`AddressPool`], [`Advertisement`] and [`BgpPeer`]; the leader writes [`Machine`] and [`NodeRoute`], each
//! agent its own [`NodeReport`]. The CRDs in `manifests/crds/` are generated from these types. Fields hold what was
//! typed; `config` turns it into checked values and tells all faults of an object at once.

pub mod address_pool;
pub mod advertisement;
pub mod bgp_peer;
pub mod condition;
pub mod machine;
pub mod node_report;
pub mod node_route;
pub mod selector;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

pub use address_pool::{
    AddressCounts, AddressPool, AddressPoolSpec, AddressPoolStatus, CoolingAddress, Reservation, Serves,
};
pub use advertisement::{Advertisement, AdvertisementSpec, AdvertisementStatus};
pub use bgp_peer::{BgpPeer, BgpPeerSpec, BgpPeerStatus, ImportPolicy, ImportPrefix};
pub use condition::{Condition, ConditionReason, ConditionStatus, ConditionType};
pub use machine::{Machine, MachineSpec, MachineStatus, Reading, ReadingSource};
pub use node_report::{
    AdvertException, BgpReport, EntryReport, ForwardingFault, ForwardingReason, GuardReport, NoEntry, NodeReport,
    NodeReportSpec, NodeReportStatus, PeerException, Reached, RefusedEntries, RouteCarrier, RouteException,
    RouteExceptionReason, RouteReport, WitnessAnswer,
};
pub use node_route::{EntryFlag, NodeRoute, NodeRouteSpec, majority};
pub use selector::{LabelOperator, LabelRequirement, LabelSelector};

/// The API group of every custom resource.
pub const GROUP: &str = "cairn.dev";
/// Their version.
pub const VERSION: &str = "v1alpha1";
pub use crate::model::LOAD_BALANCER_CLASS;

/// Every CRD, in the order of their kinds.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        AddressPool::crd(),
        Advertisement::crd(),
        BgpPeer::crd(),
        Machine::crd(),
        NodeReport::crd(),
        NodeRoute::crd(),
    ];
    let schemas = crds.iter_mut().flat_map(|crd| &mut crd.spec.versions).filter_map(|version| version.schema.as_mut());
    schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()).for_each(drop_rust_formats);
    crds
}

/// Removes `format: uint16` and the like, which the API server does not know and warns of at each
/// apply; the bounds are in `minimum` and `maximum`.
fn drop_rust_formats(schema: &mut JSONSchemaProps) {
    schema.format.take_if(|format| format.starts_with("uint"));
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(drop_rust_formats);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        drop_rust_formats(items);
    }
}
