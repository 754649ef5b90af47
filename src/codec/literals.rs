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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_plain_part_ends_at_the_first_special_byte(text: Vec<u8>) {
            let special = |b: &u8| *b < b' ' || *b == b'"' || *b == 0xe2;
            let first = text.iter().position(special).unwrap_or(text.len());
            prop_assert_eq!(plain_length(&text, [b'"', 0xe2]), first);
        }
    }
}
