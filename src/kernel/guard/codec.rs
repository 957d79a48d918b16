//! nftables over nfnetlink (`linux/netfilter/nf_tables.h`): attributes, expressions, batches.
//!
//! Numbers are in network byte order, unlike in routing netlink; a register's content is in the
//! order of the packet, except what comes from metadata and connection tracking.

use crate::kernel::wire;

/// What `NFNLGRP_NFTABLES` tells of is every change to the rule set.
pub(super) const GROUP: u32 = 7;

/// `NFPROTO_INET`: tables for both families.
pub(super) const FAMILY_INET: u8 = 1;
/// `NFPROTO_IPV4`.
pub(super) const FAMILY_V4: u8 = 2;
/// `NFPROTO_IPV6`.
pub(super) const FAMILY_V6: u8 = 10;

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// The largest batch in bytes; twice that fits every socket's default send buffer of 208 KiB.
const BATCH_BYTES: usize = 96 * 1024;

/// A request of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    NewTable,
    DeleteTable,
    NewChain,
    NewRule,
    NewSet,
    NewElements,
    DeleteElements,
}

impl Verb {
    fn kind(self) -> u16 {
        match self {
            Self::NewTable => 0,
            Self::DeleteTable => 2,
            Self::NewChain => 3,
            Self::NewRule => 6,
            Self::NewSet => 9,
            Self::NewElements => 12,
            Self::DeleteElements => 14,
        }
    }

    fn flags(self) -> u16 {
        match self {
            Self::DeleteTable | Self::DeleteElements => 0,
            Self::NewRule => CREATE | APPEND,
            Self::NewTable | Self::NewChain | Self::NewSet | Self::NewElements => CREATE,
        }
    }
}

/// One request with its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) verb: Verb,
    pub(super) attributes: Attributes,
}

/// Netlink attributes under construction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    const NESTED: u16 = 0x8000;

    /// Bytes as they are.
    ///
    /// # Panics
    /// When they do not fit the 16-bit length of an attribute; requests are cut far below that.
    pub(super) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        wire::put_attribute(&mut self.0, kind, value);
        self
    }

    /// A number.
    pub(super) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// A long number.
    pub(super) fn long(self, kind: u16, value: u64) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// A text, ended by a NUL.
    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Attributes in an attribute.
    pub(super) fn nested(self, kind: u16, inner: Attributes) -> Self {
        self.bytes(kind | Self::NESTED, &inner.0)
    }

    /// A list of elements, each nested.
    pub(super) fn list(self, kind: u16, items: impl IntoIterator<Item = Attributes>) -> Self {
        const ELEMENT: u16 = 1;
        let inner = items.into_iter().fold(Attributes::default(), |list, item| list.nested(ELEMENT, item));
        self.nested(kind, inner)
    }
}

/// Some requests that the kernel carries out all or none, as one datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// The bytes to send.
    pub(super) bytes: Vec<u8>,
    /// The sequence number of its frame: an answer to it refuses the whole.
    pub(super) begin: u32,
    /// The sequence number of the last request: the answer to it is the last.
    pub(super) last: u32,
}

/// How many sequence numbers [`batches`] needs for these requests.
pub(super) fn sequences(requests: &[Request]) -> u32 {
    // Each batch has at least one request, and a frame of two messages.
    u32::try_from(requests.len() * 3).expect("requests are cut into thousands, not billions")
}

/// Packs requests, in order, into as few batches as their size allows.
pub(super) fn batches(requests: &[Request], first_sequence: u32) -> Vec<Batch> {
    let mut done = Vec::new();
    let mut sequence = first_sequence;
    let mut rest = requests;
    while !rest.is_empty() {
        let mut size = 0;
        let fits = rest.iter().take_while(|request| {
            size += request.attributes.0.len() + 20;
            size <= BATCH_BYTES
        });
        let count = fits.count().max(1);
        let (these, others) = rest.split_at(count);
        let batch = batch(these, sequence);
        sequence = batch.last + 2;
        done.push(batch);
        rest = others;
    }
    done
}

fn batch(requests: &[Request], begin: u32) -> Batch {
    let frame = header(0, SUBSYSTEM);
    let mut bytes = Vec::new();
    wire::put_message(&mut bytes, BATCH_BEGIN, REQUEST, begin, &frame);
    let mut last = begin;
    for (index, request) in requests.iter().enumerate() {
        last += 1;
        let ack = if index + 1 == requests.len() { ACK } else { 0 };
        let payload = [&header(FAMILY_INET, 0)[..], &request.attributes.0].concat();
        let kind = SUBSYSTEM << 8 | request.verb.kind();
        wire::put_message(&mut bytes, kind, REQUEST | ack | request.verb.flags(), last, &payload);
    }
    wire::put_message(&mut bytes, BATCH_END, REQUEST, last + 1, &frame);
    Batch { bytes, begin, last }
}

