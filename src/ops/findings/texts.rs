//! Texts that several examinations share.

use std::path::Path;

use super::finding::{Finding, FindingKind};

/// A folder that is read-only.
pub fn read_only(kind: FindingKind, folder: &Path) -> Finding {
    let folder = folder.display();
    Finding::error(
        kind,
        &format_args!("{folder} cannot be written"),
        &"find out why it is read-only (`dmesg` names disks that fail), then make it writable:",
    )
    .about(folder.to_string())
    .with_commands([format!(
        "sudo mount -o remount,rw \"$(findmnt -n -o TARGET -T {folder})\""
    )])
}

/// The first few items, and the number of the others.
pub fn join_first(items: impl IntoIterator<Item = String>) -> String {
    const FEW: usize = 4;
    let mut items = items.into_iter();
    let mut text = items.by_ref().take(FEW).collect::<Vec<_>>().join(", ");
    let more = items.count();
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let items = |count: usize| join_first((0..count).map(|n| n.to_string()));
        assert_eq!(items(4), "0, 1, 2, 3");
        assert_eq!(items(9), "0, 1, 2, 3 and 5 more");
    }
}
