//! What a Service asks for, read from its fields and annotations.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::model::claim::{ALLOCATION, SHARING, sharing_key};
use crate::model::scope::IGNORE;
use crate::model::views::{IpFamilyPolicy, ServiceView, TrafficPolicy};
use crate::model::{Family, Note, PoolName, PortProtocol, ServiceKey, Term, truth};

/// Spellings of the annotation that asks for particular addresses.
pub(super) const ADDRESSES: [&str; 3] =
    ["cairn.dev/load-balancer-ips", "metallb.io/loadBalancerIPs", "metallb.universe.tf/loadBalancerIPs"];
/// Spellings of the annotation that asks for a pool.
pub(super) const POOL: [&str; 3] =
    ["cairn.dev/address-pool", "metallb.io/address-pool", "metallb.universe.tf/address-pool"];
/// The annotation of a Service that may be given another address than the one it keeps.
pub(super) const READDRESS: &str = "cairn.dev/readdress";

/// What one Service has and wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The Service.
    pub key: ServiceKey,
    /// `metadata.uid`: another one of the same name is another Service.
    pub uid: String,
    /// When it was created: of those that wait, the older goes first.
    pub created_seconds: i64,
    /// Its labels, by which pools select.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The families it wants an address of, in order.
    pub families: Vec<Family>,
    /// Whether it wants all of them or nothing.
    pub needs_every_family: bool,
    /// The addresses in its status.
    pub held: Vec<IpAddr>,
    /// When it was given them, if by a leader that says so.
    pub allocation: Option<Term>,
    /// Since when it has them by its own condition, in seconds since 1970.
    pub assigned_seconds: Option<i64>,
    /// What it asks for; a note when that cannot be understood.
    pub wish: Result<Wish, Note>,
    /// Whether and with whom it shares addresses.
    pub sharing: Sharing,
    /// Whether it is to get another address in place of one that it merely keeps.
    pub may_move: bool,
}

/// What a Service asks for in particular.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// These addresses, at most one a family.
    pub addresses: Vec<IpAddr>,
    /// An address of this pool.
    pub pool: Option<PoolName>,
}

/// What decides whether two Services can have one address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sharing {
    /// Only Services of the same key share.
    pub key: Option<String>,
    /// How traffic enters.
    pub entry: Entry,
    /// Its ports.
    pub ports: BTreeSet<(PortProtocol, u16)>,
}

/// How traffic to a Service enters the cluster: on which nodes, and to which pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Entry {
    /// On every node.
    #[default]
    Cluster,
    /// On nodes with its pods, to these.
    Local {
        /// Their namespace.
        namespace: String,
        /// Their labels.
        selector: BTreeMap<String, String>,
    },
}

/// Of those that wait the oldest first: by creation, then by key.
pub type Rank = (i64, ServiceKey);

impl Request {
    /// Reads a Service's request.
    pub fn of(view: &ServiceView) -> Self {
        let families = view.ip_families.clone();
        let one_key = one_of(view, &SHARING, |text| text.trim().to_owned());
        let wish = wish(view, &families);
        Self {
            key: view.key.clone(),
            uid: view.uid.clone(),
            created_seconds: view.created_seconds,
            labels: Arc::clone(&view.labels),
            needs_every_family: view.ip_family_policy != IpFamilyPolicy::PreferDualStack,
            held: view.ingress.iter().filter_map(|entry| entry.ip).collect(),
            allocation: view.annotations.get(ALLOCATION).and_then(|text| text.parse().ok()),
            assigned_seconds: view.assigned_seconds,
            sharing: Sharing {
                // Where spellings contradict each other it shares what it has as before: the agents go by this one.
                key: sharing_key(view).map(str::to_owned),
                entry: entry(view),
                ports: view.ports.clone(),
            },
            wish: one_key.and(wish).and_then(|wish| readable_ranges(view).and(readable_truths(view)).map(|()| wish)),
            may_move: annotation_truth(view, READDRESS) == Some(true),
            families,
        }
    }

    /// Its place among those that wait.
    pub fn rank(&self) -> Rank {
        (self.created_seconds, self.key.clone())
    }

    /// Of several that hold one address, who keeps it: the highest term; of those without one, who
    /// has it longest by its condition. Never by creation.
    pub fn claim(&self) -> impl Ord + use<> {
        (Reverse(self.allocation), self.assigned_seconds.unwrap_or(i64::MAX), self.key.clone())
    }

