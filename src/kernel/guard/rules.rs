//! The guard table: what it says, and how it follows what is guarded.
//!
//! ```text
//! table inet cairn {
//!   set announced4 { type ipv4_addr; }                                 and announced6
//!   set served4 { type ipv4_addr . inet_proto . inet_service; }        and served6
//!   chain prerouting { type filter hook prerouting priority 10;
//!     iiftype loopback accept
//!     fib daddr . iif type local accept
//!     ip daddr . meta l4proto . th dport @served4 accept               and IPv6
//!     ip daddr @announced4 jump refuse                                 and IPv6
//!   }
//!   chain forward { type filter hook forward priority 10;
//!     ip daddr @announced4 ct state invalid,new drop                   and IPv6
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
//! - An address of the interface itself is the node's own: whatever a pool says, nobody is locked
//!   out of a node. One on another interface (`lo`, `kube-ipvs0`) is guarded.
//! - A served port is left alone in `prerouting`: kube-proxy may yet drop it (`externalTrafficPolicy:
//!   Local`, source ranges), refuse it (no endpoints) or take it in the input hook (IPVS). What is
//!   still unchanged in `forward` means that kube-proxy is behind, or would go back to the router.
//!   It is dropped there, after kube-proxy (-110 with nftables, 0 with iptables): the client tries
//!   again, while a refusal would be final.
//! - Refused is in `prerouting`, not in `forward`: before that the kernel sends an ICMP redirect to
//!   where the packet came from, and its rate limit for each host then swallows our answer.
//! - `invalid` is dropped, not refused: a reset in answer to a segment out of the window kills a
//!   living connection.
//! - What exceeds the limit is dropped: forwarded it would go back and forth to the router.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::codec::{Attributes, Expression, FAMILY_V4, FAMILY_V6, Field, Refusal, Request, Verb, Verdict, value};
use crate::model::{Family, Guarded, ServedPort};

/// The table's name; its family is inet.
pub(super) const TABLE: &str = "cairn";

/// Elements of a set in one request: well below the 64 KiB an attribute can have.
const ELEMENTS: usize = 1000;

const PRIORITY: i32 = 10;
const HOOK_PREROUTING: u32 = 0;
const HOOK_FORWARD: u32 = 2;

const REFUSALS_PER_SECOND: u64 = 100;
/// Refusals in one go, so that a client that tries some ports at once gets all its answers.
const REFUSAL_BURST: u32 = 20;

const REFUSE: &str = "refuse";

/// Makes the table anew with everything in it, whatever was there before.
pub(super) fn create(guarded: &Guarded) -> Vec<Request> {
    let table = |verb| Request { verb, attributes: named_in_table() };
    // Deleting needs something to delete.
    let mut requests = vec![table(Verb::NewTable), table(Verb::DeleteTable), table(Verb::NewTable)];
    requests.extend(Set::ALL.iter().enumerate().map(|(id, set)| set.create(id as u32 + 1)));
    requests.push(chain(REFUSE, None));
    requests.push(chain("prerouting", Some(HOOK_PREROUTING)));
    requests.push(chain("forward", Some(HOOK_FORWARD)));
    requests.extend(refuse_rules().iter().map(|rule| rule_in(REFUSE, rule)));
    requests.extend(prerouting_rules().iter().map(|rule| rule_in("prerouting", rule)));
    requests.extend(forward_rules().iter().map(|rule| rule_in("forward", rule)));
    requests.extend(update(&Guarded::default(), guarded));
    requests
}

/// Makes the sets of the table follow; where it takes several batches nothing is refused in
/// between that is served before or after.
pub(super) fn update(from: &Guarded, to: &Guarded) -> Vec<Request> {
    let addresses = |one: &Guarded, other: &Guarded| one.announced.difference(&other.announced).copied().collect();
    let ports = |one: &Guarded, other: &Guarded| one.served.difference(&other.served).copied().collect();
    let (gone_addresses, new_addresses): (BTreeSet<_>, BTreeSet<_>) = (addresses(from, to), addresses(to, from));
    let (gone_ports, new_ports): (BTreeSet<_>, BTreeSet<_>) = (ports(from, to), ports(to, from));
    [
        address_elements(Verb::DeleteElements, &gone_addresses),
        port_elements(Verb::NewElements, &new_ports),
        port_elements(Verb::DeleteElements, &gone_ports),
        address_elements(Verb::NewElements, &new_addresses),
    ]
    .concat()
}

