//! Reads the values of a JSON text at a cursor.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::cursor::{Cursor, ParseError};

impl<'de> Cursor<'de> {
    /// Reads an object member by member. `member` gets each key and must read the value. `null`
    /// counts as an object without members.
    ///
    /// # Errors
    /// The value is neither an object nor `null`, or `member` fails.
    pub fn object(
        &mut self,
        member: &mut dyn FnMut(&str, &mut Self) -> Result<(), ParseError>,
    ) -> Result<(), ParseError> {
        self.members(&mut |json| {
            let key = json.key()?;
            member(&key, json)
        })
    }

    /// Reads an object member by member. `member` must read the spaces before the key, the key
    /// ([`Cursor::key`]) and the value. So it can read a member of a known layout in one piece.
    ///
    /// # Errors
    /// The errors of [`Cursor::object`].
    pub fn members(
        &mut self,
        member: &mut dyn FnMut(&mut Self) -> Result<(), ParseError>,
    ) -> Result<(), ParseError> {
        if self.null() {
            return Ok(());
        }
        self.expect(b'{', "an object")?;
        // A copy of the cursor checks for the end, because `member` must read the spaces before the
        // first key.
        let mut ahead = *self;
        if ahead.take(b'}') {
            *self = ahead;
            return Ok(());
        }
        loop {
            member(self)?;
            if !self.take(b',') {
                return self.expect(b'}', "`,` or `}`");
            }
        }
    }

    /// Reads the key of a member, and the colon.
    ///
    /// # Errors
    /// No string follows, or no colon after it.
    pub fn key(&mut self) -> Result<Cow<'de, str>, ParseError> {
        let key = self.string()?;
        // Nearly every text has this spelling, and one comparison is faster.
        if !self.literal(": ") {
            self.expect(b':', "`:`")?;
        }
        Ok(key)
    }

    /// Reads a list item by item; `item` must read the value.
    ///
    /// # Errors
    /// The value is not a list, or `item` fails.
    pub fn list(
        &mut self,
        item: &mut dyn FnMut(&mut Self) -> Result<(), ParseError>,
    ) -> Result<(), ParseError> {
        self.expect(b'[', "a list")?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            item(self)?;
            if !self.take(b',') {
                return self.expect(b']', "`,` or `]`");
            }
        }
    }

    /// Reads a string. It is borrowed from the text unless it has escapes.
    ///
    /// # Errors
    /// The value is not a string.
    pub fn string(&mut self) -> Result<Cow<'de, str>, ParseError> {
        self.skip_spaces();
        // serde_json reads strings with escapes, and reports control characters.
        let ends_plain_text = |byte: &u8| matches!(byte, b'"' | b'\\' | ..b' ');
        if let Some(inside) = self.rest.as_bytes().strip_prefix(b"\"")
            && let Some(length) = inside.iter().position(ends_plain_text)
            && inside.get(length) == Some(&b'"')
            && let Some(plain) = self.rest.get(1..=length)
            && let Some(after) = self.rest.get(length + 2..)
        {
            self.rest = after;
            return Ok(Cow::Borrowed(plain));
        }
        self.any().map(Cow::Owned)
    }

    /// Reads a number without sign, fraction and exponent.
    ///
    /// # Errors
    /// The value is not such a number, or it is too large.
    pub fn unsigned(&mut self) -> Result<u64, ParseError> {
        self.skip_spaces();
        if let Some((number, length)) = leading_number(self.rest.as_bytes())
            && let Some(after) = self.rest.get(length..)
        {
            self.rest = after;
            return Ok(number);
        }
        // serde_json makes the error message.
        self.any()
    }

    /// Skips `null`. Returns whether it was there.
    pub fn null(&mut self) -> bool {
        self.peek() == Some(b'n') && self.literal("null")
    }

    /// Skips a value of any type.
    ///
    /// # Errors
    /// No valid value follows.
    pub fn skip(&mut self) -> Result<(), ParseError> {
        self.any::<IgnoredAny>().map(drop)
    }

    /// Reads a value of any type as it is spelled.
    ///
    /// # Errors
    /// No valid value follows.
    pub fn raw(&mut self) -> Result<Box<RawValue>, ParseError> {
        self.any()
    }

    /// Reads a value with serde_json.
    ///
    /// # Errors
    /// No valid value follows, or it has another type.
    pub fn any<T: Deserialize<'de>>(&mut self) -> Result<T, ParseError> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<T>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(e)) => return Err(without_position(&e)),
            None => return Err("a value is missing".to_owned()),
        };
        let length = values.byte_offset();
        self.rest = self.rest.get(length..).unwrap_or_default();
        Ok(value)
    }
}