    /// Whether it asks for particular addresses.
    pub fn is_particular(&self) -> bool {
        self.wish.as_ref().is_ok_and(|wish| !wish.addresses.is_empty())
    }
}

fn entry(view: &ServiceView) -> Entry {
    match view.external_traffic_policy {
        TrafficPolicy::Cluster => Entry::Cluster,
        TrafficPolicy::Local => {
            Entry::Local { namespace: view.key.namespace().to_owned(), selector: view.local_selector.clone() }
        }
    }
}

fn wish(view: &ServiceView, families: &[Family]) -> Result<Wish, Note> {
    let pool = one_of(view, &POOL, |text| text.trim().to_owned())?;
    let pool = pool.map(|(field, text)| {
        text.parse().map_err(|_| Note::PoolNameMalformed { field: field.to_owned(), text: text.clone() })
    });
    let by_annotation = one_of(view, &ADDRESSES, as_set)?.map(|(field, _)| (field, annotation(view, field)));
    let by_field = view.load_balancer_ip.as_deref().map(|text| ("spec.loadBalancerIP", text));
    if let (Some((one, text)), Some((other, single))) = (by_annotation, by_field)
        && !as_set(text).contains(single.trim())
    {
        return Err(Note::WishesContradict { one: one.to_owned(), other: other.to_owned() });
    }
    let addresses = match by_annotation.or(by_field) {
        Some((field, text)) => addresses(field, text, families)?,
        None => Vec::new(),
    };
    Ok(Wish { addresses, pool: pool.transpose()? })
}

fn annotation_truth(view: &ServiceView, name: &str) -> Option<bool> {
    view.annotations.get(name).and_then(|text| truth(text.trim()))
}

/// # Errors
/// When a truth value is neither: then nobody knows whether the Service is ours to serve.
fn readable_truths(view: &ServiceView) -> Result<(), Note> {
    let wrong = [IGNORE, READDRESS]
        .into_iter()
        .find(|name| view.annotations.contains_key(*name) && annotation_truth(view, name).is_none());
    match wrong {
        None => Ok(()),
        Some(name) => Err(Note::TruthMalformed { field: name.to_owned(), text: annotation(view, name).to_owned() }),
    }
}

/// # Errors
/// When a source range is none: then nobody knows whom the Service means to admit.
fn readable_ranges(view: &ServiceView) -> Result<(), Note> {
    let Some(ranges) = &view.source_ranges else { return Ok(()) };
    match ranges.unread.first() {
        None => Ok(()),
        Some(text) => Err(Note::SourceRangeMalformed { field: ranges.place.name().to_owned(), text: text.clone() }),
    }
}

/// Addresses in the spelling that all their spellings share.
fn as_set(text: &str) -> BTreeSet<String> {
    let one = |part: &str| part.trim().parse::<IpAddr>().map_or_else(|_| part.trim().to_owned(), |ip| ip.to_string());
    text.split(',').map(one).collect()
}

fn annotation<'a>(view: &'a ServiceView, name: &str) -> &'a str {
    view.annotations.get(name).map(String::as_str).unwrap_or_default()
}

