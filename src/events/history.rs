//! Reads and writes the files of the history.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::operation::{FreedAddress, OperationRecord};
use super::totals::Totals;
use crate::host::{
    Paths, ReadOutcome, RotatingFile, Timestamp, io_reason, read_bounded, rotated_path,
};

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
    /// What could not be read, a sentence for each file, without full stop.
    pub damage: Vec<String>,
}

impl History {
    /// Reads both files. Lines that cannot be parsed are skipped, and counted in `damage`.
    ///
    /// # Errors
    /// This user may not read them.
    pub fn read(paths: &Paths) -> io::Result<History> {
        let path = paths.events();
        let mut history = read(&rotated_path(&path, 1))?;
        let newest = read(&path)?;
        history.totals = newest.totals;
        history.records.extend(newest.records);
        history.damage.extend(newest.damage);
        history.totals.count(&history.records);
        let surplus = history.records.len().saturating_sub(MAX_RECORDS);
        history.records.drain(..surplus);
        Ok(history)
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

/// Returns the first line of the next file: the counts of all files but the one that is full now.
/// Called before the rotation, which removes the oldest file.
fn heading(path: &Path) -> Vec<u8> {
    let mut totals = read(path).unwrap_or_default().totals;
    let oldest = read(&rotated_path(path, 1)).unwrap_or_default();
    totals.count(&oldest.records);
    let mut line = serde_json::to_vec(&Heading { totals }).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Reads the totals in the first line of a file, and its records. A missing file has none.
fn read(path: &Path) -> io::Result<History> {
    /// Larger than a full file, because concurrent writers may exceed its limit a little.
    const LIMIT: usize = 4 << 20;
    let mut history = match read_bounded(path, LIMIT).and_then(ReadOutcome::required) {
        Ok(bytes) => parse(&bytes),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(e),
        Err(e) if e.kind() == io::ErrorKind::NotFound => History::default(),
        Err(e) => History {
            damage: vec![format!("cannot be read: {}", io_reason(&e))],
            ..History::default()
        },
    };
    for what in &mut history.damage {
        *what = format!("{} {what}", path.display());
    }
    Ok(history)
}

/// The most bytes of a line, so that a full file holds enough operations.
const MAX_LINE: usize = 1024;

/// The first line of a file that follows another.
#[derive(Serialize, Deserialize)]
struct Heading {
    totals: Totals,
}

/// The rest of the record on the line before it.
#[derive(Serialize, Deserialize)]
struct Continuation {
    /// Not a key of a record: versions that know no such lines skip them.
    more: Vec<FreedAddress>,
}

/// Prints the lines of a record: the record itself, and continuations with the freed addresses,
/// each at most [`MAX_LINE`] long.
fn print_record(mut record: OperationRecord) -> Option<Vec<u8>> {
    let freed = std::mem::take(&mut record.freed);
    let mut lines = serde_json::to_vec(&record).ok()?;
    lines.push(b'\n');
    let mut more = Vec::new();
    let mut length = 0;
    for address in freed {
        let text = serde_json::to_vec(&address).ok()?;
        if length + text.len() + 1 > MAX_LINE - r#"{"more":[]}"#.len() - 1 {
            print_continuation(&mut lines, std::mem::take(&mut more));
            length = 0;
        }
        length += text.len() + 1;
        more.push(address);
    }
    print_continuation(&mut lines, more);
    Some(lines)
}

fn print_continuation(lines: &mut Vec<u8>, more: Vec<FreedAddress>) {
    if more.is_empty() {
        return;
    }
    if let Ok(line) = serde_json::to_vec(&Continuation { more }) {
        lines.extend(line);
        lines.push(b'\n');
    }
}

/// Parses the text of a file. Lines that cannot be parsed are skipped, and counted in `damage`.
pub fn parse(text: &[u8]) -> History {
    let mut history = History::default();
    let text = String::from_utf8_lossy(text);
    let mut skipped = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if !history.parse_line(line) {
            skipped.push(n + 1);
        }
    }
    if let Some(first) = skipped.first() {
        let (bad, all) = (skipped.len(), text.lines().count());
        let what = format!(
            "is damaged: {bad} of its {all} lines cannot be read, the first is line {first}"
        );
        history.damage.push(what);
    }
    history
}

impl History {
    /// Adds what a line records. Returns whether it can be parsed.
    fn parse_line(&mut self, line: &str) -> bool {
        if let Ok(heading) = serde_json::from_str::<Heading>(line) {
            self.totals = heading.totals.merged();
        } else if let Ok(Continuation { more }) = serde_json::from_str(line) {
            let Some(mut record) = self.records.pop() else {
                return false;
            };
            record.freed.extend(more);
            self.records.push(record.truncated());
        } else if let Ok(parsed) = serde_json::from_str::<OperationRecord>(line)
            && !parsed.verb.is_empty()
        {
            // Another program may have written longer texts.
            let mut record = parsed.truncated();
            // The file has local times, whose offset may differ between summer and winter.
            if let Some(time) = Timestamp::parse(&record.time) {
                record.time = time.format(0);
            }
            self.records.push(record);
        } else {
            return line.trim().is_empty();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ipam::{Attachment, Holder, NetNs};

    fn node(name: &str) -> (std::path::PathBuf, Paths) {
        let root = std::env::temp_dir().join(format!("events-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let paths = Paths::new(Some(root.clone()), "azure-vnet-ipam");
        (root, paths)
    }

    fn holder(network: &str, container_id: &str, if_name: &str, pod: &str) -> Holder {
        Holder {
            attachment: Attachment {
                network: network.into(),
                container_id: container_id.to_owned(),
                if_name: if_name.into(),
            },
            pod: Some(pod.to_owned()),
            ..Holder::default()
        }
    }

    fn record(n: usize) -> OperationRecord {
        OperationRecord {
            time: "2026-11-20T21:09:39Z".into(),
            verb: "ADD".into(),
            holder: holder("azure", &format!("{n:064}"), "eth0", "default/web"),
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
        let History {
            records, totals, ..
        } = History::read(&paths).unwrap();
        assert_eq!(records.len(), MAX_RECORDS);
        assert_eq!(records.first().unwrap(), &record(count - MAX_RECORDS));
        assert_eq!(records.last().unwrap(), &record(count - 1));
        let [count] = &*totals.operations else {
            panic!("{totals:?}");
        };
        assert_eq!((&*count.verb, count.code, count.count), ("ADD", 0, 3000));
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
            holder: Holder {
                netns: Some(NetNs {
                    path: long.as_str().into(),
                    id: None,
                    cookie: None,
                }),
                ..holder(&long, &long, &long, &long)
            },
            msg: long.clone(),
            by: Some(long.clone()),
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
        let read = History::read(&paths).unwrap();
        assert_eq!(read.records, [record(1)]);
        let path = paths.events();
        let damage = "is damaged: 3 of its 4 lines cannot be read, the first is line 2";
        assert_eq!(read.damage, [format!("{} {damage}", path.display())]);
        // The line before it has no end.
        record(2).append(&paths);
        let read = History::read(&paths).unwrap();
        assert_eq!(read.records, [record(1), record(2)]);
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

    fn freed(n: usize, pod: &str) -> FreedAddress {
        FreedAddress {
            address: Some([10, 224, 0, u8::try_from(n).unwrap()].into()),
            holder: Holder {
                pod: Some(pod.to_owned()),
                ..Holder::from_container_id(&format!("{n:064}"))
            },
        }
    }

    fn reclaim(freed: Vec<FreedAddress>) -> OperationRecord {
        OperationRecord {
            time: "2026-11-20T21:09:39Z".into(),
            verb: "reclaim".into(),
            freed,
            ..OperationRecord::default()
        }
    }

    #[test]
    fn a_record_of_many_addresses_is_read_as_it_was_written() {
        for count in [0, 1, 3, 4, 5, 250] {
            let pod = "n".repeat(120);
            let record = reclaim((0..count).map(|n| freed(n, &pod)).collect());
            let mut text = print_record(record.clone()).unwrap();
            text.extend(print_record(reclaim(vec![freed(1, "a/b")])).unwrap());
            for line in text.split(|b| *b == b'\n') {
                assert!(line.len() < MAX_LINE, "{}", line.len());
            }
            assert_eq!(
                parse(&text).records,
                [record, reclaim(vec![freed(1, "a/b")])]
            );
        }
    }

    #[test]
    fn continuations_without_a_record_are_skipped() {
        let line = br#"{"more":[{"address":"10.0.0.1"}]}"#;
        assert_eq!(
            (parse(line).records.len(), parse(line).damage.len()),
            (0, 1)
        );
        let text = b"{\"verb\":\"GC\"}\n{\"more\":[{\"address\":\"x\"},{\"address\":\"10.0.0.1\"}]}\n{\"more\":7}\n";
        let records = parse(text).records;
        assert_eq!(records.len(), 1);
        assert_eq!(
            records[0].all_addresses(),
            ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]
        );
        assert_eq!(records[0].freed.len(), 2);
    }

    #[test]
    fn times_are_read_as_utc() {
        let line = |time: &str| format!("{{\"verb\":\"ADD\",\"time\":\"{time}\"}}");
        for (written, read) in [
            ("2026-11-20T22:09:39.5+01:00", "2026-11-20T21:09:39.5Z"),
            ("2026-11-20T21:09:39Z", "2026-11-20T21:09:39Z"),
            ("yesterday", "yesterday"),
        ] {
            assert_eq!(parse(line(written).as_bytes()).records[0].time, read);
        }
    }

    #[test]
    fn older_versions_skip_continuations() {
        // As the version before read lines: a record must have a verb.
        let text = print_record(reclaim(vec![freed(1, "a/b")])).unwrap();
        let text = String::from_utf8(text).unwrap();
        let more = text.lines().nth(1).unwrap();
        let record: OperationRecord = serde_json::from_str(more).unwrap();
        assert_eq!(record.verb, "");
    }
}
