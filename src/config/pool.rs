//! `AddressPool`, checked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::block::{self, AddressBlock};
use super::selector::Labels;
use super::{Fault, Faults, FieldPath, Selector, label};
use crate::api::{AddressPoolSpec, Reservation, Serves};
use crate::model::{Family, PoolName, ServiceKey};

/// The addresses that Services may get, and who gets which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The name of the `AddressPool`.
    pub name: PoolName,
    /// Its blocks as they were written; no two share an address.
    pub written: Vec<AddressBlock>,
    /// What is left of them to give out, in the same order, but for [`Self::avoids_buggy`].
    pub blocks: Vec<AddressBlock>,
    /// Whether nobody gets IPv4 addresses that end in .0 or .255.
    pub avoids_buggy: bool,
    /// Whether Services that ask for nothing particular may get an address of it.
    pub auto_assign: bool,
    /// Its place among the pools that may serve a Service: the lower goes first, none last.
    pub priority: Option<u16>,
    /// The Services that it serves; `None` is all.
    pub serves: Option<Serving>,
    /// How many addresses the Services of one namespace may have together; `None` is any number.
    pub namespace_quota: Option<u32>,
    /// For how long an address that was given back goes to nobody else.
    pub reuse_after: Duration,
    /// Addresses that are kept for one Service each, all within the blocks.
    pub reservations: BTreeMap<IpAddr, ServiceKey>,
}

/// Which Services a pool serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    namespaces: BTreeSet<String>,
    namespace_selector: Option<Selector>,
    service_selector: Option<Selector>,
}

impl Serving {
    /// Whether it serves a Service, by its namespace, the namespace's labels and its own.
    pub fn selects(&self, namespace: &str, namespace_labels: &Labels, labels: &Labels) -> bool {
        let is_any_namespace = self.namespaces.is_empty() && self.namespace_selector.is_none();
        let is_selected =
            || self.namespace_selector.as_ref().is_some_and(|selector| selector.matches(namespace_labels));
        (is_any_namespace || self.namespaces.contains(namespace) || is_selected())
            && self.service_selector.as_ref().is_none_or(|selector| selector.matches(labels))
    }

    /// What of its namespaces is not there, a sentence each.
    pub fn idle(&self, known: &BTreeMap<String, Labels>) -> Vec<String> {
        let missing = self.namespaces.iter().filter(|name| !known.contains_key(*name)).map(|name| {
            format!("spec.serves.namespaces: there is no Namespace {name}; it counts as soon as there is one")
        });
        let is_idle = |selector: &&Selector| !known.values().any(|labels| selector.matches(labels));
        let idle = self.namespace_selector.as_ref().filter(is_idle).map(|_| {
            "spec.serves.namespaceSelector takes no Namespace; one counts as soon as it has the labels".to_owned()
        });
        missing.chain(idle).collect()
    }

    /// Whether it depends on the labels of namespaces.
    pub fn looks_at_namespaces(&self) -> bool {
        self.namespace_selector.is_some()
    }
}

impl Pool {
    /// Checks what an `AddressPool` says.
    ///
    /// # Errors
    /// Every fault, with the object and the field below `spec`.
    pub fn check(name: &str, spec: &AddressPoolSpec) -> Result<Self, Faults> {
        let AddressPoolSpec {
            addresses,
            exclude,
            auto_assign,
            priority,
            serves,
            avoid_first_last,
            avoid_buggy_ips,
            namespace_quota,
            reuse_after_seconds,
            reservations,
        } = spec;
        let field = |name: &str| FieldPath::of("spec").field(name);
        let mut faults = Faults::NONE;
        let pool_name = faults.take(
            name.parse::<PoolName>()
                .map_err(|error| Faults::from(Fault::new(FieldPath::of("metadata").field("name"), error.to_string()))),
        );
        let written = faults.take(check_addresses(addresses, &field("addresses")));
        let blocks = written
            .as_ref()
            .and_then(|written| faults.take(check_exclude(written, exclude, *avoid_first_last, &field("exclude"))));
        let serves = serves.as_ref().map(|serves| check_serves(serves, &field("serves")));
        let serves = serves.and_then(|serves| faults.take(serves));
        let is_given = |address: IpAddr| {
            let is_avoided = *avoid_buggy_ips && block::is_buggy(address);
            // A fault of what is excluded is told by itself.
            let given = blocks.as_ref().or(written.as_ref());
            given.is_none_or(|blocks| blocks.iter().any(|block| block.contains(address)) && !is_avoided)
        };
        let reservations = faults.take(check_reservations(reservations, is_given, &field("reservations")));
        faults.extend(number_fault(priority.map(u32::from), 1, 65_535, field("priority")));
        faults.extend(number_fault(*namespace_quota, 1, 1_000_000, field("namespaceQuota")));
        faults.extend(number_fault(Some(*reuse_after_seconds), 0, 86_400, field("reuseAfterSeconds")));
        let title =
            if name.is_empty() { "AddressPool without a name".to_owned() } else { format!("AddressPool {name}") };
        match (pool_name, written, blocks, reservations) {
            (Some(name), Some(written), Some(blocks), Some(reservations)) if faults.is_empty() => Ok(Self {
                name,
                written,
                blocks,
                avoids_buggy: *avoid_buggy_ips,
                auto_assign: *auto_assign,
                priority: *priority,
                serves,
                namespace_quota: *namespace_quota,
                reuse_after: Duration::from_secs((*reuse_after_seconds).into()),
                reservations,
            }),
            _ => Err(faults.map(|fault| fault.of_object(title.clone()))),
        }
    }

