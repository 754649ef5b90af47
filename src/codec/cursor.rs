//! A cursor that reads a JSON text one value at a time.
//!
//! A state is mostly records of one shape, and reading them with serde_json took two thirds of a DEL. The cursor reads plain values
//! itself (spaces, members, strings without escapes, short integers), and leaves everything else to serde_json, with its rules and
//! its error messages.

/// An error message, without the position.
pub type ParseError = String;

/// A position in a JSON text.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'de> {
    pub(super) rest: &'de str,
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
        let Some((found, after)) = self.rest.split_at_checked(text.len()) else {
            return false;
        };
        // Pieces of sixteen bytes are compared as numbers, and longer ones byte by byte.
        let (found, found_tail) = found.as_bytes().as_chunks::<16>();
        let (wanted, wanted_tail) = text.as_bytes().as_chunks::<16>();
        let is_there = found.iter().zip(wanted).all(|(a, b)| a == b) && found_tail == wanted_tail;
        if is_there {
            self.rest = after;
        }
        is_there
    }

    /// Reads a value with `read`, which gets the bytes that follow, and returns the value and the bytes after it.
    pub fn read_leading<T>(&mut self, read: impl FnOnce(&[u8]) -> Option<(T, &[u8])>) -> Option<T> {
        let (found, after) = read(self.rest.as_bytes())?;
        let length = self.left().saturating_sub(after.len());
        self.rest = self.rest.get(length..)?;
        Some(found)
    }

    /// Skips the first `length` bytes of `earlier`, at most sixteen, if the same bytes follow here.
    #[inline(always)]
    pub fn skip_repeated(&mut self, earlier: Cursor<'de>, length: usize) -> bool {
        let first = |text: &str| {
            text.as_bytes()
                .first_chunk()
                .map(|c| u128::from_le_bytes(*c))
        };
        let (Some(here), Some(there)) = (first(self.rest), first(earlier.rest)) else {
            return false;
        };
        let Some(beyond) = 16usize.checked_sub(length).filter(|n| *n < 16) else {
            return false;
        };
        // What lies beyond the length is shifted out.
        let is_there = (here ^ there) << (8 * beyond) == 0;
        match self.rest.get(length..) {
            Some(after) if is_there => {
                self.rest = after;
                true
            }
            _ => false,
        }
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

    /// Skips spaces; mostly there are none.
    #[inline(always)]
    pub(super) fn spaces(&mut self) {
        if self.rest.as_bytes().first().is_none_or(|b| *b <= b' ') {
            self.pass_spaces();
        }
    }

    fn pass_spaces(&mut self) {
        let mut rest = self.rest.as_bytes();
        while let [b' ' | b'\t' | b'\n' | b'\r', after @ ..] = rest {
            rest = after;
        }
        let length = self.rest.len() - rest.len();
        self.rest = self.rest.get(length..).unwrap_or_default();
    }

    #[inline(always)]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        self.spaces();
        let is_there = self.rest.as_bytes().first() == Some(&byte);
        if is_there {
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        is_there
    }

    pub(super) fn expect(&mut self, byte: u8, what: &str) -> Result<(), ParseError> {
        match self.take(byte) {
            true => Ok(()),
            false => Err(format!("expected {what}")),
        }
    }

    /// Skips a word, unless letters or digits continue it.
    pub(super) fn word(&mut self, word: &str) -> bool {
        let Some(after) = self.rest.strip_prefix(word) else {
            return false;
        };
        let goes_on = after
            .as_bytes()
            .first()
            .is_some_and(u8::is_ascii_alphanumeric);
        if !goes_on {
            self.rest = after;
        }
        !goes_on
    }
}
