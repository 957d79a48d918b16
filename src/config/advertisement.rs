//! `Advertisement`, checked.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::last_good::{Checked, created_seconds};
use super::pool_view::PoolView;
use super::selector::{Labels, label_faults};
use super::{Fault, Faults, FieldPath, Selector, label};
use crate::api::advertisement::{AdvertisedServices, AdvertisementSpec, BgpAdvertisement, L2Advertisement};
use crate::api::{self, LabelSelector, advertisement};
use crate::model::names::NameError;
use crate::model::views::ServiceView;
use crate::model::{AdvertisementName, Community, Family, PathAttributes, PeerName, PoolName};

/// The longest name of an interface (`IFNAMSIZ` without its end).
const INTERFACE_NAME: usize = 15;

/// What is announced, by which nodes, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advertisement {
    /// The name of the object.
    pub name: AdvertisementName,
    /// What is meant.
    pub what: Advertised,
    /// The nodes that announce it.
    pub nodes: Selector,
    /// How it is announced.
    pub how: How,
}

/// What an Advertisement is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Advertised {
    /// Addresses of Services.
    Services(ServiceChoice),
    /// The pod CIDRs of each node.
    PodCidrs,
}

/// Which addresses of Services; all of it has to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceChoice {
    /// The pools that the address may be of.
    pub pools: Choice<PoolName>,
    /// The namespaces that the Service may be in; none means every namespace.
    pub namespaces: BTreeSet<String>,
    /// The Service's labels.
    pub services: Selector,
}

/// How something is announced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// To routers.
    Bgp(Bgp),
    /// On the nodes' own networks.
    L2(L2),
    /// To nobody.
    Withhold,
}

/// How something is announced to routers; what is `None` was not said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bgp {
    /// The routers.
    pub peers: Choice<PeerName>,
    /// Prefix length of IPv4 routes, 1 to 32.
    pub length_v4: Option<u8>,
    /// Prefix length of IPv6 routes, 1 to 128.
    pub length_v6: Option<u8>,
    /// Communities, of both widths.
    pub communities: BTreeSet<Community>,
    /// LOCAL_PREF.
    pub local_preference: Option<u32>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// How often the own AS number is said once more, up to [`PathAttributes::PREPEND`].
    pub prepend: Option<u8>,
}

impl Bgp {
    /// The prefix length of routes of a family, where one was said.
    pub fn length(&self, family: Family) -> Option<u8> {
        match family {
            Family::V4 => self.length_v4,
            Family::V6 => self.length_v6,
        }
    }
}

/// Where something is announced on the nodes' own networks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct L2 {
    /// The interfaces; none means each whose network holds the address.
    pub interfaces: BTreeSet<String>,
}

/// Objects by name or labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Choice<N: Ord> {
    /// Every one.
    Any,
    /// Those that have one of the names, and those that the selector takes.
    Of {
        /// The names.
        names: BTreeSet<N>,
        /// The selector, where there is one.
        selector: Option<Selector>,
    },
}

impl<N: Ord> Choice<N> {
    /// Whether the object of this name, with these labels, is one of them.
    pub fn takes(&self, name: &N, labels: &Labels) -> bool {
        match self {
            Self::Any => true,
            Self::Of { names, selector } => {
                names.contains(name) || selector.as_ref().is_some_and(|selector| selector.matches(labels))
            }
        }
    }

    /// Whether every object is one of them, also one that is none.
    pub fn is_any(&self) -> bool {
        *self == Self::Any
    }

    /// The names that are written out.
    pub fn names(&self) -> impl Iterator<Item = &N> {
        match self {
            Self::Any => None,
            Self::Of { names, .. } => Some(names.iter()),
        }
        .into_iter()
        .flatten()
    }
}

impl Advertisement {
    /// Checks an `Advertisement`.
    pub fn of(object: &api::Advertisement) -> Option<Checked<Self>> {
        let check = Self::check(object.metadata.name.as_deref()?, &object.spec);
        Some(Checked::new(check, created_seconds(object)))
    }

    /// Whether it is about an address of this Service, which is of this pool or of none.
    ///
    /// What no Advertisement selects is announced by every node that is an entry; what one or several select
    /// is announced exactly as those say.
    pub fn selects(&self, service: &ServiceView, pool: Option<&PoolView>) -> bool {
        let Advertised::Services(ServiceChoice { pools, namespaces, services }) = &self.what else { return false };
        let is_of_pool = pools.is_any() || pool.is_some_and(|pool| pools.takes(&pool.name, &pool.labels));
        let is_in_namespace = namespaces.is_empty() || namespaces.contains(service.key.namespace());
        is_of_pool && is_in_namespace && services.matches(&service.labels)
    }

