//! The wire server's answer to `getinterfaceinfov1` (contract section 7).
//!
//! The document is accepted or refused as a whole, and what follows the root element means nothing.

use std::hash::{DefaultHasher, Hasher};
use std::io::{ErrorKind, Read};
use std::net::IpAddr;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::listing::{
    AnswerError, ListedInterface, ListedSubnet, Listing, parse_address, parse_prefix,
};
use crate::codec::leading_address;

/// The kind of an element, by its position in the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Interfaces,
    Interface,
    Subnet,
    Address,
    /// An unknown element or one inside it, which is skipped.
    Unknown,
}

/// Reads an answer up to the end of its root element, as some servers keep the connection open after it. Returns what it lists, and
/// what `hasher` makes of its text. Where that is `known`, the text is not parsed, which saves a tenth of an ADD.
///
/// # Errors
/// See [`AnswerError`].
pub fn read(
    mut answer: impl Read,
    hasher: &DefaultHasher,
    known: Option<u64>,
) -> Result<(Option<Listing>, u64), AnswerError> {
    let finish = |text: &[u8]| {
        let mut hasher = hasher.clone();
        hasher.write(text.trim_ascii_end());
        let digest = hasher.finish();
        let is_known = known == Some(digest);
        let listing = (!is_known).then(|| parse(text)).transpose()?;
        Ok((listing, digest))
    };
    let mut chunk = [0; 4096];
    // As much as 254 addresses take.
    let mut text = Vec::with_capacity(16 << 10);
    let mut is_tried = false;
    loop {
        match answer.read(&mut chunk) {
            Ok(0) => return finish(&text),
            Ok(read) => text.extend_from_slice(chunk.get(..read).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(quick_xml::Error::from(e).into()),
        }
        // Only once: it may be the end of a comment.
        if !is_tried && ends_like_the_root(&text) {
            is_tried = true;
            if let Ok(finished) = finish(&text) {
                return Ok(finished);
            }
        }
    }
}

fn ends_like_the_root(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    let tag = text.rsplit(|b| *b == b'<').next().unwrap_or_default();
    tag.starts_with(b"/") && tag.ends_with(b"Interfaces>")
}

/// Reads a whole answer.
///
/// # Errors
/// See [`AnswerError`].
pub fn parse(answer: &[u8]) -> Result<Listing, AnswerError> {
    let mut reader = Reader::from_reader(answer);
    let mut listing = Listing::default();
    let mut path: Vec<Place> = Vec::with_capacity(8);
    loop {
        // Behind an element and in front of whatever follows it.
        let mut is_between = false;
        match reader.read_event()? {
            Event::Decl(declaration) => {
                let version = declaration.version()?.into_owned();
                let encoding = declaration
                    .encoding()
                    .transpose()
                    .map_err(quick_xml::Error::from)?;
                if version != "1.0" {
                    return Err(AnswerError::Declaration(format!("version {version}")));
                }
                if let Some(other) = encoding.filter(|e| !e.eq_ignore_ascii_case("utf-8")) {
                    return Err(AnswerError::Declaration(format!("encoding {other}")));
                }
            }
            Event::Start(element) => {
                let place = add_element(&mut listing, path.last().copied(), &element)?;
                path.push(place);
                is_between = true;
            }
            Event::Empty(element) => {
                if add_element(&mut listing, path.last().copied(), &element)? == Place::Interfaces {
                    break;
                }
                is_between = true;
            }
            Event::End(_) => {
                path.pop();
                if path.is_empty() {
                    break;
                }
            }
            Event::GeneralRef(entity) => {
                let known = ["lt", "gt", "amp", "apos", "quot"].contains(&&*entity);
                if !known && entity.resolve_char_ref()?.is_none() {
                    return Err(AnswerError::Declaration(format!(
                        "an unknown entity &{};",
                        &*entity
                    )));
                }
            }
            Event::Eof => return Err(AnswerError::Cut),
            Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::PI(_)
            | Event::DocType(_) => {}
        }
        if is_between && path.last() == Some(&Place::Subnet) {
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

/// Adds an element to the listing, and returns its kind.
fn add_element(
    listing: &mut Listing,
    parent: Option<Place>,
    element: &BytesStart<'_>,
) -> Result<Place, AnswerError> {
    let name = element.local_name();
    let place = match (parent, name.as_ref()) {
        (None, "Interfaces") => Place::Interfaces,
        (None, other) => return Err(AnswerError::Root(other.to_owned())),
        (Some(Place::Interfaces), "Interface") => Place::Interface,
        (Some(Place::Interface), "IPSubnet") => Place::Subnet,
        (Some(Place::Subnet), "IPAddress") => Place::Address,
        _ => Place::Unknown,
    };
    let mut mac = String::new();
    let mut primary = false;
    let mut prefix = None;
    let mut address = String::new();
    // Namespace prefixes are ignored. The last of repeated attributes is used.
    for attribute in element.attributes().with_checks(false) {
        let attribute = attribute.map_err(quick_xml::Error::from)?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0)?;
        match (place, attribute.key.local_name().as_ref()) {
            (Place::Interface, "MacAddress") => mac = value.into_owned(),
            (Place::Interface | Place::Address, "IsPrimary") => primary = parse_flag(&value)?,
            (Place::Subnet, "Prefix") => prefix = parse_prefix(&value),
            (Place::Address, "Address") => address = value.into_owned(),
            _ => {}
        }
    }
    let interfaces = &mut listing.interfaces;
    match place {
        Place::Interface => interfaces.push(ListedInterface {
            mac,
            primary,
            subnets: Vec::new(),
        }),
        Place::Subnet => {
            if let Some(interface) = interfaces.last_mut() {
                interface.subnets.push(ListedSubnet {
                    prefix,
                    ..ListedSubnet::default()
                });
            }
        }
        Place::Address => listing.add(parse_address(&address), primary),
        Place::Interfaces | Place::Unknown => {}
    }
    Ok(place)
}

/// Adds the addresses that follow in the exact form that the wire server writes, and returns the remaining text. Nearly the whole
/// answer has this form, and this is faster than quick-xml, which parses everything else.
fn add_canonical_addresses<'a>(mut text: &'a [u8], listing: &mut Listing) -> &'a [u8] {
    let parse_canonical = |text: &'a [u8]| -> Option<(IpAddr, bool, &'a [u8])> {
        let text = text.trim_ascii_start();
        let (address, rest) = leading_address(text.strip_prefix(b"<IPAddress Address=\"")?)?;
        match rest.strip_prefix(b"\" IsPrimary=\"false\"/>") {
            Some(rest) => Some((address.to_canonical(), false, rest)),
            None => Some((
                address.to_canonical(),
                true,
                rest.strip_prefix(b"\" IsPrimary=\"true\"/>")?,
            )),
        }
    };
    while let Some((address, primary, rest)) = parse_canonical(text) {
        listing.add(Some(address), primary);
        text = rest;
    }
    text
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

    /// An answer with one subnet that holds `inside`.
    fn answer(inside: &str) -> String {
        format!(
            r#"<Interfaces><Interface MacAddress="7C1E52F9F3C4" IsPrimary="true"><IPSubnet Prefix="10.224.0.0/16">{inside}</IPSubnet></Interface></Interfaces>"#
        )
    }

    fn addresses(xml: &str) -> Option<Vec<String>> {
        let interfaces = parse(xml.as_bytes()).ok()?.interfaces;
        let subnets = interfaces.into_iter().flat_map(|i| i.subnets);
        let addresses = subnets.flat_map(|s| s.addresses);
        Some(addresses.map(|a| a.to_string()).collect())
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

    /// What the recorded cases of the original do not have.
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
        let read = |answer: &mut dyn Read, known| super::read(answer, &DefaultHasher::new(), known);
        for text in [&good, &format!("{good} \r\n")] {
            for size in [1, 7, 10_000] {
                let mut slow = SlowReader(text.as_bytes().chunks(size));
                let (listing, digest) = read(&mut slow, None).unwrap();
                assert_eq!(listing.unwrap().interfaces.len(), 1, "{size}");
                let mut again = SlowReader(text.as_bytes().chunks(size));
                assert_eq!(read(&mut again, Some(digest)).unwrap(), (None, digest));
            }
        }
        let commented = answer(&format!("<!-- </Interfaces>-->{ADDRESS}"));
        let comment_end = commented.find("-->").unwrap();
        for text in [commented, format!("{good}<!-- more")] {
            let (first, second) = text.as_bytes().split_at(comment_end);
            let (listing, _) = read(&mut first.chain(second), None).unwrap();
            assert_eq!(listing.unwrap().interfaces.len(), 1, "{text}");
        }
        let mut cut = SlowReader(good.as_bytes()[..good.len() - 1].chunks(7));
        assert!(read(&mut cut, None).is_err());
        let mut cut = good.strip_suffix("</Interfaces>").unwrap().as_bytes();
        assert!(matches!(read(&mut cut, None), Err(AnswerError::Cut)));
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
            assert_eq!((subnet.primary, subnet.malformed), (1, 1));
        }
        let between = answer(&format!("{ADDRESS}</IPSubnet><IPSubnet>{ADDRESS}"));
        assert_eq!(addresses(&between).unwrap().len(), 2);
    }

    /// What the recorded cases of the original do not have.
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
