//! JSON text as Go's encoder writes it, for the parts of the state file that must be the original's to the byte
//! (contract section 5).

use std::net::IpAddr;

use crate::anycase::plain_length;
use crate::ipam::push_address;

/// Appends a string with its quotes; `<`, `>`, `&` and the two line separators of JavaScript are escaped as in HTML.
pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    // Most container IDs of a state are empty, and even to copy nothing takes a while.
    if !text.is_empty() {
        escaped(out, text, true);
    }
    out.push(b'"');
}

/// Appends an address with quotes.
pub(super) fn address(out: &mut Vec<u8>, address: IpAddr) {
    out.push(b'"');
    push_address(out, address);
    out.push(b'"');
}

/// Appends a short text. musl copies by an instruction that takes as long for a few bytes as for a hundred, so that pieces of
/// a length that is known beforehand are faster.
fn copy(out: &mut Vec<u8>, text: &[u8]) {
    let (pieces, tail) = text.as_chunks::<16>();
    for piece in pieces {
        out.extend_from_slice(piece);
    }
    for byte in tail {
        out.push(*byte);
    }
}

/// Appends a number.
pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [b'0'; 20];
    let count = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = number;
    for digit in digits.iter_mut().take(count).rev() {
        *digit |= (rest % 10) as u8;
        rest /= 10;
    }
    // All twenty bytes: cheaper than a copy of a length that is not known beforehand.
    let end = out.len() + count;
    out.extend_from_slice(&digits);
    out.truncate(end);
}

/// Appends `count` tabs on a new line.
pub(super) fn line(out: &mut Vec<u8>, count: usize) {
    out.push(b'\n');
    for _ in 0..count {
        out.push(b'\t');
    }
}

/// Appends a document, whatever its spacing, indented by tabs below `depth`; the escapes within its strings stay as they
/// are, but for the characters that Go never leaves plain.
pub(super) fn reindented(out: &mut Vec<u8>, json: &str, mut depth: usize) {
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
                out.push(b'"');
                escaped(out, inside, false);
                out.push(b'"');
            }
            '{' | '[' => {
                out.extend(token.as_bytes());
                let inside = rest.trim_start();
                if inside.starts_with(['}', ']']) {
                    out.extend(inside.bytes().take(1));
                    rest = inside.get(1..).unwrap_or_default();
                } else {
                    depth += 1;
                    line(out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(out, depth);
                out.extend(token.as_bytes());
            }
            ',' => {
                out.push(b',');
                line(out, depth);
            }
            ':' => out.extend(b": "),
            space if space.is_ascii_whitespace() => {}
            _ => out.extend(token.as_bytes()),
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
fn escaped(out: &mut Vec<u8>, text: &str, all: bool) {
    // Nearly every text has nothing to escape. The two separators of JavaScript begin with the byte 0xe2.
    if plain_length(text.as_bytes(), *b"<>&\"\\\xe2") == text.len() {
        copy(out, text.as_bytes());
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
        out.extend(text.get(plain..at).unwrap_or_default().as_bytes());
        out.extend(escape.as_bytes());
        plain = at + c.len_utf8();
    }
    out.extend(text.get(plain..).unwrap_or_default().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn again(json: &str, depth: usize) -> String {
        let mut out = Vec::new();
        reindented(&mut out, json, depth);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn strings_are_escaped_as_go_escapes_them() {
        let mut out = Vec::new();
        string(&mut out, "a\"b\\c\n\t\r\u{8}\u{1f}\u{7f}<&>\u{2028}ä");
        let expected =
            r#""a\"b\\c\n\t\r\u0008\u001f"#.to_owned() + "\u{7f}" + r#"\u003c\u0026\u003e\u2028ä""#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
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
                let mut out = Vec::new();
                number(&mut out, n);
                prop_assert_eq!(String::from_utf8(out).unwrap(), n.to_string());
            }
        }

        #[test]
        fn any_string_reads_back(text: String) {
            let mut out = Vec::new();
            string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn any_text_is_survived(json: String) {
            again(&json, 1);
        }
    }
}