    /// How it has things announced to routers, where it does.
    pub fn bgp(&self) -> Option<&Bgp> {
        match &self.how {
            How::Bgp(bgp) => Some(bgp),
            How::L2(_) | How::Withhold => None,
        }
    }

    /// How it has a node with these labels announce things to routers, where it does.
    pub fn bgp_from(&self, labels: &Labels) -> Option<&Bgp> {
        self.bgp().filter(|_| self.nodes.matches(labels))
    }

    /// Checks what an `Advertisement` says; whether the pools and peers it names exist is another matter.
    ///
    /// # Errors
    /// Every fault, with the object and the field below `spec`.
    pub fn check(name: &str, spec: &AdvertisementSpec) -> Result<Self, Faults> {
        let AdvertisementSpec { services, pod_cidrs, node_selector, bgp, l2, withhold } = spec;
        let at = FieldPath::of("spec");
        let mut faults = Faults::NONE;
        let title = format!("Advertisement {name}");
        let name = faults.take(parse_name(name, FieldPath::of("metadata").field("name")));
        let what = faults.take(check_what(services.as_ref(), pod_cidrs.as_ref(), &at));
        faults.extend(label_faults(node_selector, &at.field("nodeSelector")));
        let how = faults.take(check_how(bgp.as_ref(), l2.as_ref(), withhold.as_ref(), &at));
        if pod_cidrs.is_some() && l2.is_some() {
            let message = "is not for podCidrs: neighbours on a network ask for addresses, so write bgp or withhold";
            faults.push(Fault::new(at.field("l2"), message));
        }
        match (name, what, how) {
            (Some(name), Some(what), Some(how)) if faults.is_empty() => {
                Ok(Self { name, what, nodes: Selector::of_labels(node_selector), how })
            }
            _ => Err(faults.map(|fault| fault.of_object(title.clone()))),
        }
    }
}

fn parse_name<N: FromStr<Err = NameError>>(text: &str, field: FieldPath) -> Result<N, Faults> {
    text.parse().map_err(|error: NameError| Fault::new(field, error.to_string()).into())
}

fn check_what(
    services: Option<&AdvertisedServices>,
    pod_cidrs: Option<&advertisement::AdvertisedPodCidrs>,
    at: &FieldPath,
) -> Result<Advertised, Faults> {
    match (services, pod_cidrs) {
        (Some(services), None) => check_services(services, &at.field("services")).map(Advertised::Services),
        (None, Some(advertisement::AdvertisedPodCidrs {})) => Ok(Advertised::PodCidrs),
        (Some(_), Some(_)) => {
            Err(Fault::new(at.clone(), "is of services and of podCidrs: write one Advertisement for each").into())
        }
        (None, None) => {
            let message = "does not say what is announced: it takes services or podCidrs, where {} means all of them";
            Err(Fault::new(at.clone(), message).into())
        }
    }
}

fn check_services(services: &AdvertisedServices, at: &FieldPath) -> Result<ServiceChoice, Faults> {
    let AdvertisedServices { pools, pool_selector, namespaces, service_selector } = services;
    let mut faults = Faults::NONE;
    let pools =
        faults.take(check_choice((pools, &at.field("pools")), (pool_selector.as_ref(), &at.field("poolSelector"))));
    for (index, namespace) in namespaces.iter().enumerate() {
        if !label::is_dns_label(namespace) {
            let message = format!(
                "{namespace:?} is not the name of a namespace: it takes 1 to 63 lower-case letters, digits and '-'"
            );
            faults.push(Fault::new(at.field("namespaces").entry(index), message));
        }
    }
    let services = faults.take(check_selector(service_selector.as_ref(), &at.field("serviceSelector")));
    match (pools, services) {
        (Some(pools), Some(services)) => {
            let services = services.unwrap_or_default();
            faults.or(ServiceChoice { pools, namespaces: namespaces.iter().cloned().collect(), services })
        }
        _ => Err(faults),
    }
}

