//! JSON documents of which only a part is known.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::codec::{Cursor, ParseError, document, is};

/// A JSON value of any kind, for documents of which only a part is known. Numbers keep their spelling. As in libcni, the keys of an
/// object are sorted, and of a repeated key the last one counts.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Tree {
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// An object; keys as they are spelled.
    Object(BTreeMap<String, Tree>),
    /// Anything else.
    Other(Box<RawValue>),
}

impl Tree {
    /// Reads a document.
    ///
    /// # Errors
    /// It is not JSON, or nested too deeply.
    pub fn parse(json: &[u8]) -> Result<Tree, String> {
        Tree::parse_text(&String::from_utf8_lossy(json), &mut BTreeSet::new())
    }

    /// Like [`Tree::parse`], and adds the keys that an object has more than once to `repeated`.
    ///
    /// # Errors
    /// As [`Tree::parse`].
    pub fn parse_text(json: &str, repeated: &mut BTreeSet<String>) -> Result<Tree, String> {
        /// Deeper than any configuration, and not so deep that a call's stack ends.
        const DEPTH: usize = 64;
        let mut tree = Tree::List(Vec::new());
        let read = document(json, |cursor| {
            tree = Tree::read(cursor, DEPTH, repeated)?;
            Ok(())
        });
        read.map(|()| tree).map_err(|e| e.to_string())
    }

    fn read(
        json: &mut Cursor<'_>,
        depth: usize,
        repeated: &mut BTreeSet<String>,
    ) -> Result<Tree, ParseError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err("it is nested too deeply".to_owned());
        };
        match json.peek() {
            Some(b'"') => Ok(Tree::Text(json.string()?.into_owned())),
            Some(b'[') => {
                let mut items = Vec::new();
                json.list(&mut |json| {
                    items.push(Tree::read(json, depth, repeated)?);
                    Ok(())
                })?;
                Ok(Tree::List(items))
            }
            Some(b'{') => {
                let mut members = BTreeMap::new();
                json.object(&mut |key, json| {
                    let value = Tree::read(json, depth, repeated)?;
                    if members.insert(key.to_owned(), value).is_some() {
                        repeated.insert(key.to_owned());
                    }
                    Ok(())
                })?;
                Ok(Tree::Object(members))
            }
            _ => json.raw().map(Tree::Other),
        }
    }

    /// Returns the members of an object; none of anything else.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = (&String, &Tree)> {
        let members = match self {
            Tree::Object(members) => Some(members),
            _ => None,
        };
        members.into_iter().flatten()
    }

    /// Returns the items of a list; none of anything else.
    pub fn items(&self) -> &[Tree] {
        match self {
            Tree::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the member of an object, whatever the key's case. Of several, lower case wins, as in a main plugin.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        let found = self.members().rfind(|(name, _)| is(name, key));
        found.map(|(_, value)| value)
    }

    /// Returns a member of an object that is a string.
    pub fn text_at(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_printed_as_it_was_read() {
        let text = r#"{"a":[1,2.50,{"b":null}],"c":"x\n\"y","d":true,"e":{}}"#;
        let tree = Tree::parse(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&tree).unwrap(), text);
        assert_eq!(tree.text_at("c").unwrap(), "x\n\"y");
        assert!(tree.text_at("a").is_none() && tree.get("x").is_none());
        assert!(
            tree.get("C").is_some(),
            "as the plugin reads its configuration"
        );
        let twice = Tree::parse(br#"{"a":"1","a":"2"}"#).unwrap();
        assert_eq!(twice.text_at("a").unwrap(), "2");
    }

    #[test]
    fn a_deep_document_is_refused() {
        assert!(Tree::parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
