//! What a Service asks for, read from its fields and annotations.

use std::net::IpAddr;

use crate::model::views::{IpFamilyPolicy, ServiceView};
use crate::model::{Family, Note, PoolName, ServiceKey};

/// Spellings of the annotation that asks for particular addresses, the first that is there counts.
const ADDRESSES: [&str; 3] =
    ["cairn.dev/load-balancer-ips", "metallb.io/loadBalancerIPs", "metallb.universe.tf/loadBalancerIPs"];
/// Spellings of the annotation that asks for a pool.
const POOL: [&str; 3] = ["cairn.dev/address-pool", "metallb.io/address-pool", "metallb.universe.tf/address-pool"];

/// What one Service has and wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The Service.
    pub key: ServiceKey,
    /// When it was created: the older goes first.
    pub created_seconds: i64,
    /// The families it wants an address of, in order.
    pub families: Vec<Family>,
    /// Whether it wants all of them or nothing.
    pub needs_every_family: bool,
    /// The addresses in its status.
    pub held: Vec<IpAddr>,
    /// What it asks for; a note when that cannot be understood.
    pub wish: Result<Wish, Note>,
}

/// What a Service asks for in particular.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// These addresses, at most one a family.
    pub addresses: Vec<IpAddr>,
    /// An address of this pool.
    pub pool: Option<PoolName>,
}

impl Request {
    /// Reads a Service's request.
    pub fn of(view: &ServiceView) -> Self {
        let families = view.ip_families.clone();
        Self {
            key: view.key.clone(),
            created_seconds: view.created_seconds,
            needs_every_family: view.ip_family_policy != IpFamilyPolicy::PreferDualStack,
            held: view.ingress.iter().filter_map(|entry| entry.ip).collect(),
            wish: wish(view, &families),
            families,
        }
    }
}

fn wish(view: &ServiceView, families: &[Family]) -> Result<Wish, Note> {
    let pool = match annotation(view, &POOL) {
        Some((field, text)) => {
            let malformed = |_| Note::PoolNameMalformed { field: field.to_owned(), text: text.to_owned() };
            Some(text.trim().parse().map_err(malformed)?)
        }
        None => None,
    };
    let by_field = view.load_balancer_ip.as_deref().map(|text| ("spec.loadBalancerIP", text));
    let addresses = match annotation(view, &ADDRESSES).or(by_field) {
        Some((field, text)) => addresses(field, text, families)?,
        None => Vec::new(),
    };
    Ok(Wish { addresses, pool })
}

/// The value of an annotation under the first of its spellings; empty counts as absent.
fn annotation<'a>(view: &'a ServiceView, spellings: &[&'static str]) -> Option<(&'static str, &'a str)> {
    let value = |key: &&'static str| Some((*key, view.annotations.get(*key)?.as_str()));
    spellings.iter().filter_map(value).find(|(_, text)| !text.trim().is_empty())
}

