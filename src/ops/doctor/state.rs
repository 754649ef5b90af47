//! The state: whether it is there, can be read and written, and is what it should be.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::line::{Line, SET_ASIDE, STATE, Visibility, not_writable, some};
use crate::host::{io_reason, is_read_only};
use crate::ipam::Moment;
use crate::ops::node::Node;
use crate::state::{
    Document, FORMAT, KeyStatus, Loaded, MODE, PendingWork, QUARANTINE, StoreError,
    set_aside_before,
};

/// The lines about it.
pub fn examine(
    node: &Node,
    loaded: &Result<Loaded, StoreError>,
    sight: &mut Visibility,
) -> Vec<Line> {
    let paths = node.paths();
    let path = paths.state();
    let mut lines = match loaded {
        Err(e) if sight.misses(&path.display().to_string(), &io_reason(&e.source)) => Vec::new(),
        Err(e) => vec![Line::wrong(
            STATE,
            &e,
            &"look at the file and its folder with `ls -l`, and at the disk with `dmesg`",
        )],
        Ok(Loaded::Missing) => vec![missing(&path, node.loss(&Document::default()).as_deref())],
        Ok(Loaded::Corrupt(why)) => vec![corrupt(&path, why)],
        Ok(Loaded::Read(document)) => {
            let mut lines = Vec::new();
            let meta = fs::metadata(&path).ok();
            lines.extend(meta.map(|m| file(&path, m.permissions().mode(), m.size())));
            lines.extend(node.loss(document).as_deref().map(lost));
            lines.extend(key(document));
            lines.extend(quarantine(document.ipam().quarantine, node.now.boot));
            lines
        }
    };
    if sight.is_root && is_read_only(&path) {
        lines.push(read_only(&path));
    }
    let aside = set_aside_before(paths);
    let aside: Vec<_> = aside.iter().map(|p| p.display().to_string()).collect();
    lines.extend(set_aside(aside, &path));
    lines
}

/// How the next ADD rebuilds a missing or unreadable state, and what an operator has to do meanwhile.
fn rebuild_remedy() -> String {
    let seconds = QUARANTINE.as_secs();
    format!(
        "nothing has to be cleaned up, and running pods keep their addresses: the next ADD rebuilds it from what the node and the journal of grants show, and new pods wait {seconds} s unless that journal is whole"
    )
}

fn missing(path: &Path, lost: Option<&str>) -> Line {
    let path = path.display();
    match lost {
        Some(why) => Line::wrong(
            STATE,
            &format_args!("{path} was lost: {why}"),
            &rebuild_remedy(),
        ),
        None => {
            let text = "is not there yet: no address was given since the node started";
            Line::ok(STATE, &format_args!("{path} {text}"))
        }
    }
}

fn corrupt(path: &Path, why: &str) -> Line {
    let (path, rebuild_remedy) = (path.display(), rebuild_remedy());
    let text = format_args!("{path} cannot be understood: {why}");
    let remedy = format_args!("{rebuild_remedy}; this file is kept beside it");
    Line::wrong(STATE, &text, &remedy)
}

/// A state that is there, but has to be rebuilt.
fn lost(why: &str) -> Line {
    Line::wrong(
        STATE,
        &format_args!("it was lost: {why}"),
        &rebuild_remedy(),
    )
}

/// The file itself; `mode` with or without the bits of its kind.
fn file(path: &Path, mode: u32, bytes: u64) -> Line {
    let mode = mode & 0o7777;
    let text = format_args!("{}, mode {mode:04o}, {bytes} bytes", path.display());
    if mode == MODE {
        return Line::ok(STATE, &text);
    }
    let remedy = format_args!(
        "the next call makes it {MODE:04o}; or now: chmod {MODE:o} {}",
        path.display()
    );
    Line::warning(STATE, &text, &remedy)
}

/// Our own key in it.
fn key(document: &Document) -> Option<Line> {
    let by = match document.version() {
        "" => String::new(),
        version => format!("; {version} made the state"),
    };
    let line = match &document.own {
        KeyStatus::Absent if document.is_empty() => return None,
        KeyStatus::Absent => {
            let text = format_args!(
                "the original plugin wrote it{by}; the next ADD looks at the node first"
            );
            Line::ok(STATE, &text)
        }
        KeyStatus::Ours => {
            let next = match document.owed {
                PendingWork::Nothing => "",
                PendingWork::Snapshot | PendingWork::Rebuild(_) => {
                    "; the next ADD looks at the node first"
                }
                PendingWork::NewBoot(_) => {
                    "; it is of another boot, and the next ADD frees what the node does not show"
                }
            };
            Line::ok(STATE, &format_args!("this plugin wrote it last{by}{next}"))
        }
        KeyStatus::OriginalWroteLast => Line::warning(
            STATE,
            &format_args!("the original plugin has written it after this one{by}"),
            &"where that is not meant, see which executable the runtime calls: one of them alone guards released addresses",
        ),
        KeyStatus::Unreadable(why) => Line::wrong(
            STATE,
            &format_args!("our key in it cannot be understood: {why}"),
            &"nothing has to be cleaned up: the next ADD looks at the node and writes the key again",
        ),
        KeyStatus::Newer { format, .. } => Line::wrong(
            STATE,
            &format_args!(
                "our key in it has format {format}, and this version knows {FORMAT}: ADDs fail"
            ),
            &"install the newer version that wrote it",
        ),
    };
    Some(line)
}

