//! The usage bar of a pool.

use super::report::PoolReport;
use crate::ops::screen::{Screen, Tint};

/// The maximum width.
const WIDEST: usize = 64;

/// The columns beside the bar: the indentation, the brackets and the percentage.
const BESIDE: usize = "  []  100%".len();

/// Prints the bar and the percentage of held addresses. Each use has its own character, so the bar is readable without colours.
pub fn print(pool: &PoolReport, screen: &Screen) -> String {
    let width = screen
        .width
        .map_or(WIDEST, |width| width.saturating_sub(BESIDE).min(WIDEST));
    let parts = [
        (pool.held.saturating_sub(pool.suspect), '#', Tint::Good),
        (pool.suspect, '!', Tint::Bad),
        (pool.resting, '~', Tint::Doubtful),
        (pool.wired + pool.excluded, 'x', Tint::Doubtful),
        (pool.free, '.', Tint::Faint),
    ];
    let cells = shares(&parts.map(|(count, _, _)| count), width);
    let mut bar = String::new();
    for ((_, sign, tint), cells) in parts.into_iter().zip(cells) {
        bar.push_str(&screen.tint(tint, &sign.to_string().repeat(cells)));
    }
    format!("  [{bar}]  {}%\n", pool.held_percent)
}

/// Divides the cells by size; each count above zero gets at least one.
fn shares(counts: &[usize], cells: usize) -> Vec<usize> {
    let total: usize = counts.iter().sum();
    if total == 0 {
        return vec![0; counts.len()];
    }
    let least = |count: &usize| (count * cells / total).max(usize::from(*count > 0));
    let mut shares: Vec<usize> = counts.iter().map(least).collect();
    // Rounding errors go to the largest part.
    let others = |shares: &[usize], largest: usize| {
        let parts = shares.iter().enumerate();
        let parts = parts.filter(|(n, _)| *n != largest).map(|(_, share)| share);
        parts.sum::<usize>()
    };
    let largest = counts.iter().enumerate().max_by_key(|(_, count)| **count);
    if let Some((largest, _)) = largest {
        let left = cells.saturating_sub(others(&shares, largest));
        if let Some(share) = shares.get_mut(largest) {
            *share = left;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_above_zero_gets_a_cell() {
        assert_eq!(shares(&[250, 1, 0, 0, 2], 60), [58, 1, 0, 0, 1]);
        assert_eq!(shares(&[0, 0, 0, 0, 253], 60), [0, 0, 0, 0, 60]);
        assert_eq!(shares(&[0, 0, 0], 60), [0, 0, 0]);
        for counts in [[1, 2, 3, 4, 5], [65_000, 1, 1, 1, 1], [1, 1, 1, 1, 1]] {
            assert_eq!(shares(&counts, 64).iter().sum::<usize>(), 64);
        }
    }
}
