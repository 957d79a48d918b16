//! The guard table: what it says. How its sets follow what is guarded is in [`sets`](super::sets).
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

use super::codec::{Attributes, Expression, FAMILY_V4, FAMILY_V6, Field, Refusal, Request, Verb, Verdict};
use super::sets::{FAMILIES, Set, named_in_table, update};
use crate::model::{Family, Guarded};

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

/// Removes the table.
pub(super) fn remove() -> Vec<Request> {
    [Verb::NewTable, Verb::DeleteTable].map(|verb| Request { verb, attributes: named_in_table() }).into()
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