/// Removes the table.
pub(super) fn remove() -> Vec<Request> {
    [Verb::NewTable, Verb::DeleteTable].map(|verb| Request { verb, attributes: named_in_table() }).into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Announced(Family),
    Served(Family),
}

impl Set {
    const ALL: [Self; 4] =
        [Self::Announced(Family::V4), Self::Announced(Family::V6), Self::Served(Family::V4), Self::Served(Family::V6)];

    fn name(self) -> &'static str {
        match self {
            Self::Announced(Family::V4) => "announced4",
            Self::Announced(Family::V6) => "announced6",
            Self::Served(Family::V4) => "served4",
            Self::Served(Family::V6) => "served6",
        }
    }

    fn create(self, id: u32) -> Request {
        // What `nft` calls the key's type: six bits for each part.
        const ADDRESS: [u32; 2] = [7, 8];
        const PROTOCOL: u32 = 12;
        const PORT: u32 = 13;
        let (family, is_port) = match self {
            Self::Announced(family) => (family, false),
            Self::Served(family) => (family, true),
        };
        let (address, length) = match family {
            Family::V4 => (ADDRESS[0], 4),
            Family::V6 => (ADDRESS[1], 16),
        };
        let (kind, length) = if is_port {
            // Each part begins a word.
            (address << 12 | PROTOCOL << 6 | PORT, length + 8)
        } else {
            (address, length)
        };
        let attributes = named_in_table().text(2, self.name()).number(3, 0).number(4, kind).number(5, length);
        Request { verb: Verb::NewSet, attributes: attributes.number(10, id) }
    }
}

fn address_elements(verb: Verb, addresses: &BTreeSet<IpAddr>) -> Vec<Request> {
    elements(verb, addresses, Set::Announced, |address| *address, |address| octets(*address))
}

fn port_elements(verb: Verb, ports: &BTreeSet<ServedPort>) -> Vec<Request> {
    let key = |port: &ServedPort| {
        let mut key = octets(port.address);
        key.extend([port.protocol.number(), 0, 0, 0]);
        key.extend(port.port.to_be_bytes());
        key.extend([0, 0]);
        key
    };
    elements(verb, ports, Set::Served, |port| port.address, key)
}

