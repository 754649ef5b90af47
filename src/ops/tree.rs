//! A JSON value of any kind, for documents of which only a part is known. Numbers keep their spelling.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::codec::{Cursor, ParseError, document, is};

/// A value.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Tree {
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// An object; keys as they are spelled, in their order.
    #[serde(serialize_with = "serialize_members")]
    Object(Vec<(String, Tree)>),
    /// Anything else.
    Other(Box<RawValue>),
}

impl Default for Tree {
    fn default() -> Self {
        Tree::Object(Vec::new())
    }
}

impl Tree {
    /// Reads a document.
    ///
    /// # Errors
    /// It is not JSON, or nested too deeply.
    pub fn parse(json: &[u8]) -> Result<Tree, String> {
        /// Deeper than any configuration, and not so deep that a call's stack ends.
        const DEPTH: usize = 64;
        let mut tree = Tree::List(Vec::new());
        let read = document(&String::from_utf8_lossy(json), |cursor| {
            tree = Tree::read(cursor, DEPTH)?;
            Ok(())
        });
        read.map(|()| tree).map_err(|e| e.to_string())
    }

    fn read(json: &mut Cursor<'_>, depth: usize) -> Result<Tree, ParseError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err("it is nested too deeply".to_owned());
        };
        match json.peek() {
            Some(b'"') => Ok(Tree::Text(json.string()?.into_owned())),
            Some(b'[') => {
                let mut items = Vec::new();
                json.list(&mut |json| {
                    items.push(Tree::read(json, depth)?);
                    Ok(())
                })?;
                Ok(Tree::List(items))
            }
            Some(b'{') => {
                let mut members = Vec::new();
                json.object(&mut |key, json| {
                    members.push((key.to_owned(), Tree::read(json, depth)?));
                    Ok(())
                })?;
                Ok(Tree::Object(members))
            }
            _ => json.raw().map(Tree::Other),
        }
    }

    /// Returns the member of an object, whatever the key's case; the last one of a repeated key.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        let Tree::Object(members) = self else {
            return None;
        };
        let mut found = members.iter().rev().filter(|(name, _)| is(name, key));
        found.next().map(|(_, value)| value)
    }

    /// Returns the string, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a member of an object that is a string.
    pub fn text_at(&self, key: &str) -> Option<String> {
        Some(self.get(key)?.text()?.to_owned())
    }
}

fn serialize_members<S: Serializer>(
    members: &[(String, Tree)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(members.iter().map(|(key, value)| (key, value)))
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
    fn invalid_json_is_refused() {
        for wrong in ["", "{", "[1,]", "{\"a\" 1}", "x", "1 2"] {
            assert!(Tree::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let deep = "[".repeat(100_000);
        assert!(Tree::parse(deep.as_bytes()).is_err());
    }
}
