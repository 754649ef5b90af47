//! `/etc/kubernetes/interfaces.json`, the source of the environments `mas` and `fileIpam` (contract section 18).

use super::listing::{ListedInterface, ListedSubnet, Listing, parse_address, parse_prefix};
use crate::codec::{self, Cursor, Members, ParseError, Read, is, object};

/// Parses the file.
///
/// # Errors
/// It is not JSON, or something in it has the wrong type.
pub fn parse(json: &[u8]) -> Result<Listing, codec::Error> {
    let mut listing = Listing::default();
    codec::read(json, &mut listing)?;
    Ok(listing)
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

    #[test]
    fn keys_are_case_insensitive() {
        let json = r#"{"interfaces":[{"MACADDRESS":"7C:1E","isprimary":true,"x":[{}],"IPSubnets":[
            {"prefix":"10.224.0.0/16","ipAddresses":[{"Address":"10.224.0.4","IsPrimary":true},{"address":"10.224.0.5"},{"Address":"x"},null]},
            {"Prefix":"nonsense"}]}, null]}"#;
        let listing = parse(json.as_bytes()).unwrap();
        assert_eq!(listing.interfaces.len(), 2);
        let interface = &listing.interfaces[0];
        assert_eq!((interface.mac.as_str(), interface.primary), ("7C:1E", true));
        let subnets: Vec<_> = interface
            .subnets
            .iter()
            .map(|s| {
                (
                    s.prefix.is_some(),
                    s.addresses.len(),
                    s.primary,
                    s.malformed,
                )
            })
            .collect();
        assert_eq!(subnets, [(true, 1, 1, 2), (false, 0, 0, 0)]);
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
