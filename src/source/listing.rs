//! The interfaces, subnets and addresses that a source lists, before they are matched to this host.

use std::fmt::{self, Display};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::codec::read_address;

/// The interfaces that a document lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// In the order of the document.
    pub interfaces: Vec<ListedInterface>,
}

/// One interface of the document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedInterface {
    /// The hardware address in the spelling of the document.
    pub mac: String,
    /// Whether it is the node's primary interface.
    pub primary: bool,
    /// Its subnets in the order of the document.
    pub subnets: Vec<ListedSubnet>,
}

/// One subnet of an interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedSubnet {
    /// The subnet without host bits; `None` when its text is not a prefix, or is missing.
    pub prefix: Option<IpNet>,
    /// The secondary addresses that can be parsed, even those outside of the subnet.
    pub addresses: Vec<IpAddr>,
    /// The addresses that belong to the host.
    pub primary: Vec<IpAddr>,
    /// The malformed values.
    pub malformed: Unusable,
}

/// Values of a listing that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unusable {
    /// How many there are.
    pub count: usize,
    /// The first one.
    pub first: Option<UnusableValue>,
}

/// A value of a listing that cannot be used. It is displayed as the end of a sentence that begins with "the source lists".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnusableValue {
    /// The value, such as `the address "x"`.
    pub value: String,
    /// The interface that it is listed for; empty while that is unknown.
    pub link: String,
    /// Why it cannot be used, as the end of the sentence.
    pub why: String,
}

impl Display for UnusableValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnusableValue { value, link, why } = self;
        match &**link {
            "" => write!(f, "{value}{why}"),
            link => write!(f, "{value} of interface {link}{why}"),
        }
    }
}

impl Unusable {
    /// Records a value, and why it cannot be used.
    pub fn note(&mut self, value: impl Display, why: impl Display) {
        self.count += 1;
        self.first.get_or_insert_with(|| UnusableValue {
            value: value.to_string(),
            why: why.to_string(),
            link: String::new(),
        });
    }

    /// Adds the values of another part of the listing.
    pub fn add(&mut self, other: Unusable) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }

    /// Sets the interface that the values are listed for.
    pub fn for_link(mut self, link: &str) -> Unusable {
        if let Some(first) = &mut self.first {
            link.clone_into(&mut first.link);
        }
        self
    }
}

