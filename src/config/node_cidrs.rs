//! How pod CIDRs are given out to Nodes: `--allocate-node-cidrs` and the flags that belong to it.
//!
//! Rules, defaults and words are those of kube-controller-manager's `node-ipam-controller`. Where a
//! message of upstream ends, ours goes on with what would be right.

use serde::Serialize;
use thiserror::Error;

use super::cluster_cidrs::{is_dual_stack, prefixes};
use crate::model::{Family, NetError, Prefix};

/// The one type of allocator.
pub const RANGE_ALLOCATOR: &str = "RangeAllocator";
/// Upstream's limit: a kube-controller-manager that takes over again would not start beyond it.
const MOST_V6_BITS: u8 = 16;

/// The flags as they were given; 0 is a mask that was not.
#[derive(Debug, Clone, Copy)]
pub struct NodeCidrFlags<'a> {
    /// `--cidr-allocator-type`.
    pub allocator_type: &'a str,
    /// `--node-cidr-mask-size`.
    pub mask: i64,
    /// `--node-cidr-mask-size-ipv4`.
    pub mask_v4: i64,
    /// `--node-cidr-mask-size-ipv6`.
    pub mask_v6: i64,
    /// `--service-cluster-ip-range`.
    pub services: &'a str,
}

/// How pod CIDRs are given out: each Node gets one block of each cluster CIDR.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCidrs {
    /// One or two, of different families; the first is the Nodes' primary one.
    pub cluster: Vec<ClusterCidr>,
    /// Ranges of Services, at most one a family: blocks that overlap them are not given out.
    pub services: Vec<Prefix>,
}

/// A cluster CIDR and the blocks it is given out in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCidr {
    prefix: Prefix,
    node_length: u8,
}

impl ClusterCidr {
    /// Blocks of `node_length` bits, or `None` when the prefix has no such block.
    pub fn new(prefix: Prefix, node_length: u8) -> Option<Self> {
        (prefix.length()..=prefix.family().bits()).contains(&node_length).then_some(Self { prefix, node_length })
    }

    /// The addresses of all pods of this family.
    pub fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// The length of each Node's block.
    pub fn node_length(&self) -> u8 {
        self.node_length
    }

    /// Whether the prefix is one of its blocks.
    pub fn is_block(&self, prefix: Prefix) -> bool {
        prefix.length() == self.node_length && self.prefix.contains(prefix.address())
    }
}

/// What is wrong with the flags.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NodeCidrError {
    /// There is nothing to give out.
    #[error("Must specify --cluster-cidr if --allocate-node-cidrs is set")]
    NoClusterCidr,
    /// The allocator that asks a cloud.
    #[error(
        "--cidr-allocator-type is set to 'CloudAllocator' but cloud provider is not configured: it takes {RANGE_ALLOCATOR}"
    )]
    CloudAllocator,
    /// No allocator.
    #[error("--cidr-allocator-type: invalid CIDR allocator type: {given:?}: it takes {RANGE_ALLOCATOR}")]
    UnknownAllocator {
        /// The value.
        given: String,
    },
    /// One mask for two families.
    #[error(
        "usage of --node-cidr-mask-size is not allowed with dual-stack clusters: use --node-cidr-mask-size-ipv4 and \
         --node-cidr-mask-size-ipv6"
    )]
    MaskOfDualStack,
    /// A common mask and one of a family.
    #[error(
        "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size is \
         set. For dual-stack clusters please unset it and use IPFamily specific flags"
    )]
    MasksTwice,
    /// A mask of a family that the cluster does not have.
    #[error("usage of --node-cidr-mask-size-{flag} is not allowed for a single-stack {family} cluster")]
    MaskOfOtherFamily {
        /// The flag, without dashes or without what all have in common.
        flag: &'static str,
        /// The family.
        family: Family,
    },
    /// A mask that no address has.
    #[error("--{flag}={given}: a mask of {family} takes 1 to {} bits, 0 is the default of {default}", family.bits())]
    MaskOutOfRange {
        /// The flag, without dashes or without what all have in common.
        flag: &'static str,
        /// The value.
        given: i64,
        /// The family.
        family: Family,
        /// What 0 means.
        default: u8,
    },
    /// A cluster CIDR that is smaller than one block.
    #[error(
        "Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size \
         configured for CIDR family: {prefix} has no block of /{node_length}"
    )]
    ClusterTooSmall {
        /// The cluster CIDR.
        prefix: Prefix,
        /// The length of a block.
        node_length: u8,
    },
    /// An IPv6 cluster CIDR with more blocks than upstream can count.
    #[error(
        "New CIDR set failed; the node CIDR size is too big: {prefix} in blocks of /{node_length} are more than 2^16: \
         --node-cidr-mask-size-ipv6 may be at most {}", prefix.length() + MOST_V6_BITS
    )]
    TooManyBlocks {
        /// The cluster CIDR.
        prefix: Prefix,
        /// The length of a block.
        node_length: u8,
    },
    /// A Services' range that is none.
    #[error("--service-cluster-ip-range: {0}")]
    ServiceNotAPrefix(#[from] NetError),
    /// More than one of each family.
    #[error("--service-cluster-ip-range can not contain more than two entries")]
    TooManyServiceRanges,
    /// Two of one family.
    #[error(
        "serviceCIDR and secondaryServiceCIDR are not dualstack (from different IPfamiles): \
         --service-cluster-ip-range takes one of each family"
    )]
    ServicesOfOneFamily,
    /// Services have all addresses of a cluster CIDR.
    #[error("--service-cluster-ip-range {services} has all of --cluster-cidr {prefix}: no pod CIDR is left")]
    NothingLeft {
        /// The Services' range.
        services: Prefix,
        /// The cluster CIDR.
        prefix: Prefix,
    },
}

