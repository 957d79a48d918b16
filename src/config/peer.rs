//! `BgpPeer`, checked.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::selector::label_faults;
use super::{Fault, Faults, FieldPath};
use crate::api::{BgpPeerSpec, ImportPolicy, ImportPrefix};
use crate::model::{Asn, PeerName, Prefix};

/// The most routes that a node takes from a router.
const MAX_PREFIXES: u32 = 100_000;
/// The most own AS numbers in a path, as routers have it.
const MAX_OWN_AS: u8 = 10;

/// A router, and which nodes keep a session with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The name of the `BgpPeer`.
    pub name: PeerName,
    /// Our AS number.
    pub local_asn: Asn,
    /// The router's AS number.
    pub peer_asn: Asn,
    /// The router's address: one host, not loopback, not IPv6 link-local.
    pub address: IpAddr,
    /// The router's TCP port, not 0.
    pub port: u16,
    /// Silence after which the session counts as dead, 3 s or more; `None` is never.
    pub hold_time: Option<Duration>,
    /// Labels a node has to have, all of them; none means every node.
    pub node_selector: BTreeMap<String, String>,
    /// Which of its routes are taken.
    pub import: Import,
    /// Labels of the `BgpPeer` itself.
    pub labels: BTreeMap<String, String>,
}

impl Peer {
    /// Checks what a `BgpPeer` says.
    ///
    /// # Errors
    /// Every fault, with the object and the field below `spec`.
    pub fn check(name: &str, spec: &BgpPeerSpec) -> Result<Self, Faults> {
        let BgpPeerSpec { local_asn, peer_asn, address, port, hold_time_seconds, import, node_selector } = spec;
        let field = |name: &str| FieldPath::of("spec").field(name);
        let mut faults = Faults::NONE;
        let name = faults.take(
            name.parse::<PeerName>()
                .map_err(|error| Faults::from(Fault::new(FieldPath::of("metadata").field("name"), error.to_string()))),
        );
        let local_asn = faults.take(check_asn(*local_asn, field("localAsn")));
        let peer_asn = faults.take(check_asn(*peer_asn, field("peerAsn")));
        let address = faults.take(check_address(address, field("address")));
        if *port == 0 {
            faults.push(Fault::new(field("port"), "0 is not a port: it takes 1 to 65535, as a rule 179"));
        }
        let hold_time = faults.take(check_hold_time(*hold_time_seconds, field("holdTimeSeconds")));
        let import = faults.take(check_import(import.as_ref(), &field("import")));
        faults.extend(label_faults(node_selector, &field("nodeSelector")));
        let object = name.as_ref().map_or("BgpPeer without a name".to_owned(), |name| format!("BgpPeer {name}"));
        match (name, local_asn, peer_asn, address, hold_time, import) {
            (Some(name), Some(local_asn), Some(peer_asn), Some(address), Some(hold_time), Some(import))
                if faults.is_empty() =>
            {
                let (port, node_selector) = (*port, node_selector.clone());
                let labels = BTreeMap::new();
                Ok(Self { name, local_asn, peer_asn, address, port, hold_time, node_selector, import, labels })
            }
            _ => Err(faults.map(|fault| fault.of_object(object.clone()))),
        }
    }

    /// The same, with the labels that its object has.
    pub fn with_labels(self, labels: &BTreeMap<String, String>) -> Self {
        Self { labels: labels.clone(), ..self }
    }

    /// Whether a node with these labels keeps a session with this router.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// Whether the router is of our own AS, which makes the session an internal one.
    pub fn is_internal(&self) -> bool {
        self.local_asn == self.peer_asn
    }

    /// Whether both name one router: the same address and port.
    pub fn is_same_router(&self, other: &Self) -> bool {
        (self.address, self.port) == (other.address, other.port)
    }

    /// Whether a node may have the labels that both ask for.
    pub fn may_meet(&self, other: &Self) -> bool {
        let is_open =
            |(key, value): (&String, &String)| other.node_selector.get(key).is_none_or(|theirs| theirs == value);
        self.node_selector.iter().all(is_open)
    }