fn quarantine(until: Option<Moment>, now: Moment) -> Option<Line> {
    let until = until.filter(|until| *until > now)?;
    let seconds = until.since(now).as_secs() + 1;
    let text = format_args!(
        "it was lost and rebuilt: for {seconds} s more only what is known to be held is given"
    );
    Some(Line::warning(STATE, &text, &"wait"))
}

fn read_only(path: &Path) -> Line {
    not_writable(STATE, path.parent().unwrap_or(path))
}

fn set_aside(aside: Vec<String>, path: &Path) -> Option<Line> {
    if aside.is_empty() {
        return None;
    }
    let (aside, path) = (some(aside), path.display());
    let text = format_args!("could not be read and were set aside: {aside}");
    let remedy =
        format_args!("find out what corrupted them, then remove them: rm {path}.corrupt-*");
    Some(Line::warning(SET_ASIDE, &text, &remedy))
}

#[cfg(test)]
mod tests {
    use super::super::line::Status;
    use super::*;
    use std::time::Duration;

    const PATH: &str = "/var/run/azure-vnet-ipam.json";

    fn parsed(json: &str) -> Document {
        Document::parse(json.as_bytes(), Some("boot"), Moment(9)).unwrap()
    }

    #[test]
    fn a_missing_state_is_wrong_only_where_addresses_were_given() {
        let fresh = missing(Path::new(PATH), None);
        assert_eq!((fresh.status, fresh.remedy), (Status::Ok, None));
        let line = missing(Path::new(PATH), Some("it is gone"));
        assert_eq!(line.status, Status::Wrong);
        assert!(line.text.contains("it is gone"));
        assert!(line.remedy.unwrap().contains("new pods wait 30 s"));
    }

    #[test]
    fn others_than_root_should_not_read_it() {
        assert_eq!(file(Path::new(PATH), 0o100_600, 7).status, Status::Ok);
        let line = file(Path::new(PATH), 0o100_644, 7);
        assert_eq!(line.status, Status::Warning);
        assert!(line.text.contains("mode 0644, 7 bytes"), "{line:?}");
        assert!(line.remedy.unwrap().contains("chmod 600"));
    }

    #[test]
    fn each_kind_of_key_is_told() {
        let pools = r#""IPAM":{"Version":"v1.4.59","TimeStamp":"t","AddressSpaces":{"local":{"Pools":{"10.1.0.0/16":{}}}}}"#;
        for (ours, status, words) in [
            ("", Status::Ok, "the original plugin wrote it; v1.4.59"),
            (
                r#","azure-vnet-ipam":{"format":2,"bootId":"boot","timeStamp":"t"}"#,
                Status::Ok,
                "this plugin wrote it last",
            ),
            (
                r#","azure-vnet-ipam":{"format":2,"bootId":"old","timeStamp":"t"}"#,
                Status::Ok,
                "another boot",
            ),
            (
                r#","azure-vnet-ipam":{"format":2,"bootId":"boot","timeStamp":"x"}"#,
                Status::Warning,
                "after this one",
            ),
            (
                r#","azure-vnet-ipam":{"format":2,"records":7}"#,
                Status::Wrong,
                "cannot be understood",
            ),
            (
                r#","azure-vnet-ipam":{"format":99}"#,
                Status::Wrong,
                "format 99",
            ),
        ] {
            let line = key(&parsed(&format!("{{{pools}{ours}}}"))).unwrap();
            assert_eq!(line.status, status, "{line:?}");
            assert!(line.text.contains(words), "{line:?}");
            assert_eq!(line.remedy.is_none(), status == Status::Ok, "{line:?}");
        }
        assert_eq!(key(&parsed("{}")), None);
    }

    #[test]
    fn a_quarantine_is_told_while_it_lasts() {
        let now = Moment(1_000_000_000);
        let line = quarantine(Some(now.after(Duration::from_secs(12))), now).unwrap();
        assert!(line.text.contains("for 13 s more"), "{line:?}");
        assert_eq!(quarantine(Some(now), now), None);
        assert_eq!(quarantine(None, now), None);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told() {
        let line = read_only(Path::new(PATH));
        assert_eq!(line.status, Status::Wrong);
        assert_eq!(line.text, "/var/run cannot be written");
        assert!(line.remedy.unwrap().contains("findmnt -T /var/run"));
    }

    #[test]
    fn states_that_were_set_aside_are_named() {
        let line = set_aside(vec!["a.corrupt-1".to_owned()], Path::new(PATH)).unwrap();
        assert_eq!(line.status, Status::Warning);
        assert!(line.text.contains("a.corrupt-1"));
        assert!(line.remedy.unwrap().contains("json.corrupt-*"));
        assert_eq!(set_aside(vec![], Path::new(PATH)), None);
    }
}
