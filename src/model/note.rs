//! Notes: the closed set of answers to "what happened to this object, and why not?".
//!
//! One value feeds the Event, the condition, the log line and what the tools print, so they never
//! disagree. A planner makes notes; nobody else words them.

mod reason;
mod why;
mod words;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::names::{MachineId, NodeName, PoolName, ServiceKey};
use super::net::{Family, Prefix};

pub use reason::Severity;
pub use why::{KeptReason, ShareRefusal};

/// One thing to know about an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "note")]
pub enum Note {
    /// A process holds a Lease.
    BecameLeader {
        /// Its name as a holder.
        identity: String,
    },

    /// A process does not hold a Lease any more.
    StoppedLeading {
        /// Its name as a holder.
        identity: String,
    },
    /// kube-controller-manager migrates its controllers under another Lease.
    OtherMigrationLease {
        /// Its leader.
        holder: String,
        /// That Lease.
        lease: String,
        /// The one that this process stands for.
        ours: String,
    },

    /// A Node has all that the inventory knows of its machine.
    NodeSynced,
    /// The inventory cannot say which machine a Node is.
    MachineUnknown {
        /// The inventory's own words.
        why: String,
    },
    /// A Node's keys, or what it was at its first match, contradict each other.
    MachineMismatch {
        /// The inventory's own words.
        why: String,
    },
    /// A Node's machine is known, but its kubelet does not wait for a cloud provider.
    KubeletNotExternal {
        /// The machine.
        machine: MachineId,
    },
    /// The inventory's files take a machine out of service together with too many others.
    RemovalHeld {
        /// The inventory's own words.
        why: String,
    },
    /// The inventory says that a Node's machine was decommissioned.
    MachineDecommissioned,
    /// Another Node is this machine already.
    MachineTaken {
        /// The machine.
        machine: MachineId,
        /// The other Node.
        by: NodeName,
    },
    /// A Node's provider ID names another provider's machine.
    ForeignProviderId {
        /// `spec.providerID`.
        provider_id: String,
    },
    /// Neither the inventory nor the kubelet nor the agent knows an address of the Node.
    NoAddresses {
        /// The machine.
        machine: MachineId,
    },
    /// The annotation `alpha.kubernetes.io/provided-node-ip` does not parse.
    NodeIpMalformed {
        /// Its value.
        text: String,
    },
    /// The kubelet's `--node-ip` is none of the machine's addresses.
    NodeIpNotOffered {
        /// The address the kubelet was given.
        address: IpAddr,
    },

    /// A Node is being deleted: its machine was decommissioned.
    NodeDeleting {
        /// The Node.
        node: NodeName,
    },
    /// A Node could not be deleted.
    NodeDeleteFailed {
        /// The Node.
        node: NodeName,
        /// What the API server said.
        error: String,
    },
    /// A Node should go, but more than the limit would go within ten minutes.
    DeletionsHeld {
        /// How many may go.
        limit: usize,
    },
    /// A Node is not Ready, and someone works on its machine.
    MachineInMaintenance,

    /// A Node's pods cannot be reached.
    RouteNotCreated {
        /// The Node.
        node: NodeName,
        /// Its `metadata.uid`.
        uid: String,
        /// Its pod CIDRs.
        cidrs: Vec<Prefix>,
        /// What is missing.
        why: String,
    },
    /// A Node's own agent lacks routes to many other nodes.
    RoutesIncomplete {
        /// To how many.
        nodes: u32,
        /// Some of them, and why.
        such_as: Vec<String>,
    },
    /// A Node's network should be called unavailable, but more than the limit would be within ten minutes.
    RouteStormHeld {
        /// What is missing.
        why: String,
    },
    /// A Node has a pod CIDR outside `--cluster-cidr`.
    PodCidrOutsideCluster {
        /// The pod CIDR.
        cidr: Prefix,
    },
    /// There is no pod CIDR left for a Node.
    CidrNotAvailable {
        /// The Node.
        node: NodeName,
        /// The cluster CIDR that is full.
        cidr: Prefix,
        /// The length of its blocks.
        node_length: u8,
    },
    /// A Node's pod CIDRs could not be written.
    CidrAssignmentFailed {
        /// The Node.
        node: NodeName,
        /// What the API server said.
        error: String,
    },
    /// A Node has a pod CIDR that is none.
    PodCidrUnread {
        /// The entry of `spec.podCIDRs`.
        text: String,
    },
    /// A Node has a pod CIDR of the cluster CIDRs that is no block of them.
    PodCidrOddSize {
        /// The pod CIDR.
        cidr: Prefix,
        /// The length of a block.
        node_length: u8,
    },
    /// A Node has pod CIDRs, but none of a family of the cluster.
    PodCidrFamilyMissing {
        /// The family.
        family: Family,
    },
    /// Two Nodes have pod CIDRs that share addresses.
    PodCidrShared {
        /// This Node's.
        cidr: Prefix,
        /// The other Node's.
        with: Prefix,
        /// The other Node.
        by: NodeName,
    },
    /// A Node has a pod CIDR with addresses that are not for pods.
    PodCidrReserved {
        /// The pod CIDR.
        cidr: Prefix,
        /// Whose the addresses are.
        what: String,
    },
    /// Some addresses of a cluster CIDR are not for pods.
    ClusterCidrReserved {
        /// The cluster CIDR.
        cidr: Prefix,
        /// Whose the addresses are.
        what: String,
    },

