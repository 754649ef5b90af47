//! A cursor that reads a JSON text one value at a time.
//!
//! A state is mostly records of one shape, and reading them with serde_json took two thirds of a DEL. The cursor reads plain values
//! itself (spaces, members, strings without escapes, short integers), and leaves everything else to serde_json, with its rules and
//! its error messages.

use std::net::Ipv4Addr;

use super::address::leading_v4;

/// An error message, without the position.
pub type ParseError = String;

/// A position in a JSON text.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'de> {
    pub(super) rest: &'de str,
}

/// Compares a text with a literal of the same length by words, of which the last overlaps the one before: code that is optimised for
/// size would call memcmp for each, and an ADD would have 19 % more instructions.
#[inline(always)]
fn is_same(found: &[u8], literal: &[u8]) -> bool {
    match literal.len() {
        8.. => {
            let words = literal.as_chunks::<8>().0.iter();
            found.as_chunks().0.iter().zip(words).all(|(a, b)| a == b)
                && found.last_chunk::<8>() == literal.last_chunk()
        }
        4.. => ends::<4>(found) == ends(literal),
        2.. => ends::<2>(found) == ends(literal),
        _ => found.first() == literal.first(),
    }
}

/// The first and the last `N` bytes.
#[inline(always)]
fn ends<const N: usize>(text: &[u8]) -> (Option<&[u8; N]>, Option<&[u8; N]>) {
    (text.first_chunk(), text.last_chunk())
}

/// Skips a literal at the start of a text; `None` where something else is there.
#[inline(always)]
pub fn strip_literal<'a>(text: &'a [u8], literal: &'static [u8]) -> Option<&'a [u8]> {
    let (found, rest) = text.split_at_checked(literal.len())?;
    is_same(found, literal).then_some(rest)
}

/// Returns whether a text is a literal.
#[inline(always)]
pub fn is_literal(text: &str, literal: &'static str) -> bool {
    strip_literal(text.as_bytes(), literal.as_bytes()).is_some_and(<[u8]>::is_empty)
}

impl<'de> Cursor<'de> {
    /// The start of a text.
    pub fn new(text: &'de str) -> Self {
        Cursor { rest: text }
    }

    /// Returns how many bytes follow.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Returns the text between an earlier position and this one, without leading spaces.
    pub fn since(&self, earlier: Cursor<'de>) -> &'de str {
        let length = earlier.left().saturating_sub(self.left());
        earlier.rest.get(..length).unwrap_or_default().trim_start()
    }

    /// Skips `text` if it follows exactly. Returns whether it did.
    #[inline(always)]
    pub fn literal(&mut self, text: &'static str) -> bool {
        match self.rest.split_at_checked(text.len()) {
            Some((found, after)) if is_same(found.as_bytes(), text.as_bytes()) => {
                self.rest = after;
                true
            }
            _ => false,
        }
    }

    /// Goes on with what follows, if something was found. Returns whether it was.
    #[inline(always)]
    fn advance(&mut self, after: Option<&'de str>) -> bool {
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// Reads a value with `read`, which gets the bytes that follow, and returns the value and the bytes after it.
    #[inline(always)]
    pub fn read_leading<T>(&mut self, read: impl FnOnce(&[u8]) -> Option<(T, &[u8])>) -> Option<T> {
        let (found, after) = read(self.rest.as_bytes())?;
        let length = self.left().saturating_sub(after.len());
        self.rest = self.rest.get(length..)?;
        Some(found)
    }

    /// Reads an IPv4 address. It stands apart, as its result fits into a register.
    pub fn v4(&mut self) -> Option<Ipv4Addr> {
        self.read_leading(leading_v4)
    }

    /// Skips the first `length` bytes of `earlier`, at most sixteen, if the same bytes follow here.
    #[inline(always)]
    pub fn skip_repeated(&mut self, earlier: Cursor<'de>, length: usize) -> bool {
        let first = |text: &str| Some(u128::from_le_bytes(*text.as_bytes().first_chunk()?));
        let bits = first(self.rest).zip(first(earlier.rest));
        let is_there = bits
            .is_some_and(|(here, there)| (here ^ there).trailing_zeros() as usize / 8 >= length);
        self.advance(self.rest.get(length..).filter(|_| is_there))
    }

    /// Skips spaces, and returns the next byte.
    pub fn peek(&mut self) -> Option<u8> {
        self.spaces();
        self.rest.as_bytes().first().copied()
    }

    /// Returns whether only spaces follow.
    pub fn is_at_end(&mut self) -> bool {
        self.spaces();
        self.rest.is_empty()
    }

    /// Skips spaces; mostly there is one or none.
    #[inline(always)]
    pub(super) fn spaces(&mut self) {
        self.literal(" ");
        if self.rest.as_bytes().first().is_none_or(|b| *b <= b' ') {
            self.pass_spaces();
        }
    }

    fn pass_spaces(&mut self) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let length = self.rest.bytes().take_while(is_space).count();
        self.rest = self.rest.get(length..).unwrap_or_default();
    }

    #[inline(always)]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        self.spaces();
        let is_there = self.rest.as_bytes().first() == Some(&byte);
        self.advance(self.rest.get(1..).filter(|_| is_there))
    }

    pub(super) fn expect(&mut self, byte: u8, what: &str) -> Result<(), ParseError> {
        let is_there = self.take(byte);
        is_there
            .then_some(())
            .ok_or_else(|| format!("expected {what}"))
    }
}
