//! Rules that lead packets to routing tables (ip-rule(8)), as the kernel lists them.

use super::wire;
use crate::model::Family;

/// `RTM_GETRULE`.
pub(super) const GET_RULE: u16 = 34;

/// Length of `struct fib_rule_hdr`.
const HEADER: usize = 12;
/// `FRA_TABLE`.
const TABLE: u16 = 15;
/// `FRA_L3MDEV`.
const VIRTUAL_ROUTER: u16 = 19;

/// Asks for the rules of one family.
pub(super) fn request(family: Family) -> Vec<u8> {
    let mut out = vec![0; HEADER];
    out[0] = wire::family_number(family);
    out
}

/// The table a rule leads to; inside, `None` for one that leads to that of an interface's virtual router.
pub(super) fn target(payload: &[u8]) -> Option<Option<u32>> {
    let (header, attributes) = payload.split_first_chunk::<HEADER>()?;
    if wire::attribute(attributes, VIRTUAL_ROUTER).is_some_and(|value| value.first() == Some(&1)) {
        return Some(None);
    }
    Some(Some(wire::attribute(attributes, TABLE).and_then(wire::word).unwrap_or(u32::from(header[4]))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rule_names_its_table_or_a_virtual_router() {
        let mut short = request(Family::V4);
        short[4] = 254;
        let mut long = short.clone();
        wire::put_attribute(&mut long, TABLE, &1000u32.to_ne_bytes());
        let mut router = request(Family::V6);
        wire::put_attribute(&mut router, VIRTUAL_ROUTER, &[1]);
        assert_eq!([&short, &long, &router].map(|rule| target(rule)), [Some(Some(254)), Some(Some(1000)), Some(None)]);
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = target(&bytes);
        }
    }
}
