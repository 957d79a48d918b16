//! Notes in a sentence, as people read them.

use std::fmt;

use super::{KeptReason, Note};
use crate::model::names::PoolName;

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BecameLeader { identity } => write!(f, "{identity} became leader"),
            Self::StoppedLeading { identity } => write!(f, "{identity} stopped leading"),
            Self::OtherMigrationLease { holder, lease, ours } => write!(
                f,
                "{holder}, the leader of kube-controller-manager, holds Lease {lease} as well: if that is its leaderName, it and Cairn both run the controllers that migrate; write the leaderName {ours:?} into the files of both"
            ),
            Self::NodeSynced => f.write_str("Node synced successfully"),
            Self::MachineUnknown { why } => write!(f, "the inventory cannot say which machine this is: {why}"),
            Self::MachineMismatch { why } | Self::RemovalHeld { why } => f.write_str(why),
            Self::KubeletNotExternal { machine } => write!(
                f,
                "this is machine {machine} of the inventory, but its kubelet does not run with --cloud-provider=external, so the node is left alone"
            ),
            Self::MachineDecommissioned => f.write_str("the inventory says that this machine was decommissioned"),
            Self::MachineTaken { machine, by } => write!(f, "machine {machine} is node {by} already"),
            Self::ForeignProviderId { provider_id } => {
                write!(f, "spec.providerID {provider_id:?} belongs to another provider: the node is left alone")
            }
            Self::NoAddresses { machine } => {
                write!(f, "neither the inventory's machine {machine} nor the kubelet's --node-ip nor the node's agent gives an address")
            }
            Self::NodeIpMalformed { text } => write!(
                f,
                "alpha.kubernetes.io/provided-node-ip {text:?} is not an address or one of each family: check the kubelet's --node-ip"
            ),
            Self::NodeIpNotOffered { address } => {
                write!(f, "the kubelet's --node-ip {address} is none of the machine's addresses in the inventory")
            }
            Self::NodeDeleting { node } => write!(
                f,
                "Deleting node {node} because it does not exist in the cloud provider: the inventory says that its machine was decommissioned"
            ),
            Self::NodeDeleteFailed { node, error } => write!(f, "Failed deleting node {node}: {error}"),
            Self::DeletionsHeld { limit } => write!(
                f,
                "the node's machine was decommissioned, but within ten minutes more nodes would be deleted than the limit of {limit}: none is, unless its annotation cairn.dev/acknowledge-deletion is \"true\""
            ),
            Self::MachineInMaintenance => {
                f.write_str("the node is not ready and its machine is in maintenance: the node is left as it is")
            }
            Self::RouteNotCreated { node, uid, cidrs, why } => {
                let cidrs: Vec<_> = cidrs.iter().map(ToString::to_string).collect();
                write!(f, "Could not create route {uid} {} for node {node}: {why}", cidrs.join(","))
            }
            Self::RoutesIncomplete { nodes, such_as } => write!(
                f,
                "this node lacks routes to {nodes} others, so the fault is looked for here and it is no witness of others: {}",
                such_as.join("; ")
            ),
            Self::RouteStormHeld { why } => write!(
                f,
                "{why}; but within ten minutes more than a tenth of the nodes, and more than one, would lose their network, so NetworkUnavailable stays as it is on all of them"
            ),
            Self::PodCidrOutsideCluster { cidr } => write!(
                f,
                "pod CIDR {cidr} lies outside --cluster-cidr: Cairn leaves it as it is, makes no route to it, and one that is there stays"
            ),
            Self::CidrNotAvailable { node, cidr, node_length } => write!(
                f,
                "Node {node} status is now: CIDRNotAvailable: every /{node_length} of {cidr} is in use or left out"
            ),
            Self::CidrAssignmentFailed { node, error } => {
                write!(f, "Node {node} status is now: CIDRAssignmentFailed: {error}")
            }
            Self::PodCidrUnread { text } => write!(
                f,
                "spec.podCIDRs has {text:?}, which is no prefix: whether others share its addresses cannot be said"
            ),
            Self::PodCidrOddSize { cidr, node_length } => write!(
                f,
                "spec.podCIDRs has {cidr}, which is not one of the /{node_length} of --cluster-cidr: no other node gets one that shares its addresses"
            ),
            Self::PodCidrFamilyMissing { family } => write!(
                f,
                "spec.podCIDRs has no {family} CIDR, which --cluster-cidr has: pod CIDRs never change, the node has to register again to get one"
            ),
            Self::PodCidrShared { cidr, with, by } => write!(
                f,
                "spec.podCIDRs has {cidr}, which shares addresses with {with} of node {by}: pod CIDRs never change, one of the two nodes has to register again"
            ),
            Self::PodCidrReserved { cidr, what } => write!(
                f,
                "spec.podCIDRs has {cidr}, which shares addresses with {what}: pod CIDRs never change, the node has to register again to get another"
            ),
            Self::ClusterCidrReserved { cidr, what } => write!(
                f,
                "--cluster-cidr {cidr} shares addresses with {what}: no node gets a pod CIDR that has any of these"
            ),
            Self::LoadBalancerEnsured => f.write_str("Ensured load balancer"),
            Self::LoadBalancerDeleted => f.write_str("Deleted load balancer"),
            // Upstream's words: finalizer and addresses are one write of the status.
            Self::ServiceNotWritten { error } => {
                write!(f, "Error syncing load balancer: failed to update load balancer status: {error}")
            }
            Self::NoPool => f.write_str(
                "no AddressPool gives out addresses by itself: create one, or name one in the annotation cairn.dev/address-pool",
            ),
            Self::PoolMissing { pool } => write!(f, "there is no AddressPool {pool}"),
            Self::PoolInvalid { pool } => write!(f, "AddressPool {pool} is not in use: see its conditions Ready and Conflict"),
            Self::PoolExhausted { pools, family } => {
                write!(f, "every {family} address of AddressPool {} is in use", Names(pools))
            }
            Self::FamilyNotInPools { pools, family } => {
                write!(f, "AddressPool {} has no {family} addresses", Names(pools))
            }
            Self::AddressMalformed { field, text } => {
                write!(f, "{field} {text:?} is not an IP address such as 10.60.0.10, or one of each family with a comma between")
            }
            Self::PoolNameMalformed { field, text } => write!(f, "{field} {text:?} is not the name of an AddressPool"),
            // The first half is upstream's.
            Self::SourceRangeMalformed { field, text } => write!(
                f,
                "{field}: {text:?} is not valid. Expecting a list of IP ranges. For example, 10.0.0.0/24: until it is one it admits nobody, and the service keeps the addresses it has and is given no others"
            ),
            Self::TruthMalformed { field, text } => write!(
                f,
                "{field}: {text:?} is neither true nor false: write \"true\" or \"false\"; until then the service keeps the addresses it has and is given no others"
            ),
            Self::AddressNotInPool { address } => {
                write!(f, "{address} is in no AddressPool that this service may use")
            }
            Self::AddressInUse { address, by } => write!(f, "{address} is in use by service {by}"),
            Self::AddressOfNode { address, node } => {
                write!(f, "{address} is an address of node {node}: a service takes one that no machine has")
            }
            Self::AddressOfOtherFamily { address } => {
                write!(f, "{address} is of a family that spec.ipFamilies does not name")
            }
            Self::TwoAddressesOfFamily { family } => write!(f, "a service has at most one {family} address"),
            Self::WishesContradict { one, other } => {
                write!(f, "{one} and {other} do not ask for the same: leave one of them out")
            }
            Self::NotServed { pools } => write!(
                f,
                "AddressPool {} does not serve this service: change its spec.serves or add a pool",
                Names(pools)
            ),
            Self::PoolNotServing { pool } => {
                write!(f, "AddressPool {pool} does not serve this service: see its spec.serves")
            }
            Self::QuotaReached { pool, namespace, limit } => write!(
                f,
                "the services of namespace {namespace} have {limit} addresses of AddressPool {pool} already, as many as its spec.namespaceQuota lets them"
            ),
            Self::AddressReserved { address, by } => write!(f, "{address} is reserved for service {by}"),
            Self::AddressCooling { address, by } => write!(
                f,
                "{address} was given back by service {by} a short while ago: this service gets it once the pool's spec.reuseAfterSeconds are over"
            ),
            Self::AddressNotShared { address, by, why } => {
                write!(f, "{address} is in use by service {by}: {why}")
            }
            Self::AddressLost { address, by, why } => {
                write!(f, "{address} is no longer this service's but service {by}'s: {why}")
            }
            Self::AddressKept { address, why: why @ KeptReason::InNoPool } => write!(
                f,
                "{address} is kept although {why}: make one that has it, or annotate the service with cairn.dev/readdress=true to get another one"
            ),
            Self::AddressKept { address, why } => write!(
                f,
                "{address} is kept although {why}: annotate the service with cairn.dev/readdress=true to get another one"
            ),
        }
    }
}

/// Pool names with commas between.
struct Names<'a>(&'a [PoolName]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}
