//! YAML, as far as a kubeconfig needs it: objects, lists and strings of one document. JSON is YAML too.

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

/// A value. Numbers and truth values stay as they are spelled.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Yaml {
    /// Nothing, or `null`.
    #[default]
    Null,
    /// A string, number or truth value.
    Text(String),
    /// A list.
    List(Vec<Yaml>),
    /// An object, in its order.
    Object(Vec<(String, Yaml)>),
}

/// Deeper than any kubeconfig, and not so deep that a call's stack ends.
const DEPTH: usize = 32;

/// More values than any kubeconfig has, and so few that they take little memory.
const VALUES: usize = 50_000;

/// What is still to come.
struct Events<'t> {
    parser: Parser<'t, StrInput<'t>>,
    left: usize,
}

impl Yaml {
    /// Reads the first document of a text, as kubectl does.
    ///
    /// # Errors
    /// It is not YAML, is nested too deeply, has too many values, or has anchors or aliases: with these a short text can mean a huge value.
    pub fn parse(text: &str) -> Result<Yaml, String> {
        let mut events = Events {
            parser: Parser::new_from_str(text),
            left: VALUES,
        };
        loop {
            match next(&mut events)? {
                Event::StreamStart | Event::DocumentStart(_) => {}
                Event::StreamEnd => return Ok(Yaml::Null),
                event => return value(event, &mut events, DEPTH),
            }
        }
    }

    /// The member of an object; of a repeated key the last.
    pub fn get(&self, key: &str) -> Option<&Yaml> {
        let Yaml::Object(members) = self else {
            return None;
        };
        let found = members.iter().rev().find(|(name, _)| name == key);
        found.map(|(_, value)| value).filter(|v| **v != Yaml::Null)
    }

    /// The text that is the member of an object, unless it is empty.
    pub fn text_at(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Yaml::Text(text) => Some(text.as_str()).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    /// The list that is the member of an object; empty where there is none.
    pub fn list_at(&self, key: &str) -> &[Yaml] {
        match self.get(key) {
            Some(Yaml::List(items)) => items,
            _ => &[],
        }
    }
}

fn next<'t>(events: &mut Events<'t>) -> Result<Event<'t>, String> {
    let left = events.left.checked_sub(1);
    events.left = left.ok_or_else(|| format!("it has more than {VALUES} values"))?;
    match events.parser.next_event() {
        Some(Ok((event, _))) => Ok(event),
        Some(Err(e)) => {
            let (at, what) = (e.marker(), e.info());
            Err(format!("{what} at line {} column {}", at.line(), at.col()))
        }
        None => Ok(Event::StreamEnd),
    }
}

/// The value that `event` begins.
fn value<'t>(event: Event<'t>, events: &mut Events<'t>, depth: usize) -> Result<Yaml, String> {
    let inside = || {
        let deeper = depth.checked_sub(1);
        deeper.ok_or_else(|| format!("it is nested more than {DEPTH} levels deep"))
    };
    match event {
        Event::Alias(_)
        | Event::Scalar(_, _, 1.., _)
        | Event::SequenceStart(1.., _)
        | Event::MappingStart(1.., _) => {
            Err("it has an anchor or an alias (& or *), which are not read".to_owned())
        }
        Event::Scalar(text, ScalarStyle::Plain, ..)
            if ["", "~", "null", "Null", "NULL"].contains(&&*text) =>
        {
            Ok(Yaml::Null)
        }
        Event::Scalar(text, ..) => Ok(Yaml::Text(text.into_owned())),
        Event::SequenceStart(..) => {
            let depth = inside()?;
            let mut items = Vec::new();
            loop {
                match next(events)? {
                    Event::SequenceEnd => return Ok(Yaml::List(items)),
                    event => items.push(value(event, events, depth)?),
                }
            }
        }
        Event::MappingStart(..) => {
            let depth = inside()?;
            let mut members = Vec::new();
            loop {
                let key = match next(events)? {
                    Event::MappingEnd => return Ok(Yaml::Object(members)),
                    Event::Scalar(key, _, 0, _) => key.into_owned(),
                    _ => return Err("the key of an object is not plain text".to_owned()),
                };
                let event = next(events)?;
                members.push((key, value(event, events, depth)?));
            }
        }
        Event::Nothing
        | Event::StreamStart
        | Event::StreamEnd
        | Event::DocumentStart(_)
        | Event::DocumentEnd
        | Event::SequenceEnd
        | Event::MappingEnd => Err("it ends too early".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_flow_and_json_mean_the_same() {
        let block = "# comment\na: 'x'\nb:\n- c: 1\n  d: \"y\\n\"\n-   e: |\n      z\nn: ~\nm:\n";
        let flow = "{a: x, b: [{c: 1, d: \"y\\n\"}, {e: \"z\\n\"}], n: null, m: }";
        let json = "{\"a\":\"x\",\n\t\"b\":\t[ {\"c\":1,\"d\":\"y\\n\"},{\"e\":\"z\\n\"} ],\"n\":null,\"m\":null}\n";
        let read = Yaml::parse(block).unwrap();
        assert_eq!(read.text_at("a"), Some("x"));
        assert_eq!(read.list_at("b").len(), 2);
        assert_eq!(read.list_at("b")[0].text_at("d"), Some("y\n"));
        assert_eq!(
            (read.get("n"), read.get("m"), read.get("x")),
            (None, None, None)
        );
        assert_eq!(Yaml::parse(flow).unwrap(), read);
        assert_eq!(Yaml::parse(json).unwrap(), read);
    }

    #[test]
    fn quotes_make_a_text_of_what_else_is_nothing() {
        let read = Yaml::parse("a: \"null\"\nb: ''\nc: null\na2: x\na2: y").unwrap();
        assert_eq!(read.text_at("a"), Some("null"));
        assert_eq!((read.text_at("b"), read.text_at("c")), (None, None));
        assert_eq!(read.text_at("a2"), Some("y"), "of a repeated key the last");
    }

    #[test]
    fn only_the_first_document_counts() {
        let read = Yaml::parse("---\na: x\n---\na: y\n").unwrap();
        assert_eq!(read.text_at("a"), Some("x"));
        for nothing in ["", "\n", "# comment\n", "---\n", "\u{feff}"] {
            assert_eq!(Yaml::parse(nothing), Ok(Yaml::Null), "{nothing:?}");
        }
    }

    #[test]
    fn what_could_explode_is_refused_with_words() {
        let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]";
        let deep = "[".repeat(100_000);
        let blocks: String = (0..40).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
        let many = format!("a: [{}]", "x,".repeat(60_000));
        for (text, io_reason) in [
            (&*many, "more than 50000 values"),
            (bomb, "anchor"),
            ("a: &x y", "anchor"),
            ("a: *x", ""),
            (&*deep, ""),
            (&*blocks, "nested more than 32 levels"),
            ("[a, b", "line 2"),
            ("a: b: c", "line 1"),
            ("a: \"x", "line"),
            ("? [a]\n: b", "key of an object"),
            ("a:\n\t- b", "line"),
        ] {
            let error = Yaml::parse(text).unwrap_err();
            assert!(error.contains(io_reason) && error.len() < 256, "{error}");
        }
    }
}