    /// What is wrong with this one where `other` names the same router for the same node.
    pub fn doubles(&self, other: &Self) -> String {
        format!(
            "{} with port {} is the router of BgpPeer {}: a node keeps one session with a router, so leave one of the two, \
             or select other nodes",
            self.address, self.port, other.name
        )
    }
}

/// Which of a router's routes are taken; the default is none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Import {
    /// What is taken, each by one of these.
    pub rules: Vec<ImportRule>,
    /// The most routes.
    pub max_prefixes: usize,
    /// How often our own AS number may stand in AS_PATH, up to 10.
    #[serde(default)]
    pub allow_own_as: u8,
}

impl Import {
    /// Whether a route to this prefix is taken.
    pub fn takes(&self, prefix: &Prefix) -> bool {
        self.rules.iter().any(|rule| rule.takes(prefix))
    }

    /// Whether no route is taken at all.
    pub fn is_nothing(&self) -> bool {
        self.rules.is_empty()
    }
}

/// Routes within a network, by their length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRule {
    network: Prefix,
    least: u8,
    most: u8,
}

impl ImportRule {
    /// Routes within `network` from `ge` to `le` bits; without either exactly that to the network.
    ///
    /// The default route is taken only by a rule that is nothing but that: one that is to take every
    /// network would otherwise hand a router everything.
    ///
    /// # Errors
    /// One sentence, when no route is meant.
    pub fn new(network: Prefix, ge: Option<u8>, le: Option<u8>) -> Result<Self, String> {
        let (length, bits) = (network.length(), network.family().bits());
        let has_range = ge.is_some() || le.is_some();
        let least = ge.unwrap_or(length).max(u8::from(has_range && length == 0));
        let most = le.unwrap_or(if ge.is_some() { bits } else { length });
        if length <= ge.unwrap_or(length) && least <= most && most <= bits {
            return Ok(Self { network, least, most });
        }
        let said = [("ge", ge), ("le", le)].into_iter().filter_map(|(name, said)| Some(format!("{name} {}", said?)));
        Err(format!(
            "{network} with {} takes no route: it takes {length} ≤ ge ≤ le ≤ {bits}, and for the default route neither",
            said.collect::<Vec<_>>().join(" and ")
        ))
    }

    fn takes(&self, prefix: &Prefix) -> bool {
        (self.least..=self.most).contains(&prefix.length()) && self.network.contains(prefix.address())
    }
}

fn check_import(policy: Option<&ImportPolicy>, field: &FieldPath) -> Result<Import, Faults> {
    let Some(ImportPolicy { prefixes, max_prefixes, allow_own_as }) = policy else { return Ok(Import::default()) };
    let mut faults = Faults::NONE;
    let at = field.field("prefixes");
    if prefixes.is_empty() {
        faults
            .push(Fault::new(at.clone(), "is empty: it takes at least one network; leave import out to take no route"));
    }
    let mut rules = Vec::with_capacity(prefixes.len());
    for (index, ImportPrefix { prefix, ge, le }) in prefixes.iter().enumerate() {
        let network =
            prefix.parse::<Prefix>().map_err(|error| Fault::new(at.entry(index).field("prefix"), error.to_string()));
        let rule = network.and_then(|network| {
            ImportRule::new(network, *ge, *le).map_err(|message| Fault::new(at.entry(index), message))
        });
        rules.extend(faults.take(rule.map_err(Faults::from)));
    }
    if !(1..=MAX_PREFIXES).contains(max_prefixes) {
        faults.push(Fault::new(
            field.field("maxPrefixes"),
            format!("{max_prefixes} is no limit: it takes 1 to {MAX_PREFIXES}"),
        ));
    }
    if *allow_own_as > MAX_OWN_AS {
        faults.push(Fault::new(
            field.field("allowOwnAs"),
            format!("{allow_own_as} is too often: our own AS number may stand in a path 0 to {MAX_OWN_AS} times"),
        ));
    }
    let max_prefixes = usize::try_from(*max_prefixes).unwrap_or(usize::MAX);
    faults.or(Import { rules, max_prefixes, allow_own_as: *allow_own_as })
}

fn check_asn(number: u32, field: FieldPath) -> Result<Asn, Faults> {
    Asn::try_from(number).map_err(|error| Fault::new(field, error.to_string()).into())
}

