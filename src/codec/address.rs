//! Addresses as text. A state is mostly addresses, and the standard library's formatting and parsing of IPv4 took a third of a
//! DEL's instructions, those of IPv6 even more; the ones here take a tenth of that, and agree with it (tests).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// The decimal digits of an octet and a dot, and how many bytes these are.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "an octet is an index of 256 places"
)]
pub fn format_octet(octet: u8) -> ([u8; 4], usize) {
    let length = 2 + usize::from(octet >= 10) + usize::from(octet >= 100);
    (DOTTED[usize::from(octet)], length)
}

/// The text of every octet, each with a dot behind it.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which would refuse"
)]
static DOTTED: [[u8; 4]; 256] = {
    let mut texts = [[0; 4]; 256];
    let mut octet = 0u8;
    loop {
        let [a, b, c] = [
            b'0' + octet / 100,
            b'0' + octet / 10 % 10,
            b'0' + octet % 10,
        ];
        texts[octet as usize] = match octet {
            0..10 => [c, b'.', 0, 0],
            10..100 => [b, c, b'.', 0],
            100.. => [a, b, c, b'.'],
        };
        if octet == u8::MAX {
            break texts;
        }
        octet += 1;
    }
};

/// The text of an address of IPv6 in its shortest form (RFC 5952), and how many bytes it has. One that stands for an address of
/// IPv4 is written otherwise, and not here.
#[expect(
    clippy::indexing_slicing,
    reason = "eight groups have at most 32 digits and 8 colons"
)]
pub fn format_ipv6(address: Ipv6Addr) -> ([u8; 40], usize) {
    let groups = address.segments();
    // The first of the longest runs of zeros, if there is one of two or more.
    let (mut run, mut longest) = (0, 1);
    let mut gap = usize::MAX;
    for (n, group) in groups.iter().enumerate() {
        run = if *group == 0 { run + 1 } else { 0 };
        if run > longest {
            (gap, longest) = (n + 1 - run, run);
        }
    }
    let mut text = [b':'; 40];
    let (mut length, mut n) = (0, 0);
    while n < groups.len() {
        if n == gap {
            // What was written before ends in a colon already.
            length += if n == 0 { 2 } else { 1 };
            n += longest;
            continue;
        }
        let group = groups[n];
        let digits = 4 - usize::try_from(group.leading_zeros() / 4)
            .unwrap_or(0)
            .min(3);
        for place in (0..digits).rev() {
            text[length] = HEX[usize::from(group >> (4 * place) & 0xf)];
            length += 1;
        }
        length += 1;
        n += 1;
    }
    // No colon at the end but that of a gap.
    let is_gap = gap.saturating_add(longest) == groups.len();
    (text, length - usize::from(!is_gap))
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Reads an address. Leading zeros and zones are refused, as the standard library does.
pub fn read_address(text: &str) -> Option<IpAddr> {
    match leading_address(text.as_bytes()) {
        Some((address, [])) => Some(address),
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

/// Reads the address at the start of a text, and tells what follows it. Of IPv6 not all spellings are read.
#[inline(always)]
pub fn leading_address(text: &[u8]) -> Option<(IpAddr, &[u8])> {
    match leading_v4(text) {
        Some((address, rest)) => Some((address.into(), rest)),
        None => leading_v6(text).map(|(address, rest)| (address.into(), rest)),
    }
}

/// Reads the IPv6 address at the start of a text, and tells what follows it: up to eight groups of one to four digits; what a
/// `::` leaves out are zeros. One that ends as an address of IPv4 is left to others.
// Rarer than the other, also where it is not rare.
#[cold]
pub fn leading_v6(text: &[u8]) -> Option<(Ipv6Addr, &[u8])> {
    let mut groups = [0; 8];
    let (mut count, mut gap) = (0, None);
    let mut rest = text;
    if let Some(behind) = rest.strip_prefix(b"::") {
        (gap, rest) = (Some(0), behind);
    }
    loop {
        let (mut group, mut digits) = (0, 0);
        while let [digit, behind @ ..] = rest
            && let Some(value) = char::from(*digit).to_digit(16)
        {
            if digits == 4 {
                return None;
            }
            (group, digits, rest) = (group << 4 | value, digits + 1, behind);
        }
        if digits == 0 {
            // Nothing may follow a `::`, and nothing else.
            (gap == Some(count)).then_some(())?;
            break;
        }
        *groups.get_mut(count)? = u16::try_from(group).ok()?;
        count += 1;
        rest = match rest {
            [b':', b':', behind @ ..] if gap.is_none() => {
                gap = Some(count);
                behind
            }
            [b':', behind @ ..] => behind,
            _ => break,
        };
    }
    match gap {
        None => (count == 8).then_some(())?,
        Some(gap) => {
            (count < 8).then_some(())?;
            groups.get_mut(gap..)?.rotate_right(8 - count);
        }
    }
    Some((Ipv6Addr::from(groups), rest))
}

/// Reads the IPv4 address at the start of a text, and tells what follows it.
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
            let v4 = Ipv4Addr::from(v4);
            let mut text = Vec::new();
            for octet in v4.octets() {
                let (digits, length) = format_octet(octet);
                text.extend(&digits[..length]);
            }
            prop_assert_eq!(String::from_utf8(text).unwrap(), format!("{v4}."));
            for address in [IpAddr::from(v4), IpAddr::V6(v6.into())] {
                prop_assert_eq!(read_address(&address.to_string()), Some(address));
            }
        }

        #[test]
        fn zeros_are_left_out_as_the_standard_library_does(groups: [u16; 8], zeros: u8, short: u8) {
            let mut groups = groups;
            for (n, group) in groups.iter_mut().enumerate() {
                *group &= if zeros >> n & 1 == 1 { 0 } else { 0xffff };
                *group >>= if short >> n & 1 == 1 { 8 } else { 0 };
            }
            let address = Ipv6Addr::from(groups);
            prop_assume!(address.to_ipv4_mapped().is_none());
            let (text, length) = format_ipv6(address);
            let text = std::str::from_utf8(&text[..length]).unwrap();
            prop_assert_eq!(text, address.to_string());
            let more = format!("{text}\" and more");
            let found = leading_address(more.as_bytes());
            prop_assert_eq!(found, Some((IpAddr::from(address), &b"\" and more"[..])));
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
