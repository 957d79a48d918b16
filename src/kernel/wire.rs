//! Netlink framing: messages in a datagram, attributes in a message (netlink(7)), and the values that the
//! messages of routing netlink have in common (rtnetlink(7)).
//!
//! Headers and lengths are in the machine's byte order; what else a value holds is up to its protocol.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_DUMP_INTR;

use crate::model::Family;

const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// `NLMSG_ERROR`: the outcome of one request; error 0 is success.
const KIND_ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a dump.
const KIND_DONE: u16 = 3;
/// The lower message kinds are netlink's own (`NLMSG_MIN_TYPE`).
const FIRST_PROTOCOL_KIND: u16 = 16;

/// One netlink message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    /// What it is, in the words of its protocol.
    pub(super) kind: u16,
    /// `NLM_F_*`.
    pub(super) flags: u16,
    /// The request it answers.
    pub(super) sequence: u32,
    /// The socket that asked for it or caused it; 0 is the kernel itself.
    pub(super) port: u32,
    /// What follows the header.
    pub(super) payload: &'a [u8],
}

/// What a message tells about the request it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// One item of a dump, or an event.
    Item,
    /// The request was carried out, or its dump is complete.
    Done,
    /// The request was refused with this error number.
    Refused(i32),
    /// Netlink's own, of no interest.
    Noise,
}

impl Message<'_> {
    /// What it tells about its request.
    pub(super) fn answer(&self) -> Answer {
        match self.kind {
            KIND_ERROR | KIND_DONE => {
                // Both begin with a negative error number; an old kernel's NLMSG_DONE may be empty.
                let number = self.payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                if number < 0 { Answer::Refused(number.saturating_neg()) } else { Answer::Done }
            }
            kind if kind < FIRST_PROTOCOL_KIND => Answer::Noise,
            _ => Answer::Item,
        }
    }

    /// Whether the dump it belongs to was overtaken by a change and may be inconsistent.
    pub(super) fn is_interrupted(&self) -> bool {
        self.flags & NLM_F_DUMP_INTR != 0
    }
}

/// The messages of one datagram; a malformed rest is left out.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<HEADER>()?;
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let length = usize::try_from(word(0)).ok()?;
        let payload = rest.get(HEADER..length)?;
        let message = Message { kind: half(4), flags: half(6), sequence: word(8), port: word(12), payload };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Appends one message with this payload.
///
/// # Panics
/// When the payload has 4 GiB or more; the callers' are bounded far below.
pub(super) fn put_message(out: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32, payload: &[u8]) {
    let length = u32::try_from(HEADER + payload.len()).expect("a netlink message is far below 4 GiB");
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    // Port 0: the kernel fills in the sender's.
    out.extend(0u32.to_ne_bytes());
    out.extend(payload);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends one attribute.
///
/// # Panics
/// When the value has 64 KiB or more; the callers' are bounded far below.
pub(super) fn put_attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).expect("an attribute is far below 64 KiB");
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The attributes in order, each its kind and value; a malformed rest is left out.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Two bits of the kind say how to read the value.
    const KIND: u16 = 0x3fff;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let [a, b, c, d] = *rest.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & KIND, value))
    })
}

/// The value of the first attribute of this kind.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// The number of a family (`AF_INET`, `AF_INET6`).
pub(super) const fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

/// The family of a number; none for what is neither IPv4 nor IPv6.
pub(super) fn family(number: u8) -> Option<Family> {
    [Family::V4, Family::V6].into_iter().find(|family| family_number(*family) == number)
}

/// An address as a value.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A value that is an address, of which family its length says.
pub(super) fn address(value: &[u8]) -> Option<IpAddr> {
    let v4 = || Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?));
    v4().or_else(|| Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)))
}

/// A value that begins with a number.
pub(super) fn word(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|octets| u32::from_ne_bytes(*octets))
}

/// A text that ends with the first NUL or the value.
pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_come_back_as_they_were_put() {
        let mut bytes = Vec::new();
        put_message(&mut bytes, 24, 5, 7, b"abc");
        put_message(&mut bytes, KIND_ERROR, 0, 8, &(-17i32).to_ne_bytes());
        put_message(&mut bytes, KIND_DONE, NLM_F_DUMP_INTR, 9, &[]);
        let got: Vec<_> = messages(&bytes).map(|m| (m.kind, m.sequence, m.answer(), m.is_interrupted())).collect();
        let want = [
            (24, 7, Answer::Item, false),
            (KIND_ERROR, 8, Answer::Refused(17), false),
            (KIND_DONE, 9, Answer::Done, true),
        ];
        assert_eq!(got, want);
        assert_eq!(messages(&bytes).next().map(|m| m.payload), Some(&b"abc"[..]));
    }

    #[test]
    fn a_text_ends_with_its_nul() {
        assert_eq!(text(b"eth0\0\0"), "eth0");
        assert_eq!(text(b"eth0"), "eth0");
    }

    fn attribute_list() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
        proptest::collection::vec((0u16..0x4000, proptest::collection::vec(any::<u8>(), 0..40)), 0..8)
    }

    proptest! {
        #[test]
        fn attributes_come_back_as_they_were_put(list in attribute_list()) {
            let mut bytes = Vec::new();
            list.iter().for_each(|(kind, value)| put_attribute(&mut bytes, *kind, value));
            prop_assert_eq!(bytes.len() % 4, 0);
            let got: Vec<_> = attributes(&bytes).map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(&got, &list);
            let first = |kind| list.iter().find(|(of, _)| *of == kind).map(|(_, value)| &value[..]);
            prop_assert!(list.iter().all(|(kind, _)| attribute(&bytes, *kind) == first(*kind)));
        }

        #[test]
        fn values_come_back_as_they_were_put(ip: IpAddr, number: u32, length in 0usize..20) {
            prop_assert_eq!(address(&octets(ip)), Some(ip));
            prop_assert_eq!(word(&number.to_ne_bytes()), Some(number));
            prop_assert_eq!(family(family_number(Family::of(ip))), Some(Family::of(ip)));
            let some = vec![7; length];
            prop_assert_eq!(address(&some).is_some(), [4, 16].contains(&length));
            prop_assert_eq!(word(&some).is_some(), length >= 4);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u16..9) {
            for message in messages(&bytes) {
                message.answer();
                let _ = attribute(message.payload, kind);
            }
            let _ = attribute(&bytes, kind);
        }
    }
}
