//! Scans text eight bytes at a time, as a state is mostly strings and numbers.

/// One in every byte.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The high bit of every byte.
const HIGHS: u64 = ONES << 7;

/// Returns how many bytes at the start of a text are neither control characters nor one of `special`.
#[inline(always)]
pub fn plain_length<const N: usize>(text: &[u8], special: [u8; N]) -> usize {
    // Each sets the high bit of the bytes it is about, and perhaps of those above, which does not matter for the lowest.
    let below = |chunk: u64, limit: u8| chunk.wrapping_sub(ONES * u64::from(limit)) & !chunk;
    let equal = |chunk: u64, byte: u8| below(chunk ^ (ONES * u64::from(byte)), 1);
    let (chunks, tail) = text.as_chunks();
    let mut length = 0;
    for chunk in chunks {
        let chunk = u64::from_le_bytes(*chunk);
        let found = special.iter().fold(below(chunk, b' '), |found, byte| {
            found | equal(chunk, *byte)
        });
        match found & HIGHS {
            0 => length += 8,
            found => return length + (found.trailing_zeros() / 8) as usize,
        }
    }
    let is_plain = |b: &&u8| **b >= b' ' && !special.contains(b);
    length + tail.iter().take_while(is_plain).count()
}

/// Parses eight decimal digits; `None` if one of them is not a digit.
pub fn eight_digits(digits: [u8; 8]) -> Option<u64> {
    // What each digit is worth, from the lowest byte; more than nine sets the high bit of a sum.
    let worth = u64::from_le_bytes(digits) ^ (ONES * u64::from(b'0'));
    if (worth.wrapping_add(ONES * (0x80 - 10)) | worth) & HIGHS != 0 {
        return None;
    }
    // Neighbours are joined: digits to pairs, pairs to fours, fours to all eight.
    let join = |n: u64, by: u64, bits: u32| n.wrapping_mul(by).wrapping_add(n >> bits);
    let pairs = join(worth, 10, 8) & 0x00ff_00ff_00ff_00ff;
    let fours = join(pairs, 100, 16) & 0x0000_ffff_0000_ffff;
    Some(join(fours, 10_000, 32) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn eight_digits_are_worth_what_they_say(text in "[0-9]{8}|[ -~]{8}|[/-:]{8}") {
            let digits: [u8; 8] = text.as_bytes().try_into().unwrap();
            let is_number = text.bytes().all(|b| b.is_ascii_digit());
            let worth = is_number.then(|| text.parse().unwrap());
            prop_assert_eq!(eight_digits(digits), worth);
        }

        #[test]
        fn the_plain_part_ends_at_the_first_special_byte(text: Vec<u8>) {
            let special = |b: &u8| *b < b' ' || *b == b'"' || *b == 0xe2;
            let first = text.iter().position(special).unwrap_or(text.len());
            prop_assert_eq!(plain_length(&text, [b'"', 0xe2]), first);
        }
    }
}