impl NodeCidrs {
    /// Checks the flags; `cluster` is what `--cluster-cidr` says, at most one prefix a family.
    ///
    /// # Errors
    /// Every fault.
    pub fn check(cluster: &[Prefix], flags: NodeCidrFlags<'_>) -> Result<Self, Vec<NodeCidrError>> {
        let mut faults = Vec::new();
        match flags.allocator_type {
            RANGE_ALLOCATOR => {}
            "CloudAllocator" => faults.push(NodeCidrError::CloudAllocator),
            other => faults.push(NodeCidrError::UnknownAllocator { given: other.to_owned() }),
        }
        let services = services(flags.services).unwrap_or_else(|all| {
            faults.extend(all);
            Vec::new()
        });
        if cluster.is_empty() {
            faults.push(NodeCidrError::NoClusterCidr);
            return Err(faults);
        }
        faults.extend(masks_together(cluster, flags));
        let mut blocks = Vec::new();
        for prefix in cluster {
            match in_blocks(*prefix, cluster.len() > 1, flags) {
                Ok(cluster) => blocks.push(cluster),
                Err(fault) => faults.push(fault),
            }
        }
        let covers = |services: &Prefix, prefix: &Prefix| {
            services.length() <= prefix.length() && services.contains(prefix.address())
        };
        for prefix in cluster {
            let nothing_left = services.iter().filter(|services| covers(services, prefix));
            faults.extend(nothing_left.map(|&services| NodeCidrError::NothingLeft { services, prefix: *prefix }));
        }
        if faults.is_empty() { Ok(Self { cluster: blocks, services }) } else { Err(faults) }
    }
}

/// DEVIATION(kube-controller-manager): a range that is none is refused, not only warned of: a typo
/// would give pods the addresses of Services.
fn services(text: &str) -> Result<Vec<Prefix>, Vec<NodeCidrError>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let read = prefixes(text).map_err(|all| all.into_iter().map(NodeCidrError::from).collect::<Vec<_>>())?;
    match read.as_slice() {
        [_, _, _, ..] => Err(vec![NodeCidrError::TooManyServiceRanges]),
        [_, _] if !is_dual_stack(&read) => Err(vec![NodeCidrError::ServicesOfOneFamily]),
        _ => Ok(read),
    }
}

/// Which of the three masks may be given for these cluster CIDRs.
fn masks_together(cluster: &[Prefix], flags: NodeCidrFlags<'_>) -> Vec<NodeCidrError> {
    let NodeCidrFlags { mask, mask_v4, mask_v6, .. } = flags;
    match cluster {
        [only] => {
            let family = only.family();
            let other = match family {
                Family::V4 => ("ipv6", mask_v6),
                Family::V6 => ("ipv4", mask_v4),
            };
            if mask != 0 && (mask_v4 != 0 || mask_v6 != 0) {
                vec![NodeCidrError::MasksTwice]
            } else if other.1 != 0 {
                vec![NodeCidrError::MaskOfOtherFamily { flag: other.0, family }]
            } else {
                Vec::new()
            }
        }
        _ if mask != 0 => vec![NodeCidrError::MaskOfDualStack],
        _ => Vec::new(),
    }
}

