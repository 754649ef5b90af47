//! The last operations: what was asked, by whom, what came of it, and how long it took. Kept beside the state for people, and
//! not flushed to the disk, as nothing depends on it.
//!
//! The file is appended to and put away when it is full, so that nobody waits for anybody; at its head it carries what was
//! counted in files that are gone, so that counts go on.

mod totals;
mod trail;

pub use totals::Totals;
pub use trail::OperationRecord;

use std::io;
use std::net::IpAddr;
use std::path::Path;

use serde::Serialize;

use crate::codec::{self, Cursor, Members, ParseError};
use crate::host::{Paths, ReadOutcome, RotatingFile, is_obeyed, numbered, read_bounded};
use crate::ipam::read_address;

/// So many operations are told.
pub const MOST: usize = 256;

/// Two files, of which the full one alone holds enough: no line is longer than a kilobyte.
const KEPT: RotatingFile = RotatingFile {
    full_at: 256 << 10,
    files: 2,
    mode: 0o600,
};

/// One operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// When it ended: RFC 3339, with the local offset.
    pub time: String,
    /// ADD, DEL, CHECK, GC, or the operator's command.
    pub verb: String,
    /// The network's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network: String,
    /// CNI_CONTAINERID, or whom the operator's command was about.
    #[serde(rename = "container", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// CNI_IFNAME.
    #[serde(rename = "interface", skip_serializing_if = "String::is_empty")]
    pub if_name: String,
    /// `namespace/name` of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// What was given or came back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The code of the error; 0 for a success.
    pub code: u32,
    /// The error's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub msg: String,
    /// How long it took.
    pub microseconds: u64,
    /// How many addresses were taken back from dead holders on the way.
    #[serde(skip_serializing_if = "is_zero")]
    pub reclaimed: u64,
    /// Whether a query of the source failed on the way.
    #[serde(skip_serializing_if = "is_false")]
    pub refresh_failed: bool,
    /// Who typed it, where it was a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(yes: &bool) -> bool {
    !yes
}

/// A line of the file: an event, or what was counted before.
#[derive(Default)]
struct Line {
    event: Event,
    totals: Option<Totals>,
}

impl<'de> Members<'de> for Line {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        let event = &mut self.event;
        match key {
            "totals" => codec::object(json, self.totals.get_or_insert_default()),
            "time" => codec::value(json, &mut event.time),
            "verb" => codec::value(json, &mut event.verb),
            "network" => codec::value(json, &mut event.network),
            "container" => codec::value(json, &mut event.container_id),
            "interface" => codec::value(json, &mut event.if_name),
            "pod" => codec::value(json, &mut event.pod),
            "addresses" => json
                .list(&mut |json| {
                    event.addresses.extend(read_address(&json.string()?));
                    Ok(())
                })
                .map(drop),
            "code" => codec::value(json, &mut event.code),
            "msg" => codec::value(json, &mut event.msg),
            "microseconds" => codec::value(json, &mut event.microseconds),
            "reclaimed" => codec::value(json, &mut event.reclaimed),
            "refreshFailed" => codec::value(json, &mut event.refresh_failed),
            "by" => codec::value(json, &mut event.by),
            _ => json.skip(),
        }
    }
}

/// What a file begins with, where there was one before.
#[derive(Serialize)]
struct Heading {
    totals: Totals,
}

impl Event {
    /// Writes it down; what goes wrong costs a line for people.
    pub fn note(self, paths: &Paths) {
        let path = paths.events();
        if let Ok(mut line) = serde_json::to_vec(&self.cut()) {
            line.push(b'\n');
            let _ = KEPT.append(&path, &line, || heading(&path));
        }
    }

    /// With texts of callers as long as they are of use to people, and without what would need more room in the file.
    fn cut(mut self) -> Event {
        const NAME: usize = 64;
        const SENTENCE: usize = 128;
        const ADDRESSES: usize = 4;
        self.addresses.truncate(ADDRESSES);
        Event {
            verb: cut(self.verb, NAME),
            network: cut(self.network, NAME),
            container_id: cut(self.container_id, NAME),
            if_name: cut(self.if_name, NAME),
            pod: self.pod.map(|pod| cut(pod, SENTENCE)),
            msg: cut(self.msg, SENTENCE),
            by: self.by.map(|by| cut(by, NAME)),
            ..self
        }
    }
}

/// At most so many bytes of a text.
fn cut(text: String, most: usize) -> String {
    let is_plain = |b: u8| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\');
    if text.len() <= most && text.bytes().all(is_plain) {
        return text;
    }
    let mut short = String::with_capacity(text.len().min(most));
    for c in text.chars() {
        if short.len() + c.len_utf8() > most {
            break;
        }
        short.push(match c {
            '"' | '\\' => '\'',
            c if is_obeyed(c) => ' ',
            c => c,
        });
    }
    short
}

/// What is known of the operations since the node started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The last of them, the oldest first.
    pub events: Vec<Event>,
    /// What all of them came to.
    pub totals: Totals,
}

