//! /etc/kubernetes/interfaces.json, from which the environments `mas` and `fileIpam` draw (contract section 18).

use serde::de::MapAccess;

use super::listing::{ListedInterface, ListedSubnet, Listing, parse_prefix};
use crate::anycase::{self, Members, is};

/// Reads the file.
///
/// # Errors
/// It is not JSON, or something in it has the wrong type.
pub fn parse(json: &[u8]) -> Result<Listing, serde_json::Error> {
    let mut listing = Listing::default();
    anycase::read(json, &mut listing)?;
    Ok(listing)
}

impl Members for Listing {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            k if is(k, "Interfaces") => anycase::list(map, &mut self.interfaces),
            _ => anycase::skip(map),
        }
    }
}

impl Members for ListedInterface {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            k if is(k, "MacAddress") => anycase::value(map, &mut self.mac),
            k if is(k, "IsPrimary") => anycase::value(map, &mut self.primary),
            k if is(k, "IPSubnets") => anycase::list(map, &mut self.subnets),
            _ => anycase::skip(map),
        }
    }
}

impl Members for ListedSubnet {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            k if is(k, "Prefix") => {
                anycase::text(map, &mut self.prefix, |text| Ok(parse_prefix(text)))
            }
            k if is(k, "IPAddresses") => {
                let mut addresses: Vec<Address> = Vec::new();
                anycase::list(map, &mut addresses)?;
                for address in addresses {
                    self.add(&address.text, address.primary);
                }
                Ok(())
            }
            _ => anycase::skip(map),
        }
    }
}

#[derive(Default)]
struct Address {
    text: String,
    primary: bool,
}

impl Members for Address {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            k if is(k, "Address") => anycase::value(map, &mut self.text),
            k if is(k, "IsPrimary") => anycase::value(map, &mut self.primary),
            _ => anycase::skip(map),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_with_keys_in_any_case() {
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
    fn a_file_of_another_shape_is_refused_and_an_empty_object_lists_nothing() {
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
