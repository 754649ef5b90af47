//! The house rules that a compiler does not check.

use std::fs;

use crate::harness::{package, rust_files};

/// The rooms, each of which may use those before it and itself.
const ROOMS: [&str; 13] = [
    "codec", "ipam", "cni", "host", "source", "state", "evidence", "events", "log", "stdio",
    "failure", "plugin", "ops",
];

/// Where files are opened.
const OPENER: &str = "host/files.rs";

fn room(name: &str) -> Option<usize> {
    ROOMS.iter().position(|room| *room == name)
}

/// The source files of the program by their path below `src`, without tests and comments.
fn sources() -> Vec<(String, String)> {
    let root = package().join("src");
    let read = |file: std::path::PathBuf| {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let lines = code.lines();
        let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
        let others = ["tests.rs", "testing.rs", "build.rs"];
        let is_test = others.iter().any(|other| name.ends_with(other));
        (!is_test).then(|| (name, lines.map(|line| format!("{line}\n")).collect()))
    };
    rust_files(&root).into_iter().filter_map(read).collect()
}

/// The rooms in the paths of a text, such as `crate::host::words` and `crate::{log, state::{self, Lock}}`.
fn used_rooms(code: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for path in code.split("crate::").skip(1) {
        let Some(list) = path.strip_prefix('{') else {
            found.push(path.split(|c| !is_word(c)).next().unwrap());
            continue;
        };
        let mut depth = 1;
        for part in list.split_inclusive(['{', '}', ',']) {
            let part = part.trim_start();
            if depth == 1 && part.starts_with(is_word) {
                found.push(part.split(|c| !is_word(c)).next().unwrap());
            }
            depth += part.matches('{').count();
            depth -= part.matches('}').count();
            if depth == 0 {
                break;
            }
        }
    }
    found
}

#[test]
fn rooms_use_only_those_before_them() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (file, code) in sources() {
        let Some(here) = room(file.split(['/', '.']).next().unwrap()) else {
            continue;
        };
        // Other rooms are named from the crate on.
        let up = if file.contains('/') {
            "super::super"
        } else {
            "super::"
        };
        assert!(!code.contains(up), "{file} names {up}");
        for used in used_rooms(&code) {
            seen += 1;
            if room(used).is_none_or(|there| there > here) {
                wrong.push(format!("{file} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 100, "only {seen} uses were found");
}

#[test]
fn every_way_of_naming_a_room_is_seen() {
    let code = "use crate::plugin::Context;\nuse crate::{log, state::{self, Lock}, cni};\n\
                let x = crate::host::words(y::z, source::a);";
    let expected = ["plugin", "log", "state", "cni", "host"];
    assert_eq!(used_rooms(code), expected);
}

#[test]
fn only_their_rooms_ask_the_outside_world() {
    let outside = ["std::fs", "std::env", "std::io", "std::process"];
    let clocks = ["SystemTime", "Instant", "rustix", "tracing"];
    // Elsewhere a pipe or a device in the file's place would keep the call waiting.
    let opens = ["fs::read(", "fs::read_to_string", "fs::write", "fs::copy"];
    let types = ["File::open", "File::create", "File::options", "OpenOptions"];
    let calls = ["rustix::fs::open", "openat(", "libc::open"];
    let names = |code: &str, words: &[&'static str]| {
        let found = words.iter().find(|word| code.contains(**word));
        found.copied()
    };
    let opening = [&opens[..], &types, &calls].concat();
    for (file, code) in sources() {
        if file.starts_with("ipam/") {
            let asks = names(&code, &[outside, clocks].concat());
            assert_eq!(asks, None, "{file}");
        }
        let is_opener = file == OPENER;
        assert_eq!(names(&code, &opening).is_some(), is_opener, "{file}");
    }
}
