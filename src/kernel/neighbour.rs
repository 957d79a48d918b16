//! The kernel's neighbour table (ARP, NDP) as messages of routing netlink: `struct ndmsg` and its attributes.

use super::wire;
use crate::model::{Family, Neighbour};

/// `RTM_NEWNEIGH`.
pub(super) const NEW_NEIGHBOUR: u16 = 28;
/// `RTM_DELNEIGH`.
const DEL_NEIGHBOUR: u16 = 29;
/// `RTM_GETNEIGH`.
pub(super) const GET_NEIGHBOUR: u16 = 30;
/// The multicast group (`RTNLGRP_NEIGH`) that tells of neighbours.
pub(super) const GROUP: u32 = 3;

const HEADER: usize = 12;
/// `NDA_DST`.
const DESTINATION: u16 = 1;
/// `NTF_USE`: as if a packet had to be sent there.
const USE: u8 = 0x01;

const INCOMPLETE: u16 = 0x01;
const FAILED: u16 = 0x20;
const NONE: u16 = 0x00;

/// What the kernel knows of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has answered, or needs not be asked.
    Answers,
    /// It was asked and did not answer.
    Silent,
    /// It is being asked, or the kernel has forgotten it.
    Unknown,
}

/// Asks for the neighbours of both families.
pub(super) fn list_request() -> Vec<u8> {
    vec![0; HEADER]
}

/// Makes the kernel look whether the neighbour is there.
pub(super) fn use_request(neighbour: &Neighbour) -> Vec<u8> {
    let mut bytes = vec![wire::family_number(Family::of(neighbour.address)), 0, 0, 0];
    bytes.extend(neighbour.interface.to_ne_bytes());
    bytes.extend(NONE.to_ne_bytes());
    bytes.extend([USE, 0]);
    wire::put_attribute(&mut bytes, DESTINATION, &wire::octets(neighbour.address));
    bytes
}

/// Reads an event; `None` for what is none of a neighbour.
pub(super) fn event(kind: u16, payload: &[u8]) -> Option<(Neighbour, Standing)> {
    match kind {
        NEW_NEIGHBOUR => entry(payload),
        DEL_NEIGHBOUR => entry(payload).map(|(neighbour, _)| (neighbour, Standing::Unknown)),
        _ => None,
    }
}

/// Reads an entry of the table; `None` for what has no IP address.
pub(super) fn entry(payload: &[u8]) -> Option<(Neighbour, Standing)> {
    let (header, attributes) = payload.split_first_chunk::<HEADER>()?;
    let [family, _, _, _, interface @ .., state_low, state_high, _flags, _kind] = *header;
    let address = wire::address(wire::attribute(attributes, DESTINATION)?)?;
    if wire::family(family) != Some(Family::of(address)) {
        return None;
    }
    let interface = u32::from_ne_bytes(interface);
    let standing = match u16::from_ne_bytes([state_low, state_high]) {
        NONE | INCOMPLETE => Standing::Unknown,
        FAILED => Standing::Silent,
        _ => Standing::Answers,
    };
    Some((Neighbour { address, interface }, standing))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_neighbour_reads_back_as_it_was_asked_for() {
        for address in ["10.90.0.12", "fd90::12"] {
            let neighbour = Neighbour { address: address.parse().expect("an address"), interface: 7 };
            let mut bytes = use_request(&neighbour);
            for (state, want) in [
                (0x01, Standing::Unknown),
                (0x02, Standing::Answers),
                (0x04, Standing::Answers),
                (0x20, Standing::Silent),
                (0x80, Standing::Answers),
            ] {
                bytes[8] = state;
                assert_eq!(event(NEW_NEIGHBOUR, &bytes), Some((neighbour, want)), "{address} in state {state:#x}");
                assert_eq!(event(DEL_NEIGHBOUR, &bytes), Some((neighbour, Standing::Unknown)));
            }
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(kind in 27u16..31, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = event(kind, &bytes);
        }
    }
}
