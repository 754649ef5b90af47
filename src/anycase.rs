//! JSON objects as the original reads them: keys match without regard to case, a repeated key counts again on top of
//! what is there, `null` leaves a value as it was, and unknown keys are passed over (contract sections 2 and 5).
//!
//! serde's derived readers do none of this, so a type says here, member by member, how it fills itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::value::RawValue;

/// A value that takes the members of a JSON object one by one.
pub trait Members {
    /// Reads the value that belongs to `key` from `map`; must consume exactly one value ([`skip`] for an unknown key).
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Reads one JSON document into `target`.
///
/// # Errors
/// Text that is not JSON, a document that is neither an object nor `null`, a member of the wrong type.
pub fn read<T: Members>(json: &[u8], target: &mut T) -> Result<(), serde_json::Error> {
    let mut de = serde_json::Deserializer::from_slice(json);
    Object(target).deserialize(&mut de)?;
    de.end()
}

/// Passes over the value at hand.
pub fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// Sets `target` to the value at hand; `null` leaves it.
pub fn value<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut A,
    target: &mut T,
) -> Result<(), A::Error> {
    if let Some(found) = map.next_value::<Option<T>>()? {
        *target = found;
    }
    Ok(())
}

/// Sets `target` to what `parse` makes of the text at hand; `null` leaves it.
pub fn text<'de, A: MapAccess<'de>, T>(
    map: &mut A,
    target: &mut T,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<(), A::Error> {
    if let Some(Text(found)) = map.next_value::<Option<Text<'de>>>()? {
        *target = parse(&found).map_err(A::Error::custom)?;
    }
    Ok(())
}

/// Keeps the value at hand as it is spelled, to be judged later; `null` leaves `target`.
pub fn raw<'de, A: MapAccess<'de>>(
    map: &mut A,
    target: &mut Option<Box<RawValue>>,
) -> Result<(), A::Error> {
    let found = map.next_value::<Box<RawValue>>()?;
    if found.get() != "null" {
        *target = Some(found);
    }
    Ok(())
}

/// Reads the object at hand into `target`; `null` leaves it.
pub fn object<'de, A: MapAccess<'de>, T: Members>(
    map: &mut A,
    target: &mut T,
) -> Result<(), A::Error> {
    map.next_value_seed(Object(target))
}

/// Reads the object of objects at hand into `target`, each under its key as it is spelled; of a repeated key the last
/// counts.
pub fn entries<'de, A: MapAccess<'de>, T: Members + Default>(
    map: &mut A,
    target: &mut BTreeMap<String, T>,
) -> Result<(), A::Error> {
    object(map, &mut Entries(target))
}

struct Entries<'a, T>(&'a mut BTreeMap<String, T>);

impl<T: Members + Default> Members for Entries<'_, T> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let mut item = T::default();
        object(map, &mut item)?;
        self.0.insert(key.to_owned(), item);
        Ok(())
    }
}

/// Sets `target` to the list of objects at hand; `null` leaves it.
pub fn list<'de, A: MapAccess<'de>, T: Members + Default>(
    map: &mut A,
    target: &mut Vec<T>,
) -> Result<(), A::Error> {
    map.next_value_seed(List(target))
}

struct List<'a, T>(&'a mut Vec<T>);

impl<'de, T: Members + Default> DeserializeSeed<'de> for List<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de, T: Members + Default> Visitor<'de> for List<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.clear();
        let mut item = T::default();
        while seq.next_element_seed(Object(&mut item))?.is_some() {
            self.0.push(std::mem::take(&mut item));
        }
        Ok(())
    }
}

/// Reads an object into the value it borrows.
pub struct Object<'a, T>(pub &'a mut T);

impl<'de, T: Members> DeserializeSeed<'de> for Object<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de, T: Members> Visitor<'de> for Object<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key()? {
            self.0.member(&key, &mut map)?;
        }
        Ok(())
    }
}

/// Text that borrows from the document unless it holds escapes.
pub struct Text<'de>(pub Cow<'de, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        de.deserialize_str(TextVisitor)
    }
}

/// Compares a key of a document with one of ours, without regard to ASCII case.
pub fn is(key: &str, ours: &str) -> bool {
    key.eq_ignore_ascii_case(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    impl Members for Outer {
        fn member<'de, A: MapAccess<'de>>(
            &mut self,
            key: &str,
            map: &mut A,
        ) -> Result<(), A::Error> {
            match key {
                k if is(k, "Name") => text(map, &mut self.name, |t| Ok(t.to_owned())),
                k if is(k, "Count") => value(map, &mut self.count),
                k if is(k, "Inner") => entries(map, &mut self.inner),
                _ => skip(map),
            }
        }
    }

    impl Members for Inner {
        fn member<'de, A: MapAccess<'de>>(
            &mut self,
            key: &str,
            map: &mut A,
        ) -> Result<(), A::Error> {
            match key {
                k if is(k, "Flag") => value(map, &mut self.flag),
                _ => skip(map),
            }
        }
    }

    fn outer(json: &str) -> Result<Outer, String> {
        let mut target = Outer::default();
        read(json.as_bytes(), &mut target).map_err(|e| e.to_string())?;
        Ok(target)
    }

    #[test]
    fn keys_match_in_any_case_and_unknown_ones_are_passed_over() {
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