fn check_how(
    bgp: Option<&BgpAdvertisement>,
    l2: Option<&L2Advertisement>,
    withhold: Option<&advertisement::Withheld>,
    at: &FieldPath,
) -> Result<How, Faults> {
    match (bgp, l2, withhold) {
        (Some(bgp), None, None) => check_bgp(bgp, &at.field("bgp")).map(How::Bgp),
        (None, Some(l2), None) => check_l2(l2, &at.field("l2")).map(How::L2),
        (None, None, Some(advertisement::Withheld {})) => Ok(How::Withhold),
        (None, None, None) => {
            let message = "does not say how it is announced: it takes bgp, l2 or withhold, where {} is the default";
            Err(Fault::new(at.clone(), message).into())
        }
        _ => {
            let mut faults = Faults::from(Fault::new(
                at.clone(),
                "has more than one of bgp, l2 and withhold: write one Advertisement for each",
            ));
            faults.extend(bgp.and_then(|bgp| check_bgp(bgp, &at.field("bgp")).err()).into_iter().flatten());
            faults.extend(l2.and_then(|l2| check_l2(l2, &at.field("l2")).err()).into_iter().flatten());
            Err(faults)
        }
    }
}

fn check_bgp(bgp: &BgpAdvertisement, at: &FieldPath) -> Result<Bgp, Faults> {
    let BgpAdvertisement {
        peers,
        peer_selector,
        aggregation_length,
        aggregation_length_v6,
        communities,
        local_preference,
        med,
        as_path_prepend,
    } = bgp;
    let mut faults = Faults::NONE;
    let peers =
        faults.take(check_choice((peers, &at.field("peers")), (peer_selector.as_ref(), &at.field("peerSelector"))));
    for (name, length, family) in [
        ("aggregationLength", aggregation_length, Family::V4),
        ("aggregationLengthV6", aggregation_length_v6, Family::V6),
    ] {
        if let Some(length) = length.filter(|length| !(1..=family.bits()).contains(length)) {
            let message =
                format!("{length} is not a length of {family} prefixes: it takes 1 to {} bits", family.bits());
            faults.push(Fault::new(at.field(name), message));
        }
    }
    let mut checked = BTreeSet::new();
    for (index, text) in communities.iter().enumerate() {
        let community = text
            .parse::<Community>()
            .map_err(|error| Fault::new(at.field("communities").entry(index), error.to_string()));
        checked.extend(faults.take(community.map_err(Faults::from)));
    }
    if let Some(times) = as_path_prepend.filter(|times| *times > PathAttributes::PREPEND) {
        let message = format!("{times} is too often: it takes 0 to {}", PathAttributes::PREPEND);
        faults.push(Fault::new(at.field("asPathPrepend"), message));
    }
    let Some(peers) = peers else { return Err(faults) };
    faults.or(Bgp {
        peers,
        length_v4: *aggregation_length,
        length_v6: *aggregation_length_v6,
        communities: checked,
        local_preference: *local_preference,
        med: *med,
        prepend: *as_path_prepend,
    })
}

fn check_l2(l2: &L2Advertisement, at: &FieldPath) -> Result<L2, Faults> {
    let L2Advertisement { interfaces } = l2;
    // `dev_valid_name` of the kernel.
    let is_name = |name: &str| {
        (1..=INTERFACE_NAME).contains(&name.len())
            && name != "."
            && name != ".."
            && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
    };
    let wrong = interfaces.iter().enumerate().filter(|(_, name)| !is_name(name)).map(|(index, name)| {
        let message = format!(
            "{name:?} is not the name of an interface: it takes 1 to {INTERFACE_NAME} characters without '/', ':' and spaces"
        );
        Fault::new(at.field("interfaces").entry(index), message)
    });
    wrong.collect::<Faults>().or(L2 { interfaces: interfaces.iter().cloned().collect() })
}

type At<'a, T> = (T, &'a FieldPath);

fn check_choice<N: Ord + FromStr<Err = NameError>>(
    (texts, names_at): At<'_, &[String]>,
    (selector, selector_at): At<'_, Option<&LabelSelector>>,
) -> Result<Choice<N>, Faults> {
    let mut faults = Faults::NONE;
    let parsed = texts.iter().enumerate().map(|(index, text)| parse_name(text, names_at.entry(index)));
    let names: BTreeSet<N> = parsed.filter_map(|name| faults.take(name)).collect();
    match faults.take(check_selector(selector, selector_at)) {
        Some(None) if texts.is_empty() => faults.or(Choice::Any),
        Some(selector) => faults.or(Choice::Of { names, selector }),
        None => Err(faults),
    }
}

