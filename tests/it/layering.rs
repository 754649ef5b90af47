//! The rules for the source code that the compiler does not check.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::harness::{package, rust_files};

/// The modules of the program. Each may use itself and the modules before it.
const MODULES: [&str; 13] = [
    "codec", "ipam", "cni", "host", "source", "state", "evidence", "events", "log", "stdio",
    "failure", "plugin", "ops",
];

/// The only file in which files are opened.
const OPENER: &str = "host/files.rs";

fn position(name: &str) -> Option<usize> {
    MODULES.iter().position(|module| *module == name)
}

/// The source files of the program, without tests and comments, by their path below `src`.
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

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The names after `prefix` in a text, such as `crate::host::words` and `crate::{log, state::{self, Lock}}`.
fn names_behind<'a>(prefix: &str, code: &'a str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for path in code.split(prefix).skip(1) {
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
fn modules_use_only_modules_before_them() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (file, code) in sources() {
        let Some(here) = position(file.split(['/', '.']).next().unwrap()) else {
            continue;
        };
        // Paths to other modules start at the crate.
        let up = if file.contains('/') {
            "super::super"
        } else {
            "super::"
        };
        assert!(!code.contains(up), "{file} names {up}");
        for used in names_behind("crate::", &code) {
            seen += 1;
            if position(used).is_none_or(|there| there > here) {
                wrong.push(format!("{file} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 100, "only {seen} uses were found");
}

#[test]
fn every_way_of_naming_a_module_is_found() {
    let code = "use crate::plugin::Context;\nuse crate::{log, state::{self, Lock}, cni};\n\
                let x = crate::host::words(y::z, source::a);";
    let expected = ["plugin", "log", "state", "cni", "host"];
    assert_eq!(names_behind("crate::", code), expected);
}

#[test]
fn parts_of_a_module_do_not_use_each_other_in_a_circle() {
    let (sources, mut seen) = (sources(), 0);
    let folders = sources.iter();
    let folders = folders.filter_map(|(file, code)| Some((file.strip_suffix("mod.rs")?, code)));
    for (folder, code) in folders {
        let inside = sources.iter();
        let inside = inside.filter_map(|(file, code)| Some((file.strip_prefix(folder)?, code)));
        let inside =
            inside.map(|(file, code)| (file.split(['/', '.']).next().unwrap(), file, code));
        // The part that declares each name of the folder. `own` is the code of `mod.rs` without its re-exports.
        let mut part_of: BTreeMap<_, _> = inside.clone().map(|(part, ..)| (part, part)).collect();
        let code = code.replace("pub(crate) use ", "pub use ");
        let mut own = String::new();
        for (n, text) in code.split("pub use ").enumerate() {
            let (names, rest) = text.split_once(';').filter(|_| n > 0).unwrap_or(("", text));
            own += rest;
            if let Some(part) = part_of.get(names.split("::").next().unwrap()).copied() {
                let names = names.split(|c| !is_word(c)).filter(|name| !name.is_empty());
                part_of.extend(names.map(|name| (name, part)));
            }
        }
        let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (here, file, code) in inside {
            let path = format!("crate::{}", folder.replace('/', "::"));
            let mut used = names_behind(&path, code);
            if file == "mod.rs" {
                let paths = own.split(|c| !is_word(c) && c != ':');
                let named = paths.map(|path| (path, path.split("::").next().unwrap()));
                // A part without a path is its own declaration.
                let named =
                    named.filter(|(path, name)| part_of.get(name).is_some_and(|p| p != path));
                used.extend(named.map(|(_, name)| name));
            } else if !file.trim_end_matches("/mod.rs").contains('/') {
                used.extend(names_behind("super::", code));
            }
            seen += used.len();
            let used = used.iter().map(|name| *part_of.get(name).unwrap_or(&"mod"));
            uses.entry(here)
                .or_default()
                .extend(used.filter(|part| *part != here));
        }
        // Repeatedly remove the parts that use none of the remaining ones. A circle remains.
        for _ in 0..uses.len() {
            let left: BTreeSet<_> = uses.keys().copied().collect();
            uses.retain(|_, used| !used.is_disjoint(&left));
        }
        assert!(uses.is_empty(), "{folder}: {uses:#?}");
    }
    assert!(seen > 300, "only {seen} uses were found");
}

#[test]
fn only_certain_modules_access_the_outside_world() {
    let outside = ["std::fs", "std::env", "std::io", "std::process"];
    let clocks = ["SystemTime", "Instant", "rustix", "tracing"];
    // In other files, these functions could block on a pipe or a device in place of a file.
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
