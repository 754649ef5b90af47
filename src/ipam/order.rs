//! The order of addresses in the state file: by the bytes of their text (`10.224.0.10` before `10.224.0.9`), as the
//! original sorts its maps (contract section 5). Records are held in this order in memory too, so that reading, merging
//! and writing a large pool need no further sorting.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv4Addr};

/// Compares two addresses by their texts.
pub fn by_text(a: &IpAddr, b: &IpAddr) -> Ordering {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => text_order(*a).cmp(&text_order(*b)),
        _ => a.to_string().cmp(&b.to_string()),
    }
}

/// Returns whether each address sorts after the one before it.
pub fn are_in_order<'a>(addresses: impl Iterator<Item = &'a IpAddr>) -> bool {
    addresses.is_sorted_by(|a, b| by_text(a, b).is_lt())
}

/// Sorts addresses by their text, and drops repetitions.
pub(super) fn sort_by_text(addresses: &mut Vec<IpAddr>) {
    // Sorting compares an address several times, so its sort key is computed only once.
    let v4 = addresses.iter().map(|address| match address {
        IpAddr::V4(v4) => Some((text_order(*v4), *address)),
        IpAddr::V6(_) => None,
    });
    if let Some(mut in_order) = v4.collect::<Option<Vec<_>>>() {
        in_order.sort_unstable_by_key(|(order, _)| *order);
        in_order.dedup();
        *addresses = in_order.into_iter().map(|(_, address)| address).collect();
    } else {
        addresses.sort_by_cached_key(IpAddr::to_string);
        addresses.dedup();
    }
}

/// Returns a number that orders IPv4 addresses as their texts.
fn text_order(address: Ipv4Addr) -> u64 {
    address.octets().into_iter().fold(0, |number, octet| {
        (number << 16) | u64::from(octet_order(octet))
    })
}

/// Returns a number that orders octets as their decimal texts: first the digits, aligned to the left, then how many they are. The text of
/// an octet ends in a dot or at the end of the address. Both sort before every digit.
fn octet_order(octet: u8) -> u16 {
    let octet = u16::from(octet);
    match octet {
        0..10 => octet * 1000 + 1,
        10..100 => octet * 100 + 2,
        _ => octet * 10 + 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::net::Ipv6Addr;

    /// Lists of IPv4 addresses, of IPv6 addresses, of IPv6 addresses of one subnet, and of both families.
    fn addresses() -> impl Strategy<Value = Vec<IpAddr>> {
        let v4 = || any::<u16>().prop_map(|n| IpAddr::from(Ipv4Addr::from(u32::from(n))));
        let v6 = || any::<u16>().prop_map(|n| IpAddr::from(Ipv6Addr::from(u128::from(n))));
        let of_one_subnet =
            any::<u16>().prop_map(|n| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, n)));
        prop_oneof![
            vec(v4(), 0..100),
            vec(v6(), 0..100),
            vec(of_one_subnet, 0..100),
            vec(prop_oneof![v4(), v6()], 0..100),
        ]
    }

    fn texts(addresses: &[IpAddr]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    proptest! {
        #[test]
        fn sort_order_equals_order_of_texts(addresses in addresses()) {
            let mut in_order = texts(&addresses);
            let was_in_order = in_order.is_sorted_by(|a, b| a < b);
            prop_assert_eq!(are_in_order(addresses.iter()), was_in_order);
            in_order.sort();
            in_order.dedup();
            let mut sorted = addresses;
            sort_by_text(&mut sorted);
            prop_assert!(are_in_order(sorted.iter()));
            prop_assert_eq!(texts(&sorted), in_order);
        }

        #[test]
        fn comparison_equals_comparison_of_texts(a: [u8; 4], b: [u8; 4], c: u128, d: u128) {
            let [a, b] = [a, b].map(IpAddr::from);
            let (c_bits, d_bits) = (c, d);
            let [c, d] = [c, d].map(|bits| IpAddr::from(bits.to_be_bytes()));
            let near = |end: u128| IpAddr::from((c_bits ^ (end & 0xfff)).to_be_bytes());
            for (x, y) in [(a, b), (c, d), (a, c), (c, near(d_bits)), (near(d_bits), near(d_bits >> 13))] {
                prop_assert_eq!(by_text(&x, &y), x.to_string().cmp(&y.to_string()));
            }
        }
    }
}
