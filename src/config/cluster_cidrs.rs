//! `--cluster-cidr`: the addresses that pods have, a prefix for each family of the cluster.

use thiserror::Error;

use crate::model::{Family, NetError, Prefix};

/// Why `--cluster-cidr` says no cluster's prefixes, in upstream's words where it has some.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClusterCidrError {
    /// An entry is no prefix.
    #[error("--cluster-cidr: {0}")]
    NotAPrefix(#[from] NetError),
    /// Several of one family.
    #[error(
        "len of ClusterCIDRs=={count} and they are not configured as dual stack (at least one from each IPFamily): \
         --cluster-cidr takes one CIDR, or one of IPv4 and one of IPv6"
    )]
    NotDualStack {
        /// How many there are.
        count: usize,
    },
    /// More than one for each family.
    #[error("length of clusterCIDRs is:{count} more than max allowed of 2: --cluster-cidr takes one of each family")]
    TooMany {
        /// How many there are.
        count: usize,
    },
}

/// Reads `--cluster-cidr`: nothing, one prefix, or one of each family in either order.
///
/// # Errors
/// Every entry that is no prefix; else that there are too many.
pub fn cluster_cidrs(text: &str) -> Result<Vec<Prefix>, Vec<ClusterCidrError>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let prefixes = prefixes(text).map_err(|all| all.into_iter().map(ClusterCidrError::from).collect::<Vec<_>>())?;
    let count = prefixes.len();
    if count > 1 && !is_dual_stack(&prefixes) {
        return Err(vec![ClusterCidrError::NotDualStack { count }]);
    }
    if count > 2 {
        return Err(vec![ClusterCidrError::TooMany { count }]);
    }
    Ok(prefixes)
}

/// Reads prefixes with commas between. As upstream, bits beyond the length do not count.
///
/// # Errors
/// Every entry that is no prefix.
pub fn prefixes(text: &str) -> Result<Vec<Prefix>, Vec<NetError>> {
    let mut faults = Vec::new();
    let read = text.split(',').filter_map(|entry| match entry.trim().parse() {
        Ok(prefix) | Err(NetError::HostBitsSet { network: prefix, .. }) => Some(prefix),
        Err(error) => {
            faults.push(error);
            None
        }
    });
    let read = read.collect();
    if faults.is_empty() { Ok(read) } else { Err(faults) }
}

/// Whether both families are there.
pub fn is_dual_stack(prefixes: &[Prefix]) -> bool {
    let has = |family| prefixes.iter().any(|prefix| prefix.family() == family);
    has(Family::V4) && has(Family::V6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_one_prefix_or_one_of_each_family() {
        for (text, want) in [
            ("", Ok("")),
            (" ", Ok("")),
            ("10.244.0.0/16", Ok("10.244.0.0/16")),
            ("10.244.0.0/16,fd00:244::/48", Ok("10.244.0.0/16,fd00:244::/48")),
            ("fd00:244::/48, 10.244.0.0/16", Ok("fd00:244::/48,10.244.0.0/16")),
            ("1.2.3.4/24", Ok("1.2.3.0/24")),
            (
                "invalid",
                Err(
                    "--cluster-cidr: \"invalid\" is not a prefix: it takes the form address/length, such as 10.244.1.0/24 or fd00:244::/64",
                ),
            ),
            (
                "10.0.0.0/8,",
                Err(
                    "--cluster-cidr: \"\" is not a prefix: it takes the form address/length, such as 10.244.1.0/24 or fd00:244::/64",
                ),
            ),
            (
                "10.10.0.0/16,10.11.0.0/16",
                Err(
                    "len of ClusterCIDRs==2 and they are not configured as dual stack (at least one from each IPFamily): --cluster-cidr takes one CIDR, or one of IPv4 and one of IPv6",
                ),
            ),
            (
                "ace:cab:deca::/48,ace:cab:decb::/48",
                Err(
                    "len of ClusterCIDRs==2 and they are not configured as dual stack (at least one from each IPFamily): --cluster-cidr takes one CIDR, or one of IPv4 and one of IPv6",
                ),
            ),
            (
                "10.10.0.0/16,ace:cab:deca::/48,10.11.0.0/16",
                Err("length of clusterCIDRs is:3 more than max allowed of 2: --cluster-cidr takes one of each family"),
            ),
        ] {
            let read = cluster_cidrs(text);
            let got = match &read {
                Ok(prefixes) => Ok(prefixes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
                Err(faults) => Err(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
            };
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{text:?}");
        }
    }

    #[test]
    fn all_entries_that_are_no_prefixes_are_told_at_once() {
        assert_eq!(cluster_cidrs("a,10.0.0.0/8,b").map_err(|faults| faults.len()), Err(2));
    }
}