fn check_selector(selector: Option<&LabelSelector>, at: &FieldPath) -> Result<Option<Selector>, Faults> {
    selector.map(|selector| Selector::check(selector, at)).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value) -> Result<Advertisement, String> {
        let spec = serde_json::from_value(spec).expect("a spec");
        Advertisement::check("public", &spec).map_err(|faults| faults.to_string())
    }

    #[test]
    fn the_shortest_ones_take_everything() {
        let services = check(json!({ "services": {}, "bgp": {} })).expect("an Advertisement");
        let Advertised::Services(choice) = &services.what else { panic!("{services:?}") };
        assert!(choice.pools.takes(&"any".parse().expect("a name"), &Labels::new()));
        assert!(services.nodes.matches(&Labels::new()));
        let withheld = check(json!({ "podCidrs": {}, "withhold": {} })).expect("an Advertisement");
        assert_eq!((withheld.what, withheld.how), (Advertised::PodCidrs, How::Withhold));
    }

    #[test]
    fn names_and_selectors_add_up_and_an_empty_selector_takes_all() {
        let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let of = |services: Value| {
            let checked = check(json!({ "services": services, "bgp": {} })).expect("an Advertisement");
            let Advertised::Services(choice) = checked.what else { panic!("of Services") };
            let takes = |name: &str, labels: &Labels| choice.pools.takes(&name.parse().expect("a name"), labels);
            [takes("a", &labels(&[])), takes("b", &labels(&[("tier", "edge")])), takes("c", &labels(&[]))]
        };
        let edge = json!({ "matchLabels": { "tier": "edge" } });
        assert_eq!(of(json!({ "pools": ["a"] })), [true, false, false]);
        assert_eq!(of(json!({ "poolSelector": edge })), [false, true, false]);
        assert_eq!(of(json!({ "pools": ["a"], "poolSelector": edge })), [true, true, false]);
        assert_eq!(of(json!({ "poolSelector": {} })), [true, true, true]);
    }

    #[test]
    fn every_fault_is_told_at_once_with_its_field() {
        let told = check(json!({
            "services": {
                "pools": ["ok", "Not OK"],
                "namespaces": ["web", "a.b"],
                "serviceSelector": { "matchLabels": { "a b": "c" } },
            },
            "nodeSelector": { "rack": "-" },
            "bgp": {
                "peers": ["tor/a"],
                "aggregationLength": 33,
                "aggregationLengthV6": 0,
                "communities": ["64512:100", "64512", "large:1:2:3"],
                "asPathPrepend": 17,
            },
            "l2": { "interfaces": ["eth0", "a/b", "much-too-long-name"] },
        }))
        .expect_err("faults");
        let starts = [
            "spec.services.pools[1]: \"Not OK\" is not a name",
            "spec.services.namespaces[1]: \"a.b\" is not the name of a namespace",
            "spec.services.serviceSelector.matchLabels[\"a b\"]: \"a b\" is not the key of a label",
            "spec.nodeSelector.rack: \"-\" is not the value of a label",
            "spec: has more than one of bgp, l2 and withhold",
            "spec.bgp.peers[0]: \"tor/a\" is not a name",
            "spec.bgp.aggregationLength: 33 is not a length of IPv4 prefixes: it takes 1 to 32 bits",
            "spec.bgp.aggregationLengthV6: 0 is not a length of IPv6 prefixes: it takes 1 to 128 bits",
            "spec.bgp.communities[1]: \"64512\" is not a community",
            "spec.bgp.communities[2]: \"large:1:2:3\" is not a community",
            "spec.bgp.asPathPrepend: 17 is too often: it takes 0 to 16",
            "spec.l2.interfaces[1]: \"a/b\" is not the name of an interface",
            "spec.l2.interfaces[2]: \"much-too-long-name\" is not the name of an interface",
        ];
        for want in starts {
            assert!(told.contains(&format!("Advertisement public: {want}")), "{want} is not in\n{told}");
        }
        assert_eq!(told.lines().count(), starts.len(), "{told}");
    }

    #[test]
    fn what_and_how_have_to_be_said_once() {
        for (spec, want) in [
            (json!({ "bgp": {} }), "spec: does not say what is announced: it takes services or podCidrs"),
            (json!({ "services": {}, "podCidrs": {}, "bgp": {} }), "spec: is of services and of podCidrs"),
            (json!({ "services": {} }), "spec: does not say how it is announced: it takes bgp, l2 or withhold"),
            (json!({ "services": {}, "bgp": {}, "withhold": {} }), "spec: has more than one of bgp, l2 and withhold"),
            (json!({ "podCidrs": {}, "l2": {} }), "spec.l2: is not for podCidrs"),
        ] {
            let told = check(spec.clone()).expect_err("a fault");
            assert!(told.starts_with(&format!("Advertisement public: {want}")), "{spec}: {told}");
        }
    }
}
