//! Prefixes on the wire: a length in bits, then as many octets as hold them (RFC 4271 §4.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::{Family, Prefix};

use super::cursor::Cursor;
use super::notification::Reason;

/// Reads prefixes to the end of the block.
///
/// # Errors
/// A length beyond the family's, or a prefix that the block cuts off: the rest cannot be found
/// any more (RFC 7606 §3(j), §5.3), so the session has to end.
pub(super) fn decode(family: Family, block: &[u8]) -> Result<Vec<Prefix>, Reason> {
    let mut cursor = Cursor::new(block);
    let mut prefixes = Vec::new();
    while let Some(length) = cursor.u8() {
        let octets = cursor.take(usize::from(length).div_ceil(8)).ok_or(Reason::InvalidNetworkField)?;
        prefixes.push(prefix(family, length, octets).ok_or(Reason::InvalidNetworkField)?);
    }
    Ok(prefixes)
}

fn prefix(family: Family, length: u8, octets: &[u8]) -> Option<Prefix> {
    let mut whole = [0; 16];
    whole.get_mut(..octets.len())?.copy_from_slice(octets);
    let address = match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from([whole[0], whole[1], whole[2], whole[3]])),
        Family::V6 => IpAddr::V6(Ipv6Addr::from(whole)),
    };
    // Bits beyond the length carry no meaning (RFC 4271 §4.3); `containing` clears them.
    Prefix::containing(address, length)
}

/// The octets a prefix takes.
pub(super) fn encoded_length(prefix: &Prefix) -> usize {
    1 + usize::from(prefix.length()).div_ceil(8)
}

/// Writes one prefix.
pub(super) fn encode(prefix: &Prefix, out: &mut Vec<u8>) {
    let octets = usize::from(prefix.length()).div_ceil(8);
    out.push(prefix.length());
    match prefix.address() {
        IpAddr::V4(address) => out.extend(&address.octets()[..octets]),
        IpAddr::V6(address) => out.extend(&address.octets()[..octets]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_read_as_the_rfc_writes_them() {
        for (family, block, want) in [
            (Family::V4, &[24, 10, 244, 1][..], Ok(vec!["10.244.1.0/24"])),
            (Family::V4, &[0, 8, 10], Ok(vec!["0.0.0.0/0", "10.0.0.0/8"])),
            (Family::V4, &[20, 10, 1, 0xff], Ok(vec!["10.1.240.0/20"])),
            (Family::V6, &[64, 0xfd, 0, 0, 1, 0, 2, 0, 3], Ok(vec!["fd00:1:2:3::/64"])),
            (Family::V4, &[33, 10, 0, 0, 0, 0], Err(Reason::InvalidNetworkField)),
            (Family::V6, &[129; 20], Err(Reason::InvalidNetworkField)),
            (Family::V4, &[24, 10, 244], Err(Reason::InvalidNetworkField)),
            (Family::V6, &[255; 40], Err(Reason::InvalidNetworkField)),
        ] {
            let got = decode(family, block).map(|all| all.iter().map(Prefix::to_string).collect::<Vec<_>>());
            assert_eq!(got, want.map(|all| all.into_iter().map(str::to_owned).collect()), "{block:?}");
        }
    }
}
