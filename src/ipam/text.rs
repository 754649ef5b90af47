//! Addresses as text. A state is mostly addresses, and the standard library's formatting and parsing of IPv4 took a third of a
//! DEL's instructions; the two here take a tenth of that, and agree with it (tests).

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

/// Appends the text of an address.
pub fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for (n, octet) in v4.octets().into_iter().enumerate() {
                if n > 0 {
                    out.push(b'.');
                }
                if octet >= 100 {
                    out.push(b'0' + octet / 100);
                }
                if octet >= 10 {
                    out.push(b'0' + octet / 10 % 10);
                }
                out.push(b'0' + octet % 10);
            }
        }
        IpAddr::V6(v6) => out.extend(v6.to_string().bytes()),
    }
}

/// Reads an address. Leading zeros and zones are refused, as the standard library does.
pub fn read_address(text: &str) -> Option<IpAddr> {
    match read_v4(text.as_bytes()) {
        Some(address) => Some(address.into()),
        None => text.parse().ok(),
    }
}

/// Reads an address as a caller may name it: with spaces around it, or with a prefix length, which means nothing. IPv4 in IPv6
/// spelling counts as IPv4.
pub fn named_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let address = match text.contains('/') {
        true => text.parse::<IpNet>().ok()?.addr(),
        false => read_address(text)?,
    };
    Some(address.to_canonical())
}

fn read_v4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut rest = text;
    for (n, octet) in octets.iter_mut().enumerate() {
        if n > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        let (number, after) = read_octet(rest)?;
        (*octet, rest) = (number, after);
    }
    rest.is_empty().then(|| octets.into())
}

/// One to three digits without a leading zero, up to 255.
fn read_octet(text: &[u8]) -> Option<(u8, &[u8])> {
    let mut number = 0u8;
    let mut rest = text;
    while let Some((digit, after)) = rest.split_first()
        && digit.is_ascii_digit()
    {
        let leading_zero = number == 0 && rest.len() < text.len();
        if leading_zero {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(digit - b'0')?;
        rest = after;
    }
    (rest.len() < text.len()).then_some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pushed(address: IpAddr) -> String {
        let mut out = Vec::new();
        push_address(&mut out, address);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn odd_texts_are_read_as_the_standard_library_reads_them() {
        for text in [
            "",
            "1",
            "1.2.3",
            "1.2.3.4",
            "1.2.3.4.",
            "1.2.3.4.5",
            ".1.2.3",
            "1..2.3",
            "0.0.0.0",
            "00.0.0.0",
            "01.2.3.4",
            "1.2.3.04",
            "255.255.255.255",
            "256.1.1.1",
            "1.1.1.1000",
            " 1.2.3.4",
            "1.2.3.4 ",
            "+1.2.3.4",
            "::",
            "fd00::1",
            "::ffff:1.2.3.4",
            "fe80::1%eth0",
            "a.b.c.d",
            "1.2.3.4/5",
            "١.2.3.4",
        ] {
            assert_eq!(read_address(text), text.parse().ok(), "{text}");
        }
    }

    #[test]
    fn a_caller_may_add_a_prefix_length() {
        let address = "10.1.0.5".parse().ok();
        for text in ["10.1.0.5", "10.1.0.5/16", "::ffff:10.1.0.5", " 10.1.0.5"] {
            assert_eq!(named_address(text), address, "{text}");
        }
        for bad in [
            "",
            "10.1.0.5/33",
            "10.1.0.5/",
            "10.1.0.5/16/8",
            "10.1.0.5/x",
            "10.1.0",
            "x",
        ] {
            assert_eq!(named_address(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_address_is_written_and_read_as_the_standard_library_does(v4: u32, v6: u128) {
            for address in [IpAddr::V4(v4.into()), IpAddr::V6(v6.into())] {
                prop_assert_eq!(pushed(address), address.to_string());
                prop_assert_eq!(read_address(&address.to_string()), Some(address));
            }
        }

        #[test]
        fn any_text_is_read_as_the_standard_library_reads_it(text in "[0-9.]{0,16}") {
            prop_assert_eq!(read_address(&text), text.parse().ok());
        }
    }
}
