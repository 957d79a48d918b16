//! The guard table: what it says, and how it follows what is guarded.
//!
//! ```text
//! table inet cairn {
//!   set announced4 { type ipv4_addr; }                                 and announced6
//!   set served4 { type ipv4_addr . inet_proto . inet_service; }        and served6
//!   set limited4 { type ipv4_addr . inet_proto . inet_service; }       and limited6
//!   set admitted4 { type ipv4_addr . inet_proto . inet_service . ipv4_addr; flags interval; }
//!   set aggregated4 { type ipv4_addr; flags interval; }                and aggregated6
//!   set assigned4 { type ipv4_addr; }                                  and assigned6
//!   chain admission { type filter hook prerouting priority -110;
//!     iiftype loopback accept
//!     ip daddr . meta l4proto . th dport @limited4
//!       ip daddr . meta l4proto . th dport . ip saddr != @admitted4 counter drop    and IPv6
//!   }
//!   chain prerouting { type filter hook prerouting priority 10;
//!     iiftype loopback accept
//!     fib daddr . iif type local accept
//!     ip daddr . meta l4proto . th dport @served4 accept               and IPv6
//!     ip daddr @announced4 jump refuse                                 and IPv6
//!     ip daddr @aggregated4 jump unassigned                            and IPv6
//!   }
//!   chain forward { type filter hook forward priority 10;
//!     ip daddr @announced4 ct state invalid,new drop                   and IPv6
//!     ip daddr @aggregated4 ct state invalid,new drop                  and IPv6
//!   }
//!   chain unassigned {
//!     fib daddr type local accept
//!     ip daddr @assigned4 accept                                       and IPv6
//!     ct state new limit rate 100/second counter reject (host unreachable)
//!     ct state invalid,new drop
//!   }
//!   chain refuse {
//!     ct state invalid drop
//!     ct state new meta l4proto tcp limit rate 100/second counter reject with tcp reset
//!     ct state new meta l4proto tcp drop
//!     ct state new limit rate 100/second counter reject (port unreachable)
//!     ct state new drop
//!   }
//! }
//! ```
//!
//! - kube-proxy translates before us, at -100: what it takes no longer carries an announced address.
//! - `admission` is before kube-proxy, which looks at `spec.loadBalancerSourceRanges` itself, and not at
//!   the annotation; and where no range is of a family, it admits everyone of that. Who is no longer
//!   admitted loses its connections too. Dropped, not refused, as kube-proxy does.
//! - An address of the interface itself is the node's own: whatever a pool says, nobody is locked
//!   out of a node. One on another interface (`lo`, `kube-ipvs0`) is guarded.
//! - A served port is left alone in `prerouting`: kube-proxy may yet drop it (`externalTrafficPolicy:
//!   Local`, source ranges), refuse it (no endpoints) or take it in the input hook (IPVS). What is
//!   still unchanged in `forward` means that kube-proxy is behind, or would go back to the router.
//!   It is dropped there, after kube-proxy (-110 with nftables, 0 with iptables): the client tries
//!   again, while a refusal would be final.
//! - An address of an announced network that no Service has is unreachable. A route that leads nowhere would
//!   say so too, but to the node's own programs as well, whose packets kube-proxy translates only after routing.
//! - Refused is in `prerouting`, not in `forward`: before that the kernel sends an ICMP redirect to
//!   where the packet came from, and its rate limit for each host then swallows our answer.
//! - `invalid` is dropped, not refused: a reset in answer to a segment out of the window kills a
//!   living connection.
//! - What exceeds the limit is dropped: forwarded it would go back and forth to the router.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::codec::{Attributes, Expression, FAMILY_V4, FAMILY_V6, Field, Refusal, Request, Verb, Verdict, value};
use crate::model::{Admission, Family, Guarded, Prefix, ServedPort};

/// The table's name; its family is inet.
pub(super) const TABLE: &str = "cairn";

/// Elements of a set in one request: well below the 64 KiB an attribute can have.
const ELEMENTS: usize = 1000;

const PRIORITY: i32 = 10;
/// Before kube-proxy translates (-100), after connections are known (-200) and fragments put together.
const BEFORE_TRANSLATION: i32 = -110;
const HOOK_PREROUTING: u32 = 0;
const HOOK_FORWARD: u32 = 2;

