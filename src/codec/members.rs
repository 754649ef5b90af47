//! Reads JSON objects into Rust values, member by member.

use std::borrow::Cow;
use std::str::Utf8Error;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use super::{Cursor, ParseError};

/// Why a document cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    message: String,
    is_eof: bool,
}

impl Error {
    /// Returns whether the document ends too early.
    pub fn is_eof(&self) -> bool {
        self.is_eof
    }

    /// Creates the error for `text` where `cursor` has stopped: serde_json's message where it is not JSON, else `wrong`.
    fn new(wrong: ParseError, text: &str, cursor: Cursor<'_>) -> Error {
        if let Err(e) = serde_json::from_str::<IgnoredAny>(text) {
            return Error {
                message: e.to_string(),
                is_eof: e.is_eof(),
            };
        }
        let read = text.len().saturating_sub(cursor.left());
        let before = text.get(..read).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().len();
        Error {
            message: format!("{wrong} at line {line} column {column}"),
            is_eof: false,
        }
    }
}

impl From<Utf8Error> for Error {
    fn from(error: Utf8Error) -> Error {
        Error {
            message: error.to_string(),
            is_eof: false,
        }
    }
}

/// A value that takes the members of a JSON object one by one.
pub trait Members<'de> {
    /// Reads the value that belongs to `key`; must consume exactly one value ([`Cursor::skip`] for an unknown key).
    ///
    /// # Errors
    /// The value is not what it must be.
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError>;
}

/// Reads one JSON document into `target`. Bytes that are not UTF-8 count as U+FFFD, as in the original.
///
/// # Errors
/// Text that is not JSON, a document that is neither an object nor `null`, a member of the wrong type.
pub fn read<T: for<'de> Members<'de>>(json: &[u8], target: &mut T) -> Result<(), Error> {
    document(&String::from_utf8_lossy(json), |json| object(json, target))
}

/// Reads one JSON document with `read`, which must consume the value.
///
/// # Errors
/// Text that is not JSON, what `read` finds wrong.
pub fn document<'de>(
    text: &'de str,
    read: impl FnOnce(&mut Cursor<'de>) -> Result<(), ParseError>,
) -> Result<(), Error> {
    let mut cursor = Cursor::new(text);
    let read = read(&mut cursor).and_then(|()| match cursor.is_at_end() {
        true => Ok(()),
        false => Err("trailing characters".to_owned()),
    });
    read.map_err(|wrong| Error::new(wrong, text, cursor))
}

/// A JSON value without members.
pub trait Scalar<'de>: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// The value has another type.
    fn scalar(json: &mut Cursor<'de>) -> Result<Self, ParseError>;
}

impl<'de> Scalar<'de> for String {
    fn scalar(json: &mut Cursor<'de>) -> Result<Self, ParseError> {
        json.string().map(String::from)
    }
}

impl<'de> Scalar<'de> for Cow<'de, str> {
    fn scalar(json: &mut Cursor<'de>) -> Result<Self, ParseError> {
        json.string()
    }
}

impl<'de> Scalar<'de> for bool {
    fn scalar(json: &mut Cursor<'de>) -> Result<Self, ParseError> {
        json.boolean()
    }
}

impl<'de> Scalar<'de> for u64 {
    fn scalar(json: &mut Cursor<'de>) -> Result<Self, ParseError> {
        json.unsigned()
    }
}

impl<'de> Scalar<'de> for i64 {
    fn scalar(json: &mut Cursor<'de>) -> Result<Self, ParseError> {
        json.any()
    }
}

impl<'de> Scalar<'de> for u32 {
    fn scalar(json: &mut Cursor<'de>) -> Result<Self, ParseError> {
        json.any()
    }
}

impl<'de, T: Scalar<'de>> Scalar<'de> for Option<T> {
    fn scalar(json: &mut Cursor<'de>) -> Result<Self, ParseError> {
        T::scalar(json).map(Some)
    }
}

/// Sets `target` to the value at the cursor; `null` leaves it.
///
/// # Errors
/// It has the wrong type.
pub fn value<'de, T: Scalar<'de>>(
    json: &mut Cursor<'de>,
    target: &mut T,
) -> Result<(), ParseError> {
    if !json.null() {
        *target = T::scalar(json)?;
    }
    Ok(())
}

/// Sets `target` to the value at the cursor, read by serde; `null` leaves it.
///
/// # Errors
/// It has the wrong type.
pub fn compound<T: DeserializeOwned>(
    json: &mut Cursor<'_>,
    target: &mut T,
) -> Result<(), ParseError> {
    if !json.null() {
        *target = json.any()?;
    }
    Ok(())
}

