//! Prints JSON as Go's encoder does, for the parts of the state file that must equal the original's
//! byte for byte (contract section 5).

use std::fmt::{self, Write};
use std::net::IpAddr;
use std::ops::Range;

use super::address::format_v4;

/// Appends a string with its quotes. Like Go's encoder, it also escapes `<`, `>`, `&` and the two
/// line separators of JavaScript.
pub fn string(out: &mut Out, text: &str) {
    out.byte(b'"');
    append_escaped(out, text, true);
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
            // Appending byte by byte took a tenth of the time of a DEL.
            let mut text = [0; 15];
            let length = format_v4(v4, &mut text);
            out.bytes(text.get(..length).unwrap_or_default());
        }
        IpAddr::V6(v6) => out.display(format_args!("{v6}")),
    }
}

/// Appends a number.
pub fn number(out: &mut Out, number: impl itoa::Integer) {
    out.text(itoa::Buffer::new().format(number));
}

/// Begins a new line with `count` tabs.
pub fn line(out: &mut Out, count: usize) {
    out.byte(b'\n');
    for _ in 0..count {
        out.byte(b'\t');
    }
}

/// Appends a JSON text with new indentation: tabs, below `depth`. Escapes within its strings are
/// kept. Characters that Go always escapes are escaped.
pub fn reindented(out: &mut Out, json: &str, mut depth: usize) {
    let mut is_in_string = false;
    let mut is_escaped = false;
    let mut is_after_open_bracket = false;
    for c in json.chars() {
        if !is_in_string && c.is_ascii_whitespace() {
            continue;
        }
        let is_close_bracket = !is_in_string && matches!(c, '}' | ']');
        if is_close_bracket {
            depth = depth.saturating_sub(1);
        }
        // Empty brackets stay together.
        if is_after_open_bracket != is_close_bracket {
            line(out, depth);
        }
        append_escaped(out, c.encode_utf8(&mut [0; 4]), false);
        is_after_open_bracket = !is_in_string && matches!(c, '{' | '[');
        if is_after_open_bracket {
            depth += 1;
        }
        match c {
            '"' if !is_escaped => is_in_string = !is_in_string,
            ',' if !is_in_string => line(out, depth),
            ':' if !is_in_string => out.byte(b' '),
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
}

/// Appends text, and escapes the characters that Go's encoder escapes. With `is_plain`, the text is
/// not JSON yet. Quotes, backslashes and control characters are then escaped too.
fn append_escaped(out: &mut Out, text: &str, is_plain: bool) {
    // Nearly every text has nothing to escape, and bytes are compared faster than characters. The
    // two line separators begin with the byte 0xe2.
    let may_need_escape = |b| matches!(b, ..b' ' | b'<' | b'>' | b'&' | b'"' | b'\\' | 0xe2);
    if !text.bytes().any(may_need_escape) {
        out.text(text);
        return;
    }
    for c in text.chars() {
        match c {
            '"' | '\\' | '\n' | '\r' | '\t' if is_plain => {
                out.display(format_args!("{}", c.escape_default()));
            }
            ..' ' if is_plain => out.display(format_args!("\\u{:04x}", u32::from(c))),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.display(format_args!("\\u{:04x}", u32::from(c)));
            }
            _ => out.text(c.encode_utf8(&mut [0; 4])),
        }
    }
}

/// A text that is being printed.
// With `#[inline]`, the length of a literal is known where it is copied. Copies of other lengths
// call memcpy, and musl's is slow for short texts.
#[derive(Debug, Default)]
pub struct Out {
    /// The text, followed by unused bytes.
    buffer: Vec<u8>,
    /// The length of the text.
    used: usize,
}

impl Out {
    /// Creates an empty text in the memory of `buffer`.
    pub fn reusing(mut buffer: Vec<u8>) -> Out {
        buffer.resize(buffer.capacity(), 0);
        Out { buffer, used: 0 }
    }

    /// Returns the text.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.buffer.truncate(self.used);
        self.buffer
    }

    /// Returns the length of the text.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Appends a literal.
    #[inline]
    pub fn literal(&mut self, text: &'static str) {
        self.extend(text.len()).copy_from_slice(text.as_bytes());
    }

    /// Appends a text.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn bytes(&mut self, text: &[u8]) {
        self.extend(text.len()).copy_from_slice(text);
    }

    /// Appends a part of the text again.
    pub fn repeat(&mut self, part: Range<usize>) {
        let start = self.used;
        self.extend(part.len());
        self.buffer.copy_within(part, start);
    }

    /// Appends a byte.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "the place has one byte")]
    pub fn byte(&mut self, byte: u8) {
        self.extend(1)[0] = byte;
    }

    /// Appends a formatted text.
    fn display(&mut self, text: fmt::Arguments<'_>) {
        // `write_str` below never fails.
        let _ = self.write_fmt(text);
    }

    /// Removes the last `count` bytes.
    pub fn back(&mut self, count: usize) {
        self.used = self.used.saturating_sub(count);
    }

    /// Extends the text by `length` bytes, and returns them to be filled.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "the line before makes room for what is indexed"
    )]
    fn extend(&mut self, length: usize) -> &mut [u8] {
        let start = self.used;
        self.used += length;
        if self.buffer.len() < self.used {
            self.grow();
        }
        &mut self.buffer[start..self.used]
    }

    fn grow(&mut self) {
        let length = (self.used * 2).max(256);
        self.buffer.resize(length, 0);
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

    fn reindent(json: &str, depth: usize) -> String {
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
    fn nested_values_are_reindented() {
        let json = r#" { "b":1,"a" : [ 1, 2.50 ,1e3,"\u00e9<&>\"}" ], "e":{ } ,"f":[
]}"#;
        let expected = concat!(
            "{\n\t\t\"b\": 1,\n\t\t\"a\": [\n\t\t\t1,\n\t\t\t2.50,\n\t\t\t1e3,",
            "\n\t\t\t\"\\u00e9\\u003c\\u0026\\u003e\\\"}\"\n\t\t],",
            "\n\t\t\"e\": {},\n\t\t\"f\": []\n\t}",
        );
        assert_eq!(reindent(json, 1), expected);
        assert_eq!(reindent(expected, 1), expected);
        assert_eq!(reindent("null", 1), "null");
    }

    proptest! {
        #[test]
        fn addresses_print_as_in_standard_library(v4: u32, v6: u128) {
            for any in [IpAddr::V4(v4.into()), IpAddr::V6(v6.into())] {
                let mut out = Out::default();
                bare_address(&mut out, any);
                prop_assert_eq!(String::from_utf8(out.into_bytes()).unwrap(), any.to_string());
            }
        }

        #[test]
        fn numbers_print_as_in_standard_library(any: u64, shift in 0..64u32) {
            for n in [any >> shift, 0, u64::MAX] {
                let mut out = Out::default();
                number(&mut out, n);
                prop_assert_eq!(String::from_utf8(out.into_bytes()).unwrap(), n.to_string());
            }
        }

        #[test]
        fn string_is_equal_after_print_and_parse(text: String) {
            let mut out = Out::default();
            string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out.into_bytes()).unwrap(), text);
        }

        #[test]
        fn any_text_is_reindented_without_panic(json: String) {
            reindent(&json, 1);
        }
    }

    #[test]
    fn reused_buffer_begins_empty() {
        let mut out = Out::reusing(b"abc".to_vec());
        out.text("one");
        out.literal(" two");
        out.byte(b'!');
        out.back(1);
        assert_eq!(out.used(), 7);
        assert_eq!(out.into_bytes(), b"one two");
    }
}
