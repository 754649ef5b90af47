//! Reads JSON into Rust values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
pub use serde_json::Error;
use serde_json::value::RawValue;

use super::{Cursor, ParseError};

/// Returns the text that these bytes are.
///
/// # Errors
/// They are not UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(Error::custom)
}

/// The error for `text` where `cursor` has stopped: serde_json's where it is not JSON, else `wrong` with the position.
fn error_at(cursor: Cursor<'_>, wrong: ParseError, text: &str) -> Error {
    if let Err(e) = serde_json::from_str::<IgnoredAny>(text) {
        return e;
    }
    let read = text.len().saturating_sub(cursor.left());
    let before = text.get(..read).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().len();
    Error::custom(format_args!("{wrong} at line {line} column {column}"))
}

/// A value that is read in place. `null` leaves it as it is.
pub trait Read<'de> {
    /// Reads the value at the cursor.
    ///
    /// # Errors
    /// The value at the cursor has another type.
    fn read(&mut self, json: &mut Cursor<'de>) -> Result<(), ParseError>;
}

/// An object that is read member by member; `object!` implements it.
pub trait Members<'de> {
    /// The keys of the table.
    const NAMES: &'static [&'static str] = &[];

    /// Reads the value of `key`. Returns `false`, and reads nothing, if the key is unknown.
    ///
    /// # Errors
    /// The value is not what it must be.
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<bool, ParseError>;
}

/// Parses one JSON document. Bytes that are not UTF-8 count as U+FFFD, as in the original.
///
/// # Errors
/// Text that is not JSON, a document that is neither an object nor `null`, a member of the wrong type.
pub fn parse<T: for<'de> Members<'de> + Default>(json: &[u8]) -> Result<T, Error> {
    let mut value = T::default();
    document(&String::from_utf8_lossy(json), |json| value.read(json))?;
    Ok(value)
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
    read.map_err(|wrong| error_at(cursor, wrong, text))
}

impl<'de, T: Members<'de>> Read<'de> for T {
    fn read(&mut self, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        json.object(&mut |key, json| match self.member(key, json)? {
            true => Ok(()),
            false => json.skip(),
        })
    }
}

macro_rules! scalars {
    ($($type:ty: $read:expr,)*) => {$(
        impl<'de> Read<'de> for $type {
            fn read(&mut self, json: &mut Cursor<'de>) -> Result<(), ParseError> {
                if !json.null() {
                    *self = $read(json)?;
                }
                Ok(())
            }
        }
    )*};
}

scalars! {
    String: |json: &mut Cursor<'de>| json.string().map(String::from),
    Cow<'de, str>: Cursor::string,
    bool: Cursor::any,
    u64: Cursor::unsigned,
    i64: Cursor::any,
    u32: Cursor::any,
    Option<Box<RawValue>>: |json: &mut Cursor<'de>| json.raw().map(Some),
}

impl<'de, T: Read<'de> + Default> Read<'de> for Option<T> {
    fn read(&mut self, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match json.null() {
            true => Ok(()),
            false => self.get_or_insert_default().read(json),
        }
    }
}

/// A later list replaces an earlier one.
impl<'de, T: Read<'de> + Default> Read<'de> for Vec<T> {
    fn read(&mut self, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        if json.null() {
            return Ok(());
        }
        self.clear();
        json.list(&mut |json| {
            let mut item = T::default();
            item.read(json)?;
            self.push(item);
            Ok(())
        })
    }
}

/// Of a repeated key the last value counts.
impl<'de, T: Read<'de> + Default> Read<'de> for BTreeMap<String, T> {
    fn read(&mut self, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        json.object(&mut |key, json| {
            let mut item = T::default();
            item.read(json)?;
            self.insert(key.to_owned(), item);
            Ok(())
        })
    }
}

/// Reads a value with serde; `null` leaves it.
///
/// # Errors
/// It has the wrong type.
pub fn compound<T: DeserializeOwned>(
    target: &mut T,
    json: &mut Cursor<'_>,
) -> Result<(), ParseError> {
    if !json.null() {
        *target = json.any()?;
    }
    Ok(())
}

/// Reads a string with `parse`; `null` leaves the target.
///
/// # Errors
/// The value is not a string, or `parse` refuses it.
pub fn text<T>(
    target: &mut T,
    json: &mut Cursor<'_>,
    parse: impl FnOnce(&str) -> Result<T, ParseError>,
) -> Result<(), ParseError> {
    if !json.null() {
        *target = parse(&json.string()?)?;
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
    use crate::codec::object;

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

    fn name(target: &mut String, json: &mut Cursor<'_>) -> Result<(), ParseError> {
        text(target, json, |t| Ok(t.to_owned()))
    }

    object! { any_case read Outer {
        "Name" with(name): name,
        "Count": count,
        "Inner": inner,
    } }

    object! { any_case read Inner { "Flag": flag, } }

    fn outer(json: &str) -> Result<Outer, String> {
        parse(json.as_bytes()).map_err(|e| e.to_string())
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