const REFUSALS_PER_SECOND: u64 = 100;
/// Refusals in one go, so that a client that tries some ports at once gets all its answers.
const REFUSAL_BURST: u32 = 20;

const REFUSE: &str = "refuse";
const UNASSIGNED: &str = "unassigned";

/// Makes the table anew with everything in it, whatever was there before.
pub(super) fn create(guarded: &Guarded) -> Vec<Request> {
    let table = |verb| Request { verb, attributes: named_in_table() };
    // Deleting needs something to delete.
    let mut requests = vec![table(Verb::NewTable), table(Verb::DeleteTable), table(Verb::NewTable)];
    requests.extend(Set::ALL.iter().enumerate().map(|(id, set)| set.create(id as u32 + 1)));
    requests.push(chain(REFUSE, None));
    requests.push(chain(UNASSIGNED, None));
    requests.push(chain("admission", Some((HOOK_PREROUTING, BEFORE_TRANSLATION))));
    requests.push(chain("prerouting", Some((HOOK_PREROUTING, PRIORITY))));
    requests.push(chain("forward", Some((HOOK_FORWARD, PRIORITY))));
    requests.extend(refuse_rules().iter().map(|rule| rule_in(REFUSE, rule)));
    requests.extend(unassigned_rules().iter().map(|rule| rule_in(UNASSIGNED, rule)));
    requests.extend(admission_rules().iter().map(|rule| rule_in("admission", rule)));
    requests.extend(prerouting_rules().iter().map(|rule| rule_in("prerouting", rule)));
    requests.extend(forward_rules().iter().map(|rule| rule_in("forward", rule)));
    requests.extend(update(&Guarded::default(), guarded));
    requests
}

/// Makes the sets of the table follow; where it takes several batches nothing is refused in
/// between that is served before or after, and nobody is admitted who is not before or after.
pub(super) fn update(from: &Guarded, to: &Guarded) -> Vec<Request> {
    use Verb::{DeleteElements, NewElements};
    fn only<T: Ord + Copy>(one: &BTreeSet<T>, other: &BTreeSet<T>) -> BTreeSet<T> {
        one.difference(other).copied().collect()
    }
    let (before, after) = (ranges(&from.aggregated), ranges(&to.aggregated));
    [
        address_elements(DeleteElements, &only(&from.announced, &to.announced), Set::Announced),
        range_elements(DeleteElements, &only(&before, &after)),
        port_elements(NewElements, &only(&to.served, &from.served), Set::Served),
        port_elements(DeleteElements, &only(&from.served, &to.served), Set::Served),
        // Ranges of one port must not overlap: the old ones go first.
        port_elements(DeleteElements, &only(&from.limited, &to.limited), Set::Limited),
        admission_elements(DeleteElements, &only(&from.admitted, &to.admitted)),
        admission_elements(NewElements, &only(&to.admitted, &from.admitted)),
        port_elements(NewElements, &only(&to.limited, &from.limited), Set::Limited),
        address_elements(NewElements, &only(&to.assigned, &from.assigned), Set::Assigned),
        address_elements(DeleteElements, &only(&from.assigned, &to.assigned), Set::Assigned),
        address_elements(NewElements, &only(&to.announced, &from.announced), Set::Announced),
        range_elements(NewElements, &only(&after, &before)),
    ]
    .concat()
}

/// Addresses from a first to a last one.
type Range = [IpAddr; 2];

/// The addresses of these networks, in as few ranges as there can be: a set takes none that overlap or touch.
fn ranges(networks: &BTreeSet<Prefix>) -> BTreeSet<Range> {
    let mut ranges = Vec::<(Family, u128, u128)>::new();
    for network in networks {
        let (family, (first, last)) = (network.family(), network.bounds());
        match ranges.last_mut() {
            Some((before, _, end)) if *before == family && first <= end.saturating_add(1) => *end = last.max(*end),
            _ => ranges.push((family, first, last)),
        }
    }
    let address = |family: Family, number| family.address(number).expect("a prefix's bounds are of its family");
    ranges.into_iter().map(|(family, first, last)| [address(family, first), address(family, last)]).collect()
}

