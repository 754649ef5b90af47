//! Container IDs as people type them: whole, or only the first characters.

use std::collections::BTreeSet;

use super::outcome::CommandError;
use super::screen::first_few;

/// The minimum length of a prefix.
pub const MIN_PREFIX: usize = 4;

/// What a typed container ID stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerMatch {
    /// The container with this ID.
    One(String),
    /// The prefix is too short to stand for a container, though IDs begin with it.
    TooShort,
    /// Several containers have IDs with this prefix.
    Ambiguous(Vec<String>),
    /// No known container.
    None,
}

/// Finds the container that `typed` stands for among the known ones. A whole ID of any length matches.
pub fn find<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> ContainerMatch {
    let known = known.into_iter().filter(|id| !id.is_empty());
    let found: BTreeSet<&str> = known.filter(|id| id.starts_with(typed)).collect();
    if typed.is_empty() || found.is_empty() {
        return ContainerMatch::None;
    }
    if found.contains(typed) {
        return ContainerMatch::One(typed.to_owned());
    }
    if typed.len() < MIN_PREFIX {
        return ContainerMatch::TooShort;
    }
    let mut found = found.into_iter().map(str::to_owned);
    match (found.next(), found.len()) {
        (Some(only), 0) => ContainerMatch::One(only),
        (first, _) => ContainerMatch::Ambiguous(first.into_iter().chain(found).collect()),
    }
}

/// What to do about a prefix that is too short, without full stop.
pub fn describe_too_short(typed: &str) -> String {
    format!(
        "{typed:?} is too short for a container ID: type at least its first {MIN_PREFIX} characters"
    )
}

/// The error of a prefix that several containers have.
pub fn ambiguous(typed: &str, candidates: &[String]) -> CommandError {
    /// More would scroll the sentence away.
    const MOST: usize = 8;
    let shown = first_few(candidates.iter().cloned(), MOST, |n| {
        format!("and {n} more")
    });
    CommandError(format!(
        "{typed:?} is ambiguous: {} containers begin with it; type more characters of one of these:\n  {}",
        candidates.len(),
        shown.join("\n  ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["3f2a91c04d7e", "3f2a91ff0000", "abcdef", "abcdef01", ""];

    #[test]
    fn prefix_of_four_characters_stands_for_the_only_container_that_has_it() {
        for (typed, expected) in [
            ("3f2a91c0", ContainerMatch::One("3f2a91c04d7e".into())),
            ("3f2a91c04d7e", ContainerMatch::One("3f2a91c04d7e".into())),
            // A whole ID takes precedence over a longer one that begins with it.
            ("abcdef", ContainerMatch::One("abcdef".into())),
            ("abcdef0", ContainerMatch::One("abcdef01".into())),
            (
                "3f2a",
                ContainerMatch::Ambiguous(vec!["3f2a91c04d7e".into(), "3f2a91ff0000".into()]),
            ),
            ("3f2", ContainerMatch::TooShort),
            ("xyz", ContainerMatch::None),
            ("91c04d7e", ContainerMatch::None),
            ("", ContainerMatch::None),
        ] {
            assert_eq!(find(typed, KNOWN), expected, "{typed}");
        }
        assert_eq!(find("c1", ["c1"]), ContainerMatch::One("c1".into()));
        // The same container in several places counts once.
        assert_eq!(
            find("abcd", ["abcdef", "abcdef"]),
            ContainerMatch::One("abcdef".into())
        );
    }

    #[test]
    fn candidates_are_listed_up_to_a_limit() {
        let many: Vec<String> = (0..11).map(|n| format!("abcd{n:02}")).collect();
        let text = ambiguous("abcd", &many).0;
        assert!(text.starts_with("\"abcd\" is ambiguous: 11 containers begin with it; "));
        assert!(text.ends_with("\n  abcd07\n  and 3 more"), "{text}");
        assert!(!ambiguous("abcd", &many[..8]).0.contains("more than"));
    }
}
