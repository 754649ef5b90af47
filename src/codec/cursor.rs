//! A cursor that reads a JSON text one value at a time.
//!
//! A state consists mostly of records of one shape. serde_json takes several times as long to read
//! them. The cursor reads the common values itself: spaces, members, strings without escapes and
//! short integers. It leaves everything else to serde_json, with its rules and error messages.

use std::net::IpAddr;

use memchr::arch::all::is_prefix;

use super::address::leading_address;

/// An error message, without the position.
pub type ParseError = String;

/// A position in a JSON text.
// Optimisation for size does not inline the short methods without `#[inline]`. Reading a state then
// took twice as long.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'de> {
    pub(super) rest: &'de str,
}

impl<'de> Cursor<'de> {
    /// Creates a cursor at the start of a text.
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

    /// Calls `read`, and restores the position if it returns `None`.
    pub fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let mut ahead = *self;
        let found = read(&mut ahead)?;
        *self = ahead;
        Some(found)
    }

    /// Skips `text` if it follows exactly. Returns whether it did.
    #[inline]
    pub fn literal(&mut self, text: &str) -> bool {
        // The standard library calls memcmp. musl's compares byte by byte, and a DEL took 8 %
        // longer.
        let is_there = is_prefix(self.rest.as_bytes(), text.as_bytes());
        if is_there {
            self.rest = self.rest.get(text.len()..).unwrap_or_default();
        }
        is_there
    }

    /// Reads an address without quotes.
    pub fn address(&mut self) -> Option<IpAddr> {
        let (address, after) = leading_address(self.rest.as_bytes())?;
        let length = self.left() - after.len();
        self.rest = self.rest.get(length..)?;
        Some(address)
    }

    /// Skips spaces, and returns the next byte without reading it.
    pub fn peek(&mut self) -> Option<u8> {
        self.skip_spaces();
        self.rest.as_bytes().first().copied()
    }

    /// Returns whether only spaces follow.
    pub fn is_at_end(&mut self) -> bool {
        self.skip_spaces();
        self.rest.is_empty()
    }

    /// Skips the spaces that JSON allows between values.
    #[inline]
    pub(super) fn skip_spaces(&mut self) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let count = self.rest.bytes().take_while(is_space).count();
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// Skips spaces, and `token` if it follows. Returns whether it did.
    #[inline]
    pub(super) fn take(&mut self, token: u8) -> bool {
        self.skip_spaces();
        match self.rest.split_at_checked(1) {
            Some((first, after)) if first.as_bytes() == [token] => {
                self.rest = after;
                true
            }
            _ => false,
        }
    }

    /// Skips spaces and `token`.
    ///
    /// # Errors
    /// `token` does not follow; the message calls it `name`.
    pub(super) fn expect(&mut self, token: u8, name: &str) -> Result<(), ParseError> {
        if self.take(token) {
            Ok(())
        } else {
            Err(format!("expected {name}"))
        }
    }
}