fn check_address(text: &str, field: FieldPath) -> Result<IpAddr, Faults> {
    let refused = |message: String| Err(Fault::new(field, message).into());
    let Ok(address) = text.parse::<IpAddr>() else {
        return refused(format!(
            "{text:?} is not an address: it takes the router's IP address, such as 10.90.0.1 or fd90::1"
        ));
    };
    let what = match address {
        _ if address.is_unspecified() => "the unspecified address",
        _ if address.is_multicast() => "a multicast address",
        // A node that speaks to itself would announce itself as the next hop to nobody.
        _ if address.is_loopback() => "a loopback address",
        IpAddr::V4(v4) if v4.octets()[0] == 0 => "of the network 0.0.0.0/8, which no host has (RFC 6890)",
        IpAddr::V4(v4) if v4.is_broadcast() => "the broadcast address",
        // A link-local address means nothing without its interface, which differs from node to node.
        IpAddr::V6(v6) if v6.is_unicast_link_local() => "a link-local address",
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => "an IPv4 address in IPv6 clothes",
        _ => return Ok(address),
    };
    refused(format!("{address} is {what}: it takes an address of the router itself, such as 10.90.0.1 or fd90::1"))
}

/// `Ok(None)` is a session that never expires (RFC 4271 §4.2).
fn check_hold_time(seconds: u16, field: FieldPath) -> Result<Option<Duration>, Faults> {
    match seconds {
        0 => Ok(None),
        1 | 2 => Err(Fault::new(
            field,
            format!("{seconds} is too short: it takes 3 to 65535 seconds, or 0 for a session that never expires"),
        )
        .into()),
        _ => Ok(Some(Duration::from_secs(seconds.into()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> BgpPeerSpec {
        BgpPeerSpec {
            local_asn: 64513,
            peer_asn: 64512,
            address: "10.90.0.1".to_owned(),
            port: 179,
            hold_time_seconds: 3,
            import: None,
            node_selector: BTreeMap::new(),
        }
    }

    fn faults(spec: &BgpPeerSpec) -> String {
        Peer::check("router", spec).expect_err("faults").to_string()
    }

    #[test]
    fn a_right_peer_is_taken_as_written() {
        let peer = Peer::check("router", &spec()).expect("a peer");
        assert_eq!(peer.hold_time, Some(Duration::from_secs(3)));
        assert!(!peer.is_internal());
        let never = Peer::check("router", &BgpPeerSpec { hold_time_seconds: 0, ..spec() }).expect("a peer");
        assert_eq!(never.hold_time, None);
    }

    #[test]
    fn each_wrong_field_is_named_with_what_would_be_right() {
        for (spec, want) in [
            (
                BgpPeerSpec { local_asn: 0, ..spec() },
                "spec.localAsn: 0 is not an AS number: it takes 1 to 4294967294, without 23456 and 65535 (RFC 6793, RFC 7300)",
            ),
            (
                BgpPeerSpec { peer_asn: 65535, ..spec() },
                "spec.peerAsn: 65535 is not an AS number: it takes 1 to 4294967294, without 23456 and 65535 (RFC 6793, RFC 7300)",
            ),
            (
                BgpPeerSpec { address: "router.example.net".to_owned(), ..spec() },
                "spec.address: \"router.example.net\" is not an address: it takes the router's IP address, such as 10.90.0.1 or fd90::1",
            ),
            (
                BgpPeerSpec { address: "fe80::1".to_owned(), ..spec() },
                "spec.address: fe80::1 is a link-local address: it takes an address of the router itself, such as 10.90.0.1 or fd90::1",
            ),
            (
                BgpPeerSpec { address: "127.0.0.1".to_owned(), ..spec() },
                "spec.address: 127.0.0.1 is a loopback address: it takes an address of the router itself, such as 10.90.0.1 or fd90::1",
            ),
            (
                BgpPeerSpec { address: "::1".to_owned(), ..spec() },
                "spec.address: ::1 is a loopback address: it takes an address of the router itself, such as 10.90.0.1 or fd90::1",
            ),
            (
                BgpPeerSpec { address: "0.1.2.3".to_owned(), ..spec() },
                "spec.address: 0.1.2.3 is of the network 0.0.0.0/8, which no host has (RFC 6890): it takes an address of the router itself, such as 10.90.0.1 or fd90::1",
            ),
            (BgpPeerSpec { port: 0, ..spec() }, "spec.port: 0 is not a port: it takes 1 to 65535, as a rule 179"),
            (
                BgpPeerSpec { hold_time_seconds: 2, ..spec() },
                "spec.holdTimeSeconds: 2 is too short: it takes 3 to 65535 seconds, or 0 for a session that never expires",
            ),
            (
                BgpPeerSpec { node_selector: BTreeMap::from([("rack".to_owned(), "a b".to_owned())]), ..spec() },
                "spec.nodeSelector.rack: \"a b\" is not the value of a label: it takes up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
            ),
        ] {
            assert_eq!(faults(&spec), format!("BgpPeer router: {want}"));
        }
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let spec = BgpPeerSpec { local_asn: 0, port: 0, hold_time_seconds: 1, ..spec() };
        assert_eq!(faults(&spec).lines().count(), 3);
    }

    #[test]
    fn a_selector_takes_nodes_that_have_all_its_labels() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let selector = labels(&[("rack", "r1"), ("edge", "")]);
        let peer = Peer::check("router", &BgpPeerSpec { node_selector: selector, ..spec() }).expect("a peer");
        assert!(peer.selects(&labels(&[("rack", "r1"), ("edge", ""), ("more", "x")])));
        assert!(!peer.selects(&labels(&[("rack", "r1")])));
        assert!(!peer.selects(&labels(&[("rack", "r2"), ("edge", "")])));
        assert!(Peer::check("router", &spec()).expect("a peer").selects(&BTreeMap::new()));
    }

    #[test]
    fn an_import_policy_says_which_routes_it_means() {
        let of = |prefixes: &[(&str, Option<u8>, Option<u8>)], max_prefixes| {
            let prefixes =
                prefixes.iter().map(|(prefix, ge, le)| ImportPrefix { prefix: (*prefix).to_owned(), ge: *ge, le: *le });
            let import = Some(ImportPolicy { prefixes: prefixes.collect(), max_prefixes, allow_own_as: 0 });
            BgpPeerSpec { import, ..spec() }
        };
        let peer =
            Peer::check("router", &of(&[("10.0.0.0/8", Some(16), None), ("::/0", None, None)], 5)).expect("a peer");
        let takes = |text: &str| peer.import.takes(&text.parse().expect("a prefix"));
        let taken = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "11.0.0.0/16", "::/0", "fd00::/8"].map(takes);
        assert_eq!(taken, [false, true, true, false, true, false]);
        assert!(Peer::check("router", &spec()).expect("a peer").import.is_nothing());

        let mut often = of(&[("10.0.0.0/8", None, None)], 5);
        often.import.iter_mut().for_each(|import| import.allow_own_as = 10);
        assert_eq!(Peer::check("router", &often).expect("a peer").import.allow_own_as, 10);
        often.import.iter_mut().for_each(|import| import.allow_own_as = 11);
        let want = "spec.import.allowOwnAs: 11 is too often: our own AS number may stand in a path 0 to 10 times";
        assert_eq!(faults(&often), format!("BgpPeer router: {want}"));

        let told = faults(&of(
            &[
                ("10.0.0.1/8", None, None),
                ("10.0.0.0/8", Some(4), None),
                ("10.0.0.0/8", Some(24), Some(16)),
                ("0.0.0.0/0", None, Some(0)),
            ],
            0,
        ));
        for want in [
            "spec.import.prefixes[0].prefix: \"10.0.0.1/8\" has host bits set: the prefix is 10.0.0.0/8",
            "spec.import.prefixes[1]: 10.0.0.0/8 with ge 4 takes no route: it takes 8 ≤ ge ≤ le ≤ 32",
            "spec.import.prefixes[2]: 10.0.0.0/8 with ge 24 and le 16 takes no route",
            "spec.import.prefixes[3]: 0.0.0.0/0 with le 0 takes no route",
            "spec.import.maxPrefixes: 0 is no limit: it takes 1 to 100000",
        ] {
            assert!(told.contains(want), "{want} is not in\n{told}");
        }
    }
}
