//! What terminals make of text.

/// Whether a terminal does something else with a character than to show it: control characters, marks that turn the direction of what
/// follows, and separators of lines.
pub fn alters_terminal(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_not_obeyed() {
        for c in ['a', ' ', 'ä', '\u{a0}', '\u{202f}', '漢', '\u{5d0}'] {
            assert!(!alters_terminal(c), "{c:?}");
        }
        for c in ['\0', '\n', '\x1b', '\x7f', '\u{9b}', '\u{202e}', '\u{2066}'] {
            assert!(alters_terminal(c), "{c:?}");
        }
    }
}