/// What an annotation says under the first of its spellings that is there; empty counts as absent.
///
/// # Errors
/// When another spelling says something else.
fn one_of<T: PartialEq>(
    view: &ServiceView,
    spellings: &[&'static str],
    read: impl Fn(&str) -> T,
) -> Result<Option<(&'static str, T)>, Note> {
    let mut said = spellings
        .iter()
        .map(|name| (*name, annotation(view, name)))
        .filter(|(_, text)| !text.trim().is_empty())
        .map(|(name, text)| (name, read(text)));
    let Some((first, meant)) = said.next() else { return Ok(None) };
    match said.find(|(_, other)| *other != meant) {
        Some((other, _)) => Err(Note::WishesContradict { one: first.to_owned(), other: other.to_owned() }),
        None => Ok(Some((first, meant))),
    }
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
    use super::*;
    use crate::model::SourceRanges;
    use crate::model::cases::service;

    fn view(annotations: &[(&str, &str)], load_balancer_ip: Option<&str>) -> ServiceView {
        ServiceView {
            annotations: annotations.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            load_balancer_ip: load_balancer_ip.map(str::to_owned),
            ip_families: vec![Family::V4, Family::V6],
            ip_family_policy: IpFamilyPolicy::RequireDualStack,
            ..service("web")
        }
    }

    struct Case {
        name: &'static str,
        annotations: &'static [(&'static str, &'static str)],
        field: Option<&'static str>,
        want: Result<(&'static [&'static str], Option<&'static str>), &'static str>,
    }

    fn check(case: &Case) {
        let got = Request::of(&view(case.annotations, case.field)).wish;
        let got = got
            .map(|wish| {
                let addresses = wish.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
                (addresses, wish.pool.map(|pool| pool.to_string()))
            })
            .map_err(|note| note.to_string());
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        let want = case.want.map(|(addresses, pool)| (texts(addresses), pool.map(str::to_owned)));
        assert_eq!(got, want.map_err(str::to_owned), "{}", case.name);
    }

    #[test]
    fn a_wish_is_read_from_annotations_and_the_field() {
        for case in [
            Case { name: "nothing", annotations: &[], field: None, want: Ok((&[], None)) },
            Case { name: "the field", annotations: &[], field: Some("10.60.0.1"), want: Ok((&["10.60.0.1"], None)) },
            Case {
                name: "an annotation that says the field and more",
                annotations: &[("cairn.dev/load-balancer-ips", "10.60.0.1, fd60::2")],
                field: Some("10.60.0.1"),
                want: Ok((&["10.60.0.1", "fd60::2"], None)),
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
                name: "the same in several spellings, each its own way",
                annotations: &[
                    ("metallb.io/loadBalancerIPs", "fd60:0::2,10.60.0.2"),
                    ("cairn.dev/load-balancer-ips", "10.60.0.2, fd60::2"),
                    ("metallb.io/address-pool", "a "),
                    ("cairn.dev/address-pool", "a"),
                ],
                field: None,
                want: Ok((&["10.60.0.2", "fd60::2"], Some("a"))),
            },
            Case {
                name: "empty is absent",
                annotations: &[("cairn.dev/address-pool", " "), ("cairn.dev/load-balancer-ips", "")],
                field: None,
                want: Ok((&[], None)),
            },
        ] {
            check(&case);
        }
    }

    #[test]
    fn a_wish_that_makes_no_sense_is_refused_in_one_sentence() {
        for case in [
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
            Case {
                name: "two spellings, two addresses",
                annotations: &[
                    ("metallb.io/loadBalancerIPs", "10.60.0.1"),
                    ("cairn.dev/load-balancer-ips", "10.60.0.2"),
                ],
                field: None,
                want: Err(
                    "cairn.dev/load-balancer-ips and metallb.io/loadBalancerIPs do not ask for the same: leave one of them out",
                ),
            },
            Case {
                name: "annotation and field, two addresses",
                annotations: &[("cairn.dev/load-balancer-ips", "10.60.0.2")],
                field: Some("10.60.0.1"),
                want: Err(
                    "cairn.dev/load-balancer-ips and spec.loadBalancerIP do not ask for the same: leave one of them out",
                ),
            },
            Case {
                name: "two spellings, two pools",
                annotations: &[("metallb.io/address-pool", "a"), ("metallb.universe.tf/address-pool", "b")],
                field: None,
                want: Err(
                    "metallb.io/address-pool and metallb.universe.tf/address-pool do not ask for the same: leave one of them out",
                ),
            },
            Case {
                name: "two spellings, two keys",
                annotations: &[("cairn.dev/allow-shared-ip", "a"), ("metallb.io/allow-shared-ip", "b")],
                field: None,
                want: Err(
                    "cairn.dev/allow-shared-ip and metallb.io/allow-shared-ip do not ask for the same: leave one of them out",
                ),
            },
        ] {
            check(&case);
        }
    }

    #[test]
    fn who_shares_goes_on_while_its_keys_contradict_each_other() {
        for (annotations, want, is_refused) in [
            (&[("cairn.dev/allow-shared-ip", " a ")][..], Some("a"), false),
            (&[("cairn.dev/allow-shared-ip", ""), ("metallb.io/allow-shared-ip", "b")], Some("b"), false),
            (&[("cairn.dev/allow-shared-ip", "a"), ("metallb.io/allow-shared-ip", "b")], Some("a"), true),
            (&[], None, false),
        ] {
            let Request { sharing, wish, .. } = Request::of(&view(annotations, None));
            assert_eq!((sharing.key.as_deref(), wish.is_err()), (want, is_refused), "{annotations:?}");
        }
    }

    #[test]
    fn a_source_range_that_is_none_is_named_with_its_field() {
        let wish = |field: &[&str], annotation: Option<&str>| {
            let field: Vec<_> = field.iter().map(ToString::to_string).collect();
            let view = ServiceView { source_ranges: SourceRanges::of(&field, annotation), ..view(&[], None) };
            Request::of(&view).wish.map_err(|note| (note.event_reason(), note.to_string()))
        };
        let annotation = "service.beta.kubernetes.io/load-balancer-source-ranges";
        for (name, field, said, want) in [
            ("none", &[][..], None, None),
            ("the field wins", &["10.0.0.0/8"], Some("x"), None),
            ("spaces", &[], Some(" 10.0.0.0/8 , fd00::/8 "), None),
            ("the field", &["10.0.0.0/8", "10.0.0.1"], None, Some("spec.loadBalancerSourceRanges: \"10.0.0.1\"")),
            ("the annotation", &[], Some("10.0.0.0/8;"), Some(&*format!("{annotation}: \"10.0.0.0/8;\""))),
        ] {
            let refused = wish(field, said).err();
            assert_eq!(refused.is_some(), want.is_some(), "{name}: {refused:?}");
            if let (Some((reason, sentence)), Some(begins)) = (refused, want) {
                assert_eq!(reason, "SyncLoadBalancerFailed", "{name}");
                assert!(
                    sentence.starts_with(&format!("{begins} is not valid. Expecting a list of IP ranges.")),
                    "{name}: {sentence}"
                );
            }
        }
    }

    #[test]
    fn what_is_neither_true_nor_false_is_told_and_nothing_is_given() {
        for (text, is_ignored, is_told) in [
            ("true", true, false),
            (" True ", true, false),
            ("1", true, false),
            ("false", false, false),
            ("yes", false, true),
            ("", false, true),
        ] {
            for name in [IGNORE, READDRESS] {
                let view = view(&[(name, text)], None);
                let request = Request::of(&view);
                assert_eq!(
                    (view.is_ignored(), request.may_move),
                    (is_ignored && name == IGNORE, is_ignored && name == READDRESS)
                );
                let told = Note::TruthMalformed { field: name.to_owned(), text: text.to_owned() };
                assert_eq!(request.wish.err(), is_told.then_some(told), "{name}: {text:?}");
            }
        }
    }

    #[test]
    fn an_address_is_of_a_family_the_service_has() {
        let single = ServiceView { ip_families: vec![Family::V6], ..view(&[], Some("10.60.0.1")) };
        let address = "10.60.0.1".parse().expect("an address");
        assert_eq!(Request::of(&single).wish, Err(Note::AddressOfOtherFamily { address }));
    }

    #[test]
    fn the_higher_term_keeps_an_address_then_who_has_it_longer_and_never_the_older() {
        let with = |allocation: Option<&str>, assigned_seconds, created_seconds| Request {
            allocation: allocation.map(|text| text.parse().expect("a term")),
            ..Request::of(&ServiceView { assigned_seconds, created_seconds, ..view(&[], None) })
        };
        let order = [
            with(Some("6.1"), Some(900), 900),
            with(Some("5.9"), Some(100), 1),
            with(None, Some(200), 800),
            with(None, Some(300), 1),
            with(None, None, 0),
        ];
        assert!(order.is_sorted_by(|one, other| one.claim() < other.claim()));
    }

    #[test]
    fn sharing_is_read_with_the_way_traffic_enters() {
        let shared = view(&[("metallb.io/allow-shared-ip", " k ")], None);
        assert_eq!(Request::of(&shared).sharing.key.as_deref(), Some("k"));
        assert_eq!(Request::of(&view(&[("cairn.dev/allow-shared-ip", "")], None)).sharing.key, None);
        let selector = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let local = ServiceView {
            external_traffic_policy: TrafficPolicy::Local,
            local_selector: selector.clone(),
            ..view(&[], None)
        };
        assert_eq!(Request::of(&local).sharing.entry, Entry::Local { namespace: "default".to_owned(), selector });
    }
}