/// Reads what was written down; what cannot be understood says nothing.
///
/// # Errors
/// This user may not read it.
pub fn history(paths: &Paths) -> io::Result<History> {
    let path = paths.events();
    let (_, mut events) = read(&numbered(&path, 1))?;
    let (mut totals, newest) = read(&path)?;
    events.extend(newest);
    totals.count(&events);
    let surplus = events.len().saturating_sub(MOST);
    events.drain(..surplus);
    Ok(History { events, totals })
}

/// What the next file begins with, before the full one is put away and the one before goes: the counts of all but the full one.
fn heading(path: &Path) -> Vec<u8> {
    let (mut totals, _) = read(path).unwrap_or_default();
    let (_, going) = read(&numbered(path, 1)).unwrap_or_default();
    totals.count(&going);
    let mut line = serde_json::to_vec(&Heading { totals }).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The counts that a file carries, and its events.
fn read(path: &Path) -> io::Result<(Totals, Vec<Event>)> {
    /// Those who came late to a full file may have written a little more.
    const LIMIT: usize = 4 << 20;
    match read_bounded(path, LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => Ok(parse(&bytes)),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(e),
        _ => Ok(Default::default()),
    }
}

/// The same of its text; lines that cannot be read say nothing.
pub fn parse(text: &[u8]) -> (Totals, Vec<Event>) {
    let mut totals = Totals::default();
    let mut events = Vec::new();
    for line in text.split(|b| *b == b'\n') {
        let mut found = Line::default();
        if codec::read(line, &mut found).is_err() {
            continue;
        }
        match found.totals {
            Some(found) => totals = found.merged(),
            None if found.event.verb.is_empty() => {}
            // As it is written, whoever wrote it.
            None => events.push(found.event.cut()),
        }
    }
    (totals, events)
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

    fn event(n: usize) -> Event {
        Event {
            time: "2026-11-20T21:09:39Z".into(),
            verb: "ADD".into(),
            network: "azure".into(),
            container_id: format!("{n:064}"),
            if_name: "eth0".into(),
            pod: Some("default/web".into()),
            addresses: vec!["10.224.0.5".parse().unwrap()],
            microseconds: 612,
            reclaimed: u64::from(n.is_multiple_of(100)),
            ..Event::default()
        }
    }

    #[test]
    fn the_last_ones_are_told_and_all_are_counted() {
        let (root, paths) = node("ring");
        let count = 3000;
        for n in 0..count {
            event(n).note(&paths);
        }
        let History { events, totals } = history(&paths).unwrap();
        assert_eq!(events.len(), MOST);
        assert_eq!(events.first().unwrap(), &event(count - MOST));
        assert_eq!(events.last().unwrap(), &event(count - 1));
        let counts: Vec<_> = totals.operations().collect();
        assert_eq!(counts, [("ADD", 0, 3000)]);
        assert_eq!(totals.reclaimed, 30);
        let sizes = [paths.events(), numbered(&paths.events(), 1)]
            .map(|path| fs::metadata(path).unwrap().len());
        assert!(sizes.iter().all(|size| *size < 257 << 10), "{sizes:?}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_full_file_alone_holds_enough_of_the_longest_lines() {
        let (root, paths) = node("long");
        let long = "\u{20ac}\"".repeat(5000);
        let event = Event {
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
            ..event(0)
        };
        event.note(&paths);
        let line = fs::metadata(paths.events()).unwrap().len();
        let least = KEPT.full_at / u64::try_from(MOST).unwrap();
        assert!((100..=least).contains(&line), "{line}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        let (root, paths) = node("junk");
        assert_eq!(history(&paths).unwrap(), History::default());
        event(1).note(&paths);
        let mut text = fs::read(paths.events()).unwrap();
        text.extend(b"{\"verb\": 3}\n\xff\xfe\n{\"verb\":\"ADD\"");
        fs::write(paths.events(), text).unwrap();
        assert_eq!(history(&paths).unwrap().events, [event(1)]);
        let most = u64::MAX;
        let count = format!("{{\"verb\": \"ADD\", \"code\": 0, \"count\": {most}}}");
        let totals = format!(
            "{{\"totals\": {{\"operations\": [{count}], \"reclaimed\": {most}, \"refreshFailures\": {most}}}}}\n"
        );
        fs::write(paths.events(), totals).unwrap();
        Event {
            reclaimed: 1,
            refresh_failed: true,
            ..event(1)
        }
        .note(&paths);
        let totals = history(&paths).unwrap().totals;
        assert_eq!((totals.reclaimed, totals.refresh_failures), (most, most));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_line_stays_one_line() {
        let (root, paths) = node("line");
        let torn = Event {
            msg: "a\nb\x1b[31m".into(),
            ..event(1)
        };
        torn.note(&paths);
        assert_eq!(history(&paths).unwrap().events[0].msg, "a b [31m");
        fs::remove_dir_all(root).unwrap();
    }
}
