//! Detects characters that are unsafe to print on a terminal.

/// Returns whether a character changes what a terminal shows instead of being shown: control characters, marks of text direction, and
/// line separators.
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
    fn control_and_direction_characters_alter_the_terminal() {
        for c in ['a', ' ', 'ä', '\u{a0}', '\u{202f}', '漢', '\u{5d0}'] {
            assert!(!alters_terminal(c), "{c:?}");
        }
        for c in ['\0', '\n', '\x1b', '\x7f', '\u{9b}', '\u{202e}', '\u{2066}'] {
            assert!(alters_terminal(c), "{c:?}");
        }
    }
}
