//! Parses the wire server's answer to `getinterfaceinfov1` (contract section 7).
//!
//! The document is accepted or refused as a whole. Everything after the root element is ignored.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;

use quick_xml::events::{BytesDecl, BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::listing::{AnswerError, ListedInterface, ListedSubnet, Listing, quote};
use crate::codec::leading_address;

/// The kind of an element. It depends on the name and the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElementKind {
    Interfaces,
    Interface,
    Subnet,
    Address,
    /// An unknown element, or an element inside one. It is skipped.
    Unknown,
}

/// Reads an answer up to the end of its root element, because some servers keep the connection open
/// after it.
///
/// # Errors
/// See [`AnswerError`].
pub fn read(mut answer: impl Read) -> Result<Listing, AnswerError> {
    let mut chunk = [0; 4096];
    // An answer with 254 addresses is about this long.
    let mut text = Vec::with_capacity(16 << 10);
    let mut was_parsed = false;
    loop {
        match answer.read(&mut chunk) {
            Ok(0) => return parse(&text),
            Ok(read) => text.extend_from_slice(chunk.get(..read).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(quick_xml::Error::from(e).into()),
        }
        // The end tag may be inside a comment. Parsing is tried once only, because many such
        // comments would take quadratic time.
        if !was_parsed && ends_like_the_root(&text) {
            was_parsed = true;
            if let Ok(listing) = parse(&text) {
                return Ok(listing);
            }
        }
    }
}

/// Returns whether a text ends with what may be the end tag of the root element.
fn ends_like_the_root(text: &[u8]) -> bool {
    let trimmed = text.trim_ascii_end();
    let last_tag = trimmed
        .rsplit(|byte| *byte == b'<')
        .next()
        .unwrap_or_default();
    last_tag.starts_with(b"/") && last_tag.ends_with(b"Interfaces>")
}

/// Parses a whole answer.
///
/// # Errors
/// See [`AnswerError`].
pub fn parse(answer: &[u8]) -> Result<Listing, AnswerError> {
    parse_xml(answer).map_err(|error| match (&error, other_format(answer)) {
        // The parser skips text before the root element. Only after an error is it clear that there
        // is no XML.
        (AnswerError::Cut | AnswerError::Xml(_), Some(format)) => AnswerError::NotXml(format),
        _ => error,
    })
}

/// Names the format of a text that does not begin like XML; `None` if it does.
fn other_format(answer: &[u8]) -> Option<String> {
    let text = answer.strip_prefix(b"\xef\xbb\xbf").unwrap_or(answer);
    match text.trim_ascii_start() {
        [b'<', ..] => None,
        [] => Some("empty".to_owned()),
        [b'{' | b'[', ..] => Some("JSON".to_owned()),
        [0x1f, 0x8b, ..] => Some("compressed".to_owned()),
        other => Some(quote(&String::from_utf8_lossy(other))),
    }
}

fn parse_xml(answer: &[u8]) -> Result<Listing, AnswerError> {
    if answer.starts_with(b"\xff\xfe") || answer.starts_with(b"\xfe\xff") {
        return Err(AnswerError::Declaration("UTF-16".to_owned()));
    }
    let mut reader = Reader::from_reader(answer);
    let mut listing = Listing::default();
    let mut path: Vec<ElementKind> = Vec::with_capacity(8);
    loop {
        let mut is_after_tag = false;
        match reader.read_event()? {
            Event::Decl(declaration) => check_declaration(&declaration)?,
            Event::Start(element) => {
                let kind = add_element(&mut listing, path.last().copied(), &element)?;
                path.push(kind);
                is_after_tag = true;
            }
            Event::Empty(element) => {
                let kind = add_element(&mut listing, path.last().copied(), &element)?;
                if kind == ElementKind::Interfaces {
                    break;
                }
                is_after_tag = true;
            }
            Event::End(_) => {
                path.pop();
                if path.is_empty() {
                    break;
                }
            }
            Event::GeneralRef(entity) => check_entity(&entity)?,
            Event::Eof => return Err(AnswerError::Cut),
            Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::PI(_)
            | Event::DocType(_) => {}
        }
        if is_after_tag && path.last() == Some(&ElementKind::Subnet) {
            let rest = add_canonical_addresses(reader.get_ref(), &mut listing);
            *reader.get_mut() = rest;
        }
    }
    if listing.interfaces.is_empty() {
        Err(AnswerError::Empty)
    } else {
        Ok(listing)
    }
}

/// Checks that the document is XML 1.0 in UTF-8.
fn check_declaration(declaration: &BytesDecl<'_>) -> Result<(), AnswerError> {
    let version = declaration.version()?;
    let encoding = declaration
        .encoding()
        .transpose()
        .map_err(quick_xml::Error::from)?;
    if version != "1.0" {
        return Err(AnswerError::Declaration(format!("version {version}")));
    }
    match encoding {
        Some(other) if !other.eq_ignore_ascii_case("utf-8") => {
            Err(AnswerError::Declaration(format!("encoding {other}")))
        }
        _ => Ok(()),
    }
}

/// Checks that an entity is a character or one of the five that XML defines.
fn check_entity(entity: &BytesRef<'_>) -> Result<(), AnswerError> {
    let is_predefined = ["lt", "gt", "amp", "apos", "quot"].contains(&&**entity);
    if is_predefined || entity.resolve_char_ref()?.is_some() {
        return Ok(());
    }
    let name: &str = entity;
    Err(AnswerError::Declaration(format!(
        "an unknown entity &{name};"
    )))
}

/// Adds an element to the listing, and returns its kind.
fn add_element(
    listing: &mut Listing,
    parent: Option<ElementKind>,
    element: &BytesStart<'_>,
) -> Result<ElementKind, AnswerError> {
    let name = element.local_name();
    let kind = match (parent, name.as_ref()) {
        (None, "Interfaces") => ElementKind::Interfaces,
        (None, other) => return Err(AnswerError::Root(other.to_owned())),
        (Some(ElementKind::Interfaces), "Interface") => ElementKind::Interface,
        (Some(ElementKind::Interface), "IPSubnet") => ElementKind::Subnet,
        (Some(ElementKind::Subnet), "IPAddress") => ElementKind::Address,
        _ => ElementKind::Unknown,
    };
    let mut mac = String::new();
    let mut primary = false;
    let mut prefix = String::new();
    let mut address = String::new();
    // Namespace prefixes are ignored. The last of repeated attributes is used.
    for parsed in element.attributes().with_checks(false) {
        let attribute = parsed.map_err(quick_xml::Error::from)?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0)?;
        match (kind, attribute.key.local_name().as_ref()) {
            (ElementKind::Interface, "MacAddress") => mac = value.into_owned(),
            (ElementKind::Interface | ElementKind::Address, "IsPrimary") => {
                primary = parse_flag(&value)?
            }
            (ElementKind::Subnet, "Prefix") => prefix = value.into_owned(),
            (ElementKind::Address, "Address") => address = value.into_owned(),
            _ => {}
        }
    }
    let interfaces = &mut listing.interfaces;
    match kind {
        ElementKind::Interface => interfaces.push(ListedInterface {
            mac,
            primary,
            subnets: Vec::new(),
        }),
        ElementKind::Subnet => {
            if let Some(interface) = interfaces.last_mut() {
                let mut subnet = ListedSubnet::default();
                subnet.set_prefix(&prefix);
                interface.subnets.push(subnet);
            }
        }
        ElementKind::Address => {
            if let Some(subnet) = listing.last_subnet() {
                subnet.add_text(&address, primary);
            }
        }
        ElementKind::Interfaces | ElementKind::Unknown => {}
    }
    Ok(kind)
}