/// Removes the table.
pub(super) fn remove() -> Vec<Request> {
    [Verb::NewTable, Verb::DeleteTable].map(|verb| Request { verb, attributes: named_in_table() }).into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Announced(Family),
    Served(Family),
    Limited(Family),
    Admitted(Family),
    Aggregated(Family),
    Assigned(Family),
}

impl Set {
    const ALL: [Self; 12] = [
        Self::Announced(Family::V4),
        Self::Announced(Family::V6),
        Self::Served(Family::V4),
        Self::Served(Family::V6),
        Self::Limited(Family::V4),
        Self::Limited(Family::V6),
        Self::Admitted(Family::V4),
        Self::Admitted(Family::V6),
        Self::Aggregated(Family::V4),
        Self::Aggregated(Family::V6),
        Self::Assigned(Family::V4),
        Self::Assigned(Family::V6),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Announced(Family::V4) => "announced4",
            Self::Announced(Family::V6) => "announced6",
            Self::Served(Family::V4) => "served4",
            Self::Served(Family::V6) => "served6",
            Self::Limited(Family::V4) => "limited4",
            Self::Limited(Family::V6) => "limited6",
            Self::Admitted(Family::V4) => "admitted4",
            Self::Admitted(Family::V6) => "admitted6",
            Self::Aggregated(Family::V4) => "aggregated4",
            Self::Aggregated(Family::V6) => "aggregated6",
            Self::Assigned(Family::V4) => "assigned4",
            Self::Assigned(Family::V6) => "assigned6",
        }
    }

    /// The parts of its key: what `nft` calls their types, and their lengths in bytes.
    fn key(self) -> Vec<(u32, u32)> {
        const PORT: [(u32, u32); 2] = [(12, 1), (13, 2)];
        let address = |family| match family {
            Family::V4 => (7, 4),
            Family::V6 => (8, 16),
        };
        match self {
            Self::Announced(family) | Self::Aggregated(family) | Self::Assigned(family) => vec![address(family)],
            Self::Served(family) | Self::Limited(family) => vec![address(family), PORT[0], PORT[1]],
            Self::Admitted(family) => vec![address(family), PORT[0], PORT[1], address(family)],
        }
    }

    fn create(self, id: u32) -> Request {
        const INTERVALS: u32 = 0x4;
        const PARTS: u32 = 0x80;
        let key = self.key();
        // Six bits for each type; each part begins a word.
        let kind = key.iter().fold(0, |kinds, (kind, _)| kinds << 6 | kind);
        let length = key.iter().map(|(_, length)| length.next_multiple_of(4)).sum();
        let flags = match self {
            Self::Admitted(_) => INTERVALS | PARTS,
            Self::Aggregated(_) => INTERVALS,
            Self::Announced(_) | Self::Served(_) | Self::Limited(_) | Self::Assigned(_) => 0,
        };
        let mut attributes = named_in_table().text(2, self.name()).number(3, flags).number(4, kind).number(5, length);
        if flags & PARTS != 0 {
            let parts = key.iter().map(|(_, length)| Attributes::default().number(1, *length));
            attributes = attributes.nested(9, Attributes::default().list(2, parts));
        }
        Request { verb: Verb::NewSet, attributes: attributes.number(10, id) }
    }
}

fn address_elements(verb: Verb, addresses: &BTreeSet<IpAddr>, set: fn(Family) -> Set) -> Vec<Request> {
    elements(verb, addresses, set, |address| *address, |address| vec![exactly(&octets(*address))])
}

/// A range is an element where it begins and one behind its end.
fn range_elements(verb: Verb, ranges: &BTreeSet<Range>) -> Vec<Request> {
    /// `NFT_SET_ELEM_INTERVAL_END`.
    const END: u32 = 1;
    let ends = |[first, last]: &Range| {
        let behind = Prefix::host(*last).bounds().1.checked_add(1).and_then(|number| Family::of(*last).address(number));
        let behind = behind.map(|behind| exactly(&octets(behind)).number(3, END));
        [exactly(&octets(*first))].into_iter().chain(behind).collect()
    };
    elements(verb, ranges, Set::Aggregated, |[first, _]| *first, ends)
}

fn port_elements(verb: Verb, ports: &BTreeSet<ServedPort>, set: fn(Family) -> Set) -> Vec<Request> {
    elements(verb, ports, set, |port| port.address, |port| vec![exactly(&port_key(port))])
}

