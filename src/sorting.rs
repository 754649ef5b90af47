//! Sorting what is not worth machine code of its own for every type.

use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Sorts; equals keep their order.
pub fn sort_by<T>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering) {
    let order = order(items.len(), &|a, b| match (items.get(a), items.get(b)) {
        (Some(a), Some(b)) => compare(a, b),
        _ => Ordering::Equal,
    });
    let mut places: Vec<Option<T>> = items.drain(..).map(Some).collect();
    let sorted = order.into_iter().filter_map(|n| places.get_mut(n)?.take());
    items.extend(sorted);
}

/// The same by what is found of each.
pub fn sort_by_key<T, K: Ord>(items: &mut Vec<T>, key: impl Fn(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// The places of the smallest, the second smallest and so on.
fn order(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| compare(*a, *b));
    order
}

/// A set, put together one by one: the standard library sorts first.
pub fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_keep_their_order() {
        let mut io_reason = vec!["bb", "a", "ab", "c", "aa"];
        sort_by_key(&mut io_reason, |word| word.len());
        assert_eq!(io_reason, ["a", "c", "bb", "ab", "aa"]);
        sort_by(&mut io_reason, |a, b| b.cmp(a));
        assert_eq!(io_reason, ["c", "bb", "ab", "aa", "a"]);
        let mut none: Vec<u8> = Vec::new();
        sort_by(&mut none, Ord::cmp);
        assert!(none.is_empty());
    }

    #[test]
    fn a_set_has_everything_once() {
        let found: Vec<_> = set([3, 1, 2, 3, 1]).into_iter().collect();
        assert_eq!(found, [1, 2, 3]);
    }
}
