//! Notes in one word, for conditions, metrics, logs and Events, and how much they weigh.

use serde::{Deserialize, Serialize};

use super::Note;

/// Whether someone has to do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// All is well.
    Normal,
    /// Something is not as it should be.
    Warning,
}

impl Note {
    /// The note in one word of the closed set: for conditions, metrics and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            // client-go's reason.
            Self::BecameLeader { .. } | Self::StoppedLeading { .. } => "LeaderElection",
            Self::OtherMigrationLease { .. } => "OtherMigrationLease",
            Self::NodeSynced => "Synced",
            Self::MachineUnknown { .. } => "MachineUnknown",
            Self::MachineMismatch { .. } => "MachineMismatch",
            Self::KubeletNotExternal { .. } => "KubeletNotExternal",
            Self::RemovalHeld { .. } => "RemovalHeld",
            Self::MachineDecommissioned => "MachineDecommissioned",
            Self::MachineTaken { .. } => "MachineTaken",
            Self::ForeignProviderId { .. } => "ForeignProviderID",
            Self::NoAddresses { .. } => "NoAddresses",
            Self::NodeIpMalformed { .. } => "NodeIPMalformed",
            Self::NodeIpNotOffered { .. } => "NodeIPNotOffered",
            Self::NodeDeleting { .. } => "DeletingNode",
            Self::NodeDeleteFailed { .. } => "DeletingNodeFailed",
            Self::DeletionsHeld { .. } => "DeletionsHeld",
            Self::MachineInMaintenance => "MachineInMaintenance",
            // Upstream's reason.
            Self::RouteNotCreated { .. } => "FailedToCreateRoute",
            Self::RoutesIncomplete { .. } => "RoutesIncomplete",
            Self::RouteStormHeld { .. } => "RouteStormHeld",
            Self::PodCidrOutsideCluster { .. } => "PodCIDROutsideCluster",
            // Upstream's words for the first two.
            Self::CidrNotAvailable { .. } => "CIDRNotAvailable",
            Self::CidrAssignmentFailed { .. } => "CIDRAssignmentFailed",
            Self::PodCidrUnread { .. } => "PodCIDRUnread",
            Self::PodCidrOddSize { .. } => "PodCIDROddSize",
            Self::PodCidrFamilyMissing { .. } => "PodCIDRFamilyMissing",
            Self::PodCidrShared { .. } => "PodCIDRShared",
            Self::PodCidrReserved { .. } => "PodCIDRReserved",
            Self::ClusterCidrReserved { .. } => "ClusterCIDRReserved",
            Self::LoadBalancerEnsured => "EnsuredLoadBalancer",
            Self::LoadBalancerDeleted => "DeletedLoadBalancer",
            Self::ServiceNotWritten { .. } => "ServiceNotWritten",
            Self::NoPool => "NoPool",
            Self::PoolMissing { .. } => "PoolMissing",
            Self::PoolInvalid { .. } => "PoolInvalid",
            Self::PoolExhausted { .. } => "PoolExhausted",
            Self::FamilyNotInPools { .. } => "FamilyNotInPools",
            Self::AddressMalformed { .. } => "AddressMalformed",
            Self::PoolNameMalformed { .. } => "PoolNameMalformed",
            Self::SourceRangeMalformed { .. } => "SourceRangeMalformed",
            Self::TruthMalformed { .. } => "TruthMalformed",
            Self::AddressNotInPool { .. } => "AddressNotInPool",
            Self::AddressInUse { .. } => "AddressInUse",
            Self::AddressOfNode { .. } => "AddressOfNode",
            Self::AddressOfOtherFamily { .. } => "AddressOfOtherFamily",
            Self::TwoAddressesOfFamily { .. } => "TwoAddressesOfFamily",
            Self::WishesContradict { .. } => "WishesContradict",
            Self::NotServed { .. } => "NotServed",
            Self::PoolNotServing { .. } => "PoolNotServing",
            Self::QuotaReached { .. } => "QuotaReached",
            Self::AddressReserved { .. } => "AddressReserved",
            Self::AddressCooling { .. } => "AddressCooling",
            Self::AddressNotShared { .. } => "AddressNotShared",
            Self::AddressLost { .. } => "AddressLost",
            Self::AddressKept { .. } => "AddressKept",
        }
    }

    /// The reason of the note's Event.
    ///
    /// What a Service is refused has upstream's one reason, which dashboards and alerts know.
    pub fn event_reason(&self) -> &'static str {
        match self {
            Self::ServiceNotWritten { .. }
            | Self::NoPool
            | Self::PoolMissing { .. }
            | Self::PoolInvalid { .. }
            | Self::PoolExhausted { .. }
            | Self::FamilyNotInPools { .. }
            | Self::AddressMalformed { .. }
            | Self::PoolNameMalformed { .. }
            | Self::SourceRangeMalformed { .. }
            | Self::TruthMalformed { .. }
            | Self::AddressNotInPool { .. }
            | Self::AddressInUse { .. }
            | Self::AddressOfNode { .. }
            | Self::AddressOfOtherFamily { .. }
            | Self::TwoAddressesOfFamily { .. }
            | Self::WishesContradict { .. }
            | Self::NotServed { .. }
            | Self::PoolNotServing { .. }
            | Self::QuotaReached { .. }
            | Self::AddressReserved { .. }
            | Self::AddressCooling { .. }
            | Self::AddressNotShared { .. } => "SyncLoadBalancerFailed",
            other => other.reason(),
        }
    }

    /// Whether someone has to do something.
    pub fn severity(&self) -> Severity {
        match self {
            Self::BecameLeader { .. }
            | Self::StoppedLeading { .. }
            | Self::NodeSynced
            | Self::NodeDeleting { .. }
            | Self::MachineInMaintenance
            | Self::LoadBalancerEnsured
            | Self::LoadBalancerDeleted => Severity::Normal,
            _ => Severity::Warning,
        }
    }
}