fn admission_elements(verb: Verb, admissions: &BTreeSet<Admission>) -> Vec<Request> {
    const LAST: u16 = 10;
    let element = |admission: &Admission| {
        let port = port_key(&admission.to);
        let [first, last] = bounds(admission.from).map(|address| [&port[..], &octets(address)].concat());
        vec![exactly(&first).nested(LAST, value(&last))]
    };
    elements(verb, admissions, Set::Admitted, |admission| admission.to.address, element)
}

/// An element that is one key.
fn exactly(key: &[u8]) -> Attributes {
    Attributes::default().nested(1, value(key))
}

fn port_key(port: &ServedPort) -> Vec<u8> {
    let mut key = octets(port.address);
    key.extend([port.protocol.number(), 0, 0, 0]);
    key.extend(port.port.to_be_bytes());
    key.extend([0, 0]);
    key
}

fn bounds(prefix: Prefix) -> [IpAddr; 2] {
    let (first, last) = prefix.bounds();
    let address = |number| prefix.family().address(number).expect("a prefix's bounds are of its family");
    [address(first), address(last)]
}

fn elements<T: Ord>(
    verb: Verb,
    all: &BTreeSet<T>,
    set: fn(Family) -> Set,
    address: impl Fn(&T) -> IpAddr,
    parts: impl Fn(&T) -> Vec<Attributes>,
) -> Vec<Request> {
    let mut requests = Vec::new();
    for family in FAMILIES {
        let these: Vec<&T> = all.iter().filter(|one| Family::of(address(one)) == family).collect();
        for some in these.chunks(ELEMENTS) {
            let list = some.iter().flat_map(|one| parts(one));
            let attributes = named_in_table().text(2, set(family).name()).list(3, list);
            requests.push(Request { verb, attributes });
        }
    }
    requests
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn chain(name: &str, hook: Option<(u32, i32)>) -> Request {
    let mut attributes = named_in_table().text(3, name);
    if let Some((hook, priority)) = hook {
        const ACCEPT: u32 = 1;
        let at = Attributes::default().number(1, hook).number(2, priority.cast_unsigned());
        attributes = attributes.nested(4, at).number(5, ACCEPT).text(7, "filter");
    }
    Request { verb: Verb::NewChain, attributes }
}

type Rule = Vec<Expression<'static>>;

fn rule_in(chain: &str, rule: &Rule) -> Request {
    let expressions = rule.iter().flat_map(Expression::encode);
    Request { verb: Verb::NewRule, attributes: named_in_table().text(2, chain).list(4, expressions) }
}

fn admission_rules() -> Vec<Rule> {
    let stranger = |family| {
        let not_admitted = vec![
            source(family, port_words(family)),
            Expression::IsNotIn(Set::Admitted(family).name()),
            Expression::Count,
            DROP,
        ];
        [is_family(family), is_port_in(Set::Limited, family), port(family), not_admitted].concat()
    };
    let mut rules = vec![accept_loopback()];
    rules.extend(FAMILIES.map(stranger));
    rules
}

/// `RTN_LOCAL`.
const LOCAL: [u8; 4] = 2u32.to_ne_bytes();

fn prerouting_rules() -> Vec<Rule> {
    let is_local = vec![Expression::Load { field: Field::DestinationKind, word: 0 }, Expression::Equals(&LOCAL)];
    let mut rules = vec![accept_loopback(), [is_local, vec![ACCEPT]].concat()];
    rules.extend(FAMILIES.map(|family| [is_family(family), is_port_in(Set::Served, family), vec![ACCEPT]].concat()));
    let refuse = Expression::Verdict(Verdict::Jump(REFUSE));
    rules.extend(FAMILIES.map(|family| [is_destination_in(Set::Announced, family), vec![refuse]].concat()));
    let judge = Expression::Verdict(Verdict::Jump(UNASSIGNED));
    rules.extend(FAMILIES.map(|family| [is_destination_in(Set::Aggregated, family), vec![judge]].concat()));
    rules
}

fn forward_rules() -> Vec<Rule> {
    let drop =
        |set| FAMILIES.map(|family| [is_destination_in(set, family), is_state(INVALID | NEW), vec![DROP]].concat());
    [Set::Announced, Set::Aggregated].into_iter().flat_map(drop).collect()
}

fn unassigned_rules() -> Vec<Rule> {
    let kind = Expression::Load { field: Field::DestinationKindAnywhere, word: 0 };
    let mut rules = vec![vec![kind, Expression::Equals(&LOCAL), ACCEPT]];
    rules.extend(FAMILIES.map(|family| [is_destination_in(Set::Assigned, family), vec![ACCEPT]].concat()));
    rules.push([is_state(NEW), limited(Refusal::HostUnreachable)].concat());
    rules.push([is_state(INVALID | NEW), vec![DROP]].concat());
    rules
}

fn refuse_rules() -> Vec<Rule> {
    const TCP: [u8; 1] = [6];
    let is_tcp = vec![Expression::Load { field: Field::Protocol, word: 0 }, Expression::Equals(&TCP)];
    vec![
        [is_state(INVALID), vec![DROP]].concat(),
        [is_state(NEW), is_tcp.clone(), limited(Refusal::TcpReset)].concat(),
        // A reset over the limit is no reason to send the other answer.
        [is_state(NEW), is_tcp, vec![DROP]].concat(),
        [is_state(NEW), limited(Refusal::PortUnreachable)].concat(),
        [is_state(NEW), vec![DROP]].concat(),
    ]
}

fn limited(refusal: Refusal) -> Rule {
    let limit = Expression::PerSecond { rate: REFUSALS_PER_SECOND, burst: REFUSAL_BURST };
    vec![limit, Expression::Count, Expression::Refuse(refusal)]
}

/// `NF_CT_STATE_INVALID_BIT`.
const INVALID: u32 = 1;
/// The bit of `IP_CT_NEW`.
const NEW: u32 = 8;

const DROP: Expression<'static> = Expression::Verdict(Verdict::Drop);
const ACCEPT: Expression<'static> = Expression::Verdict(Verdict::Accept);

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn accept_loopback() -> Rule {
    /// `ARPHRD_LOOPBACK`.
    const LOOPBACK: [u8; 2] = 772u16.to_ne_bytes();
    vec![Expression::Load { field: Field::InterfaceKind, word: 0 }, Expression::Equals(&LOOPBACK), ACCEPT]
}

fn is_state(bits: u32) -> Rule {
    vec![Expression::Load { field: Field::ConnectionState, word: 0 }, Expression::HasBits(bits)]
}

fn is_destination_in(set: fn(Family) -> Set, family: Family) -> Rule {
    [is_family(family), vec![destination(family), Expression::IsIn(set(family).name())]].concat()
}

fn is_family(family: Family) -> Rule {
    let number: &'static [u8] = match family {
        Family::V4 => &[FAMILY_V4],
        Family::V6 => &[FAMILY_V6],
    };
    vec![Expression::Load { field: Field::Family, word: 0 }, Expression::Equals(number)]
}