/// Quotes the beginning of a text.
pub(super) fn quote(text: &str) -> String {
    /// An Azure resource ID is longer, but its beginning shows what it is.
    const MAX_CHARACTERS: usize = 60;
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// The maximum number of subnets in a document. An Azure node has a few on each of up to eight
/// interfaces.
const MAX_SUBNETS: usize = 64;
/// The maximum number of addresses for pods in a document. An Azure interface has 256 at most.
const MAX_ADDRESSES: usize = 65_536;

/// Why an answer is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The answer is not XML, or is cut off.
    #[error("the answer is not a complete XML document: {0}")]
    Xml(#[from] quick_xml::Error),
    /// The document ends before its root element does.
    #[error("the answer is not a complete XML document: unexpected end")]
    Cut,
    /// The answer is not XML. The text names what it is.
    #[error("the answer is {0}, not an XML document")]
    NotXml(String),
    /// The XML version or encoding is not supported.
    #[error("the answer declares {0}; XML 1.0 in UTF-8 is what the wire server speaks")]
    Declaration(String),
    /// The root element is not `Interfaces`.
    #[error("the answer's root element is {0:?}, not Interfaces")]
    Root(String),
    /// A flag is neither true nor false.
    #[error("the answer says IsPrimary={0:?}, which is neither true nor false")]
    Flag(String),
    /// The document lists no interface.
    #[error("the answer lists no interface")]
    Empty,
    /// The document lists more of something than a node can have.
    #[error("the answer lists {1} {0}, more than {2}")]
    TooMany(&'static str, usize, usize),
}

impl Listing {
    /// Checks that it lists no more than a node can have. Merging takes time under the lock on the
    /// state.
    ///
    /// # Errors
    /// It lists too many subnets or addresses.
    pub fn check_size(&self) -> Result<(), AnswerError> {
        let subnets = self.subnets().count();
        if subnets > MAX_SUBNETS {
            return Err(AnswerError::TooMany("subnets", subnets, MAX_SUBNETS));
        }
        let addresses = self.subnets().map(|subnet| subnet.addresses.len()).sum();
        if addresses > MAX_ADDRESSES {
            return Err(AnswerError::TooMany(
                "addresses for pods",
                addresses,
                MAX_ADDRESSES,
            ));
        }
        Ok(())
    }

    /// The subnets of all interfaces.
    fn subnets(&self) -> impl Iterator<Item = &ListedSubnet> {
        self.interfaces
            .iter()
            .flat_map(|interface| &interface.subnets)
    }

    /// The last subnet so far.
    pub fn last_subnet(&mut self) -> Option<&mut ListedSubnet> {
        self.interfaces.last_mut()?.subnets.last_mut()
    }
}

impl ListedSubnet {
    /// Sets the prefix by its text.
    pub fn set_prefix(&mut self, text: &str) {
        self.prefix = parse_prefix(text);
        if self.prefix.is_none() {
            let value = format!("the prefix {}", quote(text));
            self.malformed.note(value, ", which is not a valid prefix");
        }
    }

    /// Adds an address by its text.
    pub fn add_text(&mut self, text: &str, is_primary: bool) {
        match parse_address(text) {
            Some(address) => self.add(address, is_primary),
            // Addresses of the host are not allocated to pods.
            None if is_primary => {}
            None => {
                let value = format!("the address {}", quote(text));
                self.malformed.note(value, ", which is not a valid address");
            }
        }
    }

    /// Adds an address.
    pub fn add(&mut self, address: IpAddr, is_primary: bool) {
        if is_primary {
            self.primary.push(address);
        } else {
            self.addresses.push(address);
        }
    }
}

/// Parses an address. An IPv4-mapped IPv6 address becomes IPv4. Leading zeros and zones are
/// refused.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    read_address(text).map(|address| address.to_canonical())
}

/// Parses a prefix and clears its host bits. Its length may have leading zeros, as in the original.
pub fn parse_prefix(text: &str) -> Option<IpNet> {
    let (address_text, length_text) = text.split_once('/')?;
    // The parser of integers accepts a sign, but a prefix length has none.
    if !length_text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let listed: IpAddr = address_text.parse().ok()?;
    let address = listed.to_canonical();
    let mut length: u32 = length_text.parse().ok()?;
    let is_mapped = listed.is_ipv6() && address.is_ipv4();
    if is_mapped {
        length = length.checked_sub(96)?;
    }
    let net = IpNet::new(address, u8::try_from(length).ok()?).ok()?;
    Some(net.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_addresses_is_limited() {
        let listing = |count: usize| {
            let subnet = ListedSubnet {
                addresses: vec![IpAddr::from([10, 0, 0, 5]); count],
                // These do not count.
                primary: vec![IpAddr::from([10, 0, 0, 4]); MAX_ADDRESSES],
                malformed: Unusable {
                    count: MAX_ADDRESSES,
                    first: None,
                },
                prefix: None,
            };
            let interface = ListedInterface {
                subnets: vec![subnet],
                ..ListedInterface::default()
            };
            Listing {
                interfaces: vec![interface],
            }
        };
        assert!(listing(65_536).check_size().is_ok());
        assert!(listing(65_537).check_size().is_err());
    }

    #[test]
    fn prefixes_are_parsed_as_the_original_parses_them() {
        for (text, net) in [
            ("10.224.0.4/16", "10.224.0.0/16"),
            ("10.1.0.0/024", "10.1.0.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("FD00:1:2:0::5/120", "fd00:1:2::/120"),
            ("::ffff:10.0.0.1/112", "10.0.0.0/16"),
        ] {
            assert_eq!(parse_prefix(text), net.parse().ok(), "{text}");
        }
        for bad in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "010.0.0.0/8",
            "10.0.0.0/+8",
            "10.0/8",
            "x/8",
            "fe80::%a/64",
            " 10.0.0.0/8",
        ] {
            assert_eq!(parse_prefix(bad), None, "{bad}");
        }
    }
}