/// `struct nfgenmsg`: family, version 0, resource.
fn header(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

/// The name of the table an event is about, for tables of both families.
pub(super) fn table_of(kind: u16, payload: &[u8]) -> Option<String> {
    // In every object's attributes 1 is its table's name.
    const TABLE: u16 = 1;
    if kind >> 8 != SUBSYSTEM || payload.first() != Some(&FAMILY_INET) {
        return None;
    }
    wire::attribute(payload.get(4..)?, TABLE).map(wire::text)
}

/// Where in a packet or its metadata a register is loaded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// Bytes of the network header.
    Network { offset: u32, length: u32 },
    /// Bytes of the transport header.
    Transport { offset: u32, length: u32 },
    /// The packet's family, one byte.
    Family,
    /// The transport protocol, one byte.
    Protocol,
    /// The kind of the interface it came in by, two bytes in the machine's order.
    InterfaceKind,
    /// What the destination is to the interface the packet came in by (`RTN_*`), four bytes in the
    /// machine's order.
    DestinationKind,
    /// What the destination is to this host, by whatever interface, likewise.
    DestinationKindAnywhere,
    /// The connection's state as bits, four bytes in the machine's order.
    ConnectionState,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    /// Go on in another chain, and come back from its end.
    Jump(&'static str),
}

/// How a packet is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    TcpReset,
    PortUnreachable,
    HostUnreachable,
}