fn addresses(field: &str, text: &str, families: &[Family]) -> Result<Vec<IpAddr>, Note> {
    let mut addresses = Vec::<IpAddr>::new();
    for part in text.split(',') {
        let malformed = |_| Note::AddressMalformed { field: field.to_owned(), text: text.to_owned() };
        let address: IpAddr = part.trim().parse().map_err(malformed)?;
        let family = Family::of(address);
        if !families.contains(&family) {
            return Err(Note::AddressOfOtherFamily { address });
        }
        if addresses.iter().any(|other| Family::of(*other) == family) {
            return Err(Note::TwoAddressesOfFamily { family });
        }
        addresses.push(address);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::model::views::TrafficPolicy;

    fn view(annotations: &[(&str, &str)], load_balancer_ip: Option<&str>) -> ServiceView {
        ServiceView {
            key: ServiceKey::new("default", "web"),
            uid: "uid".to_owned(),
            resource_version: "1".to_owned(),
            created_seconds: 0,
            is_deleting: false,
            is_load_balancer: true,
            class: None,
            annotations: annotations
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect::<BTreeMap<_, _>>(),
            load_balancer_ip: load_balancer_ip.map(str::to_owned),
            ip_families: vec![Family::V4, Family::V6],
            ip_family_policy: IpFamilyPolicy::RequireDualStack,
            external_traffic_policy: TrafficPolicy::Cluster,
            ports: BTreeSet::new(),
            finalizers: Vec::new(),
            ingress: Vec::new(),
            has_foreign_proxy: false,
        }
    }

    #[test]
    fn a_wish_is_read_from_annotations_and_the_field() {
        struct Case {
            name: &'static str,
            annotations: &'static [(&'static str, &'static str)],
            field: Option<&'static str>,
            want: Result<(&'static [&'static str], Option<&'static str>), &'static str>,
        }
        for case in [
            Case { name: "nothing", annotations: &[], field: None, want: Ok((&[], None)) },
            Case { name: "the field", annotations: &[], field: Some("10.60.0.1"), want: Ok((&["10.60.0.1"], None)) },
            Case {
                name: "an annotation before the field",
                annotations: &[("cairn.dev/load-balancer-ips", "10.60.0.2, fd60::2")],
                field: Some("10.60.0.1"),
                want: Ok((&["10.60.0.2", "fd60::2"], None)),
            },
            Case {
                name: "MetalLB's spellings",
                annotations: &[("metallb.io/loadBalancerIPs", "10.60.0.2"), ("metallb.io/address-pool", "a")],
                field: None,
                want: Ok((&["10.60.0.2"], Some("a"))),
            },
            Case {
                name: "MetalLB's old spellings",
                annotations: &[
                    ("metallb.universe.tf/loadBalancerIPs", "10.60.0.2"),
                    ("metallb.universe.tf/address-pool", "a"),
                ],
                field: None,
                want: Ok((&["10.60.0.2"], Some("a"))),
            },
            Case {
                name: "our spelling before MetalLB's",
                annotations: &[("metallb.io/address-pool", "a"), ("cairn.dev/address-pool", "b")],
                field: None,
                want: Ok((&[], Some("b"))),
            },
            Case {
                name: "empty is absent",
                annotations: &[("cairn.dev/address-pool", " "), ("cairn.dev/load-balancer-ips", "")],
                field: None,
                want: Ok((&[], None)),
            },
            Case {
                name: "no address",
                annotations: &[],
                field: Some("10.60.0"),
                want: Err(
                    "spec.loadBalancerIP \"10.60.0\" is not an IP address such as 10.60.0.10, or one of each family with a comma between",
                ),
            },
            Case {
                name: "two of a family",
                annotations: &[("cairn.dev/load-balancer-ips", "10.60.0.1,10.60.0.2")],
                field: None,
                want: Err("a service has at most one IPv4 address"),
            },
            Case {
                name: "no pool's name",
                annotations: &[("cairn.dev/address-pool", "My Pool")],
                field: None,
                want: Err("cairn.dev/address-pool \"My Pool\" is not the name of an AddressPool"),
            },
        ] {
            let got = Request::of(&view(case.annotations, case.field)).wish;
            let got = got
                .map(|wish| {
                    (
                        wish.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                        wish.pool.map(|pool| pool.to_string()),
                    )
                })
                .map_err(|note| note.to_string());
            let want = case
                .want
                .map(|(addresses, pool)| (addresses.iter().map(ToString::to_string).collect(), pool.map(str::to_owned)))
                .map_err(str::to_owned);
            assert_eq!(got, want, "{}", case.name);
        }
    }

    #[test]
    fn an_address_is_of_a_family_the_service_has() {
        let single = ServiceView { ip_families: vec![Family::V6], ..view(&[], Some("10.60.0.1")) };
        let address = "10.60.0.1".parse().expect("an address");
        assert_eq!(Request::of(&single).wish, Err(Note::AddressOfOtherFamily { address }));
    }
}
