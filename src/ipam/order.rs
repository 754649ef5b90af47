//! The order of addresses in the state file: by the bytes of their text (`10.224.0.10` before `10.224.0.9`), as the
//! original sorts its maps (contract section 5). Records are held in this order in memory too, so that reading, merging
//! and writing a large pool need no further sorting.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv6Addr};

/// Compares two addresses as their texts compare.
///
/// For IPv4 no text is made: at the first octet that differs both texts end in a dot or at the end, and both sort before
/// every digit, so the order of that octet's decimal texts decides. Nor for addresses of IPv6 that differ in their last 16 bits
/// alone, as those of most pools do: that is the end of both texts.
pub fn by_text(a: &IpAddr, b: &IpAddr) -> Ordering {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let (a, b) = (u32::from(*a), u32::from(*b));
            let same_bits = (a ^ b).leading_zeros() / 8 * 8;
            let first_other = |bits: u32| bits.rotate_left(same_bits).to_be_bytes()[0];
            rank(first_other(a)).cmp(&rank(first_other(b)))
        }
        (IpAddr::V6(a), IpAddr::V6(b)) if differ_at_the_end(*a, *b) => {
            end_rank(*a).cmp(&end_rank(*b))
        }
        _ => compare_texts(a, b),
    }
}

/// Separate, so that the common paths stay short.
#[cold]
fn compare_texts(a: &IpAddr, b: &IpAddr) -> Ordering {
    a.to_string().cmp(&b.to_string())
}

/// Whether each address sorts behind the one before it.
pub fn are_in_order<'a>(addresses: impl Iterator<Item = &'a IpAddr>) -> bool {
    addresses.is_sorted_by(|a, b| by_text(a, b).is_lt())
}

/// Sorts addresses by their text, and drops repetitions. Makes at most one text of each address, and none of IPv4.
pub(super) fn sort_by_text(addresses: &mut Vec<IpAddr>) {
    if addresses.iter().all(IpAddr::is_ipv4) {
        addresses.sort_by_cached_key(|address| match address {
            IpAddr::V4(v4) => {
                (v4.octets().iter()).fold(0, |key, octet| key << 16 | u64::from(rank(*octet)))
            }
            IpAddr::V6(_) => 0,
        });
    } else {
        addresses.sort_by_cached_key(IpAddr::to_string);
    }
    addresses.dedup();
}

/// Whether the texts of two addresses are the same up to the last colon. Zeros at the end may be part of a `::`, and addresses
/// that stand for IPv4 end otherwise.
fn differ_at_the_end(a: Ipv6Addr, b: Ipv6Addr) -> bool {
    let (a, b) = (u128::from(a), u128::from(b));
    a >> 16 == b >> 16 && a & 0xffff != 0 && b & 0xffff != 0 && a >> 32 != 0xffff
}

/// What sorts as the hexadecimal text of the last 16 bits does: its digits from the left, and then how many they are.
fn end_rank(address: Ipv6Addr) -> (u32, u32) {
    let [.., end] = address.segments();
    let digits = u16::BITS / 4 - end.leading_zeros() / 4;
    (u32::from(end) << (u16::BITS - 4 * digits), digits)
}

/// What sorts as the decimal text of an octet does, like [`end_rank`].
#[expect(
    clippy::indexing_slicing,
    reason = "an octet is an index of 256 places"
)]
fn rank(octet: u8) -> u16 {
    // Reading and merging a pool compare each address several times; computing this each time takes 2 % of an ADD.
    static RANKS: [u16; 256] = {
        let mut ranks = [0; 256];
        let mut n = 0;
        while n < 256 {
            ranks[n as usize] = match n {
                0..10 => n * 1000 + 1,
                10..100 => n * 100 + 2,
                _ => n * 10 + 3,
            };
            n += 1;
        }
        ranks
    };
    RANKS[usize::from(octet)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

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