fn is_port_in(set: fn(Family) -> Set, family: Family) -> Rule {
    [port(family), vec![Expression::IsIn(set(family).name())]].concat()
}

/// Loads where the packet goes to: address, protocol and port.
fn port(family: Family) -> Rule {
    let words = port_words(family);
    vec![
        destination(family),
        Expression::Load { field: Field::Protocol, word: words - 2 },
        Expression::Load { field: Field::Transport { offset: 2, length: 2 }, word: words - 1 },
    ]
}

/// How many words [`port`] fills.
fn port_words(family: Family) -> u32 {
    u32::from(family.bits()) / 32 + 2
}

fn source(family: Family, word: u32) -> Expression<'static> {
    let field = match family {
        Family::V4 => Field::Network { offset: 12, length: 4 },
        Family::V6 => Field::Network { offset: 8, length: 16 },
    };
    Expression::Load { field, word }
}

fn destination(family: Family) -> Expression<'static> {
    let field = match family {
        Family::V4 => Field::Network { offset: 16, length: 4 },
        Family::V6 => Field::Network { offset: 24, length: 16 },
    };
    Expression::Load { field, word: 0 }
}

fn named_in_table() -> Attributes {
    Attributes::default().text(1, TABLE)
}

#[cfg(test)]
mod tests;