    /// A Service has its addresses.
    LoadBalancerEnsured,
    /// A Service gave its addresses back.
    LoadBalancerDeleted,
    /// What is to be written to a Service could not be.
    ServiceNotWritten {
        /// What the API server said.
        error: String,
    },
    /// There is no pool to take an address from without being asked to.
    NoPool,
    /// A Service asks for a pool that does not exist.
    PoolMissing {
        /// The pool it asks for.
        pool: PoolName,
    },
    /// A Service asks for a pool whose fields are wrong.
    PoolInvalid {
        /// The pool it asks for.
        pool: PoolName,
    },
    /// Every address of the pools is in use.
    PoolExhausted {
        /// The pools that were looked at.
        pools: Vec<PoolName>,
        /// The family that was looked for.
        family: Family,
    },
    /// The pools have no addresses of a family.
    FamilyNotInPools {
        /// The pools that were looked at.
        pools: Vec<PoolName>,
        /// The family that was looked for.
        family: Family,
    },
    /// A Service asks for an address that is none.
    AddressMalformed {
        /// The field or annotation.
        field: String,
        /// Its value.
        text: String,
    },
    /// A Service asks for a pool by a name that is none.
    PoolNameMalformed {
        /// The annotation.
        field: String,
        /// Its value.
        text: String,
    },
    /// A Service admits clients by a range that is none.
    SourceRangeMalformed {
        /// The field or annotation.
        field: String,
        /// The entry that is no range.
        text: String,
    },
    /// An annotation of a Service says neither yes nor no.
    TruthMalformed {
        /// The annotation.
        field: String,
        /// What it says.
        text: String,
    },
    /// A Service asks for an address outside the pools it may use.
    AddressNotInPool {
        /// The address.
        address: IpAddr,
    },
    /// A Service asks for an address that another one has.
    AddressInUse {
        /// The address.
        address: IpAddr,
        /// Who has it.
        by: ServiceKey,
    },
    /// A Service asks for an address that a Node has.
    AddressOfNode {
        /// The address.
        address: IpAddr,
        /// The Node.
        node: NodeName,
    },
    /// A Service asks for an address of a family that is none of its own.
    AddressOfOtherFamily {
        /// The address.
        address: IpAddr,
    },
    /// A Service asks for two addresses of one family.
    TwoAddressesOfFamily {
        /// The family.
        family: Family,
    },
    /// A Service asks for the same in two places, and for different things.
    WishesContradict {
        /// The field or annotation that counts more.
        one: String,
        /// The other.
        other: String,
    },
    /// Pools give out addresses by themselves, but none of them to this Service.
    NotServed {
        /// Those that were looked at.
        pools: Vec<PoolName>,
    },
    /// A Service asks for a pool that does not serve it, or for an address of one.
    PoolNotServing {
        /// The pool.
        pool: PoolName,
    },
    /// The Services of a namespace have as many addresses of a pool as they may.
    QuotaReached {
        /// The pool.
        pool: PoolName,
        /// The namespace.
        namespace: String,
        /// `spec.namespaceQuota`.
        limit: u32,
    },
    /// A Service asks for an address that is kept for another one.
    AddressReserved {
        /// The address.
        address: IpAddr,
        /// Whom it is kept for.
        by: ServiceKey,
    },
    /// A Service asks for an address that another one gave back a short while ago.
    AddressCooling {
        /// The address.
        address: IpAddr,
        /// Who had it.
        by: ServiceKey,
    },
    /// A Service asks for an address that another one has, and cannot share it.
    AddressNotShared {
        /// The address.
        address: IpAddr,
        /// Who has it.
        by: ServiceKey,
        /// Why it is not shared.
        why: ShareRefusal,
    },
    /// A Service had an address that is another's, and may not have it any more.
    AddressLost {
        /// The address.
        address: IpAddr,
        /// Who keeps it.
        by: ServiceKey,
        /// Why they cannot both have it.
        why: ShareRefusal,
    },
    /// A Service keeps an address that it would not be given today.
    AddressKept {
        /// The address.
        address: IpAddr,
        /// Why it would not.
        why: KeptReason,
    },
}

#[cfg(test)]
mod tests;