/// Parses the number at the start of a text. Returns it with its length. Returns `None` for a
/// number that is not an unsigned integer, does not fit, or has leading zeros.
fn leading_number(text: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0_u64;
    let mut length = 0;
    for digit in text.iter().take_while(|byte| byte.is_ascii_digit()) {
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
        length += 1;
    }
    let has_leading_zero = length > 1 && text.first() == Some(&b'0');
    let is_integer = length > 0 && !matches!(text.get(length), Some(b'.' | b'e' | b'E'));
    (is_integer && !has_leading_zero).then_some((number, length))
}

/// Removes the position from an error of serde_json. It is relative to the part of the text that
/// serde_json got.
fn without_position(error: &serde_json::Error) -> ParseError {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((message, _)) => message.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Reads a value of any type, with the cursor's own methods where it has one.
    fn walk(cursor: &mut Cursor<'_>) -> Result<Value, ParseError> {
        Ok(match cursor.peek() {
            Some(b'{') => {
                let mut members = serde_json::Map::new();
                cursor.object(&mut |key, cursor| {
                    members.insert(key.to_owned(), walk(cursor)?);
                    Ok(())
                })?;
                members.into()
            }
            Some(b'[') => {
                let mut items = Vec::new();
                cursor.list(&mut |cursor| {
                    items.push(walk(cursor)?);
                    Ok(())
                })?;
                items.into()
            }
            Some(b'"') => cursor.string()?.into_owned().into(),
            Some(b't' | b'f') => cursor.any::<bool>()?.into(),
            Some(b'0'..=b'9') => {
                let mut other = *cursor;
                match cursor.unsigned() {
                    Ok(number) => number.into(),
                    Err(_) => {
                        let value = other.any()?;
                        *cursor = other;
                        value
                    }
                }
            }
            Some(b'n') if cursor.null() => Value::Null,
            _ => cursor.any()?,
        })
    }

    fn read(text: &str) -> Option<Value> {
        let mut cursor = Cursor::new(text);
        let value = walk(&mut cursor).ok()?;
        cursor.is_at_end().then_some(value)
    }

    #[test]
    fn cursor_accepts_same_texts_as_serde_json() {
        // The random texts below contain none of these.
        for text in [
            "nullx",
            "truefalse",
            "\"a\nb\"",
            "\"\\u00e9\\n\"",
            "\"\\ud800\"",
            "\"ä\u{7f}\u{2028}\"",
            "- 1",
            "18446744073709551615",
            "18446744073709551616",
            "1a",
            "\u{a0}1",
            "\u{feff}{}",
            "{\"a\" : [ true , false,null ] }\r\n\t ",
            "{a:1}",
            "{'a':1}",
        ] {
            assert_eq!(read(text), serde_json::from_str(text).ok(), "{text:?}");
        }
    }

    #[test]
    fn since_returns_text_between_two_positions() {
        let mut cursor = Cursor::new(" { \"a\" : [1, 2] } ");
        let start = cursor;
        cursor.skip().unwrap();
        assert_eq!(cursor.since(start), "{ \"a\" : [1, 2] }");
        assert_eq!(cursor.left(), 1);
        assert!(cursor.is_at_end());
    }

    #[test]
    fn failed_attempt_reads_nothing() {
        let mut cursor = Cursor::new("ab");
        let found = cursor.attempt(|json| (json.literal("a") && json.literal("x")).then_some(()));
        assert_eq!((found, cursor.rest), (None, "ab"));
        let both = cursor.attempt(|json| (json.literal("a") && json.literal("b")).then_some(()));
        assert_eq!((both, cursor.rest), (Some(()), ""));
    }

    /// Matches texts that are made of pieces of JSON.
    const PIECES: &str = concat!(
        r#"([{}\[\]:, \n"]|"[ab\\u0]{0,3}"|-?[0-9]{1,3}|[.eE+]"#,
        r#"|true|false|null|1{18,21}){0,12}"#,
    );

    proptest! {
        #[test]
        fn text_of_json_characters_is_read_as_by_serde_json(text in PIECES) {
            prop_assert_eq!(read(&text), serde_json::from_str(&text).ok(), "{:?}", text);
        }
    }
}
