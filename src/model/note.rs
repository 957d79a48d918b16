//! Notes: the closed set of answers to "what happened to this object, and why not?".
//!
//! One value feeds the Event, the condition, the log line and what the tools print, so they never
//! disagree. A planner makes notes; nobody else words them.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::intents::PortProtocol;
use super::names::{MachineId, NodeName, PoolName, ServiceKey};
use super::net::{Family, Prefix};

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

/// Why two Services do not share an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "refusal")]
pub enum ShareRefusal {
    /// They do not both say that they share, by the same key.
    NoCommonKey,
    /// Both have a port.
    PortTaken {
        /// Its protocol.
        protocol: PortProtocol,
        /// Its number.
        port: u16,
    },
    /// One wants traffic to stay on the node where it comes in, the other does not.
    PoliciesDiffer,
    /// Both want traffic to stay on the node, and do not select the same pods.
    SelectorsDiffer,
}

/// Why a Service would not be given the address it has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kept")]
pub enum KeptReason {
    /// No pool has it.
    InNoPool,
    /// A pool had it, and no longer gives it.
    NoLongerGiven {
        /// The pool.
        pool: PoolName,
    },
    /// Its pool does not serve the Service any more.
    NotServed {
        /// The pool.
        pool: PoolName,
    },
    /// It is kept for another Service.
    ReservedFor {
        /// The pool.
        pool: PoolName,
        /// That Service.
        service: ServiceKey,
    },
    /// Another address is kept for the Service.
    ReservedOther {
        /// That address.
        other: IpAddr,
    },
    /// The Service asks for another pool, which has none for it.
    OutsidePool {
        /// The pool it asks for.
        pool: PoolName,
    },
}

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

impl fmt::Display for ShareRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommonKey => {
                f.write_str("services share an address only with the same cairn.dev/allow-shared-ip on both")
            }
            Self::PortTaken { protocol, port } => write!(f, "both have port {port}/{protocol}"),
            Self::PoliciesDiffer => f.write_str("their spec.externalTrafficPolicy differs"),
            Self::SelectorsDiffer => f.write_str(
                "with externalTrafficPolicy Local a node serves an address only with pods of its own, and these services do not select the same pods",
            ),
        }
    }
}

impl fmt::Display for KeptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InNoPool => f.write_str("no AddressPool has it"),
            Self::NoLongerGiven { pool } => write!(f, "AddressPool {pool} no longer gives it"),
            Self::NotServed { pool } => write!(f, "AddressPool {pool} does not serve this service any more"),
            Self::ReservedFor { pool, service } => write!(f, "AddressPool {pool} reserves it for service {service}"),
            Self::ReservedOther { other } => write!(f, "{other} is reserved for this service"),
            Self::OutsidePool { pool } => write!(f, "the service asks for AddressPool {pool}"),
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

#[cfg(test)]
mod tests;
