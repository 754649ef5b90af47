//! Addresses as text. A state is mostly addresses, and the standard library's formatting and parsing of IPv4 took a third of a
//! DEL's instructions; the ones here take a tenth of that, and agree with it (tests). IPv6 is left to the standard library.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Writes the text of an address. Returns its length.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "an octet is an index of 256 places, and four texts take at most sixteen bytes"
)]
pub fn format_v4(address: Ipv4Addr, text: &mut [u8; 16]) -> usize {
    /// The text of every octet, each with a dot behind it.
    static DOTTED: [[u8; 4]; 256] = {
        let mut texts = [[0; 4]; 256];
        let mut octet = 0u8;
        loop {
            let hundreds = b'0' + octet / 100;
            let tens = b'0' + octet / 10 % 10;
            let ones = b'0' + octet % 10;
            texts[octet as usize] = match octet {
                0..10 => [ones, b'.', 0, 0],
                10..100 => [tens, ones, b'.', 0],
                100.. => [hundreds, tens, ones, b'.'],
            };
            if octet == u8::MAX {
                break texts;
            }
            octet += 1;
        }
    };
    let mut length = 0;
    for octet in address.octets() {
        text[length..length + 4].copy_from_slice(&DOTTED[usize::from(octet)]);
        length += 2 + usize::from(octet >= 10) + usize::from(octet >= 100);
    }
    // No dot at the end.
    length - 1
}

/// Reads an address. Leading zeros and zones are refused, as the standard library does.
pub fn read_address(text: &str) -> Option<IpAddr> {
    match leading_v4(text.as_bytes()) {
        Some((address, [])) => Some(address.into()),
        _ => text.parse().ok(),
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

/// Reads the address at the start of a text, and tells what follows it. IPv6 ends where neither digits nor colons follow.
#[inline(always)]
pub fn leading_address(text: &[u8]) -> Option<(IpAddr, &[u8])> {
    match leading_v4(text) {
        Some((address, rest)) => Some((address.into(), rest)),
        None => leading_v6(text).map(|(address, rest)| (address.into(), rest)),
    }
}

/// Reads the IPv6 address at the start of a text, and tells what follows it.
// Rarer than the other, also where it is not rare.
#[cold]
pub fn leading_v6(text: &[u8]) -> Option<(Ipv6Addr, &[u8])> {
    let is_part = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b':';
    let length = text.iter().take_while(|byte| is_part(byte)).count();
    let (address, rest) = text.split_at_checked(length)?;
    Some((std::str::from_utf8(address).ok()?.parse().ok()?, rest))
}

/// Reads the IPv4 address at the start of a text, and tells what follows it.
#[inline(always)]
pub fn leading_v4(text: &[u8]) -> Option<(Ipv4Addr, &[u8])> {
    let (a, rest) = read_octet(text)?;
    let (b, rest) = read_octet(rest.strip_prefix(b".")?)?;
    let (c, rest) = read_octet(rest.strip_prefix(b".")?)?;
    let (d, rest) = read_octet(rest.strip_prefix(b".")?)?;
    Some((Ipv4Addr::new(a, b, c, d), rest))
}

/// One to three digits without a leading zero, up to 255.
#[inline(always)]
fn read_octet(text: &[u8]) -> Option<(u8, &[u8])> {
    let value = |digit: u8| u16::from(digit & 0xf);
    match text {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] => {
            let number = value(*a) * 100 + value(*b) * 10 + value(*c);
            Some((u8::try_from(number).ok()?, rest))
        }
        [a @ b'1'..=b'9', b @ b'0'..=b'9', rest @ ..] => Some(((a & 0xf) * 10 + (b & 0xf), rest)),
        [a @ b'0'..=b'9', rest @ ..] => Some((a & 0xf, rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_texts_are_read_as_the_standard_library_reads_them() {
        // What the random texts below are not made of.
        for text in [
            "255.255.255.255",
            "256.1.1.1",
            " 1.2.3.4",
            "+1.2.3.4",
            "::ffff:1.2.3.4",
            "fe80::1%eth0",
            "a.b.c.d",
            "1.2.3.4/5",
            "\u{661}.2.3.4",
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
            let v4 = Ipv4Addr::from(v4);
            let mut text = [0; 16];
            let length = format_v4(v4, &mut text);
            prop_assert_eq!(str::from_utf8(&text[..length]).unwrap(), v4.to_string());
            for address in [IpAddr::from(v4), IpAddr::V6(v6.into())] {
                prop_assert_eq!(read_address(&address.to_string()), Some(address));
            }
        }

        #[test]
        fn the_leading_address_ends_before_the_quote(v6: u128) {
            let address = IpAddr::V6(v6.into());
            prop_assume!(!address.to_string().contains('.'));
            let more = format!("{address}\" and more");
            let found = leading_address(more.as_bytes());
            prop_assert_eq!(found, Some((address, &b"\" and more"[..])));
        }

        #[test]
        fn any_text_with_colons_is_read_as_the_standard_library_reads_it(text in "[0-3A-Fa-f:]{0,24}|(::)?([0-9a-f]{0,5}(:|::)){0,9}[0-9a-f]{0,5}(%e|[.]1)?") {
            prop_assert_eq!(read_address(&text), text.parse().ok());
        }

        #[test]
        fn any_text_is_read_as_the_standard_library_reads_it(text in "[0-9.]{0,16}") {
            prop_assert_eq!(read_address(&text), text.parse().ok());
        }
    }
}