fn elements<T: Ord>(
    verb: Verb,
    all: &BTreeSet<T>,
    set: fn(Family) -> Set,
    address: impl Fn(&T) -> IpAddr,
    key: impl Fn(&T) -> Vec<u8>,
) -> Vec<Request> {
    let mut requests = Vec::new();
    for family in FAMILIES {
        let these: Vec<&T> = all.iter().filter(|element| Family::of(address(element)) == family).collect();
        for some in these.chunks(ELEMENTS) {
            let list = some.iter().map(|element| Attributes::default().nested(1, value(&key(element))));
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

fn chain(name: &str, hook: Option<u32>) -> Request {
    let mut attributes = named_in_table().text(3, name);
    if let Some(hook) = hook {
        const ACCEPT: u32 = 1;
        let at = Attributes::default().number(1, hook).number(2, PRIORITY.cast_unsigned());
        attributes = attributes.nested(4, at).number(5, ACCEPT).text(7, "filter");
    }
    Request { verb: Verb::NewChain, attributes }
}

type Rule = Vec<Expression<'static>>;

fn rule_in(chain: &str, rule: &Rule) -> Request {
    let expressions = rule.iter().flat_map(Expression::encode);
    Request { verb: Verb::NewRule, attributes: named_in_table().text(2, chain).list(4, expressions) }
}

fn prerouting_rules() -> Vec<Rule> {
    /// `ARPHRD_LOOPBACK`.
    const LOOPBACK: [u8; 2] = 772u16.to_ne_bytes();
    /// `RTN_LOCAL`.
    const LOCAL: [u8; 4] = 2u32.to_ne_bytes();
    let accept = Expression::Verdict(Verdict::Accept);
    let is = |field, value| vec![Expression::Load { field, word: 0 }, Expression::Equals(value), accept];
    let mut rules = vec![is(Field::InterfaceKind, &LOOPBACK[..]), is(Field::DestinationKind, &LOCAL[..])];
    rules.extend(FAMILIES.map(|family| [is_family(family), is_served(family), vec![accept]].concat()));
    let refuse = Expression::Verdict(Verdict::Jump(REFUSE));
    rules.extend(FAMILIES.map(|family| [is_announced(family), vec![refuse]].concat()));
    rules
}

fn forward_rules() -> Vec<Rule> {
    FAMILIES.map(|family| [is_announced(family), is_state(INVALID | NEW), vec![DROP]].concat()).into()
}

fn refuse_rules() -> Vec<Rule> {
    const TCP: [u8; 1] = [6];
    let limited = |refusal| {
        let limit = Expression::PerSecond { rate: REFUSALS_PER_SECOND, burst: REFUSAL_BURST };
        vec![limit, Expression::Count, Expression::Refuse(refusal)]
    };
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

/// `NF_CT_STATE_INVALID_BIT`.
const INVALID: u32 = 1;
/// The bit of `IP_CT_NEW`.
const NEW: u32 = 8;

const DROP: Expression<'static> = Expression::Verdict(Verdict::Drop);

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn is_state(bits: u32) -> Rule {
    vec![Expression::Load { field: Field::ConnectionState, word: 0 }, Expression::HasBits(bits)]
}

fn is_announced(family: Family) -> Rule {
    [is_family(family), vec![destination(family), Expression::IsIn(Set::Announced(family).name())]].concat()
}

fn is_family(family: Family) -> Rule {
    let number: &'static [u8] = match family {
        Family::V4 => &[FAMILY_V4],
        Family::V6 => &[FAMILY_V6],
    };
    vec![Expression::Load { field: Field::Family, word: 0 }, Expression::Equals(number)]
}

fn is_served(family: Family) -> Rule {
    let words = u32::from(family.bits()) / 32;
    vec![
        destination(family),
        Expression::Load { field: Field::Protocol, word: words },
        Expression::Load { field: Field::Transport { offset: 2, length: 2 }, word: words + 1 },
        Expression::IsIn(Set::Served(family).name()),
    ]
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
mod tests {
    use super::*;
    use crate::model::PortProtocol;

    fn guarded(addresses: &[&str], ports: &[(&str, PortProtocol, u16)]) -> Guarded {
        Guarded {
            announced: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            served: ports
                .iter()
                .map(|(address, protocol, port)| ServedPort {
                    address: address.parse().unwrap(),
                    protocol: *protocol,
                    port: *port,
                })
                .collect(),
        }
    }

    #[test]
    fn an_update_holds_only_what_differs_and_serves_before_it_announces() {
        let before = guarded(&["10.60.0.1"], &[("10.60.0.1", PortProtocol::Tcp, 80)]);
        let after =
            guarded(&["10.60.0.2"], &[("10.60.0.1", PortProtocol::Tcp, 80), ("fd60::2", PortProtocol::Udp, 53)]);
        let verbs: Vec<Verb> = update(&before, &after).iter().map(|request| request.verb).collect();
        assert_eq!(verbs, [Verb::DeleteElements, Verb::NewElements, Verb::NewElements]);
        assert_eq!(update(&after, &after), vec![]);
    }

    #[test]
    fn a_served_port_is_a_key_of_whole_words() {
        let served = guarded(&[], &[("10.60.0.1", PortProtocol::Tcp, 80)]);
        let got = update(&Guarded::default(), &served);
        let key = value(&[10, 60, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
        let list = [Attributes::default().nested(1, key)];
        let attributes = named_in_table().text(2, "served4").list(3, list);
        assert_eq!(got, [Request { verb: Verb::NewElements, attributes }]);
    }

    #[test]
    fn many_elements_are_cut_into_requests() {
        let ports: Vec<_> = (1..=2500).map(|port| ("fd60::1", PortProtocol::Tcp, port)).collect();
        assert_eq!(update(&Guarded::default(), &guarded(&[], &ports)).len(), 3);
    }
}
