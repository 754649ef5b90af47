//! The files of the history.

use std::io;
use std::path::Path;

use super::lines::{parse, print_heading, print_record};
use super::record::OperationRecord;
use super::totals::Totals;
use crate::host::{Paths, ReadOutcome, RotatingFile, read_bounded, rotated_path};

/// How many records a history has at most.
pub const MAX_RECORDS: usize = 256;

/// Two files. A full one alone holds [`MAX_RECORDS`], as no line is longer than a kilobyte.
const KEPT: RotatingFile = RotatingFile {
    full_at: 256 << 10,
    files: 2,
    mode: 0o600,
};

/// The operations since the node started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The last operations, the oldest first.
    pub records: Vec<OperationRecord>,
    /// The counts of all operations.
    pub totals: Totals,
}

impl History {
    /// Reads both files. Lines that cannot be parsed are skipped.
    ///
    /// # Errors
    /// This user may not read them.
    pub fn read(paths: &Paths) -> io::Result<History> {
        let path = paths.events();
        let (_, mut records) = read(&rotated_path(&path, 1))?;
        let (mut totals, newest) = read(&path)?;
        records.extend(newest);
        totals.count(&records);
        let surplus = records.len().saturating_sub(MAX_RECORDS);
        records.drain(..surplus);
        Ok(History { records, totals })
    }
}

impl OperationRecord {
    /// Appends the record to the file. Failures are ignored: the file is for people only.
    pub fn append(self, paths: &Paths) {
        let path = paths.events();
        if let Some(lines) = print_record(self.truncated()) {
            let _ = KEPT.append(&path, &lines, || heading(&path));
        }
    }
}

/// The first line of the next file, made before the rotation: the counts of all files but the one that is full now.
fn heading(path: &Path) -> Vec<u8> {
    let (mut totals, _) = read(path).unwrap_or_default();
    let (_, removed) = read(&rotated_path(path, 1)).unwrap_or_default();
    totals.count(&removed);
    print_heading(totals)
}

/// The totals in the first line of a file, and its records. A missing file has none.
fn read(path: &Path) -> io::Result<(Totals, Vec<OperationRecord>)> {
    /// Larger than a full file, as concurrent writers may exceed its limit a little.
    const LIMIT: usize = 4 << 20;
    match read_bounded(path, LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => Ok(parse(&bytes)),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(e),
        _ => Ok(Default::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn node(name: &str) -> (std::path::PathBuf, Paths) {
        let root = std::env::temp_dir().join(format!("events-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let paths = Paths::new(Some(root.clone()), "azure-vnet-ipam");
        (root, paths)
    }

    fn record(n: usize) -> OperationRecord {
        OperationRecord {
            time: "2026-11-20T21:09:39Z".into(),
            verb: "ADD".into(),
            network: "azure".into(),
            container_id: format!("{n:064}"),
            if_name: "eth0".into(),
            pod: Some("default/web".into()),
            addresses: vec!["10.224.0.5".parse().unwrap()],
            microseconds: 612,
            reclaimed: u64::from(n.is_multiple_of(100)),
            ..OperationRecord::default()
        }
    }

    #[test]
    fn the_last_records_are_kept_and_all_are_counted() {
        let (root, paths) = node("ring");
        let count = 3000;
        for n in 0..count {
            record(n).append(&paths);
        }
        let History { records, totals } = History::read(&paths).unwrap();
        assert_eq!(records.len(), MAX_RECORDS);
        assert_eq!(records.first().unwrap(), &record(count - MAX_RECORDS));
        assert_eq!(records.last().unwrap(), &record(count - 1));
        let counts: Vec<_> = totals.operations().collect();
        assert_eq!(counts, [("ADD", 0, 3000)]);
        assert_eq!(totals.reclaimed, 30);
        let sizes = [paths.events(), rotated_path(&paths.events(), 1)]
            .map(|path| fs::metadata(path).unwrap().len());
        assert!(sizes.iter().all(|size| *size < 257 << 10), "{sizes:?}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn one_full_file_holds_enough_of_the_longest_lines() {
        let (root, paths) = node("long");
        let long = "\u{20ac}\"".repeat(5000);
        let record = OperationRecord {
            reclaimed: u64::MAX,
            refresh_failed: true,
            microseconds: u64::MAX,
            code: u32::MAX,
            network: long.clone(),
            container_id: long.clone(),
            pod: Some(long.clone()),
            msg: long.clone(),
            by: Some(long.clone()),
            if_name: long.clone(),
            verb: long.clone(),
            addresses: vec!["2001:db8:1234:1234:1234:1234:1234:1234".parse().unwrap(); 9],
            ..record(0)
        };
        record.append(&paths);
        let line = fs::metadata(paths.events()).unwrap().len();
        let least = KEPT.full_at / u64::try_from(MAX_RECORDS).unwrap();
        assert!((100..=least).contains(&line), "{line}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn lines_that_cannot_be_parsed_are_skipped() {
        let (root, paths) = node("junk");
        assert_eq!(History::read(&paths).unwrap(), History::default());
        record(1).append(&paths);
        let mut text = fs::read(paths.events()).unwrap();
        text.extend(b"{\"verb\": 3}\n\xff\xfe\n{\"verb\":\"ADD\"");
        fs::write(paths.events(), text).unwrap();
        assert_eq!(History::read(&paths).unwrap().records, [record(1)]);
        let most = u64::MAX;
        let count = format!("{{\"verb\": \"ADD\", \"code\": 0, \"count\": {most}}}");
        let totals = format!(
            "{{\"totals\": {{\"operations\": [{count}], \"reclaimed\": {most}, \"refreshFailures\": {most}}}}}\n"
        );
        fs::write(paths.events(), totals).unwrap();
        OperationRecord {
            reclaimed: 1,
            refresh_failed: true,
            ..record(1)
        }
        .append(&paths);
        let totals = History::read(&paths).unwrap().totals;
        assert_eq!((totals.reclaimed, totals.refresh_failures), (most, most));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn control_characters_are_replaced() {
        let (root, paths) = node("line");
        let torn = OperationRecord {
            msg: "a\nb\x1b[31m".into(),
            ..record(1)
        };
        torn.append(&paths);
        assert_eq!(History::read(&paths).unwrap().records[0].msg, "a b [31m");
        fs::remove_dir_all(root).unwrap();
    }
}
