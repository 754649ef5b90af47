//! The order of addresses in the state file: by the bytes of their text (`10.224.0.10` before `10.224.0.9`), as the
//! original sorts its maps (contract section 5). Records are held in this order in memory too, so that reading, merging
//! and writing a large pool need no further sorting.

use std::cmp::Ordering;
use std::net::IpAddr;

/// Compares two addresses as their texts compare.
///
/// For IPv4 no text is made: at the first octet that differs both texts end in a dot or at the end, and both sort before
/// every digit, so the order of the octets' decimal texts decides.
pub fn by_text(a: &IpAddr, b: &IpAddr) -> Ordering {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => rank(a.octets()).cmp(&rank(b.octets())),
        _ => a.to_string().cmp(&b.to_string()),
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "an octet is an index of 256 places"
)]
fn rank(octets: [u8; 4]) -> u32 {
    u32::from_be_bytes(octets.map(|octet| RANK[usize::from(octet)]))
}

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which would refuse"
)]
/// The place of each number from 0 to 255 when their decimal texts are sorted.
const RANK: [u8; 256] = {
    let mut ranks = [0u8; 256];
    let mut next = 0u8;
    // A walk over the texts in their order: a number, then the same with each further digit.
    let mut hundreds = 0;
    while hundreds < 10 {
        ranks[hundreds] = next;
        next = next.wrapping_add(1);
        let mut tens = 0;
        while hundreds != 0 && tens < 10 {
            let two = hundreds * 10 + tens;
            ranks[two] = next;
            next = next.wrapping_add(1);
            let mut ones = 0;
            while ones < 10 && two * 10 + ones < 256 {
                ranks[two * 10 + ones] = next;
                next = next.wrapping_add(1);
                ones += 1;
            }
            tens += 1;
        }
        hundreds += 1;
    }
    ranks
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_are_those_of_the_sorted_texts() {
        let mut texts: Vec<String> = (0..=255).map(|n: u16| n.to_string()).collect();
        texts.sort();
        for (place, text) in texts.iter().enumerate() {
            assert_eq!(
                usize::from(RANK[text.parse::<usize>().unwrap()]),
                place,
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_texts(a: [u8; 4], b: [u8; 4], c: u128, d: u128) {
            let [a, b] = [a, b].map(IpAddr::from);
            let [c, d] = [c, d].map(|bits| IpAddr::from(bits.to_be_bytes()));
            for (x, y) in [(a, b), (c, d), (a, c)] {
                prop_assert_eq!(by_text(&x, &y), x.to_string().cmp(&y.to_string()));
            }
        }
    }
}
