//! Reads JSON into Rust values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
pub use serde_json::Error;
use serde_json::value::RawValue;

use smol_str::SmolStr;

use super::{Cursor, ParseError};

/// Decodes bytes as UTF-8.
///
/// # Errors
/// The bytes are not UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(Error::custom)
}

/// Returns the error for `text`, where reading stopped at `cursor`. It is serde_json's error if the
/// text is not JSON. Otherwise it is `message` with the position.
fn error_at(cursor: Cursor<'_>, message: ParseError, text: &str) -> Error {
    if let Err(e) = serde_json::from_str::<IgnoredAny>(text) {
        return e;
    }
    let read = text.len().saturating_sub(cursor.left());
    let before = text.get(..read).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().len();
    Error::custom(format_args!("{message} at line {line} column {column}"))
}

/// A value that is read in place. `null` does not change it.
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

    /// Reads the value of `key`. If the key is unknown, it returns `false` and reads nothing.
    ///
    /// # Errors
    /// The value has another type or is not valid.
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<bool, ParseError>;
}

/// Parses one JSON document. As in the original, bytes that are not UTF-8 count as U+FFFD.
///
/// # Errors
/// The text is not JSON, the document is neither an object nor `null`, or a member has the wrong
/// type.
pub fn parse<T: for<'de> Members<'de> + Default>(json: &[u8]) -> Result<T, Error> {
    let mut value = T::default();
    document(&String::from_utf8_lossy(json), |json| value.read(json))?;
    Ok(value)
}

/// Reads one JSON document with `read`, which must consume the value.
///
/// # Errors
/// The text is not JSON, or `read` fails.
pub fn document<'de>(
    text: &'de str,
    read: impl FnOnce(&mut Cursor<'de>) -> Result<(), ParseError>,
) -> Result<(), Error> {
    let mut cursor = Cursor::new(text);
    let mut outcome = read(&mut cursor);
    if outcome.is_ok() && !cursor.is_at_end() {
        outcome = Err("trailing characters".to_owned());
    }
    outcome.map_err(|message| error_at(cursor, message, text))
}

impl<'de, T: Members<'de>> Read<'de> for T {
    fn read(&mut self, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        json.object(&mut |key, json| {
            if self.member(key, json)? {
                Ok(())
            } else {
                json.skip()
            }
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
    SmolStr: |json: &mut Cursor<'de>| json.string().map(SmolStr::from),
    Cow<'de, str>: Cursor::string,
    bool: Cursor::any,
    u64: Cursor::unsigned,
    i64: Cursor::any,
    u32: Cursor::any,
    Option<Box<RawValue>>: |json: &mut Cursor<'de>| json.raw().map(Some),
}

impl<'de, T: Read<'de> + Default> Read<'de> for Option<T> {
    fn read(&mut self, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        if json.null() {
            return Ok(());
        }
        self.get_or_insert_default().read(json)
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

/// The last value of a repeated key replaces the earlier ones.
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

/// Reads a value with serde. `null` does not change the target.
///
/// # Errors
/// The value has the wrong type.
pub fn compound<T: DeserializeOwned>(
    target: &mut T,
    json: &mut Cursor<'_>,
) -> Result<(), ParseError> {
    if !json.null() {
        *target = json.any()?;
    }
    Ok(())
}

/// Reads a string with `parse`. `null` does not change the target.
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

/// Returns whether a key of a document equals the known one, in any ASCII case.
pub fn is(key: &str, known: &str) -> bool {
    key.eq_ignore_ascii_case(known)
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
    fn null_changes_nothing_and_repeated_object_is_merged() {
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
