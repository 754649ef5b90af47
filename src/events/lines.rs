//! The lines of the file: one for each operation, and further ones where it freed more addresses than fit into one.

use serde::{Deserialize, Serialize};

use super::record::{FreedAddress, OperationRecord};
use super::totals::Totals;
use crate::host::Timestamp;

/// The most bytes of a line, so that a full file holds enough operations.
pub(super) const MAX_LINE: usize = 1024;

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

/// The first line of the next file.
pub(super) fn print_heading(totals: Totals) -> Vec<u8> {
    let mut line = serde_json::to_vec(&Heading { totals }).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The lines of a record, whose texts have a bounded length.
pub(super) fn print_record(mut record: OperationRecord) -> Option<Vec<u8>> {
    let freed = std::mem::take(&mut record.freed);
    let mut lines = serde_json::to_vec(&record).ok()?;
    lines.push(b'\n');
    let mut more = Vec::new();
    let mut length = 0;
    for freed in freed {
        let text = serde_json::to_vec(&freed).ok()?;
        if length + text.len() + 1 > MAX_LINE - r#"{"more":[]}"#.len() - 1 {
            print_more(&mut lines, std::mem::take(&mut more));
            length = 0;
        }
        length += text.len() + 1;
        more.push(freed);
    }
    print_more(&mut lines, more);
    Some(lines)
}

fn print_more(lines: &mut Vec<u8>, more: Vec<FreedAddress>) {
    if more.is_empty() {
        return;
    }
    if let Ok(line) = serde_json::to_vec(&Continuation { more }) {
        lines.extend(line);
        lines.push(b'\n');
    }
}

/// Parses the text of a file. Lines that cannot be parsed are skipped.
pub fn parse(text: &[u8]) -> (Totals, Vec<OperationRecord>) {
    let mut totals = Totals::default();
    let mut records: Vec<OperationRecord> = Vec::new();
    for line in String::from_utf8_lossy(text).lines() {
        if let Ok(heading) = serde_json::from_str::<Heading>(line) {
            totals = heading.totals.merged();
        } else if let Ok(Continuation { more }) = serde_json::from_str(line) {
            if let Some(mut record) = records.pop() {
                record.freed.extend(more);
                records.push(record.truncated());
            }
        } else if let Ok(record) = serde_json::from_str::<OperationRecord>(line)
            && !record.verb.is_empty()
        {
            // Another program may have written longer texts.
            let record = record.truncated();
            let time = Timestamp::parse(&record.time);
            // The file has local times, of which summer and winter may differ.
            records.push(OperationRecord {
                time: time.map_or(record.time, |time| time.format(0)),
                ..record
            });
        }
    }
    (totals, records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(n: usize, pod: &str) -> FreedAddress {
        FreedAddress {
            address: Some([10, 224, 0, u8::try_from(n).unwrap()].into()),
            container: format!("{n:064}"),
            pod: Some(pod.to_owned()),
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
            let (_, records) = parse(&text);
            assert_eq!(records, [record, reclaim(vec![freed(1, "a/b")])]);
        }
    }

    #[test]
    fn continuations_without_a_record_are_skipped() {
        let line = br#"{"more":[{"address":"10.0.0.1"}]}"#;
        assert_eq!(parse(line), Default::default());
        let text = b"{\"verb\":\"GC\"}\n{\"more\":[{\"address\":\"x\"},{\"address\":\"10.0.0.1\"}]}\n{\"more\":7}\n";
        let (_, records) = parse(text);
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
            assert_eq!(parse(line(written).as_bytes()).1[0].time, read);
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
