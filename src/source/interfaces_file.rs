//! `/etc/kubernetes/interfaces.json`, the source of the environments `mas` and `fileIpam` (contract
//! section 18).

use super::listing::{ListedInterface, ListedSubnet, Listing};
use crate::codec::{self, Cursor, Members, ParseError, Read, is, object};

/// Parses the file.
///
/// # Errors
/// It is not JSON in UTF-8, or something in it has the wrong type.
pub fn parse(json: &[u8]) -> Result<Listing, String> {
    match json {
        [0xef, 0xbb, 0xbf, ..] => {
            Err("it begins with a byte order mark; save it as UTF-8 without one".to_owned())
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [_, 0, ..] | [0, _, ..] => {
            Err("it is UTF-16; save it as UTF-8".to_owned())
        }
        _ => codec::parse(json).map_err(|error: codec::Error| error.to_string()),
    }
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
            let mut text = None;
            codec::text(&mut text, json, |text| Ok(Some(text.to_owned())))?;
            if let Some(text) = text {
                self.set_prefix(&text);
            }
        } else if is(key, "IPAddresses") {
            let mut addresses: Vec<Address> = Vec::new();
            addresses.read(json)?;
            for address in addresses {
                self.add_text(&address.text, address.primary);
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
        assert_eq!((subnet.addresses.len(), subnet.malformed.count), (1, 2));
        assert_eq!(nonsense.prefix, None);
        let first = nonsense.malformed.first.as_ref().unwrap();
        let text = "the prefix \"nonsense\", which is not a valid prefix";
        assert_eq!(first.to_string(), text);
    }

    #[test]
    fn errors_name_other_encodings() {
        for (text, why) in [
            (&b"\xef\xbb\xbf{}"[..], "byte order mark"),
            (b"\xff\xfe{\0}\0", "UTF-16"),
            (b"\xfe\xff\0{\0}", "UTF-16"),
            (b"{\0}\0", "UTF-16"),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
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
