//! The house rules that a compiler does not check.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::package;

/// The rooms, each of which may use those before it and itself.
const ROOMS: [&str; 14] = [
    "sorting", "codec", "ipam", "cni", "host", "source", "state", "evidence", "events", "log",
    "stdio", "failure", "plugin", "ops",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The room of a file below src.
fn room(path: &Path) -> Option<usize> {
    let first = path
        .strip_prefix(package().join("src"))
        .unwrap()
        .components()
        .next()?;
    let name = first
        .as_os_str()
        .to_str()?
        .trim_end_matches(".rs")
        .to_owned();
    ROOMS.iter().position(|r| *r == name)
}

/// The program text above the tests.
fn text(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]").next().unwrap().to_owned()
}

/// The rooms that a text names, whether `crate::room` or `use crate::{room, ...}`.
fn used(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for part in text.split("crate::").skip(1) {
        let list = part
            .strip_prefix('{')
            .map_or(part, |p| p.split('}').next().unwrap());
        let items = if part.starts_with('{') {
            list.split(',').collect()
        } else {
            vec![list]
        };
        names.extend(items.into_iter().filter_map(|i| {
            i.trim()
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        }));
    }
    names
}

#[test]
fn rooms_use_only_those_before_them() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in sources(&package().join("src")) {
        let Some(here) = room(&path) else { continue };
        for name in used(&text(&path)) {
            let Some(there) = ROOMS.iter().position(|r| *r == name) else {
                continue;
            };
            seen += 1;
            if there > here {
                wrong.push(format!("{} uses {name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 30, "hardly anything was looked at");
}

#[test]
fn the_check_sees_every_way_of_naming_a_room() {
    assert_eq!(
        used(
            "use crate::plugin::Context;\nuse crate::{log, state};\nlet x = crate::host::words();"
        ),
        ["plugin", "log", "state", "host"]
    );
}

#[test]
fn the_core_asks_nobody() {
    for path in sources(&package().join("src/ipam")) {
        let text = text(&path);
        for forbidden in [
            "std::fs",
            "std::env",
            "std::io",
            "std::process",
            "SystemTime",
            "Instant",
            "rustix",
            "tracing",
        ] {
            assert!(
                !text.contains(forbidden),
                "{} names {forbidden}",
                path.display()
            );
        }
    }
}

#[test]
fn files_stay_small() {
    for path in sources(&package().join("src")) {
        // Tests in a file of their own.
        if path.ends_with("tests.rs") {
            continue;
        }
        let lines = text(&path).lines().count();
        assert!(
            lines <= 350,
            "{} has {lines} lines without its tests",
            path.display()
        );
    }
}

/// Where files are opened.
const OPENER: &str = "src/host/files.rs";

#[test]
fn files_are_opened_in_one_place() {
    let own = ["fs::read(", "fs::read_to_string", "fs::write", "fs::copy"];
    let types = ["File::open", "File::create", "File::options", "OpenOptions"];
    let crates = ["rustix::fs::open", "openat(", "libc::open"];
    let mut found = Vec::new();
    let mut seen = 0;
    for path in sources(&package().join("src")) {
        if path.ends_with("tests.rs") {
            continue;
        }
        let text = text(&path);
        let ways = own.iter().chain(&types).chain(&crates);
        let ways: Vec<_> = ways.filter(|way| text.contains(**way)).collect();
        if path == package().join(OPENER) {
            seen += ways.len();
        } else if !ways.is_empty() {
            found.push(format!("{}: {ways:?}", path.display()));
        }
    }
    assert!(
        found.is_empty(),
        "{found:#?}: a pipe or a device in the file's place would keep the call waiting"
    );
    assert!(seen > 0, "{OPENER} opens files");
}