    /// Whether the address is one that this pool gives out.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.blocks.iter().any(|block| block.contains(address)) && !(self.avoids_buggy && block::is_buggy(address))
    }

    /// A block of each that share an address, if any do.
    pub fn overlap(&self, other: &Self) -> Option<(AddressBlock, AddressBlock)> {
        self.blocks
            .iter()
            .flat_map(|one| other.blocks.iter().map(move |two| (*one, *two)))
            .find(|(one, two)| one.overlaps(two))
    }
}

fn number_fault(number: Option<u32>, least: u32, most: u32, field: FieldPath) -> Option<Fault> {
    let number = number.filter(|number| !(least..=most).contains(number))?;
    Some(Fault::new(field, format!("{number} is out of range: it takes {least} to {most}")))
}

/// The blocks that can be read, with their places, and what is wrong.
fn parse_blocks(texts: &[String], field: &FieldPath) -> (Vec<(usize, AddressBlock)>, Faults) {
    let mut faults = Faults::NONE;
    let mut blocks = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        match text.parse::<AddressBlock>() {
            Ok(block) => blocks.push((index, block)),
            Err(error) => faults.push(Fault::new(field.entry(index), error.to_string())),
        }
    }
    faults.extend(overlaps(&blocks).map(|((earlier, one), (later, other))| {
        let message =
            format!("{other} shares addresses with {one} of {}: each address takes one block", field.entry(earlier));
        Fault::new(field.entry(later), message)
    }));
    (blocks, faults)
}

fn check_addresses(addresses: &[String], field: &FieldPath) -> Result<Vec<AddressBlock>, Faults> {
    if addresses.is_empty() {
        let message = "is empty: it takes at least one block, such as 10.60.0.0/24";
        return Err(Fault::new(field.clone(), message).into());
    }
    let (blocks, faults) = parse_blocks(addresses, field);
    if faults.is_empty() { Ok(blocks.into_iter().map(|(_, block)| block).collect()) } else { Err(faults) }
}

/// What is left of the blocks when nobody gets what is excluded.
fn check_exclude(
    written: &[AddressBlock],
    exclude: &[String],
    avoid_first_last: bool,
    field: &FieldPath,
) -> Result<Vec<AddressBlock>, Faults> {
    let (excluded, mut faults) = parse_blocks(exclude, field);
    let is_outside = |block: &AddressBlock| !written.iter().any(|of_pool| of_pool.overlaps(block));
    faults.extend(excluded.iter().filter(|(_, block)| is_outside(block)).map(|(index, block)| {
        let message = format!("{block} has no address of spec.addresses: it takes a part of them");
        Fault::new(field.entry(*index), message)
    }));
    let trimmed = |block: &AddressBlock| if avoid_first_last { block.inner() } else { *block };
    let excluded: Vec<_> = excluded.into_iter().map(|(_, block)| block).collect();
    let blocks = block::subtract(&written.iter().map(trimmed).collect::<Vec<_>>(), &excluded);
    if blocks.is_empty() {
        faults.push(Fault::new(field.clone(), "leaves no address: it takes a part of spec.addresses, not all of them"));
    }
    if faults.is_empty() { Ok(blocks) } else { Err(faults) }
}