/// Adds the addresses at the beginning of a text, as long as they have the exact form that the wire
/// server writes. Returns the remaining text.
///
/// Nearly the whole answer has this form, and this is faster than quick-xml. That parses the rest.
fn add_canonical_addresses<'a>(text: &'a [u8], listing: &mut Listing) -> &'a [u8] {
    let mut remaining = text;
    let Some(subnet) = listing.last_subnet() else {
        return text;
    };
    while let Some((address, is_primary, rest)) = parse_canonical_address(remaining) {
        subnet.add(address, is_primary);
        remaining = rest;
    }
    remaining
}

/// Parses an address in the exact form that the wire server writes. Returns the address, whether it
/// is primary, and the text after its element.
fn parse_canonical_address(text: &[u8]) -> Option<(IpAddr, bool, &[u8])> {
    let start = text
        .trim_ascii_start()
        .strip_prefix(b"<IPAddress Address=\"")?;
    let (address, end) = leading_address(start)?;
    if let Some(rest) = end.strip_prefix(b"\" IsPrimary=\"false\"/>") {
        return Some((address.to_canonical(), false, rest));
    }
    let rest = end.strip_prefix(b"\" IsPrimary=\"true\"/>")?;
    Some((address.to_canonical(), true, rest))
}

/// Parses a flag in the spellings that the original accepts; an empty text is false.
fn parse_flag(text: &str) -> Result<bool, AnswerError> {
    if text.is_empty() {
        return Ok(false);
    }
    match text.trim() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(AnswerError::Flag(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = r#"<IPAddress Address="10.224.0.5" IsPrimary="false"/>"#;

    /// Returns an answer with one subnet that contains `inside`.
    fn answer(inside: &str) -> String {
        format!(
            concat!(
                r#"<Interfaces><Interface MacAddress="7C1E52F9F3C4" IsPrimary="true">"#,
                r#"<IPSubnet Prefix="10.224.0.0/16">{inside}</IPSubnet></Interface></Interfaces>"#,
            ),
            inside = inside
        )
    }

    fn addresses(xml: &str) -> Option<Vec<String>> {
        let listing = parse(xml.as_bytes()).ok()?;
        let addresses = listing
            .interfaces
            .iter()
            .flat_map(|interface| &interface.subnets)
            .flat_map(|subnet| &subnet.addresses)
            .map(ToString::to_string)
            .collect();
        Some(addresses)
    }

    #[test]
    fn flags_accept_the_spellings_of_the_original() {
        for (value, texts) in [
            (true, &["1", "t", "T", "true", "TRUE", "True", " true "][..]),
            (false, &["0", "f", "F", "false", "FALSE", "False", ""]),
        ] {
            for text in texts {
                assert_eq!(parse_flag(text).unwrap(), value, "{text}");
            }
        }
        for bad in ["yes", "tRUE", "2", " "] {
            assert!(parse_flag(bad).is_err(), "{bad}");
        }
    }

    /// The recorded cases of the original lack these.
    #[test]
    fn text_around_and_between_the_elements_is_ignored() {
        let answer = answer(ADDRESS);
        for xml in [
            format!("<?xml version='1.0' encoding='utf-8'?>\n<!-- c --><?pi x?>{answer}"),
            format!("{answer}<unclosed &&& junk"),
            answer.replace("<IPAddress", "text<![CDATA[<x>]]>&amp;&#65;<IPAddress"),
            answer.replace("10.224.0.5", "10.224.0.&#53;"),
            answer.replace("false", "&#x66;alse"),
            answer.replace(
                "<IPAddress",
                "<x><IPAddress Address=\"10.0.0.2\"/></x><IPAddress",
            ),
            answer.replace(
                "<Interface ",
                "<x><Interface MacAddress=\"no\"/></x><Interface ",
            ),
            answer.replace(
                "/></IPS",
                "><IPAddress Address=\"10.0.0.2\"/></IPAddress></IPS",
            ),
        ] {
            assert_eq!(addresses(&xml).unwrap(), ["10.224.0.5"], "{xml}");
        }
    }

    /// Returns a few bytes at a time, then times out instead of ending.
    struct SlowReader<'a>(std::slice::Chunks<'a, u8>);

    impl Read for SlowReader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let piece = self.0.next().ok_or(ErrorKind::TimedOut)?;
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn reading_ends_with_the_root_element() {
        let good = answer(ADDRESS);
        for text in [&good, &format!("{good} \r\n")] {
            for size in [1, 7, 10_000] {
                let listing = read(SlowReader(text.as_bytes().chunks(size))).unwrap();
                assert_eq!(listing.interfaces.len(), 1, "{size}");
            }
        }
        let commented = answer(&format!("<!-- </Interfaces>-->{ADDRESS}"));
        let comment_end = commented.find("-->").unwrap();
        for text in [commented, format!("{good}<!-- more")] {
            let (first, second) = text.as_bytes().split_at(comment_end);
            let listing = read(first.chain(second)).unwrap();
            assert_eq!(listing.interfaces.len(), 1, "{text}");
        }
        let timed_out = SlowReader(good.as_bytes()[..good.len() - 1].chunks(7));
        assert!(read(timed_out).is_err());
        let cut = good.strip_suffix("</Interfaces>").unwrap().as_bytes();
        assert!(matches!(read(cut), Err(AnswerError::Cut)));
    }

    #[test]
    fn other_spellings_among_canonical_addresses_are_parsed() {
        let unusual = [
            r#"<IPAddress IsPrimary="false" Address="10.224.0.6"/>"#,
            r#"<IPAddress  Address="10.224.0.7"/>"#,
            r#"<IPAddress Address="10.224.0.8" IsPrimary="false"></IPAddress>"#,
            r#"<IPAddress Address="fd00::9" IsPrimary="false"/>"#,
            r#"<IPAddress Address="10.224.0.010" IsPrimary="false"/>"#,
            "<!-- c --> text ",
            r#"<x><IPAddress Address="10.224.0.11" IsPrimary="false"/></x>"#,
            r#"<IPAddress Address="10.224.0.12" IsPrimary="t"/>"#,
        ];
        for space in ["", "\n  "] {
            let mut inside = String::new();
            for one in unusual {
                inside += &format!("{space}{ADDRESS}{space}{ADDRESS}{space}{one}");
            }
            let listing = parse(answer(&format!("{inside}{space}")).as_bytes()).unwrap();
            let subnet = &listing.interfaces[0].subnets[0];
            let mut addresses: Vec<_> = subnet.addresses.iter().map(ToString::to_string).collect();
            addresses.retain(|a| a != "10.224.0.5");
            assert_eq!(
                addresses,
                ["10.224.0.6", "10.224.0.7", "10.224.0.8", "fd00::9"]
            );
            assert_eq!(subnet.addresses.len(), 16 + 4);
            assert_eq!((subnet.primary.len(), subnet.malformed.count), (1, 1));
        }
        let between = answer(&format!("{ADDRESS}</IPSubnet><IPSubnet>{ADDRESS}"));
        assert_eq!(addresses(&between).unwrap().len(), 2);
    }

    #[test]
    fn errors_name_the_format_of_other_documents() {
        for (text, expected) in [
            (
                "{\"error\": \"a & b\"}",
                "the answer is JSON, not an XML document",
            ),
            ("[]", "the answer is JSON, not an XML document"),
            (" \n", "the answer is empty, not an XML document"),
            ("\u{feff}", "the answer is empty, not an XML document"),
            (
                "no & such page",
                "the answer is \"no & such page\", not an XML document",
            ),
            (
                "<html>",
                "the answer's root element is \"html\", not Interfaces",
            ),
            (
                "<Interfaces>",
                "the answer is not a complete XML document: unexpected end",
            ),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    /// The recorded cases of the original lack these.
    #[test]
    fn malformed_answers_are_refused_as_a_whole() {
        let good = answer(ADDRESS);
        assert!(parse(&b"<Interfaces>\xff</Interfaces>"[..]).is_err());
        for bad in [
            "{}",
            "<Interfaces/>",
            "<Interfaces></Interfaces>",
            &good.replace("</IPSubnet>", "</Subnet>"),
            &good.replace("<IPAddress", "&unknown;<IPAddress"),
            &good.replace("10.224.0.5", "&unknown;"),
            &format!("<?xml version=\"1.1\"?>{good}"),
        ] {
            assert_eq!(addresses(bad), None, "{bad}");
        }
    }
}