/// Sets `target` to the parsed string at the cursor; `null` leaves it.
///
/// # Errors
/// The value is not a string, or `parse` refuses it.
pub fn text<T>(
    json: &mut Cursor<'_>,
    target: &mut T,
    parse: impl FnOnce(&str) -> Result<T, ParseError>,
) -> Result<(), ParseError> {
    if !json.null() {
        *target = parse(&json.string()?)?;
    }
    Ok(())
}

/// Sets `target` to the unparsed value at the cursor; `null` leaves it.
///
/// # Errors
/// The value is missing.
pub fn raw(json: &mut Cursor<'_>, target: &mut Option<Box<RawValue>>) -> Result<(), ParseError> {
    if !json.null() {
        *target = Some(json.raw()?);
    }
    Ok(())
}

/// Reads the object at the cursor into `target`; `null` leaves it.
///
/// # Errors
/// The value is not an object, or one of its members is not valid.
pub fn object<'de, T: Members<'de>>(
    json: &mut Cursor<'de>,
    target: &mut T,
) -> Result<(), ParseError> {
    json.object(|key, json| target.member(key, json))
}

/// Reads the object of objects at the cursor into `target`, each under its key in its spelling. Of a repeated key a map keeps the
/// last, and a list both.
///
/// # Errors
/// As [`object`].
pub fn entries<'de, T: Members<'de> + Default>(
    json: &mut Cursor<'de>,
    target: &mut impl Extend<(String, T)>,
) -> Result<(), ParseError> {
    json.object(|key, json| {
        let mut item = T::default();
        object(json, &mut item)?;
        target.extend([(key.to_owned(), item)]);
        Ok(())
    })
}

/// Sets `target` to the list of objects at the cursor; `null` leaves it.
///
/// # Errors
/// The value is not a list, or an item is not valid.
pub fn list<'de, T: Members<'de> + Default>(
    json: &mut Cursor<'de>,
    target: &mut Vec<T>,
) -> Result<(), ParseError> {
    let mut items = Vec::new();
    let is_there = json.list(&mut |json| {
        let mut item = T::default();
        object(json, &mut item)?;
        items.push(item);
        Ok(())
    })?;
    if is_there {
        *target = items;
    }
    Ok(())
}

/// Compares a key of a document with a known one, whatever the ASCII case.
pub fn is(key: &str, ours: &str) -> bool {
    key.eq_ignore_ascii_case(ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Default, Debug, PartialEq)]
    struct Outer {
        name: String,
        count: i64,
        inner: BTreeMap<String, Inner>,
    }

    #[derive(Default, Debug, PartialEq)]
    struct Inner {
        flag: bool,
    }

    impl<'de> Members<'de> for Outer {
        fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
            match key {
                k if is(k, "Name") => text(json, &mut self.name, |t| Ok(t.to_owned())),
                k if is(k, "Count") => value(json, &mut self.count),
                k if is(k, "Inner") => entries(json, &mut self.inner),
                _ => json.skip(),
            }
        }
    }

    impl<'de> Members<'de> for Inner {
        fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
            match key {
                k if is(k, "Flag") => value(json, &mut self.flag),
                _ => json.skip(),
            }
        }
    }

    fn outer(json: &str) -> Result<Outer, String> {
        let mut target = Outer::default();
        read(json.as_bytes(), &mut target).map_err(|e| e.to_string())?;
        Ok(target)
    }

    #[test]
    fn keys_match_in_any_case_and_unknown_keys_are_skipped() {
        let got = outer(r#"{"NAME":"x","cOunt":3,"else":[{"a":1}],"inner":{"K":{"FLAG":true}}}"#)
            .unwrap();
        assert_eq!((got.name.as_str(), got.count), ("x", 3));
        assert!(got.inner["K"].flag, "the keys of entries keep their case");
    }

    #[test]
    fn null_leaves_what_is_there_and_a_repeated_object_is_merged() {
        let got =
            outer(r#"{"name":"x","name":null,"inner":{"a":{}},"inner":null,"inner":{"b":null}}"#)
                .unwrap();
        assert_eq!(got.name, "x");
        assert_eq!(got.inner.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(outer("null").unwrap(), Outer::default());
    }

    #[test]
    fn wrong_types_and_trailing_text_are_errors() {
        for bad in [
            r#"{"count":1.5}"#,
            r#"{"count":1e30}"#,
            r#"{"name":3}"#,
            "[]",
            "",
            "{} x",
            r#"{"inner":[]}"#,
        ] {
            assert!(outer(bad).is_err(), "{bad}");
        }
    }
}
