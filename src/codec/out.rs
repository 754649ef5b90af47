//! The text of a state while it is written.
//!
//! It consists of thousands of small pieces. musl copies a few bytes as slowly as a hundred, and a growing vector checks its room for
//! each piece. Here pieces of a length known to the compiler become a few moves.

use std::fmt;

/// A buffer, and how much of it is used.
#[derive(Debug, Default)]
pub struct Out {
    bytes: Vec<u8>,
    used: usize,
}

impl Out {
    /// Creates an empty text that overwrites these bytes and may grow.
    pub fn reusing(mut bytes: Vec<u8>, room: usize) -> Out {
        bytes.resize(bytes.len() + room, 0);
        Out { bytes, used: 0 }
    }

    /// The text.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.used);
        self.bytes
    }

    /// How many bytes there are.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Appends `length` bytes, at most those of an address, that stand at `start` already.
    #[inline(always)]
    pub fn again(&mut self, start: usize, length: usize) {
        const LONGEST: usize = 40;
        self.place(LONGEST);
        let standing = self.bytes.get(start..).and_then(|b| b.first_chunk());
        let piece: [u8; LONGEST] = standing.copied().unwrap_or([0; LONGEST]);
        self.start_of(piece, length);
    }

    /// Appends a literal.
    #[inline(always)]
    pub fn literal(&mut self, text: &'static str) {
        self.place(text.len()).copy_from_slice(text.as_bytes());
        self.used += text.len();
    }

    /// Appends the first `length` bytes of `piece`, all of which is copied.
    #[inline(always)]
    pub fn start_of<const N: usize>(&mut self, piece: [u8; N], length: usize) {
        self.place(N).copy_from_slice(&piece);
        self.used += length.min(N);
    }

    /// Removes the last `count` bytes.
    pub fn back(&mut self, count: usize) {
        self.used = self.used.saturating_sub(count);
    }

    /// Appends a byte.
    #[inline(always)]
    pub fn byte(&mut self, byte: u8) {
        self.start_of([byte], 1);
    }

    /// Appends a text.
    pub fn text(&mut self, text: &str) {
        self.place(text.len()).copy_from_slice(text.as_bytes());
        self.used += text.len();
    }

    /// The next so many bytes.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        reason = "the line before makes room for what is indexed"
    )]
    fn place(&mut self, length: usize) -> &mut [u8] {
        if self.bytes.len() - self.used < length {
            self.grow(length);
        }
        &mut self.bytes[self.used..self.used + length]
    }

    #[cold]
    fn grow(&mut self, length: usize) {
        let room = self.bytes.len() * 2 + length;
        self.bytes.resize(room, 0);
    }
}

impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_every_length_follow_each_other() {
        let mut out = Out::reusing(b"abc".to_vec(), 3);
        let mut expected = String::new();
        for length in 0..70 {
            let text = "0123456789".repeat(7);
            let text = &text[..length];
            out.text(text);
            out.literal("a literal that is longer than sixteen bytes, and than thirty-two");
            out.start_of(*b"leading", 4);
            let start = out.used() - 4;
            out.again(start, 4);
            out.again(start - 40, 40);
            out.byte(b'!');
            expected += text;
            expected += "a literal that is longer than sixteen bytes, and than thirty-twoleadlead";
            let before = expected.len() - 48;
            expected.extend_from_within(before..before + 40);
            expected += "!";
        }
        assert_eq!(String::from_utf8(out.into_bytes()).unwrap(), expected);
        assert!(Out::default().into_bytes().is_empty());
    }
}