/// One expression of a rule. Registers are words of four bytes, numbered from 0 to 15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expression<'a> {
    Load {
        field: Field,
        word: u32,
    },
    /// Goes on if the first register begins with these bytes.
    Equals(&'a [u8]),
    /// Goes on if the first register has one of these bits.
    HasBits(u32),
    /// Goes on if what begins with the first register is in a set.
    IsIn(&'static str),
    /// Goes on if it is not.
    IsNotIn(&'static str),
    /// Goes on at most so often.
    PerSecond {
        rate: u64,
        burst: u32,
    },
    Count,
    Refuse(Refusal),
    Verdict(Verdict),
}

impl Expression<'_> {
    /// As attributes; one expression may become two of the kernel's.
    pub(super) fn encode(&self) -> Vec<Attributes> {
        let of = |name, inner| vec![expression(name, inner)];
        match *self {
            Self::Load { field, word } => vec![load(field, word)],
            Self::Equals(value) => of("cmp", compare(COMPARE_EQUAL, value)),
            Self::HasBits(bits) => {
                // (register & bits) ^ 0 != 0
                let masked = Attributes::default().number(1, FIRST_WORD).number(2, FIRST_WORD).number(3, 4);
                let masked = masked.nested(4, value(&bits.to_ne_bytes())).nested(5, value(&[0; 4]));
                vec![expression("bitwise", masked), expression("cmp", compare(COMPARE_UNEQUAL, &[0; 4]))]
            }
            Self::IsIn(set) => of("lookup", Attributes::default().text(1, set).number(2, FIRST_WORD)),
            Self::IsNotIn(set) => {
                const INVERTED: u32 = 1;
                of("lookup", Attributes::default().text(1, set).number(2, FIRST_WORD).number(5, INVERTED))
            }
            Self::PerSecond { rate, burst } => {
                let limit = Attributes::default().long(1, rate).long(2, 1).number(3, burst);
                of("limit", limit.number(4, 0).number(5, 0))
            }
            Self::Count => of("counter", Attributes::default()),
            Self::Refuse(Refusal::TcpReset) => of("reject", Attributes::default().number(1, 1).bytes(2, &[0])),
            // Kind 2 is the code for both families, of which 1 is "port unreachable" and 2 "host unreachable".
            Self::Refuse(Refusal::PortUnreachable) => of("reject", Attributes::default().number(1, 2).bytes(2, &[1])),
            Self::Refuse(Refusal::HostUnreachable) => of("reject", Attributes::default().number(1, 2).bytes(2, &[2])),
            Self::Verdict(verdict) => {
                of("immediate", Attributes::default().number(1, 0).nested(2, verdict_data(verdict)))
            }
        }
    }
}

const COMPARE_EQUAL: u32 = 0;
const COMPARE_UNEQUAL: u32 = 1;
/// `NFT_REG32_00`, the first word of the registers.
const FIRST_WORD: u32 = 8;

fn load(field: Field, word: u32) -> Attributes {
    let register = FIRST_WORD + word;
    let payload = |base, offset, length| {
        let inner = Attributes::default().number(1, register).number(2, base).number(3, offset).number(4, length);
        expression("payload", inner)
    };
    let key = |name, key| expression(name, Attributes::default().number(1, register).number(2, key));
    match field {
        Field::Network { offset, length } => payload(1, offset, length),
        Field::Transport { offset, length } => payload(2, offset, length),
        Field::InterfaceKind => key("meta", 8),
        Field::Family => key("meta", 15),
        Field::Protocol => key("meta", 16),
        Field::DestinationKind => destination_kind(register, INCOMING),
        Field::DestinationKindAnywhere => destination_kind(register, 0),
        Field::ConnectionState => key("ct", 0),
    }
}

/// `NFTA_FIB_F_IIF`.
const INCOMING: u32 = 8;

fn destination_kind(register: u32, flags: u32) -> Attributes {
    const ADDRESS_KIND: u32 = 3;
    const DESTINATION: u32 = 2;
    let inner = Attributes::default().number(1, register).number(2, ADDRESS_KIND);
    expression("fib", inner.number(3, DESTINATION | flags))
}

fn compare(operator: u32, with: &[u8]) -> Attributes {
    Attributes::default().number(1, FIRST_WORD).number(2, operator).nested(3, value(with))
}

fn verdict_data(verdict: Verdict) -> Attributes {
    // NF_DROP, NF_ACCEPT, and NFT_JUMP as a negative number.
    let inner = match verdict {
        Verdict::Drop => Attributes::default().number(1, 0),
        Verdict::Accept => Attributes::default().number(1, 1),
        Verdict::Jump(chain) => Attributes::default().number(1, (-3i32).cast_unsigned()).text(2, chain),
    };
    Attributes::default().nested(2, inner)
}

/// `NFTA_DATA_VALUE`.
pub(super) fn value(bytes: &[u8]) -> Attributes {
    Attributes::default().bytes(1, bytes)
}

fn expression(name: &str, inner: Attributes) -> Attributes {
    Attributes::default().text(1, name).nested(2, inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_say_their_length_without_the_padding() {
        let inner = Attributes::default().text(1, "ab").number(2, 258);
        let got = Attributes::default().nested(3, inner);
        let mut want = Vec::new();
        want.extend(20u16.to_ne_bytes());
        want.extend(0x8003u16.to_ne_bytes());
        want.extend(7u16.to_ne_bytes());
        want.extend(1u16.to_ne_bytes());
        want.extend(b"ab\0\0");
        want.extend(8u16.to_ne_bytes());
        want.extend(2u16.to_ne_bytes());
        want.extend([0, 0, 1, 2]);
        assert_eq!(got.0, want);
    }

    #[test]
    fn a_batch_is_framed_and_only_its_last_request_asks_for_an_answer() {
        let request = |verb| Request { verb, attributes: Attributes::default().text(1, "cairn") };
        let requests = [request(Verb::NewTable), request(Verb::DeleteTable)];
        let batches = batches(&requests, 5);
        assert_eq!(batches.len(), 1);
        assert_eq!((batches[0].begin, batches[0].last), (5, 7));
        let got: Vec<_> = wire::messages(&batches[0].bytes)
            .map(|message| (message.kind, message.flags, message.sequence, table_of(message.kind, message.payload)))
            .collect();
        let table = || Some("cairn".to_owned());
        let want = [(0x10, 1, 5, None), (0x0a00, 0x401, 6, table()), (0x0a02, 0x5, 7, table()), (0x11, 1, 8, None)];
        assert_eq!(got, want);
    }

    #[test]
    fn many_requests_become_several_batches_in_order() {
        let large = Request { verb: Verb::NewElements, attributes: Attributes::default().bytes(3, &[7; 40_000]) };
        let requests = vec![large; 5];
        let batches = batches(&requests, 1);
        assert_eq!(
            batches.iter().map(|batch| (batch.begin, batch.last)).collect::<Vec<_>>(),
            [(1, 3), (5, 7), (9, 10)]
        );
        assert!(batches.iter().all(|batch| batch.last < 1 + sequences(&requests)));
    }
}
