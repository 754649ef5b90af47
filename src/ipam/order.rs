//! The order of addresses in the state file: by the bytes of their text (`10.224.0.10` before `10.224.0.9`), as the
//! original sorts its maps (contract section 5). Records are held in this order in memory too, so that reading, merging
//! and writing a large pool need no further sorting.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv4Addr};

/// Compares two addresses as their texts compare.
pub fn by_text(a: &IpAddr, b: &IpAddr) -> Ordering {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => text_order(*a).cmp(&text_order(*b)),
        _ => a.to_string().cmp(&b.to_string()),
    }
}

/// Whether each address sorts behind the one before it.
pub fn are_in_order<'a>(addresses: impl Iterator<Item = &'a IpAddr>) -> bool {
    addresses.is_sorted_by(|a, b| by_text(a, b).is_lt())
}

/// Sorts addresses by their text, and drops repetitions.
pub(super) fn sort_by_text(addresses: &mut Vec<IpAddr>) {
    // Sorting compares an address several times, so what is compared is made only once.
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
    let [a, b, c, d] = address.octets().map(octet_order);
    u64::from(a) << 48 | u64::from(b) << 32 | u64::from(c) << 16 | u64::from(d)
}

/// Returns a number that orders octets as their decimal texts: the digits from the left, then how many
/// they are. The texts of two octets end in a dot or at the end of the address, and both sort before
/// every digit.
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
    use proptest::prelude::*;
    use std::net::Ipv6Addr;

    proptest! {
        #[test]
        fn sorting_is_that_of_the_texts(bits: Vec<(bool, u16)>) {
            for kind in 0..4 {
                let near = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 0);
                let address = |(v4, n): &(bool, u16)| match kind {
                    0 => IpAddr::from(Ipv4Addr::from(u32::from(*n))),
                    1 if *v4 => IpAddr::from(Ipv4Addr::from(u32::from(*n))),
                    1 | 2 => IpAddr::from(u128::from(*n).to_be_bytes()),
                    // Of one subnet, at times without a zero.
                    _ => IpAddr::from((u128::from(near) | u128::from(n.max(&1) | u16::from(*v4))).to_be_bytes()),
                };
                let mut sorted: Vec<IpAddr> = bits.iter().map(address).collect();
                let mut texts: Vec<String> = sorted.iter().map(ToString::to_string).collect();
                texts.sort();
                texts.dedup();
                let in_order = sorted.is_sorted_by(|a, b| by_text(a, b).is_lt());
                prop_assert_eq!(are_in_order(sorted.iter()), in_order);
                sort_by_text(&mut sorted);
                prop_assert!(are_in_order(sorted.iter()));
                let found: Vec<String> = sorted.iter().map(ToString::to_string).collect();
                prop_assert_eq!(found, texts);
            }
        }

        #[test]
        fn the_order_is_that_of_the_texts(a: [u8; 4], b: [u8; 4], c: u128, d: u128) {
            let [a, b] = [a, b].map(IpAddr::from);
            let (c_bits, d_bits) = (c, d);
            let [c, d] = [c, d].map(|bits| IpAddr::from(bits.to_be_bytes()));
            let near = |end: u128| IpAddr::from((c_bits ^ end & 0xfff).to_be_bytes());
            for (x, y) in [(a, b), (c, d), (a, c), (c, near(d_bits)), (near(d_bits), near(d_bits >> 13))] {
                prop_assert_eq!(by_text(&x, &y), x.to_string().cmp(&y.to_string()));
            }
        }
    }
}
