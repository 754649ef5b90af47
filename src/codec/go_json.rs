//! JSON text as Go's encoder writes it, for the parts of the state file that must be the original's to the byte
//! (contract section 5).

use std::fmt::{self, Write};
use std::net::IpAddr;

use super::format_v4;

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
        IpAddr::V4(v4) => out.write(|place| format_v4(v4, place)),
        IpAddr::V6(v6) => {
            // An output never fails.
            let _ = write!(out, "{v6}");
        }
    }
}

/// Appends a number.
pub fn number(out: &mut Out, number: impl itoa::Integer) {
    out.text(itoa::Buffer::new().format(number));
}

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
    let (mut is_in_string, mut is_escaped, mut is_behind_bracket) = (false, false, false);
    for c in json.chars() {
        if !is_in_string && c.is_ascii_whitespace() {
            continue;
        }
        let is_end = !is_in_string && matches!(c, '}' | ']');
        depth = depth.saturating_sub(is_end.into());
        // Empty brackets stay together.
        if is_behind_bracket != is_end {
            line(out, depth);
        }
        escaped(out, c.encode_utf8(&mut [0; 4]), false);
        is_behind_bracket = !is_in_string && matches!(c, '{' | '[');
        depth += usize::from(is_behind_bracket);
        match c {
            '"' if !is_escaped => is_in_string = !is_in_string,
            ',' if !is_in_string => line(out, depth),
            ':' if !is_in_string => out.byte(b' '),
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
}

/// Appends text with the escapes of Go's encoder; with `all`, quotes, backslashes and control characters too, which a text
/// that is JSON already has escaped.
fn escaped(out: &mut Out, text: &str, all: bool) {
    // Nearly every text has nothing to escape. The two separators of JavaScript begin with the byte 0xe2.
    let is_special = |b| matches!(b, ..b' ' | b'<' | b'>' | b'&' | b'"' | b'\\' | 0xe2);
    if !text.bytes().any(is_special) {
        out.text(text);
        return;
    }
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        let escape = match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => format!("\\u{:04x}", u32::from(c)),
            '"' | '\\' | '\n' | '\r' | '\t' if all => c.escape_default().to_string(),
            c if all && c < ' ' => format!("\\u{:04x}", u32::from(c)),
            _ => continue,
        };
        out.text(text.get(plain..at).unwrap_or_default());
        out.text(&escape);
        plain = at + c.len_utf8();
    }
    out.text(text.get(plain..).unwrap_or_default());
}

/// A buffer, and how much of it is used.
#[derive(Debug, Default)]
pub struct Out {
    bytes: Vec<u8>,
    used: usize,
}

impl Out {
    /// Creates an empty text that overwrites these bytes and `room`, and may grow.
    pub fn reusing(mut bytes: Vec<u8>, room: &[u8]) -> Out {
        bytes.extend_from_slice(room);
        Out { bytes, used: 0 }
    }

    /// The text.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.used);
        self.bytes
    }

    /// How many bytes there are.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Appends what `write` writes at the start of a place that is long enough. In its own place a text of pieces would be read again
    /// before the processor has stored them, which took 1 % of a DEL.
    #[inline(always)]
    fn write<const N: usize>(&mut self, write: impl FnOnce(&mut [u8; N]) -> usize) {
        let length = self.place(N).first_chunk_mut().map_or(0, write);
        self.used += length.min(N);
    }

    /// Appends a literal.
    #[inline(always)]
    pub fn literal(&mut self, text: &'static str) {
        self.place(text.len()).copy_from_slice(text.as_bytes());
        self.used += text.len();
    }

    /// Appends the first `length` bytes of `piece`, all of which is copied.
    #[inline(always)]
    pub fn start_of<const N: usize>(&mut self, piece: [u8; N], length: usize) {
        self.place(N).copy_from_slice(&piece);
        self.used += length.min(N);
    }

    /// Removes the last `count` bytes.
    pub fn back(&mut self, count: usize) {
        self.used = self.used.saturating_sub(count);
    }

    /// Appends a byte.
    #[inline(always)]
    pub fn byte(&mut self, byte: u8) {
        self.start_of([byte], 1);
    }

    /// Appends a text.
    pub fn text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        // Most are numbers. Two copies of eight bytes, which may overlap, instead of memcpy save 0.7 % of a DEL.
        if let (Some(first), Some(last), ..=16) =
            (bytes.first_chunk::<8>(), bytes.last_chunk(), bytes.len())
        {
            self.start_of(*first, bytes.len() - 8);
            return self.start_of::<8>(*last, 8);
        }
        self.place(bytes.len()).copy_from_slice(bytes);
        self.used += bytes.len();
    }

    /// The next so many bytes.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        reason = "the line before makes room for what is indexed"
    )]
    fn place(&mut self, length: usize) -> &mut [u8] {
        if self.bytes.len() - self.used < length {
            self.grow(length);
        }
        &mut self.bytes.as_mut_slice()[self.used..self.used + length]
    }

    // Every call grows one, so it does not belong to the cold code.
    #[inline(never)]
    fn grow(&mut self, length: usize) {
        let room = (self.bytes.len() * 2 + length).max(256);
        self.bytes.resize(room, 0);
    }
}

impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    #[test]
    fn pieces_of_every_length_follow_each_other() {
        let mut out = Out::reusing(b"abc".to_vec(), &[0; 3]);
        let mut expected = String::new();
        for length in 0..70 {
            let text = "0123456789".repeat(7);
            let text = &text[..length];
            out.text(text);
            out.literal("a literal that is longer than sixteen bytes, and than thirty-two");
            out.start_of(*b"leading", 4);
            out.byte(b'!');
            expected += text;
            expected += "a literal that is longer than sixteen bytes, and than thirty-twolead!";
        }
        assert_eq!(String::from_utf8(out.into_bytes()).unwrap(), expected);
        assert!(Out::default().into_bytes().is_empty());
    }
}
