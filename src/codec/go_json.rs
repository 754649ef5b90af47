//! JSON text as Go's encoder writes it, for the parts of the state file that must be the original's to the byte
//! (contract section 5).

use std::net::{IpAddr, Ipv6Addr};

use super::out::Out;
use super::{format_ipv6, format_octet, plain_length};

/// Appends a string with its quotes; `<`, `>`, `&` and the two line separators of JavaScript are escaped as in HTML.
pub fn string(out: &mut Out, text: &str) {
    out.byte(b'"');
    // Most container IDs of a state are empty, and even to copy nothing takes a while.
    if !text.is_empty() {
        escaped(out, text, true);
    }
    out.byte(b'"');
}

/// Appends an address with quotes.
pub fn address(out: &mut Out, address: IpAddr) {
    out.byte(b'"');
    bare_address(out, address);
    out.byte(b'"');
}

/// Appends an address.
pub fn bare_address(out: &mut Out, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for octet in v4.octets() {
                let (digits, length) = format_octet(octet);
                out.start_of(digits, length);
            }
            // No dot at the end.
            out.back(1);
        }
        IpAddr::V6(v6) => address_v6(out, v6),
    }
}

/// Apart, so that what nearly all addresses need stays short.
#[inline(never)]
fn address_v6(out: &mut Out, address: Ipv6Addr) {
    if address.to_ipv4_mapped().is_some() {
        return out.text(&address.to_string());
    }
    let (text, length) = format_ipv6(address);
    out.start_of(text, length);
}

/// Appends a number.
#[expect(
    clippy::indexing_slicing,
    reason = "what is left of a division by a hundred is an index of a hundred places"
)]
pub fn number(out: &mut Out, number: u64) {
    let mut digits = [b'0'; 20];
    let count = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let (mut rest, mut end) = (number, count);
    while let Some(begin) = end.checked_sub(2) {
        if let Some(place) = digits.get_mut(begin..end) {
            place.copy_from_slice(&PAIRS[(rest % 100) as usize]);
        }
        (rest, end) = (rest / 100, begin);
    }
    if end == 1 {
        digits[0] = PAIRS[(rest % 100) as usize][1];
    }
    out.start_of(digits, count);
}

/// The numbers below a hundred in two digits.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which would refuse"
)]
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0u8;
    while n < 100 {
        pairs[n as usize] = [b'0' + n / 10, b'0' + n % 10];
        n += 1;
    }
    pairs
};

/// Appends `count` tabs on a new line.
pub fn line(out: &mut Out, count: usize) {
    out.byte(b'\n');
    for _ in 0..count {
        out.byte(b'\t');
    }
}

/// Appends a document, whatever its spacing, indented by tabs below `depth`; the escapes within its strings stay as they
/// are, but for the characters that Go never leaves plain.
pub fn reindented(out: &mut Out, json: &str, mut depth: usize) {
    let mut rest = json;
    while let Some(c) = rest.chars().next() {
        let (token, after) = match c {
            '"' => rest.split_at(string_length(rest)),
            _ => rest.split_at(c.len_utf8()),
        };
        rest = after;
        match c {
            '"' => {
                let inside = token.get(1..token.len() - 1).unwrap_or_default();
                out.byte(b'"');
                escaped(out, inside, false);
                out.byte(b'"');
            }
            '{' | '[' => {
                out.text(token);
                let inside = rest.trim_start();
                if inside.starts_with(['}', ']']) {
                    out.text(inside.get(..1).unwrap_or_default());
                    rest = inside.get(1..).unwrap_or_default();
                } else {
                    depth += 1;
                    line(out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(out, depth);
                out.text(token);
            }
            ',' => {
                out.byte(b',');
                line(out, depth);
            }
            ':' => out.literal(": "),
            space if space.is_ascii_whitespace() => {}
            _ => out.text(token),
        }
    }
}

/// How many bytes the string at the start of `json` takes, quotes included.
fn string_length(json: &str) -> usize {
    let mut escape = false;
    for (at, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            _ if escape => escape = false,
            b'\\' => escape = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

/// Appends text with the escapes of Go's encoder; with `all`, quotes, backslashes and control characters too, which a text
/// that is JSON already has escaped.
fn escaped(out: &mut Out, text: &str, all: bool) {
    // Nearly every text has nothing to escape. The two separators of JavaScript begin with the byte 0xe2.
    if plain_length(text.as_bytes(), *b"<>&\"\\\xe2") == text.len() {
        out.text(text);
        return;
    }
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        let escape = match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => format!("\\u{:04x}", u32::from(c)),
            '"' | '\\' if all => format!("\\{c}"),
            '\n' if all => "\\n".to_owned(),
            '\r' if all => "\\r".to_owned(),
            '\t' if all => "\\t".to_owned(),
            c if all && c < ' ' => format!("\\u{:04x}", u32::from(c)),
            _ => continue,
        };
        out.text(text.get(plain..at).unwrap_or_default());
        out.text(&escape);
        plain = at + c.len_utf8();
    }
    out.text(text.get(plain..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn again(json: &str, depth: usize) -> String {
        let mut out = Out::default();
        reindented(&mut out, json, depth);
        String::from_utf8(out.into_bytes()).unwrap()
    }

    #[test]
    fn strings_are_escaped_as_go_escapes_them() {
        let mut out = Out::default();
        string(&mut out, "a\"b\\c\n\t\r\u{8}\u{1f}\u{7f}<&>\u{2028}ä");
        let expected =
            r#""a\"b\\c\n\t\r\u0008\u001f"#.to_owned() + "\u{7f}" + r#"\u003c\u0026\u003e\u2028ä""#;
        assert_eq!(String::from_utf8(out.into_bytes()).unwrap(), expected);
    }

    #[test]
    fn documents_are_indented_anew() {
        let json = r#" { "b":1,"a" : [ 1, 2.50 ,1e3,"\u00e9<&>\"}" ], "e":{ } ,"f":[
]}"#;
        let expected = "{\n\t\t\"b\": 1,\n\t\t\"a\": [\n\t\t\t1,\n\t\t\t2.50,\n\t\t\t1e3,\n\t\t\t\"\\u00e9\\u003c\\u0026\\u003e\\\"}\"\n\t\t],\n\t\t\"e\": {},\n\t\t\"f\": []\n\t}";
        assert_eq!(again(json, 1), expected);
        assert_eq!(again(expected, 1), expected);
        assert_eq!(again("null", 1), "null");
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_standard_library(any: u64, shift in 0..64u32) {
            for n in [any >> shift, 0, u64::MAX] {
                let mut out = Out::default();
                number(&mut out, n);
                prop_assert_eq!(String::from_utf8(out.into_bytes()).unwrap(), n.to_string());
            }
        }

        #[test]
        fn any_string_reads_back(text: String) {
            let mut out = Out::default();
            string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out.into_bytes()).unwrap(), text);
        }

        #[test]
        fn any_text_is_survived(json: String) {
            again(&json, 1);
        }
    }
}
