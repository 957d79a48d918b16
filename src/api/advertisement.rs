//! `Advertisement`: what of the addresses of Services and of pods is announced, to whom and how.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, LabelSelector};

/// How the addresses of Services, or the nodes' pod CIDRs, are announced.
///
/// What no Advertisement selects is announced as it would be without any: each address of a Service
/// by itself, each node's pod CIDRs as they are, to every peer. What one or several select is announced
/// exactly as those say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "cairn.dev",
    version = "v1alpha1",
    kind = "Advertisement",
    plural = "advertisements",
    shortname = "adv",
    category = "cairn",
    status = "AdvertisementStatus",
    doc = "How the addresses of Services, or the nodes' pod CIDRs, are announced. What no Advertisement selects is announced to every peer, each address by itself and pod CIDRs as they are.",
    printcolumn(name = "Pools", type_ = "string", json_path = ".spec.services.pools"),
    printcolumn(name = "Peers", type_ = "string", json_path = ".spec.bgp.peers"),
    printcolumn(name = "Communities", type_ = "string", json_path = ".spec.bgp.communities"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(
        name = "Resolved",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='ResolvedRefs')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.services) != has(self.podCidrs)")
    .message("an Advertisement is of services or of podCidrs: write exactly one of the two; {} takes all of them"))]
#[x_kube(validation = Rule::new("[has(self.bgp), has(self.l2), has(self.withhold)].filter(is, is).size() == 1")
    .message("write exactly one of bgp, l2 and withhold; {} is each one's default"))]
#[x_kube(validation = Rule::new("!(has(self.podCidrs) && has(self.l2))")
    .message("podCidrs are announced by bgp: neighbours on a network ask for addresses, not for CIDRs")
    .field_path(".l2"))]
pub struct AdvertisementSpec {
    /// The addresses of Services that are meant; `{}` is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<AdvertisedServices>,
    /// The nodes' pod CIDRs are meant: `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_cidrs: Option<AdvertisedPodCidrs>,
    /// Labels of the nodes that announce them; none means every node that is an entry for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Announces them to routers, by BGP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<BgpAdvertisement>,
    /// Answers for them on the nodes' own networks, by ARP and NDP. Checked, and not acted upon yet: what
    /// only this selects is not announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<L2Advertisement>,
    /// Announces them to nobody, unless another Advertisement selects them too: `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withhold: Option<Withheld>,
}

/// Which addresses of Services; all that is said has to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdvertisedServices {
    /// Names of `AddressPool`s; addresses of these and of those that `poolSelector` takes. Without either,
    /// addresses of any pool, and of none. Up to 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    pub pools: Vec<String>,
    /// `AddressPool`s by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_selector: Option<LabelSelector>,
    /// Namespaces of the Services; none means every namespace. Up to 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 63)))]
    pub namespaces: Vec<String>,
    /// Services by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_selector: Option<LabelSelector>,
}

/// The pod CIDRs of each node that announces; there is nothing to choose.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedPodCidrs {}

/// Nothing to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Withheld {}

/// How something is announced to routers.
///
/// Where several Advertisements announce one prefix to one router, it has the communities of all of them,
/// the highest `localPreference`, the lowest `med` and the lowest `asPathPrepend` that any of them names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpAdvertisement {
    /// Names of `BgpPeer`s; they are told by these and by those that `peerSelector` takes. Without either,
    /// every peer is told. Up to 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    pub peers: Vec<String>,
    /// `BgpPeer`s by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_selector: Option<LabelSelector>,
    /// Prefix length of IPv4 routes, 1 to 32 bits; without it 32 for addresses, and pod CIDRs as they are. A
    /// shorter one announces the network around an address as long as one address in it is announced. It never
    /// reaches beyond one block of the address's pool: a block that is smaller is announced as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub aggregation_length: Option<u8>,
    /// Prefix length of IPv6 routes, 1 to 128 bits; without it 128 for addresses, and pod CIDRs as they are.
    #[serde(default, rename = "aggregationLengthV6", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub aggregation_length_v6: Option<u8>,
    /// Communities: `64512:100` (RFC 1997), `64512:1:2` (large ones, RFC 8092), or a name: `no-export`,
    /// `no-advertise`, `no-export-subconfed`, `no-peer`, `blackhole`, `graceful-shutdown`, `accept-own`. Up to 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(validation = Rule::new(
        "self.all(c, c in ['graceful-shutdown', 'accept-own', 'blackhole', 'no-export', 'no-advertise', \
         'no-export-subconfed', 'no-peer'] || (c.matches('^[0-9]{1,5}:[0-9]{1,5}$') && c.split(':').all(n, int(n) <= \
         65535)) || (c.matches('^[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}$') && c.split(':').all(n, int(n) <= 4294967295)))"
    ).message("each of communities is two numbers up to 65535 such as 64512:100, three up to 4294967295 such as \
               64512:1:2, or a well-known name such as no-export"))]
    #[schemars(length(max = 32), inner(length(min = 1, max = 32)))]
    pub communities: Vec<String>,
    /// LOCAL_PREF, 0 to 4294967295, told on internal sessions only; 100 without it. The highest is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4294967295_u32))]
    pub local_preference: Option<u32>,
    /// MULTI_EXIT_DISC, 0 to 4294967295; not told without it. The lowest is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4294967295_u32))]
    pub med: Option<u32>,
    /// How often the nodes' AS number stands in AS_PATH once more, 0 to 16, on external sessions only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub as_path_prepend: Option<u8>,
}

/// How something is announced on the nodes' own networks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct L2Advertisement {
    /// Names of the interfaces to answer on; none means each whose network holds the address. Up to 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 15)))]
    pub interfaces: Vec<String>,
}

/// What Cairn says of an Advertisement.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdvertisementStatus {
    /// `Ready`: every field is right and the Advertisement is in force. `ResolvedRefs`: each pool, peer and namespace it
    /// names exists, and its selectors, also that of nodes, take some. `Conflict`: another one says something else of the same
    /// routes.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