fn check_serves(serves: &Serves, field: &FieldPath) -> Result<Serving, Faults> {
    let Serves { namespaces, namespace_selector, service_selector } = serves;
    let mut faults = Faults::NONE;
    if namespaces.is_empty() && namespace_selector.is_none() && service_selector.is_none() {
        let message =
            "says nothing: it takes namespaces, namespaceSelector or serviceSelector, or leave it out to serve all";
        faults.push(Fault::new(field.clone(), message));
    }
    for (index, namespace) in namespaces.iter().enumerate() {
        let field = field.field("namespaces").entry(index);
        if !label::is_dns_label(namespace) {
            faults.push(Fault::new(field, format!("{namespace:?} is not the name of a namespace, such as team-a")));
        } else if namespaces[..index].contains(namespace) {
            faults.push(Fault::new(field, format!("{namespace} is there already: each namespace takes one entry")));
        }
    }
    let mut selector = |selector: &Option<_>, name: &str| {
        let checked = selector.as_ref().map(|selector| Selector::check(selector, &field.field(name)));
        checked.and_then(|checked| faults.take(checked))
    };
    let namespace_selector = selector(namespace_selector, "namespaceSelector");
    let service_selector = selector(service_selector, "serviceSelector");
    let namespaces = namespaces.iter().cloned().collect();
    if faults.is_empty() { Ok(Serving { namespaces, namespace_selector, service_selector }) } else { Err(faults) }
}

fn check_reservations(
    reservations: &[Reservation],
    is_given: impl Fn(IpAddr) -> bool,
    field: &FieldPath,
) -> Result<BTreeMap<IpAddr, ServiceKey>, Faults> {
    let mut faults = Faults::NONE;
    let mut by_address = BTreeMap::<IpAddr, ServiceKey>::new();
    let mut of_service = BTreeMap::<(ServiceKey, Family), IpAddr>::new();
    for (index, Reservation { address, namespace, name }) in reservations.iter().enumerate() {
        let field = field.entry(index);
        let mut fault = |name: &str, message: String| faults.push(Fault::new(field.field(name), message));
        for (part, text) in [("namespace", namespace), ("name", name)] {
            if !label::is_dns_label(text) {
                fault(part, format!("{text:?} is not the {part} of a Service, such as team-a"));
            }
        }
        let Ok(ip) = address.parse::<IpAddr>() else {
            fault("address", format!("{address:?} is not an IP address such as 10.60.0.10 or fd60::10"));
            continue;
        };
        let key = ServiceKey::new(namespace.clone(), name.clone());
        if !is_given(ip) {
            fault("address", format!("{ip} is none that this pool gives out: it takes one of spec.addresses"));
        } else if let Some(other) = by_address.get(&ip) {
            fault("address", format!("{ip} is reserved for {other} already: each address takes one entry"));
        } else if let Some(other) = of_service.get(&(key.clone(), Family::of(ip))) {
            fault("address", format!("{key} has {other} reserved already: a Service takes one address of each family"));
        } else {
            of_service.insert((key.clone(), Family::of(ip)), ip);
            by_address.insert(ip, key);
        }
    }
    if faults.is_empty() { Ok(by_address) } else { Err(faults) }
}