fn in_blocks(prefix: Prefix, is_dual: bool, flags: NodeCidrFlags<'_>) -> Result<ClusterCidr, NodeCidrError> {
    let family = prefix.family();
    let (flag, given, default) = match family {
        _ if flags.mask != 0 && !is_dual => ("node-cidr-mask-size", flags.mask, default_length(family)),
        Family::V4 => ("node-cidr-mask-size-ipv4", flags.mask_v4, default_length(family)),
        Family::V6 => ("node-cidr-mask-size-ipv6", flags.mask_v6, default_length(family)),
    };
    let node_length = match u8::try_from(given) {
        Ok(0) => default,
        Ok(length) if length <= family.bits() => length,
        _ => return Err(NodeCidrError::MaskOutOfRange { flag, given, family, default }),
    };
    if family == Family::V6 && node_length > prefix.length().saturating_add(MOST_V6_BITS) {
        return Err(NodeCidrError::TooManyBlocks { prefix, node_length });
    }
    ClusterCidr::new(prefix, node_length).ok_or(NodeCidrError::ClusterTooSmall { prefix, node_length })
}

fn default_length(family: Family) -> u8 {
    match family {
        Family::V4 => 24,
        Family::V6 => 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::cluster_cidrs;

    const GIVEN: NodeCidrFlags<'_> =
        NodeCidrFlags { allocator_type: RANGE_ALLOCATOR, mask: 0, mask_v4: 0, mask_v6: 0, services: "" };

    fn check(cluster: &str, flags: NodeCidrFlags<'_>) -> Result<Vec<String>, Vec<String>> {
        let cluster = cluster_cidrs(cluster).expect("cluster CIDRs");
        let shown = |cluster: &ClusterCidr| format!("{} {}", cluster.prefix, cluster.node_length);
        match NodeCidrs::check(&cluster, flags) {
            Ok(read) => Ok(read.cluster.iter().map(shown).collect()),
            Err(faults) => Err(faults.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn masks_are_upstreams_24_and_64_or_what_the_flags_of_the_family_say() {
        const DUAL: &str = "10.244.0.0/16,fd00:244::/48";
        for (name, cluster, flags, want) in [
            ("IPv4", "10.0.0.0/16", GIVEN, &["10.0.0.0/16 24"][..]),
            ("a /21 with mask 24 is ok", "10.0.0.0/21", NodeCidrFlags { mask: 24, ..GIVEN }, &["10.0.0.0/21 24"]),
            ("IPv6", "fd00:244::/48", GIVEN, &["fd00:244::/48 64"]),
            (
                "either family with the common flag",
                "fd00::/100",
                NodeCidrFlags { mask: 112, ..GIVEN },
                &["fd00::/100 112"],
            ),
            ("IPv4 with its own flag", "10.0.0.0/16", NodeCidrFlags { mask_v4: 25, ..GIVEN }, &["10.0.0.0/16 25"]),
            ("IPv6 with its own flag", "fd00::/56", NodeCidrFlags { mask_v6: 72, ..GIVEN }, &["fd00::/56 72"]),
            ("dual stack", DUAL, GIVEN, &["10.244.0.0/16 24", "fd00:244::/48 64"]),
            (
                "dual stack with both flags, IPv6 first",
                "fd00::/56,10.0.0.0/8",
                NodeCidrFlags { mask_v4: 26, mask_v6: 60, ..GIVEN },
                &["fd00::/56 60", "10.0.0.0/8 26"],
            ),
            ("one block", "10.0.0.0/24", GIVEN, &["10.0.0.0/24 24"]),
            ("IPv4 has no limit", "0.0.0.0/0", NodeCidrFlags { mask: 32, ..GIVEN }, &["0.0.0.0/0 32"]),
        ] {
            assert_eq!(check(cluster, flags), Ok(want.iter().map(ToString::to_string).collect()), "{name}");
        }
    }

    #[test]
    fn start_errors_are_upstreams_and_told_all_at_once() {
        const DUAL: &str = "10.10.0.0/16,ace:cab:deca::/48";
        for (name, cluster, flags, want) in [
            ("no cluster CIDR", "", GIVEN, &["Must specify --cluster-cidr if --allocate-node-cidrs is set"][..]),
            (
                "mask size with dual stack",
                DUAL,
                NodeCidrFlags { mask: 24, ..GIVEN },
                &[
                    "usage of --node-cidr-mask-size is not allowed with dual-stack clusters: use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6",
                ],
            ),
            (
                "mask size and IPv4 flag",
                "10.10.0.0/16",
                NodeCidrFlags { mask: 24, mask_v4: 24, ..GIVEN },
                &[
                    "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size is set. For dual-stack clusters please unset it and use IPFamily specific flags",
                ],
            ),
            (
                "mask size and IPv6 flag",
                "ace:cab:deca::/48",
                NodeCidrFlags { mask: 64, mask_v6: 64, ..GIVEN },
                &[
                    "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size is set. For dual-stack clusters please unset it and use IPFamily specific flags",
                ],
            ),
            (
                "IPv4 flag of an IPv6 cluster",
                "ace:cab:deca::/48",
                NodeCidrFlags { mask_v4: 24, ..GIVEN },
                &["usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster"],
            ),
            (
                "IPv6 flag of an IPv4 cluster",
                "10.10.0.0/16",
                NodeCidrFlags { mask_v6: 64, ..GIVEN },
                &["usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster"],
            ),
            (
                "10.0.0.0/26 with mask 24",
                "10.0.0.0/26",
                NodeCidrFlags { mask: 24, ..GIVEN },
                &[
                    "Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size configured for CIDR family: 10.0.0.0/26 has no block of /24",
                ],
            ),
            (
                "IPv6 /64 with mask 48",
                "ace:cab:deca::/64",
                NodeCidrFlags { mask: 48, ..GIVEN },
                &[
                    "Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size configured for CIDR family: ace:cab:deca::/64 has no block of /48",
                ],
            ),
            (
                "IPv6 with more than 2^16 blocks",
                "fd00::/40",
                GIVEN,
                &[
                    "New CIDR set failed; the node CIDR size is too big: fd00::/40 in blocks of /64 are more than 2^16: --node-cidr-mask-size-ipv6 may be at most 56",
                ],
            ),
            (
                "a mask that is none",
                "10.10.0.0/16",
                NodeCidrFlags { mask: 33, ..GIVEN },
                &["--node-cidr-mask-size=33: a mask of IPv4 takes 1 to 32 bits, 0 is the default of 24"],
            ),
            (
                "a negative mask",
                "10.10.0.0/16",
                NodeCidrFlags { mask_v4: -1, ..GIVEN },
                &["--node-cidr-mask-size-ipv4=-1: a mask of IPv4 takes 1 to 32 bits, 0 is the default of 24"],
            ),
            (
                "service primary and secondary of IPv4",
                DUAL,
                NodeCidrFlags { services: "10.1.0.0/16,10.2.0.0/16", ..GIVEN },
                &[
                    "serviceCIDR and secondaryServiceCIDR are not dualstack (from different IPfamiles): --service-cluster-ip-range takes one of each family",
                ],
            ),
            (
                "service primary and secondary of IPv6",
                DUAL,
                NodeCidrFlags { services: "ace:cab:deca::1/112,ace:cab:deca::2/112", ..GIVEN },
                &[
                    "serviceCIDR and secondaryServiceCIDR are not dualstack (from different IPfamiles): --service-cluster-ip-range takes one of each family",
                ],
            ),
            (
                "three service ranges",
                DUAL,
                NodeCidrFlags { services: "10.1.0.0/16,fd00::/112,10.2.0.0/16", ..GIVEN },
                &["--service-cluster-ip-range can not contain more than two entries"],
            ),
            (
                "Services everywhere",
                "10.10.0.0/16",
                NodeCidrFlags { services: "10.0.0.0/8", ..GIVEN },
                &["--service-cluster-ip-range 10.0.0.0/8 has all of --cluster-cidr 10.10.0.0/16: no pod CIDR is left"],
            ),
            (
                "the allocator of clouds",
                "10.10.0.0/16",
                NodeCidrFlags { allocator_type: "CloudAllocator", ..GIVEN },
                &[
                    "--cidr-allocator-type is set to 'CloudAllocator' but cloud provider is not configured: it takes RangeAllocator",
                ],
            ),
            (
                "several",
                "10.0.0.0/26,fd00::/40",
                NodeCidrFlags { allocator_type: "x", services: "y", ..GIVEN },
                &[
                    "--cidr-allocator-type: invalid CIDR allocator type: \"x\": it takes RangeAllocator",
                    "--service-cluster-ip-range: \"y\" is not a prefix: it takes the form address/length, such as 10.244.1.0/24 or fd00:244::/64",
                    "Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size configured for CIDR family: 10.0.0.0/26 has no block of /24",
                    "New CIDR set failed; the node CIDR size is too big: fd00::/40 in blocks of /64 are more than 2^16: --node-cidr-mask-size-ipv6 may be at most 56",
                ],
            ),
        ] {
            assert_eq!(check(cluster, flags), Err(want.iter().map(ToString::to_string).collect()), "{name}");
        }
    }

    #[test]
    fn the_range_of_services_may_be_a_part_of_the_cluster_cidr() {
        let cluster = cluster_cidrs("10.244.0.0/16").expect("a prefix");
        let flags = NodeCidrFlags { services: "10.244.8.0/21", ..GIVEN };
        let read = NodeCidrs::check(&cluster, flags).expect("no faults");
        assert_eq!(read.services.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.244.8.0/21"]);
    }
}
