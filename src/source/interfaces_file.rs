//! `/etc/kubernetes/interfaces.json`, the source of the environments `mas` and `fileIpam` (contract
//! section 18).

use super::listing::{ListedInterface, ListedSubnet, Listing, parse_address, parse_prefix};
use crate::codec::{self, Cursor, Members, ParseError, Read, is, object};

/// Parses the file.
///
/// # Errors
/// It is not JSON, or something in it has the wrong type.
pub fn parse(json: &[u8]) -> Result<Listing, codec::Error> {
    codec::parse(json)
}

object! { any_case read Listing { "Interfaces": interfaces, } }

object! { any_case read ListedInterface {
    "MacAddress": mac,
    "IsPrimary": primary,
    "IPSubnets": subnets,
} }

impl<'de> Members<'de> for ListedSubnet {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<bool, ParseError> {
        if is(key, "Prefix") {
            codec::text(&mut self.prefix, json, |text| Ok(parse_prefix(text)))?;
        } else if is(key, "IPAddresses") {
            let mut addresses: Vec<Address> = Vec::new();
            addresses.read(json)?;
            for address in addresses {
                self.add(parse_address(&address.text), address.primary);
            }
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

object! { any_case read
    #[derive(Default)]
    struct Address {
        "Address": text: String,
        "IsPrimary": primary: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded cases of the original lack these.
    #[test]
    fn null_and_malformed_elements_are_skipped() {
        let json = r#"{"interfaces": [
            {"x": [{}], "IPSubnets": [
                {
                    "prefix": "10.224.0.0/16",
                    "ipAddresses": [{"address": "10.224.0.5"}, {"Address": "x"}, null]
                },
                {"Prefix": "nonsense"}
            ]},
            null
        ]}"#;
        let listing = parse(json.as_bytes()).unwrap();
        assert_eq!(listing.interfaces.len(), 2);
        let [subnet, nonsense] = &listing.interfaces[0].subnets[..] else {
            panic!("{listing:?}")
        };
        assert_eq!((subnet.addresses.len(), subnet.malformed), (1, 2));
        assert_eq!(nonsense.prefix, None);
    }

    #[test]
    fn other_shapes_are_refused_and_empty_object_lists_nothing() {
        for bad in [
            "",
            "[]",
            "x",
            r#"{"Interfaces":{}}"#,
            r#"{"Interfaces":[{"IsPrimary":"true"}]}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(parse(b"{}").unwrap(), Listing::default());
        assert_eq!(parse(b"null").unwrap(), Listing::default());
    }
}