/// Neighbours in address order that share an address, each pair in the order it was written.
fn overlaps(
    blocks: &[(usize, AddressBlock)],
) -> impl Iterator<Item = ((usize, AddressBlock), (usize, AddressBlock))> + use<> {
    let mut sorted = blocks.to_vec();
    sorted.sort_by_key(|(_, block)| *block);
    let mut reaches_furthest: Option<(usize, AddressBlock)> = None;
    let mut pairs = Vec::new();
    for next in sorted {
        if let Some(before) = reaches_furthest
            && before.1.overlaps(&next.1)
        {
            pairs.push(if before.0 < next.0 { (before, next) } else { (next, before) });
        }
        let goes_on = reaches_furthest
            .is_none_or(|(_, far)| far.family() != next.1.family() || far.last_number() < next.1.last_number());
        if goes_on {
            reaches_furthest = Some(next);
        }
    }
    pairs.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{LabelOperator, LabelRequirement, LabelSelector};

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    fn spec(addresses: &[&str]) -> AddressPoolSpec {
        AddressPoolSpec { addresses: strings(addresses), auto_assign: true, ..AddressPoolSpec::default() }
    }

    fn told(spec: &AddressPoolSpec) -> String {
        Pool::check("public", spec).expect_err("faults").to_string()
    }

    fn check(addresses: &[&str]) -> Result<Pool, String> {
        Pool::check("public", &spec(addresses)).map_err(|faults| faults.to_string())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn reserve(address: &str, namespace: &str, name: &str) -> Reservation {
        Reservation { address: address.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_pool_of_both_families_is_right() {
        let pool = check(&["10.60.0.0/24", "fd60::/64"]).expect("a pool");
        assert!(pool.contains(ip("10.60.0.255")) && pool.contains(ip("fd60::1")) && !pool.contains(ip("10.60.1.0")));
    }

    #[test]
    fn every_fault_is_told_with_its_field() {
        let told = check(&["10.60.0.0/24", "nonsense", "fd60::/64", "10.60.0.250-10.60.1.9"]).expect_err("faults");
        assert_eq!(
            told,
            "AddressPool public: spec.addresses[1]: \"nonsense\" is not a block of addresses: it takes a CIDR such as \
             10.60.0.0/24 or first and last address such as 10.60.0.10-10.60.0.99\n\
             AddressPool public: spec.addresses[3]: 10.60.0.250-10.60.1.9 shares addresses with 10.60.0.0/24 of \
             spec.addresses[0]: each address takes one block"
        );
        assert_eq!(
            check(&[]).expect_err("faults"),
            "AddressPool public: spec.addresses: is empty: it takes at least one block, such as 10.60.0.0/24"
        );
    }

    #[test]
    fn faults_of_all_fields_are_told_at_once() {
        let expression = LabelRequirement { key: "app".to_owned(), operator: LabelOperator::In, values: Vec::new() };
        let all = told(&AddressPoolSpec {
            exclude: strings(&["10.61.0.0/24", "x"]),
            priority: Some(0),
            serves: Some(Serves {
                namespaces: strings(&["a", "A", "a"]),
                service_selector: Some(LabelSelector {
                    match_expressions: vec![expression],
                    ..LabelSelector::default()
                }),
                ..Serves::default()
            }),
            namespace_quota: Some(0),
            reuse_after_seconds: 100_000,
            reservations: vec![
                reserve("10.60.0", "shop", "web"),
                reserve("10.61.0.1", "shop", "web"),
                reserve("10.60.0.9", "shop", "web"),
                reserve("10.60.0.9", "shop", "api"),
                reserve("10.60.0.10", "shop", "web"),
                reserve("10.60.0.11", "shop/x", ""),
            ],
            ..spec(&["10.60.0.0/24"])
        });
        let places: Vec<_> = all.lines().map(|line| line.split(": ").nth(1).expect("a field")).collect();
        assert_eq!(
            places,
            [
                "spec.exclude[1]",
                "spec.exclude[0]",
                "spec.serves.namespaces[1]",
                "spec.serves.namespaces[2]",
                "spec.serves.serviceSelector.matchExpressions[0].values",
                "spec.reservations[0].address",
                "spec.reservations[1].address",
                "spec.reservations[3].address",
                "spec.reservations[4].address",
                "spec.reservations[5].namespace",
                "spec.reservations[5].name",
                "spec.priority",
                "spec.namespaceQuota",
                "spec.reuseAfterSeconds",
            ],
            "{all}"
        );
    }

    #[test]
    fn what_is_excluded_and_avoided_is_not_given() {
        let pool = Pool::check(
            "public",
            &AddressPoolSpec {
                exclude: strings(&["10.60.0.2-10.60.0.9", "10.60.0.254/32"]),
                avoid_first_last: true,
                avoid_buggy_ips: true,
                ..spec(&["10.60.0.0/23", "10.61.0.0-10.61.0.1", "10.62.0.0/31", "fd60::/126"])
            },
        )
        .expect("a pool");
        for (address, want) in [
            ("10.60.0.0", false),
            ("10.60.0.1", true),
            ("10.60.0.5", false),
            ("10.60.0.254", false),
            ("10.60.0.255", false),
            ("10.60.1.0", false),
            ("10.60.1.254", true),
            ("10.61.0.0", false),
            ("10.61.0.1", true),
            ("10.62.0.1", true),
            ("fd60::", false),
            ("fd60::1", true),
            ("fd60::3", false),
        ] {
            assert_eq!(pool.contains(ip(address)), want, "{address}");
        }
        assert_eq!(pool.blocks[1].to_string(), "10.60.0.10-10.60.0.253");
        let none = AddressPoolSpec { exclude: strings(&["10.60.0.0/24"]), ..spec(&["10.60.0.0/25"]) };
        assert!(told(&none).contains("spec.exclude: leaves no address"));
        let typo =
            AddressPoolSpec { exclude: strings(&["10.06.0.1-10.6.0.2", "10.6.0.1/32"]), ..spec(&["10.60.0.0/25"]) };
        assert!(told(&typo).contains("spec.exclude[0]"), "{}", told(&typo));
    }

    #[test]
    fn a_pool_serves_by_namespace_and_by_label() {
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        };
        let select = |key: &str, value: &str| {
            Some(LabelSelector { match_labels: labels(&[(key, value)]), ..LabelSelector::default() })
        };
        let serves = |serves: Serves| {
            let spec = AddressPoolSpec { serves: Some(serves), ..spec(&["10.60.0.0/24"]) };
            Pool::check("public", &spec).expect("a pool").serves.expect("a selection")
        };
        let of = |namespaces: &[&str]| Serves { namespaces: strings(namespaces), ..Serves::default() };
        for (name, serving, want) in [
            ("the namespace", serves(of(&["a"])), true),
            ("another namespace", serves(of(&["b"])), false),
            ("the namespace's label", serves(Serves { namespace_selector: select("tier", "1"), ..of(&["b"]) }), true),
            ("another label", serves(Serves { namespace_selector: select("tier", "2"), ..of(&["b"]) }), false),
            ("the service's label", serves(Serves { service_selector: select("app", "web"), ..of(&[]) }), true),
            ("both", serves(Serves { service_selector: select("app", "web"), ..of(&["a"]) }), true),
            ("one of both", serves(Serves { service_selector: select("app", "db"), ..of(&["a"]) }), false),
            ("the other of both", serves(Serves { service_selector: select("app", "web"), ..of(&["b"]) }), false),
        ] {
            assert_eq!(serving.selects("a", &labels(&[("tier", "1")]), &labels(&[("app", "web")])), want, "{name}");
        }
        let known = BTreeMap::from([("a".to_owned(), labels(&[("tier", "1")]))]);
        let idle = |serving: Serving| serving.idle(&known).join("; ");
        assert_eq!(idle(serves(Serves { namespace_selector: select("tier", "1"), ..of(&["a"]) })), "");
        assert_eq!(
            idle(serves(Serves { namespace_selector: select("tier", "2"), ..of(&["b"]) })),
            "spec.serves.namespaces: there is no Namespace b; it counts as soon as there is one; \
             spec.serves.namespaceSelector takes no Namespace; one counts as soon as it has the labels"
        );
        let nothing = AddressPoolSpec { serves: Some(Serves::default()), ..spec(&["10.60.0.0/24"]) };
        assert!(told(&nothing).contains("spec.serves: says nothing"));
    }

    #[test]
    fn a_block_within_a_large_one_is_found_past_its_neighbours() {
        let told = check(&["10.60.0.0/16", "10.60.1.0/24", "10.60.9.0/24"]).expect_err("faults");
        assert_eq!(told.lines().count(), 2, "{told}");
    }

    #[test]
    fn pools_that_share_an_address_are_found() {
        let one = check(&["10.60.0.0/24"]).expect("a pool");
        let other = check(&["10.61.0.0/24", "10.60.0.128-10.60.2.0"]).expect("a pool");
        let (mine, theirs) = one.overlap(&other).expect("an overlap");
        assert_eq!((mine.to_string(), theirs.to_string()), ("10.60.0.0/24".into(), "10.60.0.128-10.60.2.0".into()));
        assert_eq!(one.overlap(&check(&["10.61.0.0/24"]).expect("a pool")), None);
        let spared = AddressPoolSpec { exclude: strings(&["10.60.0.128/25"]), ..spec(&["10.60.0.0/24"]) };
        let spared = Pool::check("spared", &spared).expect("a pool");
        assert_eq!(spared.overlap(&other), None, "what is excluded may be another's");
    }
}
